"""Ops that cut a range out of each axis, or add to its ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.dims import Dim, Shape, as_expr, unknown
from aicore.ir.op import Op, Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import ensure, normalize_axes, same_dtype, shape_text
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
        for what, numbers in zip(("starts", "ends", "steps"), bounds, strict=True):
            ensure(numbers is None or len(numbers) == len(chosen), f"{what} and axes differ in length")
        for i, axis in enumerate(normalize_axes(chosen, len(x.shape))):
            start, end, step = (None if numbers is None else numbers[i] for numbers in bounds)
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
