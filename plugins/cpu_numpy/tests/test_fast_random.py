"""Dropout in pieces keeps the same elements as the reference, and gives the same numbers."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType
from aicore.ops.random import Dropout
from aicore_cpu_numpy.fast import random

Run = Callable[..., Any]
(KERNEL,) = random.KERNELS
KEY = np.array([0xDEADBEEF, 0xFFFFFFF0], np.uint32)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(3, 5), (1,), (), (0, 4), (4, 4096), (5, 4099), (33333,)])
def test_agrees_bit_for_bit(dtype: str, shape: tuple[int, ...], run_kernel: Run, reference: Run) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    for mask, stream, ratio in ((True, 0, 0.5), (False, 3, 0.1), (True, 2**32 - 1, 0.0), (True, 7, 0.999)):
        op = Dropout(ratio, True, mask, stream)
        got = run_kernel(KERNEL, op, [x, None, None, KEY])
        for found, expected in zip(got, reference(op, [x, None, None, KEY]), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_what_is_dropped_is_zero_whatever_it_was(run_kernel: Run) -> None:
    x = np.resize(np.float32([np.inf, -np.inf, np.nan]), 300)
    y, mask = run_kernel(KERNEL, Dropout(0.5, True, True), [x, None, None, KEY])
    assert 0 < mask.sum() < mask.size
    np.testing.assert_array_equal(y[~mask], 0)
    np.testing.assert_array_equal(y[mask], x[mask])


def test_temporaries_come_from_the_workspace() -> None:
    x = np.ones((64, 1024), np.float32)
    op, types = Dropout(0.5, True, True), [TensorType("float32", x.shape), None, None, TensorType("uint32", (2,))]
    assert KERNEL.bind is not None
    assert KERNEL.workspace is not None
    run = KERNEL.bind(op, types, [None] * 4)
    out, workspace = (np.empty_like(x), np.empty(x.shape, bool)), np.empty(KERNEL.workspace(op, *types), np.uint8)
    run(x, None, None, KEY, out=out, workspace=workspace)
    tracemalloc.start()
    run(x, None, None, KEY, out=out, workspace=workspace)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 96 << 10  # buffers of a product of two types


def test_reasons_and_estimates() -> None:
    x, number, key = TensorType("float32", (8, 8)), TensorType("float32", ()), TensorType("uint32", (2,))
    assert KERNEL.reason_against(Dropout(0.5, True), x, None, None, key) is None
    assert "known before the run" in str(KERNEL.reason_against(Dropout(None, True), x, number, None, key))
    assert "training mode" in str(KERNEL.reason_against(Dropout(0.5), x, None, None, key))
    assert "known in numbers" in str(
        KERNEL.reason_against(Dropout(0.5, True), TensorType("float32", None), None, None, key)
    )
    assert KERNEL.estimate is not None
    assert (
        0
        < KERNEL.estimate(Dropout(0.5, True), x)
        < KERNEL.estimate(Dropout(0.5, True), TensorType("float32", (999, 999)))
    )
