"""Transposes that follow each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from aicore.ir import Value
from aicore.ops.base import Unary
from aicore.passes.base import RulePass
from aicore.rewrite import Rule, require, rule

Perm = tuple[int, ...]


@rule(lambda op, x, inner, outer: op.Transpose(op.Transpose(x, perm=inner), perm=outer), shared=True)
def compose_transposes(op: Any, x: Value, inner: Perm | None, outer: Perm | None) -> Value:
    """transpose(transpose(x, p), q) -> transpose(x, p[q]), or x when that moves nothing"""
    return _transposed(op, x, _composed(inner, outer))


@rule(lambda op, x, inner, outer, unary: op.Transpose(op.apply(unary, op.Transpose(x, perm=inner)), perm=outer))
def transpose_past_unary(op: Any, unary: Unary, x: Value, inner: Perm | None, outer: Perm | None) -> Value:
    """transpose(f(transpose(x, p)), q) -> transpose(f(x), p[q]) for a function of single elements"""
    return _transposed(op, op.apply(unary, x), _composed(inner, outer))


@dataclass(frozen=True)
class CancelTransposes(RulePass):
    """Composes transposes, also around a function of single elements; those that undo each other vanish."""

    name: ClassVar[str] = "cancel-transposes"
    after: ClassVar[tuple[str, ...]] = ("remove-identities",)
    rules: ClassVar[tuple[Rule, ...]] = (compose_transposes, transpose_past_unary)


def _composed(inner: Perm | None, outer: Perm | None) -> Perm:
    require(inner is not None and outer is not None, "the rank is unknown")
    return tuple((inner or ())[axis] for axis in outer or ())


def _transposed(op: Any, x: Value, perm: Perm) -> Value:
    moves = perm != tuple(range(len(perm)))
    found: Value = op.Transpose(x, perm=perm) if moves else x
    return found
