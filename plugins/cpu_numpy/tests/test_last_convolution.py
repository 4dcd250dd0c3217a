"""Convolutions of channels-last images: the reference's numbers for every geometry, from their own memory alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aicore.ir import Builder, Op, TensorType, numpy_dtype, symbol
from aicore.kernels import Kernel
from aicore.ops.activation import Clip, Gelu, HardSigmoid, HardSwish, LeakyRelu, Relu, Sigmoid, Swish, Tanh
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct, ScaleActConv
from aicore.ops.layout import ChannelsLast
from aicore.runtime import using_threads
from aicore_cpu_numpy.fast import _last_windows, last_convolution
from aicore_cpu_numpy.fast._last_problem import Problem, as_rows, blocks
from aicore_cpu_numpy.fast.last_convolution import KERNELS

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

TOLERANCE = {"float32": 2e-5, "float64": 1e-12}
ACTIVATIONS = (Relu(), Clip(-0.5, 0.75), LeakyRelu(0.2), HardSwish(), HardSigmoid(), Sigmoid(), Swish(2.0), Tanh())
BEFORE = (Relu(), Clip(-0.5, 0.75), HardSigmoid(), Sigmoid(), Tanh())
VARIANTS = ("gemm", "im2col", "shifted", "depthwise")


def found(variant: str, inner: type[Op]) -> Kernel:
    return next(k for k in KERNELS if k.variant == variant and k.wraps is inner)


def reason(kernel: Kernel, op: Op, arrays: Sequence[Array | None]) -> str | None:
    return kernel.reason_against(op, *[None if a is None else TensorType(a.dtype.name, a.shape) for a in arrays])


def compute(
    kernel: Kernel, op: Op, arrays: Sequence[Array | None], constant: Sequence[int] = (1, 2, 3), **chosen: Any
) -> Array:
    """Run as a plan does, from a poisoned workspace, into the middle of an array that must stay as it is elsewhere."""
    types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in arrays]
    chosen = {**kernel.settings[0], **chosen}
    (result,) = _results(op, types)
    assert kernel.bind is not None
    assert kernel.workspace is not None
    nbytes = kernel.workspace(op, *types, **chosen)
    bound = kernel.bind(op, types, [a if i in constant else None for i, a in enumerate(arrays)], **chosen)
    memory, out = _guarded(result)
    guard, workspace = _workspace(nbytes)
    operands = [None if a is None else _read_only(a) for a in arrays]
    call = bound.place(*operands, out=out, workspace=workspace)
    with np.errstate(all="ignore"):
        call()
        first = out.copy()
        out.fill(np.nan)
        workspace.fill(255)
        call()  # what a call leaves in the workspace is of no use to the next one
    np.testing.assert_array_equal(first, out)
    assert np.isnan([*memory[:16], *memory[-16:]]).all(), "wrote outside of the output"
    assert (guard[nbytes:] == 255).all(), "wrote outside of the workspace"
    return first


def _results(op: Op, types: Sequence[TensorType | None]) -> list[TensorType]:
    builder = Builder()
    values = [None if t is None else builder.input(f"x{i}", t.dtype, t.shape) for i, t in enumerate(types)]
    return [builder.apply(op, *values).type]


def _guarded(tensor: TensorType) -> tuple[Array, Array]:
    size = int(np.prod(tensor.static_shape))
    memory = np.full(size + 32, np.nan, numpy_dtype(tensor.dtype))
    return memory, memory[16 : 16 + size].reshape(tensor.static_shape)


def _workspace(nbytes: int) -> tuple[Array, Array]:
    guard = np.full(nbytes + 64, 255, np.uint8)
    return guard, guard[:nbytes]


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def wanted(reference: Run, op: Op, arrays: Sequence[Array | None]) -> Array:
    """The reference's result in float64."""
    result: Array = reference(op, [None if a is None else a.astype(np.float64) for a in arrays])[0]
    return result


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.wraps.__name__}-{k.variant}")
def test_samples(kernel: Kernel, dtype: str, reference: Run) -> None:
    compared = 0
    for sample in ChannelsLast.samples(np.random.default_rng(1)):
        arrays = [None if a is None else a.astype(dtype) for a in sample.inputs]
        if type(sample.op.inner) is kernel.wraps and reason(kernel, sample.op, arrays) is None:  # type: ignore[attr-defined]
            got = compute(kernel, sample.op, arrays)
            np.testing.assert_allclose(got, wanted(reference, sample.op, arrays), TOLERANCE[dtype], TOLERANCE[dtype])
            compared += 1
    assert compared >= 1 or kernel.wraps is not Conv, "no sample reaches the kernel"


@st.composite
def convolutions(draw: Any) -> tuple[ChannelsLast, list[Array | None]]:
    """An op with operands; some of each kind, so that each variant meets many."""
    count = draw(st.sampled_from([1, 2, 2, 2, 3]))
    kind = draw(st.sampled_from(["any", "any", "depthwise", "plain", "shifted", "shifted"]))
    each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(count))  # noqa: E731
    kernel = (1,) * count if kind == "plain" else each(1, 4 if count < 3 else 2)
    plain = kind == "plain" and draw(st.booleans())
    fields: dict[str, Any] = (
        {} if plain else {"strides": each(1, 3), "dilations": each(1, 3), "pads": each(0, 3) + each(0, 3)}
    )
    if kind == "shifted":
        fields.pop("strides")
    spatial = each(1, 17 if count < 3 else 5)
    group = 1 if kind == "shifted" else draw(st.integers(2, 20) if kind == "depthwise" else st.integers(1, 3))
    channels, maps = (1, 1) if kind == "depthwise" else (draw(st.integers(1, 5)), draw(st.integers(1, 6)))
    images = draw(st.sampled_from([0, 1, 1, 2, 3, 5]))
    op = Conv(group=group, **fields)
    dims = op.settled(spatial, kernel, count)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dims.dilations, strict=True)]
    sizes = [n + dims.pads[i] + dims.pads[count + i] - extents[i] for i, n in enumerate(spatial)]
    assume(all(size >= -1 for size in sizes))  # -1 leaves no room for the window: an empty output
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    out = [max(size // stride + 1, 0) for size, stride in zip(sizes, dims.strides, strict=True)]
    operands: list[Array | None] = [
        rng.standard_normal((images, *spatial, group * channels)),
        rng.standard_normal((group * maps, channels, *kernel)),
    ]
    adds, activation = draw(st.booleans()), draw(st.sampled_from([None, *ACTIVATIONS]))
    if adds:
        operands.append(rng.standard_normal((images, *out, group * maps)))
    operands += [rng.standard_normal(group * maps)] if draw(st.booleans()) else []
    inner: Op = op
    if adds:
        inner = ConvAdd(op) if activation is None else ConvAddAct(op, activation)
    elif activation is not None:
        inner = ConvAct(op, activation)
    return ChannelsLast(inner, count + 2), operands


@settings(max_examples=500, deadline=None)
@given(
    case=convolutions(),
    workers=st.sampled_from([1, 2, 3]),
    block=st.sampled_from([1, 60, 300, 1 << 15]),
    split=st.sampled_from(["rows", "maps"]),
    length=st.sampled_from([1, 30, 2048]),
    constant=st.sampled_from([(), (1,), (1, 2, 3)]),
)
def test_any_geometry(
    reference: Run, case: Any, workers: int, block: int, split: str, length: int, constant: tuple[int, ...]
) -> None:
    op, arrays = case
    expected = wanted(reference, op, arrays)
    with pytest.MonkeyPatch.context() as patch, using_threads(workers):
        for module in ("_last_products", "_last_windows", "_last_depthwise", "_last_shifted"):
            patch.setattr(f"aicore_cpu_numpy.fast.{module}.PARALLEL", 0.0)  # small as they are
        # Made anew: methods remember into how many parts they cut the work.
        patch.setattr(last_convolution, "_made", last_convolution._made.__wrapped__)
        for variant in VARIANTS:
            kernel = found(variant, type(op.inner))
            if reason(kernel, op, arrays) is None:
                chosen = {name: {"block": block, "split": split, "length": length}[name] for name in kernel.tune}
                got = compute(kernel, op, arrays, constant, **chosen)
                np.testing.assert_allclose(got, expected, 1e-12, 1e-12, err_msg=f"{variant} {chosen}")


@st.composite
def scaled_products(draw: Any) -> tuple[ChannelsLast, list[Array | None]]:
    """A 1x1 convolution of an image that is scaled, shifted and bounded first, with operands."""
    spatial = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    images, group = draw(st.sampled_from([0, 1, 1, 2, 3])), draw(st.integers(1, 3))
    channels, maps = draw(st.integers(1, 40)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    ones = (1,) * len(spatial)
    numbers = (group * channels, *ones)
    shapes = [(images, *spatial, group * channels), numbers, numbers, (group * maps, channels, *ones)]
    shapes += [(group * maps,)] if draw(st.booleans()) else []
    before, after = draw(st.sampled_from(BEFORE)), draw(st.sampled_from([None, *ACTIVATIONS]))
    conv = Conv(group=group)
    op = ScaleActConv(before, conv if after is None else ConvAct(conv, after))
    return ChannelsLast(op, len(spatial) + 2), [rng.standard_normal(shape) for shape in shapes]


@settings(max_examples=300, deadline=None)
@given(
    case=scaled_products(),
    workers=st.sampled_from([1, 2, 3]),
    block=st.sampled_from([1, 60, 300, 1 << 15]),
    split=st.sampled_from(["rows", "maps"]),
    constant=st.sampled_from([(), (1,), (2, 3), (1, 2, 3, 4)]),
)
def test_any_scaled_product(
    reference: Run, case: Any, workers: int, block: int, split: str, constant: tuple[int, ...]
) -> None:
    op, arrays = case
    with pytest.MonkeyPatch.context() as patch, using_threads(workers):
        patch.setattr("aicore_cpu_numpy.fast._last_products.PARALLEL", 0.0)  # small as they are
        patch.setattr(last_convolution, "_made", last_convolution._made.__wrapped__)
        got = compute(found("gemm", ScaleActConv), op, arrays, constant, block=block, split=split)
    np.testing.assert_allclose(got, wanted(reference, op, arrays), 1e-12, 1e-12)


@pytest.mark.parametrize("fields", [{}, {"strides": (2, 1)}, {"dilations": (2, 3)}, {"strides": (1, 2)}])
@pytest.mark.parametrize("constant", [(1,), ()])
@pytest.mark.parametrize("threads", [1, 2])
def test_windows_of_one_channel(
    reference: Run, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], constant: Sequence[int], threads: int
) -> None:
    """They are copied offset by offset, unless they jump along rows."""
    monkeypatch.setattr(_last_windows, "PARALLEL", 0.0)
    rng = np.random.default_rng(2)
    arrays: list[Array | None] = [rng.standard_normal((2, 11, 13, 1)), rng.standard_normal((5, 1, 3, 2))]
    op = ChannelsLast(Conv(pads=(1, 0, 2, 1), **fields), 4)
    with using_threads(threads):
        for block in (1 << 17, 1 << 6):
            got = compute(found("im2col", Conv), op, arrays, constant, block=block)
            np.testing.assert_allclose(got, wanted(reference, op, arrays), 1e-12, 1e-12)
    problem = Problem.of(op.inner, (2, 11, 13, 1), (5, 1, 3, 2), 8)  # type: ignore[arg-type]
    assert _last_windows.lies_across(problem) is (fields.get("strides") != (1, 2))


def test_scaling_by_hand() -> None:
    """2 * relu(3 x - 1) - relu(-2 x + 1) of two channels: NaN and infinity times zero are NaN, where they stand."""
    x = np.array([[[1, 1], [0, -2], [-1, np.inf], [np.nan, 0]]], "float32")
    op = ChannelsLast(ScaleActConv(Relu(), Conv()), 3)
    scale, shift, w = (np.array(each, "float32") for each in ([[3], [-2]], [[-1], [1]], [[[2], [-1]]]))
    got = compute(found("gemm", ScaleActConv), op, [x, scale, shift, w])
    np.testing.assert_array_equal(got.reshape(-1), [4, -5, 0, np.nan])
    got = compute(found("gemm", ScaleActConv), op, [x, scale * np.array([[1], [0]], "float32"), shift, w])
    np.testing.assert_array_equal(got.reshape(-1), [3, -1, np.nan, np.nan])


def test_each_variant_meets_some_geometries() -> None:
    """So that the test above compares what it seems to."""
    met = dict.fromkeys(VARIANTS, 0)

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(convolutions())
    def count(case: Any) -> None:
        op, arrays = case
        for variant in VARIANTS:
            met[variant] += reason(found(variant, type(op.inner)), op, arrays) is None

    count()
    assert min(met.values()) >= 5, met


def _depthwise() -> tuple[Op, list[Array]]:
    rng = np.random.default_rng(0)
    op = ChannelsLast(ConvAct(Conv(group=24, pads=(1, 1, 1, 1)), Swish()))
    shapes = ((2, 40, 40, 24), (24, 1, 3, 3), (24,))
    return op, [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _dense(kernel: int) -> tuple[Op, list[Array]]:
    rng = np.random.default_rng(0)
    op = ChannelsLast(ConvAddAct(Conv(pads=(kernel // 2,) * 4), Swish()))
    shapes = ((2, 20, 20, 32), (48, 32, kernel, kernel), (2, 20, 20, 48), (48,))
    return op, [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


CASES = {"gemm": _dense(1), "im2col": _dense(3), "shifted": _dense(3), "depthwise": _depthwise()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_share_what_is_bound(variant: str, reference: Run) -> None:
    op, arrays = CASES[variant]
    kernel = found(variant, type(op.inner))  # type: ignore[attr-defined]
    types = [TensorType(a.dtype.name, a.shape) for a in arrays]
    (result,) = _results(op, types)
    assert kernel.bind is not None
    assert kernel.workspace is not None
    with using_threads(2):
        nbytes = kernel.workspace(op, *types)
        bound = kernel.bind(op, types, [None, *arrays[1:]])
    scales = (1.0, 2.0, 4.0, 8.0)
    inputs = [[(arrays[0] * scale).astype(np.float32), *arrays[1:]] for scale in scales]

    def run(operands: list[Array]) -> Array:
        out = np.empty(result.static_shape, np.float32)
        with np.errstate(all="ignore"):  # as the launcher does
            for _ in range(5):
                bound(*operands, out=out, workspace=np.full(nbytes, 255, np.uint8))
        return out

    with ThreadPoolExecutor(len(scales)) as pool:
        got = list(pool.map(run, inputs))
    for operands, found_here in zip(inputs, got, strict=True):
        np.testing.assert_allclose(found_here, wanted(reference, op, operands), 1e-4, 1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_nan_reaches_the_windows_that_see_it(variant: str, reference: Run) -> None:
    op, arrays = CASES[variant]
    spoiled = [a.copy() for a in arrays]
    spoiled[0][1, 7, 9, 3] = np.nan
    for activation in (Relu(), HardSwish(), Clip(-1.0, 1.0)):
        inner = ChannelsLast(type(op.inner)(op.inner.conv, activation))  # type: ignore[attr-defined]
        got = compute(found(variant, type(op.inner)), inner, spoiled)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted(reference, inner, spoiled)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_residual_may_be_part_of_a_wider_image(variant: str, reference: Run) -> None:
    op, (x, w, *rest) = CASES[variant]
    conv = op.inner.conv  # type: ignore[attr-defined]
    maps, dims = w.shape[0], x.shape[:3]
    wide = np.random.default_rng(1).standard_normal((*dims, 2 * maps + 1)).astype(np.float32)
    arrays = [x, w, wide[..., 1 : maps + 1], rest[-1]]
    added = ChannelsLast(ConvAdd(conv))
    got = compute(found(variant, ConvAdd), added, arrays)
    np.testing.assert_allclose(got, wanted(reference, added, arrays), 1e-4, 1e-4)


def test_images_that_are_no_rows_are_refused() -> None:
    every_other = np.zeros((2, 4, 4, 3), np.float32)[:, ::2, ::3]
    with pytest.raises(ValueError, match="not evenly spaced"):
        as_rows(every_other)


SCALED = ((1, 5, 5, 2), (2, 1, 1), (2, 1, 1), (3, 2, 1, 1))


@pytest.mark.parametrize(
    ("variant", "op", "shapes", "message"),
    [
        ("gemm", Conv(), ((1, 5, 5, 2), (3, 2, 3, 3)), "needs a 1x1 kernel"),
        ("gemm", Conv(strides=(2, 2)), ((1, 5, 5, 2), (3, 2, 1, 1)), "needs a 1x1 kernel without stride"),
        ("im2col", Conv(), ((1, 5, 5, 2), (3, 2, 1, 1)), "product as it is"),
        ("depthwise", Conv(group=2), ((1, 5, 5, 2), (4, 1, 3, 3)), "one channel and one map"),
        ("shifted", Conv(strides=(2, 1)), ((1, 5, 5, 2), (4, 2, 3, 3)), "needs one group and no stride"),
        ("shifted", Conv(), ((1, 9, 9, 2), (4, 2, 9, 9)), "2 to 64 offsets"),
        ("shifted", Conv(pads=(2, 2, 2, 2)), ((1, 1, 1, 2), (4, 2, 2, 2)), "no window has outside"),
        ("im2col", ConvAct(Conv(), Gelu()), ((1, 5, 5, 2), (3, 2, 3, 3)), "no form of Gelu in blocks"),
        ("im2col", ConvAdd(Conv()), ((1, 5, 5, 2), (3, 2, 3, 3), (1, 3, 3, 1)), "of the output's shape only"),
        ("gemm", ScaleActConv(Relu(), Conv()), (*SCALED[:3], (3, 2, 3, 3)), "needs a 1x1 kernel"),
        ("gemm", ScaleActConv(LeakyRelu(0.2), Conv()), SCALED, "cannot do LeakyRelu in place"),
        ("gemm", ScaleActConv(Gelu(), Conv()), SCALED, "no form of Gelu in blocks"),
        ("gemm", ScaleActConv(Relu(), ConvAct(Conv(), Gelu())), SCALED, "no form of Gelu in blocks"),
        ("gemm", ScaleActConv(Relu(), Conv()), (SCALED[0], (), *SCALED[2:]), "by one number per channel"),
        ("gemm", ScaleActConv(Relu(), Conv()), (*SCALED[:2], (5, 1), SCALED[3]), "by one number per channel"),
        ("im2col", Conv(), ((symbol("n"), 5, 5, 2), (3, 2, 3, 3)), "known in numbers"),
    ],
    ids=str,
)
def test_reasons(variant: str, op: Op, shapes: Any, message: str) -> None:
    types = [TensorType("float32", shape) for shape in shapes]
    said = found(variant, type(op)).reason_against(ChannelsLast(op), *types)
    assert said is not None
    assert message in said


def test_estimates_follow_the_work() -> None:
    """The least that the selector needs: more work is expected to take longer, and two workers less than one."""
    for variant, (op, arrays) in CASES.items():
        kernel = found(variant, type(op.inner))  # type: ignore[attr-defined]
        assert kernel.estimate is not None
        once = [TensorType("float32", a.shape) for a in arrays]
        many = [TensorType("float32", (64, *a.shape[1:]) if a.shape[0] == 2 else a.shape) for a in arrays]
        seconds = kernel.estimate(op, *many)
        with using_threads(2):
            shared = kernel.estimate(op, *many)
        assert kernel.estimate(op, *once) < seconds
        assert 0.5 * seconds < shared < seconds


def test_a_block_takes_whole_images_or_rows_of_one() -> None:
    problem = Problem.of(Conv(), (5, 6, 4, 2), (3, 2, 1, 1), 4)
    for start, stop, most in itertools.product(range(15), range(15, 31), (1, 4, 6, 13, 100)):
        rows = [
            image * 6 + row
            for block in blocks(problem, start, stop, most)
            for image in range(block.images.start, block.images.stop)
            for row in range(block.rows.start, block.rows.stop)
        ]
        assert rows == list(range(start, stop))
        assert all(block.height <= most for block in blocks(problem, start, stop, most))
