"""Blocks that repeat in a graph: stretches of nodes in running order that come several times in a row.

A network is drawn from few kinds of blocks. Contracting a stretch of a topological order makes no cycle, so each
repetition can stand as one node.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from aicore.records import dataclass

_LEAST_NODES = 2
"""Of a block: a lone node is as easy to read as a block of one."""
_LONGEST = 256


@dataclass(frozen=True)
class Repetition:
    """`count` blocks of `length` nodes each, one behind the other from node `start` on."""

    start: int
    length: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.length * self.count


def repeated_blocks(kinds: Sequence[Hashable]) -> list[Repetition]:
    """Repetitions that do not overlap, from front to back; those that cover most are found first.

    kinds: what makes nodes alike, in running order.
    """
    numbers: dict[Hashable, int] = {}
    ids = np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], np.int64)
    found: list[Repetition] = []
    todo = [(0, len(ids))]
    while todo:
        start, end = todo.pop()
        best = _best(ids[start:end])
        if best is None:
            continue
        moved = Repetition(best.start + start, best.length, best.count)
        found.append(moved)
        todo += [(start, moved.start), (moved.end, end)]
    return sorted(found, key=lambda one: one.start)


def _best(ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Repetition | None:
    """The repetition that covers most nodes, by the shortest block of those that cover as many.

    Three or more blocks go before any two: two long stretches that are alike are seldom one block to a reader.
    """
    best: Repetition | None = None
    for length in range(_LEAST_NODES, min(len(ids) // 2, _LONGEST) + 1):
        same = np.flatnonzero(np.diff(np.concatenate([[0], ids[length:] == ids[:-length], [0]]).astype(np.int8)))
        for first, last in zip(same[::2].tolist(), same[1::2].tolist(), strict=True):
            found = Repetition(first, length, (last - first) // length + 1)
            is_plain = len(set(ids[first : first + length].tolist())) == 1  # the same op again and again
            if found.count > 1 and not is_plain and (best is None or _weight(found) > _weight(best)):
                best = found
    return best


def _weight(one: Repetition) -> tuple[bool, int]:
    return one.count > 2, one.count * one.length
