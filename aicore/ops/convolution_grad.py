"""The gradient of a convolution's weight."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, as_tuple, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import ensure, need_dtype, same_dim, same_dtype, shape_text
from aicore.ops.window import output_dims, resolve_window


@op_class
class ConvWeightGrad(Op):
    """(x, dy) -> dw: the gradient of Conv's weight from its input and the gradient of its output.

    dw[m, c, k] sums dy[n, m, p] * x[n, c of m's group, p * stride + k * dilation - pad] over images n and windows p.
    x (N, C, spatial...), dy (N, M, output spatial...); dw (M, C / group, kernel...). Floating point. The fields are
    those of the Conv, and kernel_shape must be given. That of ConvTranspose's weight takes the gradient of the output
    as x, and the input as dy.
    """

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] = ()
    group: int = 1
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def resolve(self, x: Value, dy: Value) -> ConvWeightGrad:
        return self.settled(x.shape and x.shape[2:])

    def settled(self, spatial: Sequence[Dim] | None) -> ConvWeightGrad:
        """This op with defaults filled in; with `auto_pad` as pads, if the dims are numbers."""
        ensure(self.kernel_shape, "kernel_shape is missing")
        return resolve_window(self, spatial, len(self.kernel_shape))

    def infer(self, x: Value, dy: Value) -> Types:
        op = self.resolve(x, dy)
        same_dtype(x, dy)
        need_dtype(x, FLOATS)
        rank = len(self.kernel_shape) + 2
        for value in (x, dy):
            ensure(value.rank in (None, rank), f"%{value.name} has rank {value.rank}, kernel_shape wants {rank}")
        ensure(self.group >= 1, f"group {self.group} is below 1")
        if x.shape is None or dy.shape is None:
            return TensorType(x.dtype, None)
        wanted = (x.shape[0], dy.shape[1], *output_dims(op, x.shape[2:], self.kernel_shape))
        fits = all(map(same_dim, wanted, dy.shape))
        ensure(fits, f"%{dy.name} is {shape_text(dy.shape)}, the output of the convolution {shape_text(wanted)}")
        for channels in (x.shape[1], dy.shape[1]):
            divides = not isinstance(channels, int) or channels % self.group == 0
            ensure(divides, f"{channels} channels do not divide into {self.group} groups")
        return TensorType(x.dtype, (dy.shape[1], x.shape[1] // self.group, *self.kernel_shape))

    def cost(self, x: Value, dy: Value) -> tuple[Dim, Dim]:
        (dw,) = as_tuple(self.infer(x, dy))
        depth = math.prod((dw.shape or ())[1:])
        return dy.type.size * 2 * depth, moved_bytes(dw, (x, dy))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        def case(x: Sequence[int], dy: Sequence[int], note: str, **fields: object) -> Sample:
            operands = tuple(rng.standard_normal(tuple(shape)).astype(np.float32) for shape in (x, dy))
            return Sample(cls(**fields), operands, note=note)  # type: ignore[arg-type]

        yield case((1, 3, 7, 6), (1, 4, 5, 4), "no padding", kernel_shape=(3, 3))
        yield case((2, 3, 7, 6), (2, 4, 7, 6), "padding", kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        yield case((2, 5, 6, 7), (2, 3, 6, 7), "1x1", kernel_shape=(1, 1))
        yield case((2, 4, 3, 5), (2, 6, 3, 5), "1x1, groups", kernel_shape=(1, 1), group=2)
        yield case((3, 4, 1, 1), (3, 6, 1, 1), "1x1, one pixel", kernel_shape=(1, 1))
        yield case((1, 4, 7, 7), (1, 6, 4, 3), "1x1, strided", kernel_shape=(1, 1), strides=(2, 3))
        yield case(
            (2, 4, 9, 8), (2, 6, 5, 9), "groups", kernel_shape=(3, 2), group=2, strides=(2, 1), pads=(1, 0, 2, 2)
        )
        yield case((2, 5, 8, 9), (2, 5, 8, 9), "depthwise", kernel_shape=(3, 5), group=5, pads=(1, 2, 1, 2))
        yield case(
            (1, 3, 8, 9),
            (1, 6, 4, 5),
            "depthwise, two maps a channel",
            kernel_shape=(3, 3),
            group=3,
            strides=(2, 2),
            pads=(1, 1, 1, 1),
        )
        yield case(
            (1, 2, 11, 12),
            (1, 3, 9, 6),
            "dilated",
            kernel_shape=(3, 2),
            dilations=(2, 3),
            pads=(2, 1, 0, 2),
            strides=(1, 2),
        )
        yield case((1, 2, 5, 7), (1, 2, 3, 4), "SAME_UPPER", kernel_shape=(2, 4), auto_pad="SAME_UPPER", strides=(2, 2))
        yield case((1, 2, 5, 7), (1, 2, 5, 4), "SAME_LOWER", kernel_shape=(4, 4), auto_pad="SAME_LOWER", strides=(1, 2))
        yield case((1, 2, 5, 7), (1, 2, 2, 3), "VALID", kernel_shape=(2, 3), auto_pad="VALID", strides=(2, 2))
        yield case((2, 3, 11), (2, 4, 6), "one spatial dim", kernel_shape=(4,), pads=(2, 1), strides=(2,))
        yield case(
            (1, 2, 5, 4, 6),
            (1, 3, 3, 2, 3),
            "three spatial dims",
            kernel_shape=(2, 3, 2),
            pads=(1, 1, 0, 0, 0, 1),
            strides=(2, 2, 2),
        )
        yield case((0, 2, 4, 4), (0, 3, 2, 2), "empty batch", kernel_shape=(3, 3))
        yield case((1, 2, 2, 5), (1, 3, 0, 3), "no room for the window", kernel_shape=(3, 3))
        yield case((1, 2, 1, 1), (1, 3, 5, 5), "more padding than input", kernel_shape=(3, 3), pads=(3, 3, 3, 3))
