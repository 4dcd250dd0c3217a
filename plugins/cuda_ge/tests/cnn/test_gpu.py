"""Convolutions and pools on a GPU: clusters, asynchronous copies, overlapping launches, and half precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from aicore.errors import ExecutionError
from aicore.ir import Op, Value, as_tuple, numpy_dtype
from aicore.kernels import Kernel
from aicore.ops.activation import Gelu, Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAddAct
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import AveragePool, MaxPool
from aicore.runtime import type_of
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.calls import calls_of, picked
from aicore_cuda_ge.device import CudaDevice
from aicore_cuda_ge.kernels import _dnn as dnn
from aicore_cuda_ge.kernels import convolution, pooling

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]
pytestmark = pytest.mark.gpu

SHAPES: dict[str, tuple[Conv, tuple[int, ...], tuple[int, ...]]] = {
    "1x1": (Conv(), (1, 14, 14, 1024), (256, 1024, 1, 1)),
    "3x3": (Conv(pads=(1, 1, 1, 1)), (1, 28, 28, 128), (128, 128, 3, 3)),
    "3x3, strided, batch": (Conv(pads=(1, 1, 1, 1), strides=(2, 2)), (5, 15, 14, 260), (100, 260, 3, 3)),
    "groups": (Conv(group=4, pads=(2, 2, 2, 2), dilations=(2, 2)), (2, 13, 13, 96), (72, 24, 3, 3)),
    "picture": (Conv(pads=(3, 3, 3, 3), strides=(2, 2)), (2, 64, 61, 3), (64, 3, 7, 7)),
    "odd channels": (Conv(pads=(1, 1, 1, 1)), (1, 17, 19, 37), (35, 37, 3, 3)),
    "depthwise": (Conv(group=96, pads=(1, 1, 1, 1)), (2, 29, 31, 96), (96, 1, 3, 3)),
}


@pytest.fixture(scope="module")
def device() -> Any:
    return CudaDevice(0)


def run(
    device: Any, kernel: Kernel, op: Op, operands: Sequence[Array], fixed: bool, times: int = 3, **settings: Any
) -> list[Array]:
    """The results of the last of several replays. fixed: all operands but the first are constants."""
    types = [type_of(a) for a in operands]
    arrays = [device.upload(a) for a in operands]
    outputs = as_tuple(op.infer(*(Value("x", t) for t in types)))
    results = [device.upload(np.full(t.static_shape, 77).astype(numpy_dtype(t.dtype))) for t in outputs]
    assert kernel.bind is not None
    constants = [None, *(array if fixed else None for array in arrays[1:])]
    calls = calls_of(kernel.bind(op, types, constants, **settings))
    pointers = [array.address for array in (*arrays, *results)]
    workspace = device.allocate(kernel.workspace(op, *types, **settings) if kernel.workspace else 0)
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


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def as_tf32(array: Array) -> Array:
    """Rounded to 11 significant bits, which is what factors of kernels in tf32 are."""
    bits = array.view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def settled(op: Op, operands: Sequence[Array]) -> Op:
    return op.resolve(*(Value("x", type_of(a)) for a in operands))


@pytest.mark.parametrize("note", SHAPES)
@pytest.mark.parametrize("fixed", [True, False], ids=["constant weights", "computed weights"])
def test_every_setting(note: str, fixed: bool, device: Any, reference: Run) -> None:
    conv, x_shape, w_shape = SHAPES[note]
    x, w, b = normal(*x_shape), normal(*w_shape), normal(w_shape[0])
    residual = normal(*reference(ChannelsLast(conv), (x, w))[0].shape)
    operands = (x, w, residual, b)
    op = settled(ChannelsLast(ConvAddAct(conv, Gelu())), operands)
    wanted = {
        None: reference(op, operands)[0],
        "tf32": reference(op, (as_tf32(x), as_tf32(w), residual, b))[0],
    }
    depth, compared = int(np.prod(w_shape[1:])), 0
    for kernel in convolution.KERNELS:
        usable = kernel.wraps is ConvAddAct and kernel.reason_against(op, *map(type_of, operands)) is None
        for settings in kernel.settings if usable else ():
            message = f"{kernel.name} {settings}"
            try:
                (found,) = run(device, kernel, op, operands, fixed, **settings)
            except ExecutionError as error:
                # Of small shapes, cuDNN is asked only now whether it has an algorithm for them.
                if kernel.variant in ("cudnn_fft", "cudnn_winograd") and "cuDNN cannot do" in str(error):
                    continue
                raise
            # cuDNN may cut off what aicore rounds: twice 2**-11 of each factor, added up at random.
            loose = 4 * 2.0**-10 * depth**0.5 if kernel.variant == "cudnn_tf32" else 0.0
            atol = 1e-6 * depth + loose
            np.testing.assert_allclose(found, wanted[kernel.precision], rtol=1e-5, atol=atol, err_msg=message)
            compared += 1
    assert compared > 1


@pytest.mark.skipif(not dnn.library_path(), reason=dnn.MISSING)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("note", SHAPES)
def test_narrow_numbers_by_cudnn(note: str, dtype: str, device: Any, reference: Run) -> None:
    """The library adds bias and residual before it rounds; Relu changes nothing that rounding does."""
    conv, x_shape, w_shape = SHAPES[note]
    x, w, b = (normal(*shape).astype(numpy_dtype(dtype)) for shape in (x_shape, w_shape, w_shape[:1]))
    residual = normal(*reference(ChannelsLast(conv), (x, w))[0].shape).astype(numpy_dtype(dtype))
    op = settled(ChannelsLast(ConvAddAct(conv, Relu())), (x, w, residual, b))
    (wanted,) = reference(op, tuple(a.astype(np.float64) for a in (x, w, residual, b)))
    unit, depth = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype], int(np.prod(w_shape[1:]))
    kernel = next(k for k in convolution.KERNELS if k.variant == "cudnn" and k.wraps is ConvAddAct)
    (found,) = run(device, kernel, op, (x, w, residual, b), True, **kernel.settings[0])
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2 * unit, atol=1e-6 * depth)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("note", SHAPES)
@pytest.mark.parametrize("fixed", [True, False], ids=["constant weights", "computed weights"])
def test_every_setting_on_tensor_cores(note: str, fixed: bool, dtype: str, device: Any, reference: Run) -> None:
    conv, x_shape, w_shape = SHAPES[note]
    x, w, b = (normal(*shape).astype(numpy_dtype(dtype)) for shape in (x_shape, w_shape, w_shape[:1]))
    kernel = next(k for k in convolution.KERNELS if k.variant == "tensor" and k.wraps is ConvAct)
    op = settled(ChannelsLast(ConvAct(conv, Gelu())), (x, w, b))
    (wanted,) = reference(op, tuple(a.astype(np.float64) for a in (x, w, b)))
    unit, depth = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype], int(np.prod(w_shape[1:]))
    for settings in kernel.settings:
        (found,) = run(device, kernel, op, (x, w, b), fixed, **settings)
        got = found.astype(np.float64)
        np.testing.assert_allclose(got, wanted, rtol=2 * unit, atol=1e-6 * depth, err_msg=str(settings))


def test_splits_give_the_same_bits_every_time(device: Any) -> None:
    kernel = next(k for k in convolution.KERNELS if k.variant == "implicit" and k.wraps is Conv)
    operands = normal(1, 7, 7, 512), normal(512, 512, 3, 3)
    op = settled(ChannelsLast(Conv(pads=(1, 1, 1, 1))), operands)
    first, *others = (run(device, kernel, op, operands, True, tile="28x64x8", split=8)[0] for _ in range(10))
    assert all(first.tobytes() == other.tobytes() for other in others)


@pytest.mark.parametrize("kernel", convolution.KERNELS + pooling.KERNELS, ids=lambda k: f"{k.op.__name__}-{k.name}")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_samples(kernel: Kernel, dtype: str, device: Any, reference: Run) -> None:
    """Rounded once at the end, as the reference does it."""
    if kernel.dtypes is not None and dtype not in kernel.dtypes:
        assert kernel.variant != "direct", "direct kernels take every floating type"
        return
    tolerance = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    if kernel.precision == "tf32":
        tolerance = 2e-2  # of sums of dozens of terms near 1, each off by 2^-10
    for sample in kernel.op.samples(np.random.default_rng(3)):
        if kernel.wraps is not None and type(sample.op.inner) is not kernel.wraps:  # type: ignore[attr-defined]
            continue
        operands = [a.astype(numpy_dtype(dtype)) for a in sample.inputs if a is not None and a.dtype == np.float32]
        if len(operands) != len(sample.inputs):
            continue
        op = settled(sample.op, operands)
        if kernel.reason_against(op, *map(type_of, operands)) is not None:
            continue
        settings = kernel.settings[0]
        for found, wanted in zip(
            run(device, kernel, op, operands, True, **settings), reference(op, operands), strict=True
        ):
            got, want = found.astype(np.float64), wanted.astype(np.float64)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=sample.note)


@pytest.mark.parametrize("cls", [MaxPool, AveragePool])
def test_rows(cls: type[Any], device: Any, reference: Run) -> None:
    x = normal(2, 57, 58, 64)
    op = settled(ChannelsLast(cls(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))), (x,))
    kernel = next(k for k in pooling.KERNELS if k.variant == "rows" and k.wraps is cls)
    (found,) = run(device, kernel, op, (x,), False)
    np.testing.assert_allclose(found, reference(op, (x,))[0], rtol=1e-5, atol=1e-6)
