"""Ops that draw random numbers. They are functions of a key operand, so the same key gives the same numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import Simple, ensure


@dataclass(frozen=True)
class Dropout(Simple):
    """`x` with each element zeroed with probability `ratio` and the rest divided by 1 - ratio, in training mode only.

    Operands: x, ratio (0.5 when absent), training_mode (false when absent), key (two uint32, needed in training mode).
    mask: also give, as output 1, which elements are kept (bool).
    stream: numbers this op's draws apart from those of others under the same key. Element i is kept when the i-th
    number of Philox4x32-10 for this key and stream is at least ratio * 2^32, so every backend keeps the same ones.
    Source: ONNX Dropout; Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """

    ratio: float | None = None
    training_mode: bool | None = None
    mask: bool = False
    stream: int = 0

    operand_fields: ClassVar[dict[int, str]] = {1: "ratio", 2: "training_mode"}

    def n_outputs(self) -> int:
        return 2 if self.mask else 1

    def infer(
        self, x: Value, ratio: Value | None = None, training_mode: Value | None = None, key: Value | None = None
    ) -> Types:
        ensure(x.dtype in FLOATS, f"%{x.name} is {x.dtype}, wants a float")
        ensure(self.ratio is None or 0 <= self.ratio < 1, f"ratio is {self.ratio}, wants 0 to below 1")
        ensure(training_mode is None or training_mode.dtype == "bool", "training_mode is not bool")
        trains = bool(self.training_mode) or training_mode is not None
        ensure(not trains or key is not None, "training mode needs a key")
        fits = key is None or (key.dtype == "uint32" and key.shape in (None, (2,)))
        ensure(fits, f"the key is {None if key is None else key.type}, wants uint32[2]")
        return (x.type, TensorType("bool", x.shape)) if self.mask else x.type

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        flops, moved = super().cost(*inputs)
        return (flops * 12, moved) if self.training_mode else (0, moved)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(3, 5)).astype(np.float32)
        key = np.array([7, 9], np.uint32)
        yield Sample(Dropout(), (x,), note="inference")
        yield Sample(Dropout(0.3, mask=True), (x,), note="inference with mask")
        yield Sample(Dropout(0.3, True, True, 1), (x, None, None, key), note="training")
        yield Sample(Dropout(0.0, True), (x, None, None, key), note="training, ratio 0")
        yield Sample(Dropout(None, None, True), (x, np.array(0.75, np.float32), np.array(True), key), note="run time")
