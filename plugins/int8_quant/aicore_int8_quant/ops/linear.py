"""Products and convolutions of 8-bit integers, and everything up to the next 8-bit tensor, in one kernel.

    sum  = (x - x_zero_point) * (w - w_zero_point) + bias          in int32, which wraps and never saturates
    real = float32(sum) * scale[n]                                 one product, not fused with what follows
    real = activation(real + addend)                               as far as there are any
    y    = saturate(round(real / y_scale) + y_zero_point)          halves to even; the division is left out for 1

Where nothing but a clamp stands between sum and y, the scale of y is part of `scale`, x_scale * w_scale / y_scale in
float64 rounded to float32 once, and y_scale is 1: then a ReLU is a raised clamp minimum. A sum beyond 2^24 is rounded
to float32 by the conversion, by at most 2^-24 of itself. So every kernel that follows these lines gives the same bits,
as do the standard ops of the decomposition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from aicore.ir import Dim, Namespace, Op, Sample, Value
from aicore.ir.op import Types
from aicore.ops.activation import Activation, Clip, HardSwish, Relu
from aicore.ops.base import need_dtype
from aicore.ops.convolution import Conv
from aicore.ops.quantized_linear import EIGHT_BITS, ConvInteger, MatMulInteger, need_terms

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Int8Linear(Op):
    """What both share. Operands, all but the first three optional:

    x, w: int8 or uint8 each. scale: float32, one number or one for each output channel.
    x_zero_point, w_zero_point: of the types of x and w; the latter one number or one for each output channel.
    bias: int32, one for each output channel.
    addend: added before the activation; float32, or 8-bit integers with addend_scale and addend_zero_point.
    y_scale, y_zero_point: one number each; without them the result is float32.
    activation: of one tensor, applied in float32.
    """

    activation: Activation | None = None

    def infer(self, *inputs: Value | None) -> Types:
        scale, addend, addend_scale, y_scale = ((*inputs, *[None] * 11)[i] for i in (2, 6, 7, 9))
        for value in (scale, addend_scale, y_scale):
            if value is not None:
                need_dtype(value, {"float32"})
        if addend is not None:
            need_dtype(addend, {"float32"} if addend_scale is None else EIGHT_BITS)
        need_terms(self.terms(*inputs))
        return super().infer(*inputs)

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        """Twice the multiplications, as for the op in floating point."""
        integer, operands = self.integer_part(*inputs)
        flops, _ = integer.cost(*operands)
        return flops, super().cost(*inputs)[1]

    def decompose(
        self,
        op: Namespace,
        x: Any,
        w: Any,
        scale: Any,
        x_zero_point: Any = None,
        w_zero_point: Any = None,
        bias: Any = None,
        addend: Any = None,
        addend_scale: Any = None,
        addend_zero_point: Any = None,
        y_scale: Any = None,
        y_zero_point: Any = None,
    ) -> Any:
        integer, operands = self.integer_part(x, w, scale, x_zero_point, w_zero_point)
        sums = op.apply(integer, *operands)
        if bias is not None:
            sums = op.Add(sums, self.spread(op, bias, w))
        real = op.DequantizeLinear(sums, scale, axis=self.channel_axis())
        if addend is not None:
            real = op.Add(
                real, addend if addend_scale is None else self.real(op, addend, addend_scale, addend_zero_point)
            )
        if self.activation is not None:
            real = op.apply(self.activation, real)
        return real if y_scale is None else op.QuantizeLinear(real, y_scale, y_zero_point)

    @staticmethod
    def real(op: Namespace, codes: Any, scale: Any, zero_point: Any) -> Any:
        return op.DequantizeLinear(codes, scale, zero_point)

    def integer_part(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        """The standard op that makes the sums, and its operands."""
        raise NotImplementedError

    def terms(self, *inputs: Value | None) -> Dim:
        """Products in one sum."""
        raise NotImplementedError

    def channel_axis(self) -> int:
        """Axis of the output channels in the result."""
        raise NotImplementedError

    def spread(self, op: Namespace, bias: Any, w: Any) -> Any:
        """The bias in a shape that broadcasts to the sums."""
        raise NotImplementedError


@dataclass(frozen=True)
class Int8MatMul(Int8Linear):
    """x @ w of 8-bit integers, (..., m, k) and (..., k, n), with what follows. See Int8Linear for the operands."""

    def integer_part(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        x, w, _, x_zero_point, w_zero_point = (*inputs, None, None)[:5]
        return MatMulInteger(), (x, w, x_zero_point, w_zero_point)

    def terms(self, *inputs: Value | None) -> Dim:
        x = inputs[0]
        return 0 if x is None or not x.shape else x.shape[-1]

    def channel_axis(self) -> int:
        return -1

    def spread(self, op: Namespace, bias: Any, w: Any) -> Any:
        return bias

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for left, right in (("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8"), ("uint8", "int8")):
            yield _sample(cls(), rng, (5, 7), (7, 3), 3, left, right, note=f"{left} by {right}")
        for activation in (None, Relu(), Clip(0.0, 20.0), HardSwish()):
            yield _sample(cls(activation), rng, (4, 9), (9, 5), 5, note=str(activation), to="uint8")
        yield _sample(cls(Relu()), rng, (4, 9), (9, 5), 5, addend=(4, 5), note="addend")
        yield _sample(cls(Relu()), rng, (4, 9), (9, 5), 5, addend=(4, 5), coded=True, note="addend of codes")
        yield _sample(cls(), rng, (4, 9), (9, 5), 5, addend=(5,), note="bias in floating point")
        yield _sample(cls(Relu()), rng, (4, 9), (9, 5), 5, to=None, note="float result")
        yield _sample(cls(), rng, (2, 3, 4, 9), (9, 5), 5, note="batches, one weight")
        yield _sample(cls(), rng, (3, 4, 9), (3, 9, 5), 5, note="batches of both")
        yield _sample(cls(), rng, (3, 1500), (1500, 2), 2, note="longer than float32 can sum at once")
        yield _sample(cls(), rng, (0, 7), (7, 3), 3, note="zero size")


@dataclass(frozen=True)
class Int8Conv(Int8Linear):
    """The convolution of 8-bit integers, with what follows; x is padded with its zero point. See Int8Linear.

    conv: its geometry. Channels are the second axis, in the result too.
    """

    conv: Conv = field(default_factory=Conv)
    images: ClassVar[tuple[int, ...]] = (0, 6)  # x and addend, for ChannelsLast

    def resolve(self, *inputs: Value | None) -> Op:
        integer, operands = self.integer_part(*inputs)
        settled = integer.resolve(*operands)
        conv = Conv(**{f.name: getattr(settled, f.name) for f in fields(Conv)})
        return type(self)(self.activation, conv)

    def integer_part(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        x, w, _, x_zero_point, w_zero_point = (*inputs, None, None)[:5]
        given = {f.name: getattr(self.conv, f.name) for f in fields(Conv)}
        return ConvInteger(**given), (x, w, x_zero_point, w_zero_point)

    def terms(self, *inputs: Value | None) -> Dim:
        w = inputs[1]
        return math.prod(w.shape[1:]) if w is not None and w.type.is_static and w.shape else 0

    def channel_axis(self) -> int:
        return 1

    def spread(self, op: Namespace, bias: Any, w: Any) -> Any:
        return op.Unsqueeze(bias, axes=tuple(range(1, (w.rank or 2) - 1)))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x, w = (2, 4, 6, 5), (6, 4, 3, 3)
        for left, right in (("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8"), ("uint8", "int8")):
            op = cls(conv=Conv(pads=(1, 0, 2, 1)))
            yield _sample(op, rng, x, w, 6, left, right, note=f"{left} by {right}")
        for activation in (Relu(), Clip(0.0, 20.0), HardSwish()):
            yield _sample(cls(activation, Conv(strides=(2, 1))), rng, x, w, 6, note=str(activation), to="uint8")
        padded = Conv(pads=(1, 1, 1, 1))
        yield _sample(cls(Relu(), padded), rng, x, w, 6, addend=(2, 6, 6, 5), note="addend")
        yield _sample(cls(Relu(), padded), rng, x, w, 6, addend=(2, 6, 6, 5), coded=True, note="addend of codes")
        yield _sample(cls(None, padded), rng, x, w, 6, addend=(6, 1, 1), note="bias in floating point")
        yield _sample(cls(Relu(), padded), rng, x, w, 6, to=None, note="float result")
        yield _sample(cls(), rng, (2, 4, 6, 5), (6, 4, 1, 1), 6, note="1x1")
        yield _sample(cls(conv=Conv(group=2, dilations=(2, 1))), rng, x, (6, 2, 3, 2), 6, note="groups, dilated")
        yield _sample(cls(conv=Conv(group=4, pads=(1, 1, 1, 1))), rng, x, (4, 1, 3, 3), 4, note="depthwise")
        yield _sample(cls(conv=Conv(strides=(2,))), rng, (2, 3, 11), (4, 3, 4), 4, note="one spatial dim")
        yield _sample(cls(), rng, (1, 130, 3, 3), (2, 130, 3, 3), 2, note="longer than float32 can sum at once")
        yield _sample(cls(), rng, (0, 2, 4, 4), (3, 2, 3, 3), 3, note="empty batch")


def folded_scale(x_scale: Array, w_scale: Array, y_scale: Array | None = None) -> Array:
    """x_scale * w_scale / y_scale in float64, rounded to float32 once: the `scale` of an Int8Linear."""
    product = x_scale.astype(np.float64).reshape(()) * w_scale.astype(np.float64)
    if y_scale is not None:
        product = product / y_scale.astype(np.float64).reshape(())
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(product).astype(np.float32)


def _sample(
    op: Int8Linear,
    rng: np.random.Generator,
    x: Sequence[int],
    w: Sequence[int],
    channels: int,
    left: str = "int8",
    right: str = "int8",
    to: str | None = "int8",
    addend: Sequence[int] | None = None,
    coded: bool = False,
    note: str = "",
) -> Sample:
    def codes(shape: Sequence[int], dtype: str) -> Array:
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, tuple(shape), endpoint=True).astype(dtype)

    scale = rng.uniform(1e-4, 2e-3, channels).astype(np.float32)
    bias = rng.integers(-9999, 9999, channels).astype(np.int32)
    added: Iterator[Array | None] = iter((None, None, None))
    if addend is not None and coded:
        added = iter((codes(addend, "int8"), np.array(0.02, np.float32), np.array(-5, np.int8)))
    elif addend is not None:
        added = iter((rng.normal(size=addend).astype(np.float32), None, None))
    result = () if to is None else (np.array(0.11, np.float32), np.array(3, to))
    operands = (
        *(codes(x, left), codes(w, right), scale, np.array(101, left), codes((channels,), right), bias),
        *added,
        *result,
    )
    constant = tuple(i for i, array in enumerate(operands) if i not in (0, 6) and array is not None)
    return Sample(op, operands, constant, note)


__all__ = ["Int8Conv", "Int8Linear", "Int8MatMul", "folded_scale"]
