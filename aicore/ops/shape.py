"""Ops that read a shape, or give the same elements another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from aicore.errors import InferenceError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, as_expr, unknown
from aicore.ir.dims import Shape as Dims
from aicore.ir.op import Op, Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import Simple, ensure, normalize_axes, shape_text
from aicore.ops.gradients import Given, Gradients, reshape_like
from aicore.ops.sizes import Relabel, given, kept_content, need_one_of, need_vector, unknown_shape, vector_length


@op_class
class Shape(Simple):
    """The dims of `x` from `start` to `end` as an int64 vector; both count from the back when negative and are clamped.

    Source: ONNX Shape.
    """

    start: int = 0
    end: int | None = None

    def infer(self, x: Value) -> Types:
        return TensorType("int64", (unknown() if x.shape is None else len(x.shape[self.start : self.end]),))

    def content(self, x: Value) -> Dims | None:
        return None if x.shape is None else x.shape[self.start : self.end]

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        return 0, 0

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = np.zeros((3, 4, 5), np.float32)
        for start, end in ((0, None), (1, 2), (-1, None), (0, -1), (2, 1), (-9, 9)):
            yield Sample(Shape(start, end), (x,), note=f"[{start}:{end}]")
        yield Sample(Shape(), (np.array(1, np.float32),), note="scalar")
        yield Sample(Shape(), (np.zeros((2, 0), np.float32),), note="no elements")


@op_class
class Size(Simple):
    """The number of elements of `x` as an int64 scalar. Source: ONNX Size."""

    def infer(self, x: Value) -> Types:
        return TensorType("int64", ())

    def content(self, x: Value) -> Dims | None:
        return None if x.shape is None else (x.type.size,)

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        return 0, 0

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for shape in ((2, 3), (), (4, 0)):
            yield Sample(Size(), (np.zeros(shape, np.float32),))


@op_class
class Identity(Relabel):
    """`x` itself. Source: ONNX Identity."""

    def infer(self, x: Value) -> Types:
        return x.type

    def content(self, x: Value) -> Dims | None:
        return kept_content(x, x.type)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (grads[0],)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for shape in ((2, 3), (), (0, 2)):
            yield Sample(Identity(), (rng.normal(size=shape).astype(np.float32),))


@op_class
class Reshape(Relabel):
    """`x` with the dims `shape`, of which one may be -1: what is left over.

    A 0 copies the dim of `x` at its place, unless `allowzero` makes it the number 0. Copied dims cancel before the -1
    is computed, so (0, -1) of a (0, 3, 4) tensor is (0, 12).
    Raises InferenceError when the elements do not fit. Source: ONNX Reshape.
    """

    shape: tuple[int, ...] | None = None
    allowzero: int = 0

    operand_fields: ClassVar[dict[int, str]] = {1: "shape"}

    def infer(self, x: Value, shape: Value | None = None) -> Types:
        need_one_of(self.shape, shape, "the shape")
        need_vector(shape, "shape")
        wanted = given(self.shape, shape)
        if wanted is None:
            return TensorType(x.dtype, unknown_shape(vector_length(shape)))
        return TensorType(x.dtype, reshaped(x.shape, wanted, bool(self.allowzero)))

    def content(self, x: Value, shape: Value | None = None) -> Dims | None:
        result = self.infer(x, shape)
        return kept_content(x, result) if isinstance(result, TensorType) else None

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (reshape_like(op, grads[0], inputs[0]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 3, 4)).astype(np.float32)
        for shape in ((4, 6), (-1,), (0, -1), (0, 0, 2, 2), (1, 24, 1)):
            yield Sample(Reshape(shape), (x,), note=f"to {shape}")
        empty = np.zeros((0, 3, 4), np.float32)
        yield Sample(Reshape((0, -1)), (empty,), note="copied zero beside -1")
        yield Sample(Reshape((3, 0, 7), allowzero=1), (empty,), note="allowzero")
        yield Sample(Reshape(()), (x[:1, :1, :1],), note="to a scalar")
        yield Sample(Reshape(), (x, np.array([6, -1], np.int64)), note="shape known at run time only")


@op_class
class Flatten(Relabel):
    """A matrix: the product of the dims before `axis`, and of the rest. Source: ONNX Flatten."""

    axis: int = 1

    def infer(self, x: Value) -> Types:
        if x.shape is None:
            return TensorType(x.dtype, unknown_shape(2))
        rank = len(x.shape)
        ensure(-rank <= self.axis <= rank, f"axis {self.axis} is out of range for rank {rank}")
        axis = self.axis + rank if self.axis < 0 else self.axis
        return TensorType(x.dtype, (_product(x.shape[:axis]), _product(x.shape[axis:])))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (reshape_like(op, grads[0], inputs[0]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 3, 4)).astype(np.float32)
        for axis in (0, 1, 2, 3, -1, -3):
            yield Sample(Flatten(axis), (x,), note=f"axis {axis}")
        yield Sample(Flatten(0), (np.array(3, np.float32),), note="scalar")
        yield Sample(Flatten(), (np.zeros((0, 3), np.float32),), note="no elements")


@op_class
class Squeeze(Relabel):
    """`x` without the dims at `axes`, or without any dim of 1 when no axes are given.

    Raises InferenceError for an axis whose dim is another number. Source: ONNX Squeeze.
    """

    axes: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "axes"}

    def resolve(self, x: Value, axes: Value | None = None) -> Op:
        if x.rank is None or self.axes is None:
            return self
        return replace(self, axes=tuple(sorted(normalize_axes(self.axes, x.rank))))

    def infer(self, x: Value, axes: Value | None = None) -> Types:
        need_vector(axes, "axes")
        chosen = given(self.axes, axes)
        if x.shape is None:
            return TensorType(x.dtype, None)
        if chosen is None and axes is not None:
            count = vector_length(axes)
            ensure(count is None or count <= len(x.shape), f"{count} axes are given for {shape_text(x.shape)}")
            return TensorType(x.dtype, unknown_shape(None if count is None else len(x.shape) - count))
        if chosen is None:
            return TensorType(x.dtype, _without_ones(x.shape))
        gone = set(normalize_axes(_numbers(chosen, "axes"), len(x.shape)))
        for axis in sorted(gone):
            dim = x.shape[axis]
            ensure(not isinstance(dim, int) or dim == 1, f"axis {axis} of {shape_text(x.shape)} is {dim}, not 1")
        return TensorType(x.dtype, tuple(d for i, d in enumerate(x.shape) if i not in gone))

    def content(self, x: Value, axes: Value | None = None) -> Dims | None:
        result = self.infer(x, axes)
        return kept_content(x, result) if isinstance(result, TensorType) else None

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (reshape_like(op, grads[0], inputs[0]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(1, 3, 1, 4)).astype(np.float32)
        for axes in ((0,), (-2,), (0, 2), ()):
            yield Sample(Squeeze(axes), (x,), note=f"axes {axes}")
        yield Sample(Squeeze(), (x,), note="all dims of 1")
        yield Sample(Squeeze((1,)), (np.zeros((0, 1), np.float32),), note="no elements")
        yield Sample(Squeeze(), (x, np.array([-4], np.int64)), note="axes known at run time only")


@op_class
class Unsqueeze(Relabel):
    """`x` with dims of 1 put in at `axes`, which count in the result. Source: ONNX Unsqueeze."""

    axes: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "axes"}

    def absorb(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        op, rest = super().absorb(*inputs)
        axes: Any = op.axes if isinstance(op, Unsqueeze) else None
        return (replace(self, axes=(axes,)) if isinstance(axes, int) else op), rest  # files write a scalar, too

    def resolve(self, x: Value, axes: Value | None = None) -> Op:
        if x.rank is None or self.axes is None:
            return self
        return replace(self, axes=tuple(sorted(normalize_axes(self.axes, x.rank + len(self.axes)))))

    def infer(self, x: Value, axes: Value | None = None) -> Types:
        need_one_of(self.axes, axes, "axes")
        need_vector(axes, "axes")
        chosen = given(self.axes, axes)
        count = vector_length(axes) if chosen is None else len(chosen)
        if x.shape is None or count is None:
            return TensorType(x.dtype, None)
        rank = len(x.shape) + count
        if chosen is None:
            return TensorType(x.dtype, unknown_shape(rank))
        added = set(normalize_axes(_numbers(chosen, "axes"), rank))
        rest = iter(x.shape)
        return TensorType(x.dtype, tuple(1 if i in added else next(rest) for i in range(rank)))

    def content(self, x: Value, axes: Value | None = None) -> Dims | None:
        result = self.infer(x, axes)
        return kept_content(x, result) if isinstance(result, TensorType) else None

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (reshape_like(op, grads[0], inputs[0]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(3, 4)).astype(np.float32)
        for axes in ((0,), (-1,), (1, 3), (3, 0), ()):
            yield Sample(Unsqueeze(axes), (x,), note=f"axes {axes}")
        yield Sample(Unsqueeze((0,)), (np.array(3, np.float32),), note="scalar")
        yield Sample(Unsqueeze(), (x, np.array([-1, 0], np.int64)), note="axes known at run time only")


def reshaped(shape: Dims | None, wanted: Sequence[Dim], allowzero: bool) -> Dims:
    """The dims that Reshape gives; symbols count as sizes that are neither 0 nor -1.

    Raises InferenceError when the wanted dims contradict each other or the number of elements.
    """
    shown = shape_text(tuple(wanted))
    ensure(all(not isinstance(d, int) or d >= -1 for d in wanted), f"shape {shown} has a dim below -1")
    ensure(sum(d == -1 for d in wanted) <= 1, f"shape {shown} has more than one -1")
    ensure(not (allowzero and -1 in wanted and 0 in wanted), f"shape {shown} has both 0 and -1, with allowzero")
    copied = set() if allowzero else {i for i, d in enumerate(wanted) if d == 0}
    if shape is None:
        return tuple(unknown() if i in copied or d == -1 else d for i, d in enumerate(wanted))
    ensure(all(i < len(shape) for i in copied), f"shape {shown} copies a dim that {shape_text(shape)} lacks")
    dims = [shape[i] if i in copied else d for i, d in enumerate(wanted)]
    left = _product([d for i, d in enumerate(shape) if i not in copied])
    taken = _product([d for i, d in enumerate(wanted) if i not in copied and d != -1])
    fits = f"{shape_text(shape)} cannot become {shown}"
    if -1 in wanted:
        even = not (isinstance(left, int) and isinstance(taken, int)) or left % taken == 0
        ensure(even, f"{fits}: {left} elements are no multiple of {taken}")
        dims[list(wanted).index(-1)] = (
            left // taken if isinstance(left, int) and isinstance(taken, int) else as_expr(left) // taken
        )
    else:
        equal = not (isinstance(left, int) and isinstance(taken, int)) or left == taken
        ensure(equal, f"{fits}: the number of elements differs")
    return tuple(dims)


def _product(dims: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def _without_ones(shape: Dims) -> Dims | None:
    """None when a symbol may turn out to be 1."""
    return tuple(d for d in shape if d != 1) if all(isinstance(d, int) for d in shape) else None


def _numbers(dims: Sequence[Dim], what: str) -> tuple[int, ...]:
    numbers = tuple(d for d in dims if isinstance(d, int))
    if len(numbers) != len(dims):
        raise InferenceError(f"{what} {shape_text(tuple(dims))} depend on a symbolic dim")
    return numbers
