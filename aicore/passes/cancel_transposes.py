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
    require(inner is not None and outer is not None, "the rank is unknown")
    perm = tuple((inner or ())[axis] for axis in outer or ())
    moves = perm != tuple(range(len(perm)))
    found: Value = op.Transpose(x, perm=perm) if moves else x
    return found


@rule(lambda op, x, perm, unary: op.apply(unary, op.Transpose(x, perm=perm)))
def transpose_after_unary(op: Any, unary: Unary, x: Value, perm: Perm | None) -> Value:
    """f(transpose(x)) -> transpose(f(x)) for a function of single elements

    The transpose comes nearer to one that undoes it, and the function to the layer that may take it up.
    """
    found: Value = op.Transpose(op.apply(unary, x), perm=perm)
    return found


@dataclass(frozen=True)
class CancelTransposes(RulePass):
    """Moves transposes behind functions of single elements and composes those that meet."""

    name: ClassVar[str] = "cancel-transposes"
    after: ClassVar[tuple[str, ...]] = ("remove-identities",)
    rules: ClassVar[tuple[Rule, ...]] = (transpose_after_unary, compose_transposes)
