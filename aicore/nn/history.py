"""Loss and metrics of each epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping


class History:
    """What `fit` gives back. history: numbers of each epoch by name; `val_` before those on validation data."""

    def __init__(self, history: Mapping[str, list[float]] | None = None) -> None:
        self.history: dict[str, list[float]] = {name: list(values) for name, values in (history or {}).items()}

    @property
    def epochs(self) -> int:
        return max(map(len, self.history.values()), default=0)

    def add(self, logs: Mapping[str, float]) -> None:
        """The numbers of one more epoch; NaN stands for those that an epoch does not have, such as no `val_loss`."""
        before = self.epochs
        for name in (*self.history, *logs):
            values = self.history.setdefault(name, [math.nan] * before)
            if len(values) == before:
                values.append(logs.get(name, math.nan))

    def __getitem__(self, name: str) -> list[float]:
        return self.history[name]

    def __str__(self) -> str:
        if not self.history:
            return "no epoch yet"
        names = list(self.history)
        widths = [max(len(name), 10) for name in names]
        head = "epoch  " + "  ".join(name.rjust(width) for name, width in zip(names, widths, strict=True))
        rows = [
            f"{i + 1:5}  " + "  ".join(_cell(self.history[n], i).rjust(w) for n, w in zip(names, widths, strict=True))
            for i in range(self.epochs)
        ]
        return "\n".join([head, *rows])

    __repr__ = __str__


def _cell(values: list[float], index: int) -> str:
    return f"{values[index]:.6g}" if index < len(values) else ""
