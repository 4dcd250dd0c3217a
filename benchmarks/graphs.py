"""Synthetic graphs of any number of nodes, for measuring how compile time grows."""

from __future__ import annotations

import numpy as np

from aicore.ir import Builder, Graph, Value

WIDTH = 8


def chain(nodes: int) -> Graph:
    """MatMul, Add and Relu, one after the other."""
    op, x, y = _start()
    for _ in range(nodes // 3):
        y = op.Relu(op.Add(op.MatMul(y, _weight(op)), _bias(op)))
    return op.graph([x], {"y": y})


def wide(nodes: int) -> Graph:
    """Many branches of two nodes each from one input, added up as a balanced tree."""
    op, x, y = _start()
    branches = [op.Relu(op.MatMul(y, _weight(op))) for _ in range(nodes // 3)]
    while len(branches) > 1:
        pairs = zip(branches[::2], branches[1::2], strict=False)
        rest = branches[-1:] if len(branches) % 2 else []
        branches = [op.Add(a, b) for a, b in pairs] + rest
    return op.graph([x], {"y": branches[0]})


def residual(nodes: int) -> Graph:
    """Blocks of MatMul, Add, Relu and the addition of the block's input."""
    op, x, y = _start()
    for _ in range(nodes // 4):
        inner = op.Relu(op.Add(op.MatMul(y, _weight(op)), _bias(op)))
        y = op.Add(inner, y)
    return op.graph([x], {"y": y})


SHAPES = {"chain": chain, "wide": wide, "residual": residual}


def _start() -> tuple[Builder, Value, Value]:
    op = Builder()
    x = op.input("x", "float32", ("batch", WIDTH))
    return op, x, x


def _weight(op: Builder) -> Value:
    return op.constant(np.eye(WIDTH, dtype=np.float32) * 0.5, "weight")


def _bias(op: Builder) -> Value:
    return op.constant(np.full(WIDTH, 0.125, np.float32), "bias")
