"""The gradient of Dropout goes where the forward pass let elements through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore import compile, grad  # noqa: A004  # aicore.compile
from aicore.ir import Builder, Graph, verify
from aicore.ops.random import Dropout

Array = np.ndarray[Any, Any]
KEY = np.array([3, 4], np.uint32)


def run(graph: Graph, **feeds: Any) -> dict[str, Array]:
    verify(graph)
    return compile(graph, "cpu").run(feeds)


def summed(dropout: Dropout, *extra: str, dtype: str = "float64") -> Graph:
    """The gradient of sum(y) by x; extra: `ratio`, `training_mode`."""
    op = Builder()
    x, key = op.input("x", dtype, ("n", 7)), op.input("key", "uint32", (2,))
    ratio = op.input("ratio", "float32", ()) if "ratio" in extra else None
    mode = op.input("training_mode", "bool", ()) if "training_mode" in extra else None
    y = op.apply(dropout, x, ratio, mode, key)
    inputs = [value for value in (x, key, ratio, mode) if value is not None]
    return grad(op.graph(inputs, {"loss": op.ReduceSum(y, keepdims=0), "y": y}), "loss", ["x"])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_kept_elements_get_their_share(dtype: str) -> None:
    found = run(summed(Dropout(0.25, True), dtype=dtype), x=np.ones((50, 7), dtype), key=KEY)
    np.testing.assert_allclose(found["grad.x"], np.where(found["y"] != 0, 4 / 3, 0), rtol=1e-3)
    assert found["grad.x"].dtype == dtype
    assert 0.15 < (found["grad.x"] == 0).mean() < 0.35


def test_zeros_and_infinities_do_not_matter() -> None:
    """The mask decides, not the numbers."""
    plain = run(summed(Dropout(0.5, True)), x=np.ones((20, 7)), key=KEY)
    for number in (0.0, np.inf, np.nan):
        other = run(summed(Dropout(0.5, True)), x=np.full((20, 7), number), key=KEY)
        np.testing.assert_array_equal(other["grad.x"], plain["grad.x"])


def test_inference_is_the_identity_and_keeps_no_mask() -> None:
    graph = summed(Dropout(0.5, False))
    assert not any(getattr(node.op, "mask", False) for node in graph.nodes)
    np.testing.assert_array_equal(run(graph, x=np.zeros((3, 7)), key=KEY)["grad.x"], 1)


@pytest.mark.parametrize("training", [True, False])
def test_ratio_and_mode_at_the_run(training: bool) -> None:
    graph = summed(Dropout(), "ratio", "training_mode")
    feeds = {"ratio": np.float32(0.75), "training_mode": np.bool_(training)}
    found = run(graph, x=np.ones((40, 7)), key=KEY, **feeds)
    kept = found["y"] != 0
    assert kept.all() != training
    np.testing.assert_array_equal(found["grad.x"], np.where(kept, 4.0 if training else 1.0, 0))
