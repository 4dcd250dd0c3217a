"""What `--aicore-target` adds to a run of pytest: an item for each case, without a test file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aicore.errors import AicoreError
from aicore.ops import CORE
from aicore.testing.cases import Case, check_choice
from aicore.testing.outcomes import Outcome
from aicore.testing.pytest_plugin import PROPERTY
from aicore.testing.suite import ConformanceSuite, recorded, settle
from aicore.testing.targets import Target


class ConformanceCollection:
    """Collects the suite for each target that the command line names.

    Of several names of one target the first is taken. Raises pytest.UsageError, with reason and fix, for a target that
    cannot be used, and for a pattern of ops or an element type that selects nothing.
    """

    def __init__(self, config: pytest.Config) -> None:
        names = list(dict.fromkeys(config.getoption("aicore_target")))
        self._suites = [_suite(name, config) for name in names]
        for suite in self._suites:
            try:
                suite.check_target()
                check_choice({**CORE, **suite.registry().ops}, suite.ops, suite.dtypes)
            except AicoreError as error:
                raise pytest.UsageError(f"--aicore-target {suite.target}: {error}") from error
        self._suites = list({Target.find(s.target, s.registry()).key: s for s in reversed(self._suites)}.values())[::-1]

    @pytest.hookimpl(tryfirst=True)  # before -k and -m choose among the items
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        for suite in self._suites:
            name = f"aicore[{suite.target}]"
            items.extend(Conformance.from_parent(session, name=name, nodeid=name, suite=suite).collect())


class Conformance(pytest.Collector):
    """The cases of one target."""

    def __init__(self, *, suite: type[ConformanceSuite], **attributes: Any) -> None:
        super().__init__(**attributes)
        self.suite = suite

    def collect(self) -> Iterator[pytest.Item]:
        yield SomethingRuns.from_parent(self, name="the-device-runs-something")
        for case in self.suite.all_cases():
            yield ConformanceItem.from_parent(self, name=case.id, case=case)


class ConformanceItem(pytest.Item):
    """One case on one target."""

    def __init__(self, *, case: Case, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.case = case

    def runtest(self) -> None:
        suite = _suite_of(self)
        verdict = suite.judge(self.case)
        self.user_properties.append((PROPERTY, recorded(suite.target, verdict)))
        settle(verdict)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.nodeid


class SomethingRuns(pytest.Item):
    """A backend that implements nothing passes no case, however right its fallback is."""

    def runtest(self) -> None:
        suite = _suite_of(self)
        if not any(suite.judge(case).outcome is Outcome.PASSED for case in suite.all_cases()):
            pytest.fail(f"{suite.target} ran not one case by itself: its score is 0", pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.nodeid


def _suite_of(item: pytest.Item) -> type[ConformanceSuite]:
    assert isinstance(item.parent, Conformance)  # nothing else makes such items
    return item.parent.suite


def _suite(name: str, config: pytest.Config) -> type[ConformanceSuite]:
    dtypes = config.getoption("aicore_dtypes")
    repros = config.getoption("aicore_repro")
    attributes = {
        "target": name,
        "ops": config.getoption("aicore_ops"),
        "dtypes": None if dtypes is None else tuple(one.strip() for one in dtypes.split(",")),
        "repros": None if repros is None else Path(repros),
    }
    return type("Conformance", (ConformanceSuite,), attributes)
