"""A strict reader of Chrome's trace events: what Perfetto would drop, misplace or misread is a fault.

By the Trace Event Format (Google, 2016) and the JSON importer of Perfetto: microseconds, complete events (`X`) that
nest or follow each other on one thread, and metadata (`M`) that names each process and thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

_METADATA = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}
_UNITS = ("ms", "ns")


def faults(trace: Any) -> list[str]:
    """What is wrong with the trace, in words; nothing for a good one."""
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["a trace is an object with a list of traceEvents"]
    found = [] if trace.get("displayTimeUnit", "ms") in _UNITS else ["displayTimeUnit is ms or ns"]
    events = trace["traceEvents"]
    found += [f"event {i}: {fault}" for i, event in enumerate(events) for fault in _of_event(event)]
    return found or [*_of_names(events), *_of_nesting(events)]


def _of_event(event: Any) -> Iterator[str]:
    if not isinstance(event, dict):
        yield "is no object"
        return
    if event.get("ph") not in ("X", "M"):
        yield f"phase {event.get('ph')!r}"
    if not isinstance(event.get("name"), str) or not event["name"]:
        yield "has no name"
    for key in ("pid", "tid"):
        if type(event.get(key)) is not int:
            yield f"{key} is no whole number"
    if not _is_time(event.get("ts")):
        yield "ts is no number of microseconds"
    if event.get("ph") == "X" and not _is_time(event.get("dur")):
        yield "dur is no number of microseconds"
    if not isinstance(event.get("args", {}), dict):
        yield "args is no object"
    if event.get("ph") == "M" and _METADATA.get(event.get("name", "")) not in event.get("args", {}):
        yield "metadata without its argument"


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _of_names(events: list[Mapping[str, Any]]) -> Iterator[str]:
    processes = {event["pid"] for event in events if event["name"] == "process_name"}
    threads = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    for event in events:
        if event["ph"] == "X" and event["pid"] not in processes:
            yield f"process {event['pid']} has no name"
        if event["ph"] == "X" and (event["pid"], event["tid"]) not in threads:
            yield f"thread {event['tid']} of process {event['pid']} has no name"


def _of_nesting(events: list[Mapping[str, Any]]) -> Iterator[str]:
    """Of whole nanoseconds, as Perfetto keeps them: an event lies inside another of its thread, or apart from it."""
    threads: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
    for event in events:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            end = start + round(event["dur"] * 1000)
            threads.setdefault((event["pid"], event["tid"]), []).append((start, -end, event["name"]))
    for slices in threads.values():
        open_ends: list[int] = []
        for start, minus_end, name in sorted(slices):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if open_ends and -minus_end > open_ends[-1]:
                yield f"{name} at {start} ns overlaps the end of what it began in"
            open_ends.append(-minus_end)
