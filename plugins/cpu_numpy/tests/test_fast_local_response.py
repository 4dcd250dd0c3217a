"""LRN by shifted additions gives the reference's numbers, block by block, from the workspace alone."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType, symbol
from aicore.ops.normalization import LRN
from aicore_cpu_numpy.fast import local_response
from aicore_cpu_numpy.fast.local_response import lrn_shifted

Run = Callable[..., Any]
TOLERANCE = {"float32": 2e-6, "float64": 1e-14}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("limit", [1, 400, 1 << 20])
@pytest.mark.parametrize("shape", [(2, 7, 3, 4), (1, 1, 5), (3, 4), (2, 5, 0), (0, 3, 2), (1, 40, 9, 9)])
@pytest.mark.parametrize("op", [LRN(1), LRN(2), LRN(5), LRN(4, 0.1, 0.5, 2.0), LRN(31, beta=1.3)], ids=str)
def test_numbers(
    op: LRN, shape: Any, limit: int, dtype: str, run_kernel: Run, reference: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_response, "BLOCK_BYTES", limit)
    x = (3 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    (got,) = run_kernel(lrn_shifted, op, [x])
    (expected,) = reference(op, [x.astype(np.float64)])
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE[dtype])


def test_by_hand(run_kernel: Run) -> None:
    """Three channels of 1, 2, 3, a window of 3: sums of squares 5, 14, 13; bias 1, alpha 3, so that sums count once."""
    x = np.array([1.0, 2.0, 3.0]).reshape(1, 3, 1)
    (y,) = run_kernel(lrn_shifted, LRN(3, 3.0, 0.75, 1.0), [x])
    np.testing.assert_allclose(y.ravel(), [1 / 6**0.75, 2 / 15**0.75, 3 / 14**0.75], rtol=1e-14)
    (y,) = run_kernel(lrn_shifted, LRN(2, 2.0, 1.0, 0.0), [x])  # the window reaches further to the end: 5, 13, 9
    np.testing.assert_allclose(y.ravel(), [1 / 5, 2 / 13, 3 / 9], rtol=1e-14)


def test_temporaries_come_from_the_workspace() -> None:
    x = np.random.default_rng(0).standard_normal((1, 64, 56, 56)).astype(np.float32)
    assert lrn_shifted.workspace is not None
    workspace = np.empty(lrn_shifted.workspace(LRN(5), TensorType("float32", x.shape)), np.uint8)
    out = np.empty_like(x)
    tracemalloc.start()
    lrn_shifted.function(LRN(5), x, out=out, workspace=workspace)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 << 10


def test_reasons_and_estimate() -> None:
    x = TensorType("float32", (1, 64, 8, 8))
    assert lrn_shifted.reason_against(LRN(5), x) is None
    assert "known in numbers" in str(lrn_shifted.reason_against(LRN(5), TensorType("float32", (symbol("N"), 3, 8))))
    assert "does not take float16" in str(lrn_shifted.reason_against(LRN(5), TensorType("float16", (1, 3, 8))))
    assert lrn_shifted.estimate is not None
    assert 0 < lrn_shifted.estimate(LRN(3), x) < lrn_shifted.estimate(LRN(31), x)
