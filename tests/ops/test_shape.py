"""Types and contents of the ops that read a shape or relabel elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder, DimExpr, Op, TensorType, Value, is_unknown, symbol, verify
from aicore.ops.shape import Flatten, Identity, Reshape, Shape, Size, Squeeze, Unsqueeze

B = symbol("B")


def apply(op: Op, x: Any, *operands: Any) -> Value:
    """The op on a float32 tensor of the shape `x` (or a Value), with constants as further operands."""
    builder = Builder()
    first = x if isinstance(x, Value) else builder.input("x", "float32", x)
    others = [o if isinstance(o, Value) or o is None else builder.constant(np.array(o, np.int64)) for o in operands]
    result: Value = builder.apply(op, first, *others)
    inputs = [v for v in builder.nodes[0].inputs if v is not None and v.constant is None]
    verify(builder.graph(inputs, {"y": result}))
    return result


def vector(*dims: int | DimExpr) -> Value:
    """An int64 vector whose content is known as dims."""
    return Value("dims", TensorType("int64", (len(dims),)), dims=dims)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, None, (B, 3, 4)), (1, None, (3, 4)), (-1, None, (4,)), (0, -1, (B, 3)), (2, 1, ()), (-9, 2, (B, 3))],
)
def test_shape(start: int, end: int | None, expected: tuple[Any, ...]) -> None:
    y = apply(Shape(start, end), ("B", 3, 4))
    assert y.type == TensorType("int64", (len(expected),))
    assert y.content == expected


def test_shape_of_unknown_rank() -> None:
    y = apply(Shape(), Value("x", TensorType("float32")))
    assert y.rank == 1
    assert y.content is None


def test_size() -> None:
    assert apply(Size(), ("B", 3, 4)).content == (12 * B,)
    assert apply(Size(), (0, 3)).content == (0,)
    assert apply(Size(), Value("x", TensorType("float32"))).content is None


def test_identity_passes_content_on() -> None:
    assert apply(Identity(), vector(B, 3)).content == (B, 3)


@pytest.mark.parametrize(
    ("shape", "wanted", "expected"),
    [
        ((2, 3, 4), (4, 6), (4, 6)),
        ((2, 3, 4), (0, -1), (2, 12)),
        ((2, 3, 4), (-1,), (24,)),
        ((0, 3, 4), (0, -1), (0, 12)),
        (("B", 3, 4), (0, -1), (B, 12)),
        (("B", 4, 6), (-1, 8), (3 * B, 8)),
        ((1, 1), (), ()),
    ],
)
def test_reshape(shape: Any, wanted: Any, expected: Any) -> None:
    y = apply(Reshape(), shape, wanted)
    assert y.shape == expected


def test_reshape_allowzero() -> None:
    assert apply(Reshape(allowzero=1), (0, 3, 4), (3, 0, 7)).shape == (3, 0, 7)


def test_reshape_by_symbols() -> None:
    assert apply(Reshape(), ("B", 3, 4), vector(B, -1)).shape == (B, 12)
    assert apply(Reshape(), Value("x", TensorType("float32")), vector(B, 5)).shape == (B, 5)


def test_reshape_by_data_knows_the_rank_only() -> None:
    y = apply(Reshape(), (2, 3), Value("wanted", TensorType("int64", (3,))))
    assert y.rank == 3
    assert all(is_unknown(d) for d in y.shape or ())
    assert apply(Reshape(), (2, 3), Value("wanted", TensorType("int64", ("N",)))).shape is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "shape", "operands", "message"),
    [
        (Reshape(), (2, 3), (), "the shape is missing"),
        (Reshape(), (2, 3), ([[6]],), "rank 2, wants 1"),
        (Reshape(), (2, 3), ((-2, 3),), "below -1"),
        (Reshape(), (2, 3), ((-1, -1),), "more than one -1"),
        (Reshape(allowzero=1), (2, 3), ((0, -1),), "both 0 and -1"),
        (Reshape(), (2, 3), ((2, 3, 0),), "lacks"),
        (Reshape(), (2, 3), ((4,),), "number of elements differs"),
        (Reshape(), (2, 3), ((4, -1),), "no multiple of 4"),
        (Reshape(allowzero=1), (0, 3), ((0, 4, 5, -1),), "both 0 and -1"),
        (Reshape((2, 3)), (2, 4), (), "number of elements differs"),
        (Flatten(3), (2, 3), (), "axis 3 is out of range"),
        (Flatten(-3), (2, 3), (), "axis -3 is out of range"),
        (Squeeze(), (2, 1), ((0,),), "is 2, not 1"),
        (Squeeze(), (2, 1), ((2,),), "out of range"),
        (Squeeze(), (1, 1), ((0, -2),), "twice"),
        (Unsqueeze(), (2,), (), "axes is missing"),
        (Unsqueeze(), (2,), ((0, 0),), "twice"),
        (Unsqueeze(), (2,), ((2,),), "out of range"),
    ],
)
def test_refused(op: Op, shape: Any, operands: Any, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        apply(op, shape, *operands)


def test_float_axes_are_refused() -> None:
    with pytest.raises(InferenceError, match="wants int32 or int64"):
        apply(Squeeze(), (1, 2), Value("axes", TensorType("float32", (1,))))


def test_symbolic_axes_are_refused() -> None:
    with pytest.raises(InferenceError, match="symbolic"):
        apply(Squeeze(), (1, 2), vector(B))


@pytest.mark.parametrize(
    ("axis", "expected"), [(0, (1, 6 * B)), (1, (2, 3 * B)), (3, (6 * B, 1)), (-1, (6, B)), (-3, (1, 6 * B))]
)
def test_flatten(axis: int, expected: Any) -> None:
    assert apply(Flatten(axis), (2, 3, "B")).shape == expected


def test_squeeze() -> None:
    assert apply(Squeeze(), (1, "B", 1), (0, -1)).shape == (B,)
    assert apply(Squeeze(), (1, 3, 1)).shape == (3,)
    assert apply(Squeeze(), (1, "B")).shape is None, "B may be 1"
    assert apply(Squeeze(), ("B", 3), (0,)).shape == (3,), "the model says that B is 1"
    assert apply(Squeeze(), (1, 3), Value("axes", TensorType("int64", (1,)))).rank == 1
    assert apply(Squeeze(), vector(B), (0,)).content == (B,)


def test_axes_are_counted_from_the_front() -> None:
    builder = Builder()
    builder.apply(Squeeze((-1,)), builder.input("x", "float32", (2, 1)))
    builder.apply(Unsqueeze((-1, 0)), builder.input("x", "float32", (2, 1)))
    assert [node.op for node in builder.nodes] == [Squeeze((1,)), Unsqueeze((0, 3))]


def test_unsqueeze() -> None:
    assert apply(Unsqueeze(), ("B", 3), (-1, 1)).shape == (B, 1, 3, 1)
    assert apply(Unsqueeze(), ("B", 3), np.int64(0)).shape == (1, B, 3)
    assert apply(Unsqueeze(), (2, 3), Value("axes", TensorType("int64", (2,)))).rank == 4
    scalar = Value("n", TensorType("int64", ()), dims=(B,))
    assert apply(Unsqueeze(), scalar, (0,)).content == (B,)


def test_unknown_rank_stays_unknown() -> None:
    x = Value("x", TensorType("float32"))
    assert apply(Squeeze(), x, (0,)).shape is None
    assert apply(Unsqueeze(), x, (0,)).shape is None
    assert apply(Flatten(), x).rank == 2
    assert apply(Reshape(), x, (2, 0)).shape is not None


def test_relabels_cost_nothing() -> None:
    builder = Builder()
    builder.apply(Reshape((6,)), builder.input("x", "float32", (2, 3)))
    assert builder.nodes[0].op.cost(*builder.nodes[0].inputs) == (0, 0)
    assert builder.nodes[0].op.alias == ((0, 0),)
