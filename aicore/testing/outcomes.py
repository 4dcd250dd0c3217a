"""How a case ended on a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from typing import Any

from aicore.errors import AicoreError, error_text
from aicore.numerics.difference import Difference


class Outcome(StrEnum):
    """From best to worst; only the first is to the backend's credit."""

    PASSED = "passed"
    """Right, and the device counted every step of it."""
    RENAMED = "renamed"
    """Right, but no kernel had to run: the result has the operand's bytes."""
    FALLBACK = "fallback"
    """Right, computed by another device because this one declares that it cannot."""
    UNSUPPORTED = "unsupported"
    """Nothing that may run it can, as declared."""
    SKIPPED = "skipped"
    """Not tried, because its author said so; it counts as a case that the backend does not run."""
    EXPECTED = "expected failure"
    """Failed as its author said it would."""
    FAILED = "failed"
    """Wrong numbers, an error, an operand overwritten, or declared and yet not run on the device."""

    @property
    def is_right(self) -> bool:
        return self is not Outcome.FAILED

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Outcome).index(self)


@dataclass(frozen=True)
class Verdict:
    """How one case ended on one target.

    reason: why it is not `passed`.
    difference: from the reference; None where nothing was computed.
    kernels: those of the device that ran. steps: how many launches it counted.
    outputs: the results, where they are kept.
    """

    outcome: Outcome
    reason: str = ""
    difference: Difference | None = None
    kernels: tuple[str, ...] = ()
    steps: int = 0
    outputs: tuple[Any, ...] = field(default=(), repr=False, compare=False)

    def worse(self, other: Verdict) -> Verdict:
        """Both together: the worse outcome with its reason, and what both ran."""
        first, second = sorted((self, other), key=lambda verdict: -verdict.outcome.rank)
        differences = [v.difference for v in (first, second) if v.difference is not None]
        return Verdict(
            first.outcome,
            first.reason,
            reduce(Difference.worse, differences) if differences else None,
            tuple(dict.fromkeys(self.kernels + other.kernels)),
            self.steps + other.steps,
            first.outputs,
        )


@dataclass(frozen=True)
class Score:
    """Verdicts counted. The score is the share of cases that the device itself ran and got right."""

    counts: Counter[Outcome]
    steps: int

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Score:
        counts: Counter[Outcome] = Counter()
        steps = 0
        for verdict in verdicts:
            counts[verdict.outcome] += 1
            steps += verdict.steps
        return cls(counts, steps)

    @classmethod
    def from_names(cls, counts: Mapping[str, int], steps: int) -> Score:
        """From how often each outcome, named by its text, came up."""
        return cls(Counter({Outcome(name): count for name, count in counts.items()}), steps)

    @property
    def value(self) -> float:
        """From 0 to 1, of the cases for which something had to run; 0 for a backend that implements nothing."""
        total = self.counts.total() - self.counts[Outcome.RENAMED]
        return self.counts[Outcome.PASSED] / total if total else 0.0

    def __str__(self) -> str:
        """`score 97.5%: 195 passed (400 steps), 5 fallback`."""
        parts = [f"{self.counts[outcome]} {outcome}" for outcome in Outcome if self.counts[outcome]]
        if self.counts[Outcome.PASSED]:
            parts[0] += f" ({self.steps} steps)"
        return f"score {self.value:.1%}: {', '.join(parts) or 'no case'}"


def said_by(error: BaseException) -> str:
    """What an exception says, in so many words as a verdict has room for; also of one that cannot be printed."""
    text = error_text(error)
    return text.partition(": ")[2] if isinstance(error, AicoreError) else text
