"""What a pass is given: the target's abilities, an evaluator, and the right to make changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

from aicore.ir import Node, Value
from aicore.records import dataclass


@dataclass(frozen=True)
class NearMiss:
    """The attempt of a rule that got furthest: how many ops matched at which root, and what failed then."""

    score: int
    root: Node
    reason: tuple[object, ...]

    def __str__(self) -> str:
        form, *arguments = self.reason
        why = str(form) % tuple(arguments) if arguments else str(form)
        return f"{self.score} {'op' if self.score == 1 else 'ops'} matched at {self.root}, then: {why}"


def _anything(op: object, *types: object) -> str | None:
    return None


@dataclass
class Context:
    """Injected into every pass; the passes hold no numerics and know no kernel.

    supports: `(op, *types)` -> None, or why the target has no kernel for it.
    evaluate: `(op, *arrays)` -> array or tuple of arrays, by reference kernels; None when no launcher is at hand.
    budget: how many changes may be made; bisect lowers it.
    watch: record near-misses only at the node that computes this value.
    matches: changes made so far; the number of the next one.
    changes: pass and rule of each change.
    refused: changes that were not allowed.
    notes: what a pass says about work that it left out.
    misses: the attempt of each rule that got furthest.
    absent: an op that a rule needs and that a graph had nowhere, by rule.
    """

    supports: Callable[..., str | None] = _anything
    evaluate: Callable[..., Any] | None = None
    budget: float = math.inf
    watch: Value | None = None
    matches: int = 0
    changes: list[tuple[str, str]] = field(default_factory=list)
    refused: int = 0
    notes: list[str] = field(default_factory=list)
    misses: dict[str, NearMiss] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    current_pass: str = ""

    def change(self, rule: str = "") -> bool:
        """Ask before every change; False means leave it. Changes are numbered in order, so bisect can name one."""
        if self.matches >= self.budget:
            self.refused += 1
            return False
        self.matches += 1
        self.changes.append((self.current_pass, rule))
        return True

    def undo_to(self, matches: int) -> None:
        """Forget the changes from this one on; the manager rolled them back."""
        self.matches = matches
        del self.changes[matches:]

    def note(self, text: str) -> None:
        """Say aloud that something was left out, and why; each text once."""
        if text not in self.notes:
            self.notes.append(text)

    def record_miss(self, rule: str, score: int, root: Node, reason: tuple[object, ...]) -> None:
        """Keep the attempt of each rule that got furthest."""
        best = self.misses.get(rule)
        if best is not None and score <= best.score:
            return
        if self.watch is None or self.watch in root.outputs:
            self.misses[rule] = NearMiss(score, root, reason)

    def why_not(self, rule: str) -> str:
        """The best near-miss of the rule."""
        if rule in self.misses:
            return f"{rule}: {self.misses[rule]}"
        if rule in self.absent:
            return f"{rule}: there is no {self.absent[rule]} in the graph"
        return f"{rule}: no node is of the kind of its root"
