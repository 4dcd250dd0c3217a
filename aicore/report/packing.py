"""A parity matrix as little JSON: texts and cells that repeat are written once, and defaults not at all.

`unpack` in `templates/parity.js` is the inverse. A matrix of all ops would else be a page of many megabytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

_DIGITS = 3
"""Significant digits of errors: more than anybody reads from a table."""


class Table:
    """Values by position, each of them once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._positions: dict[str, int] = {}

    def position(self, value: Any) -> int:
        """Where the value stands, be it from now on. Equal JSON is an equal value."""
        key = json.dumps(value)
        if key not in self._positions:
            self._positions[key] = len(self.values)
            self.values.append(value)
        return self._positions[key]


def pack(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], outcomes: Sequence[str]) -> dict[str, Any]:
    """The rows in plain data of few characters.

    rows, columns: of what `aicore.testing.parity.to_json` gives; columns by name, in the order in which the verdicts of
    a case stand. outcomes: all that there are; the first is the usual one.
    """
    packer = _Packer(columns, outcomes)
    packed = [packer.row(row) for row in rows]
    return {
        "columns": list(columns),
        "outcomes": list(outcomes),
        "texts": packer.texts.values,
        "cells": packer.cells.values,
        "rows": packed,
    }


class _Packer:
    def __init__(self, columns: Sequence[str], outcomes: Sequence[str]) -> None:
        self.texts = Table()
        self.cells = Table()
        self._columns = columns
        self._outcomes = {outcome: position for position, outcome in enumerate(outcomes)}

    def row(self, row: Mapping[str, Any]) -> list[Any]:
        """Name, dtype and kind; a cell for each column, or -1; cases."""
        text = self.texts.position
        ids = [case[0] for case in row["cases"]]
        cells = [row["cells"].get(column) for column in self._columns]
        return [
            *(text(row[key]) for key in ("name", "dtype", "kind")),
            [-1 if cell is None else self.cells.position(self._cell(cell, ids)) for cell in cells],
            [self._case(case, f"{row['name']}-{row['dtype']}") for case in row["cases"]],
        ]

    def _cell(self, cell: Mapping[str, Any], ids: Sequence[str]) -> list[Any]:
        """Outcome, reason, cases by outcome, worst case, kernels, steps, errors, errors beside the first column."""
        counts = cell["outcomes"]
        worst = cell["worst"]
        versus = cell["versus"]
        return [
            self._outcomes[cell["outcome"]],
            self.texts.position(cell["reason"]),
            [[self._outcomes[outcome], count] for outcome, count in counts.items()],
            ids.index(worst) if worst in ids else worst,
            [self.texts.position(kernel) for kernel in cell["kernels"]],
            cell["steps"],
            _errors(cell),
            None if versus is None else _errors(versus),
        ]

    def _case(self, case: Sequence[Any], prefix: str) -> list[Any]:
        """Id without what the row says already, note, and for each column outcome and error."""
        name, note, *verdicts = case
        short = name[len(prefix) :] if name.startswith(f"{prefix}-") else f"={name}"
        return [short, self.texts.position(note), *map(self._verdict, verdicts)]

    def _verdict(self, verdict: Sequence[Any] | None) -> Any:
        """None where the column has none, the error alone for the usual outcome, else both."""
        if verdict is None:
            return None
        outcome, error = self._outcomes[verdict[0]], number(verdict[1])
        return error if outcome == 0 else [outcome, error] if error else [outcome]


def _errors(data: Mapping[str, Any]) -> Any:
    """Errors in the order in which `unpack` names them; the number of elements alone when each of them is exact."""
    if "elements" not in data:
        return None
    names = ("max_relative", "mean_relative", "max_absolute", "max_ulps", "share", "wrong")
    errors = [number(data[name]) for name in names]
    return [*errors, data["elements"]] if any(errors) else data["elements"]


def number(value: float | str | None) -> float | int | str | None:
    """A number of JSON: rounded, and what is not finite as a text. Anything but a float stays as it is."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
