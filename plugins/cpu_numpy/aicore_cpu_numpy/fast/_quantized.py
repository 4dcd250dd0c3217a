"""Exact integer sums on float32 BLAS, and what follows them.

float32 holds every integer up to 2^24 in magnitude. A product of integers whose absolute terms add up to no more is
therefore exact in float32, in whichever order BLAS adds, with or without fused multiplication. Longer sums are cut into
chunks that are that short, and the chunks are added in int32, where they wrap as the op says. Zero points are
subtracted beforehand, while the bytes become floats, so that no correction has to follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from aicore.ir import TensorType
from aicore.records import dataclass
from aicore.runtime import thread_count
from aicore_cpu_numpy.workers import run_tasks

Array = np.ndarray[Any, Any]
Operand: TypeAlias = Callable[[slice], Array]
"""The float32 part of an operand for a range of the summed dimension."""

EXACT = 1 << 24
"""float32 holds every integer up to here."""
MOST_TERMS = 1024
"""Longest chunk for which workspace is set aside."""
PRODUCTS_OF_A_THREAD = 1 << 19
"""Products that take some 30 microseconds, below which handing them to a thread does not pay."""
_ALIGNMENT = 64


class Epilogue(Protocol):
    """What becomes of the sums of a product or a convolution; other plugins bring their own."""

    @property
    def needs_integers(self) -> bool:
        """Whether the sums must come in int32 even where float32 holds them."""

    def at(self, index: Any) -> Epilogue:
        """The part for the sums at an index into (batch, rows, columns), or (image, group, maps, positions)."""

    def finish(self, sums: Array, work: Array, out: Array) -> None:
        """out = what the sums become; they are int32, or exact in float32. `work` is float32 and may be `sums`."""


@dataclass(frozen=True)
class Requantization:
    """From a sum to a quantised number: y = saturate(round(float32(sum + bias) * multiplier) + zero_point).

    multiplier, bias: broadcast to the sums; bias is int32, or absent.
    """

    multiplier: Array
    zero_point: Array
    bias: Array | None = None

    @property
    def needs_integers(self) -> bool:
        """Whether float32 cannot hold the bias."""
        return self.bias is not None and bool((np.abs(self.bias.astype(np.int64)) > EXACT).any())

    def at(self, index: Any) -> Requantization:
        """The part for sums at an index; dims of one element serve all of them."""
        return Requantization(part_of(self.multiplier, index), self.zero_point, part_of(self.bias, index))

    def finish(self, sums: Array, work: Array, out: Array) -> None:
        """out = the quantised sums, which are int32, or exact in float32; `work` is float32 and may be `sums`."""
        if self.bias is not None:
            np.add(sums, self.bias, out=sums, dtype=sums.dtype, casting="unsafe")
        if work is not sums:
            np.copyto(work, sums, casting="unsafe")
        np.multiply(work, self.multiplier, out=work)
        if not np.isfinite(self.multiplier).all():
            np.copyto(work, 0, where=np.isnan(work))
        np.rint(work, out=work)
        limits, zero_point = np.iinfo(out.dtype), int(self.zero_point.item())
        np.clip(work, np.float32(limits.min - zero_point), np.float32(limits.max - zero_point), out=work)
        np.add(work, np.float32(zero_point), out=work)
        np.copyto(out, work, casting="unsafe")


def part_of(array: Any, index: tuple[slice, ...]) -> Any:
    """What of an array that broadcasts to a result belongs to the part of it at `index`; None stays None."""
    if array is None or array.ndim == 0:
        return array
    places = index[len(index) - array.ndim :]
    return array[tuple(slice(None) if dim == 1 else i for dim, i in zip(array.shape, places, strict=True))]


def exact_length(left: int, right: int) -> int:
    """How many products of numbers up to these magnitudes float32 adds up exactly, in any order."""
    return max(EXACT // max(left * right, 1), 1)


def magnitude(dtype: Any, zero_point: Array | None) -> int:
    """The largest |x - zero_point| for any x of the type."""
    limits = np.iinfo(dtype)
    if zero_point is None or not zero_point.size:
        return max(limits.max, -limits.min)
    return max(limits.max - int(zero_point.min()), int(zero_point.max()) - limits.min)


@dataclass(frozen=True)
class Packed:
    """An operand in float32, without its zero point, and what bounds its sums.

    largest: the largest magnitude. total: the largest sum of magnitudes along the summed dimension.
    """

    numbers: Array
    largest: int
    total: float

    @classmethod
    def of(cls, x: Array, zero_point: Array | None, axis: int) -> Packed:
        """Of bytes, and a zero point that broadcasts to them; `axis` is summed."""
        numbers = shifted(x, zero_point, np.empty(x.shape, np.float32))
        magnitudes = np.abs(numbers)
        total = magnitudes.sum(axis, dtype=np.float64).max(initial=0)
        return cls(numbers, int(magnitudes.max(initial=0)), float(total))

    def parts(self, terms: int, other: int) -> list[slice]:
        """Chunks of the summed dimension that float32 adds up exactly, if the other operand is at most that large."""
        whole = other * self.total <= EXACT
        return chunks(terms, max(terms, 1) if whole else exact_length(other, self.largest))


def chunks(terms: int, length: int) -> list[slice]:
    """The summed dimension in parts of about equal size, none longer than `length`; one empty part of no terms."""
    count = max(-(-terms // length), 1)
    step = max(-(-terms // count), 1)
    return [slice(start, min(start + step, terms)) for start in range(0, max(terms, 1), step)]


def shifted(x: Array, zero_point: Array | None, out: Array) -> Array:
    """out = x - zero_point in float32, exactly."""
    np.copyto(out, x)
    if zero_point is not None:
        np.subtract(out, zero_point, out=out)
    return out


def sum_products(left: Operand, right: Operand, parts: Sequence[slice], work: Array, total: Array | None) -> Array:
    """left @ right: in `work`, float32, if there is one part and no `total`; else in `total`, int32."""
    for number, part in enumerate(parts):
        np.matmul(left(part), right(part), out=work)
        if total is None:
            continue
        if number == 0:
            np.copyto(total, work, casting="unsafe")
        else:
            np.add(total, work, out=total, dtype=np.int32, casting="unsafe")
    return work if total is None else total


class Room:
    """Hands out arrays from a piece of workspace, one behind the other."""

    def __init__(self, workspace: Array) -> None:
        self._workspace, self._start = workspace, 0

    def take(self, elements: int, dtype: Any = np.float32) -> Array:
        """A flat array of so many elements."""
        size = elements * np.dtype(dtype).itemsize
        found: Array = self._workspace[self._start : self._start + size].view(dtype)
        self._start += padded(size)
        return found


def padded(size: int) -> int:
    """Bytes that an array of `size` bytes takes of the workspace."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def threads_for(products: int) -> int:
    """Threads among which so many products are worth to be shared."""
    return max(min(thread_count(), products // PRODUCTS_OF_A_THREAD), 1)


def spread_tasks(pieces: Sequence[Any], run: Callable[[Any, Array], None], workspace: Array, threads: int) -> None:
    """`run(piece, share)` for every piece, on so many threads, each with an equal share of the workspace."""
    count = max(min(threads, len(pieces)), 1)
    share = workspace.size // threads // _ALIGNMENT * _ALIGNMENT

    def task(number: int) -> None:
        own = workspace[number * share : (number + 1) * share]
        with np.errstate(all="ignore"):  # which other threads do not inherit
            for piece in pieces[number::count]:
                run(piece, own)

    run_tasks([partial(task, number) for number in range(count)])


def run_unbound(bind: Any, op: Any, operands: Sequence[Array | None], out: Array, workspace: Array) -> None:
    """One call without preparation."""
    types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
    bind(op, types, [None] * len(types))(*operands, out=out, workspace=workspace)
