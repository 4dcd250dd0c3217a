"""Fourier transforms, and the weights that gather frequencies on the mel scale.

A complex number is a last axis of two elements, the real part first; a last axis of one element is a real number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.dims import Dim, Shape, as_expr, unknown
from aicore.ir.dtypes import FLOATS, NUMBERS
from aicore.ir.op import Op, Sample, Types, as_tuple, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._pointwise import floats
from aicore.ops.base import Simple, ensure, need_dtype, need_rank, normalize_axis, same_dim, same_dtype, shape_text
from aicore.ops.sizes import INDEX_DTYPES, need_one_of, one_number

REAL, COMPLEX = 1, 2
_STEPS = 60
"""Operations of a fast transform for each result: 5 log2(n), at the length of usual frames."""


@op_class
class DFT(Op):
    """The discrete Fourier transform along one axis: y[k] = sum over n of x[n] * exp(-2 pi i k n / N).

    Operands: x (..., 1 or 2), dft_length, axis. The signal is cut, or filled up with zeros, to the length N, by default
    that of the axis. inverse: with the sign turned, divided by N.
    onesided: forwards, the N // 2 + 1 first results of a real signal, as the others mirror them; with `inverse`, the
    real signal of length N, by default 2 (n - 1), of which these are the spectrum.
    Results are complex, but for the last case. Floating point; narrow types are computed in float32.
    Source: ONNX DFT-20.
    """

    axis: int = -2
    dft_length: int | None = None
    inverse: int = 0
    onesided: int = 0

    operand_fields: ClassVar[dict[int, str]] = {1: "dft_length", 2: "axis"}

    def infer(self, x: Value, dft_length: Value | None = None, axis: Value | None = None) -> Types:
        need_dtype(x, FLOATS)
        fits = axis is None or (axis.dtype in INDEX_DTYPES and axis.shape in (None, (), (1,)))
        ensure(fits, f"the axis is {axis and axis.type}, wants one int32 or int64")
        _need_count(dft_length, self.length, "dft_length")
        if x.shape is None:
            return x.type
        ensure(len(x.shape) >= 2, f"%{x.name} is {x.type}, wants a signal and an axis of 1 or 2 for its parts")
        wanted = _parts_wanted(self.onesided, self.inverse)
        parts = x.shape[-1]
        ensure(not isinstance(parts, int) or parts in wanted, f"{parts} parts of a number, wants {_or(wanted)}")
        last = REAL if self.onesided and self.inverse else COMPLEX
        if axis is not None:
            return TensorType(x.dtype, (*(unknown() for _ in x.shape[:-1]), last))
        position = self.position(len(x.shape))
        dims = [*x.shape[:-1], last]
        dims[position] = self.output_length(dims[position], dft_length)
        return TensorType(x.dtype, tuple(dims))

    @property
    def length(self) -> int | None:
        """The length of the transform, if it is a field."""
        found: int | None = one_number(self.dft_length, "dft_length")
        return found

    def position(self, rank: int, axis: int | None = None) -> int:
        """The axis, the op's own unless one is given, counted from the front.

        Raises InferenceError when it is out of range, or that of the parts of a number.
        """
        found = normalize_axis(one_number(self.axis, "axis") if axis is None else axis, rank)
        ensure(found != rank - 1, f"axis {found} is that of real and imaginary parts")
        return found

    def output_length(self, given: Dim, dft_length: Value | None = None) -> Dim:
        """Elements of the result along the axis, of which the operand has `given`."""
        length: Dim
        if dft_length is not None:
            length = dft_length.content[0] if dft_length.content else unknown()
        elif self.length is not None:
            length = self.length
        else:
            length = (as_expr(given) - 1) * 2 if self.onesided and self.inverse else given
        return as_expr(length) // 2 + 1 if self.onesided and not self.inverse else length

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        (found,) = as_tuple(self.infer(*inputs))  # type: ignore[arg-type]
        return found.size * _STEPS, moved_bytes(found, inputs)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        real, pairs = floats(rng, (2, 6, 5, 1)), floats(rng, (2, 6, 5, 2))
        yield Sample(cls(), (real,), note="real")
        yield Sample(cls(), (pairs,), note="complex")
        yield Sample(cls(axis=1, inverse=1), (pairs,), note="inverse")
        yield Sample(cls(axis=0), (pairs,), note="first axis")
        yield Sample(cls(onesided=1), (real,), note="one-sided, odd length")
        yield Sample(cls(axis=-3, onesided=1), (real,), note="one-sided, even length")
        yield Sample(cls(axis=1, onesided=1, inverse=1), (floats(rng, (2, 4, 2)),), note="to a real signal")
        yield Sample(cls(1, 5, onesided=1, inverse=1), (floats(rng, (2, 4, 2)),), note="to one of odd length")
        yield Sample(cls(), (real, np.array(8)), constant=(1,), note="longer")
        yield Sample(cls(), (real, np.array(3), np.array(1)), constant=(1, 2), note="shorter, axis as an operand")
        yield Sample(cls(), (real, np.array(4)), note="length known at run time only")
        yield Sample(cls(), (real, None, np.array(1)), note="axis known at run time only")
        yield Sample(cls(), (floats(rng, (0, 4, 2)),), note="zero size")


@op_class
class STFT(Op):
    """The DFT of frames of a signal, each multiplied by a window.

    Operands: signal (batch, length, 1 or 2), frame_step, window (frame_length), frame_length. Frames start at multiples
    of frame_step and end within the signal. Without a window all weights are 1, and a frame is as long as the signal
    unless frame_length says otherwise. Result: (batch, frames, frame_length, 2); with `onesided`, which wants a real
    signal, frame_length // 2 + 1 in place of frame_length. Floating point. Source: ONNX STFT-17.
    """

    onesided: int = 1
    frame_step: int | None = None
    frame_length: int | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "frame_step", 3: "frame_length"}

    def infer(
        self,
        signal: Value,
        frame_step: Value | None = None,
        window: Value | None = None,
        frame_length: Value | None = None,
    ) -> Types:
        need_dtype(signal, FLOATS)
        same_dtype(signal, window)
        need_rank(signal, 3)
        if window is not None:
            need_rank(window, 1)
        step, given = (one_number(f, n) for f, n in ((self.frame_step, "frame_step"), (self.frame_length, "length")))
        need_one_of(step, frame_step, "frame_step")
        _need_count(frame_step, step, "frame_step")
        _need_count(frame_length, given, "frame_length")
        if signal.shape is None:
            return TensorType(signal.dtype, (unknown(), unknown(), unknown(), COMPLEX))
        batch, samples, parts = signal.shape
        wanted = _parts_wanted(self.onesided, 0)
        ensure(not isinstance(parts, int) or parts in wanted, f"{parts} parts of a number, wants {_or(wanted)}")
        length = _frame_length(given, frame_length, window, samples)
        frames: Dim = unknown()
        if step is not None:
            frames = (as_expr(samples) - length) // step + 1
            ensure(not isinstance(frames, int) or frames > 0, f"{samples} samples are no frame of {length}")
        return TensorType(signal.dtype, (batch, frames, as_expr(length) // 2 + 1 if self.onesided else length, COMPLEX))

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        (found,) = as_tuple(self.infer(*inputs))  # type: ignore[arg-type]
        return found.size * _STEPS, moved_bytes(found, inputs)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        real, window = floats(rng, (2, 33, 1)), floats(rng, (8,), 0, 1)
        step, length = np.array(3), np.array(8)
        yield Sample(cls(), (real, step, window), constant=(1, 2), note="window")
        yield Sample(cls(), (real, step, None, length), constant=(1, 3), note="no window")
        yield Sample(cls(), (real, step, window, length), constant=(1, 2, 3), note="window and length")
        yield Sample(cls(onesided=0), (floats(rng, (2, 20, 2)), step, window[:7]), constant=(1,), note="complex")
        yield Sample(cls(), (real, step), constant=(1,), note="one frame")
        yield Sample(cls(onesided=0), (real, step, window), note="step known at run time only")


@op_class
class MelWeightMatrix(Simple):
    """The matrix that turns a one-sided spectrum into bands of the mel scale: (dft_length // 2 + 1, num_mel_bins).

    Operands, all scalars: num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz. With
    mel(f) = 2595 log10(1 + f / 700), the range is cut into num_mel_bins + 2 equal steps in mel, of which the last one
    is left over. Edge i of a band is the frequency f where i steps end, as bin floor((dft_length + 1) f / sample_rate).
    Band i rises from 0 at edge i to 1 at edge i + 1 and falls to 0 at edge i + 2.
    Computed in float64, then of the type output_datatype. Source: ONNX MelWeightMatrix-17 and its test data.
    """

    output_datatype: str = "float32"
    num_mel_bins: int | None = None
    dft_length: int | None = None
    sample_rate: int | None = None
    lower_edge_hertz: float | None = None
    upper_edge_hertz: float | None = None

    operand_fields: ClassVar[dict[int, str]] = {
        0: "num_mel_bins",
        1: "dft_length",
        2: "sample_rate",
        3: "lower_edge_hertz",
        4: "upper_edge_hertz",
    }

    def infer(self, *operands: Value | None) -> Types:
        ensure(self.output_datatype in NUMBERS, f"output_datatype is {self.output_datatype}, wants a number type")
        for index, name in self.operand_fields.items():
            operand = operands[index] if index < len(operands) else None
            need_one_of(getattr(self, name), operand, name)
            allowed = INDEX_DTYPES if index < 3 else FLOATS
            fits = operand is None or (operand.dtype in allowed and operand.rank in (None, 0))
            ensure(fits, f"{name} is {operand and operand.type}, wants a scalar of {_or(sorted(allowed))}")
        bins, length = (one_number(n, "size") for n in (self.num_mel_bins, self.dft_length))
        ensure(bins is None or bins >= 0, f"num_mel_bins is {bins}, wants 0 or more")
        ensure(length is None or length >= 1, f"dft_length is {length}, wants 1 or more")
        return TensorType(
            self.output_datatype,
            (unknown() if length is None else length // 2 + 1, unknown() if bins is None else bins),
        )

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        numbers = (np.array(8), np.array(16), np.array(8192), np.float32(0), np.float32(4096))
        yield Sample(cls(), tuple(map(np.asarray, numbers)), constant=(0, 1, 2, 3, 4))
        yield Sample(cls(), tuple(map(np.asarray, numbers)), constant=(0, 1), note="edges known at run time only")
        yield Sample(cls("float64", 20, 400, 16000, 20.0, 8000.0), (), note="float64")
        yield Sample(cls("float32", 40, 512, 16000, 0.0, 8000.0), (), note="narrow bands")


def _parts_wanted(onesided: int, inverse: int) -> tuple[int, ...]:
    if not onesided:
        return REAL, COMPLEX
    return (COMPLEX,) if inverse else (REAL,)


def _or(choices: Iterable[object]) -> str:
    return " or ".join(map(str, choices))


def _need_count(operand: Value | None, field: int | None, what: str) -> None:
    ensure(field is None or field >= 1, f"{what} is {field}, wants 1 or more")
    fits = operand is None or (operand.dtype in INDEX_DTYPES and operand.shape in (None, (), (1,)))
    ensure(fits, f"{what} is {operand and operand.type}, wants one int32 or int64")


def _frame_length(given: int | None, operand: Value | None, window: Value | None, samples: Dim) -> Dim:
    weights: Shape | None = None if window is None else window.shape
    if given is not None:
        fits = weights is None or same_dim(weights[0], given)
        ensure(fits, f"the window {shape_text(weights)} has not the frame length, {given}")
        return given
    if weights is not None:
        return weights[0]
    return samples if operand is None and window is None else unknown()
