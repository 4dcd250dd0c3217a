"""Generated kernels, compiled for the CPU, on all element types, odd shapes and random Regions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from aicore.ir import INTEGERS, Builder, Node, Op, Value, numpy_dtype
from aicore.numerics import expect, measure
from aicore.ops import activation, arithmetic, elementwise, logic
from aicore.ops.activation import Clip, Relu, Shrink
from aicore.ops.arithmetic import Add, Div, Max, Min, Mod, Mul, Pow, Sub
from aicore.ops.cast import Cast
from aicore.ops.elementwise import Abs, Neg, Sign
from aicore.ops.fused_pointwise import Region
from aicore.ops.logic import BitShift, BitwiseAnd, BitwiseNot, BitwiseOr, BitwiseXor, Equal, Greater, IsNaN, Less, Where
from aicore.runtime import ReferenceEvaluator

Array = np.ndarray[Any, Any]
MakeTask = Callable[[Op, Sequence[Array | None]], Any]
MakeKernels = Callable[[Sequence[Any]], Any]
FLOAT_TYPES = ("float16", "bfloat16", "float32", "float64")


def check(
    pairs: Sequence[tuple[Op, Sequence[Array | None]]],
    task: MakeTask,
    host_kernels: MakeKernels,
    evaluate: ReferenceEvaluator,
) -> None:
    """Every op must give what the references give, exactly if it rounds nothing."""
    tasks = [task(op, operands) for op, operands in pairs]
    kernels = host_kernels(tasks)
    for one in tasks:
        want = expect(evaluate, one.op, one.operands, [t.dtype for t in one.types])
        types = [None if a is None else f"{a.dtype}{a.shape}" for a in one.operands]
        fault = want.fault(kernels.run(one))
        assert not fault, f"{one.op} on {types}: {fault}"


def extremes(dtype: str) -> Array:
    """Numbers at the ends of an integer type's range, and near zero."""
    limits = np.iinfo(dtype)
    near = [0, 1, 2, 3, *([-1, -2] if limits.min else [])]
    return np.array([limits.min, limits.max, limits.max - 1, limits.min + 1, *near], dtype)


def edges(dtype: str, count: int, rng: np.random.Generator) -> Array:
    """Random numbers of the type, with the ends of its range and numbers near zero among them."""
    if dtype == "bool":
        return rng.random(count) < 0.5
    if dtype in INTEGERS:
        limits, chosen = np.iinfo(dtype), extremes(dtype)
        small = rng.integers(max(limits.min, -9), 10, count).astype(dtype)
        any_ = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        mixed = np.where(rng.random(count) < 0.5, small, any_)
        mixed[: len(chosen)] = chosen
        return rng.permutation(mixed)
    numbers = rng.standard_normal(count) * 10.0 ** rng.integers(-6, 5, count)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        127.5,
        -128.5,
        255.5,
        65504.0,
        65520.0,
    ]
    special += [2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 3e38, 1e-40, 1e-45, 6e-8, 5.9e-8, 1e-300]
    numbers[: len(special)] = special
    with np.errstate(all="ignore"):
        return rng.permutation(numbers).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("op", [Add, Sub, Mul, Div, Mod, Max, Min, Equal, Less, Greater, Abs, Sign, Clip, Shrink])
def test_all_integers(
    op: type[Op], task: MakeTask, host_kernels: MakeKernels, evaluate: ReferenceEvaluator, rng: np.random.Generator
) -> None:
    """Random pairs, and every pair of the ends of the range with numbers near zero: the smallest one over -1, say."""
    made = {Mod: [Mod(), Mod(fmod=1)], Clip: [Clip(1, 100)], Shrink: [Shrink(2.0, 1.5)]}.get(op, [op()])
    pairs: list[tuple[Op, list[Array | None]]] = []
    for one, dtype in itertools.product(made, sorted(INTEGERS)):
        few = extremes(dtype)
        both = op not in (Abs, Sign, Clip, Shrink)
        pairs.append((one, [edges(dtype, 301, rng), edges(dtype, 301, rng)] if both else [edges(dtype, 301, rng)]))
        pairs.append((one, [few[:, None], few] if both else [few]))
    check(pairs, task, host_kernels, evaluate)


def test_bits_of_all_integers(
    task: MakeTask, host_kernels: MakeKernels, evaluate: ReferenceEvaluator, rng: np.random.Generator
) -> None:
    ops: list[Op] = [BitwiseAnd(), BitwiseOr(), BitwiseXor(), BitShift("LEFT"), BitShift("RIGHT")]
    pairs = [(op, [edges(d, 301, rng), edges(d, 301, rng)]) for op in ops for d in sorted(INTEGERS)]
    shifts = [(op, [edges(d, 301, rng), np.arange(301).astype(d)]) for op in ops[3:] for d in sorted(INTEGERS)]
    flipped = [(BitwiseNot(), [edges(d, 301, rng)]) for d in sorted(INTEGERS)]
    check([*pairs, *shifts, *flipped], task, host_kernels, evaluate)


def test_powers(
    task: MakeTask, host_kernels: MakeKernels, evaluate: ReferenceEvaluator, rng: np.random.Generator
) -> None:
    bases: list[Array] = [rng.integers(-5, 6, 200).astype(d) for d in ("int32", "int64")]
    bases += [rng.uniform(0.1, 3, 200).astype(numpy_dtype(d)) for d in FLOAT_TYPES]
    exponents = [rng.integers(-4 if d.startswith("i") else 0, 9, 200).astype(d) for d in sorted(INTEGERS)]
    exponents += [rng.integers(-3, 4, 200).astype(numpy_dtype(d)) for d in FLOAT_TYPES]
    check([(Pow(), pair) for pair in itertools.product(bases, exponents)], task, host_kernels, evaluate)


@pytest.mark.parametrize("source", [*FLOAT_TYPES, *sorted(INTEGERS), "bool"])
def test_cast_to_every_type(
    source: str, task: MakeTask, host_kernels: MakeKernels, evaluate: ReferenceEvaluator, rng: np.random.Generator
) -> None:
    """Bit by bit, subnormal numbers included."""
    tasks = [task(Cast(to), [edges(source, 501, rng)]) for to in (*FLOAT_TYPES, *sorted(INTEGERS), "bool")]
    kernels = host_kernels(tasks)
    for one in tasks:
        (got,), (want,) = kernels.run(one), evaluate(one.op, *one.operands)
        fault = measure(got, want).text
        assert not fault, f"from {source} to {one.op.to}: {fault}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_of_16_bits(
    dtype: str, task: MakeTask, host_kernels: MakeKernels, evaluate: ReferenceEvaluator
) -> None:
    """Widening, rounding and comparing must be exact for all of them; with a factor, halves and overflow are met."""
    x = np.arange(2**16, dtype=np.uint16).view(numpy_dtype(dtype))
    factor = np.array([1.0, 0.4995, 3.3], numpy_dtype(dtype))[:, None]
    ops: list[tuple[Op, list[Array | None]]] = [(Mul(), [x, factor]), (Cast("float32"), [x]), (Less(), [x, factor])]
    ops += [(op, [x]) for op in (Relu(), Neg(), Abs(), IsNaN(), Clip(-0.1, 0.3), elementwise.Round(), Cast("int32"))]
    tasks = [task(op, operands) for op, operands in ops]
    kernels = host_kernels(tasks)
    for one in tasks:
        (got,), (want,) = kernels.run(one), evaluate(one.op, *one.operands)
        with np.errstate(invalid="ignore"):  # widening a signalling NaN says so
            assert not (fault := measure(got, want).text), f"{one.op}: {fault}"


def test_subnormal_numbers_are_no_zeros(
    task: MakeTask, host_kernels: MakeKernels, evaluate: ReferenceEvaluator
) -> None:
    x = np.array([1e-40, -1e-45, 0.0, 1e-38], np.float32)
    zero, one = np.zeros((), np.float32), np.ones((), np.float32)
    ops: list[tuple[Op, list[Array | None]]] = [(Equal(), [x, zero]), (Mul(), [x, one]), (Cast("bool"), [x])]
    tasks = [task(op, operands) for op, operands in ops]
    kernels = host_kernels(tasks)
    for made in tasks:
        assert np.array_equal(kernels.run(made)[0], evaluate(made.op, *made.operands)[0])


SHAPES = [
    ((2, 3, 7, 7), (3, 1, 1)),
    ((2, 3, 8, 6), (3, 1, 1)),
    ((5, 1001), (1001,)),
    ((5, 1000), (1000,)),
    ((4, 1, 6), (1, 5, 1)),
    ((3, 1, 5, 1, 7), (4, 1, 6, 1)),
    ((2, 1, 3, 1, 2, 1, 3, 1), (1, 2, 1, 2, 1, 3, 1, 2)),
    ((1, 1, 1), (1, 1)),
    ((4099,), ()),
    ((), (70000,)),
    ((1, 33), (17, 1)),
    ((300, 1, 9), (300, 8, 1)),
    ((2, 2, 2), (2, 1, 2)),
]


@pytest.mark.parametrize(
    "dtypes", [("float32", "bool"), ("float64", "float64"), ("float16", "float16"), ("int8", "bool")]
)
def test_shapes(
    dtypes: tuple[str, str],
    task: MakeTask,
    host_kernels: MakeKernels,
    evaluate: ReferenceEvaluator,
    rng: np.random.Generator,
) -> None:
    """Whole vectors, rows that are none, what is left over; several blocks, and fewer than the source asks for."""
    tasks = []
    for left, right in SHAPES:
        x, y = (rng.integers(-9, 9, shape).astype(dtypes[0]) for shape in (left, right))
        flag = (rng.random(right) < 0.5) if dtypes[1] == "bool" else None
        operands = [flag, x, np.array(2, dtypes[0])] if flag is not None else [x, y]
        tasks.append(task(Where() if flag is not None else Sub(), operands))
    kernels = host_kernels(tasks)
    for one in tasks:
        want = evaluate(one.op, *one.operands)[0]
        for blocks in (0, 1, 2, 3):
            got = kernels.run(one, blocks)[0]
            assert np.array_equal(got, want), f"{[a.shape for a in one.operands]} in {blocks} blocks"


def test_large_sources_take_two_vectors_a_thread(
    task: MakeTask, host_kernels: MakeKernels, evaluate: ReferenceEvaluator, rng: np.random.Generator
) -> None:
    x, y = rng.random((1031, 3, 701), np.float32), rng.random((3, 1), np.float32)
    tasks = [task(Add(), [x, y]), task(Add(), [x, x]), task(Add(), [x[:, :, :700], y])]
    assert [made.source.vectors for made in tasks] == [2, 2, 2]
    kernels = host_kernels(tasks)
    for made in tasks:
        assert np.array_equal(kernels.run(made, 7)[0], evaluate(made.op, *made.operands)[0])


def _ops(module: ModuleType, names: str) -> list[Op]:
    return [getattr(module, name)() for name in names.split()]


UNARY: list[Op] = [
    *_ops(elementwise, "Abs Neg Exp Sin Cos Atan Erf Floor Sign Sqrt"),
    *_ops(activation, "Relu Sigmoid Tanh Gelu Softplus HardSwish LeakyRelu Mish"),
    Clip(-0.75, 1.25),
]
BINARY: list[Op] = [
    *_ops(arithmetic, "Add Sub Mul Div Max Min Pow Mod Mean"),
    *_ops(logic, "Less Equal GreaterOrEqual"),
]
REGION_SHAPES = ((4, 3, 7, 5), (3, 1, 1), (5,), (), (4, 1, 7, 1), (1, 3, 7, 5))


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
def test_random_regions_give_the_bits_of_their_parts(
    dtype: str, task: MakeTask, host_kernels: MakeKernels, rng: np.random.Generator
) -> None:
    """A chain in one kernel, and each of its ops in a kernel of its own."""
    regions = [_random_region(dtype, rng) for _ in range(24)]
    whole = [task(region, operands) for region, operands in regions]
    parts = {node: _part(node, task) for region, _ in regions for node in region.body.nodes}
    kernels = host_kernels([*whole, *parts.values()])
    for one in whole:
        known: dict[Value, Array] = dict(zip(one.op.body.inputs, one.operands, strict=True))
        for node in one.op.body.nodes:
            operands = tuple(known[v] if v.constant is None else v.constant.array for v in node.inputs)
            (known[node.outputs[0]],) = kernels.run(replace(parts[node], operands=operands))
        for got, (_, value) in zip(kernels.run(one), one.op.body.outputs, strict=True):
            assert got.tobytes() == known[value].tobytes(), f"{one.op} differs from its parts"


def _part(node: Node, task: MakeTask) -> Any:
    """One op of a Region, in a kernel of its own."""
    return task(node.op, [np.zeros(v.type.static_shape, numpy_dtype(v.dtype)) for v in node.inputs if v is not None])


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
def test_random_regions_agree_with_the_references(
    dtype: str, task: MakeTask, host_kernels: MakeKernels, evaluate: ReferenceEvaluator, rng: np.random.Generator
) -> None:
    check([_random_region(dtype, rng, _SMOOTH) for _ in range(30)], task, host_kernels, evaluate)


_SMOOTH: list[Op] = [
    *_ops(elementwise, "Abs Neg Sin Cos Atan Erf"),
    *_ops(activation, "Relu Sigmoid Tanh Gelu Softplus HardSwish LeakyRelu Mish"),
    *_ops(arithmetic, "Add Sub Mul Max Min Mean"),
]
"""Without jumps, so that a rounding changes little."""


def _random_region(
    dtype: str, rng: np.random.Generator, ops: Sequence[Op] = (*UNARY, *BINARY)
) -> tuple[Region, list[Array]]:
    builder = Builder()
    count = int(rng.integers(1, 4))
    shapes = [REGION_SHAPES[0], *(REGION_SHAPES[int(i)] for i in rng.integers(0, len(REGION_SHAPES), count))]
    inputs = [builder.input(f"in{i}", dtype, shape) for i, shape in enumerate(shapes)]
    arrays = [rng.uniform(-2, 2, shape).astype(numpy_dtype(dtype)) for shape in shapes]
    value: Value = inputs[0]
    known: list[Value] = [*inputs, builder.scalar(0.625, value)]
    for i in rng.integers(0, len(ops), int(rng.integers(2, 9))):
        op = ops[int(i)]
        other = known[int(rng.integers(0, len(known)))]
        made: Value = builder.apply(op, *([value] if op in UNARY else [value, other]))
        if made.dtype == "bool":
            made = builder.apply(Where(), made, value, other)
        value = made
        known.append(value)
    outputs = {"y": value, "z": known[-2]} if known[-2].shape == value.shape else {"y": value}
    return Region(builder.graph(inputs, outputs)), arrays
