"""Two ways to compute one thing, and which of them a device is faster with: what a pass asks, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from aicore.ir import Graph
from aicore.records import dataclass


@dataclass(frozen=True)
class Race:
    """Ways to compute one thing.

    ways: a graph by name, all with the same inputs and outputs, of known sizes. The first one is the default.
    without: name of the pass that asks, which does not run on them.
    estimates: seconds that each way is expected to take.
    fault: (results of the default, results of another way) -> what is wrong with the latter; empty when nothing is.
    """

    ways: Mapping[str, Graph]
    without: str
    estimates: Mapping[str, float] = field(default_factory=dict)
    fault: Callable[[Sequence[Any], Sequence[Any]], str] = lambda default, other: ""

    @property
    def default(self) -> str:
        return next(iter(self.ways))


@dataclass(frozen=True)
class RaceResult:
    """What was measured: the way to take, which is the default unless another was faster beyond the noise."""

    chosen: str
    seconds: Mapping[str, float]


Judge: TypeAlias = Callable[[Sequence[Race]], "Sequence[RaceResult | str]"]
"""For each race its result, or the reason why there is none."""


def nobody_measured(races: Sequence[Race]) -> list[RaceResult | str]:
    """The judge where measured times are ignored."""
    return ["measured times are ignored"] * len(races)
