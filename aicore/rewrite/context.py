"""What a pass is given: the target's abilities, an evaluator, and the right to make changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

from aicore.ir import Node, Value
from aicore.records import dataclass
from aicore.rewrite.races import Judge, nobody_measured


@dataclass(frozen=True)
class NearMiss:
    """The attempt of a rule that got furthest: how many ops matched at which root, and what failed then.

    kind: what failed, such as `op`, `attribute`, `readers` or `guard`; see `aicore.rewrite.matcher`.
    part: the part of the pattern that failed; None for what concerns the match as a whole.
    """

    score: int
    root: Node
    reason: tuple[object, ...]
    kind: str = ""
    part: object = None

    @property
    def why(self) -> str:
        """What failed, in words."""
        form, *arguments = self.reason
        return str(form) % tuple(arguments) if arguments else str(form)

    def __str__(self) -> str:
        return f"{self.score} {'op' if self.score == 1 else 'ops'} matched at {self.root}, then: {self.why}"


def _anything(op: object, *types: object) -> str | None:
    return None


def _unknown(op: object, *types: object, constant: object = ()) -> float | None:
    return None


@dataclass
class Context:
    """Injected into every pass; the passes hold no numerics and know no kernel.

    supports: `(op, *types)` -> None, or why the target has no kernel for it.
    seconds: `(op, *types, constant=indices)` -> how long the target's best kernel takes, measured or estimated; None
        where neither is known. constant: operands whose numbers are known.
    race: the results of races between ways to compute something, as far as they were, or are now, measured.
    device: kind of the target, such as `cpu`; empty when it is not known.
    evaluate: `(op, *arrays)` -> array or tuple of arrays, by reference kernels; None when no launcher is at hand.
    budget: how many changes may be made, those of required passes aside; bisect lowers it.
    off: rules that are left out, by name; a pass that is no list of rules names its changes after itself.
    required: the pass that runs now may make any change, as programs may not run without it.
    watch: record near-misses only at the node that computes this value.
    matches: changes made so far; the number of the next one.
    spent: those of them that count against the budget.
    changes: pass and rule of each change.
    refused: changes that were not allowed.
    notes: what a pass says about work that it left out.
    misses: the attempt of each rule that got furthest.
    absent: an op that a rule needs and that a graph had nowhere, by rule.
    verdicts: the way that was taken, by what there were several ways for: the name of a value, or a text.
    is_open: a verdict was given while sizes are open, and may be another one once they are known.
    """

    supports: Callable[..., str | None] = _anything
    seconds: Callable[..., float | None] = _unknown
    race: Judge = nobody_measured
    device: str = ""
    evaluate: Callable[..., Any] | None = None
    budget: float = math.inf
    off: frozenset[str] = frozenset()
    required: bool = False
    watch: Value | None = None
    matches: int = 0
    spent: int = 0
    changes: list[tuple[str, str]] = field(default_factory=list)
    refused: int = 0
    notes: list[str] = field(default_factory=list)
    misses: dict[str, NearMiss] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    is_open: bool = False
    current_pass: str = ""

    def anew(self, **options: Any) -> Context:
        """A context that is told the same of the target, leaves out the same rules, and has seen nothing yet."""
        told = {name: getattr(self, name) for name in ("supports", "evaluate", "seconds", "race", "device", "off")}
        return Context(**{**told, **options})

    def change(self, rule: str = "") -> bool:
        """Ask before every change; False means leave it. Changes are numbered in order, so bisect can name one."""
        if not self.may_make(1, rule):
            self.refused += 1
            return False
        self.spent += not self.required
        self.matches += 1
        self.changes.append((self.current_pass, rule))
        return True

    def may_make(self, changes: int, rule: str = "") -> bool:
        """Whether the next so many changes, all of one rule, are allowed."""
        return self.required or (self.spent + changes <= self.budget and rule not in self.off)

    def undo_to(self, matches: int) -> None:
        """Forget the changes of the pass that runs now, from this one on; the manager rolled them back."""
        self.spent -= 0 if self.required else self.matches - matches
        self.matches = matches
        del self.changes[matches:]

    def note(self, text: str) -> None:
        """Say aloud that something was left out, and why; each text once."""
        if text not in self.notes:
            self.notes.append(text)

    def record_miss(
        self, rule: str, score: int, root: Node, reason: tuple[object, ...], kind: str = "", part: object = None
    ) -> None:
        """Keep the attempt of each rule that got furthest."""
        best = self.misses.get(rule)
        if best is not None and score <= best.score:
            return
        if self.watch is None or self.watch in root.outputs:
            self.misses[rule] = NearMiss(score, root, reason, kind, part)

    def why_not(self, rule: str) -> str:
        """The best near-miss of the rule."""
        if rule in self.misses:
            return f"{rule}: {self.misses[rule]}"
        if rule in self.absent:
            return f"{rule}: there is no {self.absent[rule]} in the graph"
        return f"{rule}: no node is of the kind of its root"
