"""QuantizeLinear and DequantizeLinear of whole tensors and along an axis, block by block, with the reference's bits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.quantization import DequantizeLinear, Quantization, QuantizeLinear, quantized_axis
from aicore_cpu_numpy.fast._bounds import CLIP
from aicore_cpu_numpy.fast._parallel import parts_of
from aicore_cpu_numpy.fast._quantized import padded, spread_tasks
from aicore_cpu_numpy.fast._rows import BLOCK_ELEMENTS, Array, row_blocks, split_axis

BYTES = frozenset({"int8", "uint8"})
RATE, CALL = 1e9, 3e-6
"""For estimates: elements per second of one core, and seconds of one NumPy call."""

Piece = tuple[Array, Array, Array, Array]
"""Some of the operand, the same of the result, and scales and zero points in float32."""


def _reason(op: Quantization, x: TensorType, scale: TensorType, zero_point: TensorType | None) -> str | None:
    if not all(t is None or t.is_static for t in (x, scale, zero_point)):
        return "needs shapes that are known in numbers"
    if op.block_size:
        return "does not take blocks"
    return None if scale.dtype == "float32" else f"does not take scales of {scale.dtype}"


def _quantize_reason(
    op: QuantizeLinear, x: TensorType, scale: TensorType, zero_point: TensorType | None = None
) -> str | None:
    to = op.output_dtype or ("uint8" if zero_point is None else zero_point.dtype)
    if to not in BYTES:
        return f"does not give {to}"
    if op.precision not in (None, "float32"):
        return f"does not divide in {op.precision}"
    return _reason(op, x, scale, zero_point)


def _dequantize_reason(
    op: DequantizeLinear, x: TensorType, scale: TensorType, zero_point: TensorType | None = None
) -> str | None:
    if op.output_dtype not in (None, "float32"):
        return f"does not give {op.output_dtype}"
    return _reason(op, x, scale, zero_point)


def _block_bytes(op: Quantization, x: TensorType, scale: TensorType, *others: TensorType | None) -> int:
    """Of all threads; a row may be longer than a block."""
    longest = BLOCK_ELEMENTS
    if math.prod(scale.static_shape) != 1:
        _, along, after = split_axis(x.static_shape, quantized_axis(op.axis, len(x.static_shape)))
        longest = max(longest, after if after > 1 else along)
    return padded(4 * longest) * _threads(math.prod(x.static_shape))


def _threads(elements: int) -> int:
    return parts_of(elements / RATE)


def _seconds(op: Quantization, x: TensorType, *others: TensorType | None) -> float:
    size = math.prod(x.static_shape)
    return (size / RATE + 6 * CALL * (size // BLOCK_ELEMENTS + 1)) / _threads(size)


@kernel(
    QuantizeLinear,
    device="cpu",
    variant="blocks",
    dtypes={"float32"},
    supports=_quantize_reason,
    workspace=_block_bytes,
    estimate=_seconds,
)
def quantize_linear_blocks(
    op: QuantizeLinear, x: Array, scale: Array, zero_point: Array | None = None, *, out: Array, workspace: Array
) -> None:
    pieces = list(_blocks(op, x, out, scale, zero_point))
    spread_tasks(pieces, _quantize, workspace, _threads(x.size))


def _quantize(piece: Piece, share: Array) -> None:
    source, target, divisor, offset = piece
    limits = np.iinfo(target.dtype)
    work = share.view(np.float32)[: source.size].reshape(source.shape)
    np.divide(source, divisor, out=work)
    if np.isnan(np.max(work)):
        np.copyto(work, 0, where=np.isnan(work))
    np.rint(work, out=work)
    CLIP(work, limits.min - offset, limits.max - offset, out=work)
    np.add(work, offset, out=work)
    np.copyto(target, work, casting="unsafe")


@kernel(
    DequantizeLinear,
    device="cpu",
    variant="blocks",
    dtypes=BYTES,
    supports=_dequantize_reason,
    estimate=_seconds,
)
def dequantize_linear_blocks(
    op: DequantizeLinear, x: Array, scale: Array, zero_point: Array | None = None, *, out: Array
) -> None:
    pieces = list(_blocks(op, x, out, scale, zero_point))
    spread_tasks(pieces, _dequantize, np.empty(0, np.uint8), _threads(x.size))


def _dequantize(piece: Piece, share: Array) -> None:
    source, target, factor, offset = piece
    np.copyto(target, source)
    np.subtract(target, offset, out=target)
    np.multiply(target, factor, out=target)


def _blocks(op: Quantization, x: Array, out: Array, scale: Array, zero_point: Array | None) -> Iterator[Piece]:
    """Pieces of x and out, with the scales and the zero points, in float32, that they have."""
    if not x.size:
        return
    factors = scale.astype(np.float32).reshape(-1)
    offsets = np.zeros_like(factors) if zero_point is None else zero_point.astype(np.float32).reshape(-1)
    if factors.size == 1:
        source, target = x.reshape(-1), out.reshape(-1)
        for start in range(0, x.size, BLOCK_ELEMENTS):
            block = slice(start, start + BLOCK_ELEMENTS)
            yield source[block], target[block], factors, offsets
        return
    before, along, after = split_axis(x.shape, quantized_axis(op.axis, x.ndim))
    if after == 1:
        shape, factors, offsets = (before, along), factors[None], offsets[None]
    else:
        shape, factors, offsets = (before * along, after), np.tile(factors, before), np.tile(offsets, before)
        factors, offsets = factors[:, None], offsets[:, None]
    source, target = x.reshape(shape), out.reshape(shape)
    for rows in row_blocks(*shape):
        some = rows if after > 1 else slice(None)
        yield source[rows], target[rows], factors[some], offsets[some]


KERNELS: tuple[Kernel, ...] = (quantize_linear_blocks, dequantize_linear_blocks)
