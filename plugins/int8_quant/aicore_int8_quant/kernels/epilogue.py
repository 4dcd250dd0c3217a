"""From exact sums to the result of an Int8Linear, block by block, in the order that the op prescribes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from aicore.ops.activation import Activation, Clip, HardSigmoid, HardSwish, Relu
from aicore_cpu_numpy.integer_sums import CLIP, part_of
from aicore_cpu_numpy.reference import activation as reference

Array = np.ndarray[Any, Any]
Apply: TypeAlias = Callable[[Array], Array]
Call: TypeAlias = Callable[[], Any]

_EXACT = 1 << 24
_REFERENCES = {kernel.op: kernel for kernel in reference.KERNELS}


@dataclass(frozen=True)
class Finish:
    """scale, bias, addend broadcast to the sums; see Int8Linear for all of them."""

    scale: Array
    bias: Array | None = None
    addend: Array | None = None
    addend_scale: Array | None = None
    addend_zero_point: Array | None = None
    activation: Activation | None = None
    y_scale: Array | None = None
    y_zero_point: Array | None = None

    @property
    def needs_integers(self) -> bool:
        """Whether float32 cannot hold the bias."""
        return self.bias is not None and bool((np.abs(self.bias.astype(np.int64)) > _EXACT).any())

    def at(self, index: Any) -> Finish:
        """The part for the sums at an index; dims of one element serve all of them."""
        parts = {name: part_of(getattr(self, name), index) for name in ("scale", "bias")}
        addend = None if self.addend is None else _block(self.addend, index)
        return replace(self, addend=addend, **parts)

    def first(self, columns: int, addend: Array | None) -> Finish:
        """For rows of so many columns, of which the parameters have more, with an addend of the same shape."""
        scale, bias = (a if a is None or not a.ndim else a[:columns] for a in (self.scale, self.bias))
        assert scale is not None  # it has one
        return replace(self, addend=addend, scale=scale, bias=bias)

    def finish(self, sums: Array, work: Array, out: Array) -> None:
        """out = the result for these sums, int32 or exact in float32; `work` is float32, and may be `sums`."""
        for call in self.calls(sums, work, out):
            call()

    def calls(self, sums: Array, work: Array, out: Array) -> Iterator[Call]:
        """What `finish` does, as calls of NumPy that may be made again and again."""
        if self.bias is not None:
            yield partial(np.add, sums, self.bias, out=sums, dtype=sums.dtype, casting="unsafe")
        if work is not sums:
            yield partial(np.copyto, work, sums, casting="unsafe")
        yield partial(np.multiply, work, self.scale, out=work)
        if self.addend is not None:
            yield lambda: np.add(work, self._addend(), out=work)
        if self.activation is not None and not self._is_clamped_late:
            yield partial(self._activate, work)
        if self.y_scale is None:
            yield partial(np.copyto, out, work)
        else:
            yield from self._quantized(work, out)

    def _activate(self, work: Array) -> None:
        assert self.activation is not None  # the caller saw to it
        found = apply_of(self.activation)(work)
        if found is not work:
            np.copyto(work, found)

    @property
    def _is_clamped_late(self) -> bool:
        """Whether the activation is a clamp of codes, which may as well follow the rounding, except for NaN."""
        coded = self.y_scale is not None and self.y_scale.item() == 1
        return coded and isinstance(self.activation, Relu | Clip) and not self._may_be_nan

    def _addend(self) -> Array:
        assert self.addend is not None  # the caller saw to it
        if self.addend_scale is None:
            return self.addend
        real = self.addend.astype(np.float32)
        if self.addend_zero_point is not None:
            real -= self.addend_zero_point.astype(np.float32)
        real *= self.addend_scale
        return real

    @cached_property
    def _may_be_nan(self) -> bool:
        """Whether a result may be NaN, whose code is that of 0: a clamp makes none of finite numbers."""
        clamps = self.activation is None or isinstance(self.activation, Relu | Clip)
        return not clamps or self.addend is not None or not bool(np.isfinite(self.scale).all())

    def _quantized(self, work: Array, out: Array) -> Iterator[Call]:
        assert self.y_scale is not None  # the caller saw to it
        if self.y_scale.item() != 1:
            yield partial(np.divide, work, self.y_scale, out=work)
        if self._may_be_nan:
            yield partial(_without_nan, work)
        yield partial(np.rint, work, out=work)
        zero_point, low, high = self._limits(out.dtype)
        yield partial(CLIP, work, low, high, out=work)
        if zero_point:
            yield partial(np.add, work, zero_point, out=work)
        yield partial(np.copyto, out, work, casting="unsafe")

    def _limits(self, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
        """The zero point, and the least and the largest number before it is added: of the codes and of the clamp."""
        limits, point = np.iinfo(dtype), 0 if self.y_zero_point is None else int(self.y_zero_point.item())
        low, high = float(limits.min - point), float(limits.max - point)
        if self._is_clamped_late:
            least, most = (0.0, None) if isinstance(self.activation, Relu) else _ends(self.activation)
            codes = low, high
            low = low if least is None else min(max(low, float(np.rint(np.float32(least)))), high)
            high = high if most is None else max(min(high, float(np.rint(np.float32(most)))), codes[0])
        zero, least_code, most_code = (np.asarray(v, np.float32) for v in (point, low, high))
        return zero, least_code, most_code


def _ends(activation: Activation | None) -> tuple[float | None, float | None]:
    assert isinstance(activation, Clip)  # the caller saw to it
    return activation.min, activation.max


def _without_nan(work: Array) -> None:
    if np.isnan(np.max(work, initial=0)):
        np.copyto(work, 0, where=np.isnan(work))


def apply_of(activation: Activation) -> Apply:
    """The activation as a function of a float32 array that it may change."""
    match activation:
        case Relu():
            return lambda y: _clamp(y, 0.0, None)
        case Clip(min=low, max=high):
            return lambda y: _clamp(y, low, high)
        case HardSwish():
            return _hard_swish
        case HardSigmoid(alpha=alpha, beta=beta):
            return lambda y: _hard_sigmoid(y, alpha, beta)
    kernel = _REFERENCES[type(activation)]
    return lambda y: np.asarray(kernel.function(activation, y))


def reason_against(activation: Activation | None) -> str | None:
    """Why the epilogue cannot apply the activation, or None."""
    known = activation is None or type(activation) in _REFERENCES
    return None if known else f"does not apply {type(activation).__name__}"


def _clamp(y: Array, low: float | None, high: float | None) -> Array:
    """In place. NaN stays, and -0 becomes 0 where that is the lower end.

    Both passes together take less time than NumPy's maximum of an array and a number.
    """
    ends = (np.asarray(end, np.float32) for end in (-np.inf if low is None else low, np.inf if high is None else high))
    CLIP(y, *ends, out=y)
    if low == 0:
        np.add(y, np.float32(0), out=y)
    return y


def _hard_sigmoid(y: Array, alpha: float, beta: float) -> Array:
    np.multiply(y, np.float32(alpha), out=y)
    return _clamp(np.add(y, np.float32(beta), out=y), 0.0, 1.0)


def _hard_swish(y: Array) -> Array:
    """The reference's operations in its order, with one array beside y instead of five."""
    factor = np.divide(y, np.float32(6))
    np.multiply(y, _clamp(np.add(factor, np.float32(0.5), out=factor), 0.0, 1.0), out=y)
    return y


def _block(array: Array, index: tuple[Any, ...]) -> Array:
    """What of the addend belongs to the block; an image is chosen by number, so its axis goes."""
    places = index[len(index) - array.ndim :]
    chosen = [
        (0 if isinstance(place, int) else slice(None)) if dim == 1 else place
        for dim, place in zip(array.shape, places, strict=True)
    ]
    found: Array = array[tuple(chosen)]
    return found
