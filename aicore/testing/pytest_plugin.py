"""The pytest plugin of aicore, active in every run of pytest beside an installed aicore: it imports the standard
library alone, and does nothing until it is asked for a target.

    pytest --aicore-target my_npu                      every case of every op on this device
    pytest --aicore-target my_npu --aicore-ops 'Conv*'
"""

from __future__ import annotations

from collections import Counter
from typing import Any

_GROUP = "aicore conformance"
PROPERTY = "aicore-conformance"
"""Under this name a test records its target, outcome and steps, so that a summary can count them."""


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("aicore", _GROUP)
    group.addoption(
        "--aicore-target",
        action="append",
        metavar="NAME",
        help="run the conformance cases of every op on this device; may be repeated",
    )
    group.addoption("--aicore-ops", metavar="PATTERN", default="*", help="only ops with such names: 'Reduce*,Conv'")
    group.addoption("--aicore-dtypes", metavar="NAMES", help="only these element types: float32,float16")
    group.addoption("--aicore-repro", metavar="FOLDER", help="write each failure to this folder, ready to be replayed")


def pytest_configure(config: Any) -> None:
    if config.getoption("aicore_target"):
        from aicore.testing.collection import ConformanceCollection  # imports NumPy and the plugins

        config.pluginmanager.register(ConformanceCollection(config), "aicore-conformance")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each target: how its cases ended, and how many steps prove it."""
    counts: dict[str, Counter[str]] = {}
    steps: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for target, outcome, ran in _records(report):
                counts.setdefault(target, Counter())[outcome] += 1
                steps[target] += ran
    if not counts:
        return
    from aicore.testing.outcomes import Score  # only where there is something to say

    terminalreporter.section(_GROUP)
    for target, counted in counts.items():
        terminalreporter.line(f"{target}: {Score.from_names(counted, steps[target])}")


def _records(report: Any) -> list[Any]:
    """What tests recorded; once for each, although a test has three reports."""
    if getattr(report, "when", None) != "call":
        return []
    return [value for name, value in report.user_properties if name == PROPERTY]
