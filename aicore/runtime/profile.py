"""A profile: what each step took on its device and on the host, beside what the device can do at best."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from aicore.records import dataclass
from aicore.runtime.ceilings import Ceilings
from aicore.runtime.step_times import ProfileRow
from aicore.runtime.trace import Slice, chrome_trace
from aicore.views import Part, PartsView, grid, time_text

_SHOWN = 20
_HEADINGS = (
    *("time", "share", "launch", "GFLOP/s", "GB/s", "of roof"),
    *("bound", "op", "value", "kernel", "device", "type"),
)


@dataclass(frozen=True)
class RunTimes:
    """One profiled run: when it began (`time.perf_counter`), its seconds from feeds to results, and its steps."""

    start: float
    wall: float
    rows: tuple[ProfileRow, ...]


@dataclass(frozen=True)
class Place:
    """Where a step stands in the roofline of its device.

    bound: `compute` or `memory`, whichever would take longer at the ceilings.
    share: the least time that the ceilings allow over the time taken; above 1 where caches serve what would be read
        from memory, or a kernel needs fewer operations than the op's definition has.
    """

    bound: str
    share: float


@dataclass(frozen=True)
class Profile(PartsView):
    """Runs, step by step.

    runs: each profiled run as it happened.
    plain: seconds of ordinary runs, taken in turn with them: profiling itself costs time.
    ceilings: by device. reasons: by device, why it has none.
    """

    runs: tuple[RunTimes, ...]
    plain: tuple[float, ...] = ()
    ceilings: Mapping[str, Ceilings] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[ProfileRow, ...]:
        """Each step with the shortest time that it took in any run, so that their sum is at most `wall`."""
        by_step = zip(*(run.rows for run in self.runs), strict=True)
        return tuple(min(times, key=lambda row: row.seconds) for times in by_step)

    @property
    def seconds(self) -> float:
        """Of all steps on their devices."""
        return sum(row.seconds for row in self.rows)

    @property
    def wall(self) -> float:
        """Of the shortest profiled run, from feeds to results."""
        return min(run.wall for run in self.runs)

    @property
    def outside(self) -> float:
        """Seconds of a profiled run that are no step's, the least of all runs."""
        return min(run.wall - sum(row.seconds for row in run.rows) for run in self.runs)

    @property
    def run(self) -> float | None:
        """Of an ordinary run, the median."""
        return statistics.median(self.plain) if self.plain else None

    @property
    def best(self) -> float | None:
        """Of an ordinary run, the shortest."""
        return min(self.plain, default=None)

    def place(self, row: ProfileRow) -> Place | None:
        """None where sizes or ceilings are not known, and for moves and control flow."""
        ceilings = self.ceilings.get(row.device)
        if ceilings is None or row.flops is None or row.nbytes is None or not row.seconds:
            return None
        bound = "compute" if row.flops / ceilings.flops > row.nbytes / ceilings.bytes else "memory"
        return Place(bound, ceilings.least_seconds(row.flops, row.nbytes) / row.seconds)

    def trace(self) -> dict[str, Any]:
        """All runs in the JSON of Chrome's trace events, which Perfetto and chrome://tracing open."""
        first = self.runs[0].start
        slices = []
        for number, run in enumerate(self.runs):
            slices.append(Slice("host", "host", f"run {number}", run.start - first, run.wall, {}))
            for row in run.rows:
                slices.extend(_slices(row, row.start - first, self.place(row)))
        ceilings = {device: str(one) for device, one in self.ceilings.items()}
        return chrome_trace(slices, {"ceilings": ceilings, "plain_runs": list(self.plain)})

    def parts(self) -> Iterator[Part]:
        slowest = sorted(self.rows, key=lambda row: -row.seconds)[:_SHOWN]
        count = len(self.rows)
        shown = f"the slowest {len(slowest)} of " if len(slowest) < count else ""
        yield f"{shown}{count} steps, {time_text(self.seconds)} in all, each at its best of {len(self.runs)} runs"
        plain = "" if self.run is None else f"; an ordinary run {time_text(self.run)} in the median"
        yield f"a profiled run takes {time_text(self.wall)}, {time_text(self.outside)} of it outside of steps{plain}"
        for device, ceilings in self.ceilings.items():
            yield f"ceilings of {device}: {ceilings}"
        for device, reason in self.reasons.items():
            yield f"no ceilings of {device}: {reason}"
        yield grid(_HEADINGS, map(self._cells, slowest), right=_HEADINGS[:6])

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "wall": self.wall,
            "outside": self.outside,
            "run": self.run,
            "best": self.best,
            "runs": len(self.runs),
            "ceilings": {
                device: {"flops": one.flops, "bytes": one.bytes, "source": one.source}
                for device, one in self.ceilings.items()
            },
            "reasons": dict(self.reasons),
            "rows": [self._row_json(row) for row in self.rows],
        }

    def _row_json(self, row: ProfileRow) -> dict[str, Any]:
        place = self.place(row)
        return {
            "step": row.name,
            "op": row.op,
            "value": row.value,
            "types": row.types,
            "kernel": row.kernel,
            "device": row.device,
            "seconds": row.seconds,
            "host": row.host,
            "flops": row.flops,
            "bytes": row.nbytes,
            "bound": None if place is None else place.bound,
            "of_roof": None if place is None else place.share,
        }

    def _cells(self, row: ProfileRow) -> Sequence[str]:
        place = self.place(row)
        return (
            time_text(row.seconds),
            f"{row.seconds / (self.seconds or 1.0):.1%}",
            time_text(row.host) if row.host else "",
            _rate(row.flops, row.seconds),
            _rate(row.nbytes, row.seconds),
            "" if place is None else f"{place.share:.0%}",
            "" if place is None else place.bound,
            row.op or row.name,
            row.value,
            row.kernel,
            row.device,
            row.types,
        )


def _slices(row: ProfileRow, start: float, place: Place | None) -> Iterator[Slice]:
    """On its device, and on the host where that waited for it: the device's part ends with the wait."""
    said: dict[str, Any] = {
        "kernel": row.kernel,
        "node": row.name,
        "types": row.types,
        "flops": row.flops,
        "bytes": row.nbytes,
    }
    if place is not None:
        said |= {"bound": place.bound, "of_roof": round(place.share, 3)}
    name = row.op or row.name
    if row.host:
        yield Slice("host", "host", f"launch {name}", start, row.host + row.seconds, {"node": row.name})
    yield Slice(row.device, "steps", name, start + row.host, row.seconds, said)


def _rate(amount: int | None, seconds: float) -> str:
    return f"{amount / seconds / 1e9:.3g}" if amount and seconds else ""
