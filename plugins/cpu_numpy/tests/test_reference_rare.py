"""MaxUnpool, BitCast and DeformConv, by numbers worked out by hand or against what they generalise."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aicore.errors import ExecutionError
from aicore.ir import Builder, Op
from aicore.kernels import REFERENCE, KernelTable
from aicore.ops.bits import BitCast
from aicore.ops.convolution import Conv
from aicore.ops.deformable import DeformConv
from aicore.ops.pooling import MaxPool
from aicore.ops.unpooling import MaxUnpool
from aicore.runtime.evaluate import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]
EVALUATE = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


def run(op: Op, *operands: Array | None) -> Any:
    builder = Builder()
    values = [None if a is None else builder.input(f"x{i}", a.dtype.name, a.shape) for i, a in enumerate(operands)]
    builder.apply(op, *values)
    found = EVALUATE(builder.nodes[-1].op, *operands)
    return found[0] if len(found) == 1 else found


def test_unpooling_puts_numbers_where_the_indices_say() -> None:
    x, places = np.float32([[[1, 2]], [[3, 4]]]), np.array([[[1, 2]], [[4, 7]]])
    assert run(MaxUnpool((2,), strides=(2,)), x, places).tolist() == [[[0, 1, 2, 0]], [[3, 0, 0, 4]]]
    # (2 - 1) * 2 - 1 + 2 is 3, so the second image starts at 3
    assert run(MaxUnpool((2,), (1, 0), (2,)), x, np.array([[[0, 2]], [[3, 4]]])).tolist() == [[[1, 0, 2]], [[3, 4, 0]]]
    longer = run(MaxUnpool((2,), strides=(2,)), x, np.array([[[0, 4]], [[5, 9]]]), np.array([2, 1, 5]))
    assert longer.tolist() == [[[1, 0, 0, 0, 2]], [[3, 0, 0, 0, 4]]]


def test_unpooling_inverts_pooling() -> None:
    """Where the size was lost, here 5 of (5 - 2) / 2 + 1 = 2 windows, output_shape gives it back."""
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype(np.float32) + 9
    pooled, places = run(MaxPool(kernel_shape=(2, 2), strides=(2, 2), indices=True), x)
    back = run(MaxUnpool((2, 2), strides=(2, 2)), pooled, places, np.array(x.shape))
    np.testing.assert_array_equal(back[back != 0], x[back != 0])
    assert (back != 0).sum() == pooled.size
    np.testing.assert_array_equal(run(MaxPool(kernel_shape=(2, 2), strides=(2, 2)), back), pooled)


@pytest.mark.parametrize("index", [-1, 4])
def test_unpooling_beyond_the_result(index: int) -> None:
    with pytest.raises(ExecutionError, match="an index is outside of the 4 elements"):
        run(MaxUnpool((2,), strides=(2,)), np.ones((1, 1, 2), np.float32), np.array([[[0, index]]]))


@pytest.mark.parametrize(
    ("x", "to", "wanted"),
    [
        (np.float32([1, -2.5]), "int32", [0x3F800000, 0xC0200000 - 2**32]),
        (np.int32([0x3F800000]), "float32", [1]),
        (np.uint16([0x3F80]), "bfloat16", [1]),
        (np.uint8([0x38, 0x80]), "float8_e4m3fn", [1, 0]),
        (np.uint8([0, 1, 2]), "bool", [False, True, True]),
        (np.array([True, False]), "int8", [1, 0]),
        (np.array([7, 8, 15]).astype(ml_dtypes.uint4), "int4", [7, -8, -1]),
        (np.array([-1, -8, 3]).astype(ml_dtypes.int4), "uint4", [15, 8, 3]),
        (np.array([-1, 1]).astype(ml_dtypes.int2), "uint2", [3, 1]),
        (np.array([2, 3]).astype(ml_dtypes.uint2), "int2", [-2, -1]),
        (np.array([2, 10]).astype(ml_dtypes.uint4), "float4_e2m1fn", [1, -1]),
    ],
)
def test_bits(x: Array, to: str, wanted: list[Any]) -> None:
    found = run(BitCast(to), x)
    assert found.dtype.name == to
    assert found.astype(np.float64).tolist() == wanted


def test_no_offsets_are_a_convolution() -> None:
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=shape) for shape in ((2, 4, 6, 5), (6, 2, 3, 2), (6,)))
    fields: dict[str, Any] = {"group": 2, "pads": (1, 0, 1, 1), "strides": (2, 1), "dilations": (1, 2)}
    plain = run(Conv(**fields), x, w, b)
    offset = np.zeros((2, 2 * 6 * 2, *plain.shape[2:]))
    np.testing.assert_allclose(run(DeformConv(offset_group=2, **fields), x, w, offset, b), plain, atol=1e-12)


def test_offsets_move_what_the_kernel_reads() -> None:
    """One weight of 1 over (1, 2, 4): moved by 1 it reads the next element; by 1/2, halves of both; beyond, zeros."""
    x, w = np.array([[[1.0, 2, 4]]]), np.ones((1, 1, 1))
    for offset, wanted in (
        ([1.0, 1, 1], [2, 4, 0]),
        ([0.5, 0.5, 0.5], [1.5, 3, 2]),
        ([-0.25, 0, 0.75], [0.75, 2, 1]),
        ([-1.0, -5, 9], [0, 0, 0]),
    ):
        assert run(DeformConv(), x, w, np.array([[offset]])).tolist() == [[wanted]]


def test_offsets_of_two_dims_are_row_first_for_each_element_of_the_kernel() -> None:
    """A kernel of 1 x 2 with weights 1 and 10: its first element is moved one row down, its second one column left."""
    x, w = np.arange(6.0).reshape(1, 1, 2, 3), np.array([[[[1.0, 10]]]])
    offset = np.zeros((1, 4, 2, 2))
    offset[0, 0], offset[0, 3] = 1, -1
    wanted = [[3 + 10 * 0, 4 + 10 * 1], [0 + 10 * 3, 0 + 10 * 4]]
    assert run(DeformConv(), x, w, offset).tolist() == [[wanted]]


def test_masks_and_groups_of_offsets() -> None:
    x, w = np.array([[[1.0, 2], [10, 20]]]), np.ones((1, 2, 1))
    offset = np.array([[[0.0, 0], [1, -1]]])  # the second channel is read the other way round
    mask = np.array([[[1, 0.5], [0.25, 1]]])
    assert run(DeformConv(offset_group=2), x, w, offset).tolist() == [[[1 + 20, 2 + 10]]]
    assert run(DeformConv(offset_group=2), x, w, offset, np.array([0.5]), mask).tolist() == [[[6.5, 11.5]]]


def test_an_offset_that_is_no_number_gives_none() -> None:
    x, w = np.array([[[1.0, 2]]]), np.ones((1, 1, 1))
    found = run(DeformConv(), x, w, np.array([[[np.nan, 0]]]))
    assert found[0, 0, 1] == 2
