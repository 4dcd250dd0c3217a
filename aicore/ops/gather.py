"""Ops that read elements at computed places."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Shape
from aicore.ir.op import Op, Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import ensure, normalize_axis, same_dim, shape_text
from aicore.ops.gradients import Given, Gradients, dim_of, numbers, places, put_back, zeros_like
from aicore.ops.sizes import Movement, as_ints, need_indices, unknown_shape


@op_class
class Gather(Movement):
    """The slices of `x` along `axis` at `indices`, whose dims take the place of that axis.

    indices: int32 or int64, from -dim to dim - 1. Raises InferenceError for a constant one out of that range, and the
    kernels ExecutionError for any other. Source: ONNX Gather.
    """

    axis: int = 0

    def resolve(self, x: Value, indices: Value) -> Op:
        return self if x.rank is None or self.axis >= 0 else replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value, indices: Value) -> Types:
        need_indices(indices)
        ensure(x.rank != 0, f"%{x.name} is a scalar")
        if x.shape is None or indices.shape is None:
            return TensorType(x.dtype, None)
        axis = normalize_axis(self.axis, len(x.shape))
        dim = x.shape[axis]
        for index in as_ints(indices.content) or ():
            inside = not isinstance(dim, int) or -dim <= index < dim
            ensure(inside, f"index {index} (%{indices.name}) is out of range for axis {axis} of %{x.name}: {dim}")
        return TensorType(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))

    def content(self, x: Value, indices: Value) -> Shape | None:
        chosen = as_ints(indices.content)
        if x.rank != 1 or x.content is None or chosen is None or indices.rank not in (0, 1):
            return None
        return tuple(x.content[index] for index in chosen)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """Slices that are taken several times get the sum."""
        (x, indices), (g,) = inputs, grads
        if x.rank is None or indices.rank is None:
            raise UnsupportedError(f"the gradient of Gather needs to know ranks: {x.type} at {indices.type}")
        axis = self.axis % x.rank
        known = as_ints(indices.content)
        if indices.rank == 0 and known is not None:
            return (_among_zeros(op, x, op.Unsqueeze(g, axes=(axis,)), axis, known[0]),)
        tuples = op.Unsqueeze(indices, axes=(-1,))
        if axis == 0:
            return (op.ScatterND(zeros_like(op, x), tuples, g, reduction="add"),)
        first = (axis, *range(axis), *range(axis + 1, x.rank))
        back = tuple(first.index(i) for i in range(x.rank))
        taken = range(axis, axis + indices.rank)
        turned = op.Transpose(g, perm=(*taken, *(i for i in range(g.rank or 0) if i not in taken)))
        zeros = op.Expand(op.scalar(0.0, g), op.Concat(*(dim_of(op, x, i) for i in first), axis=0))
        return (op.Transpose(op.ScatterND(zeros, tuples, turned, reduction="add"), perm=back),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(3, 4, 5)).astype(np.float32)
        yield Sample(Gather(), (x, np.array([2, 0, -1], np.int64)), note="negative index")
        yield Sample(Gather(1), (x, np.array([[0, 3], [1, 1]], np.int32)), note="matrix of indices")
        yield Sample(Gather(-1), (x, np.array(2, np.int64)), note="scalar index, negative axis")
        yield Sample(Gather(1), (x, np.array([3, -4, 2], np.int64)), (1,), note="constant indices")
        yield Sample(Gather(2), (x, np.zeros((0,), np.int64)), note="no indices")
        yield Sample(Gather(0), (rng.integers(0, 9, (5,)), np.array([4], np.int64)), note="vector of integers")


@op_class
class GatherElements(Movement):
    """out[i][j][k] = x[index[i][j][k]][j][k] (for axis 0), of the shape of `indices`.

    indices: of the rank of `x`; from -dim to dim - 1. Source: ONNX GatherElements.
    """

    axis: int = 0

    def resolve(self, x: Value, indices: Value) -> Op:
        return self if x.rank is None or self.axis >= 0 else replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value, indices: Value) -> Types:
        need_indices(indices)
        need_places(x, indices, self.axis)
        return TensorType(x.dtype, unknown_shape(x.rank) if indices.shape is None else indices.shape)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        x, indices = inputs
        return (op.ScatterElements(zeros_like(op, x), indices, grads[0], axis=self.axis, reduction="add"),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(3, 4)).astype(np.float32)
        yield Sample(GatherElements(), (x, rng.integers(-3, 3, (2, 4))), note="negative indices, smaller than x")
        yield Sample(GatherElements(-1), (x, rng.integers(-4, 4, (3, 7))), note="negative axis, longer than x")
        yield Sample(GatherElements(1), (x, rng.integers(0, 4, (1, 2)).astype(np.int32)), note="int32")
        yield Sample(GatherElements(), (x, np.zeros((0, 4), np.int64)), note="no indices")


@op_class
class GatherND(Movement):
    """The slices of `x` at the index tuples in the last axis of `indices`; the first `batch_dims` axes go in step.

    indices: from -dim to dim - 1. Source: ONNX GatherND.
    """

    batch_dims: int = 0

    def infer(self, x: Value, indices: Value) -> Types:
        need_indices(indices)
        if x.shape is None or indices.shape is None:
            return TensorType(x.dtype, None)
        ensure(x.shape and indices.shape, "takes no scalars")
        batch, depth = self.batch_dims, indices.shape[-1]
        in_range = 0 <= batch < min(len(x.shape), len(indices.shape))
        ensure(in_range, f"batch_dims {batch} is out of range for {shape_text(x.shape)} at {shape_text(indices.shape)}")
        for a, b in zip(x.shape[:batch], indices.shape[:batch], strict=True):
            ensure(same_dim(a, b), f"{shape_text(x.shape)} and {shape_text(indices.shape)} differ in the batch axes")
        if not isinstance(depth, int):
            return TensorType(x.dtype, None)
        fits = 1 <= depth <= len(x.shape) - batch
        ensure(fits, f"index tuples of {depth} numbers for {len(x.shape)} axes, {batch} of them batch")
        return TensorType(x.dtype, (*indices.shape[:-1], *x.shape[batch + depth :]))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        x, indices = inputs
        if self.batch_dims:
            return (put_back(op, x, op.apply(self, places(op, x), indices), grads[0]),)
        return (op.ScatterND(zeros_like(op, x), indices, grads[0], reduction="add"),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 3, 4)).astype(np.float32)
        yield Sample(GatherND(), (x, np.array([[0, -1], [-2, 2]], np.int64)), note="negative indices")
        yield Sample(GatherND(1), (x, np.array([[[1, 3]], [[2, -4]]], np.int64)), note="batch of 1 axis")
        yield Sample(GatherND(), (x, np.array([1], np.int64)), note="one tuple")
        yield Sample(GatherND(), (x, np.zeros((0, 2), np.int64)), note="no indices")


def need_places(x: Value, indices: Value, axis: int) -> None:
    """Raise InferenceError unless `indices` names an element of `x` along `axis` for each of its own.

    Off that axis, it may be smaller than `x`, but not larger.
    """
    if x.shape is None or indices.shape is None:
        return
    same = len(indices.shape) == len(x.shape)
    ensure(same, f"indices %{indices.name} have rank {len(indices.shape)}, %{x.name} has {len(x.shape)}")
    along = normalize_axis(axis, len(x.shape))
    for i, (count, dim) in enumerate(zip(indices.shape, x.shape, strict=True)):
        fits = i == along or not (isinstance(count, int) and isinstance(dim, int)) or count <= dim
        ensure(fits, f"indices {shape_text(indices.shape)} exceed {shape_text(x.shape)} in axis {i}")


def _among_zeros(op: Builder, x: Value, g: Value, axis: int, index: int) -> Value:
    """The gradient of one slice among zeros of the shape of x."""
    place = numbers(op, index) if index >= 0 else op.Add(dim_of(op, x, axis), numbers(op, index))
    after = op.Sub(op.Sub(dim_of(op, x, axis), place), numbers(op, 1))
    return op.Pad(g, op.Concat(place, after, axis=0), None, numbers(op, axis))  # type: ignore[no-any-return]
