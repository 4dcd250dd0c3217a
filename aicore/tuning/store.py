"""Measured records in one SQLite file that all processes of a user share.

The file is never trusted: whatever is wrong with it, or with a record in it, is a counted miss with a reason.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from aicore.config import Config, cache_folder
from aicore.errors import TuningError
from aicore.tuning.records import Record, RecordError

FORMAT = 1
_APPLICATION = 0x61696372
"""`aicr`: tells our files from other people's."""
_WAIT_SECONDS = 30.0
_MOST_FOREIGN = 16

_log = logging.getLogger("aicore.tuning")
_said: set[str] = set()
"""What this process has said of files that keep nothing."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    device TEXT NOT NULL, problem TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (device, problem)
) WITHOUT ROWID
"""


class Row(NamedTuple):
    """One record with what it holds for: texts of device and problem."""

    device: str
    problem: str
    record: Record


class TuningStore:
    """Records by device and problem. Threads and processes may use one file at once; a record is written whole.

    path: the file; it is made when the first record is kept.
    misses: how often, by reason, nothing was found.
    hits: how many records were found.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hits = 0
        self.misses: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self._problem = ""
        self._owner = 0

    @classmethod
    def of(cls, config: Config) -> TuningStore:
        """The store of this configuration: `tuning.sqlite` in the folder of caches."""
        return cls(cache_folder(config) / "tuning.sqlite")

    @property
    def unusable(self) -> str:
        """Why there can be no record at all; empty for a store that can be read."""
        with self._lock:
            try:
                self._open()
            except _UnusableError as error:
                return str(error)
        return ""

    def find(self, device: str, problem: str) -> Record | str:
        """The record for exactly this device and problem; when there is none, the reason, which is counted."""
        found = self.peek(device, problem)
        with self._lock:
            if isinstance(found, str):
                self.misses[found] += 1
            else:
                self.hits += 1
        return found

    def peek(self, device: str, problem: str) -> Record | str:
        """As `find`, without counting."""
        with self._lock:
            try:
                rows = self._select("SELECT value FROM records WHERE device = ? AND problem = ?", device, problem)
                return Record.parse(rows[0][0]) if rows else "not measured on this device"
            except _UnusableError as error:
                return str(error)
            except RecordError as error:
                return f"a damaged record: {error}"

    def has(self, device: str, prefix: str) -> bool:
        """Whether there is any record of the device for problems that begin so."""
        query = "SELECT problem FROM records WHERE device = ? AND problem >= ? AND problem < ? LIMIT 1"
        with self._lock:
            try:
                return bool(self._select(query, device, prefix, f"{prefix}\uffff"))
            except _UnusableError:
                return False

    def foreign(self, device: str, problem: str) -> list[Record]:
        """What other devices found for the problem: no answer here, but a hint at what to try first."""
        query = "SELECT value FROM records WHERE problem = ? AND device <> ? ORDER BY device LIMIT ?"
        with self._lock:
            try:
                rows = self._select(query, problem, device, _MOST_FOREIGN)
            except _UnusableError:
                return []
        return list(_sound(text for (text,) in rows))

    def keep(self, rows: Iterable[Row]) -> int:
        """Write records in one transaction, replacing older ones, and return how many.

        Raises TuningError, with the fix, for a file that cannot be written or that is something else.
        """
        values = [(row.device, row.problem, row.record.text()) for row in rows]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect(self.path.as_posix())) as connection:
                if _holds_something(connection):
                    _check_format(connection)
                _let_readers_in(connection)
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    _prepare(connection)
                    connection.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", values)
        except (sqlite3.Error, OSError, _UnusableError) as error:
            text = f"{self.path} cannot keep what was measured: {error}; fix: delete the file, or set AICORE_CACHE_DIR"
            raise TuningError(text) from error
        self.forget_connection()
        return len(values)

    def keep_or_say(self, rows: Iterable[Row]) -> None:
        """As `keep`, but a file that cannot be written is told to the user: once in a process, file and reason."""
        try:
            self.keep(rows)
        except TuningError as error:
            if str(error) not in _said:
                _said.add(str(error))
                _log.warning("%s", error)

    def rows(self) -> Iterator[Row]:
        """Every sound record. Raises TuningError for a file that cannot be read."""
        with self._lock:
            try:
                found = self._select("SELECT device, problem, value FROM records ORDER BY device, problem")
            except _UnusableError as error:
                if self.path.exists():
                    raise TuningError(f"{self.path}: {error}") from error
                found = []
        for device, problem, value in found:
            for record in _sound([value]):
                yield Row(device, problem, record)

    def forget_connection(self) -> None:
        """Open the file anew at the next look, since it may be there now, or be another one."""
        with self._lock:
            if self._reader is not None and self._owner == os.getpid():
                self._reader.close()
            self._reader, self._problem = None, ""

    def _select(self, query: str, *values: object) -> list[tuple[str, ...]]:
        try:
            return self._open().execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise _UnusableError(f"the store cannot be read: {error}") from error

    def _open(self) -> sqlite3.Connection:
        """A connection for reading; why there is none is remembered, so that it costs nothing to ask again."""
        if self._owner != os.getpid():  # SQLite's connections do not survive a fork
            self._reader, self._problem, self._owner = None, "", os.getpid()
        if self._problem:
            raise _UnusableError(self._problem)
        if self._reader is None:
            try:
                self._reader = self._checked()
            except (sqlite3.Error, OSError, _UnusableError) as error:
                self._problem = (
                    str(error) if isinstance(error, _UnusableError) else f"the store cannot be read: {error}"
                )
                raise _UnusableError(self._problem) from error
        return self._reader

    def _checked(self) -> sqlite3.Connection:
        if not self.path.exists():
            raise _UnusableError("nothing was measured yet")
        connection = self._connect(f"file:{_escaped(self.path)}?mode=ro", uri=True)
        try:
            _check_format(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, name: str, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(name, timeout=_WAIT_SECONDS, uri=uri, isolation_level=None, check_same_thread=False)


class _UnusableError(Exception):
    """Why a file gives no records."""


def _escaped(path: Path) -> str:
    from urllib.parse import quote

    return quote(path.absolute().as_posix())


def _check_format(connection: sqlite3.Connection) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != _APPLICATION:
        raise _UnusableError("the store is no file of aicore's")
    if version != FORMAT:
        raise _UnusableError(f"the store has format {version}, not {FORMAT}")


def _holds_something(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _let_readers_in(connection: sqlite3.Connection) -> None:
    """Write ahead, so that nobody waits for a writer. Of processes that do this at once one succeeds."""
    with contextlib.suppress(sqlite3.OperationalError):  # a busy file keeps its mode, which is slower, not wrong
        connection.execute("PRAGMA journal_mode = WAL")


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the table in an empty file; refuse one that holds anything else."""
    if _holds_something(connection):
        _check_format(connection)
        return
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute(_SCHEMA)


def _sound(texts: Iterable[object]) -> Iterator[Record]:
    for text in texts:
        try:
            yield Record.parse(text)
        except RecordError:
            continue
