"""Does a rule or pass pay? The program with it and without it: numbers first, then time in pairs, nodes and memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from aicore.errors import AicoreError
from aicore.experiments.sides import Bench, Feeds, Side, check_store, difference_json, pass_names
from aicore.ir import Graph
from aicore.numerics.difference import Difference
from aicore.passes import Choices
from aicore.plugins import PluginRegistry, plugin_registry
from aicore.records import dataclass
from aicore.runtime import using_threads
from aicore.tuning import Comparison, compare_runs
from aicore.tuning.graphs import DEFAULT
from aicore.tuning.graphs import Verdict as KeptVerdict
from aicore.tuning.paired import MARGIN
from aicore.views import View

Decision: TypeAlias = Literal["keep", "reject", "no difference"]
_STYLES = {"keep": "bold green", "reject": "bold red", "no difference": "bold yellow"}


@dataclass(frozen=True)
class ABResult(View):
    """What a rule or pass does for one model on one target.

    name: of the rule or pass. rival: what it was compared with, in words.
    with_it, without: the two programs.
    time: of `with_it` over `without`; None where time was not what decided.
    between: the results of `with_it` beside those of `without`.
    reason: of the verdict.
    kept: what was stored for later compilations, in words; empty when nothing was.
    finished: False when timing was interrupted; the interval holds nevertheless, but nothing is stored.
    """

    name: str
    target: str
    rival: str
    with_it: Side
    without: Side
    time: Comparison | None
    between: Difference
    verdict: Decision
    reason: str
    notes: tuple[str, ...] = ()
    kept: str = ""
    finished: bool = True

    def rows(self) -> list[tuple[str, str, str, str]]:
        """(what, with it, without, difference)."""
        a, b = self.with_it, self.without
        found: list[tuple[str, str, str, str]] = [("choices", str(a.choices), str(b.choices), "")]
        if self.time is not None:
            t = self.time
            mine, theirs = (f"{seconds * 1e3:.4g} ms" for seconds in reversed(t.seconds))
            span = f" [{t.low - 1:+.1%}, {t.high - 1:+.1%}]" if math.isfinite(t.high) else ", too few pairs to tell"
            found.append(("time", mine, theirs, f"{t.ratio - 1:+.1%}{span}"))
        found.append(("nodes", str(a.nodes), str(b.nodes), f"{a.nodes - b.nodes:+d}"))
        found.append(("kernels run", str(a.steps), str(b.steps), f"{a.steps - b.steps:+d}"))
        found.append(
            ("arena, KiB", f"{a.arena / 1024:.1f}", f"{b.arena / 1024:.1f}", f"{(a.arena - b.arena) / 1024:+.1f}")
        )
        found.append(("from reference", _far(a.difference), _far(b.difference), f"between both {_far(self.between)}"))
        return found

    def __str__(self) -> str:
        lines = [f"{self.name} on {self.target}, against {self.rival}"]
        lines += [f"  {what:16} {a:>24} {b:>24}  {more}" for what, a, b, more in self.rows()]
        lines.append(f"verdict: {self.verdict}: {self.reason}")
        return "\n".join([*lines, *self.notes, *([self.kept] if self.kept else [])])

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table("", "with", "without", "difference", box=None, pad_edge=False)
        for row in self.rows():
            table.add_row(*map(Text, row))
        heading = Text(f"{self.name} on {self.target}, against {self.rival}", "bold")
        verdict = Text(f"{self.verdict}: {self.reason}", _STYLES[self.verdict])
        return Group(heading, table, verdict, *map(Text, (*self.notes, *filter(None, [self.kept]))))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "target": self.target,
            "against": self.rival,
            "with": self.with_it.to_json(),
            "without": self.without.to_json(),
            "time": None if self.time is None else self.time.to_json(),
            "between": difference_json(self.between),
            "verdict": self.verdict,
            "reason": self.reason,
            "notes": list(self.notes),
            "kept": self.kept or None,
            "finished": self.finished,
        }


def ab(
    graph: Graph,
    name: str,
    feeds: Feeds,
    *,
    target: str | None = None,
    against: str = "",
    seconds: float = 10.0,
    keep: bool = False,
    threads: int | None = None,
    registry: PluginRegistry | None = None,
    advance: Callable[[Comparison], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> ABResult:
    """Compile the model with a rule or pass and without it, and say whether it should stay.

    name: of the rule or pass. feeds: an array for each input.
    against: what to compare with instead: `none` for the passes without which nothing runs, `default`, or choices as
        text (see `Choices`). Empty means the same choices without the rule or pass.
    seconds: to time at most. keep: store the verdict, so that `compile` follows it on this device, for this graph and
    these shapes. An interrupt ends timing with what the pairs said until then, and stores nothing.
    Raises ConfigError for a name that is none, InputError for feeds that are not those of the inputs, TuningError when
    the verdict cannot be stored, AicoreError when the model compiles in neither way.
    """
    registry = plugin_registry() if registry is None else registry
    _check_known(registry, name, against)
    if keep:
        check_store()
    bench = Bench(graph, feeds, target, registry, threads)
    base = bench.in_force()
    wanted, rival = base.including(name), _rival(bench, base, name, against)
    with_it, without = bench.side(wanted), bench.side(rival)
    if with_it.program is None and without.program is None:
        raise AicoreError(f"the model runs neither with {name} nor without it: {with_it.error}")
    compared, finished = None, True
    found = _by_numbers(bench, with_it, without)
    if found is None:
        compared, finished = _timed(bench.runner(without), bench.runner(with_it), seconds, advance, clock)
        found = _by_time(compared)
    verdict, reason = found
    told = against or f"the same without {name}"
    notes = [f"no reference: {bench.no_reference}"] if bench.no_reference else []
    notes += [] if finished else [f"interrupted{', so nothing is kept' if keep else ''}"]
    result = ABResult(
        name, bench.target, told, with_it, without, compared, bench.between(with_it, without), verdict, reason,
        tuple(notes), finished=finished,
    )  # fmt: skip
    return _kept(bench, result) if keep and finished else result


def _check_known(registry: PluginRegistry, name: str, against: str) -> None:
    """Before anything runs, which may take long."""
    from aicore.testing.wholes import all_passes

    passes = all_passes(registry).values()
    Choices(off=(name,)).check(passes)
    if against not in ("", "none"):
        Choices.parse(against).check(passes)


def _timed(
    base: Callable[[], object],
    other: Callable[[], object],
    seconds: float,
    advance: Callable[[Comparison], object] | None,
    clock: Callable[[], float],
) -> tuple[Comparison, bool]:
    """(what the pairs say, whether that is all of them). Raises KeyboardInterrupt before the first pair."""
    states: list[Comparison] = []

    def told(state: Comparison) -> None:
        states[:] = [state]
        if advance is not None:
            advance(state)

    try:
        return compare_runs(base, other, seconds, advance=told, clock=clock), True
    except KeyboardInterrupt:
        if not states:
            raise
        return states[0], False


def _rival(bench: Bench, base: Choices, name: str, against: str) -> Choices:
    if not against:
        return base.without(name)
    return Choices(off=tuple(sorted(pass_names(bench)))) if against == "none" else Choices.parse(against)


def _by_numbers(bench: Bench, with_it: Side, without: Side) -> tuple[Decision, str] | None:
    """The verdict, where numbers or a failure decide; a wrong result is never worth its speed."""
    if with_it.wrong and without.wrong:
        return "no difference", f"both are wrong ({with_it.wrong}); `aicore bisect` finds what is to blame"
    if with_it.wrong:
        return "reject", f"its results are wrong: {with_it.wrong}"
    if without.wrong:
        return "keep", f"without it, results are wrong: {without.wrong}"
    if bench.whole is None and not bench.is_close(with_it, without):
        return "reject", f"it changes results: {bench.between(with_it, without).text or 'beyond 1e-4 of the largest'}"
    if with_it.rolled_back and not without.rolled_back:
        return "reject", with_it.rolled_back
    if with_it.fingerprint == without.fingerprint:
        return "no difference", "the program is the same: nothing matches that nothing else would do as well"
    return None


def _by_time(compared: Comparison) -> tuple[Decision, str]:
    if math.isinf(compared.high):
        return "no difference", f"{compared.ratio - 1:+.1%} of the time, but {compared.pairs} pairs are too few to tell"
    span = f"{compared.ratio - 1:+.1%} of the time, with 95 % confidence {compared.low - 1:+.1%} to "
    span += f"{compared.high - 1:+.1%}, {compared.pairs} pairs"
    match compared.verdict:
        case "faster":
            return "keep", f"faster: {span}"
        case "slower":
            return "reject", f"slower: {span}"
        case "equal":
            return "no difference", f"equally fast within {MARGIN:.0%}: {span}"
    return "no difference", f"none beyond the noise, or less than {MARGIN:.0%}: {span}; more time may tell"


def _kept(bench: Bench, result: ABResult) -> ABResult:
    """Store what follows from the verdict: a rule that is rejected is left out, any other one stays."""
    chosen = (result.without if result.verdict == "reject" else result.with_it).choices
    times = {side.choices: side.seconds for side in (result.with_it, result.without) if side.program is not None}
    if result.time is not None:
        times = {result.without.choices: result.time.seconds[0], result.with_it.choices: result.time.seconds[1]}
    gain = (1.0, 1.0, 1.0)
    if result.time is not None:
        t = result.time
        gain = (t.ratio, t.low, t.high) if result.verdict != "reject" else (1 / t.ratio, 1 / t.high, 1 / t.low)
    seconds = {str(choices): value for choices, value in times.items()}
    with using_threads(bench.run_threads):
        records = bench.records
        before = records.find(bench.types)
        if DEFAULT not in seconds:
            known = None if isinstance(before, str) else before.seconds.get(DEFAULT)
            seconds[DEFAULT] = known or max(seconds.values())
        refused = {f"with {result.name}": result.reason} if result.with_it.wrong else {}
        records.keep(bench.types, KeptVerdict(str(chosen), seconds, gain, refused))
    shapes = ", ".join(map(str, bench.types))
    kept = f"kept: {chosen} from now on for this graph and ({shapes}) on {result.target}, in {records.store.path}"
    return replace(result, kept=f"{kept}; AICORE_TUNE=off ignores it")


def _far(far: Difference | None) -> str:
    return "" if far is None else f"{far.max_absolute:.2e}{', wrong' if far.text else ''}"
