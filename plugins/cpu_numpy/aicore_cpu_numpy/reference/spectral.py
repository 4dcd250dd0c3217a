"""Fourier transforms and mel weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.kernels import Kernel, kernel
from aicore.ops.sizes import one_number
from aicore.ops.spectral import DFT, REAL, STFT, MelWeightMatrix
from aicore_cpu_numpy.reference._precision import Array, widen
from aicore_cpu_numpy.reference.cast import convert


@kernel(DFT, device="cpu")
def dft(op: DFT, x: Array, dft_length: Array | None = None, axis_of_run: Array | None = None) -> Any:
    axis = op.position(x.ndim, None if axis_of_run is None else int(axis_of_run.item()))
    length = op.length if dft_length is None else int(dft_length.item())
    if length is None:
        length = 2 * (x.shape[axis] - 1) if op.onesided and op.inverse else x.shape[axis]
    if length < 1:
        raise ExecutionError(f"the transform has length {length}, wants 1 or more")
    return _as_pairs(_transform(_as_numbers(x), op, length, axis)).astype(x.dtype, copy=False)


@kernel(STFT, device="cpu")
def stft(
    op: STFT,
    signal: Array,
    frame_step: Array | None = None,
    window: Array | None = None,
    frame_length: Array | None = None,
) -> Any:
    step = one_number(op.frame_step, "frame_step") if frame_step is None else int(frame_step.item())
    length = one_number(op.frame_length, "frame_length") if frame_length is None else int(frame_length.item())
    if length is None:
        length = signal.shape[1] if window is None else len(window)
    if step < 1 or not 1 <= length <= signal.shape[1] or (window is not None and len(window) != length):
        raise ExecutionError(f"frames of {length} every {step} do not fit a signal of {signal.shape[1]} and the window")
    numbers = _as_numbers(signal)
    frames = np.lib.stride_tricks.sliding_window_view(numbers, length, axis=1)[:, ::step]
    if window is not None:
        frames = frames * widen(window)
    return _as_pairs(_transform(frames, DFT(onesided=op.onesided), length, 2)).astype(signal.dtype, copy=False)


@kernel(MelWeightMatrix, device="cpu")
def mel_weight_matrix(op: MelWeightMatrix, *operands: Array | None) -> Any:
    given = dict(zip(op.operand_fields.values(), operands, strict=False))
    bins, length, rate, low, high = (
        one_number(getattr(op, name), name) if given.get(name) is None else given[name].item()  # type: ignore[union-attr]
        for name in op.operand_fields.values()
    )
    first, last = (2595 * np.log10(1 + float(edge) / 700) for edge in (low, high))
    mels = first + np.arange(bins + 2) * (last - first) / (bins + 2)
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = np.floor((length + 1) * hertz / rate)
    lower, center, upper = edges[:-2], edges[1:-1], edges[2:]
    place = np.arange(length // 2 + 1)[:, None]
    rising = (place - lower) / np.where(center > lower, center - lower, 1)
    falling = (upper - place) / np.where(upper > center, upper - center, 1)
    weights = np.where((place >= lower) & (place < center), rising, 0.0)
    weights = np.where((place > center) & (place < upper), falling, weights)
    return convert(np.where(place == center, 1.0, weights), op.output_datatype)


def _transform(numbers: Array, op: DFT, length: int, axis: int) -> Array:
    if op.onesided:
        function: Any = np.fft.irfft if op.inverse else np.fft.rfft
    else:
        function = np.fft.ifft if op.inverse else np.fft.fft
    if numbers.size:
        return np.asarray(function(numbers, length, axis))
    one = function(np.zeros((1,) * axis + (numbers.shape[axis] or 1,), numbers.dtype), length)  # for its size and type
    shape = (*numbers.shape[:axis], one.shape[-1], *numbers.shape[axis + 1 :])
    return np.zeros(shape, one.dtype)


def _as_numbers(x: Array) -> Array:
    """Real, or complex, numbers out of a last axis of one, or two, parts."""
    wide = widen(x)
    if x.shape[-1] == REAL:
        return wide[..., 0]
    return np.ascontiguousarray(wide).view(np.result_type(wide, np.complex64))[..., 0]


def _as_pairs(numbers: Array) -> Array:
    if not np.iscomplexobj(numbers):
        return numbers[..., None]
    return np.ascontiguousarray(numbers)[..., None].view(numbers.real.dtype)


KERNELS: tuple[Kernel, ...] = (dft, stft, mel_weight_matrix)
