"""Ops whose result has as many elements as the data say."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import unknown
from aicore.ir.op import Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import ensure, need_rank, normalize_axis
from aicore.ops.gradients import Given, Gradients, places, put_back
from aicore.ops.sizes import Movement


@op_class
class NonZero(Movement):
    """The indices of the elements that are not 0, as an int64 matrix: a row for each axis, in row-major order.

    A scalar gives a matrix without rows. Source: ONNX NonZero.
    """

    def infer(self, x: Value) -> Types:
        return TensorType("int64", (unknown() if x.rank is None else x.rank, unknown()))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(NonZero(), (np.array([[1, 0, np.nan], [0, -2, -0.0]], np.float32),), note="NaN and -0")
        yield Sample(NonZero(), (np.array([True, False, True]),), note="bool")
        yield Sample(NonZero(), (np.zeros((2, 2), np.int64),), note="none")
        yield Sample(NonZero(), (np.array(3, np.int64),), note="scalar")


@op_class
class Unique(Movement):
    """(values, first indices, inverse indices, counts) of the distinct elements, or of the slices along `axis`.

    sorted: ascending, else in the order of first occurrence. NaNs count as one value, the largest. The three index
    outputs are int64 vectors. Source: ONNX Unique.
    """

    axis: int | None = None
    sorted: int = 1

    def n_outputs(self) -> int:
        return 4

    def infer(self, x: Value) -> Types:
        found, positions = unknown(), x.type.size if self.axis is None and x.shape is not None else unknown()
        values = TensorType(x.dtype, (found,))
        if self.axis is not None:
            values = TensorType(x.dtype, None)
        if self.axis is not None and x.shape is not None:
            axis = normalize_axis(self.axis, len(x.shape))
            values = TensorType(x.dtype, (*x.shape[:axis], found, *x.shape[axis + 1 :]))
            positions = x.shape[axis]
        once = TensorType("int64", (found,))
        return values, once, TensorType("int64", (positions,)), once

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        vector = np.array([2, 1, 1, 3, 4, 3, -0.5], np.float32)
        rows = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0]], np.int64)
        for order in (1, 0):
            yield Sample(Unique(None, order), (vector,), note=f"sorted={order}")
            yield Sample(Unique(None, order), (rows,), note=f"flattened, sorted={order}")
            yield Sample(Unique(0, order), (rows,), note=f"axis 0, sorted={order}")
            yield Sample(Unique(-1, order), (rows,), note=f"axis -1, sorted={order}")
        yield Sample(Unique(), (np.zeros((0,), np.float32),), note="no elements")


@op_class
class Compress(Movement):
    """The slices of `x` along `axis` (or the elements, flattened) where `condition` is true.

    condition: bool vector, at most as long as the axis; what it does not reach is left out. Source: ONNX Compress.
    """

    axis: int | None = None

    def infer(self, x: Value, condition: Value) -> Types:
        ensure(condition.dtype == "bool", f"condition %{condition.name} is {condition.dtype}, wants bool")
        need_rank(condition, 1)
        if self.axis is None:
            return TensorType(x.dtype, (unknown(),))
        if x.shape is None:
            return TensorType(x.dtype, None)
        axis = normalize_axis(self.axis, len(x.shape))
        dim, length = x.shape[axis], None if condition.shape is None else condition.shape[0]
        fits = not (isinstance(dim, int) and isinstance(length, int)) or length <= dim
        ensure(fits, f"condition %{condition.name} has {length} elements for an axis of {dim}")
        return TensorType(x.dtype, (*x.shape[:axis], unknown(), *x.shape[axis + 1 :]))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        x, condition = inputs
        return (put_back(op, x, op.apply(self, places(op, x), condition), grads[0]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(3, 4)).astype(np.float32)
        yield Sample(Compress(), (x, np.array([False, True, True, False, True])), note="flattened, short condition")
        yield Sample(Compress(0), (x, np.array([True, False, True])))
        yield Sample(Compress(-1), (x, np.array([False, True])), note="negative axis, short condition")
        yield Sample(Compress(1), (x, np.array([False, False, False, False])), note="nothing left")
