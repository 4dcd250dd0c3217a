"""Types and contents of slices, pads, gathers and scatters."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder, DimExpr, Op, TensorType, Value, as_tuple, is_unknown, symbol, verify
from aicore.ops.gather import Gather, GatherElements, GatherND
from aicore.ops.scatter import Col2Im, ScatterElements, ScatterND, TensorScatter
from aicore.ops.selection import Compress, NonZero, Unique
from aicore.ops.slicing import CenterCropPad, Pad, Slice, sliced_dim

B, S = symbol("B"), symbol("S")
ANY = Value("x", TensorType("float32"))
MAX, MIN = 2**63 - 1, -(2**63)

_numbers = itertools.count()


def apply(op: Op, *operands: Any) -> Any:
    """The op on float32 inputs (shapes as tuples), constants (arrays), and Values as they are."""
    builder = Builder()
    results = builder.apply(op, *(_value(builder, i, o) for i, o in enumerate(operands)))
    inputs = dict.fromkeys(v for v in builder.nodes[0].inputs if v is not None and v.constant is None)
    verify(builder.graph(inputs, {f"y{i}": v for i, v in enumerate(as_tuple(results))}))
    return results


def _value(builder: Builder, index: int, operand: Any) -> Value | None:
    if operand is None or isinstance(operand, Value):
        return operand
    if isinstance(operand, tuple):
        return builder.input(f"x{index}", "float32", operand)
    return builder.constant(np.asarray(operand))


def of(dtype: str, *shape: int | DimExpr) -> Value:
    return Value(f"operand{next(_numbers)}", TensorType(dtype, shape))


def vector(*dims: int | DimExpr) -> Value:
    return Value(f"dims{next(_numbers)}", TensorType("int64", (len(dims),)), dims=dims)


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize(
    ("dim", "start", "end", "step", "expected"),
    [
        (5, 1, 4, 1, 3),
        (5, -3, MAX, 1, 3),
        (5, -100, 100, 1, 5),
        (5, 4, 2, 1, 0),
        (5, 0, 5, 2, 3),
        (5, -1, MIN, -1, 5),
        (5, MAX, MIN, -2, 3),
        (5, 3, 0, -1, 3),
        (5, -2, -9, -1, 4),
        (5, -100, MIN, -1, 1),  # the start is clamped to 0 and taken, as ONNX has it; NumPy would take nothing
        (0, -1, MIN, -1, 0),
        (0, 0, MAX, 1, 0),
        (B, 0, MAX, 1, B),
        (B, 0, 2**31 - 1, 2, (B + 1) // 2),
        (B, -1, MIN, -1, B),
        (B, -1, -(2**31) + 1, -2, (B + 1) // 2),
        (B + 2, 1, -1, 1, B),
        (B + 2, -2, MAX, 1, 2),
        (B + S, B, B + S, 1, S),
        (3 * B, 0, B, 1, B),
    ],
)
def test_sliced_dim(dim: Any, start: Any, end: Any, step: Any, expected: Any) -> None:
    assert sliced_dim(dim, start, end, step) == expected


@pytest.mark.parametrize(
    ("dim", "start", "end", "step"),
    [
        (B, 1, MAX, 1),
        (B, 0, -1, 1),
        (B, 0, 3, 1),
        (B, 0, S, 1),
        (5, B, 5, 1),
        (B, 3, 0, -1),
        (5, None, 3, 1),
        (5, 0, 3, B),
    ],
)
def test_sliced_dim_is_unknown_unless_proven(dim: Any, start: Any, end: Any, step: Any) -> None:
    assert is_unknown(sliced_dim(dim, start, end, step))


def test_slice() -> None:
    assert apply(Slice(), (5, 6, "B"), ints(1, 0), ints(4, 3)).shape == (3, 3, B)
    assert apply(Slice(), (5, 6), ints(-1), ints(MIN), ints(-1), ints(-1)).shape == (5, 6)
    assert apply(Slice(), (5, 6), ints(0), of("int64", 1), ints(1)).shape[0] == 5
    assert apply(Slice(), (5, 6), ints(0), ints(2), of("int64", 1)).rank == 2
    assert apply(Slice(), ANY, ints(0), ints(2)).shape is None


def test_slice_of_content() -> None:
    dims = vector(B, 3, S, 7)
    assert apply(Slice(), dims, ints(1), ints(3)).content == (3, S)
    assert apply(Slice(), dims, ints(-1), ints(MIN), ints(0), ints(-1)).content == (7, S, 3, B)
    assert apply(Slice(), dims, ints(0), of("int64", 1)).content is None


def test_slice_axes_are_counted_from_the_front() -> None:
    builder = Builder()
    builder.apply(Slice((0,), (1,), (-1,)), builder.input("x", "float32", (2, 3)))
    assert builder.nodes[0].op == Slice((0,), (1,), (1,))


def test_pad() -> None:
    assert apply(Pad(), (2, "B"), ints(1, 0, -1, 3)).shape == (2, B + 3)
    assert apply(Pad("edge"), (2, 3), ints(1, 2), None, ints(-1)).shape == (2, 6)
    assert apply(Pad(), (2, 3), of("int64", 4)).rank == 2
    assert apply(Pad(), (2, 3), vector(0, B, 0, 0)).shape == (2, B + 3)
    assert apply(Pad(), ANY, ints(1, 1)).shape is None
    builder = Builder()
    value = builder.constant(np.array([2.5], np.float32))
    builder.apply(Pad(), builder.input("x", "float32", (2,)), builder.constant(ints(1, 1)), value)
    assert builder.nodes[0].op == Pad("constant", (1, 1), 2.5)
    assert len(builder.nodes[0].inputs) == 1


def test_center_crop_pad() -> None:
    assert apply(CenterCropPad((0, -1)), (5, 6, "B"), ints(3, 9)).shape == (3, 6, 9)
    assert apply(CenterCropPad(), (5, 6), of("int64", 2)).rank == 2
    assert apply(CenterCropPad(), ANY, ints(1)).shape is None


def test_gather() -> None:
    assert apply(Gather(1), (2, "B", 4), of("int64", S, 3)).shape == (2, S, 3, 4)
    assert apply(Gather(-1), (2, 3), np.array(0, np.int64)).shape == (2,)
    assert apply(Gather(), ANY, ints(0)).shape is None
    dims = vector(B, 3, S)
    assert apply(Gather(), dims, ints(2, -3)).content == (S, B)
    assert apply(Gather(), dims, np.array(-1, np.int64)).content == (S,)
    assert apply(Gather(), dims, of("int64", 1)).content is None


def test_other_gathers_and_scatters() -> None:
    assert apply(GatherElements(-1), (3, "B"), of("int64", 2, 5)).shape == (2, 5)
    assert apply(GatherElements(), (3, 4), Value("i", TensorType("int64"))).rank == 2
    assert apply(GatherND(), (2, 3, 4), of("int64", B, 2)).shape == (B, 4)
    assert apply(GatherND(1), (2, 3, 4), of("int64", 2, 5, 1)).shape == (2, 5, 4)
    assert apply(GatherND(), (2, 3, 4), of("int64", 5, B)).shape is None
    assert apply(ScatterElements(1), (2, 3), of("int64", 1, 3), (1, 3)).shape == (2, 3)
    assert apply(ScatterND(), (4, 3), of("int64", "N", 1), ("N", 3)).shape == (4, 3)  # type: ignore[arg-type]
    assert apply(TensorScatter(), (2, 3, 8, 4), (2, 3, 1, 4), ints(0, 3)).shape == (2, 3, 8, 4)


def test_data_dependent_sizes() -> None:
    assert apply(NonZero(), (2, "B")).type.shape[0] == 2
    values, first, inverse, counts = apply(Unique(), (2, "B"))
    assert is_unknown(values.shape[0])
    assert values.shape == first.shape == counts.shape
    assert inverse.shape == (2 * B,)
    values, _, inverse, _ = apply(Unique(-1), (2, "B"))
    assert values.shape[0] == 2
    assert inverse.shape == (B,)
    assert apply(Compress(1), (2, "B"), of("bool", B)).shape[0] == 2
    assert apply(Compress(), (2, "B"), of("bool", 3)).rank == 1


def test_col2im() -> None:
    assert apply(Col2Im(), ("B", 12, 6), ints(3, 4), ints(2, 2)).shape == (B, 3, 3, 4)
    assert apply(Col2Im(pads=(1, 1), strides=(2,)), (1, 6, 3), ints(5), ints(3)).shape == (1, 2, 5)
    assert apply(Col2Im(), (1, 12, 6), of("int64", 2), ints(2, 2)).rank == 4


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Slice(), ((5,),), "starts is missing"),
        (Slice(), ((5,), ints(0)), "ends is missing"),
        (Slice(), ((5,), ints(0), ints(1), ints(1)), "out of range"),
        (Slice(), ((5, 5), ints(0, 0), ints(1, 1), ints(0, -2)), "twice"),
        (Slice(), ((5,), ints(0), ints(1), ints(0), ints(0)), "a step is 0"),
        (Slice(), ((5,), ints(0), ints(1, 2)), "ends and axes differ in length"),
        (Slice(), ((5,), ints(0), of("float32", 1)), "wants int32 or int64"),
        (Pad(), ((5,),), "pads is missing"),
        (Pad("zero"), ((5,), ints(1, 1)), "mode is 'zero'"),
        (Pad(), ((5,), ints(1)), "1 pads for 1 axes"),
        (Pad(), ((5,), ints(-3, -3)), "leave -1 of 5"),
        (Pad("edge"), ((0,), ints(1, 1)), "nothing to repeat"),
        (Pad(), ((5,), ints(1, 1), of("float64")), "different dtypes"),
        (Pad(), ((5,), ints(1, 1), np.zeros(2, np.float32)), "wants one number"),
        (Pad(), ((5,), ints(1, 1), None, ints(1)), "out of range"),
        (CenterCropPad(), ((5,),), "the shape is missing"),
        (CenterCropPad((0,)), ((5,), ints(1, 2)), "for the axes"),
        (CenterCropPad(), ((5,), ints(-1)), "negative dim"),
        (Gather(), ((3, 2), ints(0, 3)), "index 3 .* is out of range for axis 0"),
        (Gather(1), ((3, 2), ints(-3)), "index -3 .* is out of range for axis 1"),
        (Gather(2), ((3, 2), ints(0)), "axis 2 is out of range"),
        (Gather(), ((), ints(0)), "is a scalar"),
        (Gather(), ((3,), of("float32", 1)), "want int32 or int64"),
        (GatherElements(), ((3, 2), of("int64", 3)), "have rank 1"),
        (GatherElements(), ((3, 2), of("int64", 3, 4)), "exceed .* in axis 1"),
        (GatherND(), ((3, 2), of("int64", 1, 3)), "index tuples of 3 numbers"),
        (GatherND(1), ((3, 2), of("int64", 2, 1)), "differ in the batch axes"),
        (GatherND(2), ((3, 2), of("int64", 3, 1)), "batch_dims 2 is out of range"),
        (GatherND(), ((), of("int64", 1)), "no scalars"),
        (ScatterElements(0, "sum"), ((3,), of("int64", 1), (1,)), "reduction is 'sum'"),
        (ScatterElements(), ((3,), of("int64", 2), (1,)), "differ"),
        (ScatterElements(), ((3,), of("int64", 1), of("float64", 1)), "different dtypes"),
        (ScatterElements(), ((), of("int64", 1), (1,)), "is a scalar"),
        (ScatterND(), ((3, 2), of("int64", 4, 1), (4, 3)), "want the shape"),
        (ScatterND(), ((3, 2), of("int64", 4, 3), (4,)), "index tuples of 3 numbers"),
        (ScatterND(), ((3, 2), of("int64"), (4,)), "no scalars"),
        (TensorScatter("ring"), ((2, 3, 4), (2, 1, 4)), "linear or circular"),
        (TensorScatter("linear", 0), ((2, 3, 4), (2, 1, 4)), "axis 0 is the batch"),
        (TensorScatter(), ((2, 3, 4), (2, 5, 4)), "does not fit .* in axis 1"),
        (TensorScatter(), ((2, 3, 4), (1, 3, 4)), "does not fit .* in axis 0"),
        (TensorScatter(), ((2, 3, 4), (3, 4)), "has rank 2"),
        (Col2Im(), ((1, 12, 6),), "image_shape is missing"),
        (Col2Im(), ((1, 12, 6), ints(3, 4)), "block_shape is missing"),
        (Col2Im(), ((12, 6), ints(3, 4), ints(2, 2)), "rank 2"),
        (Col2Im(), ((1, 12, 6), ints(3, 4), ints(2)), "differ in rank"),
        (Col2Im(), ((1, 12, 5), ints(3, 4), ints(2, 2)), "5 columns for 6 windows"),
        (Col2Im(), ((1, 11, 6), ints(3, 4), ints(2, 2)), "11 rows are no multiple"),
        (Compress(0), ((3,), of("int64", 3)), "wants bool"),
        (Compress(0), ((3,), of("bool", 3, 1)), "rank 2, wants 1"),
        (Compress(0), ((3,), of("bool", 4)), "4 elements for an axis of 3"),
        (Compress(1), ((3,), of("bool", 3)), "out of range"),
        (Unique(1), ((3,),), "out of range"),
    ],
)
def test_refused(op: Op, operands: Any, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        apply(op, *operands)
