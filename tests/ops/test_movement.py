"""Types and contents of the ops that move, repeat, make and rearrange elements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Buffer, Builder, DimExpr, Op, TensorType, Value, as_tuple, is_unknown, symbol, verify
from aicore.ops.creation import ConstantOfShape, EyeLike, OneHot, Range, Trilu
from aicore.ops.movement import Concat, Expand, Split, Tile, Transpose
from aicore.ops.rearrange import DepthToSpace, ReverseSequence, SpaceToDepth

B, S = symbol("B"), symbol("S")
ANY = Value("x", TensorType("float32"))

_numbers = itertools.count()


def apply(op: Op, *operands: Any) -> Any:
    """The op on float32 inputs (shapes as tuples), constants (arrays), and Values as they are."""
    builder = Builder()
    values = [_value(builder, i, o) for i, o in enumerate(operands)]
    results = builder.apply(op, *values)
    inputs = dict.fromkeys(v for v in builder.nodes[0].inputs if v is not None and v.constant is None)
    named = {f"y{i}": v for i, v in enumerate(as_tuple(results))}
    verify(builder.graph(inputs, named))
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


def scalar(dim: int | DimExpr) -> Value:
    return Value(f"dim{next(_numbers)}", TensorType("int64", ()), dims=(dim,))


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def test_transpose() -> None:
    assert apply(Transpose(), (2, 3, "B")).shape == (B, 3, 2)
    assert apply(Transpose((1, 2, 0)), (2, 3, "B")).shape == (3, B, 2)
    assert apply(Transpose((1, 0)), ANY).rank == 2
    assert apply(Transpose(), vector(B, 2)).content == (B, 2)


def test_expand_broadcasts_both_ways() -> None:
    assert apply(Expand(), (3, 1), ints(2, 1, 4)).shape == (2, 3, 4)
    assert apply(Expand(), (3, 1), ints(1)).shape == (3, 1)
    assert apply(Expand(), ("B", 1), vector(B, S)).shape == (B, S)
    assert apply(Expand(), (3, 1), of("int64", 3)).rank == 3
    assert apply(Expand(), scalar(B), ints(2)).content == (B, B)
    assert apply(Expand(), vector(B), ints(2)).content == (B, B)
    assert apply(Expand(), scalar(B), ints(2, 2)).content is None


def test_tile() -> None:
    assert apply(Tile(), (2, "B"), ints(3, 2)).shape == (6, 2 * B)
    assert apply(Tile(), (2, 3), vector(B, 1)).shape == (2 * B, 3)
    assert apply(Tile(), (2, 3), of("int64", 2)).rank == 2
    assert apply(Tile(), ANY, ints(1, 2)).rank == 2


def test_concat() -> None:
    assert apply(Concat(-1), (2, 3), (2, "B"), (2, 4)).shape == (2, B + 7)
    assert apply(Concat(0), ("B", 3), (2, 3)).shape == (B + 2, 3)
    assert apply(Concat(0), (1, "B"), (1, 3)).shape == (2, 3), "the operands' other dims are equal"
    assert apply(Concat(0), ANY, ANY).shape is None
    assert apply(Concat(0), ANY, (2, 3)).rank == 2
    assert apply(Concat(0), vector(B, 3), ints(4)).content == (B, 3, 4)
    assert apply(Concat(0), vector(B), of("int64", 1)).content is None


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        (Split(0, 3), ((6, 2),), [2, 2, 2]),
        (Split(0, 3), ((7, 2),), [3, 3, 1]),
        (Split(0), ((7, 2), ints(2, 0, 5)), [2, 0, 5]),
        (Split(0, 2), ((0, 2),), [0, 0]),
        (Split(0, 4), ((5, 2),), [2, 2, 1, 0]),
        (Split(-2, 1), ((5, 2),), [5]),
    ],
)
def test_split(op: Op, operands: Any, expected: list[int]) -> None:
    assert [y.shape for y in as_tuple(apply(op, *operands))] == [(n, 2) for n in expected]


def test_split_of_symbols() -> None:
    first, second = apply(Split(0, 2), of("float32", 8 * B))
    assert (first.shape, second.shape) == ((4 * B,), (4 * B,))
    first, second = apply(Split(0, 2), ("B",))
    assert (first.shape, second.shape) == (((B + 1) // 2,), (B - (B + 1) // 2,))
    first, second, third = apply(Split(0, 3), ("B",))
    assert first.shape == ((B + 2) // 3,)
    assert is_unknown(second.shape[0]), "of 4 elements, the pieces have 2, 2 and 0"
    assert second.shape != third.shape
    first, second = apply(Split(0, 2), ("B",), of("int64", 2))
    assert is_unknown(first.shape[0])
    assert first.shape != second.shape
    assert apply(Split(0), vector(B, 2, 3), ints(2, 1))[0].content == (B, 2)
    assert all(y.shape is None for y in apply(Split(0, 2), ANY))


def test_constant_of_shape() -> None:
    assert apply(ConstantOfShape(), ints(2, 3)).type == TensorType("float32", (2, 3))
    ones = ConstantOfShape(Buffer(np.array([1], np.int64)))
    assert apply(ones, vector(B, 2)).type == TensorType("int64", (B, 2))
    assert apply(ones, ints(3)).content == (1, 1, 1)
    assert apply(ones, of("int64", 2)).rank == 2
    assert apply(ones, ints(65)).content is None, "too many to carry along"


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0, 5, 1), (0, 1, 2, 3, 4)),
        ((10, 4, -2), (10, 8, 6)),
        ((3, 9, 4), (3, 7)),
        ((5, 2, 1), ()),
        ((-3, 3, 5), (-3, 2)),
    ],
)
def test_range_of_integers(bounds: tuple[int, ...], expected: tuple[int, ...]) -> None:
    y = apply(Range(), *(np.array(b, np.int64) for b in bounds))
    assert y.shape == (len(expected),)
    assert y.content == expected


def test_range_of_floats_and_symbols() -> None:
    assert apply(Range(), *(np.array(b, np.float32) for b in (1, -1, -0.3))).shape == (7,)
    assert apply(Range(), scalar(0), scalar(B), scalar(1)).shape == (B,)
    assert apply(Range(), scalar(S), scalar(S + B), scalar(1)).shape == (B,)
    assert is_unknown(apply(Range(), scalar(0), scalar(B), scalar(S)).shape[0])
    assert is_unknown(apply(Range(), of("float32"), of("float32"), of("float32")).shape[0])
    assert is_unknown(apply(Range(), of("float32"), of("float32", S), of("float32", 1)).shape[0])


def test_eye_one_hot_trilu() -> None:
    assert apply(EyeLike("int32"), (2, "B")).type == TensorType("int32", (2, B))
    values = of("float64", 2)
    assert apply(OneHot(1), of("int64", B, 3), ints(7), values).type == TensorType("float64", (B, 7, 3))
    assert apply(OneHot(-1), of("int64", 2), np.array(7.0), values).shape == (2, 7)
    assert apply(OneHot(), of("int64", 2), scalar(B), values).shape == (2, B)
    assert is_unknown(apply(OneHot(0), of("int64", 2), of("int64"), values).shape[0])
    assert apply(Trilu(1), ("B", 2, 3), np.array(1, np.int64)).shape == (B, 2, 3)


def test_rearranging() -> None:
    assert apply(DepthToSpace(2), ("B", 12, 2, S)).shape == (B, 3, 4, 2 * S)
    assert apply(SpaceToDepth(2), ("B", 3, 4, 6)).shape == (B, 12, 2, 3)
    assert apply(DepthToSpace(2), ANY).rank == apply(SpaceToDepth(2), ANY).rank == 4
    assert apply(ReverseSequence(0, 1), (2, 5), ints(1, 2)).shape == (2, 5)


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Transpose((0, 0)), ((2, 3),), "does not order the axes"),
        (Transpose((1, -2)), ((2, 3),), "does not order the axes"),
        (Expand(), ((2, 3),), "the shape is missing"),
        (Expand(), ((2, 3), ints(4, 3)), "do not broadcast"),
        (Expand(), ((2, 3), ints(-1, 3)), "negative dim"),
        (Tile(), ((2, 3),), "repeats is missing"),
        (Tile(), ((2, 3), ints(2)), "1 repeats for"),
        (Tile(), ((2, 3), ints(2, -1)), "negative"),
        (Concat(0), (), "at least one operand"),
        (Concat(2), ((2, 3), (2, 3)), "out of range"),
        (Concat(0), ((2, 3), (2, 4)), "differ in axis 1"),
        (Concat(0), ((2, 3), (2,)), "different ranks"),
        (Concat(0), ((2, 3), of("int64", 2, 3)), "different dtypes"),
        (Split(0), ((4,),), "both missing"),
        (Split(0, 0), ((4,),), "at least 1"),
        (Split(0, 2), ((4,), ints(1, 1, 2)), "3 sizes for 2 outputs"),
        (Split(0), ((4,), ints(1, 2)), "do not add up to 4"),
        (Split(0), ((4,), ints(5, -1)), "negative size"),
        (Split(1, 2), ((4,),), "out of range"),
        (ConstantOfShape(), (), "the shape is missing"),
        (ConstantOfShape(), (ints(2, -1),), "negative dim"),
        (ConstantOfShape(Buffer(np.zeros(2))), (ints(2),), "one element"),
        (Range(), tuple(np.array(n, np.int64) for n in (0, 5, 0)), "delta is 0"),
        (Range(), tuple(np.array(n, np.float32) for n in (0, 5, 0)), "delta is 0"),
        (Range(), tuple(np.array(n, np.uint8) for n in (0, 5, 1)), "is not among"),
        (Range("float16"), tuple(np.array(n, np.int64) for n in (0, 5, 1)), "stash_type"),
        (Range(), (scalar(0), vector(3, 4), scalar(1)), "not a scalar"),
        (Range(), (scalar(0), of("int32"), scalar(1)), "different dtypes"),
        (EyeLike(), ((2, 3, 4),), "rank 3, wants 2"),
        (OneHot(), (of("int64", 2), ints(3)), "values is missing"),
        (OneHot(), (of("int64", 2), None, of("float32", 2)), "depth is missing"),
        (OneHot(), (of("int64", 2), ints(3, 4), of("float32", 2)), "wants one number"),
        (OneHot(), (of("int64", 2), ints(-1), of("float32", 2)), "0 or more"),
        (OneHot(), (of("int64", 2), ints(3), of("float32", 3)), "wants \\(2,\\)"),
        (OneHot(2), (of("int64", 2), ints(3), of("float32", 2)), "out of range"),
        (Trilu(), ((3,),), "2 or more"),
        (Trilu(), ((3, 3), ints(1, 2)), "wants one number"),
        (Trilu(), ((3, 3), of("float32")), "wants int64"),
        (DepthToSpace(2), ((1, 6, 2, 2),), "6 channels are no multiple of 4"),
        (SpaceToDepth(2), ((1, 1, 3, 2),), "3 rows"),
        (SpaceToDepth(2), ((1, 1, 2, 3),), "3 columns"),
        (DepthToSpace(0), ((1, 4, 2, 2),), "blocksize is 0"),
        (DepthToSpace(2, "ABC"), ((1, 4, 2, 2),), "wants DCR or CRD"),
        (DepthToSpace(2), ((4, 2, 2),), "rank 3"),
        (ReverseSequence(0, 0), ((2, 3), ints(1, 1)), "both batch and time"),
        (ReverseSequence(0, 1), ((2, 3), ints(1, 1, 1)), "3 sequence lengths for a batch of 2"),
        (ReverseSequence(), ((3,), ints(1)), "2 or more"),
    ],
)
def test_refused(op: Op, operands: Any, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        apply(op, *operands)
