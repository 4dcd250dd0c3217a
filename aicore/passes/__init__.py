"""Passes, the manager that runs each as a transaction, and what finds the one that is to blame."""

from aicore.passes.ab import Comparison, compare_times
from aicore.passes.base import PHASES, Pass, RulePass, order_passes
from aicore.passes.bisect import Culprit, bisect
from aicore.passes.compare import close, first_difference, numeric_check, run_graph
from aicore.passes.manager import Report, Row, RuleRow, run_passes
from aicore.passes.pipeline import default_passes, required_passes, specialise_passes

__all__ = [
    "PHASES",
    "Comparison",
    "Culprit",
    "Pass",
    "Report",
    "Row",
    "RulePass",
    "RuleRow",
    "bisect",
    "close",
    "compare_times",
    "default_passes",
    "first_difference",
    "numeric_check",
    "order_passes",
    "required_passes",
    "run_graph",
    "run_passes",
    "specialise_passes",
]
