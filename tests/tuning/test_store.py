"""The store: shared by processes, never trusted, never in the way."""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aicore.errors import TuningError
from aicore.tuning import Record, RecordError, Row, TuningStore, export_records, import_records

RECORD = Record("b", "a", {"a": 2e-3, "b": 1e-3}, (0.5, 0.4, 0.6), "c0de", {"c": "wrong"}, "2026-01-02T03:04:05+00:00")


@pytest.fixture
def store(tmp_path: Path) -> TuningStore:
    return TuningStore(tmp_path / "caches" / "tuning.sqlite")


def test_what_is_kept_is_found_for_exactly_that_device_and_problem(store: TuningStore) -> None:
    assert store.keep([Row("here", "Conv(x)", RECORD)]) == 1
    for one in (store, TuningStore(store.path)):
        assert one.find("here", "Conv(x)") == RECORD
        assert one.find("there", "Conv(x)") == "not measured on this device"
        assert one.find("here", "Conv(y)") == "not measured on this device"
        assert (one.hits, dict(one.misses)) == (1, {"not measured on this device": 2})
        assert one.foreign("there", "Conv(x)") == [RECORD]
        assert one.foreign("here", "Conv(x)") == []


def test_a_newer_record_replaces_the_older(store: TuningStore) -> None:
    store.keep([Row("here", "p", RECORD)])
    store.keep([Row("here", "p", replace(RECORD, chosen="a"))])
    assert store.find("here", "p") == replace(RECORD, chosen="a")


def test_nothing_measured_yet_is_a_miss_and_makes_no_file(store: TuningStore) -> None:
    assert store.find("here", "p") == "nothing was measured yet"
    assert store.unusable == "nothing was measured yet"
    assert list(store.rows()) == []
    assert not store.path.parent.exists()


def test_a_store_that_another_process_makes_is_seen_by_the_next_one(store: TuningStore) -> None:
    assert store.find("here", "p") == "nothing was measured yet"
    TuningStore(store.path).keep([Row("here", "p", RECORD)])
    assert TuningStore(store.path).find("here", "p") == RECORD


def write(path: Path, *rows: tuple[Any, ...], version: int = 1, application: int = 0x61696372) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(f"PRAGMA application_id = {application}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute(
            "CREATE TABLE records (device TEXT, problem TEXT, value TEXT, PRIMARY KEY (device, problem))"
        )
        connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
    connection.close()


def corrupt(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"SQLite format 3\x00" + bytes(range(256)) * 40)


def garbage(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("no database at all")


def truncated(path: Path) -> None:
    write(path, *(("here", f"p{i}", RECORD.text()) for i in range(200)))
    path.write_bytes(path.read_bytes()[:5000])


BROKEN = {
    "corrupt": (corrupt, "the store cannot be read"),
    "garbage": (garbage, "the store cannot be read: file is not a database"),
    "truncated": (truncated, "the store cannot be read"),
    "folder": (lambda path: path.mkdir(parents=True), "the store cannot be read"),
    "older": (lambda path: write(path, version=0), "the store has format 0, not 1"),
    "newer": (lambda path: write(path, version=2), "the store has format 2, not 1"),
    "foreign": (lambda path: write(path, application=7), "the store is no file of aicore's"),
    "another table": (lambda path: sqlite3.connect(path).close(), "the store is no file of aicore's"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_store_is_a_counted_miss_with_the_reason(kind: str, store: TuningStore) -> None:
    damage, reason = BROKEN[kind]
    if kind == "another table":
        store.path.parent.mkdir(parents=True)
    damage(store.path)
    for _ in range(2):
        found = store.find("here", "p")
        assert isinstance(found, str)
        assert found.startswith(reason)
    assert sum(store.misses.values()) == 2
    assert store.foreign("here", "p") == []


@pytest.mark.parametrize("kind", ["corrupt", "garbage", "folder", "older", "newer", "foreign"])
def test_a_broken_store_is_never_overwritten(kind: str, store: TuningStore) -> None:
    BROKEN[kind][0](store.path)
    before = store.path.read_bytes() if store.path.is_file() else b""
    with pytest.raises(TuningError, match=r"cannot keep what was measured: .*; fix: delete the file"):
        store.keep([Row("here", "p", RECORD)])
    assert (store.path.read_bytes() if store.path.is_file() else b"") == before


def test_an_empty_file_becomes_a_store(store: TuningStore) -> None:
    store.path.parent.mkdir(parents=True)
    store.path.touch()
    store.keep([Row("here", "p", RECORD)])
    assert store.find("here", "p") == RECORD


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may write everywhere")
def test_a_folder_that_cannot_be_written(store: TuningStore) -> None:
    store.path.parent.mkdir(mode=0o500, parents=True)
    with pytest.raises(TuningError, match="cannot keep what was measured"):
        store.keep([Row("here", "p", RECORD)])


def changed(**fields: Any) -> str:
    return json.dumps({**RECORD.to_json(), **fields})


TAMPERED = {
    "no JSON": "{",
    "a list": "[]",
    "a number": "1e-3",
    "null": "null",
    "a field less": json.dumps({k: v for k, v in RECORD.to_json().items() if k != "gain"}),
    "a field more": changed(extra=1),
    "a negative time": changed(seconds={"a": 1e-3, "b": -1e-3}),
    "no time at all": changed(seconds={"a": 1e-3, "b": 0}),
    "a time that is NaN": changed(seconds={"a": 1e-3, "b": float("nan")}),
    "a time without end": changed(seconds={"a": 1e-3, "b": float("inf")}),
    "a time that is true": changed(seconds={"a": 1e-3, "b": True}),
    "a time in words": changed(seconds={"a": 1e-3, "b": "fast"}),
    "an hour and more": changed(seconds={"a": 1e-3, "b": 4000}),
    "a choice that was not timed": changed(chosen="z"),
    "a choice that was wrong": changed(chosen="a", refused={"a": "wrong"}),
    "a choice that is a number": changed(chosen=1),
    "a gain of two numbers": changed(gain=[1, 1]),
    "a gain outside its interval": changed(gain=[0.5, 0.6, 0.7]),
    "a gain without end": changed(gain=[0.5, 0.4, float("inf")]),
    "times that are a list": changed(seconds=[1e-3]),
    "too many candidates": changed(refused={str(i): "" for i in range(2000)}),
    "too long": changed(time="9" * 70000),
    "deep": "[" * 50000,
    "bytes": RECORD.text().encode(),
    "nothing": None,
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_a_tampered_record_is_a_counted_miss(kind: str, store: TuningStore) -> None:
    write(store.path, ("here", "p", TAMPERED[kind]), ("there", "p", TAMPERED[kind]), ("here", "q", RECORD.text()))
    found = store.find("here", "p")
    assert isinstance(found, str)
    assert found.startswith("a damaged record: ")
    assert store.misses == {found: 1}
    assert store.foreign("nowhere", "p") == []
    assert store.find("here", "q") == RECORD
    assert [row.problem for row in store.rows()] == ["q"]


def test_records_are_plain_json() -> None:
    assert Record.parse(RECORD.text()) == RECORD
    with pytest.raises(RecordError, match="it is no text"):
        Record.parse("x" * 70000)


def keep_many(path: str, writer: int, count: int) -> None:
    store = TuningStore(Path(path))
    for i in range(count):
        store.keep([Row("here", f"own {writer} {i}", RECORD), Row("here", "common", replace(RECORD, time=str(writer)))])


def test_sixteen_processes_at_once_lose_and_tear_nothing(store: TuningStore) -> None:
    writers, count = 16, 12
    context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
    processes = [context.Process(target=keep_many, args=(str(store.path), i, count)) for i in range(writers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * writers
    rows = {row.problem: row.record for row in store.rows()}
    assert rows.pop("common").time in {str(i) for i in range(writers)}
    assert rows == {f"own {writer} {i}": RECORD for writer in range(writers) for i in range(count)}
    connection = sqlite3.connect(store.path)
    assert connection.execute("SELECT count(*) FROM records").fetchone()[0] == writers * count + 1
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    connection.close()


def test_a_store_survives_a_fork(store: TuningStore) -> None:
    store.keep([Row("here", "p", RECORD)])
    assert store.find("here", "p") == RECORD
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    child = os.fork()
    if child == 0:
        os._exit(0 if store.find("here", "p") == RECORD else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.find("here", "p") == RECORD


def test_export_and_import_carry_everything(store: TuningStore, tmp_path: Path) -> None:
    rows = [Row("here", "p", RECORD), Row("there", "q", replace(RECORD, chosen="a"))]
    store.keep(rows)
    file = tmp_path / "records.json"
    file.write_text(json.dumps(export_records(store)))
    other = TuningStore(tmp_path / "other.sqlite")
    assert import_records(other, file) == (2, 0)
    assert list(other.rows()) == rows


def test_the_newer_of_two_records_stays_when_stores_are_merged(store: TuningStore, tmp_path: Path) -> None:
    old, new = replace(RECORD, time="2026-01-01T00:00:00+00:00"), replace(RECORD, time="2026-06-01T00:00:00+00:00")
    store.keep([Row("here", "p", old), Row("here", "q", new)])
    file = tmp_path / "records.json"
    file.write_text(json.dumps(export_records(store)))
    other = TuningStore(tmp_path / "other.sqlite")
    other.keep([Row("here", "p", new), Row("here", "q", old)])
    assert import_records(other, file) == (1, 1)
    assert [row.record for row in other.rows()] == [new, new]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[" * 100000, "cannot be read"),
        ("[]", "holds no tuning records"),
        ('{"format": "aicore tuning records 9", "records": []}', "holds no tuning records"),
        ('{"format": "aicore tuning records 1", "records": {}}', "holds no tuning records"),
        ('{"format": "aicore tuning records 1", "records": [1]}', "record 0: it is no table"),
        ('{"format": "aicore tuning records 1", "records": [{"problem": "p"}]}', "record 0: it names no device"),
        ('{"format": "aicore tuning records 1", "records": [{"device": "d", "problem": ""}]}', "it names no problem"),
        ('{"format": "aicore tuning records 1", "records": [{"device": "d", "problem": "p"}]}', "it has no fields"),
    ],
)
def test_a_file_that_is_no_export_adds_nothing(text: str, message: str, store: TuningStore, tmp_path: Path) -> None:
    file = tmp_path / "records.json"
    file.write_text(text)
    with pytest.raises(TuningError, match=message):
        import_records(store, file)
    assert not store.path.exists()
    with pytest.raises(TuningError, match="cannot be read"):
        import_records(store, tmp_path / "absent.json")
