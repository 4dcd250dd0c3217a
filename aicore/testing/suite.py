"""The conformance suite: what `pytest --aicore-target NAME` runs, and what the authors of a backend subclass."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from aicore.numerics.expected import Expected
from aicore.ops import CORE
from aicore.plugins import PluginRegistry, plugin_registry
from aicore.testing.cases import Case, conformance_cases
from aicore.testing.check import check_case, expected_of
from aicore.testing.outcomes import Outcome, Verdict
from aicore.testing.pytest_plugin import PROPERTY
from aicore.testing.reference import Reference
from aicore.testing.repro import case_repro, file_name, write_repro
from aicore.testing.targets import Target


class ConformanceSuite:
    """Every case of every op, on one target. Subclass it in a test file, under a name that starts with `Test`:

        class TestMyNpu(ConformanceSuite):
            target = "my_npu"
            must_run = ("Conv-float32-*", "Relu-*")
            skip = {"LSTM-*": "the driver hangs below 1.4; issue 12"}

    A case passes when the device ran it, by its own count, and all results are within the op's tolerance. What another
    device computed, what the backend declares that it cannot run, and what needs no kernel is skipped, with the reason.

    target: a device, or some of its kernels, such as `my_npu:wmma`.
    ops, dtypes: patterns of names of ops, and element types; None means all of them.
    must_run: patterns of ids of cases that the device itself must run.
    skip: patterns of ids of cases that are not tried, each with the reason. They count as not run: the score shows it.
    expected_failures: patterns of ids of cases that fail for a known reason; one that passes is a failure.
    repros: a folder for what failed, ready to be replayed; None writes nothing.
    """

    target: ClassVar[str] = ""
    ops: ClassVar[str] = "*"
    dtypes: ClassVar[tuple[str, ...] | None] = None
    must_run: ClassVar[tuple[str, ...]] = ()
    skip: ClassVar[Mapping[str, str]] = {}
    expected_failures: ClassVar[Mapping[str, str]] = {}
    repros: ClassVar[Path | None] = None

    @classmethod
    def registry(cls) -> PluginRegistry:
        """The plugins to test with: those that are installed."""
        return plugin_registry()

    @classmethod
    def check_target(cls) -> None:
        """Raise PluginError, with reason and fix, unless the target can be used, and something to compare it with."""
        _reference(cls.registry())
        _target(cls.target, cls.registry())

    @classmethod
    def all_cases(cls) -> Iterator[Case]:
        """Cases of the core's ops and of those that plugins add."""
        return conformance_cases({**CORE, **cls.registry().ops}, cls.ops, cls.dtypes)

    @classmethod
    def judge(cls, case: Case) -> Verdict:
        """How the case ends, expectations included."""
        registry = cls.registry()
        expected = expected_of(case, _reference(registry))
        if expected is None:
            return Verdict(Outcome.UNSUPPORTED, "the op means nothing for these operands")
        target = _target(cls.target, registry)
        verdict = check_case(case, target, expected)
        if verdict.outcome is Outcome.FAILED and cls.repros is not None:
            verdict = replace(
                verdict, reason=f"{verdict.reason} ({_keep(cls.repros, case, target, expected, verdict)})"
            )
        return cls._as_declared(case, verdict)

    @classmethod
    def _as_declared(cls, case: Case, verdict: Verdict) -> Verdict:
        reason = _first_match(case, cls.expected_failures)
        if reason and verdict.outcome is Outcome.FAILED:
            return replace(verdict, outcome=Outcome.EXPECTED, reason=f"{reason} ({verdict.reason})")
        if reason and verdict.outcome is Outcome.PASSED:
            text = f"it passes, but is expected to fail: {reason}; remove it from expected_failures"
            return replace(verdict, outcome=Outcome.FAILED, reason=text)
        must = any(fnmatch.fnmatchcase(case.id, pattern) for pattern in cls.must_run)
        if must and verdict.outcome in (Outcome.FALLBACK, Outcome.UNSUPPORTED):
            text = f"{cls.target} must run it itself, but: {verdict.reason}"
            return replace(verdict, outcome=Outcome.FAILED, reason=text)
        return verdict

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "case" in metafunc.fixturenames:
            found = list(self.all_cases())
            metafunc.parametrize("case", found, ids=[case.id for case in found])

    def test_case(self, case: Case, record_property: Any) -> None:
        reason = _first_match(case, self.skip)
        verdict = Verdict(Outcome.SKIPPED, reason) if reason else self.judge(case)
        record_property(PROPERTY, recorded(self.target, verdict))
        settle(verdict)

    def test_the_device_runs_something(self) -> None:
        """A backend that implements nothing passes no case, however right its fallback is."""
        tried = (case for case in self.all_cases() if not _first_match(case, self.skip))
        if not any(self.judge(case).outcome is Outcome.PASSED for case in tried):
            pytest.fail(f"{self.target} ran not one case by itself: its score is 0")

    def test_every_exception_is_needed(self) -> None:
        """A pattern that matches nothing hides nothing, and says that it does."""
        ids = [case.id for case in conformance_cases({**CORE, **self.registry().ops}, self.ops)]
        patterns = (*self.must_run, *self.skip, *self.expected_failures)
        idle = [pattern for pattern in patterns if not fnmatch.filter(ids, pattern)]
        assert idle == [], "patterns that match no case"
        empty = [p for table in (self.skip, self.expected_failures) for p, why in table.items() if not why.strip()]
        assert empty == [], "patterns without a reason"


def settle(verdict: Verdict) -> None:
    """End the running test as the verdict says: return, skip, xfail or fail."""
    match verdict.outcome:
        case Outcome.PASSED:
            return
        case Outcome.FAILED:
            kernels = f"\nkernels: {', '.join(verdict.kernels)}" if verdict.kernels else ""
            pytest.fail(verdict.reason + kernels, pytrace=False)
        case Outcome.EXPECTED:
            pytest.xfail(verdict.reason)
        case Outcome.SKIPPED:
            pytest.skip(verdict.reason)
        case Outcome.FALLBACK:
            pytest.skip(f"passed by fallback: {verdict.reason}")
        case outcome:
            pytest.skip(f"{outcome}: {verdict.reason}")


def recorded(target: str, verdict: Verdict) -> list[Any]:
    """What a summary needs of a verdict, in plain data: reports travel between processes."""
    return [target, str(verdict.outcome), verdict.steps]


def _keep(repros: Path, case: Case, target: Target, expected: Expected, verdict: Verdict) -> str:
    """Write a failure down; how to replay it, or why it is not there."""
    folder = repros / file_name(f"{case.id}-on-{target.name}")
    try:
        write_repro(folder, case_repro(case, target, expected, verdict))
    except OSError as error:
        return f"no repro, as {folder} cannot be written: {error}"
    return f"replay with python {folder / 'replay.py'}"


def _first_match(case: Case, table: Mapping[str, str]) -> str:
    return next((why for pattern, why in table.items() if fnmatch.fnmatchcase(case.id, pattern)), "")


@cache
def _reference(registry: PluginRegistry) -> Reference:
    return Reference(registry)


@cache
def _target(name: str, registry: PluginRegistry) -> Target:
    return Target.find(name, registry)
