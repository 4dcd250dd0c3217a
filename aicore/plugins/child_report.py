"""What a child process that loads plugins writes down, line by line, and how its parent reads it.

The file holds one JSON object a line: `{"step": ...}` before each step, so that the last one tells what a silent end
interrupted, `{"fork": ...}` from each copy that a plugin makes of the process, and at the end one `{"outcome": ...}`.
It is open only while a line is written, so that a plugin that writes to any descriptor at hand does not reach it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

_COPIES_SECONDS = 2.0
"""How long a copy of the process may take to end or to come back."""
_POLL_SECONDS = 0.02
_SOONEST_STACKS = 0.1
"""Seconds. Stacks are written without the interpreter's lock, and a thread that has only begun has a torn one."""


class Report:
    """A file of what happened so far. That it exists tells the parent that the plugin's time begins.

    Each line is written at once: the next one may never come. `limit` seconds later the stacks go to stderr.
    """

    def __init__(self, path: str, limit: float) -> None:
        self._path = Path(path)
        self._limit = min(max(limit, _SOONEST_STACKS), 86400.0)  # what faulthandler can count
        self._process = os.getpid()
        self._forks = 0
        self._current = ""
        self._encode = json.JSONEncoder().encode  # a plugin may put something else in its place in `json`
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_parent=self._count_fork, after_in_child=self._note_fork)

    def step(self, what: str) -> None:
        self._leave_copy()
        if not self._path.exists():
            faulthandler.dump_traceback_later(self._limit)
        self._current = what
        self._write({"step": what})

    def close(self, outcome: str, **facts: Any) -> None:
        """Report the outcome; the process shall now end by itself, as one that loaded the plugin does."""
        self._leave_copy()
        self._await_copies()
        self._write({"outcome": outcome, **facts})

    def end(self, outcome: str, **facts: Any) -> NoReturn:
        """Report the outcome, and leave at once: no process of the user's will ever end as this one would."""
        self._leave_copy()
        self._write({"outcome": outcome, **facts})
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a plugin may have closed it, or put anything in its place
                stream.flush()
        os._exit(0)

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("ab") as file:
            file.write(self._encode(line).encode() + b"\n")

    def _count_fork(self) -> None:
        self._forks += 1

    def _note_fork(self) -> None:
        self._write({"fork": [os.getpid(), started(os.getpid())]})

    def _leave_copy(self) -> None:
        """End this process if it is a copy: in a program, two would go on from here."""
        if os.getpid() != self._process:
            self._write({"back": [os.getpid(), self._current]})
            os._exit(0)

    def _await_copies(self) -> None:
        """Give copies of the process time to end or to come back, so that the report tells which."""
        deadline = time.monotonic() + _COPIES_SECONDS
        while self._forks and time.monotonic() < deadline:
            lines = read_report(self._path)
            if len(lines.forks) >= self._forks and not lines.running():
                return
            time.sleep(_POLL_SECONDS)


class Lines(NamedTuple):
    """What a report says.

    steps: those that began. facts: of the end, if it was reached; among them `outcome`.
    forks: process and start of each copy. back: of those that came back out of the plugin's code, the step in which.
    """

    steps: list[str]
    facts: dict[str, Any]
    forks: list[tuple[int, int]]
    back: dict[int, str]

    def running(self) -> list[int]:
        """Processes of copies that neither ended nor came back."""
        return [process for process, since in self.forks if process not in self.back and _runs(process, since)]


def read_report(path: Path) -> Lines:
    """The report so far. Raises ValueError when anything but `Report` wrote into it; half a last line is left out."""
    lines = Lines([], {}, [], {})
    text = path.read_bytes().decode() if path.exists() else ""
    for line in text.split("\n")[:-1]:
        try:
            entry = json.loads(line)
        except RecursionError as error:
            raise ValueError(f"{line[:80]!r}... is too deep") from error
        if not isinstance(entry, dict) or not entry:
            raise ValueError(f"{line[:80]!r} is no line of it")
        kind = next(iter(entry))
        if not _SHAPES.get(kind, _nothing)(entry):
            raise ValueError(f"{line[:80]!r} is no line of it")
        match kind:
            case "step":
                lines.steps.append(entry["step"])
            case "fork":
                lines.forks.append((entry["fork"][0], entry["fork"][1]))
            case "back":
                lines.back[entry["back"][0]] = entry["back"][1]
            case _:
                lines.facts.clear()
                lines.facts.update(entry)
    return lines


def started(process: int) -> int:
    """When the process began, in the system's own ticks, which tells it from a later one of that number; else 0."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:  # it ended, or this system has no such file
        return 0
    return int(status.rpartition(")")[2].split()[19])


def _runs(process: int, since: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return state[0] not in ("Z", "X") and int(state[19]) == since


def _nothing(value: object) -> bool:
    return False


def _is_outcome(entry: Mapping[str, Any]) -> bool:
    if not all(_FACTS.get(key, _nothing)(value) for key, value in entry.items()):
        return False
    return any(needed <= entry.keys() for needed in _NEEDED[entry["outcome"]])


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_record(value: object) -> bool:
    return isinstance(value, dict) and all(_is_text(value.get(key)) for key in ("name", "state", "reason", "fix"))


_SHAPES: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "step": lambda entry: _is_text(entry["step"]),
    "fork": lambda entry: isinstance(entry["fork"], list) and list(map(type, entry["fork"])) == [int, int],
    "back": lambda entry: isinstance(entry["back"], list) and list(map(type, entry["back"])) == [int, str],
    "outcome": _is_outcome,
}
_NEEDED: Mapping[str, tuple[set[str], ...]] = {
    "loaded": ({"devices"}, {"records", "contested"}),
    "unavailable": ({"reason", "fix"},),
    "failed": ({"reason"},),
    "read": ({"info"},),
}
"""What each outcome must say: any one of these sets. Of several plugins together, it has their records."""
_FACTS: Mapping[str, Callable[[Any], bool]] = {
    "outcome": lambda value: isinstance(value, str) and value in _NEEDED,
    **dict.fromkeys(("reason", "fix", "error", "traceback"), _is_text),
    **dict.fromkeys(("devices", "notes", "changes", "damages", "threads"), _are_texts),
    "info": lambda value: isinstance(value, dict),
    "records": lambda value: isinstance(value, list) and all(map(_is_record, value)),
    "contested": lambda value: isinstance(value, list) and all(_are_texts(item) and len(item) == 2 for item in value),
}
"""What may be in an outcome. `changes` and `damages` are those that `host_state` sees; `threads` those that go on."""
