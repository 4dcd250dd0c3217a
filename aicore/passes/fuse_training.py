"""Relu joins the BatchNormalization in front of it in training, and its gradient that of the pool behind it."""

from __future__ import annotations

from typing import ClassVar

from aicore.ops.fused_gradients import MaxPoolReluGrad
from aicore.ops.fused_normalization import BatchNormalizationAct
from aicore.passes.base import RulePass
from aicore.records import dataclass
from aicore.rewrite import Rule, fuse


@dataclass(frozen=True)
class FuseTraining(RulePass):
    """What surrounds Relu in a training step, as far as the target has kernels for both."""

    name: ClassVar[str] = "fuse-training"
    phase: ClassVar[str] = "fuse"
    after: ClassVar[tuple[str, ...]] = ("fuse-linear",)
    before: ClassVar[tuple[str, ...]] = ("place-channels-last", "fuse-pointwise")
    rules: ClassVar[tuple[Rule, ...]] = (fuse(BatchNormalizationAct), fuse(MaxPoolReluGrad))
