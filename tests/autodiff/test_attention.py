"""The gradient of attention, through its decomposition, against the formula in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore import compile, grad  # noqa: A004  # aicore.compile
from aicore.ir import Builder, verify
from aicore.ops.attention import DotProductAttention

Array = np.ndarray[Any, Any]


def expected(q: Array, k: Array, v: Array, mask: Array, scale: float, dy: Array) -> tuple[Array, Array, Array]:
    """Through y = p v, p = softmax(s), s = scale q k' + mask: ds = p (dp - sum(p dp))."""
    scores = scale * q @ k.swapaxes(-1, -2) + mask
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    dp = dy @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    return scale * ds @ k, scale * ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ dy


@pytest.mark.parametrize("optimize", [True, False])
def test_causal_attention(optimize: bool) -> None:
    """Positions that may not be seen get exactly nothing."""
    rng, shape = np.random.default_rng(0), (2, 3, 6, 4)
    q, k, v, dy = (rng.standard_normal(shape) for _ in range(4))
    mask = np.where(np.tri(6, dtype=bool), 0.0, -np.inf)
    op = Builder()
    inputs = {name: op.input(name, "float64", shape) for name in ("q", "k", "v", "dy")}
    y = op.apply(DotProductAttention(0.5), inputs["q"], inputs["k"], inputs["v"], op.constant(mask))
    loss = op.ReduceSum(op.Mul(y, inputs["dy"]), keepdims=0)
    graph = grad(op.graph(inputs.values(), {"loss": loss}), "loss", ["q", "k", "v"])
    verify(graph)
    found = compile(graph, "cpu", optimize=optimize).run({"q": q, "k": k, "v": v, "dy": dy})
    for name, wanted in zip(("q", "k", "v"), expected(q, k, v, mask, 0.5, dy), strict=True):
        np.testing.assert_allclose(found[f"grad.{name}"], wanted, rtol=1e-10, atol=1e-13)
    only_first = dy.copy()
    only_first[:, :, 1:] = 0
    first = compile(graph, "cpu", optimize=optimize).run({"q": q, "k": k, "v": v, "dy": only_first})
    np.testing.assert_array_equal(first["grad.v"][:, :, 1:], 0)


def test_queries_keys_and_values_of_one_operand_add_up() -> None:
    rng, layout = np.random.default_rng(1), "lbphd"
    packed, dy = rng.standard_normal((5, 2, 3, 2, 4)), rng.standard_normal((5, 2, 2, 4))
    op = Builder()
    x, weights = op.input("x", "float64", packed.shape), op.input("dy", "float64", dy.shape)
    y = op.apply(DotProductAttention(0.5, layout, layout, layout, "lbhd", (0, 1, 2)), x, x, x)
    loss = op.ReduceSum(op.Mul(y, weights), keepdims=0)
    graph = grad(op.graph([x, weights], {"loss": loss}), "loss", ["x"])
    found = compile(graph, "cpu").run({"x": packed, "dy": dy})["grad.x"]
    q, k, v = (packed[:, :, i].transpose(1, 2, 0, 3) for i in range(3))
    wanted = expected(q, k, v, np.zeros((5, 5)), 0.5, dy.transpose(1, 2, 0, 3))
    np.testing.assert_allclose(found, np.stack([g.transpose(2, 0, 1, 3) for g in wanted], axis=2), rtol=1e-10)
