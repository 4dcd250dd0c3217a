"""The first load of each installed version of a plugin happens in a child process; what came of it is remembered.

A plugin that crashes, hangs or ends the process there has failed, and this process never imports it. One that raises
an exception has passed: importing it again is safe, and gives the exception itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aicore.config import Config
from aicore.plugins.discovery import Candidate
from aicore.plugins.endings import Ending
from aicore.plugins.fingerprint import fingerprint
from aicore.plugins.verdicts import Verdict, VerdictCache, keep_or_say, now
from aicore.records import dataclass

if TYPE_CHECKING:
    from aicore.plugins.child_process import ChildReport

_log = logging.getLogger("aicore.plugins")


@dataclass(frozen=True)
class Rehearsal:
    """A verdict, and in a few words whether it is remembered, or why the plugin was tried now."""

    verdict: Verdict
    note: str


def rehearse(candidates: Iterable[Candidate], config: Config) -> dict[str, Rehearsal]:
    """Verdicts on installed plugins by name, from the cache or from child processes that run side by side.

    None for a plugin that was given as a module, or whose child process could not start, which is logged.
    """
    if not config.plugin_timeout:
        return {}
    cache = VerdictCache.of(config)
    rehearsals: dict[str, Rehearsal] = {}
    untried: dict[str, Candidate] = {}
    for candidate in candidates:
        if candidate.item is None:
            continue
        verdict = cache.find(fingerprint(candidate.item), config.plugin_timeout)
        if verdict is None:
            untried[candidate.record.name] = candidate
        else:
            rehearsals[candidate.record.name] = Rehearsal(verdict, f"remembered from {verdict.time}")
    if untried:
        rehearsals |= _try_now(untried, config.plugin_timeout, cache)
    return rehearsals


def remember(candidate: Candidate, report: ChildReport, limit: float, cache: VerdictCache) -> Verdict | None:
    """Turn the report on an installed plugin into a verdict and keep it; None when there is nothing to judge."""
    if candidate.item is None or report.ending is Ending.NOT_STARTED:
        _log.warning("plugin %s is used without a rehearsal: %s", candidate.record.label, report.reason)
        return None
    verdict = Verdict(report.ending, report.reason, limit, round(report.seconds, 3), now())
    keep_or_say(cache, fingerprint(candidate.item), verdict)
    return verdict


def _try_now(untried: dict[str, Candidate], limit: float, cache: VerdictCache) -> dict[str, Rehearsal]:
    from aicore.plugins.child_process import run_children  # not needed while verdicts are remembered

    _log.info("plugins %s are tried in child processes first", ", ".join(untried))
    reports = run_children({name: [candidate] for name, candidate in untried.items()}, limit)
    verdicts = {name: remember(untried[name], report, limit, cache) for name, report in reports.items()}
    return {name: Rehearsal(v, f"tried now: {cache.misses[name]}") for name, v in verdicts.items() if v is not None}
