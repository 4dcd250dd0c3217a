"""Random numbers: a seed becomes a key that is constant; without one, each run draws a key of its own.

Two nodes with the same seed draw the same numbers, and so does every run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.errors import ModelError
from aicore.frontends.onnx.convert.source import Results, SourceNode, converts
from aicore.ir import Value


def key_of(node: SourceNode, seed: float | None) -> Value:
    """The key that a seed stands for, or a new one for each run."""
    if seed is None:
        key: Value = node.op.DrawKey()
        return key
    words = np.float64(seed).view(np.uint64)
    return node.constant([int(words) & 0xFFFFFFFF, int(words) >> 32], "uint32")


@converts("RandomNormal", "RandomUniform")
def random_of_shape(node: SourceNode) -> Results:
    """The shape is an attribute."""
    return _draw(node, shape=tuple(node.read("shape")))


@converts("RandomNormalLike", "RandomUniformLike")
def random_like(node: SourceNode) -> Results:
    """The shape is that of an operand, and so is the element type unless an attribute names one."""
    x = node.operand()
    return _draw(node, node.op.Shape(x), dtype=None if node.read("dtype") else x.dtype)


@converts("Bernoulli")
def bernoulli(node: SourceNode) -> Results:
    """1 with the given probability, as the text says; the body that ONNX gives as a function has the complement."""
    x, op = node.operand(), node.op
    number, key = node.read("dtype"), key_of(node, node.read("seed"))
    uniform = op.DrawUniform(key, op.Shape(x), dtype=x.dtype)
    result: Results = op.Cast(op.Less(uniform, x), to=node.dtype(number, "dtype") if number else x.dtype)
    return result


@converts("Multinomial")
def multinomial(node: SourceNode) -> Results:
    """The class whose logarithmic weight plus noise of the Gumbel distribution, -log(-log(u)), is largest."""
    x, op = node.operand(), node.op
    number, size = node.read("dtype"), node.read("sample_size")
    if size < 1:
        raise ModelError(f"{node.where}: sample_size is {size}, wants 1 or more")
    count = node.constant([size])
    rows, classes = (op.Slice(op.Shape(x), starts=(i,), ends=(i + 1,), axes=(0,), steps=(1,)) for i in (0, 1))
    shape = op.Concat(rows, count, classes, axis=0)
    uniform = op.DrawUniform(key_of(node, node.read("seed")), shape, dtype=x.dtype)
    noise = op.Neg(op.Log(op.Neg(op.Log(uniform))))
    chosen = op.ArgMax(op.Add(op.Unsqueeze(x, axes=(1,)), noise), axis=-1, keepdims=0)
    result: Results = op.Cast(chosen, to=node.dtype(number, "dtype"))
    return result


def _draw(node: SourceNode, *operands: Value, **fields: Any) -> Results:
    kind = "DrawNormal" if "Normal" in node.kind else "DrawUniform"
    names = ("mean", "scale") if kind == "DrawNormal" else ("low", "high")
    fields |= {name: node.read(name) for name in names}
    number = node.read("dtype")
    if fields.get("dtype") is None:
        fields["dtype"] = node.dtype(number, "dtype")
    key = key_of(node, node.read("seed"))
    drawn: Results = getattr(node.op, kind)(key, *operands, **fields)
    return drawn
