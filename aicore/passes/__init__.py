"""Passes, the manager that runs each as a transaction, and what finds the one that is to blame."""

from typing import TYPE_CHECKING

from aicore.lazy import lazy_names
from aicore.passes.base import PHASES, Pass, RulePass, order_passes
from aicore.passes.manager import Report, Row, RuleRow, run_passes
from aicore.passes.pipeline import default_passes, required_passes, specialise_passes

if TYPE_CHECKING:
    from aicore.passes.ab import Comparison, compare_times
    from aicore.passes.compare import close, first_difference, numeric_check, run_graph
    from aicore.passes.culprit import Culprit, bisect

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

__getattr__ = lazy_names(  # tools that compiling does not need
    __name__,
    {
        "Comparison": "aicore.passes.ab",
        "Culprit": "aicore.passes.culprit",
        "bisect": "aicore.passes.culprit",
        "close": "aicore.passes.compare",
        "compare_times": "aicore.passes.ab",
        "first_difference": "aicore.passes.compare",
        "numeric_check": "aicore.passes.compare",
        "run_graph": "aicore.passes.compare",
    },
)
