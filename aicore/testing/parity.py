"""The parity matrix: every case on several targets, beside each other and beside the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from aicore.errors import AicoreError
from aicore.numerics.difference import Difference, measure
from aicore.plugins import PluginRegistry
from aicore.testing.cases import KINDS, Case
from aicore.testing.check import check_case, expected_of
from aicore.testing.outcomes import Outcome, Score, Verdict
from aicore.testing.reference import Reference
from aicore.testing.targets import Target

Array = np.ndarray[Any, Any]
Progress: TypeAlias = Callable[[int, int, str], None]
"""(entries done, entries in all, id of the one that is next)."""


@dataclass(frozen=True)
class Column:
    """One target of a matrix.

    fingerprint: of its device. source: the file that it was read from; empty for a target of this machine.
    reason: why nothing ran on it; empty when it was used.
    """

    name: str
    fingerprint: str = ""
    source: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Entry:
    """One case, or one node or output of a model, on every column.

    name: of the op, or of the node. digest: tells whether two machines had the same operands.
    verdicts: by column; a column without one has nothing to say. versus: by column, the difference of its results from
        those of the first column, where 0 is allowed.
    """

    id: str
    name: str
    dtype: str
    kind: str
    note: str
    digest: str
    verdicts: Mapping[str, Verdict]
    versus: Mapping[str, Difference] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """The entries of one row on one column, together.

    outcomes: how often each came up. worst: id of the entry with the worst one, and of these with the largest error.
    """

    verdict: Verdict
    outcomes: Mapping[Outcome, int]
    worst: str
    versus: Difference | None


@dataclass(frozen=True)
class Row:
    """Entries of one name, element type and kind."""

    name: str
    dtype: str
    kind: str
    entries: tuple[Entry, ...]

    def cell(self, column: str) -> Cell | None:
        """None where the column has no verdict on any of them."""
        judged = [(entry, entry.verdicts[column]) for entry in self.entries if column in entry.verdicts]
        if not judged:
            return None
        worst = max(judged, key=lambda pair: (pair[1].outcome.rank, _error(pair[1])))
        versus = [entry.versus[column] for entry in self.entries if column in entry.versus]
        together = reduce(Verdict.worse, [verdict for _, verdict in judged])
        return Cell(
            replace(together, reason=worst[1].reason),
            Counter(verdict.outcome for _, verdict in judged),
            worst[0].id,
            reduce(Difference.worse, versus) if versus else None,
        )


@dataclass(frozen=True)
class Matrix:
    """Entries by columns.

    title: what was compared. remarks: lines about the whole, such as the first divergent node of a model.
    """

    title: str
    columns: tuple[Column, ...]
    entries: tuple[Entry, ...]
    remarks: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        """Entries grouped: names in the order in which they come, then element types likewise, then kinds."""
        groups: dict[tuple[str, str, str], list[Entry]] = {}
        for entry in self.entries:
            groups.setdefault((entry.name, entry.dtype, entry.kind), []).append(entry)
        names = {name: i for i, name in enumerate(dict.fromkeys(name for name, _, _ in groups))}
        dtypes = {dtype: i for i, dtype in enumerate(dict.fromkeys(dtype for _, dtype, _ in groups))}
        order = sorted(groups, key=lambda key: (names[key[0]], dtypes[key[1]], _kind_rank(key[2])))
        return [Row(*key, tuple(groups[key])) for key in order]

    def score(self, column: str) -> Score:
        return Score.of(entry.verdicts[column] for entry in self.entries if column in entry.verdicts)

    def compared(self, column: str) -> bool:
        """Whether anything ran on this column."""
        return any(column in entry.verdicts for entry in self.entries)

    @property
    def is_right(self) -> bool:
        """Whether nothing failed, anywhere."""
        return all(verdict.outcome.is_right for entry in self.entries for verdict in entry.verdicts.values())


def find_targets(names: Iterable[str], registry: PluginRegistry) -> tuple[list[Column], list[Target]]:
    """A column for each target, and the targets of those that can be used; the others say why not.

    Of several names of one target, such as `cpu` and `cpu:0`, the first is taken.
    """
    columns: list[Column] = []
    targets: list[Target] = []
    for name in dict.fromkeys(names):
        try:
            target = Target.find(name, registry)
        except AicoreError as error:
            columns.append(Column(name, reason=str(error)))
            continue
        if all(target.key != other.key for other in targets):
            columns.append(Column(name, target.fingerprint))
            targets.append(target)
    return columns, targets


def compare_cases(
    cases: Sequence[Case],
    columns: Sequence[Column],
    targets: Sequence[Target],
    reference: Reference,
    title: str,
    progress: Progress | None = None,
) -> Matrix:
    """Every case on every target. Cases that their op refuses are left out."""
    entries: list[Entry] = []
    for done, case in enumerate(cases):
        if progress is not None:
            progress(done, len(cases), case.id)
        expected = expected_of(case, reference)
        if expected is None:
            continue
        verdicts = {target.name: check_case(case, target, expected, keep_outputs=True) for target in targets}
        note = case.sample.note
        entry = Entry(case.id, case.name, case.dtype, case.kind, note, case.digest, verdicts)
        entries.append(with_versus(entry, columns))
    return Matrix(title, tuple(columns), tuple(entries))


def with_versus(entry: Entry, columns: Sequence[Column]) -> Entry:
    """The entry with each column's results compared with those of the first column that has any."""
    having = [
        column.name for column in columns if column.name in entry.verdicts and entry.verdicts[column.name].outputs
    ]
    if not having:
        return entry
    base, *others = having
    versus = {name: _apart(entry.verdicts[name].outputs, entry.verdicts[base].outputs) for name in others}
    return replace(entry, versus=versus)


def _apart(got: Sequence[Array], base: Sequence[Array]) -> Difference:
    if len(got) != len(base):
        return Difference(text=f"{len(got)} results beside {len(base)}")
    return reduce(Difference.worse, [measure(a, b) for a, b in zip(got, base, strict=True)], Difference())


def _kind_rank(kind: str) -> int:
    return KINDS.index(kind) if kind in KINDS else -1


def _error(verdict: Verdict) -> float:
    return 0.0 if verdict.difference is None else verdict.difference.share


def to_json(matrix: Matrix) -> dict[str, Any]:
    """The matrix in plain data: what `--json` prints, and what the page shows."""
    return {
        "title": matrix.title,
        "right": matrix.is_right,
        "remarks": list(matrix.remarks),
        "columns": [_column_json(column, matrix.score(column.name)) for column in matrix.columns],
        "rows": [_row_json(row, matrix.columns) for row in matrix.rows()],
    }


def _column_json(column: Column, score: Score) -> dict[str, Any]:
    return {
        "name": column.name,
        "fingerprint": column.fingerprint,
        "source": column.source,
        "reason": column.reason,
        "score": score.value,
        "outcomes": {str(outcome): score.counts[outcome] for outcome in Outcome if score.counts[outcome]},
        "steps": score.steps,
    }


def _row_json(row: Row, columns: Sequence[Column]) -> dict[str, Any]:
    cells = {column.name: cell for column in columns if (cell := row.cell(column.name)) is not None}
    return {
        "name": row.name,
        "dtype": row.dtype,
        "kind": row.kind,
        "cells": {name: _cell_json(cell) for name, cell in cells.items()},
        "cases": [list(_case_json(entry, columns)) for entry in row.entries],
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    verdict = cell.verdict
    return {
        "outcome": str(verdict.outcome),
        "reason": verdict.reason,
        "outcomes": {str(outcome): cell.outcomes[outcome] for outcome in Outcome if outcome in cell.outcomes},
        "worst": cell.worst,
        "kernels": list(verdict.kernels),
        "steps": verdict.steps,
        **_difference_json(verdict.difference),
        "versus": None if cell.versus is None else _difference_json(cell.versus),
    }


def _difference_json(difference: Difference | None) -> dict[str, Any]:
    if difference is None:
        return {}
    return {
        "max_relative": difference.max_relative,
        "mean_relative": difference.mean_relative,
        "max_absolute": difference.max_absolute,
        "max_ulps": difference.max_ulps,
        "share": difference.share,
        "wrong": difference.wrong,
        "elements": difference.elements,
    }


def _case_json(entry: Entry, columns: Sequence[Column]) -> Iterator[Any]:
    """Id, note, and for each column outcome, largest relative error and units in the last place."""
    yield entry.id
    yield entry.note
    for column in columns:
        verdict = entry.verdicts.get(column.name)
        if verdict is None:
            yield None
            continue
        difference = verdict.difference or Difference()
        yield [str(verdict.outcome), difference.max_relative, difference.max_ulps]
