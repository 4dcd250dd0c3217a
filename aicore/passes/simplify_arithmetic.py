"""One way to write what can be written in several: later passes need to look for one."""

from __future__ import annotations

from typing import Any, ClassVar

from aicore.ir import Value
from aicore.passes.base import RulePass
from aicore.records import dataclass
from aicore.rewrite import Rule, rule


@rule(lambda op, a, b: op.Sum(a, b))
def sum_of_two(op: Any, a: Value, b: Value) -> Value:
    """sum(a, b) -> a + b"""
    found: Value = op.Add(a, b)
    return found


@dataclass(frozen=True)
class SimplifyArithmetic(RulePass):
    """A Sum of two is an Add."""

    name: ClassVar[str] = "simplify-arithmetic"
    before: ClassVar[tuple[str, ...]] = ("merge-common",)
    rules: ClassVar[tuple[Rule, ...]] = (sum_of_two,)
