"""From exact sums to the result of an Int8Linear, block by block, in the order that the op prescribes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from aicore.ops.activation import Activation, Clip, Relu
from aicore_cpu_numpy.integer_sums import part_of
from aicore_cpu_numpy.reference import activation as reference

Array = np.ndarray[Any, Any]
Apply: TypeAlias = "Callable[[Array], Array] | None"

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
    activation: Apply = None
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

    def finish(self, sums: Array, work: Array, out: Array) -> None:
        """out = the result for these sums, int32 or exact in float32; `work` is float32, and may be `sums`."""
        if self.bias is not None:
            np.add(sums, self.bias, out=sums, dtype=sums.dtype, casting="unsafe")
        if work is not sums:
            np.copyto(work, sums, casting="unsafe")
        np.multiply(work, self.scale, out=work)
        if self.addend is not None:
            np.add(work, self._addend(), out=work)
        if self.activation is not None:
            np.copyto(work, self.activation(work))
        if self.y_scale is None:
            np.copyto(out, work)
        else:
            self._quantize(work, out)

    def _addend(self) -> Array:
        assert self.addend is not None  # the caller saw to it
        if self.addend_scale is None:
            return self.addend
        real = self.addend.astype(np.float32)
        if self.addend_zero_point is not None:
            real -= self.addend_zero_point.astype(np.float32)
        real *= self.addend_scale
        return real

    def _quantize(self, work: Array, out: Array) -> None:
        assert self.y_scale is not None  # the caller saw to it
        if self.y_scale.item() != 1:
            np.divide(work, self.y_scale, out=work)
        if np.isnan(np.max(work, initial=0)):
            np.copyto(work, 0, where=np.isnan(work))
        np.rint(work, out=work)
        limits = np.iinfo(out.dtype)
        zero_point = 0 if self.y_zero_point is None else int(self.y_zero_point.item())
        np.clip(work, np.float32(limits.min - zero_point), np.float32(limits.max - zero_point), out=work)
        np.add(work, np.float32(zero_point), out=work)
        np.copyto(out, work, casting="unsafe")


def apply_of(activation: Activation | None) -> Apply:
    """The activation as a function of a float32 array that it may change."""
    match activation:
        case None:
            return None
        case Relu():
            return lambda y: np.maximum(y, 0, out=y)
        case Clip(min=low, max=high):
            return lambda y: _clamp(y, low, high)
    kernel = _REFERENCES[type(activation)]
    return lambda y: np.asarray(kernel.function(activation, y))


def reason_against(activation: Activation | None) -> str | None:
    """Why the epilogue cannot apply the activation, or None."""
    known = activation is None or type(activation) in _REFERENCES
    return None if known else f"does not apply {type(activation).__name__}"


def _clamp(y: Array, low: float | None, high: float | None) -> Array:
    if low is not None:
        np.maximum(y, np.float32(low), out=y)
    if high is not None:
        np.minimum(y, np.float32(high), out=y)
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
