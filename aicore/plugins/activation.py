"""From candidates to what is in use: load each, settle conflicts, publish all of a plugin's registrations or none."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from aicore.collector import collector_at_rest, keep_for_good
from aicore.config import Config
from aicore.errors import PluginError
from aicore.plugins.conflicts import Contest, find_duplicates, find_owners, find_tangles, import_shared
from aicore.plugins.discovery import Candidate
from aicore.plugins.loading import Contribution, UnavailableError, load_plugin
from aicore.plugins.states import PluginRecord, State
from aicore.plugins.symptoms import Symptom, advice, symptom_of, symptom_of_ending
from aicore.records import dataclass

if TYPE_CHECKING:
    from aicore.ir import Op
    from aicore.kernels import Kernel, KernelFamily
    from aicore.passes import Pass
    from aicore.plugins.rehearsal import Rehearsal
    from aicore.runtime import Device, Executable, Plan

_log = logging.getLogger("aicore.plugins")


@dataclass(frozen=True)
class OwnedDevice:
    """A usable device, the plugin that owns it, and that plugin's launch hook."""

    record: PluginRecord
    device: Device
    launch: Callable[[Plan], Executable]


@dataclass(frozen=True)
class Activated:
    """Where every plugin ended, and all that the active ones registered.

    causes: for each plugin that failed or is unavailable, the exception, by the plugin's name.
    contested: devices that two plugins claim with equal priority; nobody may use them.
    """

    records: tuple[PluginRecord, ...]
    causes: Mapping[str, PluginError] = field(default_factory=dict)
    ops: Mapping[str, type[Op]] = field(default_factory=dict)
    kernels: tuple[Kernel | KernelFamily, ...] = ()
    passes: tuple[Pass, ...] = ()
    devices: Mapping[str, OwnedDevice] = field(default_factory=dict)
    contested: Mapping[str, Contest] = field(default_factory=dict)


@dataclass(frozen=True)
class _Outcome:
    record: PluginRecord
    contribution: Contribution | None = None
    cause: PluginError | None = None


def activate(candidates: Iterable[Candidate], config: Config) -> Activated:
    """Load every compatible candidate. One that fails registers nothing, is logged, and stops no other.

    An installed one is rehearsed first, unless a verdict on exactly this version and these files is remembered.
    What plugins print meanwhile goes to stderr.
    """
    from aicore.ops import CORE  # needs NumPy, which listing plugins does not
    from aicore.plugins.rehearsal import rehearse  # nor does it need this

    candidates = tuple(candidates)
    rehearsals = rehearse((c for c in candidates if c.record.state is State.COMPATIBLE), config)
    with collector_at_rest():  # hundreds of modules and kernels, none of them garbage
        outcomes = [_load(candidate, rehearsals.get(candidate.record.name)) for candidate in candidates]
        keep_for_good()
    loaded = {o.record.name: (o.record, o.contribution) for o in outcomes if o.contribution is not None}
    broken = import_shared(loaded)
    if broken:
        outcomes = [_without(outcome, broken.get(outcome.record.name)) for outcome in outcomes]
        loaded = {name: found for name, found in loaded.items() if name not in broken}
    conflicts = {**find_tangles(loaded), **find_duplicates(loaded, CORE)}
    outcomes = [_settle(outcome, conflicts) for outcome in outcomes]
    for outcome in outcomes:
        if outcome.record.state is State.FAILED:
            _log.warning("%s", outcome.record.explain())
    return _publish(outcomes)


def _load(candidate: Candidate, rehearsal: Rehearsal | None) -> _Outcome:
    record = candidate.record
    if record.state is not State.COMPATIBLE:
        return _Outcome(record)
    if rehearsal is not None:
        record = replace(record, rehearsal=rehearsal.note, seconds=rehearsal.verdict.taken)
        if not rehearsal.verdict.passed:
            symptom = symptom_of_ending(rehearsal.verdict.ending)
            return _fail(record, PluginError(rehearsal.verdict.reason), symptom)
        record = replace(record, state=State.REHEARSED)
    started = time.perf_counter()
    try:
        with redirect_stdout(sys.stderr):  # what it prints is no part of what this program says
            contribution = load_plugin(record.name, candidate.load, record.info)
    except UnavailableError as error:
        record = replace(record, seconds=time.perf_counter() - started)
        return _unavailable(record, error)
    except PluginError as error:
        record = replace(record, seconds=time.perf_counter() - started)
        return _fail(record, error, symptom_of(str(error)))
    record = replace(record, state=State.PROBED, seconds=time.perf_counter() - started)
    return _Outcome(record, contribution)


def _without(outcome: _Outcome, error: PluginError | None) -> _Outcome:
    """What is left of a plugin when this is wrong with it."""
    return outcome if error is None else _fail(outcome.record, error, symptom_of(str(error)))


def _settle(outcome: _Outcome, conflicts: Mapping[str, str]) -> _Outcome:
    record = outcome.record
    if record.state is not State.PROBED:
        return outcome
    if record.name in conflicts:
        return _fail(record, PluginError(conflicts[record.name]), Symptom("conflict"))
    return replace(outcome, record=replace(record, state=State.ACTIVE))


def _unavailable(record: PluginRecord, error: UnavailableError) -> _Outcome:
    reason = str(error)
    symptom = symptom_of(reason, available=False)
    fix = error.fix or _hint(record, reason) or symptom.fix
    return _Outcome(
        replace(record, state=State.UNAVAILABLE, finding=symptom.finding, reason=reason, fix=fix), cause=error
    )


def _fail(record: PluginRecord, error: PluginError, symptom: Symptom) -> _Outcome:
    reason = str(error)
    fix = _hint(record, reason) or advice(symptom, record)
    return _Outcome(replace(record, state=State.FAILED, finding=symptom.finding, reason=reason, fix=fix), cause=error)


def _hint(record: PluginRecord, reason: str) -> str:
    return record.info.fix_for(reason) if record.info else ""


def _publish(outcomes: list[_Outcome]) -> Activated:
    active = {o.record.name: (o.record, o.contribution) for o in outcomes if o.contribution is not None}
    owners, contested = find_owners(active)
    for contest in contested.values():
        _log.warning("%s", contest.reason)
    contributions = [contribution for _, contribution in active.values()]
    return Activated(
        records=tuple(outcome.record for outcome in outcomes),
        causes={o.record.name: o.cause for o in outcomes if o.cause is not None},
        ops=MappingProxyType({op.__name__: op for c in contributions for op in c.ops}),
        kernels=tuple(kernel for c in contributions for kernel in c.kernels),
        passes=tuple(a_pass for c in contributions for a_pass in c.passes),
        devices=MappingProxyType({name: _owned(name, *active[owner]) for name, owner in owners.items()}),
        contested=contested,
    )


def _owned(name: str, record: PluginRecord, contribution: Contribution) -> OwnedDevice:
    device = next(device for device in contribution.devices if device.name == name)
    if contribution.launch is None:
        raise PluginError(f"{record.label} has devices but no launch hook")
    return OwnedDevice(record, device, contribution.launch)
