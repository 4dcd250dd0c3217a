"""Traced pointwise kernels, reductions, normalisation and casts: the reference's numbers, in planned memory."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicore.ir import Builder, Op, TensorType, as_tuple, dtype_name
from aicore.kernels import Kernel
from aicore.ops.activation import Clip, Gelu, HardSwish, LeakyRelu, PRelu, Relu, Shrink, Sigmoid
from aicore.ops.arithmetic import Add, Div, Max, Mul, Pow, Sub
from aicore.ops.cast import Cast
from aicore.ops.elementwise import Abs, Erf, Neg
from aicore.ops.fused_pointwise import Region
from aicore.ops.logic import Equal, Greater, Where
from aicore.ops.normalization import BatchNormalization, LayerNormalization
from aicore.ops.reduction import ReduceLogSumExp
from aicore.ops.softmax import Softmax
from aicore.runtime import using_threads
from aicore_cpu_numpy.fast import _parallel, _program, _rows, cast, normalization, pointwise, reduction, softmax
from aicore_cpu_numpy.fast._bounds import CLIP, merge_bounds
from aicore_cpu_numpy.fast._trace import Tape

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

MODULES = (pointwise, reduction, softmax, normalization, cast)
KERNELS = {f"{k.op.__name__}-{k.variant}": k for module in MODULES for k in module.KERNELS}
TOLERANCE = {"float16": 0.0, "float32": 2e-6, "float64": 1e-13}


def close(got: Any, wanted: Any) -> None:
    for found, expected in zip(got, wanted, strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if found.dtype.kind != "f":
            np.testing.assert_array_equal(found, expected)
            continue
        tolerance = TOLERANCE[found.dtype.name]
        np.testing.assert_allclose(found, expected, rtol=10 * tolerance, atol=tolerance)


@pytest.fixture(params=["one block", "tiny blocks", "three threads"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Samples are small, so blocks are made smaller still, and shared however short they take."""
    if request.param == "three threads":
        monkeypatch.setattr(_parallel, "PARALLEL", -1.0)
    if request.param != "one block":
        for name in ("BLOCK_BYTES", "SHARED_BLOCK_BYTES"):
            monkeypatch.setattr(_program, name, 32)
        monkeypatch.setattr(pointwise, "_compile_cached", pointwise._compile_cached.__wrapped__)
        monkeypatch.setattr(_rows, "BLOCK_ELEMENTS", 5)
        monkeypatch.setattr(cast, "BLOCK_ELEMENTS", 5)
    with using_threads(3 if request.param == "three threads" else 1):
        yield


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("blocks")
def test_samples(name: str, dtype: str, run_kernel: Run, reference: Run) -> None:
    kernel, compared = KERNELS[name], 0
    for sample in kernel.op.samples(np.random.default_rng(1)):
        if kernel.op is Region and dtype != "float32":
            return  # the bodies of its samples are float32
        arrays = [None if a is None else np.asarray(a) for a in sample.inputs]
        arrays = [a.astype(dtype) if a is not None and a.dtype == np.float32 else a for a in arrays]
        if any(a is not None and a.dtype == object for a in arrays):
            continue
        got = run_kernel(kernel, sample.op, arrays)
        if not isinstance(got, str):
            with np.errstate(all="ignore"):
                close(got, reference(sample.op, arrays))
            compared += 1
    assert compared >= 2, "no sample reaches the kernel"


@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if kernel.inplace])
@pytest.mark.usefixtures("blocks")
def test_output_in_the_memory_of_an_operand(name: str, reference: Run) -> None:
    kernel = KERNELS[name]
    for sample in kernel.op.samples(np.random.default_rng(2)):
        for output, operand in sample.op.inplace:
            arrays = [None if a is None else np.array(a) for a in sample.inputs]
            if any(a is not None and a.dtype == object for a in arrays):
                continue
            with np.errstate(all="ignore"):
                wanted = reference(sample.op, [None if a is None else a.copy() for a in arrays])
            target = arrays[operand] if operand < len(arrays) else None
            if target is None or (target.shape, target.dtype) != (wanted[output].shape, wanted[output].dtype):
                continue
            outputs = [target if i == output else np.empty_like(w) for i, w in enumerate(wanted)]
            if call(kernel, sample.op, arrays, outputs):
                close(outputs, wanted)


def call(kernel: Kernel, op: Op, arrays: list[Array | None], outputs: list[Array]) -> bool:
    """Bind and run into the outputs; False when the kernel cannot."""
    builder = Builder()
    values = [None if a is None else builder.input("x", dtype_name(a.dtype), a.shape) for a in arrays]
    builder.apply(op, *values)
    resolved, types = builder.nodes[-1].op, [None if v is None else v.type for v in values]
    if kernel.reason_against(resolved, *types) is not None:
        return False
    size = kernel.workspace(resolved, *types) if kernel.workspace is not None else 0
    options = {} if kernel.workspace is None else {"workspace": np.full(size, 255, np.uint8)}
    function = None if kernel.bind is None else kernel.bind(resolved, types, [None] * len(types))
    out = outputs[0] if len(outputs) == 1 else tuple(outputs)
    with np.errstate(all="ignore"):
        if function is None:
            kernel.function(resolved, *arrays, out=out, **options)
        else:
            function(*arrays, out=out, **options)
    return True


BODY_OPS: list[tuple[Op, int]] = [
    (Add(), 2),
    (Sub(), 2),
    (Mul(), 2),
    (Max(), 2),
    (Abs(), 1),
    (Neg(), 1),
    (Relu(), 1),
    (Sigmoid(), 1),
    (HardSwish(), 1),
    (Clip(-0.5, 0.75), 1),
    (LeakyRelu(0.1), 1),
    (PRelu(), 2),
    (Where(), 3),
]
SHAPES = [(2, 3, 4), (3, 4), (3, 1), (1,), (), (2, 1, 4)]


@st.composite
def regions(draw: Any) -> tuple[Region, list[Array]]:
    """A random expression over operands of random broadcasting shapes, with one or two results."""
    builder = Builder()
    shapes = [(2, 3, 4), *draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))]
    inputs = [builder.input(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)]
    values = list(inputs)
    for _ in range(draw(st.integers(1, 8))):
        op, count = draw(st.sampled_from(BODY_OPS))
        picked = [values[draw(st.integers(0, len(values) - 1))] for _ in range(count)]
        if isinstance(op, Where):
            picked[0] = builder.apply(Greater(), picked[0], builder.scalar(0.25, picked[0]))
        if isinstance(op, PRelu):
            picked[0] = builder.apply(Add(), picked[0], inputs[0])
        values.append(builder.apply(op, *picked))
    outputs = [builder.apply(Add(), values[-1], inputs[0])]
    if draw(st.booleans()):
        outputs.append(builder.apply(Sub(), inputs[0], values[draw(st.integers(0, len(values) - 1))]))
    graph = builder.graph(inputs, {f"y{i}": value for i, value in enumerate(outputs)})
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return Region(graph), [np.asarray(rng.standard_normal(shape), np.float32) for shape in shapes]


@settings(max_examples=150, deadline=None)
@given(regions(), st.sampled_from([16, 64, 1 << 17]), st.booleans())
def test_random_regions(reference: Run, case: tuple[Region, list[Array]], block: int, inplace: bool) -> None:
    op, arrays = case
    wanted = reference(op, arrays)
    operands: list[Array | None] = [a.copy() for a in arrays]
    outputs = [np.full(w.shape, np.nan, w.dtype) for w in wanted]
    if inplace:
        first = operands[0]
        assert first is not None
        outputs[0] = first
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_program, "BLOCK_BYTES", block)
        patch.setattr(pointwise, "_compile_cached", pointwise._compile_cached.__wrapped__)
        assert call(KERNELS["Region-blocked"], op, operands, outputs)
    close(outputs, wanted)
    for before, after in zip(arrays[1:], operands[1:], strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("other", [0.0, -0.0, 2.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("blocks")
def test_a_choice_of_zero_keeps_bits(other: float, dtype: str) -> None:
    builder = Builder()
    x, g = builder.input("x", dtype, (3, 5)), builder.input("g", dtype, (3, 5))
    zero = builder.constant(np.zeros((), dtype))
    y = builder.Where(builder.Greater(x, zero), g, builder.constant(np.full((), other, dtype)))
    op = Region(builder.graph([x, g], {"y": y}))
    values = np.array([1, -1, 0, np.nan, np.inf] * 3, dtype).reshape(3, 5)
    taken = np.array([np.nan, np.nan, np.inf, 5, -0.0] * 3, dtype).reshape(3, 5)
    want = np.array([np.nan, other, other, other, -0.0] * 3, dtype).reshape(3, 5)
    outputs = [taken.copy()]
    assert call(KERNELS["Region-blocked"], op, [values, outputs[0]], outputs)
    np.testing.assert_array_equal(outputs[0], want)
    np.testing.assert_array_equal(np.signbit(outputs[0][:, 1:]), np.signbit(want[:, 1:]))


@pytest.mark.parametrize("threads", [1, 3])
def test_constants_of_channels_are_repeated(reference: Run, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(_parallel, "PARALLEL", -1.0)
    builder = Builder()
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 6, 5, 7), (1, 1, 7), (7,), (1,))]
    x, scale, shift, slope = (builder.input("x", "float32", a.shape) for a in arrays)
    y = builder.apply(Mul(), builder.apply(Relu(), builder.apply(Add(), builder.apply(Mul(), x, scale), shift)), slope)
    types = [v.type for v in (x, scale, shift, slope)]
    op = Region(builder.graph([x, scale, shift, slope], {"y": y}))
    with using_threads(threads):
        run = pointwise.bind_pointwise(op, types, [None, *arrays[1:]])
        workspace = np.empty(pointwise.workspace_bytes(op, *types), np.uint8)
    assert isinstance(run, pointwise.BoundPointwise)
    assert {i: tile.size for i, tile in run.tiles.items()} == {1: 7 * 30, 2: 7 * 30}
    out = np.full(arrays[0].shape, np.nan, np.float32)
    run(*arrays, out=out, workspace=workspace)
    close([out], reference(op, arrays))


def test_two_outputs_that_are_one_value(reference: Run) -> None:
    builder = Builder()
    x = builder.input("x", "float32", (5,))
    y = builder.apply(Neg(), x)
    op = Region(builder.graph([x], {"a": y, "b": y, "c": x}))
    arrays = [np.arange(5, dtype=np.float32)]
    outputs = [np.empty(5, np.float32) for _ in range(3)]
    assert call(KERNELS["Region-blocked"], op, list(arrays), outputs)
    close(outputs, [-arrays[0], -arrays[0], arrays[0]])


def test_a_chain_needs_no_temporary() -> None:
    builder = Builder()
    x, scale, shift = (builder.input(n, "float32", s) for n, s in (("x", (8, 999)), ("s", (8, 1)), ("t", (8, 1))))
    y = builder.apply(Relu(), builder.apply(Add(), builder.apply(Mul(), x, scale), shift))
    types = [v.type for v in (x, scale, shift)]
    op = Region(builder.graph([x, scale, shift], {"y": y}))
    assert pointwise.compile_pointwise(op, types).workspace_bytes == 0


def test_regions_refuse_what_has_no_formula() -> None:
    region = KERNELS["Region-blocked"]
    builder = Builder()
    x = builder.input("x", "float16", (3,))
    half = Region(builder.graph([x], {"y": builder.apply(Relu(), x)}))
    assert region.reason_against(half, x.type) == "Relu in it does not take float16"

    builder = Builder()
    y = builder.input("y", "int64", (3,))
    power = Region(builder.graph([y], {"y": builder.apply(Pow(), y, y)}))
    assert region.reason_against(power, y.type) == "Pow in it does not take integers"

    builder = Builder()
    z = builder.input("z", "float32", (3,))
    soft = Region(builder.graph([z], {"y": builder.apply(Softmax(), z)}))
    assert region.reason_against(soft, z.type) == "has no formula of Softmax"

    builder = Builder()
    low = builder.input("low", "float32", ())
    open_ended = Region(builder.graph([z, low], {"y": builder.apply(Clip(), z, None, low)}))
    assert region.reason_against(open_ended, z.type, low.type) == "Clip lacks an operand"


@pytest.mark.parametrize(
    ("name", "op", "types", "reason"),
    [
        ("Add-blocked", Add(), ["bfloat16"] * 2, "does not take bfloat16"),
        ("Equal-blocked", Equal(), ["string"] * 2, "does not take string"),
        ("Shrink-blocked", Shrink(), ["int8"], "does not take integers"),
        ("Cast-copy", Cast("bfloat16"), ["float32"], "does not give bfloat16"),
        ("Cast-copy", Cast("int8"), ["float16"], "does not make integers of float16"),
        ("ReduceSum-ufunc", None, ["float32", "int64"], "wants axes that are known before the run"),
        ("BatchNormalization-channels", BatchNormalization(training_mode=1), ["float32"], "does not train"),
    ],
)
def test_reasons(name: str, op: Op | None, types: list[str], reason: str) -> None:
    kernel = KERNELS[name]
    assert kernel.reason_against(op or kernel.op(), *(TensorType(dtype, (3,)) for dtype in types)) == reason


def test_more_reasons() -> None:
    x, row, one = TensorType("float32", (2, 5)), TensorType("float32", (5,)), TensorType("float32", (1,))
    layer, rms = KERNELS["LayerNormalization-rows"], KERNELS["RMSNormalization-rows"]
    assert layer.reason_against(LayerNormalization(), x, row, row) is None
    wrong = "wants parameters of the normalised shape, not float32[1]"
    assert layer.reason_against(LayerNormalization(), x, one) == wrong
    narrow = LayerNormalization(stash_type="bfloat16", statistics=True)
    assert layer.reason_against(narrow, x, row) == "gives no statistics in bfloat16"
    unranked = TensorType("float32", None)
    assert layer.reason_against(LayerNormalization(), unranked, row) == "wants an operand of known rank"
    assert rms.reason_against(rms.op(), x, TensorType("float64", (5,))) == "wants a scale of x's type, not float64"
    batch = KERNELS["BatchNormalization-channels"]
    mixed = [x, row, row, TensorType("float64", (5,)), TensorType("float64", (5,))]
    assert batch.reason_against(BatchNormalization(), *mixed) == "wants parameters of x's type, not float64"
    first = KERNELS["ArgMax-first"]
    assert first.reason_against(first.op(0, 1, 1), x) == "finds the first of equals only"


def test_bounds_become_one_clip() -> None:
    tape = Tape()
    x = tape.input(np.dtype(np.float32), (4,))
    y = np.minimum(np.maximum(x * 2, 0), 6)
    steps = merge_bounds(tape, {y.number})
    assert [step.function for step in steps] == [np.multiply, CLIP]
    assert [float(bound) for bound in steps[-1].operands[1:]] == [0, 6]


def test_bounds_that_cross_or_are_outputs_stay_apart() -> None:
    tape = Tape()
    x = tape.input(np.dtype(np.float32), (4,))
    crossed = np.minimum(np.maximum(x, 5), 1)
    assert [step.function for step in merge_bounds(tape, {crossed.number})] == [CLIP, CLIP]
    tape = Tape()
    x = tape.input(np.dtype(np.float32), (4,))
    low = np.maximum(x, 0)
    high = np.minimum(low, 6)
    assert len(merge_bounds(tape, {low.number, high.number})) == 2


def test_clip_is_max_then_min() -> None:
    numbers = [math.nan, -math.inf, -1.0, 0.0, 2.0, math.inf]
    for x, low, high in itertools.product(numbers, repeat=3):
        wanted = np.minimum(np.maximum(x, low), high)
        np.testing.assert_array_equal(CLIP(np.array([x]), low, high)[0], wanted)


def test_a_formula_cannot_turn_a_symbol_into_an_array() -> None:
    symbol = Tape().input(np.dtype(np.float32), (3,))
    with pytest.raises(TypeError, match="leave its symbols to ufuncs"):
        np.asarray(symbol)
    with pytest.raises(TypeError):
        np.sort(symbol)  # type: ignore[call-overload]


def test_square_replaces_power_of_two(reference: Run) -> None:
    x, two = np.array([-3.0, 0.5, np.inf, np.nan], np.float32), np.array(2.0, np.float32)
    types = [TensorType("float32", (4,)), TensorType("float32", ())]
    program = pointwise.compile_pointwise(Pow(), types, [None, two])
    assert program.single is not None
    assert program.single[0] is np.square
    out = np.empty_like(x)
    pointwise.bind_pointwise(Pow(), types, [None, two])(x, two, out=out)
    np.testing.assert_array_equal(out, reference(Pow(), [x, two])[0])


def test_erf_in_float32() -> None:
    x = np.concatenate([np.linspace(-6, 6, 20001), np.logspace(-30, 0, 500), [np.inf, -np.inf, 0.0]])
    x = x.astype(np.float32)
    out = np.empty_like(x)
    assert call(KERNELS["Erf-blocked"], Erf(), [x], [out])
    wanted = np.array([math.erf(v) for v in x.astype(np.float64)])
    np.testing.assert_allclose(out, wanted, rtol=5e-7, atol=0)
    assert np.max(np.abs(out)) == 1


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (Gelu(), [(300, 1000)]),
        (Div(), [(300, 1000)] * 2),
        (Softmax(), [(300, 1000)]),
        (LayerNormalization(), [(300, 1000), (1000,), (1000,)]),
        (BatchNormalization(), [(3, 100, 1000), (100,), (100,), (100,), (100,)]),
        (ReduceLogSumExp((1,)), [(300, 1000)]),
        (Cast("int32"), [(300, 1000)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_memory_is_the_planned_one(op: Op, shapes: list[tuple[int, ...]]) -> None:
    kernel = next(k for k in KERNELS.values() if k.op is type(op))
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    builder = Builder()
    values = [builder.input("x", "float32", a.shape) for a in arrays]
    (result,) = as_tuple(builder.apply(op, *values))
    op, types = builder.nodes[-1].op, [v.type for v in values]
    out = np.empty(result.type.static_shape, result.dtype)
    assert kernel.workspace is not None
    workspace = np.empty(kernel.workspace(op, *types), np.uint8)
    run = kernel.bind(op, types, [None] * len(types)) if kernel.bind is not None else None
    tracemalloc.start()
    try:
        if run is None:
            kernel.function(op, *arrays, out=out, workspace=workspace)
        else:
            run(*arrays, out=out, workspace=workspace)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000  # an array of the operand's size has 1,200,000 bytes
