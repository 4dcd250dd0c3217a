"""What the parts of a convolution cost one thread, in seconds, for estimates.

Fitted, together with those of Winograd convolutions, to 1211 measured times of 116 convolutions of real networks on
two x86 cores with AVX2 at about 3 GHz. The choices cost a network's convolutions at most 9% more than the best ones of
these times, and at most 14% of another table, measured apart. Only ratios matter to the choice of a kernel.
"""

from __future__ import annotations

CALL = 3.5e-6
"""One NumPy call: a fifth of this alone, but threads side by side wait for each other at the interpreter's lock."""

IN_CACHE = 1 << 17
"""Elements that a second-level cache holds."""

_HAND_OFF = 80e-6
"""With it, sharing begins to pay where `PARALLEL` says so; else a slower way that is shared would look better."""
_FLOP, _WEIGHT, _MOVED = 1 / 80e9, 0.17e-9, 0.3e-9
_PASS, _SPILLED = 0.08e-9, 1.6
_CONTENTION, _PACKED = 1.2, 1e-9
_RUN, _COPIED = 2.8e-9, 0.08e-9
_PRODUCT, _LOOP = 0.2e-9, 35e-9


def shared(seconds: float, parts: int, units: int = 0, alike: float = 0.0) -> float:
    """Of work that workers do side by side; they share the memory.

    units: parts of the work that cannot be cut; 0 if it can be cut anywhere. alike: seconds of what each has to do.
    """
    if parts == 1:
        return seconds
    longest = -(-units // parts) / units if units else 1 / parts
    return (alike + (seconds - alike) * longest) * _CONTENTION + _HAND_OFF


def packing_seconds(rows: float, inner: float) -> float:
    """What each worker of a product does again that has columns of its own: it reads all rows, and packs them."""
    return rows * inner * _PACKED


def gemm_seconds(rows: float, inner: int, columns: int, calls: float) -> float:
    """(rows, inner) @ (inner, columns) with the rows spread over so many calls, each of which packs the weights."""
    flops, moved = 2.0 * rows * inner * columns, rows * (inner + columns)
    return flops * _FLOP + moved * _MOVED + calls * (CALL + inner * columns * _WEIGHT)


def pass_seconds(elements: float, passes: float, block: int = 0) -> float:
    """Passes over elements, which are in the cache if a block of them is no larger than that."""
    return elements * passes * (_PASS if block <= IN_CACHE else _SPILLED * _PASS)


def copy_seconds(elements: float, run: int) -> float:
    """A copy of pieces of `run` elements each."""
    return elements / max(run, 1) * _RUN + elements * _COPIED


def shifted_seconds(products: int, length: int) -> float:
    """Sums of products in loops of such a length; what the longest ones touch leaves the first-level cache."""
    cost = _PRODUCT if length <= 2048 else 1.15 * _PRODUCT
    return products * cost + products / max(length, 1) * _LOOP
