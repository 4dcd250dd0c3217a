"""The JSON of Chrome's trace events (Trace Event Format, 2016), which Perfetto reads, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aicore.records import dataclass


@dataclass(frozen=True)
class Slice:
    """Something that took time: a bar in the viewer.

    process, thread: names of its place. start, seconds: since the trace began. said: shown when it is selected.
    """

    process: str
    thread: str
    name: str
    start: float
    seconds: float
    said: Mapping[str, Any]


def chrome_trace(slices: Iterable[Slice], about: Mapping[str, Any]) -> dict[str, Any]:
    """Complete events in whole nanoseconds, with names for processes and threads, which the format numbers.

    about: facts on the whole trace.
    """
    processes: dict[str, int] = {}
    threads: dict[tuple[str, str], int] = {}
    names: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    for one in slices:
        if one.process not in processes:
            pid = processes[one.process] = len(processes) + 1
            names.append(_about(pid, 0, "process_name", {"name": one.process}))
            names.append(_about(pid, 0, "process_sort_index", {"sort_index": pid}))
        pid = processes[one.process]
        if (one.process, one.thread) not in threads:
            tid = threads[one.process, one.thread] = len(threads) + 1
            names.append(_about(pid, tid, "thread_name", {"name": one.thread}))
        start = int(one.start * 1e9)
        end = int((one.start + one.seconds) * 1e9)  # rounded alike, so that what nests still nests
        events.append(
            {
                "ph": "X",
                "name": one.name,
                "cat": one.thread,
                "pid": pid,
                "tid": threads[one.process, one.thread],
                "ts": start / 1000,
                "dur": (end - start) / 1000,
                "args": {key: value for key, value in one.said.items() if value is not None},
            }
        )
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ns", "otherData": dict(about)}


def _about(pid: int, tid: int, name: str, said: Mapping[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": dict(said)}
