"""Products and recurrent layers on a GPU: what the CPU cannot show, clusters and overlapping launches above all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, Value, as_tuple, numpy_dtype
from aicore.kernels import Kernel, KernelTable
from aicore.ops.activation import Gelu, Relu
from aicore.ops.fused_linear import GemmAct, MatMulAddAct
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.recurrent import GRU, LSTM, RNN
from aicore.ops.recurrent_grad import RecurrentGrad
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.calls import calls_of, picked
from aicore_cuda_ge.device import CudaDevice
from aicore_cuda_ge.kernels import products, recurrent, recurrent_grad

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> Any:
    return CudaDevice(0)


def run(
    device: Any,
    kernel: Kernel,
    op: Op,
    operands: Sequence[Array | None],
    times: int = 3,
    constant: bool = True,
    **settings: Any,
) -> Any:
    """The results of the last of several replays. constant: all operands but the first are."""
    given = [None if a is None else type_of(a) for a in operands]
    outputs = as_tuple(op.infer(*(None if t is None else Value("x", t) for t in given)))
    arrays = [None if a is None else device.upload(a) for a in operands]
    constants = [None, *(array if constant else None for array in arrays[1:])]
    assert kernel.bind is not None
    calls: Any = calls_of(kernel.bind(op, given, constants, **settings))
    results = [device.empty(t) for t in outputs]
    pointers = [0 if a is None else a.address for a in (*arrays, *results)]
    workspace = device.allocate(kernel.workspace(op, *given, **settings) if kernel.workspace else 0)
    if kernel.workspace is not None:
        pointers.append(workspace.address)
    launches = native.LaunchList(device.index)
    for call in calls:
        chosen = [at or 0 for at in picked(call, [*pointers, *(e.address for e in call.extra)])]
        launches.add_kernel(call.kernel, chosen, call.params, kernel.name)
    launches.capture()
    for _ in range(times):
        launches.run([], [])
    return [device.download(result) for result in results]


def exact(op: Op, operands: Sequence[Array | None]) -> tuple[Array, ...]:
    wide = [None if a is None else a.astype(np.float64) if a.dtype == np.float32 else a for a in operands]
    return ReferenceEvaluator(KernelTable(all_kernels()))(op, *wide)


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def as_tf32(array: Array) -> Array:
    """Rounded to 11 significant bits, which is what factors of kernels in tf32 are."""
    bits = array.view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def problems() -> Iterator[tuple[Op, tuple[Array, ...]]]:
    for trans_a, trans_b in ((0, 0), (0, 1), (1, 0), (1, 1)):
        for rows, columns, inner in ((260, 516, 300), (131, 257, 1031), (1, 1000, 2048), (7, 130, 515), (200, 3, 700)):
            a = normal(*((inner, rows) if trans_a else (rows, inner)))
            b = normal(*((columns, inner) if trans_b else (inner, columns)))
            yield GemmAct(Gemm(transA=trans_a, transB=trans_b), Gelu()), (a, b, normal(columns))
    yield MatMul(), (normal(6, 2, 77, 64), normal(2, 64, 77))
    yield MatMulAddAct(Relu()), (normal(3, 40, 64), normal(64, 96), normal(96))


@pytest.mark.parametrize(
    ("op", "operands"),
    list(problems()),
    ids=lambda x: type(x).__name__ if isinstance(x, Op) else str([a.shape for a in x]),
)
def test_products(op: Op, operands: tuple[Array, ...], device: Any) -> None:
    """Every kernel with each of its settings."""
    a, b, *rest = operands
    wanted = {None: exact(op, operands)[0], "tf32": exact(op, (as_tf32(a), as_tf32(b), *rest))[0]}
    inner = operands[0].shape[0 if getattr(getattr(op, "gemm", None), "transA", 0) else -1]
    for kernel in products.KERNELS:
        if kernel.op is not type(op) or kernel.reason_against(op, *map(type_of, operands)) is not None:
            continue
        for settings in kernel.settings:
            (found,) = run(device, kernel, op, operands, **settings)
            message = f"{kernel.name} {settings}"
            # cuBLASLt cuts factors off where aicore rounds them: twice 2**-11 of each, added up at random.
            loose = 4 * 2.0**-10 * inner**0.5 if kernel.variant == "cublas_tf32" else 0.0
            atol = 2e-6 * inner + loose
            np.testing.assert_allclose(found, wanted[kernel.precision], rtol=1e-5, atol=atol, err_msg=message)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("a", "b"),
    [((1021, 516), (516, 260)), ((2048, 1024), (1024, 1024)), ((3, 70, 64), (3, 64, 96)), ((2, 33, 20), (20, 256))],
    ids=str,
)
def test_products_whose_a_is_packed_first(a: tuple[int, ...], b: tuple[int, ...], constant: bool, device: Any) -> None:
    """By a launch of its own, into rows that are filled up to fours."""
    operands = normal(*a), normal(*b)
    tiled = next(k for k in products.KERNELS if k.op is MatMul and k.variant == "tiled")
    (plan,) = (str(s["plan"]) for s in tiled.settings if str(s["plan"]).endswith("packed"))
    assert tiled.bind is not None
    packs = calls_of(tiled.bind(MatMul(), [type_of(x) for x in operands], [None, None], plan=plan))
    assert len(packs) == 2
    (found,) = run(device, tiled, MatMul(), operands, constant=constant, plan=plan)
    np.testing.assert_allclose(found, exact(MatMul(), operands)[0], rtol=1e-5, atol=2e-6 * a[-1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("op", "operands"),
    list(problems()),
    ids=lambda x: type(x).__name__ if isinstance(x, Op) else str([a.shape for a in x]),
)
def test_narrow_products(op: Op, operands: tuple[Array, ...], dtype: str, device: Any) -> None:
    narrow = tuple(a.astype(numpy_dtype(dtype)) for a in operands)
    (wanted,) = ReferenceEvaluator(KernelTable(all_kernels()))(op, *(a.astype(np.float64) for a in narrow))
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    inner = operands[0].shape[0 if getattr(getattr(op, "gemm", None), "transA", 0) else -1]
    for kernel in products.KERNELS:
        if kernel.op is not type(op) or kernel.reason_against(op, *map(type_of, narrow)) is not None:
            continue
        for settings in kernel.settings:
            (found,) = run(device, kernel, op, narrow, **settings)
            message = f"{kernel.name} {settings}"
            got = found.astype(np.float64)
            np.testing.assert_allclose(got, wanted, rtol=2 * unit, atol=2e-6 * inner, err_msg=message)


def test_splits_give_the_same_bits_every_time(device: Any) -> None:
    kernel = next(k for k in products.KERNELS if k.op is MatMul and k.variant == "tiled")
    operands = normal(64, 4096), normal(4096, 64)
    first, *others = (run(device, kernel, MatMul(), operands, plan="32x64x4/8")[0] for _ in range(10))
    assert all(first.tobytes() == other.tobytes() for other in others)


@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize(
    "op", [RNN(), LSTM(direction="bidirectional"), GRU(), GRU(linear_before_reset=1)], ids=lambda op: str(op)[:24]
)
def test_recurrent(op: Any, batch: int, device: Any) -> None:
    """As many steps as would show a step that begins before the one before has ended."""
    hidden, rng = 256, np.random.default_rng(batch)
    rows = op.gates * hidden
    shapes = ((64, batch, 128), (op.directions, rows, 128), (op.directions, rows, hidden), (op.directions, 2 * rows))
    operands = [(rng.standard_normal(shape) / 16).astype(np.float32) for shape in shapes]
    settled = op.resolve(*(Value("x", type_of(a)) for a in operands))
    kept = replace(settled, residuals=True)
    wanted = exact(kept, operands)
    for kernel in (k for k in recurrent.KERNELS if k.op is type(op)):
        if kernel.reason_against(settled, *map(type_of, operands)) is not None:
            continue  # clusters, where there are none
        for layer, constant in ((settled, True), (kept, False)):
            results = run(device, kernel, layer, operands, constant=constant)
            for found, expected in zip(results, wanted, strict=layer is kept):
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5, err_msg=kernel.name)


@pytest.mark.parametrize(("batch", "hidden"), [(1, 256), (64, 256), (33, 70), (200, 256)])
@pytest.mark.parametrize(
    "layer",
    [RNN(), LSTM(layout=1), LSTM(direction="bidirectional"), GRU(), GRU(linear_before_reset=1)],
    ids=lambda layer: f"{type(layer).__name__}-{layer.direction}-{layer.layout}",
)
def test_gradient_of_recurrent_layers(layer: Any, batch: int, hidden: int, device: Any) -> None:
    """As many steps as would show one that begins too soon; and the same bits every time."""
    rng, steps, count = np.random.default_rng(batch), 50, layer.directions
    rows = (count, batch, steps) if layer.layout else (count, steps, batch)
    y = (batch, steps, count, hidden) if layer.layout else (steps, count, batch, hidden)
    shapes = [(count, layer.gates * hidden, hidden), (*rows, layer.gates * hidden), (*rows, hidden), (*rows, hidden)]
    r, gates, states, last = ((rng.standard_normal(shape)).astype(np.float32) for shape in shapes)
    operands = [r / 16, gates, states, last, None, None, rng.standard_normal(y).astype(np.float32)]
    op = RecurrentGrad(layer.checked())
    wanted = exact(op, operands)
    for kernel in recurrent_grad.KERNELS:
        if kernel.reason_against(op, *(None if a is None else type_of(a) for a in operands)) is not None:
            continue  # clusters, where there are none
        results, again = (run(device, kernel, op, operands, constant=constant) for constant in (True, False))
        for found, repeated, expected in zip(results, again, wanted, strict=True):
            scale = float(np.abs(expected).max(initial=1.0))
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * scale, err_msg=kernel.name)
            assert found.tobytes() == repeated.tobytes(), kernel.name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("features", [128, 37])
@pytest.mark.parametrize(
    "op", [RNN(), LSTM(direction="bidirectional"), GRU(), GRU(linear_before_reset=1)], ids=lambda op: str(op)[:24]
)
def test_recurrent_in_16_bits(op: Any, features: int, dtype: str, device: Any) -> None:
    """Rows that are copied as they are, and such that are packed; rounded once, for states stay float32."""
    hidden, rng = 256, np.random.default_rng(features)
    rows = op.gates * hidden
    shapes = (
        (64, 9, features),
        (op.directions, rows, features),
        (op.directions, rows, hidden),
        (op.directions, 2 * rows),
    )
    operands = [(rng.standard_normal(shape) / 16).astype(numpy_dtype(dtype)) for shape in shapes]
    settled = op.resolve(*(Value("x", type_of(a)) for a in operands))
    kernel = next(k for k in recurrent.KERNELS if k.op is type(op) and k.variant == "steps")
    wide = [a.astype(np.float64) for a in operands]
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    for constant in (True, False):
        results = run(device, kernel, settled, operands, constant=constant)
        for found, wanted in zip(results, exact(settled, wide), strict=True):
            np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2 * unit, atol=2e-5)
