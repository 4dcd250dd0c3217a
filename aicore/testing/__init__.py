"""Conformance of backends: cases, references, tolerances, the suite to subclass, faults and their repros.

Names load on first use: pytest imports this package in every run, and it must cost nothing there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicore.numerics.tolerances import Tolerance, tolerance_of
    from aicore.testing.cases import Case, conformance_cases
    from aicore.testing.check import check_case, expected_of
    from aicore.testing.faults import Fault, check_model
    from aicore.testing.gradients import GradientVerdict, check_gradient
    from aicore.testing.outcomes import Outcome, Score, Verdict
    from aicore.testing.reference import Reference
    from aicore.testing.repro import Replay, replay
    from aicore.testing.suite import ConformanceSuite
    from aicore.testing.targets import Target

_HOMES = {
    "Case": "cases",
    "ConformanceSuite": "suite",
    "Fault": "faults",
    "GradientVerdict": "gradients",
    "Outcome": "outcomes",
    "Reference": "reference",
    "Replay": "repro",
    "Score": "outcomes",
    "Target": "targets",
    "Tolerance": "aicore.numerics",
    "Verdict": "outcomes",
    "conformance_cases": "cases",
    "check_case": "check",
    "check_gradient": "gradients",
    "check_model": "faults",
    "expected_of": "check",
    "replay": "repro",
    "tolerance_of": "aicore.numerics",
}

__all__ = [
    "Case",
    "ConformanceSuite",
    "Fault",
    "GradientVerdict",
    "Outcome",
    "Reference",
    "Replay",
    "Score",
    "Target",
    "Tolerance",
    "Verdict",
    "check_case",
    "check_gradient",
    "check_model",
    "conformance_cases",
    "expected_of",
    "replay",
    "tolerance_of",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    return getattr(importlib.import_module(home if "." in home else f"{__name__}.{home}"), name)
