"""Passes, the manager that runs each as a transaction, and what finds the one that is to blame."""

from typing import TYPE_CHECKING

from aicore.lazy import lazy_names
from aicore.passes.base import PHASES, Pass, RulePass, order_passes
from aicore.passes.manager import Report, Row, RuleRow, run_passes
from aicore.passes.pipeline import default_passes, required_passes, specialise_passes

if TYPE_CHECKING:
    from aicore.passes.choices import Choices
    from aicore.passes.compare import close, first_difference, numeric_check, run_graph
    from aicore.passes.culprit import Culprit, bisect
    from aicore.passes.near_miss import WhyNot, why_not
    from aicore.passes.trace import DiffLine, GraphDiff, PassStep, PassTrace, Recorder

__all__ = [
    "PHASES",
    "Choices",
    "Culprit",
    "DiffLine",
    "GraphDiff",
    "Pass",
    "PassStep",
    "PassTrace",
    "Recorder",
    "Report",
    "Row",
    "RulePass",
    "RuleRow",
    "WhyNot",
    "bisect",
    "close",
    "default_passes",
    "first_difference",
    "numeric_check",
    "order_passes",
    "required_passes",
    "run_graph",
    "run_passes",
    "specialise_passes",
    "why_not",
]

__getattr__ = lazy_names(  # tools that compiling does not need
    __name__,
    {
        "Choices": "aicore.passes.choices",
        "Culprit": "aicore.passes.culprit",
        "DiffLine": "aicore.passes.trace",
        "GraphDiff": "aicore.passes.trace",
        "PassStep": "aicore.passes.trace",
        "PassTrace": "aicore.passes.trace",
        "Recorder": "aicore.passes.trace",
        "WhyNot": "aicore.passes.near_miss",
        "bisect": "aicore.passes.culprit",
        "close": "aicore.passes.compare",
        "first_difference": "aicore.passes.compare",
        "numeric_check": "aicore.passes.compare",
        "run_graph": "aicore.passes.compare",
        "why_not": "aicore.passes.near_miss",
    },
)
