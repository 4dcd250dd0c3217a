"""The captured graphs of one device that no run is using: as many as AICORE_GRAPHS, the least recently used goes first.

Each has the memory of a run, so that giving one back is also what helps when memory is short.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol


class Kept(Protocol):
    """What is kept. replays: how often it ran. memory: bytes of each block of memory that it holds, by address."""

    @property
    def replays(self) -> int: ...

    @property
    def memory(self) -> Mapping[int, int]: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Entry:
    graph: Kept
    owner: Hashable
    seen: int
    evicted: Callable[[], None]


class GraphCache:
    """Thread-safe. An owner, such as an executable, has graphs that can stand for each other, and some with a key."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._gone: deque[Hashable] = deque()

    def take(self, owner: Hashable) -> Kept | None:
        """The owner's most recent graph without a key, which leaves the cache."""
        with self._lock:
            for key in reversed(self._entries):
                if isinstance(key, _Anonymous) and self._entries[key].owner is owner:
                    return self._entries.pop(key).graph
        self._sweep()
        return None

    def find(self, key: Hashable) -> Kept | None:
        """The graph with this key, which stays."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry.graph

    def keep(self, owner: Hashable, graph: Kept, evicted: Callable[[], None], key: Hashable | None = None) -> None:
        """Keep a graph for later; without a key, `take` finds it. evicted: called if the cache gives it back itself.

        Room is made among the others: whoever keeps a graph may be about to run it.
        """
        with self._lock:
            held = len(self._entries)
            over = held + 1 - self.capacity
            leaving = [self._oldest() for _ in range(min(over, held))] if over > 0 else []
            self._entries[_Anonymous() if key is None else key] = _Entry(graph, owner, graph.replays, evicted)
        if leaving:
            _close(leaving)
        if self._gone:
            self._sweep()

    def drop(self, owner: Hashable) -> None:
        """Give back all graphs of the owner."""
        self._gone.append(owner)
        self._sweep()

    def clear(self) -> bool:
        """Give all back, since memory is short; whether there was any."""
        with self._lock:
            leaving = list(self._entries.values())
            self._entries.clear()
        _close(leaving)
        return bool(leaving)

    def held(self, owner: Hashable) -> tuple[int, int]:
        """(graphs, bytes) of the owner in the cache; memory that several graphs share counts once."""
        with self._lock:
            graphs = [entry.graph for entry in self._entries.values() if entry.owner is owner]
        blocks = {address: nbytes for graph in graphs for address, nbytes in graph.memory.items()}
        return len(graphs), sum(blocks.values())

    def _sweep(self) -> None:
        """Close the graphs of owners that are gone, unless somebody is at the cache: they sweep when they leave.

        So this may be called at any moment, such as when an owner is collected as garbage.
        """
        while self._gone and self._lock.acquire(blocking=False):
            try:
                gone = set(map(id, (owners := [self._gone.popleft() for _ in range(len(self._gone))])))
                keys = [key for key, entry in self._entries.items() if id(entry.owner) in gone]
                graphs = [self._entries.pop(key).graph for key in keys]
            finally:
                self._lock.release()
            for graph in graphs:
                graph.close()
            owners.clear()

    def _oldest(self) -> _Entry:
        """The first that did not run since it came to the end of the line; one that did goes there once more."""
        for _ in range(len(self._entries)):
            key, entry = next(iter(self._entries.items()))
            if entry.graph.replays == entry.seen:
                break
            entry.seen = entry.graph.replays
            self._entries.move_to_end(key)
        return self._entries.popitem(last=False)[1]


class _Anonymous:
    """A key that nobody asks for."""

    __slots__ = ()


def _close(entries: list[_Entry]) -> None:
    for entry in entries:
        entry.graph.close()
        entry.evicted()
