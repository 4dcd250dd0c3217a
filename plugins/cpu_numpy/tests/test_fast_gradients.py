"""Kernels of backward ops against the reference in float64: all geometries, small blocks, several workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder, Op, Sample, as_tuple
from aicore.kernels import Kernel
from aicore.ops import CORE
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.convolution_grad import ConvWeightGrad
from aicore.ops.layout import ChannelsLast, channels_last, image_results_of, images_of, knows_channels
from aicore.ops.normalization_grad import BatchNormalizationGrad
from aicore.ops.pooling import AveragePool, MaxPool
from aicore.ops.pooling_grad import AveragePoolGrad, MaxPoolGrad
from aicore.runtime import using_threads
from aicore_cpu_numpy.fast import (
    _last_problem,
    _parallel,
    batch_normalization,
    convolution,
    convolution_weight,
    last_convolution,
    last_convolution_flipped,
    last_convolution_weight,
    normalization_grad,
    pooling_grad,
)

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

MODULES = (
    batch_normalization,
    convolution_weight,
    last_convolution_flipped,
    last_convolution_weight,
    normalization_grad,
    pooling_grad,
)
KERNELS: list[Kernel] = [kernel for module in MODULES for kernel in module.KERNELS]


def name_of(kernel: Kernel) -> str:
    return f"{kernel.name}{'-last' if kernel.wraps else ''}"


def forget() -> None:
    repeat = batch_normalization._repeat
    for cached in (pooling_grad.spread, convolution.blocks, convolution_weight.problem_of, repeat):
        cached.cache_clear()


@pytest.fixture(params=["one thread", "three threads, small blocks"])
def sharing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "one thread":
        yield
        return
    for module in (_parallel, last_convolution_weight):
        monkeypatch.setattr(module, "PARALLEL", 0.0)
    monkeypatch.setattr(last_convolution_weight, "PIECE", 3)
    monkeypatch.setattr(_last_problem, "MANY", 1)
    monkeypatch.setattr(batch_normalization, "ROW", 8)
    for module in (batch_normalization, pooling_grad):
        monkeypatch.setattr(module, "BLOCK_BYTES", 64)
    for name in ("COLUMNS_BYTES", "GROUPED_COLUMNS_BYTES"):
        monkeypatch.setattr(convolution, name, 256)
    forget()
    with using_threads(3):
        yield
    forget()


def with_channels_last(op: Op, arrays: Sequence[Array | None]) -> tuple[Op, list[Array | None]]:
    rank = arrays[0].ndim  # type: ignore[union-attr]
    images = images_of(op)
    moved = (
        np.ascontiguousarray(a.transpose(channels_last(rank))) if i in images and a is not None else a
        for i, a in enumerate(arrays)
    )
    return ChannelsLast(op, rank), list(moved)


def compare(kernel: Kernel, sample: Sample, run_kernel: Run, reference: Run, dtype: str) -> bool:
    """Whether the kernel takes the sample; it has to agree with the reference in float64 then."""
    arrays: list[Any] = [a if a is None or a.dtype.kind != "f" else a.astype(dtype) for a in sample.inputs]
    with np.errstate(all="ignore"):
        wanted = list(reference(sample.op, [a if a is None else widened(a) for a in arrays]))
    op = sample.op
    if kernel.wraps is not None:
        if arrays[0].ndim < 3 or not knows_channels(op):
            return False
        op, arrays = with_channels_last(op, arrays)
        for i in image_results_of(sample.op):
            wanted[i] = wanted[i].transpose(channels_last(wanted[i].ndim))
    got = run_kernel(kernel, op, arrays)
    if isinstance(got, str):
        return False
    near = {"rtol": 2e-5, "atol": 2e-5} if dtype == "float32" else {"rtol": 1e-11, "atol": 1e-11}
    for found, expected in zip(got, wanted, strict=True):
        np.testing.assert_allclose(found, expected, **near, err_msg=f"{sample.op} {sample.note}")
    return True


def widened(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


@pytest.mark.parametrize("kernel", KERNELS, ids=name_of)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("sharing")
def test_samples(kernel: Kernel, dtype: str, run_kernel: Run, reference: Run) -> None:
    held = kernel.wraps or kernel.op
    samples = [
        s for s in held.samples(np.random.default_rng(1)) if all(a is None or a.dtype != np.float16 for a in s.inputs)
    ]
    assert sum(compare(kernel, sample, run_kernel, reference, dtype) for sample in samples) >= 1


def geometry(rng: np.random.Generator, pools: bool) -> dict[str, Any]:
    count = int(rng.integers(1, 4))
    kernel = tuple(int(n) for n in rng.integers(1, 4, count))
    dilations = tuple(int(n) for n in rng.integers(1, 3, count))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = tuple(int(rng.integers(0, r if pools else r + 1)) for r in reach * 2)
    return {
        "kernel_shape": kernel,
        "strides": tuple(int(n) for n in rng.integers(1, 4, count)),
        "dilations": dilations,
        "pads": pads,
    }


def output_of(op: Op, *operands: Array) -> tuple[int, ...]:
    builder = Builder()
    values = [builder.input(f"x{i}", "float32", a.shape) for i, a in enumerate(operands)]
    return as_tuple(builder.apply(op, *values))[0].type.static_shape


def pool_case(seed: int) -> Sample | None:
    rng = np.random.default_rng(seed)
    fields = {**geometry(rng, pools=True), "ceil_mode": int(rng.integers(2))}
    spatial = tuple(int(n) for n in rng.integers(1, 9, len(fields["kernel_shape"])))
    x = rng.integers(-2, 3, (int(rng.integers(1, 4)), int(rng.integers(1, 6)), *spatial)).astype(np.float32)
    averages = seed % 2
    try:
        shape = output_of((AveragePool if averages else MaxPool)(**fields), x)
    except InferenceError:
        return None
    dy = rng.standard_normal(shape).astype(np.float32)
    if averages:
        counted = int(rng.integers(2))
        return Sample(AveragePoolGrad(**fields, count_include_pad=counted, shape=spatial), (dy,))
    return Sample(MaxPoolGrad(**fields), (x, dy))


def weight_case(seed: int) -> Sample | None:
    rng = np.random.default_rng(seed)
    fields = geometry(rng, pools=False)
    group, channels, maps = (int(n) for n in rng.integers(1, 4, 3))
    if seed % 3 == 0:
        channels = 1
    spatial = rng.integers(1, 9, len(fields["kernel_shape"]))
    x = rng.standard_normal((int(rng.integers(1, 5)), group * channels, *spatial)).astype(np.float32)
    w = np.zeros((group * maps, channels, *fields["kernel_shape"]), np.float32)
    try:
        dy = rng.standard_normal(output_of(Conv(**fields, group=group), x, w)).astype(np.float32)
    except InferenceError:
        return None
    return Sample(ConvWeightGrad(**fields, group=group), (x, dy))


def transposed_case(seed: int) -> Sample | None:
    rng = np.random.default_rng(seed)
    fields = {**geometry(rng, pools=True), "strides": ()}
    group = 1 if seed % 3 else 2
    channels, maps = (int(n) for n in rng.integers(1, 4, 2))
    spatial = rng.integers(1, 9, len(fields["kernel_shape"]))
    x = rng.standard_normal((int(rng.integers(1, 4)), group * channels, *spatial)).astype(np.float32)
    w = rng.standard_normal((group * channels, maps, *fields["kernel_shape"])).astype(np.float32)
    b = rng.standard_normal(group * maps).astype(np.float32)
    op = ConvTranspose(**fields, group=group)
    try:
        output_of(op, x, w)
    except InferenceError:
        return None
    return Sample(op, (x, w, b) if seed % 2 else (x, w))


@pytest.mark.parametrize("case", [pool_case, weight_case, transposed_case])
@pytest.mark.usefixtures("sharing")
def test_geometries(case: Callable[[int], Sample | None], run_kernel: Run, reference: Run) -> None:
    compared = 0
    for sample in filter(None, map(case, range(60))):
        for kernel in KERNELS:
            if (kernel.wraps or kernel.op) is type(sample.op):
                compared += compare(kernel, sample, run_kernel, reference, "float32")
    assert compared >= 30


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.usefixtures("sharing")
def test_an_infinite_gradient_reaches_the_largest_element_alone(last: bool, run_kernel: Run) -> None:
    op: Op = MaxPoolGrad(kernel_shape=(2,), strides=(2,))
    arrays: list[Any] = [np.float32([[[1, 2, 3, 3, np.nan, 9]]]), np.float32([[[np.inf, np.nan, -np.inf]]])]
    (kernel,) = (k for k in pooling_grad.KERNELS if (k.wraps if last else k.op) is MaxPoolGrad)
    if last:
        op, arrays = with_channels_last(op, arrays)  # type: ignore[assignment]
    (dx,) = run_kernel(kernel, op, arrays)
    np.testing.assert_array_equal(dx.reshape(-1), [0, np.inf, np.nan, 0, -np.inf, 0])


@pytest.mark.parametrize("kernel", last_convolution_flipped.KERNELS, ids=name_of)
@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"strides": (2, 1)}, "strides of 1"), ({"pads": (3, 0, 0, 0)}, "cuts off whole windows")],
)
def test_what_is_no_convolution_is_refused(kernel: Kernel, fields: Any, reason: str, run_kernel: Run) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 6, 6, 2)), rng.standard_normal((2, 3, 3, 3))
    found = run_kernel(kernel, ChannelsLast(ConvTranspose(**fields)), [x, w])
    assert isinstance(found, str)
    assert reason in found


PACKING = [k for k in last_convolution.KERNELS if k.wraps is Conv and k.variant in ("im2col", "shifted")]


@pytest.mark.parametrize("kernel", PACKING, ids=name_of)
def test_weights_that_are_no_constants(kernel: Kernel) -> None:
    """They are packed in each run, so that the call for an array follows its numbers."""
    rng = np.random.default_rng(0)
    x, first, second = (rng.standard_normal(shape) for shape in ((2, 5, 6, 3), (4, 3, 3, 3), (4, 3, 3, 3)))
    builder = Builder()
    values = [builder.input(f"x{i}", "float64", a.shape) for i, a in enumerate((x, first))]
    out = np.empty(as_tuple(builder.apply(ChannelsLast(Conv(pads=(1, 1, 1, 1))), *values))[0].type.static_shape)
    op, types = builder.nodes[-1].op, [v.type for v in values]
    assert kernel.workspace is not None
    assert kernel.bind is not None
    workspace = np.empty(kernel.workspace(op, *types), np.uint8)
    given = first.copy()
    run = kernel.bind(op, types, [None, None]).place(x, given, out=out, workspace=workspace)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for w in (first, second, first):
        given[...] = w
        run()
        wanted = sum(
            padded[:, i : i + 5, j : j + 6] @ w[:, :, i, j].T for i, j in itertools.product(range(3), range(3))
        )
        np.testing.assert_allclose(out, wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=name_of)
def test_open_sizes_are_left_to_later(kernel: Kernel) -> None:
    sample = next(iter((kernel.wraps or kernel.op).samples(np.random.default_rng(0))))
    builder = Builder()
    op, arrays = sample.op, list(sample.inputs)
    if kernel.wraps is not None:
        op, arrays = with_channels_last(op, arrays)
    values = [
        None if a is None else builder.input(f"x{i}", a.dtype.name, ("n", *a.shape[1:])) for i, a in enumerate(arrays)
    ]
    reason = kernel.reason_against(op, *(None if v is None else v.type for v in values))
    assert reason is not None


def test_every_backward_op_has_a_fast_kernel_in_both_layouts() -> None:
    for name in ("ConvWeightGrad", "MaxPoolGrad", "AveragePoolGrad", "BatchNormalizationGrad"):
        cls = CORE[name]
        assert any(k.op is cls for k in KERNELS)
        assert any(k.wraps is cls for k in KERNELS)


@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.usefixtures("sharing")
def test_weights_of_one_channel(strides: tuple[int, int], run_kernel: Run, reference: Run) -> None:
    """Windows of one channel are copied offset by offset where they do not jump; small gradients add up in pieces."""
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((7, 1, 11, 13)).astype(np.float32), np.zeros((4, 1, 3, 2), np.float32)
    fields: dict[str, Any] = {
        "kernel_shape": (3, 2),
        "strides": strides,
        "dilations": (1, 2),
        "pads": (1, 0, 2, 1),
    }
    dy = rng.standard_normal(output_of(Conv(**fields), x, w)).astype(np.float32)
    (products, _) = last_convolution_weight.KERNELS
    assert compare(products, Sample(ConvWeightGrad(**fields), (x, dy)), run_kernel, reference, "float32")


def test_positions_share_rows() -> None:
    layouts = [batch_normalization.Layout.of(ChannelsLast(BatchNormalizationGrad(), 4), s) for s in SHAPES_OF_IMAGES]
    assert [(one.repeat, one.shape, one.count) for one in layouts] == [
        (60, (2, 960), 120),  # at most 1024 elements
        (1, (7, 1000), 7),
        (1, (1009, 2), 1009),  # a prime number
        (1024, (0, 1024), 0),
    ]


SHAPES_OF_IMAGES = ((2, 6, 10, 16), (7, 1, 1, 1000), (1009, 1, 1, 2), (0, 3, 3, 1))
