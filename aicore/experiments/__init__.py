"""Experiments on whole programs: with and without a rule, which change is wrong, which choices are fastest."""

from typing import TYPE_CHECKING

from aicore.lazy import lazy_names

if TYPE_CHECKING:
    from aicore.experiments.bisecting import Bisection, bisect
    from aicore.experiments.sides import Side
    from aicore.experiments.whole_graph import GraphTuning, Tried, tune_graph
    from aicore.experiments.with_without import ABResult, ab

__all__ = ["ABResult", "Bisection", "GraphTuning", "Side", "Tried", "ab", "bisect", "tune_graph"]

__getattr__ = lazy_names(
    __name__,
    {
        "ABResult": "aicore.experiments.with_without",
        "Bisection": "aicore.experiments.bisecting",
        "GraphTuning": "aicore.experiments.whole_graph",
        "Side": "aicore.experiments.sides",
        "Tried": "aicore.experiments.whole_graph",
        "ab": "aicore.experiments.with_without",
        "bisect": "aicore.experiments.bisecting",
        "tune_graph": "aicore.experiments.whole_graph",
    },
)
