"""Transposes that follow each other."""

from __future__ import annotations

from typing import Any, ClassVar

from aicore.ir import Value
from aicore.ops.base import Unary
from aicore.passes.base import RulePass
from aicore.records import dataclass
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


@rule(lambda op, x, perm: op.Transpose(x, perm=perm))
def relabel_transpose(op: Any, x: Value, perm: Perm | None) -> Value:
    """transpose(x) -> reshape(x) where only dims of 1 change places, so that nothing needs to be moved"""
    require(perm is not None and x.shape is not None, "the rank is unknown")
    dims, axes = x.shape or (), perm or ()
    kept = [axis for axis in axes if dims[axis] != 1]
    require(kept == sorted(kept), "it moves elements", x)
    moved = [dims[axis] for axis in axes]
    require(x.type.is_static or 0 not in moved, "a dim of 0 stands beside an open one", x)
    pairs = zip(moved, dims, strict=True)
    shape = tuple(new if isinstance(new, int) else 0 if new == old else -1 for new, old in pairs)
    require(shape.count(-1) <= 1, "two sizes that are open change places", x)
    found: Value = op.Reshape(x, shape=shape, allowzero=int(x.type.is_static))
    return found


@dataclass(frozen=True)
class CancelTransposes(RulePass):
    """Moves transposes behind functions of single elements and composes those that meet."""

    name: ClassVar[str] = "cancel-transposes"
    after: ClassVar[tuple[str, ...]] = ("remove-identities",)
    rules: ClassVar[tuple[Rule, ...]] = (transpose_after_unary, compose_transposes)


@dataclass(frozen=True)
class RelabelTransposes(RulePass):
    """Makes a transpose that moves only dims of 1 a Reshape, which is free; also when sizes have become known."""

    name: ClassVar[str] = "relabel-transposes"
    phase: ClassVar[str] = "lower"
    after: ClassVar[tuple[str, ...]] = ("decompose-unsupported",)
    rules: ClassVar[tuple[Rule, ...]] = (relabel_transpose,)
