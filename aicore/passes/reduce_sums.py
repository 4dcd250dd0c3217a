"""Sums over what broadcasting enlarged become sums over axes, as soon as sizes say over which."""

from __future__ import annotations

from typing import Any, ClassVar

from aicore.ir import Value
from aicore.ops.reduction import ReduceSum, SumTo
from aicore.passes.base import RulePass
from aicore.records import dataclass
from aicore.rewrite import Rule, require, rule


@rule(lambda op, sums, x: op.apply(sums, x))
def sum_over_axes(op: Any, sums: SumTo, x: Value) -> Value:
    """sum_to(x, shape) -> reduce_sum(x, axes), reshaped where leading axes go and others stay as 1"""
    require(sums.shape is not None and x.type.is_static, "a size is not known yet", x.type)
    shape, dims = sums.shape or (), x.type.static_shape
    leading = len(dims) - len(shape)
    axes = tuple(i for i, dim in enumerate(dims) if dim != 1 and (i < leading or shape[i - leading] == 1))
    total = ReduceSum(axes)
    reason = op.supports(total, x) if axes else None
    require(reason is None, f"no kernel for ReduceSum: {reason}", kind="kernel")
    found: Value = op.apply(total, x) if axes else x
    return found if found.shape == shape else op.Reshape(found, shape=shape, allowzero=1)


@dataclass(frozen=True)
class ReduceSums(RulePass):
    """A SumTo whose sizes are known is a ReduceSum where the target has that, so that none needs a kernel for it."""

    name: ClassVar[str] = "reduce-sums"
    after: ClassVar[tuple[str, ...]] = ("fold-shapes",)
    before: ClassVar[tuple[str, ...]] = ("remove-identities",)
    required: ClassVar[bool] = True
    rules: ClassVar[tuple[Rule, ...]] = (sum_over_axes,)
