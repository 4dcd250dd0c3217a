"""Pooling over sliding windows, and over all spatial dimensions at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, Shape, unknown
from aicore.ir.dtypes import FLOATS, INTEGERS
from aicore.ir.op import Op, Sample, Types, as_tuple, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops import _pooling_gradients as gradient
from aicore.ops.base import ensure
from aicore.ops.gradients import Given, Gradients
from aicore.ops.window import W, Windowed, output_dims, resolve_window


class Pool(Op):
    """x (N, C, spatial...) -> y (N, C, output spatial...), one number for each window of each channel.

    Padding never takes part in the result, except that AveragePool counts it when asked to. With `ceil_mode`, a last
    window may reach beyond the padding, but not start in the padding at the end.
    """

    dtypes: ClassVar[frozenset[str]] = FLOATS

    def infer(self, x: Value) -> Types:
        ensure(x.dtype in self.dtypes, f"does not take {x.dtype}")
        return TensorType(x.dtype, pooled_shape(self, x))

    def cost(self, x: Value) -> tuple[Dim, Dim]:
        types = self.infer(x)
        first = as_tuple(types)[0]
        return first.size * math.prod(getattr(self, "kernel_shape", ())), moved_bytes(types, (x,))


@op_class
class MaxPool(Pool):
    """The largest element of each window; NaN if there is one, the dtype's lowest number if there is no element.

    indices: whether there is a second output (int64): where in the flattened input the first largest element is,
        counted along the last spatial dim first, or along the first spatial dim first if `storage_order` is 1.
    Floating point and integers. Source: ONNX MaxPool-22.
    """

    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    dilations: tuple[int, ...] = ()
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    storage_order: int = 0
    strides: tuple[int, ...] = ()
    indices: bool = False

    dtypes = FLOATS | INTEGERS

    def n_outputs(self) -> int:
        return 2 if self.indices else 1

    def resolve(self, x: Value) -> MaxPool:
        return settle_pool(self, x.shape and x.shape[2:])

    def infer(self, x: Value) -> Types:
        ensure(self.storage_order in (0, 1), f"storage_order {self.storage_order} is neither 0 nor 1")
        (pooled,) = as_tuple(super().infer(x))
        return (pooled, TensorType("int64", pooled.shape)) if self.indices else pooled

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (x,), dy = inputs, grads[0]
        return [gradient.of_max_pool(op, self, x, dy)]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from window_samples(cls, rng)
        image = rng.integers(-5, 5, (2, 3, 5, 6))  # small numbers: equal ones compete for the index
        for storage_order in (0, 1):
            op = cls(kernel_shape=(3, 2), strides=(2, 1), pads=(1, 1, 0, 1), storage_order=storage_order, indices=True)
            yield Sample(op, (image.astype(np.float32),), note=f"indices, storage_order {storage_order}")
        special = np.full((1, 1, 4, 4), -np.inf, np.float32)
        special[0, 0, 1, 1] = np.nan
        for indices in (False, True):
            dilated = cls(kernel_shape=(2, 2), dilations=(2, 1), indices=indices)
            yield Sample(dilated, (image.astype(np.int8),), note="int8")
            padded = cls(kernel_shape=(2, 2), pads=(1, 1, 1, 1), indices=indices)
            yield Sample(padded, (image.astype(np.int8) - np.int8(100),), note="negative int8 and padding")
            yield Sample(padded, (image.astype(np.uint8),), note="uint8 and padding")
            yield Sample(padded, (special,), note="NaN and -inf")


@op_class
class AveragePool(Pool):
    """The mean of each window, over its elements alone or, with `count_include_pad`, over padding (0) too.

    Where a window of `ceil_mode` reaches beyond the padding, what lies there is never counted.
    Floating point. Source: ONNX AveragePool-22.
    """

    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    count_include_pad: int = 0
    dilations: tuple[int, ...] = ()
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def resolve(self, x: Value) -> AveragePool:
        return settle_pool(self, x.shape and x.shape[2:])

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (x,), dy = inputs, grads[0]
        return [gradient.of_average_pool(op, self, x, dy)]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from window_samples(cls, rng)
        yield from window_samples(cls, rng, count_include_pad=1)
        special = _normal(rng, (1, 1, 4, 4))
        special[0, 0, 1, 1], special[0, 0, 3, 3] = np.nan, np.inf
        yield Sample(cls(kernel_shape=(2, 2), pads=(1, 1, 1, 1)), (special,), note="NaN and inf")


@op_class
class LpPool(Pool):
    """The p-norm of each window: (sum |x|^p)^(1/p). Floating point. Source: ONNX LpPool-22."""

    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    dilations: tuple[int, ...] = ()
    kernel_shape: tuple[int, ...] = ()
    p: int = 2
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def resolve(self, x: Value) -> LpPool:
        return settle_pool(self, x.shape and x.shape[2:])

    def infer(self, x: Value) -> Types:
        ensure(self.p >= 1, f"p {self.p} is below 1")
        return super().infer(x)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (x,), dy = inputs, grads[0]
        return [gradient.of_lp_pool(op, self.resolve(x), x, outputs[0], dy)]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from window_samples(cls, rng)
        yield Sample(cls(kernel_shape=(3, 3), p=1), (_normal(rng, (1, 2, 5, 5)),), note="p 1")
        yield Sample(cls(kernel_shape=(2, 3), p=3, pads=(0, 1, 1, 0)), (_normal(rng, (1, 2, 5, 5)),), note="p 3")


class GlobalPool(Op):
    """x (N, C, spatial...) -> y (N, C, 1...), one number for each channel. Floating point."""

    def infer(self, x: Value) -> Types:
        ensure(x.dtype in FLOATS, f"takes floating point, not {x.dtype}")
        if x.shape is None:
            return x.type
        ensure(len(x.shape) >= 3, f"%{x.name} has rank {len(x.shape)}, wants 3 or more")
        return TensorType(x.dtype, (*x.shape[:2], *(1 for _ in x.shape[2:])))

    def cost(self, x: Value) -> tuple[Dim, Dim]:
        return x.type.size, moved_bytes(self.infer(x), (x,))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (_normal(rng, (2, 3, 4, 5)),))
        yield Sample(cls(), (_normal(rng, (1, 3, 7)),), note="one spatial dim")
        yield Sample(cls(), (_normal(rng, (2, 1, 3, 1, 2)),), note="three spatial dims")
        yield Sample(cls(), (_normal(rng, (0, 3, 4, 5)),), note="empty batch")
        special = _normal(rng, (1, 3, 2, 2))
        special[0, 0, 1, 1], special[0, 1, 0, 0] = np.nan, -np.inf
        yield Sample(cls(), (special,), note="NaN and -inf")


@op_class
class GlobalAveragePool(GlobalPool):
    """The mean of each channel; NaN when there are no elements. Source: ONNX GlobalAveragePool-22."""

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (x,), dy = inputs, grads[0]
        return [gradient.of_global_average_pool(op, x, dy)]


@op_class
class GlobalMaxPool(GlobalPool):
    """The largest element of each channel, NaN if there is one. Source: ONNX GlobalMaxPool-22."""

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (x,), dy = inputs, grads[0]
        return [gradient.of_global_max_pool(op, x, dy)]


@op_class
class GlobalLpPool(GlobalPool):
    """The p-norm of each channel. Source: ONNX GlobalLpPool-22."""

    p: int = 2

    def infer(self, x: Value) -> Types:
        ensure(self.p >= 1, f"p {self.p} is below 1")
        return super().infer(x)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (x,), dy = inputs, grads[0]
        return [gradient.of_global_lp_pool(op, self.p, x, outputs[0], dy)]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from super().samples(rng)
        yield Sample(cls(p=1), (_normal(rng, (2, 3, 4, 5)),), note="p 1")
        yield Sample(cls(p=3), (_normal(rng, (2, 3, 4, 5)),), note="p 3")


def settle_pool(op: W, spatial: Sequence[Dim] | None) -> W:
    """The pool with its window's defaults filled in; with `auto_pad` as pads, if the dims are numbers.

    SAME and VALID settle the output's size, so `ceil_mode` has no say in it.
    """
    ensure(op.kernel_shape, "kernel_shape is missing")
    resolved = resolve_window(op, spatial, len(op.kernel_shape))
    if op.auto_pad == "NOTSET":
        return resolved
    return replace(resolved, ceil_mode=0)  # type: ignore[type-var]


def pooled_shape(op: Any, x: Value) -> Shape | None:
    """What the pool makes of x's shape. Raises InferenceError where window and shape do not fit."""
    op = settle_pool(op, x.shape and x.shape[2:])
    count = len(op.kernel_shape)
    rank_fits = x.shape is None or len(x.shape) == count + 2
    ensure(rank_fits, f"%{x.name} has rank {x.rank}, kernel_shape {op.kernel_shape} wants {count + 2}")
    if x.shape is None:
        return (unknown(), unknown(), *(unknown() for _ in range(count)))
    _check_padding(op)
    return (*x.shape[:2], *output_dims(op, x.shape[2:], op.kernel_shape, bool(op.ceil_mode)))


def _check_padding(op: Windowed) -> None:
    """A window that lies in the padding alone has no elements to pool."""
    count = len(op.kernel_shape)
    for i, pad in enumerate(op.pads):
        extent = (op.kernel_shape[i % count] - 1) * op.dilations[i % count] + 1
        ensure(pad < extent, f"pads {op.pads} are not below the extent of the window, {extent}")


def _normal(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return rng.standard_normal(tuple(shape)).astype(np.float32)


def window_samples(cls: type[Op], rng: np.random.Generator, **extra: Any) -> Iterable[Sample]:
    """Windows that every pool must handle."""

    def case(shape: Sequence[int], note: str, **fields: Any) -> Sample:
        more = "".join(f", {name} {value}" for name, value in extra.items())
        return Sample(cls(**fields, **extra), (_normal(rng, shape),), note=note + more)

    yield case((1, 3, 7, 6), "default strides", kernel_shape=(2, 3))
    yield case((2, 3, 7, 6), "padding", kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    yield case((2, 3, 7, 8), "uneven padding", kernel_shape=(3, 4), strides=(2, 1), pads=(2, 0, 1, 3))
    yield case((1, 2, 7, 7), "ceil_mode", kernel_shape=(2, 2), strides=(2, 2), ceil_mode=1)
    ceil = {"kernel_shape": (3, 3), "strides": (3, 3), "pads": (1, 1, 1, 1), "ceil_mode": 1}
    yield case((1, 2, 6, 7), "ceil_mode and padding", **ceil)
    yield case((1, 1, 2, 2), "ceil_mode, a window would start in the end padding", **ceil)
    yield case((1, 2, 9, 9), "dilated", kernel_shape=(3, 2), dilations=(2, 3), strides=(1, 2), pads=(1, 2, 2, 1))
    yield case((1, 2, 5, 6), "SAME_UPPER", kernel_shape=(2, 3), strides=(2, 2), auto_pad="SAME_UPPER")
    yield case((1, 2, 5, 6), "SAME_LOWER", kernel_shape=(2, 3), strides=(1, 2), auto_pad="SAME_LOWER")
    yield case((1, 2, 6, 6), "VALID", kernel_shape=(3, 3), strides=(2, 2), auto_pad="VALID", ceil_mode=1)
    yield case((2, 3, 9), "one spatial dim", kernel_shape=(4,), strides=(3,), pads=(1, 2))
    yield case((1, 2, 4, 5, 3), "three spatial dims", kernel_shape=(2, 3, 2), strides=(2, 1, 1), pads=(0, 1, 1) * 2)
    yield case((0, 3, 5, 5), "empty batch", kernel_shape=(2, 2))
