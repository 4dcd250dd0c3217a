"""Which values go channels-last together, and whether that pays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from aicore.ir import Value


class Islands:
    """Sets of values that go channels-last together or not at all, with elements saved and elements moved."""

    def __init__(self) -> None:
        self._parent: dict[Value, Value] = {}
        self._gain: dict[Value, int] = defaultdict(int)
        self._cost: dict[Value, int] = defaultdict(int)

    def join(self, a: Value, b: Value) -> None:
        one, two = self._root(a), self._root(b)
        if one is not two:
            self._parent[two] = one

    def gain(self, value: Value, elements: int) -> None:
        self._gain[value] += elements

    def charge(self, value: Value, elements: int) -> None:
        self._cost[value] += elements

    def losing(self) -> frozenset[Value]:
        """Values of islands that do not pay."""
        total: dict[Value, int] = defaultdict(int)
        for value, elements in self._gain.items():
            total[self._root(value)] += elements
        free = set(total)
        for value, elements in self._cost.items():
            total[self._root(value)] -= elements
            if elements:
                free.discard(self._root(value))
        return frozenset(v for v in self._parent if total[self._root(v)] <= 0 and self._root(v) not in free)

    def holding(self, names: Collection[str]) -> frozenset[Value]:
        """Values of islands that hold one of these names."""
        if not names:
            return frozenset()
        wanted = {self._root(value) for value in list(self._parent) if value.name in names}
        return frozenset(value for value in list(self._parent) if self._root(value) in wanted)

    def names(self) -> list[str]:
        """The name of a value of each island, those first that save most elements."""
        total: dict[Value, int] = defaultdict(int)
        for value, elements in self._gain.items():
            total[self._root(value)] += elements
        first: dict[Value, str] = {}
        for value in list(self._parent):
            if value in self._gain:
                first.setdefault(self._root(value), value.name)
        return [name for root, name in sorted(first.items(), key=lambda item: -total[item[0]])]

    def _root(self, value: Value) -> Value:
        """With the path to it halved on the way, so that a walk takes about linear time."""
        parent = self._parent
        current = parent.setdefault(value, value)
        while parent[current] is not current:
            parent[current] = parent[parent[current]]
            current = parent[current]
        return current
