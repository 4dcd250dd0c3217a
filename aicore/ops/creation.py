"""Ops that make a tensor out of a shape or a few numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.errors import InferenceError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, Shape, as_expr, unknown
from aicore.ir.dtypes import dtype_name
from aicore.ir.op import Op, Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import KNOWN_LIMIT, Buffer, Value
from aicore.ops.base import ensure, need_rank, normalize_axis, same_dim, same_dtype, shape_text
from aicore.ops.gradients import Given, Gradients, no_gradient, places, reshape_like
from aicore.ops.sizes import (
    Movement,
    as_ints,
    given,
    need_one_of,
    need_vector,
    one_number,
    unknown_shape,
    vector_length,
)

RANGE_DTYPES = frozenset({"int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"})


@op_class
class ConstantOfShape(Movement):
    """A tensor of the dims `shape`, filled with the one element of `value`: a float32 0 unless given.

    Source: ONNX ConstantOfShape.
    """

    value: Buffer | None = None
    shape: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {0: "shape"}

    @property
    def dtype(self) -> str:
        return "float32" if self.value is None else dtype_name(self.value.array.dtype)

    def infer(self, shape: Value | None = None) -> Types:
        need_one_of(self.shape, shape, "the shape")
        need_vector(shape, "shape")
        ensure(self.value is None or self.value.array.size == 1, "value must hold one element")
        dims = given(self.shape, shape)
        if dims is None:
            return TensorType(self.dtype, unknown_shape(vector_length(shape)))
        low = any(isinstance(d, int) and d < 0 for d in dims)
        ensure(not low, f"shape {shape_text(dims)} has a negative dim")
        return TensorType(self.dtype, dims)

    def content(self, shape: Value | None = None) -> Shape | None:
        dims = given(self.shape, shape)
        if self.value is None or self.value.array.dtype.kind not in "iu" or dims is None or len(dims) > 1:
            return None
        count = dims[0] if dims else 1
        return (int(self.value.array.item()),) * count if isinstance(count, int) and count <= KNOWN_LIMIT else None

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(ConstantOfShape(None, (2, 3)), ())
        yield Sample(ConstantOfShape(Buffer(np.array([-7], np.int64)), (4,)), (), note="int64")
        yield Sample(ConstantOfShape(Buffer(np.array([True])), ()), (), note="scalar")
        yield Sample(ConstantOfShape(None, (2, 0)), (), note="no elements")
        yield Sample(ConstantOfShape(), (np.array([3, 2], np.int64),), note="shape known at run time only")


@op_class
class Range(Movement):
    """start + i * delta for i from 0 to below ceil((limit - start) / delta), as a vector.

    start, limit, delta: scalars of one dtype; float16 and bfloat16 are computed in float32.
    Raises InferenceError for a delta of 0. Source: ONNX Range.
    """

    stash_type: str = "float32"

    def infer(self, start: Value, limit: Value, delta: Value) -> Types:
        same_dtype(start, limit, delta)
        ensure(start.dtype in RANGE_DTYPES, f"dtype {start.dtype} is not among {', '.join(sorted(RANGE_DTYPES))}")
        ensure(self.stash_type == "float32", f"stash_type is {self.stash_type}, wants float32")
        for bound in (start, limit, delta):
            one = not bound.shape or (len(bound.shape) == 1 and same_dim(bound.shape[0], 1))
            ensure(one, f"%{bound.name} is not a scalar")
        return TensorType(start.dtype, (_range_length(start, limit, delta),))

    def content(self, start: Value, limit: Value, delta: Value) -> Shape | None:
        if start.content is None or delta.content is None:
            return None
        length = _range_length(start, limit, delta)
        if not isinstance(length, int) or length > KNOWN_LIMIT:
            return None
        return tuple(start.content[0] + delta.content[0] * i for i in range(length))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (start, _, delta), (g,) = inputs, grads
        steps = op.Cast(places(op, g), to=g.dtype)
        to_delta = op.ReduceSum(op.Mul(g, steps), keepdims=0)
        return reshape_like(op, op.ReduceSum(g, keepdims=0), start), None, reshape_like(op, to_delta, delta)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        integers = ((0, 5, 1), (10, 4, -2), (3, 9, 4), (5, 5, 1), (5, 2, 1))
        floats = ((0, 1, 0.25), (1, -1, -0.3), (2, 1, 0.5))
        for dtype, cases in ((np.int64, integers), (np.int32, integers), (np.float32, floats)):
            for case in cases:
                numbers = tuple(np.array(number, dtype) for number in case)
                yield Sample(Range(), numbers, note=f"{dtype.__name__} {case}")


@op_class
class EyeLike(Movement):
    """Ones on the k-th diagonal of a matrix of the shape of `x`, zeros elsewhere. Source: ONNX EyeLike."""

    dtype: str | None = None
    k: int = 0

    def infer(self, x: Value) -> Types:
        need_rank(x, 2)
        return TensorType(self.dtype or x.dtype, unknown_shape(2) if x.shape is None else x.shape)

    grad = no_gradient

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = np.zeros((3, 4), np.float32)
        for k in (0, 1, -2, 9):
            yield Sample(EyeLike(None, k), (x,), note=f"diagonal {k}")
        yield Sample(EyeLike("int32"), (x,), note="another dtype")
        yield Sample(EyeLike(), (x[:0],), note="no elements")


@op_class
class OneHot(Movement):
    """values[1] where the new axis, of dim `depth`, equals the index, values[0] elsewhere.

    indices: any numbers; one outside -depth to depth - 1 gives a row of values[0], a negative one counts from the back.
    values: two elements, whose dtype the result has. Source: ONNX OneHot.
    """

    axis: int = -1
    depth: int | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "depth"}

    def absorb(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        op, rest = super().absorb(*inputs)
        if isinstance(op, OneHot) and op.depth is not None:  # of any numeric dtype
            op = replace(op, depth=int(one_number(op.depth, "depth")))
        return op, rest

    def infer(self, indices: Value, depth: Value | None = None, values: Value | None = None) -> Types:
        need_one_of(self.depth, depth, "depth")
        if values is None:
            raise InferenceError("values is missing")
        fits = values.shape is None or (len(values.shape) == 1 and values.shape[0] in (2, *_symbols(values.shape)))
        ensure(fits, f"values %{values.name} has the shape {shape_text(values.shape)}, wants (2,)")
        if indices.shape is None:
            return TensorType(values.dtype, None)
        found = None if depth is None else depth.content
        size: Dim = self.depth if self.depth is not None else found[0] if found else unknown()
        ensure(not isinstance(size, int) or size >= 0, f"depth is {size}, wants 0 or more")
        axis = normalize_axis(self.axis, len(indices.shape) + 1)
        return TensorType(values.dtype, (*indices.shape[:axis], size, *indices.shape[axis:]))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """To each of the two values, the sum over where it is."""
        (indices, depth, _), (g,) = inputs, grads
        is_hot = op.apply(self, indices, depth, op.constant(np.array([False, True]), "hot"))
        zero = op.scalar(0.0, g)
        sums = [op.ReduceSum(op.Where(is_hot, *pair), keepdims=0) for pair in ((zero, g), (g, zero))]
        return None, None, op.Concat(*(op.Unsqueeze(total, axes=(0,)) for total in sums), axis=0)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        indices, values = np.array([[0, 2], [-1, 7]], np.int64), np.array([-1, 3], np.float32)
        for axis in (-1, 0, 1, -2):
            yield Sample(OneHot(axis, 4), (indices, None, values), note=f"axis {axis}; 7 is out of range")
        yield Sample(OneHot(-1, 3), (np.array(1, np.float32), None, values), note="scalar float index")
        yield Sample(OneHot(), (indices, np.array(5, np.int64), values), note="depth known at run time only")


@op_class
class Trilu(Movement):
    """The triangle of each matrix on and above (`upper`), or on and below the k-th diagonal; zeros elsewhere.

    Source: ONNX Trilu.
    """

    upper: int = 1
    k: int | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "k"}

    def absorb(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        op, rest = super().absorb(*inputs)
        return (replace(op, k=one_number(op.k, "k")) if isinstance(op, Trilu) else op), rest

    def infer(self, x: Value, k: Value | None = None) -> Types:
        ensure(x.rank is None or x.rank >= 2, f"%{x.name} has rank {x.rank}, wants 2 or more")
        ensure(k is None or k.dtype == "int64", f"k is {k.dtype if k else ''}, wants int64")
        return x.type

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (op.apply(self, grads[0], *inputs[1:]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 4, 5)).astype(np.float32)
        x[0, 0, 0] = np.nan
        for upper in (0, 1):
            for k in (None, 1, -2, 9, -9):
                yield Sample(Trilu(upper, k), (x,), note=f"{'upper' if upper else 'lower'}, diagonal {k}")
        yield Sample(Trilu(), (x[:, :0],), note="no elements")
        yield Sample(Trilu(1), (x, np.array(-1, np.int64)), note="diagonal known at run time only")


def range_length(start: float, limit: float, delta: float) -> int:
    """ceil((limit - start) / delta), at least 0: integers exactly, floats in float64. `delta` is not 0."""
    if all(isinstance(number, int) for number in (start, limit, delta)):
        return int(max(-((start - limit) // delta), 0))
    return max(math.ceil((limit - start) / delta), 0)


def _range_length(start: Value, limit: Value, delta: Value) -> Dim:
    contents = [v.content for v in (start, limit, delta)]
    if all(contents):
        first, last, step = (content[0] for content in contents if content)
        ensure(step != 0, "delta is 0")
        numbers = as_ints((first, last, step))
        if numbers is not None:
            return range_length(*numbers)
        return as_expr(last - first + step - 1) // step if isinstance(step, int) and step > 0 else unknown()
    known = [v.known for v in (start, limit, delta)]
    arrays = [array for array in known if array is not None]
    ensure(known[2] is None or known[2].any(), "delta is 0")
    return range_length(*(array.item() for array in arrays)) if len(arrays) == 3 else unknown()


def _symbols(shape: Shape) -> tuple[Dim, ...]:
    return tuple(d for d in shape if not isinstance(d, int))
