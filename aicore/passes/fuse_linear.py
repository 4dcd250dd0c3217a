"""Bias, residual and activation join the Conv, Gemm or MatMul that they follow."""

from __future__ import annotations

from typing import Any, ClassVar

from aicore.ir import Value
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct, GemmAct, MatMulAdd, MatMulAddAct
from aicore.ops.matmul import Gemm
from aicore.passes.base import RulePass
from aicore.records import dataclass
from aicore.rewrite import Rule, fuse, require, rule


@rule(lambda op, x, w, b: op.Add(op.MatMul(x, w), b))
def matmul_bias_to_gemm(op: Any, x: Value, w: Value, b: Value) -> Value:
    """x @ w + b -> Gemm(x, w, b)"""
    require(x.rank == 2 and w.rank == 2, "the factors are not matrices", x, w)
    require(b.shape is not None and len(b.shape) <= 2, "the bias has more than two axes", b)
    rows, columns = (x.shape or ())[0], (w.shape or ())[1]
    # Equal means provably equal: a symbolic dim that may be larger would broadcast the product, which Gemm does not.
    for dim, wanted in zip((b.shape or ())[::-1], (columns, rows), strict=False):
        require(dim in (1, wanted), "the bias may be larger than the product", b)
    reason = op.supports(Gemm(), x, w, b)
    require(reason is None, f"no kernel for Gemm: {reason}")
    found: Value = op.Gemm(x, w, b)
    return found


@dataclass(frozen=True)
class FuseLinear(RulePass):
    """Makes Conv, Gemm and MatMul take bias, residual and activation, as far as the target has kernels for that."""

    name: ClassVar[str] = "fuse-linear"
    phase: ClassVar[str] = "fuse"
    after: ClassVar[tuple[str, ...]] = ("fold-batchnorm", "recognise-functions")
    rules: ClassVar[tuple[Rule, ...]] = (
        fuse(ConvAddAct),
        fuse(ConvAct),
        fuse(ConvAdd),
        matmul_bias_to_gemm,
        fuse(GemmAct),
        fuse(MatMulAddAct),
        fuse(MatMulAdd),
    )
