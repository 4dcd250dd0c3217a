"""Records as one JSON file, to be carried to another machine or kept with a project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aicore.errors import TuningError
from aicore.tuning.records import LARGEST, Record, RecordError
from aicore.tuning.store import Row, TuningStore

FORMAT = "aicore tuning records 1"
_LARGEST_FILE = 256 << 20


def export_records(store: TuningStore) -> dict[str, Any]:
    """All sound records of a store. Raises TuningError for a store that cannot be read."""
    rows = [{"device": row.device, "problem": row.problem, "record": row.record.to_json()} for row in store.rows()]
    return {"format": FORMAT, "records": rows}


def import_records(store: TuningStore, file: Path) -> tuple[int, int]:
    """Add the records of an exported file: (how many were added, how many the store has a newer one of).

    Raises TuningError naming what is wrong with a file that `export_records` did not make; then nothing is added.
    """
    rows = _read(file)
    newest = {(row.device, row.problem): row.record.time for row in store.rows()}
    wanted = [row for row in rows if row.record.time >= newest.get((row.device, row.problem), "")]
    if wanted:
        store.keep(wanted)
    return len(wanted), len(rows) - len(wanted)


def _read(file: Path) -> list[Row]:
    try:
        if file.stat().st_size > _LARGEST_FILE:
            raise TuningError(f"{file} is larger than {_LARGEST_FILE >> 20} MiB")
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TuningError(f"{file} cannot be read: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("records"), list):
        raise TuningError(f"{file} holds no tuning records: its format should be {FORMAT!r}")
    return [_row(file, i, item) for i, item in enumerate(data["records"])]


def _row(file: Path, index: int, item: Any) -> Row:
    try:
        if not isinstance(item, dict):
            raise RecordError("it is no table")
        return Row(_text(item, "device"), _text(item, "problem"), Record.from_json(item.get("record")))
    except RecordError as error:
        raise TuningError(f"{file}: record {index}: {error}") from error


def _text(item: dict[str, Any], name: str) -> str:
    text = item.get(name)
    if not isinstance(text, str) or not 0 < len(text) <= LARGEST:
        raise RecordError(f"it names no {name}")
    return text
