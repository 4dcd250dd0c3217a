"""Convolutions and products on tensor cores, run on an emulated device, against the reference in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel
from aicore.ops.activation import Gelu, LeakyRelu, Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAddAct, GemmAct, MatMulAddAct
from aicore.ops.layout import ChannelsLast
from aicore.ops.matmul import Gemm, MatMul
from aicore_cuda_ge.kernels import _tensor_conv, _tensor_product, convolution, products
from aicore_cuda_ge.kernels import _tensor_tiles as tensor
from aicore_cuda_ge.kernels._conv_problem import problem_of
from aicore_cuda_ge.kernels._machine import Machine

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

DTYPES = {"float32": "tf32", "float16": "tensor", "bfloat16": "tensor"}
"""The variant for each element type."""
ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def normal(dtype: str, *shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(numpy_dtype(dtype))


def rounded(array: Array) -> Array:
    """What tensor cores take a factor for, in float64: float32 keeps 11 significant bits."""
    if array.dtype != np.float32:
        return array.astype(np.float64)
    bits = array.view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def check(found: Array, wanted: Array, terms: int, note: str = "") -> None:
    """Within the rounding of sums in float32 of numbers near 1, and of the result."""
    unit = ROUNDOFF[found.dtype.name]
    np.testing.assert_allclose(
        found.astype(np.float64), wanted, rtol=2 * unit, atol=4 * (terms + 16) * 2.0**-24, err_msg=note
    )


def kernel_for(op: type[Op], dtype: str, wraps: type[Op] | None = None) -> Kernel:
    kernels = (*products.KERNELS, *convolution.KERNELS)
    return next(k for k in kernels if (k.op, k.wraps, k.variant) == (op, wraps, DTYPES[dtype]))


CONVOLUTIONS: dict[str, tuple[Conv, tuple[int, ...], tuple[int, ...]]] = {
    "1x1": (Conv(), (1, 7, 7, 40), (72, 40, 1, 1)),
    "3x3": (Conv(pads=(1, 1, 1, 1)), (1, 9, 8, 16), (67, 16, 3, 3)),
    "3x3, strided, uneven padding": (Conv(strides=(2, 1), pads=(0, 2, 1, 1)), (2, 9, 7, 8), (10, 8, 3, 3)),
    "dilated": (Conv(pads=(2, 3, 2, 3), dilations=(2, 3)), (1, 8, 9, 8), (33, 8, 3, 3)),
    "groups": (Conv(group=3, pads=(1, 1, 1, 1)), (1, 6, 6, 24), (30, 8, 3, 3)),
    "groups of three channels": (Conv(group=2, pads=(1, 1, 1, 1)), (1, 6, 6, 6), (14, 3, 3, 3)),
    "picture": (Conv(strides=(2, 2), pads=(3, 3, 3, 3)), (1, 15, 13, 3), (64, 3, 7, 7)),
    "one channel": (Conv(pads=(1, 2, 1, 2), strides=(1, 2)), (2, 7, 9, 1), (6, 1, 3, 5)),
    "many rows": (Conv(pads=(1, 0, 1, 0)), (3, 11, 8, 4), (5, 4, 3, 1)),
}


def settings() -> Iterator[Any]:
    """Tiles are the same for all types but for the instruction, so that two are enough for the narrow ones."""
    for dtype in DTYPES:
        for tile in tensor.TILES if dtype == "float32" else ("128x64", "32x32x4"):
            for split in (1, 3) if dtype == "float32" else (2,):
                yield pytest.param(dtype, tile, split, id=f"{dtype}-{tile}-{split}")


@pytest.mark.parametrize(("dtype", "tile", "split"), [*settings()])
def test_convolution(dtype: str, tile: str, split: int, run_kernel: Run, reference: Run) -> None:
    """Every tile and split over shapes that none divides; with bias, residual and activation."""
    kernel = kernel_for(ChannelsLast, dtype, ConvAddAct)
    for note, (conv, x_shape, w_shape) in CONVOLUTIONS.items():
        x, w, b = normal(dtype, *x_shape), normal(dtype, *w_shape), normal(dtype, w_shape[0])
        (plain,) = reference(ChannelsLast(conv), (x.astype(np.float64), w.astype(np.float64)))
        residual = normal(dtype, *plain.shape)
        op = ChannelsLast(ConvAddAct(conv, LeakyRelu(alpha=0.3)))
        got = run_kernel(kernel, op, (x, w, residual, b), tile=tile, split=split)
        assert not isinstance(got, str), f"{note}: {got}"
        exact = (rounded(x), rounded(w), residual.astype(np.float64), b.astype(np.float64))
        check(got[0], reference(op, exact)[0], int(np.prod(w_shape[1:])), note)


@pytest.mark.parametrize(("dtype", "tile", "split"), [*settings()])
@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_gemm(trans_a: int, trans_b: int, dtype: str, tile: str, split: int, run_kernel: Run, reference: Run) -> None:
    """Operands that are read as they are, and such that are packed; more than one tile each way, with rests."""
    op = GemmAct(Gemm(alpha=0.5, beta=2.0, transA=trans_a, transB=trans_b), Gelu())
    for rows, columns, inner in ((129, 68, 72), (33, 131, 37)):
        a = normal(dtype, *((inner, rows) if trans_a else (rows, inner)))
        b = normal(dtype, *((columns, inner) if trans_b else (inner, columns)))
        c = normal(dtype, columns)
        (found,) = run_kernel(kernel_for(GemmAct, dtype), op, (a, b, c), tile=tile, split=split)
        check(found, reference(op, (rounded(a), rounded(b), c.astype(np.float64)))[0], inner)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("a", "b", "bias"),
    [
        ((3, 5, 20), (3, 20, 8), (8,)),
        ((2, 1, 3, 5, 24), (4, 1, 24, 1), (3, 5, 1)),
        ((2, 3, 5, 20), (20, 8), (2, 3, 5, 8)),
        ((20,), (6, 20, 7), (6, 7)),
        ((6, 5, 20), (20,), (5,)),
        ((5, 1), (1, 7), (7,)),
        ((20,), (20,), (4,)),
    ],
    ids=str,
)
def test_batches(dtype: str, a: Any, b: Any, bias: Any, run_kernel: Run, reference: Run) -> None:
    op = MatMulAddAct(Relu())
    operands = (normal(dtype, *a), normal(dtype, *b), normal(dtype, *bias))
    (found,) = run_kernel(kernel_for(MatMulAddAct, dtype), op, operands, tile="32x32x4", split=2)
    wanted = reference(op, (rounded(operands[0]), rounded(operands[1]), operands[2].astype(np.float64)))[0]
    check(found, wanted, a[-1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", [((0, 8), (8, 4)), ((4, 0), (0, 4)), ((4, 8), (8, 0))], ids=str)
def test_empty(dtype: str, shapes: Any, run_kernel: Run) -> None:
    operands = tuple(normal(dtype, *shape) for shape in shapes)
    (found,) = run_kernel(kernel_for(MatMul, dtype), MatMul(), operands)
    np.testing.assert_array_equal(found, np.zeros((shapes[0][0], shapes[1][1])))


@pytest.mark.parametrize("dtype", DTYPES)
def test_not_a_number_spoils_its_own_row(dtype: str, run_kernel: Run) -> None:
    """And neither rows beside it nor what lies behind the inner axis."""
    a, b = normal(dtype, 40, 37), normal(dtype, 37, 12)
    a[3, 36] = np.nan
    (found,) = run_kernel(kernel_for(MatMul, dtype), MatMul(), (a, b))
    spoilt = np.isnan(found.astype(np.float64)).all(axis=1)
    assert spoilt[3]
    assert not np.isnan(np.delete(found, 3, axis=0).astype(np.float64)).any()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_constant_operands_are_packed_as_others(
    dtype: str, host_kernels: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python packs is what the packing kernel makes."""
    conv = ChannelsLast(Conv(group=2).settled((5, 5), (3, 2), 2))
    w, b = normal(dtype, 6, 3, 3, 2), normal(dtype, 3, 20, 7)
    seen: list[Array] = []

    def keep(made: Array) -> Array:
        seen.append(made)
        return made

    for module in (_tensor_conv, _tensor_product):
        monkeypatch.setattr(module, "on_device", lambda array, pack: keep(pack(np, array)))
    for kernel, op, first, constant in (
        (kernel_for(ChannelsLast, dtype, Conv), conv, (1, 5, 5, 6), w),
        (kernel_for(MatMul, dtype), MatMul(), (3, 4, 20), b),
    ):
        types = [TensorType(dtype, first), TensorType(dtype, constant.shape)]
        fixed = kernel.bind(op, types, [None, constant], **kernel.settings[0])  # type: ignore[misc]
        computed = kernel.bind(op, types, [None, None], **kernel.settings[0])  # type: ignore[misc]
        assert len(computed) == len(fixed) + 1
        params = computed[len(fixed) - 1].params
        offset = int.from_bytes(params[-16:-8], "little")  # what the other operand takes of the workspace
        workspace = np.full(offset + seen[-1].nbytes, 77, np.uint8)
        pointers = (ctypes.c_void_p * 4)(None, constant.ctypes.data, None, workspace.ctypes.data)
        assert host_kernels.pack_rows(pointers, params) == 0
        made = workspace[offset:].view(constant.dtype).reshape(seen[-1].shape)
        np.testing.assert_array_equal(made, seen[-1])
        assert fixed[-1].extra == (seen[-1],)


def test_tables_of_tiles_agree(host_kernels: ctypes.CDLL) -> None:
    """Python's and those that are compiled."""
    room = (ctypes.c_int * 100)()
    count = host_kernels.tiles_of_tensor(room)
    found = [tuple(room[4 * i : 4 * i + 4]) for i in range(count)]
    assert found == [(t.rows, t.columns, t.warps, t.shared_bytes) for t in tensor.TILES.values()]
    assert [t.index for t in tensor.TILES.values()] == list(range(count))


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    half = kernel_for(MatMul, "float16")
    batches = [TensorType("float16", (2, 3, 1, 5, 20)), TensorType("float16", (2, 1, 4, 20, 8))]
    assert "more than one axis" in str(half.reason_against(MatMul(), *batches))
    conv = kernel_for(ChannelsLast, "float32", Conv)
    op = ChannelsLast(Conv())
    types = [TensorType("float32", (1, 20, 20, 4)), TensorType("float32", (4, 4, 16, 1))]
    assert "at most 15 taps" in str(conv.reason_against(op, *types))
    nothing = [TensorType("float32", (1, 2, 2, 0)), TensorType("float32", (4, 0, 1, 1))]
    assert "at least one channel" in str(conv.reason_against(op, *nothing))
    monkeypatch.setattr(tensor, "machine", lambda: Machine(capability=75))
    types = [TensorType("float16", (8, 8))] * 2
    assert "8.0 and above" in str(half.reason_against(MatMul(), *types))


def test_only_lowered_kernels_name_a_precision() -> None:
    """So that none of them is taken where float32 was asked for."""
    kernels = (*products.KERNELS, *convolution.KERNELS)
    lowered = {kernel.variant for kernel in kernels if kernel.precision == "tf32"}
    assert lowered == {"tf32", "cublas_tf32", "cudnn_tf32"}
    assert {kernel.precision for kernel in kernels if kernel.variant not in lowered} == {None}


def test_large_convolutions_choose_tf32() -> None:
    """By the estimates, without which nobody would choose these kernels."""
    op = ChannelsLast(Conv(pads=(1, 1, 1, 1)).settled((28, 28), (3, 3), 2))
    types = [TensorType("float32", (32, 28, 28, 128)), TensorType("float32", (128, 128, 3, 3))]
    best = {}
    for kernel in convolution.KERNELS:
        if kernel.wraps is Conv and kernel.variant in ("tf32", "implicit"):
            assert kernel.estimate is not None
            best[kernel.variant] = min(kernel.estimate(op, *types, **s) for s in kernel.settings)
    assert min(best, key=lambda variant: best[variant]) == "tf32"
    assert problem_of(op, *types).products == 32 * 28 * 28 * 128 * 128 * 9
