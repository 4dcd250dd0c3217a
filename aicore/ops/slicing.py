"""Ops that cut a range out of each axis, or add to its ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, Shape, as_expr, unknown
from aicore.ir.op import Op, Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import ensure, normalize_axes, same_dtype, shape_text
from aicore.ops.gradients import Given, Gradients, dim_of, numbers, places, put_back, reshape_like, zeros_like
from aicore.ops.sizes import (
    Movement,
    as_ints,
    at_least,
    given,
    need_one_of,
    need_vector,
    one_number,
    unknown_shape,
    vector_length,
)

FAR = 2**31 - 1
"""A bound from here on means the end, and its negative the begin: no dim is that large."""

PAD_MODES = ("constant", "reflect", "edge", "wrap")


@op_class
class Slice(Movement):
    """`x[start:end:step]` along each of `axes`, with NumPy's clamping; all leading axes when none are given.

    A negative bound counts from the back. With a negative step, an end of at most -dim - 1 (INT_MIN, say) goes through
    the first element. Source: ONNX Slice.
    """

    starts: tuple[int, ...] | None = None
    ends: tuple[int, ...] | None = None
    axes: tuple[int, ...] | None = None
    steps: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "starts", 2: "ends", 3: "axes", 4: "steps"}

    def resolve(self, x: Value, *bounds: Value | None) -> Op:
        axes_vary = len(bounds) > 2 and bounds[2] is not None
        if x.rank is None or axes_vary:
            return self
        if self.axes is not None:
            return replace(self, axes=normalize_axes(self.axes, x.rank))
        count = _count(self.starts, bounds[0] if bounds else None)
        if count is None:
            return self
        ensure(count <= x.rank, f"{count} starts are given for rank {x.rank}")
        return replace(self, axes=tuple(range(count)))

    def infer(
        self,
        x: Value,
        starts: Value | None = None,
        ends: Value | None = None,
        axes: Value | None = None,
        steps: Value | None = None,
    ) -> Types:
        need_one_of(self.starts, starts, "starts")
        need_one_of(self.ends, ends, "ends")
        for operand, what in ((starts, "starts"), (ends, "ends"), (axes, "axes"), (steps, "steps")):
            need_vector(operand, what)
        if x.shape is None:
            return TensorType(x.dtype, None)
        chosen = as_ints(self._axes(starts, axes))
        if chosen is None:
            return TensorType(x.dtype, unknown_shape(len(x.shape)))
        dims = list(x.shape)
        bounds = (given(self.starts, starts), given(self.ends, ends), self._steps(steps, len(chosen)))
        for what, bound in zip(("starts", "ends", "steps"), bounds, strict=True):
            ensure(bound is None or len(bound) == len(chosen), f"{what} and axes differ in length")
        for i, axis in enumerate(normalize_axes(chosen, len(x.shape))):
            start, end, step = (None if bound is None else bound[i] for bound in bounds)
            dims[axis] = sliced_dim(dims[axis], start, end, step)
        return TensorType(x.dtype, tuple(dims))

    def content(
        self,
        x: Value,
        starts: Value | None = None,
        ends: Value | None = None,
        axes: Value | None = None,
        steps: Value | None = None,
    ) -> Shape | None:
        if x.rank != 1 or x.content is None:
            return None
        bounds = [as_ints(b) for b in (given(self.starts, starts), given(self.ends, ends), self._steps(steps, 1))]
        if self._axes(starts, axes) not in ((0,), (-1,)) or any(b is None or len(b) != 1 for b in bounds):
            return None
        start, end, step = (b[0] for b in bounds if b is not None)
        return x.content[clamped(start, end, step, len(x.content))]

    def _axes(self, starts: Value | None, axes: Value | None) -> Shape | None:
        if self.axes is not None or axes is not None:
            return given(self.axes, axes)
        count = _count(self.starts, starts)
        return None if count is None else tuple(range(count))

    def _steps(self, steps: Value | None, count: int) -> Shape | None:
        return (1,) * count if self.steps is None and steps is None else given(self.steps, steps)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """Zeros where nothing was taken."""
        x, g = inputs[0], grads[0]
        if x.rank is not None and self.axes is not None and len(inputs) < 4:
            steps = self.steps or (1,) * len(self.axes)
            return (_spread(op, x, g, self.axes, steps, _firsts(op, self, inputs, steps)),)
        found = op.apply(self, places(op, x), *inputs[1:])  # what is known at the run only goes the way of an index
        return (put_back(op, x, found, g),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(5, 6, 7)).astype(np.float32)
        big, low = 2**63 - 1, -(2**63)
        yield Sample(Slice((1, 0), (4, 3)), (x,), note="leading axes")
        yield Sample(Slice((1,), (-1,), (-1,), (2,)), (x,), note="negative axis and end, step 2")
        yield Sample(Slice((-1,), (low,), (1,), (-1,)), (x,), note="reversed, to INT_MIN")
        yield Sample(Slice((big,), (low,), (0,), (-2,)), (x,), note="reversed from INT_MAX")
        yield Sample(Slice((0,), (big,), (2,), (3,)), (x,), note="to INT_MAX")
        yield Sample(Slice((-100,), (100,), (0,)), (x,), note="bounds beyond both ends")
        yield Sample(Slice((4,), (2,), (0,)), (x,), note="nothing left")
        yield Sample(Slice((-1,), (-100,), (0,), (-1,)), (np.zeros((0, 2), np.float32),), note="no elements")
        vectors = [np.array(v, np.int64) for v in ((1, -1), (4, -9), (0, 2), (2, -2))]
        yield Sample(Slice(), (x, *vectors), note="bounds known at run time only")


@op_class
class Pad(Movement):
    """`x` with `pads` elements added at both ends of each of `axes` (all begins, then all ends); negative ones cut.

    mode: what is added: the constant, the mirror image without the edge, the edge, or the other end (wrap).
    constant_value: 0, False or the empty string unless given.
    Cuts come first, so that the other modes see what is left. Source: ONNX Pad.
    """

    mode: str = "constant"
    pads: tuple[int, ...] | None = None
    constant_value: float | int | bool | str | None = None
    axes: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "pads", 2: "constant_value", 3: "axes"}

    def absorb(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        op, rest = super().absorb(*inputs)
        if isinstance(op, Pad):
            op = replace(op, constant_value=one_number(op.constant_value, "constant_value"))
        return op, rest

    def resolve(self, x: Value, *operands: Value | None) -> Op:
        if x.rank is None or self.axes is None:
            return self
        return replace(self, axes=normalize_axes(self.axes, x.rank))

    def infer(
        self, x: Value, pads: Value | None = None, constant_value: Value | None = None, axes: Value | None = None
    ) -> Types:
        ensure(self.mode in PAD_MODES, f"mode is {self.mode!r}, wants one of {', '.join(PAD_MODES)}")
        need_one_of(self.pads, pads, "pads")
        need_vector(pads, "pads")
        need_vector(axes, "axes")
        same_dtype(x, constant_value)
        if x.shape is None:
            return TensorType(x.dtype, None)
        amounts = given(self.pads, pads)
        chosen = given(self.axes, axes) if self.axes is not None or axes is not None else tuple(range(len(x.shape)))
        numbers = as_ints(chosen)
        if amounts is None or numbers is None:
            return TensorType(x.dtype, unknown_shape(len(x.shape)))
        count = len(numbers)
        ensure(len(amounts) == 2 * count, f"{len(amounts)} pads for {count} axes; wants a begin and an end for each")
        dims = list(x.shape)
        for axis, begin, end in zip(normalize_axes(numbers, len(dims)), amounts[:count], amounts[count:], strict=True):
            dims[axis] = self._padded(dims[axis], begin, end, axis)
        return TensorType(x.dtype, tuple(dims))

    def _padded(self, dim: Dim, begin: Dim, end: Dim, axis: int) -> Dim:
        size = dim + begin + end
        ensure(not isinstance(size, int) or size >= 0, f"pads {begin} and {end} leave {size} of {dim} in axis {axis}")
        needs = self.mode != "constant" and isinstance(size, int) and size > 0
        ensure(not needs or dim != 0, f"mode {self.mode} has nothing to repeat in axis {axis}")
        return size

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """What was added is cut off; where it was copies, the gradients of all copies add up. Only zeros were cut."""
        (x, pads, fill, axes), (g,) = (*inputs, None, None, None)[:4], grads
        if self.mode != "constant":
            found = op.apply(self, places(op, x), pads, None, axes)
            return (put_back(op, x, found, g),)
        amounts = op.constant(np.array(self.pads, np.int64), "pads") if self.pads is not None else pads
        chosen = op.constant(np.array(self.axes, np.int64), "axes") if self.axes is not None else axes
        to_x = op.Pad(g, op.Neg(amounts), None, chosen)
        if fill is None:
            return (to_x,)
        one, zero = op.scalar(1.0, g), op.scalar(0.0, g)
        added = op.Pad(zeros_like(op, x), amounts, one, chosen)
        return to_x, None, reshape_like(op, op.ReduceSum(op.Where(op.Greater(added, zero), g, zero), keepdims=0), fill)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 3, 4)).astype(np.float32)
        for mode in PAD_MODES:
            yield Sample(Pad(mode, (0, 1, 2, 0, 1, 1)), (x,), note=mode)
            yield Sample(Pad(mode, (2, -1), axes=(-1,)), (x,), note=f"{mode}, one negative, negative axis")
            yield Sample(Pad(mode, (7, 9), axes=(2,)), (x,), note=f"{mode}, wider than the tensor")
        yield Sample(Pad("constant", (0, 0, -1, 0, 0, -1), 2.5), (x,), note="only cut")
        yield Sample(Pad("constant", (1, 1, 1, 1), 2.5), (np.zeros((0, 2), np.float32),), note="no elements")
        run_time = (np.array([1, 2], np.int64), np.array(7, np.float32), np.array([1], np.int64))
        yield Sample(Pad(), (x, *run_time), note="pads known at run time only")


@op_class
class CenterCropPad(Movement):
    """`x` cut or padded with zeros around its centre so that each of `axes` gets the dim in `shape`.

    An odd difference leaves one more element at the end (pad), or takes one more from it (crop).
    Source: ONNX CenterCropPad.
    """

    axes: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "shape"}

    def infer(self, x: Value, shape: Value | None = None) -> Types:
        need_one_of(self.shape, shape, "the shape")
        need_vector(shape, "shape")
        wanted = given(self.shape, shape)
        if x.shape is None:
            return TensorType(x.dtype, None)
        axes = normalize_axes(range(len(x.shape)) if self.axes is None else self.axes, len(x.shape))
        sizes = unknown_shape(len(axes)) if wanted is None else wanted
        dims = list(x.shape)
        ensure(sizes is not None and len(sizes) == len(axes), f"shape {shape_text(sizes)} for the axes {axes}")
        for axis, size in zip(axes, sizes or (), strict=True):
            ensure(not isinstance(size, int) or size >= 0, f"shape {shape_text(sizes)} has a negative dim")
            dims[axis] = size
        return TensorType(x.dtype, tuple(dims))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """The centre of the result is that of the operand, so that the same op leads back."""
        x = inputs[0]
        if x.rank is None:
            raise UnsupportedError(f"the gradient of CenterCropPad needs to know the rank of %{x.name}")
        axes = normalize_axes(range(x.rank) if self.axes is None else self.axes, x.rank)
        sizes = op.Concat(*(dim_of(op, x, axis) for axis in axes), axis=0)
        return (op.CenterCropPad(grads[0], sizes, axes=axes),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(5, 6, 3)).astype(np.float32)
        yield Sample(CenterCropPad((0, 1), (3, 9)), (x,), note="crop one axis, pad the other, both odd")
        yield Sample(CenterCropPad(None, (4, 3, 3)), (x,), note="all axes")
        yield Sample(CenterCropPad((-1,), (6,)), (x,), note="negative axis")
        yield Sample(CenterCropPad((0,)), (x, np.array([2], np.int64)), note="shape known at run time only")


def clamped(start: int, end: int, step: int, dim: int) -> slice:
    """The Python slice that ONNX means; with a negative step, a `None` stop goes through the first element."""
    first, last = (0, dim) if step > 0 else (-1, dim - 1)
    begin = min(max(start + dim if start < 0 else start, first, 0), last)
    stop = min(max(end + dim if end < 0 else end, first), last)
    if step < 0 and begin < 0:  # nothing to reverse: -1 would mean the last element
        return slice(0, 0)
    return slice(begin, None if stop < 0 else stop, step)


def sliced_dim(dim: Dim, start: Dim | None, end: Dim | None, step: Dim | None) -> Dim:
    """How many elements a slice takes; unknown unless it can be proven.

    Raises InferenceError for a step of 0.
    """
    ensure(step != 0, "a step is 0")
    if start is None or end is None or not isinstance(step, int):
        return unknown()
    if isinstance(dim, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(dim)[clamped(start, end, step, dim)])
    if step < 0:
        reverses_all = _is_last(start) and isinstance(end, int) and end <= -FAR
        return as_expr(dim - step - 1) // -step if reverses_all else unknown()
    begin, stop = _position(start, dim), _position(end, dim)
    if begin is None or stop is None or not at_least(stop - begin, 0):
        return unknown()
    return as_expr(stop - begin + step - 1) // step


def _is_last(start: Dim) -> bool:
    return isinstance(start, int) and (start == -1 or start >= FAR)


def _position(bound: Dim, dim: Dim) -> Dim | None:
    """The bound counted from the front, where no clamping can change it; None when that is not certain."""
    if not isinstance(bound, int):
        return bound if at_least(bound, 0) and at_least(dim - bound, 0) else None
    if bound >= FAR:
        return dim
    if bound <= -FAR:
        return 0
    if not at_least(dim, abs(bound)):
        return None
    return bound if bound >= 0 else dim + bound


def _count(field: Sequence[int] | None, operand: Value | None) -> int | None:
    return len(field) if field is not None else vector_length(operand)


def _firsts(op: Builder, cut: Slice, inputs: Given, steps: Sequence[int]) -> list[Value]:
    """The place of the first element taken along each axis, as a vector of one; of no meaning where none is taken."""
    x, found = inputs[0], []
    for i, (axis, step) in enumerate(zip(cut.axes or (), steps, strict=True)):
        if cut.starts is not None:
            start = numbers(op, max(min(cut.starts[i], FAR), -FAR))
        else:
            start = op.Slice(inputs[1], numbers(op, i), numbers(op, i + 1))
        dim = dim_of(op, x, axis)
        counted = op.Where(op.Less(start, numbers(op, 0)), op.Add(start, dim), start)
        last = dim if step > 0 else op.Sub(dim, numbers(op, 1))
        found.append(op.Min(op.Max(counted, numbers(op, 0)), last))
    return found


def _spread(
    op: Builder, x: Value, g: Value, axes: Sequence[int], steps: Sequence[int], firsts: Sequence[Value]
) -> Value:
    """g with its elements `steps` apart along each axis, from `firsts` on, among zeros of the shape of x."""
    begins, ends = [], []
    for axis, step, first in zip(axes, steps, firsts, strict=True):
        count = dim_of(op, g, axis)
        stride = numbers(op, abs(step))
        if step < 0:
            g = op.Slice(g, starts=(-1,), ends=(-FAR - 1,), axes=(axis,), steps=(-1,))
            first = op.Add(first, op.Mul(op.Sub(count, numbers(op, 1)), numbers(op, step)))
        if abs(step) > 1:
            g = _apart(op, g, axis, abs(step))
        begins.append(first)
        ends.append(op.Sub(op.Sub(dim_of(op, x, axis), first), op.Mul(count, stride)))
    pads = op.Concat(*begins, *ends, axis=0)
    return op.Pad(g, pads, None, op.constant(np.array(axes, np.int64), "axes"))  # type: ignore[no-any-return]


def _apart(op: Builder, g: Value, axis: int, step: int) -> Value:
    """step - 1 zeros after each element along the axis."""
    wide = op.Pad(op.Unsqueeze(g, axes=(axis + 1,)), pads=(0, step - 1), axes=(axis + 1,))
    before = [dim_of(op, g, i) for i in range(axis)]
    after = [dim_of(op, g, i) for i in range(axis + 1, g.rank or 0)]
    length = op.Mul(dim_of(op, g, axis), numbers(op, step))
    return op.Reshape(wide, op.Concat(*before, length, *after, axis=0), allowzero=1)  # type: ignore[no-any-return]
