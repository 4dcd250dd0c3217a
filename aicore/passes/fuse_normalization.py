"""A sum joins the normalisation that follows it."""

from __future__ import annotations

from typing import ClassVar

from aicore.ops.fused_normalization import AddNormalization, AddNormalizationSum
from aicore.passes.base import RulePass
from aicore.records import dataclass
from aicore.rewrite import Rule, fuse


@dataclass(frozen=True)
class FuseNormalization(RulePass):
    """Makes a normalisation add up its operand, where the target has a kernel for it.

    A sum that others read, too, is another result of that kernel; its rule comes last, for it would match any sum.
    """

    name: ClassVar[str] = "fuse-normalization"
    phase: ClassVar[str] = "fuse"
    before: ClassVar[tuple[str, ...]] = ("fuse-pointwise",)
    after: ClassVar[tuple[str, ...]] = ("recognise-functions", "fuse-linear")
    rules: ClassVar[tuple[Rule, ...]] = (fuse(AddNormalization), fuse(AddNormalizationSum))
