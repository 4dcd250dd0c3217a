"""Golden texts: what passes make of a graph, written out."""

from __future__ import annotations

import pytest

from aicore.ir import parse_graph, print_graph
from aicore.ops import CORE
from aicore.passes import Pass, run_passes
from aicore.passes.cancel_transposes import CancelTransposes
from aicore.passes.fold_constants import FoldConstants
from aicore.passes.fold_shapes import FoldShapes
from aicore.passes.fuse_linear import FuseLinear
from aicore.passes.fuse_pointwise import FusePointwise
from aicore.passes.merge_common import MergeCommon
from tests.passes.graphs import context

CASES: dict[str, tuple[Pass, str, str]] = {
    "fold-constants": (
        FoldConstants(),
        """
graph (%x: float32[N]) {
  const %c: float32[2] = [1.0, 2.0]
  %d = Mul(%c, %c)
  %y = Add(%x, %d)
  return "y"=%y
}""",
        """
graph (%x: float32[N]) {
  const %d: float32[2] = [1.0, 4.0]
  %y: float32[2] = Add(%x, %d)
  return "y"=%y
}""",
    ),
    "fold-shapes": (
        FoldShapes(),
        """
graph (%x: float32[N,2,3]) {
  const %axis: int64[1] = [0]
  const %rest: int64[1] = [6]
  %s = Shape(%x)
  %n = Gather(%s, %axis)
  %t = Shape(%x){start=1}
  %p = ReduceProd(%t)
  %q = Concat(%n, %p){axis=0}
  %y = Reshape(%x, %q)
  return "y"=%y
}""",
        """
graph (%x: float32[N,2,3]) {
  %s: int64[3] = Shape(%x)
  const %axis: int64[1] = [0]
  %n: int64[1] = Gather(%s, %axis)
  const %p: int64[1] = [6]
  %q: int64[2] = Concat(%n, %p){axis=0}
  %y: float32[N,6] = Reshape(%x, %q)
  return "y"=%y
}""",
    ),
    "merge-common": (
        MergeCommon(),
        """
graph (%x: float32[N]) {
  %a = Exp(%x) from ["first"]
  %b = Exp(%x) from ["second"]
  %y = Sub(%a, %b)
  return "y"=%y, "b"=%b
}""",
        """
graph (%x: float32[N]) {
  %a: float32[N] = Exp(%x) from ["first"]
  %y: float32[N] = Sub(%a, %a)
  return "y"=%y, "b"=%a
}""",
    ),
    "cancel-transposes": (
        CancelTransposes(),
        """
graph (%x: float32[N,3,H,W]) {
  %a = Transpose(%x){perm=[0, 2, 3, 1]}
  %b = Relu(%a)
  %y = Transpose(%b){perm=[0, 3, 1, 2]}
  return "y"=%y
}""",
        """
graph (%x: float32[N,3,H,W]) {
  %relu: float32[N,3,H,W] = Relu(%x) by ["transpose-after-unary#0"]
  return "y"=%relu
}""",
    ),
    "fuse-linear": (
        FuseLinear(),
        """
graph (%x: float32[N,4], %w: float32[4,5], %b: float32[5]) {
  %p = MatMul(%x, %w) from ["/fc/MatMul"]
  %s = Add(%b, %p) from ["/fc/Add"]
  %y = LeakyRelu(%s){alpha=0.2}
  return "y"=%y
}""",
        """
graph (%x: float32[N,4], %w: float32[4,5], %b: float32[5]) {
  %y: float32[N,5] = GemmAct(%x, %w, %b){gemm=Gemm, activation=LeakyRelu{alpha=0.2}} """
        """from ["/fc/Add", "/fc/MatMul"] by ["fuse-GemmAct#1", "matmul-bias-to-gemm#0"]
  return "y"=%y
}""",
    ),
    "fuse-pointwise": (
        FusePointwise(),
        """
graph (%x: float32[N,4], %c: float32[4]) {
  const %two: float32[] = [2.0]
  %a = Mul(%x, %two)
  %b = Add(%a, %c)
  %y = Relu(%b)
  return "y"=%y
}""",
        """
graph (%x: float32[N,4], %c: float32[4]) {
  %y: float32[N,4] = Region(%x, %c){body=graph (%x0: float32[N,4], %x1: float32[4]) {
    const %two: float32[] = [2.0]
    %a: float32[N,4] = Mul(%x0, %two)
    %b: float32[N,4] = Add(%a, %x1)
    %y: float32[N,4] = Relu(%b)
    return "y"=%y
  }} by ["fuse-pointwise#0"]
  return "y"=%y
}""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    one, before, after = CASES[name]
    assert one.name == name
    found, report = run_passes(parse_graph(before, CORE), (one,), context())
    assert not report.errors
    assert print_graph(found) == after.strip()
