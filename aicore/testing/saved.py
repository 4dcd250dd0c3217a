"""A matrix with all results in one .npz file without pickle, to compare targets that live on different machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np

from aicore.errors import ModelError
from aicore.numerics.difference import Difference
from aicore.testing.outcomes import Outcome, Verdict
from aicore.testing.parity import Column, Entry, Matrix, with_versus
from aicore.testing.storage import from_plain, to_plain

Array = np.ndarray[Any, Any]
_FORMAT = 1
_ABOUT = "about"
T = TypeVar("T")


def save_matrix(matrix: Matrix, file: Path) -> None:
    """Write the matrix: verdicts as JSON text, results as arrays."""
    arrays: dict[str, Array] = {}
    entries = [_entry_data(entry, i, arrays) for i, entry in enumerate(matrix.entries)]
    about = {
        "format": _FORMAT,
        "title": matrix.title,
        "remarks": list(matrix.remarks),
        "columns": [asdict(column) for column in matrix.columns],
        "entries": entries,
    }
    arrays[_ABOUT] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    with file.open("wb") as stream:  # given a name, NumPy would add .npz to it
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def load_matrix(file: Path) -> Matrix:
    """What `save_matrix` wrote. Raises ModelError naming the file when it is none of these, or damaged."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            about = json.loads(arrays[_ABOUT].tobytes().decode())
            if about["format"] != _FORMAT:
                raise ModelError(f"{file}: format {about['format']}, this version of aicore reads {_FORMAT}")
            columns = tuple(_filled(Column, column) for column in about["columns"])
            names = [column.name for column in columns]
            if len(set(names)) < len(names):
                raise ValueError(f"several columns have one name: {names}")
            entries = tuple(with_versus(_entry(data, arrays, names), columns) for data in about["entries"])
            return Matrix(_text(about["title"]), columns, entries, tuple(map(_text, about["remarks"])))
    except ModelError:
        raise
    except Exception as error:  # what NumPy, zipfile and JSON raise for a damaged file has a dozen types
        raise ModelError(f"{file} is no saved matrix that can be read: {type(error).__name__}: {error}") from error


def merge(here: Matrix, there: Matrix, source: str) -> Matrix:
    """The columns of a saved matrix beside those of this one, for the entries of this one.

    source: what to call the saved one. Where its operands were others, its verdict stands, but results are not
    compared, and the entry says so.
    """
    names = {column.name: f"{column.name}@{source}" for column in there.columns}
    renamed = [replace(column, name=names[column.name], source=column.source or source) for column in there.columns]
    columns = (*here.columns, *renamed)
    saved = {entry.id: entry for entry in there.entries}
    entries = [_merged(entry, saved.get(entry.id), names, columns) for entry in here.entries]
    absent = sum(entry.id not in saved for entry in here.entries)
    remarks = [*here.remarks, *(f"{source}: {remark}" for remark in there.remarks)]
    if absent:
        remarks.append(f"{source} has no results for {absent} of {len(here.entries)} entries")
    return Matrix(f"{here.title}, against {source}", columns, tuple(entries), tuple(remarks))


def _merged(entry: Entry, other: Entry | None, names: dict[str, str], columns: Sequence[Column]) -> Entry:
    if other is None:
        return entry
    verdicts = {names[name]: verdict for name, verdict in other.verdicts.items()}
    if other.digest != entry.digest:
        said = "other operands were used there, so that results cannot be compared"
        verdicts = {
            name: replace(v, outputs=(), reason="; ".join(filter(None, (v.reason, said))))
            for name, v in verdicts.items()
        }
    return with_versus(replace(entry, verdicts={**entry.verdicts, **verdicts}), columns)


def _entry_data(entry: Entry, number: int, arrays: dict[str, Array]) -> dict[str, Any]:
    verdicts = {}
    for place, (column, verdict) in enumerate(entry.verdicts.items()):
        dtypes = []
        for i, output in enumerate(verdict.outputs):
            arrays[f"{number}/{place}/{i}"], dtype = to_plain(output)
            dtypes.append(dtype)
        verdicts[column] = {
            "outcome": str(verdict.outcome),
            "reason": verdict.reason,
            "difference": None if verdict.difference is None else asdict(verdict.difference),
            "kernels": list(verdict.kernels),
            "steps": verdict.steps,
            "outputs": [(f"{number}/{place}/{i}", dtype) for i, dtype in enumerate(dtypes)],
        }
    about = {name: getattr(entry, name) for name in ("id", "name", "dtype", "kind", "note", "digest")}
    return {**about, "verdicts": verdicts}


def _entry(data: dict[str, Any], arrays: Any, columns: Sequence[str]) -> Entry:
    saved = data.pop("verdicts")
    unknown = sorted(set(saved) - set(columns))
    if unknown:
        raise ValueError(f"entry {data['id']!r} has a verdict for {unknown[0]!r}, which is no column")
    return _filled(Entry, {**data, "verdicts": {column: _verdict(one, arrays) for column, one in saved.items()}})


def _verdict(saved: dict[str, Any], arrays: Any) -> Verdict:
    return Verdict(
        Outcome(saved["outcome"]),
        _text(saved["reason"]),
        None if saved["difference"] is None else _filled(Difference, saved["difference"]),
        tuple(map(_text, saved["kernels"])),
        int(saved["steps"]),
        tuple(from_plain(arrays[name], dtype) for name, dtype in saved["outputs"]),
    )


def _filled(cls: type[T], data: Mapping[str, Any]) -> T:
    """An instance of the dataclass. Raises TypeError for a field that is neither missing nor of its type."""
    made = cls(**data)
    for name, kind in get_type_hints(cls).items():
        value = getattr(made, name)
        number = kind in (int, float) and isinstance(value, (int, float))
        if kind in (str, int, float) and not number and not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r}, which is no {kind.__name__}")
    return made


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
