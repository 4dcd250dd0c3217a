"""Offsets for blocks of memory with lifetimes, so that blocks alive at one time never overlap."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from aicore.records import dataclass

ALIGNMENT = 64
"""Bytes of a cache line, and of the widest vector register."""

_MOST_PAIRS = 2_000_000
"""Pairs of blocks alive together, above which packing by size would dominate the time of a compilation."""


@dataclass(frozen=True)
class Block:
    """Bytes that are in use from step `start` to step `end`, both included."""

    nbytes: int
    start: int
    end: int


def place(blocks: Sequence[Block], reuse: bool = True) -> tuple[list[int], int]:
    """(offset of each block, bytes of the arena).

    Two packings compete: best fit in the order of time, and largest first into the best gap, which is often tighter
    but considers all pairs that are alive together. Without `reuse`, each block has a place of its own.
    """
    if not reuse:
        return _in_a_row(blocks)
    by_time = _best_fit_by_time(blocks)
    if by_time[1] == lower_bound(blocks) or _pairs(blocks) > _MOST_PAIRS:
        return by_time
    by_size = _best_gap_by_size(blocks)
    return by_size if by_size[1] < by_time[1] else by_time


def lower_bound(blocks: Sequence[Block]) -> int:
    """The largest number of (aligned) bytes alive at one step."""
    change: dict[int, int] = {}
    for block in blocks:
        nbytes, after = _aligned(block.nbytes), block.end + 1
        change[block.start] = change.get(block.start, 0) + nbytes
        change[after] = change.get(after, 0) - nbytes
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _in_a_row(blocks: Sequence[Block]) -> tuple[list[int], int]:
    offsets, end = [], 0
    for block in blocks:
        offsets.append(end)
        end += _aligned(block.nbytes)
    return offsets, end


def _best_fit_by_time(blocks: Sequence[Block]) -> tuple[list[int], int]:
    free = _FreeList()
    offsets = [0] * len(blocks)
    ends = sorted((block.end, i) for i, block in enumerate(blocks))
    ended = 0
    for i in sorted(range(len(blocks)), key=lambda i: (blocks[i].start, -blocks[i].nbytes)):
        while ends[ended][0] < blocks[i].start:
            dead = ends[ended][1]
            free.give(offsets[dead], _aligned(blocks[dead].nbytes))
            ended += 1
        offsets[i] = free.take(_aligned(blocks[i].nbytes))
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


def _best_gap_by_size(blocks: Sequence[Block]) -> tuple[list[int], int]:
    neighbours = _alive_together(blocks)
    offsets = [-1] * len(blocks)
    arena = 0
    for i in sorted(range(len(blocks)), key=lambda i: (-blocks[i].nbytes, blocks[i].start)):
        nbytes = _aligned(blocks[i].nbytes)
        taken = sorted((offsets[j], _aligned(blocks[j].nbytes)) for j in neighbours[i] if offsets[j] >= 0)
        offsets[i] = _best_gap(taken, nbytes)
        arena = max(arena, offsets[i] + nbytes)
    return offsets, arena


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
