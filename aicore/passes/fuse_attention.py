"""Attention that is written as two products and a Softmax becomes one op."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

from aicore.ir import Value
from aicore.ops.attention import KEYS_TRANSPOSED, QUERIES, DotProductAttention, is_factor
from aicore.passes.base import RulePass
from aicore.records import dataclass
from aicore.rewrite import Rule, require, rule

Pattern = Callable[..., Any]


def _attention(scores: Callable[[Any, Any, Any], Any], masked: bool) -> Pattern:
    def plain(op: Any, q: Any, k: Any, v: Any, axis: Any, scale: Any) -> Any:
        return op.MatMul(op.Softmax(scores(op, op.MatMul(q, k), scale), axis=axis), v)

    def with_mask(op: Any, q: Any, k: Any, v: Any, axis: Any, scale: Any, mask: Any) -> Any:
        return op.MatMul(op.Softmax(op.Add(scores(op, op.MatMul(q, k), scale), mask), axis=axis), v)

    return with_mask if masked else plain


def _forms(scores: Callable[[Any, Any, Any], Any]) -> Iterable[Pattern]:
    yield _attention(scores, masked=True)
    yield _attention(scores, masked=False)


def _fused(
    op: Any, q: Value, k: Value, v: Value, axis: int, scale: float, mask: Value | None, layouts: tuple[str, ...]
) -> Value:
    ranks = (q.rank, k.rank, v.rank)
    rank = q.rank or 0
    require(len(set(ranks)) == 1 and 2 <= rank <= 4, f"the operands have ranks {ranks}")
    require(axis in (-1, rank - 1), f"the Softmax is along axis {axis}, not along the keys")
    q_layout, k_layout, y_layout = (layout[4 - rank :] for layout in layouts)
    attention = DotProductAttention(scale, q_layout, k_layout, q_layout, y_layout)
    reason = op.supports(attention, q, k, v, mask)
    require(reason is None, f"no kernel for DotProductAttention: {reason}")
    found: Value = op.apply(attention, q, k, v, mask)
    return found


def _number(value: Value, rank: int | None) -> float:
    """A constant of one element that has no more axes than the scores, which it would add to them."""
    known = value.known
    require(known is not None and known.size == 1, "the factor is not a constant number", value)
    require((value.rank or 0) <= (rank or 0), "the factor has more axes than the scores", value)
    number = float(known.ravel()[0]) if known is not None else 0.0
    require(is_factor(number), f"the factor is {number}", value)
    return number


_LAYOUTS = (QUERIES, KEYS_TRANSPOSED, QUERIES)


@rule(*_forms(lambda op, scores, scale: op.Mul(scores, scale)))
def attention_times_scale(op: Any, q: Value, k: Value, v: Value, axis: int, scale: Value, mask: Value | None) -> Value:
    """softmax(q @ k * scale + mask) @ v -> DotProductAttention(q, k, v, mask)"""
    return _fused(op, q, k, v, axis, _number(scale, q.rank), mask, _LAYOUTS)


@rule(*_forms(lambda op, scores, scale: op.Div(scores, scale)))
def attention_over_scale(op: Any, q: Value, k: Value, v: Value, axis: int, scale: Value, mask: Value | None) -> Value:
    """softmax(q @ k / scale + mask) @ v -> DotProductAttention(q, k, v, mask)"""
    number = _number(scale, q.rank)
    require(number != 0 and is_factor(1 / number), f"it divides by {number}", scale)
    return _fused(op, q, k, v, axis, 1 / number, mask, _LAYOUTS)


@rule(
    lambda op, q, k, v, axis, mask: op.MatMul(op.Softmax(op.Add(op.MatMul(q, k), mask), axis=axis), v),
    lambda op, q, k, v, axis: op.MatMul(op.Softmax(op.MatMul(q, k), axis=axis), v),
)
def attention_unscaled(op: Any, q: Value, k: Value, v: Value, axis: int, mask: Value | None) -> Value:
    """softmax(q @ k + mask) @ v -> DotProductAttention(q, k, v, mask)"""
    return _fused(op, q, k, v, axis, 1.0, mask, _LAYOUTS)


@rule(
    lambda op, q, k, v, mask, perm, attention: op.Transpose(op.apply(attention, q, k, v, mask), perm=perm),
    lambda op, q, k, v, perm, attention: op.Transpose(op.apply(attention, q, k, v), perm=perm),
)
def transposed_attention(
    op: Any, q: Value, k: Value, v: Value, mask: Value | None, perm: tuple[int, ...], attention: DotProductAttention
) -> Value:
    """transpose(attention(q, k, v, mask)) -> attention(q, k, v, mask) that writes its result in that order"""
    moved = replace(attention, y_layout="".join(attention.y_layout[axis] for axis in perm))
    reason = op.supports(moved, q, k, v, mask)
    require(reason is None, f"no kernel for DotProductAttention: {reason}")
    found: Value = op.apply(moved, q, k, v, mask)
    return found


@dataclass(frozen=True)
class FuseAttention(RulePass):
    """Makes DotProductAttention of two products around a Softmax, where the target has a kernel for it."""

    name: ClassVar[str] = "fuse-attention"
    phase: ClassVar[str] = "fuse"
    before: ClassVar[tuple[str, ...]] = ("fuse-linear", "fuse-pointwise")
    after: ClassVar[tuple[str, ...]] = ("fold-batchnorm", "recognise-functions")
    rules: ClassVar[tuple[Rule, ...]] = (
        attention_times_scale,
        attention_over_scale,
        attention_unscaled,
        transposed_attention,
    )
