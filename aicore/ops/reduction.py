"""Reductions over axes.

Operands data and axes; constant axes become the field `axes`, sorted and counted from the front once the rank is known.
Without axes everything is reduced, or nothing when noop_with_empty_axes is 1: then only the other steps of the op
remain (the square of ReduceSumSquare, the logarithm of ReduceLogSum). keepdims: reduced dims stay as 1. Integers wrap;
float16 and bfloat16 are accumulated in float32. NaN propagates, also through ReduceMax and ReduceMin. Source: ONNX.

Gradients: ReduceMax and ReduceMin share it equally among the elements that are the extreme one; that of ReduceL1 is 0
at 0, that of ReduceL2 where the result is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, Shape, unknown
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._content import representable
from aicore.ops._pointwise import SPECIAL, floats, integers
from aicore.ops.base import Simple, ensure, need_dtype, normalize_axes, same_dim, shape_text
from aicore.ops.gradients import Given, Gradients, reshape_like
from aicore.ops.sizes import given, need_one_of, need_vector, unknown_shape, vector_length

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

    def _fields(self, **changed: int) -> dict[str, Any]:
        return {
            "axes": self.axes,
            "keepdims": self.keepdims,
            "noop_with_empty_axes": self.noop_with_empty_axes,
            **changed,
        }

    def _kept(self, op: Builder, value: Value, inputs: Given) -> Any:
        """A value of the result's shape with the reduced dims as 1, so that it broadcasts with the operand."""
        data, axes = (*inputs, None)[:2]
        if self.keepdims or (data.rank is None and not self.axes and axes is None):
            return value
        if axes is None:
            return op.Unsqueeze(value, axes=self.axes or ())
        return reshape_like(op, value, op.apply(replace(self, keepdims=1), data, axes))

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

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (op.Expand(self._kept(op, grads[0], inputs), op.Shape(inputs[0])),)


@op_class
class ReduceMean(_Reduction):
    """The mean; of integers rounded towards zero. Of nothing: NaN, for integers 0."""

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        count = op.Div(op.Size(inputs[0]), op.Size(outputs[0]))
        share = _divided(op, grads[0], count)
        return (op.Expand(self._kept(op, share, inputs), op.Shape(inputs[0])),)


@op_class
class ReduceProd(_Reduction):
    """The product; 1 of nothing."""

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """The product of all other elements: y / x, but where there are zeros, that of those that are none."""
        (x, *axes), (g,) = inputs, grads
        zero, one = op.scalar(0.0, x), op.scalar(1.0, x)
        is_zero = op.Equal(x, zero)
        without = op.apply(self, op.Where(is_zero, one, x), *axes)
        zeros = op.ReduceSum(op.Cast(is_zero, to=x.dtype), *axes, **self._fields())
        factor, zeros, g = (self._kept(op, value, inputs) for value in (without, zeros, g))
        alone = op.Where(op.Equal(zeros, one), factor, zero)
        others = op.Where(op.Equal(zeros, zero), op.Div(factor, x), zero)
        return (op.Mul(g, op.Where(is_zero, alone, others)),)

    def content(self, data: Value, axes: Value | None = None) -> Shape | None:
        dims = data.content
        if axes is not None or dims is None or data.rank != 1 or (not self.axes and self.noop_with_empty_axes):
            return None
        product: Dim = 1
        for dim in dims:
            product = product * dim
        return (product,) if representable(product, data.dtype) else None


@op_class
class _Extreme(_Reduction):
    allowed: ClassVar[frozenset[str]] = WIDE_NUMBERS | {"int8", "uint8", "bool"}

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """Equal shares to all elements that are the extreme one."""
        x, (y, g) = inputs[0], (self._kept(op, value, inputs) for value in (outputs[0], grads[0]))
        is_it = op.Cast(op.Equal(x, y), to=x.dtype)
        count = op.ReduceSum(is_it, *inputs[1:], **self._fields(keepdims=1))
        return (op.Mul(is_it, op.Div(g, count)),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from super().samples(rng)
        yield Sample(cls(axes=(1,)), (rng.random((3, 2)) < 0.5,), note="bool")
        yield Sample(cls(axes=(0,)), (np.zeros((0, 3), np.int8),), note="nothing to reduce, int8")


@op_class
class ReduceMax(_Extreme):
    """The largest element; of nothing -infinity, the type's smallest number, or False. bool and 8-bit integers too."""


@op_class
class ReduceMin(_Extreme):
    """The smallest element; of nothing infinity, the type's largest number, or True. bool and 8-bit integers too."""


@op_class
class ReduceL1(_Reduction):
    """The sum of absolute values; 0 of nothing."""

    flops: ClassVar[int] = 2

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        x, g = inputs[0], self._kept(op, grads[0], inputs)
        return (op.Mul(g, op.Sign(x)),)


@op_class
class ReduceL2(_Reduction):
    """The square root of the sum of squares; of integers rounded towards zero. 0 of nothing."""

    flops: ClassVar[int] = 2

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """x / y, and 0 where y is."""
        x, (y, g) = inputs[0], (self._kept(op, value, inputs) for value in (outputs[0], grads[0]))
        zero = op.scalar(0.0, x)
        return (op.Mul(x, op.Where(op.Equal(y, zero), zero, op.Div(g, y))),)


@op_class
class ReduceSumSquare(_Reduction):
    """The sum of squares; 0 of nothing."""

    flops: ClassVar[int] = 2

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        x, g = inputs[0], self._kept(op, grads[0], inputs)
        return (op.Mul(x, op.Mul(g, op.scalar(2.0, g))),)


@op_class
class ReduceLogSum(_Reduction):
    """The logarithm of the sum; floating point only. -infinity of nothing."""

    allowed: ClassVar[frozenset[str]] = FLOATS

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        share = op.Div(grads[0], op.Exp(outputs[0]))
        return (op.Expand(self._kept(op, share, inputs), op.Shape(inputs[0])),)


@op_class
class ReduceLogSumExp(_Reduction):
    """log(sum(exp(x))), computed so that exp cannot overflow; floating point only. -infinity of nothing."""

    allowed: ClassVar[frozenset[str]] = FLOATS
    flops: ClassVar[int] = 3

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        x, (y, g) = inputs[0], (self._kept(op, value, inputs) for value in (outputs[0], grads[0]))
        return (op.Mul(g, op.Exp(op.Sub(x, y))),)


@op_class
class SumTo(Simple):
    """x summed over the dims that broadcasting a tensor of `shape` to its shape enlarged: the gradient of broadcasting.

    shape: of the result; its dims are 1 or those of x, counted from the back. Once all are known a ReduceSum does it.
    Raises InferenceError when x is no shape that `shape` broadcasts to.
    """

    shape: tuple[int, ...] | None = None
    operand_fields: ClassVar[Mapping[int, str]] = {1: "shape"}

    def infer(self, x: Value, shape: Value | None = None) -> Types:
        need_dtype(x, WIDE_NUMBERS)
        need_one_of(self.shape, shape, "the shape")
        need_vector(shape, "shape")
        wanted = given(self.shape, shape)
        if wanted is None:
            return TensorType(x.dtype, unknown_shape(vector_length(shape)))
        if x.shape is not None:
            pairs = zip(wanted[::-1], x.shape[::-1], strict=False)
            fits = len(wanted) <= len(x.shape) and all(want == 1 or same_dim(want, dim) for want, dim in pairs)
            ensure(fits, f"{shape_text(wanted)} does not broadcast to {shape_text(x.shape)}")
        return TensorType(x.dtype, wanted)

    def cost(self, x: Value, shape: Value | None = None) -> tuple[Dim, Dim]:
        return x.type.size, moved_bytes(self.infer(x, shape), (x,))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (op.Expand(grads[0], op.Shape(inputs[0])),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = floats(rng, (2, 3, 4))
        for shape in ((2, 3, 4), (1, 3, 1), (3, 4), (1, 4), (4,), (1,), ()):
            yield Sample(cls(shape), (x,), note=f"to {shape}")
        yield Sample(cls(), (x, np.array([3, 1], np.int64)), note="shape known at run time only")
        yield Sample(cls((1, 2)), (floats(rng, (0, 2)),), note="nothing to sum")
        yield Sample(
            cls((3, 1)), (np.array([[np.inf, -np.inf], [np.nan, 1], [1, np.inf]], np.float32),), note="special"
        )
        yield Sample(cls((4,)), (integers(rng, (3, 4)),), note="int64")


def _divided(op: Builder, value: Value, count: Value) -> Any:
    """The value over an int64 number, in float32 at least: a count may exceed float16."""
    wide = value.dtype if value.dtype in ("float32", "float64") else "float32"
    return op.Cast(op.Div(op.Cast(value, to=wide), op.Cast(count, to=wide)), to=value.dtype)
