"""Unique names for the values of a model that is written."""

from __future__ import annotations

from aicore.ir import Value


class Names:
    """The name of each value; the first to ask for one gets it, later ones get a number behind it."""

    def __init__(self) -> None:
        self._of: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def __contains__(self, value: Value) -> bool:
        return value in self._of

    def take(self, wanted: str) -> str:
        """A name that nothing else has, `wanted` itself if possible."""
        name = wanted or "value"
        while name in self._taken:
            self._next[wanted] = self._next.get(wanted, 1) + 1
            name = f"{wanted or 'value'}_{self._next[wanted]}"
        self._taken.add(name)
        return name

    def give(self, value: Value, name: str) -> None:
        """Let `value` be called `name`, which `take` gave, or another value has that stands for the same tensor."""
        self._of[value] = name

    def of(self, value: Value) -> str:
        """The name of a value, made up now if it has none yet."""
        if value not in self._of:
            self._of[value] = self.take(value.name)
        return self._of[value]
