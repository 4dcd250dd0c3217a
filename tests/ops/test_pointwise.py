"""Types and known content of the pointwise ops, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError, UnsupportedError
from aicore.ir import Builder, DimExpr, Op, TensorType, Value, as_tuple, symbol
from aicore.ops import CORE
from aicore.ops._content import divide, equal, is_nonnegative, less_equal
from aicore.ops.activation import Celu, Clip, Gelu, PRelu, Relu, Shrink
from aicore.ops.arithmetic import Add, Div, Max, Mean, Min, Mod, Mul, Pow, Sub, Sum
from aicore.ops.base import Pointwise
from aicore.ops.cast import Cast, CastLike
from aicore.ops.elementwise import Abs, Neg, Sqrt
from aicore.ops.logic import (
    And,
    BitShift,
    BitwiseAnd,
    BitwiseNot,
    Equal,
    Greater,
    GreaterOrEqual,
    IsInf,
    IsNaN,
    Less,
    LessOrEqual,
    Not,
    Where,
)

N, M = symbol("N"), symbol("M")


def operand(dtype: str, shape: Any = (2, 3)) -> Value:
    return Builder().input("x", dtype, shape)


def infer(op: Op, *operands: Value | None) -> Value:
    """The first output, as a builder types it."""
    return as_tuple(Builder().apply(op, *operands))[0]


def known(*dims: int | DimExpr, dtype: str = "int64", rank: int = 1) -> Value:
    """A value whose content is known."""
    return Value("dims", TensorType(dtype, (len(dims),) if rank else ()), dims=dims)


@pytest.mark.parametrize("cls", [cls for cls in CORE.values() if issubclass(cls, Pointwise)])
def test_every_op_has_samples_that_infer(cls: type[Op]) -> None:
    samples = list(cls.samples(np.random.default_rng(0)))
    assert samples
    for sample in samples:
        builder = Builder()
        arrays = [None if a is None else np.asarray(a) for a in sample.inputs]
        values = [None if a is None else builder.constant(a) for a in arrays]
        (result,) = as_tuple(builder.apply(sample.op, *values))
        expected = np.broadcast_shapes(*(a.shape for a in arrays if a is not None))
        assert result.shape == expected
        flops, moved = builder.nodes[-1].op.cost(*builder.nodes[-1].inputs)
        assert flops >= result.type.size
        assert moved >= 0


@pytest.mark.parametrize(
    ("op", "types", "expected"),
    [
        (Add(), [("float32", (N, 1)), ("float32", (3,))], TensorType("float32", (N, 3))),
        (Add(), [("float32", None), ("float32", (3,))], TensorType("float32", None)),
        (Less(), [("int8", (2, 1)), ("int8", (4,))], TensorType("bool", (2, 4))),
        (Pow(), [("float16", (2,)), ("int64", ())], TensorType("float16", (2,))),
        (Where(), [("bool", (3, 1)), ("string", (4,)), ("string", ())], TensorType("string", (3, 4))),
        (IsNaN(), [("float8_e5m2", (2,))], TensorType("bool", (2,))),
        (IsInf(), [("bfloat16", (2,))], TensorType("bool", (2,))),
        (Cast("int4"), [("float32", (N,))], TensorType("int4", (N,))),
        (CastLike(), [("float32", (N,)), ("uint8", None)], TensorType("uint8", (N,))),
        (Sum(), [("float64", (2, 1)), ("float64", (3,)), ("float64", ())], TensorType("float64", (2, 3))),
        (Clip(), [("int8", (N,)), ("int8", ()), None], TensorType("int8", (N,))),
        (PRelu(), [("uint32", (2, N)), ("uint32", (1,))], TensorType("uint32", (2, N))),
        (PRelu(), [("float32", None), ("float32", (3,))], TensorType("float32", None)),
    ],
    ids=str,
)
def test_types(op: Op, types: list[Any], expected: TensorType) -> None:
    assert infer(op, *(None if t is None else operand(*t) for t in types)).type == expected


@pytest.mark.parametrize(
    ("op", "types", "message"),
    [
        (Add(), ["float32", "float64"], "operands have different dtypes: float32, float64"),
        (Add(), ["bool", "bool"], "%x has element type bool, wants one of"),
        (Sqrt(), ["int32"], "has element type int32, wants one of bfloat16"),
        (Neg(), ["uint8"], "has element type uint8"),
        (Abs(), ["bool"], "has element type bool"),
        (Relu(), ["uint8"], "has element type uint8"),
        (Shrink(), ["bool"], "has element type bool"),
        (Pow(), ["int8", "int8"], "has element type int8"),
        (Pow(), ["int64", "bool"], "has element type bool"),
        (Mean(), ["int32"], "has element type int32"),
        (Max(), [], "wants at least one operand"),
        (Max(), [None, "float32"], "wants at least one operand, and none absent"),
        (And(), ["int8", "int8"], "has element type int8, wants one of bool"),
        (Not(), ["int8"], "has element type int8, wants one of bool"),
        (BitwiseAnd(), ["float32", "float32"], "has element type float32"),
        (BitwiseNot(), ["bool"], "has element type bool"),
        (BitShift(), ["float32", "float32"], "has element type float32"),
        (Equal(), ["complex64", "complex64"], "has element type complex64"),
        (Less(), ["bool", "bool"], "has element type bool"),
        (Where(), ["int8", "float32", "float32"], "has element type int8, wants one of bool"),
        (Where(), ["bool", "float32", "int8"], "operands have different dtypes: float32, int8"),
        (IsNaN(), ["int8"], "has element type int8"),
        (IsInf(), ["float4_e2m1fn"], "has element type float4_e2m1fn"),
        (Clip(), ["float32", "float32"], "%x has rank 2, wants 0"),
        (Clip(min=(1.0,)), ["float32"], r"a bound is \(1.0,\), wants a scalar"),  # type: ignore[arg-type]
        (Clip(), ["bool"], "has element type bool"),
        (PRelu(), ["int8", "int8"], "has element type int8"),
        (Celu(0.0), ["float32"], "alpha is 0"),
        (Cast("float31"), ["float32"], "no element type is called 'float31'"),
    ],
    ids=str,
)
def test_refusals(op: Op, types: list[str | None], message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        infer(op, *(None if t is None else operand(t) for t in types))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Gelu("erf"), 'approximate is \'erf\', wants "none" or "tanh"'),
        (Cast("float8_e8m0fnu", round_mode="even"), "round_mode is 'even', wants one of up, down, nearest"),
    ],
)
def test_unsupported(op: Op, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        infer(op, operand("float32"))


def test_shift_direction() -> None:
    with pytest.raises(UnsupportedError, match='direction is \'UP\', wants "LEFT" or "RIGHT"'):
        infer(BitShift("UP"), operand("uint8"), operand("uint8"))


@pytest.mark.parametrize("slope", [(4,), (2, 3, 1), (1, 2, 3)])
def test_a_slope_broadcasts_one_way(slope: tuple[int, ...]) -> None:
    with pytest.raises(InferenceError, match=r"does not broadcast to \(2, 3\)"):
        infer(PRelu(), operand("float32"), operand("float32", slope))


def test_constant_bounds_become_fields() -> None:
    builder = Builder()
    x = builder.input("x", "float32", (3,))
    builder.apply(Clip(), x, builder.scalar(-1.0, x), builder.scalar(0.5, x))
    assert builder.nodes[-1].op == Clip(-1.0, 0.5)
    assert builder.nodes[-1].inputs == (x,)
    builder.apply(Clip(), x, None, builder.scalar(0.5, x))
    assert builder.nodes[-1].op == Clip(None, 0.5)


class TestContent:
    """What is known of a shape on its way through arithmetic."""

    @pytest.mark.parametrize(
        ("op", "operands", "expected"),
        [
            (Add(), [(N, 2), (1, N)], (N + 1, N + 2)),
            (Sub(), [(N, 2), (1,)], (N - 1, 1)),
            (Mul(), [(N, 3), (2,)], (N * 2, 6)),
            (Div(), [(N * 4, 7, -7, 7), (2,)], (N * 2, 3, -3, 3)),
            (Div(), [(N,), (2,)], (N // 2,)),
            (Div(), [(N * 2 - 6,), (2,)], (N - 3,)),
            (Div(), [(N - 3,), (2,)], None),
            (Div(), [(7,), (0,)], None),
            (Div(), [(N,), (-2,)], None),
            (Div(), [(5,), (N,)], None),
            (Mod(), [(-7, 7), (3,)], (2, 1)),
            (Mod(fmod=1), [(-7, 7), (3,)], (-1, 1)),
            (Mod(), [(N * 4,), (2,)], (0,)),
            (Mod(), [(N,), (0,)], None),
            (Mod(), [(7,), (0,)], None),
            (Mod(), [(N - 1,), (2,)], None),
            (Mod(), [(7,), (N,)], None),
            (Neg(), [(N, -2)], (N * -1, 2)),
            (Max(), [(N, 3), (0, 5)], (N, 5)),
            (Max(), [(N + 1,), (N,), (0,)], (N + 1,)),
            (Max(), [(N,), (1,)], None),
            (Min(), [(N + 1, 3), (N, 5)], (N, 3)),
            (Min(), [(N,), (M,)], None),
            (Equal(), [(N, 2, 3), (N, 2, 4)], (1, 1, 0)),
            (Equal(), [(N, 1), (-1,)], (0, 0)),
            (Equal(), [(N,), (1,)], None),
            (Less(), [(2, N), (3, N)], (1, 0)),
            (LessOrEqual(), [(N,), (N,)], (1,)),
            (Greater(), [(N + 1,), (N,)], (1,)),
            (GreaterOrEqual(), [(N,), (0,)], (1,)),
            (Add(), [(), (1,)], ()),
        ],
        ids=str,
    )
    def test_arithmetic(self, op: Op, operands: list[Any], expected: Any) -> None:
        assert infer(op, *(known(*dims) for dims in operands)).dims == expected

    def test_scalars_and_vectors(self) -> None:
        assert infer(Add(), known(N, rank=0), known(1, 2)).dims == (N + 1, N + 2)
        result = infer(Add(), known(N, rank=0), known(1, rank=0))
        assert (result.shape, result.dims) == ((), (N + 1,))

    def test_matrices_have_no_content(self) -> None:
        constant = Builder().constant(np.zeros((2, 2), np.int64))
        assert infer(Add(), constant, known(1)).dims is None

    def test_a_number_out_of_range_is_not_known(self) -> None:
        assert infer(Add(), known(2**31 - 1, dtype="int32"), known(1, dtype="int32")).dims is None
        assert infer(Sub(), known(0, dtype="uint8"), known(1, dtype="uint8")).dims is None

    def test_casts(self) -> None:
        assert infer(Cast("int32"), known(N, 5)).dims == (N, 5)
        assert infer(Cast("int8"), known(200)).dims is None
        assert infer(Cast("float32"), known(5)).dims is None
        assert infer(Cast("int64"), infer(Equal(), known(N, 2), known(N, 3))).dims == (1, 0)
        assert infer(Cast("int64"), operand("float32", (2,))).dims is None
        assert infer(CastLike(), known(N), operand("int32")).dims == (N,)

    def test_where(self) -> None:
        chosen = infer(Equal(), known(N, -1), known(-1))
        assert infer(Where(), chosen, known(1, 1), known(N, -1)).dims == (N, 1)
        constant = Builder().constant(np.array([True, False]))
        assert infer(Where(), constant, known(N), known(5, 6)).dims == (N, 6)
        assert infer(Where(), operand("bool", (2,)), known(1, 2), known(3, 4)).dims is None
        matrix = Builder().constant(np.ones((1, 1), bool))
        assert infer(Where(), matrix, known(1), known(2)).dims is None
        assert infer(Not(), chosen).dims == (1, 0)


def test_what_is_provable() -> None:
    assert is_nonnegative(N * M + 3)
    assert is_nonnegative((N + 1) // 2)
    assert not is_nonnegative(N - 1)
    assert not is_nonnegative((N - 3) // 2)
    assert (less_equal(N, N + 2), less_equal(N + 3, N + 2), less_equal(N, M)) == (True, False, None)
    assert (equal(N, N), equal(N, N + 1), equal(N, M), equal(N + 2, N)) == (True, False, None, False)
    assert divide(N * M, M) == N
