"""Local response normalisation with channels last, against the reference in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ops.layout import ChannelsLast
from aicore.ops.normalization import LRN
from aicore.runtime import using_threads
from aicore_cpu_numpy.fast import _parallel, last_lrn

Run = Callable[..., Any]

(KERNEL,) = last_lrn.KERNELS


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("block", [1, 64 << 10])
@pytest.mark.parametrize(
    "op", [LRN(1), LRN(5), LRN(4, 0.3, 0.5, 2.0), LRN(99, 0.1, 0.6), LRN(2, 1.0, 0.75, 0.5)], ids=str
)
@pytest.mark.parametrize("shape", [(2, 7, 3, 4), (1, 4, 1), (0, 3, 2, 2), (3, 1, 5, 5)])
def test_against_the_reference(
    op: LRN, shape: tuple[int, ...], block: int, threads: int, run_kernel: Run, reference: Run, monkeypatch: Any
) -> None:
    monkeypatch.setattr(_parallel, "PARALLEL", -1.0)
    monkeypatch.setattr(last_lrn, "BLOCK_BYTES", block)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    (wanted,) = reference(op, [x.astype(np.float64)])
    with using_threads(threads):
        (got,) = run_kernel(KERNEL, ChannelsLast(op, len(shape)), [np.moveaxis(x, 1, -1).copy()])
    np.testing.assert_allclose(np.moveaxis(got, -1, 1), wanted, rtol=2e-6)


def test_not_a_number_reaches_the_window_alone(run_kernel: Run) -> None:
    x = np.ones((1, 1, 8), np.float32)
    x[0, 0, 3] = np.nan
    (got,) = run_kernel(KERNEL, ChannelsLast(LRN(3), 3), [x])
    assert np.isnan(got[0, 0]).tolist() == [False, False, True, True, True, False, False, False]
