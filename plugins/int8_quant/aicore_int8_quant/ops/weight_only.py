"""A product in floating point whose weight is kept in 8 bits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicore.ir import Namespace, Op, Sample, Value
from aicore.ir.op import Types
from aicore.ops.base import need_dtype
from aicore.ops.quantized_linear import EIGHT_BITS


@dataclass(frozen=True)
class WeightOnlyMatMul(Op):
    """x @ ((w - w_zero_point) * w_scale), where x is float32 and w 8-bit integers, (k, n): fewer bytes to read.

    w_scale: float32, one number or one for each of the n columns. w_zero_point: of the type of w, or absent.
    """

    def infer(self, x: Value, w: Value, w_scale: Value, w_zero_point: Value | None = None) -> Types:
        for value, dtypes in ((x, {"float32"}), (w, EIGHT_BITS), (w_scale, {"float32"})):
            need_dtype(value, dtypes)
        return super().infer(x, w, w_scale, w_zero_point)

    def decompose(self, op: Namespace, x: Any, w: Any, w_scale: Any, w_zero_point: Any = None) -> Any:
        return op.MatMul(x, op.DequantizeLinear(w, w_scale, w_zero_point, axis=-1))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        w = rng.integers(-127, 127, (33, 9)).astype(np.int8)
        scale = rng.uniform(0.01, 0.1, 9).astype(np.float32)
        for shape in ((5, 33), (2, 3, 33), (0, 33), (33,)):
            x = rng.normal(size=shape).astype(np.float32)
            yield Sample(cls(), (x, w, scale), constant=(1, 2), note=f"x of shape {shape}")
        x = rng.normal(size=(4, 33)).astype(np.float32)
        points = rng.integers(-9, 9, 9).astype(np.int8)
        yield Sample(cls(), (x, w, scale, points), constant=(1, 2, 3), note="zero points")
        yield Sample(cls(), (x, w, scale[0]), constant=(1, 2), note="one scale")
