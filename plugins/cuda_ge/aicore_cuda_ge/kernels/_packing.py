"""Operands in the order in which kernels want them: constants once, when a step is bound; others by a launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aicore.ir import numpy_dtype
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Compiled, compiled
from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, LAUNCH_SECONDS

_ALIGNMENT = 64


def on_device(array: DeviceArray, pack: Callable[[Any, Any], Any]) -> DeviceArray:
    """What pack(array_module, array) makes of a constant, where array_module is CuPy."""
    import cupy

    with cupy.cuda.Device(array.device):
        full = pack(cupy, array._as_cupy())
        cupy.cuda.get_current_stream().synchronize()  # graphs are replayed on streams of their own
    return DeviceArray(full.data.ptr, full.shape, full.dtype, array.device, full)


def uploaded(array: Any) -> DeviceArray:
    """A table of NumPy on the device that is current."""
    import cupy

    full = cupy.asarray(array)
    cupy.cuda.get_current_stream().synchronize()  # graphs are replayed on streams of their own
    return DeviceArray(full.data.ptr, full.shape, full.dtype, full.device.id, full)


def pack_rows(
    sizes: tuple[int, int, int, int],
    strides: tuple[int, int, int],
    *,
    source: int,
    to: int,
    to_byte: int = 0,
    item: int,
) -> Compiled:
    """The launch that copies rows of numbers, and fills them up with zeros: graph_executor/kernels/tensor/pack.cuh.

    sizes: outer, rows, inner, padded. strides: of the first three, in elements of `item` bytes. source, to: which
    pointers; to_byte: where the rows begin in the second one.
    """
    return compiled("pack_rows", (*sizes, *strides, source, to, to_byte, item))


def pack_seconds(nbytes: int) -> float:
    """Of a launch that writes so many bytes, and reads as many."""
    return LAUNCH_SECONDS + 1e-6 + 2 * nbytes / (0.6 * BYTES_EACH_SECOND)


def item_bytes(dtype: str) -> int:
    """Of one element."""
    return int(numpy_dtype(dtype).itemsize)


def aligned(nbytes: int) -> int:
    """Up to what the next array in a workspace may begin at."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
