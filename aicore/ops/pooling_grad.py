"""Gradients of pools over sliding windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import ensure, need_dtype, same_dim, same_dtype, shape_text
from aicore.ops.pooling import AveragePool, MaxPool, pooled_shape, settle_pool, window_samples
from aicore.ops.sizes import given, need_one_of, need_vector, unknown_shape
from aicore.ops.window import numbers, output_dims


@op_class
class MaxPoolGrad(Op):
    """(x, dy) -> dx: the gradient of each window of MaxPool goes to its first largest element in row-major order.

    NaN is larger than any number, as in MaxPool. Where windows overlap, gradients add up; a window without elements
    gives its gradient to none. x (N, C, spatial...), dy (N, C, output spatial...), dx as x. Floating point. The fields
    are those of the MaxPool.
    """

    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    dilations: tuple[int, ...] = ()
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def resolve(self, x: Value, dy: Value) -> MaxPoolGrad:
        return settle_pool(self, x.shape and x.shape[2:])

    def infer(self, x: Value, dy: Value) -> Types:
        same_dtype(x, dy)
        need_dtype(x, FLOATS)
        _check_pooled(dy, pooled_shape(self.resolve(x, dy), x))
        return x.type

    def cost(self, x: Value, dy: Value) -> tuple[Dim, Dim]:
        return dy.type.size * 2 * math.prod(self.kernel_shape), moved_bytes(x.type, (x, dy))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for sample in window_samples(MaxPool, rng):
            yield _with_gradient(sample, cls, rng)
        equal = rng.integers(0, 3, (2, 3, 5, 6)).astype(np.float32)
        tied = MaxPool(kernel_shape=(3, 2), strides=(2, 1), pads=(1, 1, 0, 1))
        yield _with_gradient(Sample(tied, (equal,), note="equal elements"), cls, rng)
        special = np.full((1, 1, 4, 4), -np.inf, np.float32)
        special[0, 0, 1, 1], special[0, 0, 1, 2] = np.nan, np.inf
        padded = MaxPool(kernel_shape=(2, 2), pads=(1, 1, 1, 1))
        yield _with_gradient(Sample(padded, (special,), note="NaN and infinities"), cls, rng)
        apart = MaxPool(kernel_shape=(2, 2), dilations=(2, 2), pads=(1, 1, 1, 1))
        yield _with_gradient(Sample(apart, (equal[:, :, :1, :1],), note="windows without elements"), cls, rng)


@op_class
class AveragePoolGrad(Op):
    """(dy, shape?) -> dx: the gradient of each window of AveragePool, in equal shares to its elements.

    dy (N, C, output spatial...), dx (N, C, spatial...). Floating point. The fields are those of the AveragePool, and:
    shape: the spatial dims of dx, a vector of integers as an operand until it is known.
    """

    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    count_include_pad: int = 0
    dilations: tuple[int, ...] = ()
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    shape: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "shape"}

    def resolve(self, dy: Value, shape: Value | None = None) -> AveragePoolGrad:
        return settle_pool(self, given(self.shape, shape))

    def infer(self, dy: Value, shape: Value | None = None) -> Types:
        need_dtype(dy, FLOATS)
        need_one_of(self.shape, shape, "the shape of the input")
        need_vector(shape, "shape")
        count = len(self.kernel_shape)
        op, spatial = self.resolve(dy, shape), given(self.shape, shape)
        ensure(dy.rank in (None, count + 2), f"%{dy.name} has rank {dy.rank}, kernel_shape wants {count + 2}")
        ensure(spatial is None or len(spatial) == count, f"shape {spatial} has not {count} entries")
        leading = (unknown_shape(2) or ()) if dy.shape is None else dy.shape[:2]
        dx = TensorType(dy.dtype, (*leading, *(spatial or unknown_shape(count) or ())))
        if spatial is not None:
            _check_pooled(dy, pooled_shape(op, Value("dx", dx)))
        return dx

    def cost(self, dy: Value, shape: Value | None = None) -> tuple[Dim, Dim]:
        return dy.type.size * math.prod(self.kernel_shape), moved_bytes(self.infer(dy, shape), (dy,))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for extra in ({}, {"count_include_pad": 1}):
            for sample in window_samples(AveragePool, rng, **extra):
                yield _with_gradient(sample, cls, rng)
        (dy,) = (rng.standard_normal((1, 2, 3, 3)).astype(np.float32),)
        op = cls(kernel_shape=(2, 2), strides=(2, 2), ceil_mode=1)
        yield Sample(op, (dy, np.array([5, 6], np.int64)), note="sizes known at run time only")


def _check_pooled(dy: Value, wanted: Sequence[Dim] | None) -> None:
    """Raise InferenceError unless dy may be the gradient of what was pooled."""
    if wanted is None or dy.shape is None:
        return
    fits = len(wanted) == len(dy.shape) and all(map(same_dim, wanted, dy.shape))
    ensure(fits, f"%{dy.name} is {shape_text(dy.shape)}, what was pooled {shape_text(tuple(wanted))}")


def _with_gradient(sample: Sample, cls: type[Op], rng: np.random.Generator) -> Sample:
    """The case of a pool as one of its gradient."""
    x, op = sample.inputs[0], sample.op
    assert x is not None
    assert isinstance(op, MaxPool | AveragePool)  # the caller made it
    fields: dict[str, Any] = {name: getattr(op, name) for name in cls.field_defaults if hasattr(op, name)}
    settled = settle_pool(op, x.shape[2:])
    dims = numbers(output_dims(settled, x.shape[2:], op.kernel_shape, bool(settled.ceil_mode)))
    dy = rng.standard_normal((*x.shape[:2], *dims)).astype(np.float32)
    if cls is AveragePoolGrad:
        return Sample(cls(**fields, shape=x.shape[2:]), (dy,), note=sample.note)
    return Sample(cls(**fields), (x, dy), note=sample.note)
