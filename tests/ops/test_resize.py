"""Types of Resize and of the ops that sample at given places or choose among boxes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder, DimExpr, Op, TensorType, Value, is_unknown, symbol, verify
from aicore.ops.detection import NonMaxSuppression
from aicore.ops.random import Dropout
from aicore.ops.resize import Resize
from aicore.ops.sampling import AffineGrid, GridSample, RoiAlign

B = symbol("B")
ANY = Value("x", TensorType("float32"))
IMAGE = ("B", 3, 4, 6)

_numbers = itertools.count()


def apply(op: Op, *operands: Any) -> Any:
    """The op on float32 inputs (shapes as tuples), constants (arrays), and Values as they are."""
    builder = Builder()
    results = builder.apply(op, *(_value(builder, i, o) for i, o in enumerate(operands)))
    inputs = dict.fromkeys(v for v in builder.nodes[0].inputs if v is not None and v.constant is None)
    outputs = results if isinstance(results, tuple) else (results,)
    verify(builder.graph(inputs, {f"y{i}": v for i, v in enumerate(outputs)}))
    return results


def _value(builder: Builder, index: int, operand: Any) -> Value | None:
    if operand is None or isinstance(operand, Value):
        return operand
    if isinstance(operand, tuple):
        return builder.input(f"x{index}", "float32", operand)
    return builder.constant(np.asarray(operand))


def of(dtype: str, *shape: int | DimExpr) -> Value:
    return Value(f"operand{next(_numbers)}", TensorType(dtype, shape))


def floats(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        (Resize(), (None, floats(1, 1, 2, 0.5)), (B, 3, 8, 3)),
        (Resize(), (None, floats(1, 1, 0.6, 0.3)), (B, 3, 2, 1)),
        (Resize(), (None, None, ints(5, 3, 7, 2)), (5, 3, 7, 2)),
        (Resize(axes=(-1, 2)), (None, None, ints(9, 8)), (B, 3, 8, 9)),
        (Resize(axes=(2, 3), keep_aspect_ratio_policy="not_larger"), (None, None, ints(8, 8)), (B, 3, 5, 8)),
        (Resize(axes=(2, 3), keep_aspect_ratio_policy="not_smaller"), (None, None, ints(8, 8)), (B, 3, 8, 12)),
        (Resize(), (floats(), floats(1, 1, 1, 1)), (B, 3, 4, 6)),
    ],
)
def test_resize(op: Op, operands: Any, expected: Any) -> None:
    assert apply(op, IMAGE, *operands).shape == expected


def test_resize_of_symbols() -> None:
    assert apply(Resize(), ("B", 4), None, floats(2, 1)).shape == (2 * B, 4)
    assert apply(Resize(), ("B", 4), None, floats(1.5, 1)).shape == (3 * B // 2, 4)
    assert is_unknown(apply(Resize(), ("B", 4), None, floats(0.3, 1)).shape[0])
    assert apply(Resize(), ("B", 4), None, of("float32", 2)).rank == 2
    assert apply(Resize(), ("B", 4), None, None, of("int64", 2)).rank == 2
    assert apply(Resize(), ANY, None, floats(1)).shape is None


def test_scales_are_float32() -> None:
    """10 * float32(0.7) is 6.99999988 exactly and 7 in float32, which is what exporters mean."""
    assert apply(Resize(), (10,), None, floats(0.7)).shape == (7,)


def test_resize_crops() -> None:
    op = Resize(coordinate_transformation_mode="tf_crop_and_resize", axes=(0, 1))
    assert apply(op, (8, 8), floats(0.25, 0, 0.75, 1), floats(1, 2)).shape == (4, 16)
    assert apply(op, (8, 8), of("float32", 4), floats(1, 2)).rank == 2
    assert apply(op, (8, 8), of("float32", 4), None, ints(3, 5)).shape == (3, 5)


def test_sampling() -> None:
    assert apply(GridSample(), ("B", 3, 4, 5), ("B", 7, 8, 2)).shape == (B, 3, 7, 8)
    assert apply(GridSample(), ("B", 3, 2, 4, 5), ("B", 7, 8, 9, 3)).shape == (B, 3, 7, 8, 9)
    assert apply(GridSample(), ANY, ("B", 7, 8, 2)).rank == 4
    assert apply(AffineGrid(), (2, 2, 3), ints(2, 1, 5, 6)).shape == (2, 5, 6, 2)
    assert apply(AffineGrid(), (2, 3, 4), ints(2, 1, 4, 5, 6)).shape == (2, 4, 5, 6, 3)
    assert apply(AffineGrid(), (2, 2, 3), of("int64", 4)).rank == 4
    assert apply(RoiAlign(output_height=2, output_width=3), IMAGE, ("R", 4), of("int64", symbol("R"))).shape == (
        symbol("R"),
        3,
        2,
        3,
    )


def test_boxes() -> None:
    y = apply(NonMaxSuppression(), (1, 9, 4), (1, 2, 9), ints(3), floats(0.5), np.array(0.1, np.float32))
    assert y.dtype == "int64"
    assert y.shape[1] == 3
    builder = Builder()
    boxes, scores = builder.input("boxes", "float32", (1, 9, 4)), builder.input("scores", "float32", (1, 2, 9))
    builder.apply(NonMaxSuppression(), boxes, scores, builder.constant(ints(3)))
    assert builder.nodes[0].op == NonMaxSuppression(max_output_boxes_per_class=3)


def test_dropout() -> None:
    y, mask = apply(Dropout(mask=True), (2, 3), np.array(0.25, np.float32))
    assert (y.dtype, mask.dtype, mask.shape) == ("float32", "bool", (2, 3))
    assert apply(Dropout(0.5, True), (2, 3), None, None, of("uint32", 2)).shape == (2, 3)


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Resize(mode="area"), (IMAGE, None, floats(1, 1, 1, 1)), "mode is 'area'"),
        (Resize(nearest_mode="round"), (IMAGE, None, floats(1, 1, 1, 1)), "nearest_mode is 'round'"),
        (
            Resize(coordinate_transformation_mode="x"),
            (IMAGE, None, floats(1, 1, 1, 1)),
            "coordinate_transformation_mode",
        ),
        (Resize(keep_aspect_ratio_policy="x"), (IMAGE, None, None, ints(1, 1, 1, 1)), "keep_aspect_ratio_policy"),
        (Resize(), (IMAGE,), "either scales or sizes"),
        (Resize(), (IMAGE, None, floats(1, 1, 1, 1), ints(1, 1, 1, 1)), "either scales or sizes"),
        (Resize(), (IMAGE, None, floats(1, 1)), "scales has 2 numbers for 4 axes"),
        (Resize(), (IMAGE, None, None, ints(1)), "sizes has 1 numbers for 4 axes"),
        (Resize(), ((2, 3), None, None, of("int64", 3, 1)), "rank 2, wants 1"),
        (Resize(), ((2, 3), None, None, Value("sizes", TensorType("int64", (3,)), dims=(B, 1, 1))), "for 2 axes"),
        (Resize(), (IMAGE, None, None, ints(1, 1, -1, 1)), "negative number"),
        (Resize(), (IMAGE, None, floats(1, 1, 0, 1)), "not a positive number"),
        (Resize(), (IMAGE, None, floats(1, 1, np.inf, 1)), "not a positive number"),
        (Resize(), (IMAGE, None, of("float64", 4)), "scales must be float32"),
        (Resize(axes=(4,)), (IMAGE, None, floats(1)), "out of range"),
        (Resize(), ((0, 3), None, None, ints(1, 3)), "no elements to make 1 of"),
        (Resize(keep_aspect_ratio_policy="not_larger"), ((0, 3), None, None, ints(1, 3)), "undefined"),
        (Resize(coordinate_transformation_mode="tf_crop_and_resize"), ((2,), None, floats(1)), "needs a roi"),
        (
            Resize(coordinate_transformation_mode="tf_crop_and_resize"),
            ((2,), floats(0), floats(1)),
            "roi has 1 numbers for 1 axes",
        ),
        (
            Resize(coordinate_transformation_mode="tf_crop_and_resize"),
            ((2,), floats(1, 0), floats(1)),
            "ends before it begins",
        ),
        (GridSample(mode="area"), (IMAGE, (1, 2, 2, 2)), "mode is 'area'"),
        (GridSample(padding_mode="wrap"), (IMAGE, (1, 2, 2, 2)), "padding_mode is 'wrap'"),
        (GridSample(), (IMAGE, (1, 2, 2, 3)), "does not fit"),
        (GridSample(), ((2, 3, 4, 5), (1, 2, 2, 2)), "batches of 2 and 1"),
        (GridSample(), (IMAGE, of("int64", 1, 2, 2, 2)), "wants a float"),
        (AffineGrid(), ((2, 2, 3),), "size is missing"),
        (AffineGrid(), ((2, 2, 3), ints(2, 1, 5)), "wants 4 or 5"),
        (AffineGrid(), ((2, 2, 4), ints(2, 1, 5, 5)), "wants \\(2, 2, 3\\)"),
        (AffineGrid(), ((2, 3), ints(2, 1, 5, 5)), "rank 2, wants 3"),
        (RoiAlign(mode="sum"), (IMAGE, (1, 4), of("int64", 1)), "wants avg or max"),
        (RoiAlign("x"), (IMAGE, (1, 4), of("int64", 1)), "coordinate_transformation_mode"),
        (RoiAlign(output_height=0), (IMAGE, (1, 4), of("int64", 1)), "no elements"),
        (RoiAlign(sampling_ratio=-1), (IMAGE, (1, 4), of("int64", 1)), "0 or more"),
        (RoiAlign(), (IMAGE, (1, 5), of("int64", 1)), "want 4 numbers each"),
        (RoiAlign(), (IMAGE, of("float64", 1, 4), of("int64", 1)), "different dtypes"),
        (NonMaxSuppression(), ((1, 9, 4), (1, 2, 8)), "do not fit"),
        (NonMaxSuppression(), ((1, 9, 4), (2, 9)), "rank 2, wants 3"),
        (NonMaxSuppression(), ((1, 9, 4), (1, 2, 9), ints(1, 2)), "wants one number"),
        (NonMaxSuppression(), ((1, 9, 4), (1, 2, 9), of("int64", 2)), "not one number"),
        (NonMaxSuppression(iou_threshold=1.5), ((1, 9, 4), (1, 2, 9)), "wants 0 to 1"),
        (Dropout(), (of("int64", 2),), "wants a float"),
        (Dropout(1.0), ((2,),), "wants 0 to below 1"),
        (Dropout(0.5, True), ((2,),), "needs a key"),
        (Dropout(), ((2,), None, of("int64")), "training_mode is not bool"),
        (Dropout(0.5, True), ((2,), None, None, of("uint32", 3)), "wants uint32\\[2\\]"),
    ],
)
def test_refused(op: Op, operands: Any, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        apply(op, *operands)
