"""The same bits under another element type."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.dtypes import DTYPES, numpy_dtype
from aicore.ir.op import Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._pointwise import SPECIAL, floats, integers
from aicore.ops.base import ensure
from aicore.ops.sizes import Movement

_BELOW_A_BYTE = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}


@op_class
class BitCast(Movement):
    """The elements' bits read as the type named `to`, which must have as many of them; no text.

    A byte other than 0 and 1 read as bool is True. Source: ONNX BitCast-26.
    """

    to: str = "float32"

    def infer(self, x: Value) -> Types:
        if self.to not in DTYPES or "string" in (self.to, x.dtype):
            raise UnsupportedError(f"cannot read the bits of {x.dtype} as {self.to}")
        source, target = bits_of(x.dtype), bits_of(self.to)
        ensure(source == target, f"{x.dtype} has {source} bits, {self.to} has {target}")
        return TensorType(self.to, x.shape)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls("int32"), (SPECIAL,), note="zeros, infinities, NaN")
        yield Sample(cls("float32"), (floats(rng, (3, 4)).view(np.int32),), note="int32")
        yield Sample(cls("uint64"), (integers(rng, (3, 4)),), note="int64")
        yield Sample(cls("float16"), (integers(rng, (5,), 0, 999, "uint16"),), note="uint16")
        yield Sample(cls("int8"), (np.array([0, 127, 128, 255], np.uint8),), note="uint8")
        yield Sample(cls("uint8"), (np.array([True, False]),), note="bool")
        yield Sample(cls("int4"), (np.arange(16).astype(numpy_dtype("uint4")),), note="uint4")
        yield Sample(cls("uint2"), (np.array([-2, -1, 0, 1]).astype(numpy_dtype("int2")),), note="int2")
        yield Sample(cls("int32"), (floats(rng, ()),), note="rank 0")
        yield Sample(cls("int32"), (floats(rng, (2, 0)),), note="zero size")


def bits_of(dtype: str) -> int:
    """Bits of one element, which for some types are fewer than memory has for it."""
    return _BELOW_A_BYTE.get(dtype) or 8 * numpy_dtype(dtype).itemsize
