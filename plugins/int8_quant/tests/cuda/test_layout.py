"""Few channels put last by the source of the kernel, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType
from aicore.ops.movement import Transpose
from aicore_int8_quant.cuda import layout
from plugins.int8_quant.tests.cuda import cases

SHAPES = ((2, 3, 6, 10), (1, 2, 4, 5), (3, 4, 8), (0, 3, 4, 4))


@pytest.fixture(scope="module")
def host(build: Any) -> Any:
    return build("channels")


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_channels_last(shape: tuple[int, ...], dtype: str, host: Any) -> None:
    x = cases.codes(np.random.default_rng(0), shape, dtype)
    op = Transpose((0, *range(2, len(shape)), 1))
    assert layout.KERNELS[0].reason_against(op, TensorType(dtype, shape)) is None
    (found,) = host.run(layout.KERNELS[0], op, (x,))
    np.testing.assert_array_equal(found, np.moveaxis(x, 1, -1))


@pytest.mark.parametrize(
    ("shape", "perm", "reason"),
    [
        ((2, 5, 4, 4), (0, 2, 3, 1), "two to four channels"),
        ((2, 3, 3, 3), (0, 2, 3, 1), "in fours"),
        ((2, 3, 4, 4), (0, 3, 1, 2), "the second axis last"),
        ((1 << 20, 3, 64, 64), (0, 2, 3, 1), "2**31"),
        (None, (0, 2, 3, 1), "known sizes"),
    ],
    ids=["channels", "pixels", "axes", "large", "open"],
)
def test_refusals(shape: Any, perm: tuple[int, ...], reason: str) -> None:
    assert reason in str(layout.KERNELS[0].reason_against(Transpose(perm), TensorType("int8", shape)))
