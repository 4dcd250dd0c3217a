"""Ops that move or repeat whole elements: permute, broadcast, join, cut into pieces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, Shape, as_expr, unknown
from aicore.ir.op import Op, Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import KNOWN_LIMIT, Value
from aicore.ops.base import (
    broadcast,
    ensure,
    merge_dim,
    normalize_axis,
    same_dim,
    same_dtype,
    shape_text,
)
from aicore.ops.gradients import Given, Gradients, dim_of, numbers, sum_to, zeros_like
from aicore.ops.sizes import (
    Movement,
    as_ints,
    given,
    kept_content,
    need_one_of,
    need_vector,
    small,
    unknown_shape,
    vector_length,
)


@op_class
class Transpose(Movement):
    """`x` with its axes in the order `perm`; reversed when none is given. Source: ONNX Transpose."""

    perm: tuple[int, ...] | None = None

    def resolve(self, x: Value) -> Op:
        return replace(self, perm=tuple(reversed(range(x.rank)))) if self.perm is None and x.rank is not None else self

    def infer(self, x: Value) -> Types:
        if x.shape is None:
            return TensorType(x.dtype, unknown_shape(None if self.perm is None else len(self.perm)))
        perm = tuple(reversed(range(len(x.shape)))) if self.perm is None else self.perm
        fits = sorted(perm) == list(range(len(x.shape)))
        ensure(fits, f"perm {perm} does not order the axes of %{x.name}, which has rank {len(x.shape)}")
        return TensorType(x.dtype, tuple(x.shape[axis] for axis in perm))

    def content(self, x: Value) -> Shape | None:
        return kept_content(x, x.type)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        back = None if self.perm is None else tuple(self.perm.index(axis) for axis in range(len(self.perm)))
        return (op.Transpose(grads[0], perm=back),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 3, 4)).astype(np.float32)
        for perm in (None, (0, 1, 2), (1, 2, 0), (0, 2, 1)):
            yield Sample(Transpose(perm), (x,), note=f"perm {perm}")
        yield Sample(Transpose((0, 2, 3, 1)), (np.zeros((2, 0, 3, 4), np.float32),), note="no elements")
        yield Sample(Transpose((0, 3, 1, 2)), (rng.integers(0, 99, (2, 5, 7, 3)),), note="int64")
        yield Sample(Transpose(), (np.array(2, np.float32),), note="scalar")


@op_class
class Expand(Movement):
    """`x` broadcast with `shape`, both ways: a 1 in `shape` keeps the dim of `x`. Source: ONNX Expand."""

    shape: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "shape"}

    def infer(self, x: Value, shape: Value | None = None) -> Types:
        need_one_of(self.shape, shape, "the shape")
        need_vector(shape, "shape")
        wanted = given(self.shape, shape)
        if wanted is not None:
            low = any(isinstance(d, int) and d < 0 for d in wanted)
            ensure(not low, f"shape {shape_text(wanted)} has a negative dim")
            return TensorType(x.dtype, broadcast(x.shape, wanted))
        count = vector_length(shape)
        if count is None or x.rank is None:
            return TensorType(x.dtype, None)
        return TensorType(x.dtype, unknown_shape(max(count, x.rank)))

    def content(self, x: Value, shape: Value | None = None) -> Shape | None:
        result = self.infer(x, shape)
        if not isinstance(result, TensorType) or x.content is None or result.rank not in (0, 1):
            return None
        count = result.size
        if not isinstance(count, int) or count > KNOWN_LIMIT or len(x.content) not in (1, count):
            return None
        return x.content if len(x.content) == count else x.content * count

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (sum_to(op, grads[0], inputs[0]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(3, 1)).astype(np.float32)
        for shape in ((2, 3, 4), (3, 4), (1, 1), (1,), (3, 0)):
            yield Sample(Expand(shape), (x,), note=f"to {shape}")
        yield Sample(Expand((2, 2)), (np.array(5, np.float32),), note="scalar")
        yield Sample(Expand(), (x, np.array([2, 1, 6], np.int64)), note="shape known at run time only")


@op_class
class Tile(Movement):
    """`x` repeated `repeats[i]` times along axis i, as numpy.tile with as many repeats as axes. Source: ONNX Tile."""

    repeats: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "repeats"}

    def infer(self, x: Value, repeats: Value | None = None) -> Types:
        need_one_of(self.repeats, repeats, "repeats")
        need_vector(repeats, "repeats")
        times = given(self.repeats, repeats)
        count = vector_length(repeats) if times is None else len(times)
        if x.shape is None:
            return TensorType(x.dtype, unknown_shape(count))
        fits = count is None or count == len(x.shape)
        ensure(fits, f"{count} repeats for %{x.name}, which has rank {len(x.shape)}")
        if times is None:
            return TensorType(x.dtype, unknown_shape(len(x.shape)))
        low = any(isinstance(n, int) and n < 0 for n in times)
        ensure(not low, f"repeats {shape_text(times)} has a negative number")
        return TensorType(x.dtype, tuple(d * n for d, n in zip(x.shape, times, strict=True)))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """The sum over all copies, each of which an axis of its own numbers."""
        (x, *operands), (g,) = inputs, grads
        if x.rank is None:
            raise UnsupportedError(f"the gradient of Tile needs to know the rank of %{x.name}")
        dims: list[Value] = []
        for axis in range(x.rank):
            count = (
                numbers(op, self.repeats[axis])
                if self.repeats
                else op.Slice(*operands, numbers(op, axis), numbers(op, axis + 1))
            )
            dims += [count, dim_of(op, x, axis)]
        if not dims:
            return (g,)
        copies = op.Reshape(g, op.Concat(*dims, axis=0), allowzero=1)
        return (op.ReduceSum(copies, axes=tuple(range(0, 2 * x.rank, 2)), keepdims=0),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 3)).astype(np.float32)
        for repeats in ((1, 1), (2, 3), (1, 4), (0, 2)):
            yield Sample(Tile(repeats), (x,), note=f"repeats {repeats}")
        yield Sample(Tile(), (x, np.array([3, 1], np.int64)), note="repeats known at run time only")


@op_class
class Concat(Movement):
    """The operands one after another along `axis`; their other dims are equal. Source: ONNX Concat."""

    axis: int

    def resolve(self, *xs: Value) -> Op:
        rank = _common_rank(xs)
        return self if rank is None or self.axis >= 0 else replace(self, axis=normalize_axis(self.axis, rank))

    def infer(self, *xs: Value) -> Types:
        ensure(xs, "needs at least one operand")
        same_dtype(*xs)
        rank = _common_rank(xs)
        if rank is None:
            return TensorType(xs[0].dtype, None)
        axis = normalize_axis(self.axis, rank)
        shapes = [unknown_shape(rank) if x.shape is None else x.shape for x in xs]
        dims = [_joined(tuple(s[i] for s in shapes if s is not None), i == axis) for i in range(rank)]
        for i, dim in enumerate(dims):
            shown = ", ".join(shape_text(x.shape) for x in xs)
            ensure(dim is not None, f"operands {shown} differ in axis {i}, and are joined along axis {axis}")
        return TensorType(xs[0].dtype, tuple(d for d in dims if d is not None))

    def content(self, *xs: Value) -> Shape | None:
        parts = [x.content for x in xs if x.rank == 1]
        known = [part for part in parts if part is not None]
        return small(tuple(dim for part in known for dim in part)) if len(known) == len(xs) else None

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        if len(inputs) == 1:
            return (grads[0],)
        if any(x.rank is None for x in inputs):
            raise UnsupportedError("the gradient of Concat needs to know the rank of each operand")
        axis = self.axis % inputs[0].rank
        sizes = op.Concat(*(dim_of(op, x, axis) for x in inputs), axis=0)
        pieces: Gradients = op.Split(grads[0], sizes, axis=axis, num_outputs=len(inputs))
        return pieces

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        a, b = rng.normal(size=(2, 3, 4)).astype(np.float32), rng.normal(size=(2, 5, 4)).astype(np.float32)
        yield Sample(Concat(1), (a, b))
        yield Sample(Concat(-2), (a, b, a), note="negative axis")
        yield Sample(Concat(0), (a,), note="one operand")
        yield Sample(Concat(0), (a, a + 1))
        yield Sample(Concat(2), (a, a, a))
        yield Sample(Concat(1), (np.zeros((2, 0, 4), np.float32), a), note="an empty operand")
        yield Sample(Concat(0), (np.zeros((0, 0), np.float32), np.zeros((3, 0), np.float32)), note="no elements")


@op_class
class Split(Movement):
    """`x` cut along `axis` into pieces of the sizes `split`, or else into `num_outputs` equal ones, the last smaller.

    Where ceil(dim / num_outputs) leaves nothing for later pieces, these are empty.
    num_outputs: as many as there are sizes; needed where these are unknown until the run.
    Raises InferenceError when the sizes do not add up. Source: ONNX Split.
    """

    axis: int = 0
    num_outputs: int | None = None
    split: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "split"}

    def n_outputs(self) -> int:
        if self.num_outputs is not None:
            return self.num_outputs
        return 1 if self.split is None else len(self.split)

    def resolve(self, x: Value, split: Value | None = None) -> Op:
        return self if x.rank is None or self.axis >= 0 else replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value, split: Value | None = None) -> Types:
        ensure(self.num_outputs is not None or self.split is not None, "num_outputs and split are both missing")
        need_vector(split, "split")
        count = self.n_outputs()
        ensure(count > 0, f"num_outputs is {count}, wants at least 1")
        if x.shape is None:
            return (TensorType(x.dtype, None),) * count
        axis = normalize_axis(self.axis, len(x.shape))
        sizes = self._sizes(x.shape[axis], split)
        return tuple(TensorType(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes)

    def content(self, x: Value, split: Value | None = None) -> Shape | None:
        if x.rank != 1 or x.content is None or x.shape is None:
            return None
        first = self._sizes(x.shape[0], split)[0]
        return x.content[:first] if isinstance(first, int) else None

    def _sizes(self, dim: Dim, split: Value | None) -> Shape:
        count = self.n_outputs()
        sizes = given(self.split, split)
        if sizes is not None:
            ensure(len(sizes) == count, f"{len(sizes)} sizes for {count} outputs")
            numbers = as_ints(sizes)
            ensure(numbers is None or min(numbers) >= 0, f"split {shape_text(sizes)} has a negative size")
            fits = numbers is None or same_dim(sum(numbers), dim)
            ensure(fits, f"the sizes {shape_text(sizes)} do not add up to {dim}")
            return sizes
        if split is not None:
            return tuple(unknown() for _ in range(count))
        return equal_pieces(dim, count)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        pieces = [zeros_like(op, y) if g is None else g for y, g in zip(outputs, grads, strict=True)]
        return (op.Concat(*pieces, axis=self.axis),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(6, 7)).astype(np.float32)
        yield Sample(Split(0, 3), (x,))
        yield Sample(Split(-1, 3), (x,), note="uneven: 3, 3, 1")
        yield Sample(Split(1, None, (2, 0, 5)), (x,), note="an empty piece")
        yield Sample(Split(0, 1), (x,), note="one piece")
        yield Sample(Split(0, 2), (np.zeros((0, 3), np.float32),), note="no elements")
        yield Sample(Split(0, 2), (x, np.array([1, 5], np.int64)), note="sizes known at run time only")


def equal_pieces(dim: Dim, count: int) -> Shape:
    """Sizes of ceil(dim / count), then what is left: a smaller one, and empty ones. Unknown where a symbol decides."""
    piece = as_expr(dim + count - 1) // count
    if isinstance(dim, int) and isinstance(piece, int):
        return tuple(min(piece, max(dim - piece * i, 0)) for i in range(count))
    if piece * count == dim:
        return (piece,) * count
    return (piece, dim - piece) if count == 2 else (piece, *(unknown() for _ in range(count - 1)))


def _joined(dims: tuple[Dim, ...], add: bool) -> Dim | None:
    """The operands' dims of one axis added up, or merged; None when they contradict."""
    total = dims[0]
    for dim in dims[1:]:
        if not add and not same_dim(total, dim):
            return None
        total = total + dim if add else merge_dim(total, dim)
    return total


def _common_rank(xs: tuple[Value, ...]) -> int | None:
    ranks = {x.rank for x in xs if x.rank is not None}
    ensure(len(ranks) <= 1, f"operands have different ranks: {', '.join(map(str, sorted(ranks)))}")
    return next(iter(ranks), None)
