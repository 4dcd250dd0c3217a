"""Dropout as the GPU computes it, run on the CPU; see conftest.py. The same elements are kept as by the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import KernelTable
from aicore.ops.random import Dropout
from aicore.runtime import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import random

Array = np.ndarray[Any, Any]
(KERNEL,) = random.KERNELS
KEY = np.array([0xDEADBEEF, 0xFFFFFFF0], np.uint32)


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build("kernels/dropout.cu")


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(random, "compiled", recorded)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(5, 7), (4, 1024), (1,), (), (0, 3)])
@pytest.mark.parametrize("mask", [True, False])
def test_agrees_with_the_reference_bit_for_bit(dtype: str, shape: tuple[int, ...], mask: bool, host: Any) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(numpy_dtype(dtype))
    for stream, ratio in ((0, 0.5), (3, 0.1), (2**32 - 1, 0.0), (7, 0.999)):
        op = Dropout(ratio, True, mask, stream)
        operands = [x, None, None, KEY]
        wanted = ReferenceEvaluator(KernelTable(all_kernels()))(op, *operands)
        for found, expected in zip(host.run(KERNEL, op, operands), wanted, strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_reasons() -> None:
    x, number, key = TensorType("float32", (3,)), TensorType("float32", ()), TensorType("uint32", (2,))
    assert KERNEL.reason_against(Dropout(0.5, True), x, None, None, key) is None
    assert "known before the run" in str(KERNEL.reason_against(Dropout(None, True), x, number, None, key))
    assert "training mode" in str(KERNEL.reason_against(Dropout(0.5, False), x, None, None, key))
    assert "known in numbers" in str(
        KERNEL.reason_against(Dropout(0.5, True), TensorType("float32", None), None, None, key)
    )
    many = TensorType("float32", (2**34 + 1,))
    assert "at most" in str(KERNEL.reason_against(Dropout(0.5, True), many, None, None, key))
