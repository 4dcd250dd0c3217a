"""Ops that write elements to computed places of a copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, Shape
from aicore.ir.op import Op, Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import Simple, ensure, need_rank, normalize_axis, same_dim, same_dtype, shape_text, window_dims
from aicore.ops.gather import need_places
from aicore.ops.gradients import Given, Gradients, numbers, places, zeros_like
from aicore.ops.sizes import given, need_indices, need_one_of, need_vector, unknown_shape, vector_length

REDUCTIONS = ("none", "add", "mul", "max", "min")


class _Scatter(Simple):
    """(x, indices, updates) -> a copy of `x` with the updates written to it, or reduced into it."""

    inplace: ClassVar[tuple[tuple[int, int], ...]] = ((0, 0),)

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        updates = inputs[2]
        flops = 0 if updates is None or getattr(self, "reduction", "none") == "none" else updates.type.size
        return flops, moved_bytes(self.infer(*inputs), inputs)


@op_class
class ScatterElements(_Scatter):
    """A copy of `x` with y[index[i][j][k]][j][k] = updates[i][j][k] (for axis 0), or reduced with what is there.

    indices: of the shape of `updates` and the rank of `x`; from -dim to dim - 1. Without a reduction an index that
    comes twice leaves the order open; here the last one wins. Source: ONNX ScatterElements.
    """

    axis: int = 0
    reduction: str = "none"

    def resolve(self, x: Value, indices: Value, updates: Value) -> Op:
        return self if x.rank is None or self.axis >= 0 else replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value, indices: Value, updates: Value) -> Types:
        _check(self.reduction, x, indices, updates)
        need_places(x, indices, self.axis)
        if indices.shape is not None and updates.shape is not None:
            same = len(indices.shape) == len(updates.shape) and all(map(same_dim, indices.shape, updates.shape))
            ensure(same, f"indices {shape_text(indices.shape)} and updates {shape_text(updates.shape)} differ")
        return x.type

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """To x where it was not overwritten; to an update where it is the one that counts."""
        (x, indices, updates), (g,) = inputs, grads
        taken = op.GatherElements(g, indices, axis=self.axis)
        if self.reduction == "add":
            return g, None, taken
        _need_plain(self.reduction)
        order = places(op, updates)
        nobody = op.Expand(numbers(op, -1), op.Shape(x))
        winner = op.GatherElements(op.ScatterElements(nobody, indices, order, axis=self.axis), indices, axis=self.axis)
        zero = op.scalar(0.0, g)
        to_x = op.ScatterElements(g, indices, zeros_like(op, updates), axis=self.axis)
        return to_x, None, op.Where(op.Equal(winner, order), taken, zero)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(4, 3)).astype(np.float32)
        updates = rng.normal(size=(2, 3)).astype(np.float32)
        yield Sample(ScatterElements(), (x, np.array([[0, 2, -1], [1, 0, 0]], np.int64), updates))
        twice = np.array([[0, 2, 2], [1, 1, 1]], np.int64)
        for reduction in REDUCTIONS[1:]:
            yield Sample(ScatterElements(-1, reduction), (x, twice, updates), note=f"{reduction}, an index twice")
        yield Sample(ScatterElements(), (x, np.zeros((0, 3), np.int64), updates[:0]), note="no indices")


@op_class
class ScatterND(_Scatter):
    """A copy of `x` with the slices at the index tuples (last axis of `indices`) set to `updates`, or reduced.

    indices: from -dim to dim - 1. Without a reduction, the last of equal tuples wins. Source: ONNX ScatterND.
    """

    reduction: str = "none"

    def infer(self, x: Value, indices: Value, updates: Value) -> Types:
        _check(self.reduction, x, indices, updates)
        if x.shape is None or indices.shape is None:
            return x.type
        ensure(x.shape and indices.shape, "takes no scalars")
        depth = indices.shape[-1]
        if not isinstance(depth, int):
            return x.type
        ensure(1 <= depth <= len(x.shape), f"index tuples of {depth} numbers for {len(x.shape)} axes")
        wanted = (*indices.shape[:-1], *x.shape[depth:])
        found = updates.shape
        fits = found is None or (len(found) == len(wanted) and all(map(same_dim, found, wanted)))
        ensure(fits, f"updates {shape_text(found)} want the shape {shape_text(wanted)}")
        return x.type

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """To x where it was not overwritten; to an update where it is the one that counts."""
        (x, indices, updates), (g,) = inputs, grads
        taken = op.GatherND(g, indices)
        if self.reduction == "add":
            return g, None, taken
        _need_plain(self.reduction)
        order = places(op, updates)
        nobody = op.Expand(numbers(op, -1), op.Shape(x))
        winner = op.GatherND(op.ScatterND(nobody, indices, order), indices)
        zero = op.scalar(0.0, g)
        return op.ScatterND(g, indices, zeros_like(op, updates)), None, op.Where(op.Equal(winner, order), taken, zero)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(4, 3, 2)).astype(np.float32)
        rows, updates = np.array([[0], [-1]], np.int64), rng.normal(size=(2, 3, 2)).astype(np.float32)
        yield Sample(ScatterND(), (x, rows, updates), note="slices, negative index")
        for reduction in REDUCTIONS[1:]:
            twice = np.array([[2], [2]], np.int64)
            yield Sample(ScatterND(reduction), (x, twice, updates), note=f"{reduction}, an index twice")
        single = np.array([[3, 2, 1], [0, -3, -2]], np.int64)
        yield Sample(ScatterND(), (x, single, np.array([5, 6], np.float32)), note="single elements")
        yield Sample(ScatterND(), (x, np.zeros((0, 1), np.int64), updates[:0]), note="no indices")


@op_class
class TensorScatter(_Scatter):
    """A key-value cache with `update` written along `axis` from the position `write_indices[batch]` (0 if not given).

    mode: `linear` wants the update to fit; `circular` wraps around. Source: ONNX TensorScatter.
    """

    mode: str = "linear"
    axis: int = -2

    def infer(self, x: Value, update: Value, write_indices: Value | None = None) -> Types:
        same_dtype(x, update)
        need_vector(write_indices, "write_indices")
        ensure(self.mode in ("linear", "circular"), f"mode is {self.mode!r}, wants linear or circular")
        if x.shape is None or update.shape is None:
            return x.type
        axis = normalize_axis(self.axis, len(x.shape))
        ensure(axis != 0, "axis 0 is the batch")
        ensure(len(update.shape) == len(x.shape), f"update %{update.name} has rank {len(update.shape)}")
        for i, (count, dim) in enumerate(zip(update.shape, x.shape, strict=True)):
            both = isinstance(count, int) and isinstance(dim, int)
            fits = not both or (count <= dim if i == axis else count == dim)  # type: ignore[operator]
            ensure(fits, f"update {shape_text(update.shape)} does not fit into {shape_text(x.shape)} in axis {i}")
        return x.type

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        return 0, moved_bytes(self.infer(*inputs), inputs)  # type: ignore[arg-type]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        cache, update = rng.normal(size=(2, 3, 6, 4)).astype(np.float32), rng.normal(size=(2, 3, 2, 4))
        new = update.astype(np.float32)
        yield Sample(TensorScatter(), (cache, new), note="prefill")
        yield Sample(TensorScatter(), (cache, new, np.array([4, 1], np.int64)), note="decode")
        yield Sample(TensorScatter("circular"), (cache, new, np.array([5, 0], np.int64)), note="around the end")


@op_class
class Col2Im(Simple):
    """The sum of overlapping blocks: the transpose of cutting an image into the columns of a sliding window.

    x: (N, C * prod(block_shape), L), where L counts the windows. The result is (N, C, *image_shape).
    pads: all begins, then all ends. Source: ONNX Col2Im.
    """

    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    image_shape: tuple[int, ...] | None = None
    block_shape: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "image_shape", 2: "block_shape"}

    def infer(self, x: Value, image_shape: Value | None = None, block_shape: Value | None = None) -> Types:
        need_one_of(self.image_shape, image_shape, "image_shape")
        need_one_of(self.block_shape, block_shape, "block_shape")
        need_rank(x, 3)
        image, block = given(self.image_shape, image_shape), given(self.block_shape, block_shape)
        rank = vector_length(image_shape) if image is None else len(image)
        if x.shape is None or image is None or block is None:
            return TensorType(x.dtype, unknown_shape(None if rank is None else rank + 2))
        ensure(len(block) == len(image), f"block {shape_text(block)} and image {shape_text(image)} differ in rank")
        return TensorType(x.dtype, (x.shape[0], self._channels(x.shape, image, block), *image))

    def window(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """(strides, pads, dilations) with the defaults for this many spatial axes."""
        return self.strides or (1,) * rank, self.pads or (0,) * 2 * rank, self.dilations or (1,) * rank

    def _channels(self, shape: Shape, image: Shape, block: Shape) -> Dim:
        strides, pads, dilations = self.window(len(image))
        windows = _product(window_dims(image, block, strides, pads, dilations))
        ensure(same_dim(windows, shape[2]), f"{shape[2]} columns for {windows} windows")
        area = _product(block)
        if not isinstance(area, int):
            return shape[1] // area if not isinstance(shape[1], int) else unknown_shape(1)[0]  # type: ignore[index]
        whole = not isinstance(shape[1], int) or shape[1] % area == 0
        ensure(area > 0 and whole, f"{shape[1]} rows are no multiple of the block {shape_text(block)}")
        return shape[1] // area

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 12, 6)).astype(np.float32)
        yield Sample(Col2Im(None, None, None, (3, 4), (2, 2)), (x,))
        yield Sample(Col2Im((1, 2), (1, 0, 1, 1), (2, 1), (3, 4), (2, 2)), (x,), note="strides, pads, dilations")
        yield Sample(Col2Im(image_shape=(5,), block_shape=(3,)), (rng.normal(size=(1, 6, 3)).astype(np.float32),))


def _check(reduction: str, x: Value, indices: Value, updates: Value) -> None:
    need_indices(indices)
    same_dtype(x, updates)
    ensure(reduction in REDUCTIONS, f"reduction is {reduction!r}, wants one of {', '.join(REDUCTIONS)}")
    ensure(x.rank != 0, f"%{x.name} is a scalar")


def _need_plain(reduction: str) -> None:
    if reduction != "none":
        raise UnsupportedError(f"there is a gradient for the reductions none and add, not for {reduction!r}")


def _product(dims: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total
