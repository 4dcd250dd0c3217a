"""Fast convolutions, pools and products give the reference's numbers, from the planned memory alone."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicore.ir import Builder, Op, TensorType, symbol
from aicore.kernels import Kernel
from aicore.ops.activation import Clip, HardSigmoid, HardSwish, LeakyRelu, Relu, Selu, Sigmoid, Swish, Tanh
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct, GemmAct, MatMulAdd, MatMulAddAct
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from aicore.runtime import using_threads
from aicore_cpu_numpy.fast import _epilogue, _parallel, convolution, convolution_transpose, linear, pooling, products

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

MODULES = (convolution, convolution_transpose, linear, pooling, products)
KERNELS = {f"{k.op.__name__}-{k.variant}": k for module in MODULES for k in module.KERNELS}
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}
IN_PLACE = (Relu(), Clip(-0.5, 0.75), Clip(max=0.1), LeakyRelu(1.5), HardSigmoid(), HardSwish(), Sigmoid(), Swish(2.0))


def widened(arrays: Any) -> list[Array | None]:
    """The operands in float64, in which the reference is computed."""
    return [a.astype(np.float64) if a is not None and a.dtype.kind == "f" else a for a in arrays]


def compare(got: Any, wanted: Any, dtype: str) -> None:
    assert not isinstance(got, str), got
    for found, expected in zip(got, wanted, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Samples are small; with several threads they are shared all the same, in blocks of one row."""
    if request.param > 1:
        monkeypatch.setattr(_parallel, "PARALLEL", -1.0)
        monkeypatch.setattr(products, "BLOCK_BYTES", 1)
        monkeypatch.setattr(products, "LEAST_ROWS", 1)
    with using_threads(request.param):
        yield request.param


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("threads")
def test_samples(name: str, dtype: str, run_kernel: Run, reference: Run) -> None:
    kernel, compared = KERNELS[name], 0
    for sample in kernel.op.samples(np.random.default_rng(1)):
        arrays = [a.astype(dtype) if a is not None and a.dtype.kind == "f" else a for a in sample.inputs]
        got = run_kernel(kernel, sample.op, arrays)
        if isinstance(got, str):
            continue
        compare(got, reference(sample.op, widened(arrays)), dtype)
        compared += 1
    assert compared >= 1, "no sample reaches the kernel"


@st.composite
def windows(draw: Any, largest: int = 9) -> dict[str, Any]:
    """Fields of a sliding window, and the spatial dims that it is to move over."""
    count = draw(st.integers(1, 3))
    each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(count))  # noqa: E731
    return {
        "spatial": each(1, largest if count < 3 else 5),
        "kernel": each(1, 4 if count < 3 else 2),
        "strides": each(1, 3),
        "dilations": each(1, 2),
        "pads": each(0, 3) + each(0, 3),
    }


def window_fits(window: dict[str, Any]) -> bool:
    count = len(window["kernel"])
    extents = [(k - 1) * d + 1 for k, d in zip(window["kernel"], window["dilations"], strict=True)]
    pads = window["pads"]
    return all(n + pads[i] + pads[count + i] >= extents[i] for i, n in enumerate(window["spatial"]))


@settings(max_examples=150, deadline=None)
@given(
    window=windows(),
    images=st.integers(1, 3),
    group=st.integers(1, 3),
    channels=st.integers(1, 3),
    maps=st.integers(1, 3),
    bias=st.booleans(),
    limit=st.sampled_from([None, 1, 200, 1000]),
)
def test_convolutions(
    run_kernel: Run,
    reference: Run,
    window: Any,
    images: Any,
    group: Any,
    channels: Any,
    maps: Any,
    bias: Any,
    limit: Any,
) -> None:
    if not window_fits(window):
        return
    fields = {name: window[name] for name in ("strides", "dilations", "pads")}
    op = Conv(group=group, **fields)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((images, group * channels, *window["spatial"]))
    w = rng.standard_normal((group * maps, channels, *window["kernel"]))
    operands = [x, w, *([rng.standard_normal(group * maps)] if bias else [])]
    with pytest.MonkeyPatch.context() as patch:
        convolution.blocks.cache_clear()
        if limit is not None:  # small blocks: rows of a group, groups of an image, several images
            patch.setattr(convolution, "COLUMNS_BYTES", limit)
            patch.setattr(convolution, "GROUPED_COLUMNS_BYTES", limit)
        got = run_kernel(KERNELS["Conv-im2col"], op, operands)
        convolution.blocks.cache_clear()
    wanted = reference(op, operands)
    compare(got, wanted, "float64")
    plain = run_kernel(KERNELS["Conv-gemm"], op, operands)
    if not isinstance(plain, str):
        compare(plain, wanted, "float64")


@settings(max_examples=100, deadline=None)
@given(
    window=windows(largest=5),
    images=st.integers(1, 2),
    group=st.integers(1, 2),
    channels=st.integers(1, 3),
    maps=st.integers(1, 3),
    extra=st.integers(0, 2),
    limit=st.sampled_from([None, 1, 300]),
)
def test_transposed_convolutions(
    run_kernel: Run,
    reference: Run,
    window: Any,
    images: Any,
    group: Any,
    channels: Any,
    maps: Any,
    extra: Any,
    limit: Any,
) -> None:
    count = len(window["kernel"])
    sizes = zip(window["spatial"], window["kernel"], window["strides"], window["dilations"], strict=True)
    reach = [(n - 1) * s + (k - 1) * d + 1 for n, k, s, d in sizes]
    pads = tuple(min(pad, (reach[i % count] - 1) // 2) for i, pad in enumerate(window["pads"]))
    limits = zip(window["strides"], window["dilations"], strict=True)
    output_padding = tuple(min(extra, max(stride, dilation) - 1) for stride, dilation in limits)
    fields = {name: window[name] for name in ("strides", "dilations")}
    op = ConvTranspose(group=group, pads=pads, output_padding=output_padding, **fields)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((images, group * channels, *window["spatial"]))
    w = rng.standard_normal((group * channels, maps, *window["kernel"]))
    operands = [x, w, rng.standard_normal(group * maps)]
    with pytest.MonkeyPatch.context() as patch:
        if limit is not None:
            patch.setattr(convolution_transpose, "SHARES_BYTES", limit)
        got = run_kernel(KERNELS["ConvTranspose-gemm_scatter"], op, operands)
    compare(got, reference(op, operands), "float64")


@settings(max_examples=150, deadline=None)
@given(
    window=windows(),
    images=st.integers(1, 3),
    channels=st.integers(1, 3),
    ceil_mode=st.integers(0, 1),
    count_include_pad=st.integers(0, 1),
    limit=st.sampled_from([1, 500, 1 << 20]),
)
def test_pools(
    run_kernel: Run,
    reference: Run,
    window: Any,
    images: Any,
    channels: Any,
    ceil_mode: Any,
    count_include_pad: Any,
    limit: Any,
) -> None:
    count = len(window["kernel"])
    extents = [(k - 1) * d + 1 for k, d in zip(window["kernel"], window["dilations"], strict=True)]
    window["pads"] = tuple(min(pad, extents[i % count] - 1) for i, pad in enumerate(window["pads"]))
    if not window_fits(window):
        return
    fields = {name: window[name] for name in ("strides", "dilations", "pads")}
    common = {"kernel_shape": window["kernel"], "ceil_mode": ceil_mode, **fields}
    x = np.random.default_rng(0).standard_normal((images, channels, *window["spatial"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooling, "BLOCK_BYTES", limit)
        for op in (MaxPool(**common), AveragePool(count_include_pad=count_include_pad, **common)):
            got = run_kernel(KERNELS[f"{type(op).__name__}-strided"], op, [x])
            compare(got, reference(op, [x]), "float64")


@pytest.mark.parametrize("activation", [*IN_PLACE, Tanh()], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_activations_in_place(activation: Op, dtype: str, run_kernel: Run, reference: Run) -> None:
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e4, -1e4, 1, -1, 0.3], dtype)
    x = np.concatenate([special, np.random.default_rng(0).uniform(-5, 5, 90).astype(dtype)]).reshape(1, 1, 10, 10)
    op, w = ConvAct(Conv(), activation), np.ones((1, 1, 1, 1), dtype)  # type: ignore[arg-type]
    compare(run_kernel(KERNELS["ConvAct-gemm"], op, [x, w]), reference(op, widened([x, w])), dtype)


@pytest.mark.parametrize("columns", [1, 7, _epilogue.CHUNK // 2, _epilogue.CHUNK + 1])
def test_the_epilogue_covers_every_chunk(columns: int) -> None:
    rng = np.random.default_rng(0)
    y, residual, bias = (
        rng.standard_normal((2, 5, columns)),
        rng.standard_normal((2, 5, columns)),
        rng.standard_normal(5),
    )
    expected = y + bias[:, None] + residual
    expected = np.where(expected < 0, 0.2 * expected, expected)
    activation = LeakyRelu(0.2)
    workspace = np.empty(_epilogue.scratch_bytes(activation, 5, columns, "float64"), np.uint8)
    _epilogue.finish(y, bias, residual, activation, workspace)
    np.testing.assert_allclose(y, expected)


LARGE: dict[str, tuple[Op, tuple[tuple[int, ...], ...]]] = {
    "Conv-gemm": (Conv(), ((1, 64, 56, 56), (64, 64, 1, 1), (64,))),
    "Conv-im2col": (Conv(pads=(1, 1, 1, 1)), ((2, 32, 56, 56), (64, 32, 3, 3), (64,))),
    "ConvAct-im2col": (ConvAct(Conv(group=64), HardSwish()), ((1, 64, 56, 56), (64, 1, 3, 3), (64,))),
    "ConvAdd-gemm": (ConvAdd(Conv()), ((1, 64, 56, 56), (64, 64, 1, 1), (1, 64, 56, 56))),
    "ConvAddAct-im2col": (ConvAddAct(Conv(strides=(2, 2)), Relu()), ((1, 64, 57, 57), (64, 64, 3, 3), (1, 64, 28, 28))),
    "ConvTranspose-gemm_scatter": (ConvTranspose(strides=(2, 2)), ((1, 32, 56, 56), (32, 16, 2, 2), (16,))),
    "Gemm-blas": (Gemm(alpha=0.5, beta=0.5, transB=1), ((256, 512), (256, 512), (256, 256))),
    "GemmAct-blas": (GemmAct(Gemm(), Swish()), ((256, 512), (512, 256), (256,))),
    "MatMulAdd-blas": (MatMulAdd(), ((4, 64, 512), (512, 256), (256,))),
    "MatMulAddAct-blas": (MatMulAddAct(HardSwish()), ((4, 64, 512), (4, 512, 256), (256,))),
    "MaxPool-strided": (MaxPool(kernel_shape=(3, 3), strides=(2, 2)), ((1, 64, 112, 112),)),
    "AveragePool-strided": (AveragePool(kernel_shape=(3, 3), pads=(1, 1, 1, 1)), ((1, 64, 112, 112),)),
    "GlobalAveragePool-sum": (GlobalAveragePool(), ((1, 64, 112, 112),)),
    "GlobalMaxPool-max": (GlobalMaxPool(), ((1, 64, 112, 112),)),
}


@pytest.mark.parametrize("name", LARGE)
def test_temporaries_come_from_the_workspace(name: str) -> None:
    op, shapes = LARGE[name]
    kernel = KERNELS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    builder = Builder()
    result = builder.apply(op, *(builder.input(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)))
    op = builder.nodes[-1].op
    types = [TensorType("float32", shape) for shape in shapes]
    options: dict[str, Any] = {"out": np.empty(result.type.static_shape, np.float32)}
    if kernel.workspace is not None:
        options["workspace"] = np.empty(kernel.workspace(op, *types), np.uint8)
        assert options["workspace"].nbytes <= 8 << 20
    kernel.function(op, *arrays, **options)  # fills the caches
    tracemalloc.start()
    kernel.function(op, *arrays, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 << 10  # NumPy's iterators take up to three buffers of 8192 elements; a result has hundreds of KiB


def reason(name: str, op: Op, *types: TensorType | None) -> str | None:
    return KERNELS[name].reason_against(op, *types)


def test_reasons() -> None:
    x, w = TensorType("float32", (1, 4, 8, 8)), TensorType("float32", (4, 4, 1, 1))
    moving = TensorType("float32", (symbol("N"), 4, 8, 8))
    square = TensorType("float32", (4, 4, 3, 3))
    unknown_activation = ConvAct(Conv(), Selu())
    assert reason("Conv-gemm", Conv(), x, w) is None
    assert "1x1" in str(reason("Conv-gemm", Conv(), x, square))
    assert "1x1" in str(reason("Conv-gemm", Conv(strides=(2, 2)), x, w))
    assert "1x1" in str(reason("Conv-gemm", Conv(pads=(1, 0, 0, 0)), x, w))
    assert "known in numbers" in str(reason("Conv-im2col", Conv(), moving, w))
    assert "known in numbers" in str(reason("ConvTranspose-gemm_scatter", ConvTranspose(), moving, w))
    assert "known in numbers" in str(reason("MaxPool-strided", MaxPool(kernel_shape=(2, 2)), moving))
    assert "known in numbers" in str(reason("GlobalMaxPool-max", GlobalMaxPool(), moving))
    assert "indices" in str(reason("MaxPool-strided", MaxPool(kernel_shape=(2, 2), indices=True), x))
    assert "does not take float16" in str(reason("Conv-im2col", Conv(), TensorType("float16", (1, 4, 8, 8)), w))
    assert "no in-place form of Selu" in str(reason("ConvAct-gemm", unknown_activation, x, w))
    assert "no in-place form of Selu" in str(reason("GemmAct-blas", GemmAct(Gemm(), Selu()), *_matrices()))
    assert "no in-place form" in str(reason("MatMulAddAct-blas", MatMulAddAct(Selu()), *_matrices(), _matrices()[0]))
    narrow = TensorType("float32", (1, 4, 1, 8))
    assert "of the output's shape only" in str(reason("ConvAdd-gemm", ConvAdd(Conv()), x, w, narrow))
    wide = TensorType("float32", (2, 4, 4))
    assert "broadcasts to the product" in str(reason("MatMulAdd-blas", MatMulAdd(), *_matrices(), wide))
    other = TensorType("float32", (3,))
    assert "broadcasts to the product" in str(reason("MatMulAdd-blas", MatMulAdd(), *_matrices(), other))


def _matrices() -> tuple[TensorType, TensorType]:
    return TensorType("float32", (4, 4)), TensorType("float32", (4, 4))


def test_an_activation_without_a_table_entry_is_refused_before_it_runs() -> None:
    assert _epilogue.reason_against(Relu()) is None
    assert "Selu" in str(_epilogue.reason_against(Selu()))


@pytest.mark.parametrize(
    ("op", "w", "best"),
    [(Conv(), (64, 64, 1, 1), "gemm"), (Conv(pads=(1, 1, 1, 1)), (64, 64, 3, 3), "im2col")],
)
def test_estimates_choose(op: Conv, w: tuple[int, ...], best: str) -> None:
    types = TensorType("float32", (1, 64, 28, 28)), TensorType("float32", w)
    able: list[Kernel] = [k for k in convolution.KERNELS if k.op is Conv and k.reason_against(op, *types) is None]
    assert min(able, key=lambda k: k.estimate(op, *types) if k.estimate else 0).variant == best


def test_estimates_are_positive_for_empty_tensors() -> None:
    x, w = TensorType("float32", (0, 3, 5, 5)), TensorType("float32", (0, 3, 3, 3))
    estimate = KERNELS["Conv-im2col"].estimate
    assert estimate is not None
    assert estimate(Conv(), x, w) > 0


ROWS = {kernel.op: kernel for kernel in products.KERNELS if kernel.variant == "rows"}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("rows", "columns"), [(7, 3), (2, 11), (1, 5), (0, 4), (4, 0)])
@pytest.mark.parametrize("activation", [Relu(), HardSwish()], ids=lambda op: type(op).__name__)
def test_products_by_rows_or_columns(rows: int, columns: int, activation: Any, run_kernel: Run, reference: Run) -> None:
    rng = np.random.default_rng(2)
    a, b, c = rng.standard_normal((2, rows, 6)), rng.standard_normal((6, columns)), rng.standard_normal((1, columns))
    op = MatMulAddAct(activation)
    compare(run_kernel(ROWS[MatMulAddAct], op, [a, b, c]), reference(op, [a, b, c]), "float64")
    gemm = GemmAct(Gemm(transB=1), activation)
    arrays = [a[0], np.ascontiguousarray(b.T), c[0]]
    compare(run_kernel(ROWS[GemmAct], gemm, arrays), reference(gemm, arrays), "float64")


def test_a_constant_bias_is_repeated_once(reference: Run, threads: int) -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((30, 6), (6, 4), (4,))]
    types = [TensorType("float32", a.shape) for a in arrays]
    bound = products._bind(MatMulAdd(), types, [None, None, arrays[2]])
    assert bound.bias is not None
    assert bound.bias.tile is not None
    out = np.full((30, 4), np.nan, np.float32)
    bound(*arrays, out=out, workspace=np.empty(products._workspace(MatMulAdd(), *types), np.uint8))
    compare([out], reference(MatMulAdd(), widened(arrays)), "float32")


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("left", "right"), [((3, 2, 4), (3, 4, 5)), ((2, 1, 2, 4), (5, 4, 3)), ((4, 6), (7, 6, 2)), ((1, 2, 2), (1, 2, 2))]
)
def test_batches(left: tuple[int, ...], right: tuple[int, ...], run_kernel: Run, reference: Run) -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(left), rng.standard_normal(right)]
    kernel = next(k for k in products.KERNELS if k.variant == "batch")
    compare(run_kernel(kernel, MatMul(), arrays), reference(MatMul(), arrays), "float64")


REFUSED = [
    (Gemm(transA=1), [(4, 3), (4, 5)], "nor transpose the first factor"),
    (Gemm(alpha=2.0), [(3, 4), (4, 5)], "does not scale"),
    (Gemm(beta=2.0), [(3, 4), (4, 5), (5,)], "does not scale"),
    (Gemm(), [(3, 4), (4, 5), (3, 1)], "adds one number for each of 5 columns"),
    (MatMulAdd(), [(3, 4), (4, 5), (1, 1, 5)], "makes no axes"),
    (MatMul(), [(3, 4), (2, 4, 5)], "one matrix for all rows"),
    (MatMulAddAct(Selu()), [(3, 4), (4, 5), (5,)], "no form of Selu"),
]


@pytest.mark.parametrize(("op", "shapes", "reason"), REFUSED, ids=str)
def test_what_products_leave_to_others(op: Op, shapes: list[tuple[int, ...]], reason: str) -> None:
    found = ROWS[type(op)].reason_against(op, *(TensorType("float32", shape) for shape in shapes))
    assert found is not None
    assert reason in found


def test_products_of_open_sizes_wait() -> None:
    for kernel in products.KERNELS:
        found = kernel.reason_against(MatMul(), TensorType("float32", (symbol("N"), 4)), TensorType("float32", (4, 5)))
        assert found == "needs shapes that are known in numbers"
