"""Rewriting: patterns, rules, the matcher, and the driver that sweeps rules over a graph."""

from aicore.rewrite.context import Context, NearMiss
from aicore.rewrite.driver import RuleBuilder, explain, rewrite, try_at
from aicore.rewrite.pattern import PatternNamespace
from aicore.rewrite.races import Race, RaceResult
from aicore.rewrite.rule import NoMatch, Rule, fuse, require, rule

__all__ = [
    "Context",
    "NearMiss",
    "NoMatch",
    "PatternNamespace",
    "Race",
    "RaceResult",
    "Rule",
    "RuleBuilder",
    "explain",
    "fuse",
    "require",
    "rewrite",
    "rule",
    "try_at",
]
