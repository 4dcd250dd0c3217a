"""Offsets for blocks of memory with lifetimes, so that blocks alive at one time never overlap."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from aicore.records import dataclass

ALIGNMENT = 64
"""Bytes of a cache line, and of the widest vector register."""

_MOST_PAIRS = 2_000_000
"""Pairs of blocks alive together, above which packing by size would dominate the time of a compilation."""

_NEAR = 1.01
"""How much above the lower bound an arena may be before other orders are tried."""

_TRIES = 200
"""Other orders that are tried; fewer where many blocks are alive together."""


@dataclass(frozen=True)
class Block:
    """Bytes that are in use from step `start` to step `end`, both included."""

    nbytes: int
    start: int
    end: int


def place(blocks: Sequence[Block], reuse: bool = True) -> tuple[list[int], int]:
    """(offset of each block, bytes of the arena).

    Two packings compete: best fit in the order of time, and largest first into the best gap, which is often tighter
    but considers all pairs that are alive together. Where both are well above the lower bound, a search improves on the
    order of the second. Without `reuse`, each block has a place of its own.
    """
    if not reuse:
        return _in_a_row(blocks)
    by_time = _best_fit_by_time(blocks)
    bound = lower_bound(blocks)
    pairs = _pairs(blocks)
    if by_time[1] == bound or pairs > _MOST_PAIRS:
        return by_time
    sizes = [aligned(block.nbytes) for block in blocks]
    neighbours = _alive_together(blocks)
    order = sorted(range(len(blocks)), key=lambda i: (-blocks[i].nbytes, blocks[i].start))
    best = min(by_time, _into_gaps(sizes, order, neighbours), key=lambda placed: placed[1])
    if best[1] <= bound * _NEAR:
        return best
    tries = min(_TRIES, _MOST_PAIRS // pairs)
    return min(best, _climb(sizes, order, neighbours, bound, tries), key=lambda placed: placed[1])


def lower_bound(blocks: Sequence[Block]) -> int:
    """The largest number of (aligned) bytes alive at one step."""
    change: dict[int, int] = {}
    for block in blocks:
        nbytes, after = aligned(block.nbytes), block.end + 1
        change[block.start] = change.get(block.start, 0) + nbytes
        change[after] = change.get(after, 0) - nbytes
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


def aligned(nbytes: int) -> int:
    """As many bytes as a block takes: whole cache lines."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _in_a_row(blocks: Sequence[Block]) -> tuple[list[int], int]:
    offsets, end = [], 0
    for block in blocks:
        offsets.append(end)
        end += aligned(block.nbytes)
    return offsets, end


def _best_fit_by_time(blocks: Sequence[Block]) -> tuple[list[int], int]:
    free = _FreeList()
    offsets = [0] * len(blocks)
    ends = sorted((block.end, i) for i, block in enumerate(blocks))
    ended = 0
    for i in sorted(range(len(blocks)), key=lambda i: (blocks[i].start, -blocks[i].nbytes)):
        while ends[ended][0] < blocks[i].start:
            dead = ends[ended][1]
            free.give(offsets[dead], aligned(blocks[dead].nbytes))
            ended += 1
        offsets[i] = free.take(aligned(blocks[i].nbytes))
    return offsets, free.size


class _FreeList:
    """Free (offset, bytes) gaps below `size`, merged, in order of offset."""

    def __init__(self) -> None:
        self.size = 0
        self._gaps: list[tuple[int, int]] = []

    def take(self, nbytes: int) -> int:
        fitting = [(gap, offset) for offset, gap in self._gaps if gap >= nbytes]
        if fitting:
            gap, offset = min(fitting)
            self._gaps.remove((offset, gap))
            if gap > nbytes:
                insort(self._gaps, (offset + nbytes, gap - nbytes))
            return offset
        offset = self.size
        if self._gaps and sum(self._gaps[-1]) == self.size:  # the arena grows from the gap at its end
            offset = self._gaps.pop()[0]
        self.size = offset + nbytes
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        if not nbytes:
            return
        at = bisect_left(self._gaps, (offset, nbytes))
        if at < len(self._gaps) and self._gaps[at][0] == offset + nbytes:
            nbytes += self._gaps.pop(at)[1]
        if at and sum(self._gaps[at - 1]) == offset:
            at -= 1
            before, length = self._gaps.pop(at)
            offset, nbytes = before, length + nbytes
        self._gaps.insert(at, (offset, nbytes))


def _pairs(blocks: Sequence[Block]) -> int:
    """How many pairs of blocks are alive together."""
    starts, ends = sorted(b.start for b in blocks), sorted(b.end for b in blocks)
    # The block with the i-th start meets all i that started before, except those that have ended by then.
    return sum(i - bisect_left(ends, start) for i, start in enumerate(starts))


def _into_gaps(
    sizes: Sequence[int], order: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> tuple[list[int], int]:
    """Each block, in this order, into the best gap that those placed before leave."""
    offsets = [-1] * len(sizes)
    arena = 0
    for i in order:
        nbytes = sizes[i]
        taken = sorted((offsets[j], sizes[j]) for j in neighbours[i] if offsets[j] >= 0)
        offsets[i] = _best_gap(taken, nbytes)
        arena = max(arena, offsets[i] + nbytes)
    return offsets, arena


def _climb(
    sizes: Sequence[int], order: Sequence[int], neighbours: Sequence[Sequence[int]], bound: int, tries: int
) -> tuple[list[int], int]:
    """Hill climbing over orders: two blocks near the one that ends the arena swap turns, and what is no worse is kept.

    The same blocks get the same offsets each time.
    """
    import random  # most arenas are the least already

    choose = random.Random(0).choice
    order = list(order)
    turn = {block: at for at, block in enumerate(order)}
    best = _into_gaps(sizes, order, neighbours)
    near = _near_the_top(sizes, best, neighbours)
    for _ in range(tries):
        one, other = turn[choose(near)], turn[choose(near)]
        order[one], order[other] = order[other], order[one]
        tried = _into_gaps(sizes, order, neighbours)
        if tried[1] > best[1]:
            order[one], order[other] = order[other], order[one]
            continue
        best, near = tried, _near_the_top(sizes, tried, neighbours)
        turn[order[one]], turn[order[other]] = one, other
        if best[1] <= bound * _NEAR:
            break
    return best


def _near_the_top(
    sizes: Sequence[int], placed: tuple[list[int], int], neighbours: Sequence[Sequence[int]]
) -> list[int]:
    """The block that ends the arena, those alive with it, and those alive with these, the empty ones aside."""
    offsets, _ = placed
    top = max(range(len(sizes)), key=lambda i: offsets[i] + sizes[i])
    ring = [top, *neighbours[top]]
    return [i for i in (*ring, *(j for near in ring for j in neighbours[near])) if sizes[i]]


def _alive_together(blocks: Sequence[Block]) -> list[list[int]]:
    neighbours: list[list[int]] = [[] for _ in blocks]
    alive: set[int] = set()
    events = sorted([(b.start, 0, i) for i, b in enumerate(blocks)] + [(b.end, 1, i) for i, b in enumerate(blocks)])
    for _, is_end, i in events:
        if is_end:
            alive.discard(i)
            continue
        for j in alive:
            neighbours[j].append(i)
        neighbours[i].extend(alive)
        alive.add(i)
    return neighbours


def _best_gap(taken: Sequence[tuple[int, int]], nbytes: int) -> int:
    """Offset of the smallest gap between taken ranges that holds `nbytes`, or the end of the last range."""
    best, best_gap, end = -1, 0, 0
    for offset, length in taken:
        gap = offset - end
        if gap >= nbytes and (best < 0 or gap < best_gap):
            best, best_gap = end, gap
        end = max(end, offset + length)
    return end if best < 0 else best
