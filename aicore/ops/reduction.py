"""Reductions over axes.

Operands data and axes; constant axes become the field `axes`, sorted and counted from the front once the rank is known.
Without axes everything is reduced, or nothing when noop_with_empty_axes is 1: then only the other steps of the op
remain (the square of ReduceSumSquare, the logarithm of ReduceLogSum). keepdims: reduced dims stay as 1. Integers wrap;
float16 and bfloat16 are accumulated in float32. NaN propagates, also through ReduceMax and ReduceMin. Source: ONNX.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.dims import Dim, Shape, unknown
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._content import representable
from aicore.ops._pointwise import SPECIAL, floats, integers
from aicore.ops.base import Simple, need_dtype, normalize_axes

WIDE_NUMBERS = FLOATS | {"int32", "int64", "uint32", "uint64"}


@op_class
class _Reduction(Simple):
    axes: tuple[int, ...] | None = None
    keepdims: int = 1
    noop_with_empty_axes: int = 0
    operand_fields: ClassVar[Mapping[int, str]] = {1: "axes"}
    allowed: ClassVar[frozenset[str]] = WIDE_NUMBERS
    flops: ClassVar[int] = 1

    def resolve(self, data: Value, axes: Value | None = None) -> Op:
        if data.rank is None or axes is not None:
            return self
        reduced = self._reduced(data.rank)
        return replace(self, axes=reduced, noop_with_empty_axes=int(not reduced and data.rank > 0))

    def _reduced(self, rank: int) -> tuple[int, ...]:
        if not self.axes and not self.noop_with_empty_axes:
            return tuple(range(rank))
        return tuple(sorted(normalize_axes(self.axes or (), rank)))

    def infer(self, data: Value, axes: Value | None = None) -> Types:
        need_dtype(data, self.allowed)
        if axes is not None:
            need_dtype(axes, ("int64",))
            return TensorType(data.dtype, self._shape_for_unknown(data, axes))
        if data.shape is None:
            return data.type
        gone = self._reduced(len(data.shape))
        kept = (1 if i in gone else dim for i, dim in enumerate(data.shape) if self.keepdims or i not in gone)
        return TensorType(data.dtype, tuple(kept))

    def _shape_for_unknown(self, data: Value, axes: Value) -> Shape | None:
        if data.shape is None:
            return None
        if self.keepdims:
            return tuple(unknown() for _ in data.shape)
        count = axes.shape[0] if axes.rank == 1 and axes.shape is not None else None
        if not isinstance(count, int) or count == 0:
            return None
        return tuple(unknown() for _ in range(len(data.shape) - count))

    def cost(self, data: Value, axes: Value | None = None) -> tuple[Dim, Dim]:
        return data.type.size * self.flops, moved_bytes(self.infer(data, axes), (data, axes))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = floats(rng, (3, 4, 5), 0.5, 3.0)
        yield Sample(cls(), (x,), note="everything")
        yield Sample(cls(axes=(1,)), (x,))
        yield Sample(cls(axes=(-1, 0), keepdims=0), (x,), note="negative axis, unsorted")
        yield Sample(cls(keepdims=0), (x, np.array([2, 1])), constant=(1,), note="constant axes")
        yield Sample(cls(), (x, np.array([-2])), note="computed axes")
        yield Sample(cls(noop_with_empty_axes=1), (x,), note="no axes: nothing is reduced")
        yield Sample(cls(noop_with_empty_axes=1), (x, np.zeros(0, np.int64)), note="empty axes: nothing is reduced")
        yield Sample(cls(), (floats(rng, (), 0.5, 3.0),), note="rank 0")
        yield Sample(cls(axes=(0,)), (floats(rng, (3, 0, 2)),), note="zero size")
        yield Sample(cls(axes=(-1,)), (np.stack([SPECIAL, SPECIAL[::-1]]),), note="zeros, infinities, NaN")
        yield Sample(cls(axes=(0,)), (np.array([[np.inf, -np.inf], [np.inf, 1]], np.float32),), note="infinities")
        yield Sample(cls(axes=(2, 3)), (floats(rng, (2, 3, 7, 9), 0.5, 1.5),), note="over space")
        if "int64" in cls.allowed:
            yield Sample(cls(axes=(1,)), (integers(rng, (3, 4)),), note="int64")
            yield Sample(cls(axes=(1,), keepdims=0), (integers(rng, (3, 4), dtype="int32"),), note="int32")
        yield Sample(cls(axes=(1,)), (floats(rng, (3, 0, 2)),), note="nothing to reduce")


@op_class
class ReduceSum(_Reduction):
    """The sum; 0 of nothing."""


@op_class
class ReduceMean(_Reduction):
    """The mean; of integers rounded towards zero. Of nothing: NaN, for integers 0."""


@op_class
class ReduceProd(_Reduction):
    """The product; 1 of nothing."""

    def content(self, data: Value, axes: Value | None = None) -> Shape | None:
        dims = data.content
        if axes is not None or dims is None or data.rank != 1 or (not self.axes and self.noop_with_empty_axes):
            return None
        product: Dim = 1
        for dim in dims:
            product = product * dim
        return (product,) if representable(product, data.dtype) else None


@op_class
class ReduceMax(_Reduction):
    """The largest element; of nothing -infinity, the type's smallest number, or False. bool and 8-bit integers too."""

    allowed: ClassVar[frozenset[str]] = WIDE_NUMBERS | {"int8", "uint8", "bool"}

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from super().samples(rng)
        yield Sample(cls(axes=(1,)), (rng.random((3, 2)) < 0.5,), note="bool")
        yield Sample(cls(axes=(0,)), (np.zeros((0, 3), np.int8),), note="nothing to reduce, int8")


@op_class
class ReduceMin(_Reduction):
    """The smallest element; of nothing infinity, the type's largest number, or True. bool and 8-bit integers too."""

    allowed: ClassVar[frozenset[str]] = WIDE_NUMBERS | {"int8", "uint8", "bool"}

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from super().samples(rng)
        yield Sample(cls(axes=(1,)), (rng.random((3, 2)) < 0.5,), note="bool")
        yield Sample(cls(axes=(0,)), (np.zeros((0, 3), np.int8),), note="nothing to reduce, int8")


@op_class
class ReduceL1(_Reduction):
    """The sum of absolute values; 0 of nothing."""

    flops: ClassVar[int] = 2


@op_class
class ReduceL2(_Reduction):
    """The square root of the sum of squares; of integers rounded towards zero. 0 of nothing."""

    flops: ClassVar[int] = 2


@op_class
class ReduceSumSquare(_Reduction):
    """The sum of squares; 0 of nothing."""

    flops: ClassVar[int] = 2


@op_class
class ReduceLogSum(_Reduction):
    """The logarithm of the sum; floating point only. -infinity of nothing."""

    allowed: ClassVar[frozenset[str]] = FLOATS


@op_class
class ReduceLogSumExp(_Reduction):
    """log(sum(exp(x))), computed so that exp cannot overflow; floating point only. -infinity of nothing."""

    allowed: ClassVar[frozenset[str]] = FLOATS
    flops: ClassVar[int] = 3
