"""MaxPool of bytes by the source of its kernel, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType
from aicore.kernels import REFERENCE, KernelTable
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import MaxPool
from aicore.runtime import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels
from aicore_int8_quant.cuda import pooling
from plugins.int8_quant.tests.cuda import cases

CASES = (
    ((2, 16, 9, 10), MaxPool(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))),
    ((1, 12, 7, 8), MaxPool(kernel_shape=(2, 3), dilations=(2, 1), pads=(1, 0, 0, 2))),
    ((2, 32, 11), MaxPool(kernel_shape=(3,), strides=(2,), ceil_mode=1)),
    ((1, 4, 6, 6), MaxPool(kernel_shape=(3, 3), strides=(2, 2), auto_pad="SAME_UPPER")),
    ((0, 16, 5, 5), MaxPool(kernel_shape=(2, 2))),
)


@pytest.fixture(scope="module")
def host(build: Any) -> Any:
    return build("pool")


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("shape", "op"), CASES, ids=lambda one: str(one)[:24])
def test_maximum(shape: tuple[int, ...], op: MaxPool, dtype: str, host: Any) -> None:
    x = cases.codes(np.random.default_rng(len(shape)), shape, dtype)
    (wanted,) = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))(op, x)
    moved = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    (found,) = host.run(pooling.KERNELS[0], ChannelsLast(op, len(shape)), (moved,))
    np.testing.assert_array_equal(np.moveaxis(found, -1, 1), wanted)


@pytest.mark.parametrize(
    ("shape", "op", "reason"),
    [
        ((1, 5, 5, 6), MaxPool(kernel_shape=(2, 2)), "in fours"),
        ((1, 5, 5, 8), MaxPool(kernel_shape=(2, 2), indices=True), "no indices"),
        ((1, 5, 5, 5, 8), MaxPool(kernel_shape=(2, 2, 2)), "one or two spatial axes"),
        (None, MaxPool(kernel_shape=(2, 2)), "known sizes"),
        ((1 << 20, 64, 64, 8), MaxPool(kernel_shape=(2, 2)), "2\\*\\*31"),
    ],
    ids=["channels", "indices", "axes", "open", "large"],
)
def test_refusals(shape: Any, op: MaxPool, reason: str) -> None:
    rank = 4 if shape is None else len(shape)
    found = pooling.KERNELS[0].reason_against(ChannelsLast(op, rank), TensorType("int8", shape))
    assert found is not None
    assert reason.replace("\\", "") in found
