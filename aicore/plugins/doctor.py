"""Tries each plugin in a child process of its own, then the healthy ones together, and says what fixes the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from aicore.config import Config
from aicore.errors import PluginError
from aicore.plugins.child_process import ChildReport, run_children
from aicore.plugins.device_names import parse_device
from aicore.plugins.discovery import PLUGINS, Candidate, discover, installed
from aicore.plugins.endings import Ending
from aicore.plugins.rehearsal import rehearse, remember
from aicore.plugins.states import Finding, PluginRecord, State
from aicore.plugins.surroundings import Problem, examine_surroundings, uses_cupy
from aicore.plugins.symptoms import Symptom, advice, symptom_of, symptom_of_ending
from aicore.plugins.verdicts import VerdictCache
from aicore.records import dataclass

_TOGETHER = "all that work alone, together"
_DETAIL_CHARACTERS = 4000
_ABSENT = "connect the device and install its driver; without it, programs run on other devices"


Status: TypeAlias = Literal["ok", "disabled", "unavailable", "failed"]
"""Whether a plugin can be used."""


@dataclass(frozen=True)
class Diagnosis:
    """One plugin: whether it can be used, why not, and what to do; of one with side effects, also when it can.

    devices: those that it found. notes: what it says of them. details: the end of a traceback or of its output.
    """

    record: PluginRecord
    status: Status
    finding: Finding = ""
    reason: str = ""
    fix: str = ""
    devices: tuple[str, ...] = ()
    seconds: float = 0.0
    details: str = ""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "name": self.record.name,
            "distribution": self.record.distribution,
            "version": self.record.version,
            "status": self.status,
            "class": self.finding,
            "reason": self.reason,
            "fix": self.fix,
            "devices": list(self.devices),
            "seconds": round(self.seconds, 6),
            "details": self.details,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Examination:
    """Plugins by name, and defects of the environment."""

    plugins: tuple[Diagnosis, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def status(self) -> Status:
        """The worst that was found; failed when no plugin is installed, as nothing can run then."""
        found = {diagnosis.status for diagnosis in self.plugins}
        if not found or self.problems or "failed" in found:
            return "failed"
        return "unavailable" if "unavailable" in found else "ok"


def examine(config: Config, name: str | None = None, done: Callable[[str], None] = lambda plugin: None) -> Examination:
    """Try the installed plugins, or the one of this name, whatever was found before, and remember the verdicts.

    A disabled plugin is tried when it is named. `config.plugin_timeout` limits each child process.
    done: called with the name of each plugin that was tried.
    Raises PluginError when no plugin of this name is installed, ConfigError as `discover` does.
    """
    afresh = {item.entry.name for item in installed(PLUGINS) if name in (None, item.entry.name)}
    candidates = discover(config if name is None else _enable(name, config), afresh)
    wanted = [c for c in candidates if name in (None, c.record.name)]
    problems = examine_surroundings()
    usable = [c for c in candidates if c.record.state is State.COMPATIBLE]
    tried = {c.record.name: c for c in wanted if c in usable}
    reports = run_children({key: [c] for key, c in tried.items()}, config.plugin_timeout, done)
    _remember(tried, reports, config)
    diagnoses = [_diagnose(c, reports.get(c.record.name), problems) for c in wanted]
    healthy = {c.record.name for c in wanted if c.record.name in tried and reports[c.record.name].outcome == "loaded"}
    if healthy:
        others = [c for c in usable if c.record.name not in tried]
        passed = {key for key, rehearsal in rehearse(others, config).items() if rehearsal.verdict.passed}
        group = [c for c in usable if c.record.name in healthy | passed]
        diagnoses, more = _try_together(group, diagnoses, config.plugin_timeout)
        problems += more
    return Examination(tuple(diagnoses), tuple(problems))


def _enable(name: str, config: Config) -> Config:
    """The configuration without what excludes this plugin."""
    known = sorted({item.entry.name for item in installed(PLUGINS)})
    if name not in known:
        raise PluginError(f"no plugin {name!r} is installed; installed plugins: {', '.join(known) or 'none'}")
    selected = None if config.plugins is None else config.plugins | {name}
    return replace(config, plugins=selected, disabled_plugins=config.disabled_plugins - {name})


def _remember(tried: Mapping[str, Candidate], reports: Mapping[str, ChildReport], config: Config) -> None:
    """What is cured since the last verdict is used again from now on."""
    cache = VerdictCache.of(config)
    for name, report in reports.items():
        if report.ending is not Ending.NOT_STARTED:
            remember(tried[name], report, config.plugin_timeout, cache)


def _diagnose(candidate: Candidate, report: ChildReport | None, problems: Sequence[Problem]) -> Diagnosis:
    record = candidate.record
    if report is None:  # discovery found enough
        status: Status = "disabled" if record.state is State.DISABLED else "failed"
        return Diagnosis(record, status, record.finding, record.reason, record.fix)
    if report.outcome == "loaded":
        return _healthy(record, report)
    reason, fix = report.reason or report.facts["reason"], report.facts.get("fix", "")
    symptom = _symptom(report, reason)
    status = "unavailable" if report.outcome == "unavailable" else "failed"
    blamed = _blame(candidate, symptom, reason, problems)
    if blamed is not None:
        reason, fix, symptom = f"{blamed.reason}; {reason}", blamed.fix, Symptom(blamed.finding)
    fix = fix or (record.info.fix_for(reason) if record.info else "")
    fix = fix or (symptom.fix or _ABSENT if status == "unavailable" else advice(symptom, record))
    details = (report.facts.get("traceback") or report.output)[-_DETAIL_CHARACTERS:]
    return Diagnosis(record, status, symptom.finding, reason, fix, (), report.seconds, details)


def _healthy(record: PluginRecord, report: ChildReport) -> Diagnosis:
    devices, notes = tuple(report.facts["devices"]), tuple(report.facts.get("notes", ()))
    found = Diagnosis(record, "ok", devices=devices, seconds=report.seconds, notes=notes)
    if not report.side_effects:
        return found
    reason = f"loading it {', '.join(report.side_effects)}"
    fix = advice(Symptom("side effects"), record)
    return replace(found, finding="side effects", reason=reason, fix=fix)


def _symptom(report: ChildReport, reason: str) -> Symptom:
    if report.ending is not Ending.RETURNED:
        return symptom_of_ending(report.ending)
    return symptom_of(reason, available=report.outcome != "unavailable")


def _blame(candidate: Candidate, symptom: Symptom, reason: str, problems: Sequence[Problem]) -> Problem | None:
    """The defect of the environment that explains the failure."""
    requires = candidate.item.requires if candidate.item else ()
    for problem in problems:
        if problem.finding == "foreign aicore" and symptom.finding == "API skew":
            return problem
        if problem.finding == "two CuPy wheels" and (uses_cupy(requires) or "cupy" in reason):
            return problem
    return None


def _try_together(
    group: Sequence[Candidate], diagnoses: Sequence[Diagnosis], limit: float
) -> tuple[list[Diagnosis], list[Problem]]:
    """Load the group in one process, as a program would, and correct the diagnoses by what that shows."""
    if len(group) < 2:
        return list(diagnoses), []
    report = run_children({_TOGETHER: group}, limit * len(group))[_TOGETHER]
    names = [candidate.record.name for candidate in group]
    if report.outcome != "loaded":
        finding = _symptom(report, report.reason).finding
        reason = f"each of {', '.join(names)} loads alone, but {report.reason}"
        fix = "set AICORE_DISABLE_PLUGINS to one of them after the other, and report the pair"
        return list(diagnoses), [Problem(finding, reason, fix)]
    records = {record["name"]: record for record in report.facts["records"]}
    contested = {parse_device(device).position: reason for device, reason in report.facts["contested"]}
    corrected = [_correct(diagnosis, records, contested) for diagnosis in diagnoses]
    return [_suspect(diagnosis, diagnoses) for diagnosis in corrected], []


def _suspect(diagnosis: Diagnosis, diagnoses: Sequence[Diagnosis]) -> Diagnosis:
    """What only fails after others were loaded may fail for what those changed."""
    others = [d for d in diagnoses if d.finding == "side effects" and d.record.name != diagnosis.record.name]
    if diagnosis.finding != "conflict" or not others:
        return diagnosis
    suspects = "; ".join(f"{other.record.name}: {other.reason}" for other in others)
    return replace(diagnosis, reason=f"{diagnosis.reason}; beside it, {suspects}")


def _correct(
    diagnosis: Diagnosis, records: Mapping[str, Mapping[str, str]], contested: Mapping[tuple[str, int], str]
) -> Diagnosis:
    if diagnosis.status != "ok":
        return diagnosis
    record = records[diagnosis.record.name]
    if record["state"] == State.FAILED:
        return _conflict(diagnosis, record["reason"], record["fix"])
    for device in diagnosis.devices:
        if reason := contested.get(parse_device(device).position, ""):
            text, _, fix = reason.partition("; fix: ")
            return _conflict(diagnosis, text, fix)
    return diagnosis


def _conflict(diagnosis: Diagnosis, reason: str, fix: str) -> Diagnosis:
    return replace(diagnosis, status="failed", finding="conflict", reason=reason, fix=fix)
