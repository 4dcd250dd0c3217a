"""A function of one 8-bit tensor, by a table of its 256 values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicore.ir import Dim, Namespace, Op, Sample, Value
from aicore.ir.op import Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ops.base import ensure, need_dtype


@dataclass(frozen=True)
class Int8Lookup(Op):
    """(x, table) -> table[x - smallest code]: what a chain of dequantise, functions of one tensor, quantise comes to.

    x: int8 or uint8. table: 256 elements of any type, in the order of the codes.
    """

    def infer(self, x: Value, table: Value) -> Types:
        need_dtype(x, {"int8", "uint8"})
        ensure(table.shape == (256,), f"the table is {table.type}, wants 256 elements")
        return TensorType(table.dtype, x.shape)

    def cost(self, x: Value, table: Value) -> tuple[Dim, Dim]:
        return x.type.size, moved_bytes(self.infer(x, table), (x, table))

    def decompose(self, op: Namespace, x: Any, table: Any) -> Any:
        index = op.Cast(x, to="int32")
        if x.dtype == "int8":
            index = op.Add(index, op.scalar(128, index))
        return op.Gather(table, index)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for dtype in ("int8", "uint8"):
            limits = np.iinfo(dtype)
            x = rng.integers(limits.min, limits.max, (3, 4, 5), endpoint=True).astype(dtype)
            codes = rng.integers(-128, 127, 256, endpoint=True).astype(np.int8)
            yield Sample(cls(), (x, codes), constant=(1,), note=f"{dtype} to int8")
            yield Sample(cls(), (x, rng.normal(size=256).astype(np.float32)), constant=(1,), note=f"{dtype} to float")
            yield Sample(cls(), (x[:0], codes), constant=(1,), note=f"{dtype}, zero size")
