"""Convolution whose kernel reads where another tensor tells it to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.dims import Dim
from aicore.ir.op import Op, Sample, Types, as_tuple, moved_bytes
from aicore.ir.value import Value
from aicore.ops._pointwise import floats
from aicore.ops.base import ensure, same_dim, same_dtype, shape_text
from aicore.ops.convolution import Conv


@op_class
class DeformConv(Op):
    """(x, w, offset, b?, mask?) -> a convolution that reads x at places moved by offsets, between its elements.

    x (N, C, spatial...), w (M, C / group, kernel...), b (M,); offset (N, offset_group * K * n, output spatial...) for n
    spatial dims and K elements of the kernel: for each of them, how far to move along each dim; mask (N, offset_group *
    K, output spatial...): by what the read number is multiplied. Channels fall into offset_group groups with offsets of
    their own. A number between elements is interpolated linearly; elements outside of x are 0.
    Floating point. Source: ONNX DeformConv-22; Dai et al., Deformable convolutional networks (2017).
    """

    dilations: tuple[int, ...] = ()
    group: int = 1
    kernel_shape: tuple[int, ...] = ()
    offset_group: int = 1
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    auto_pad: ClassVar[str] = "NOTSET"

    def resolve(self, x: Value, w: Value, offset: Value, *others: Value | None) -> DeformConv:
        conv = self.as_conv().resolve(x, w)
        return replace(self, **{f.name: getattr(conv, f.name) for f in fields(Conv) if f.name != "auto_pad"})

    def as_conv(self) -> Conv:
        """The convolution without offsets."""
        return Conv(**{f.name: getattr(self, f.name) for f in fields(Conv)})

    def infer(self, x: Value, w: Value, offset: Value, b: Value | None = None, mask: Value | None = None) -> Types:
        same_dtype(x, w, offset, b, mask)
        (found,) = as_tuple(self.as_conv().infer(x, w, b))
        ensure(self.offset_group >= 1, f"offset_group is {self.offset_group}, wants 1 or more")
        if found.shape is None or x.shape is None or w.shape is None:
            return found
        channels, kernel = x.shape[1], w.shape[2:]
        divides = not isinstance(channels, int) or channels % self.offset_group == 0
        ensure(divides, f"{channels} channels do not divide into {self.offset_group} groups of offsets")
        places: Dim = self.offset_group
        for dim in kernel:
            places = places * dim
        for value, count in ((offset, places * len(kernel)), (mask, places)):
            if value is None or value.shape is None:
                continue
            wanted = (x.shape[0], count, *found.shape[2:])
            fits = len(value.shape) == len(wanted) and all(map(same_dim, value.shape, wanted))
            ensure(fits, f"%{value.name} has shape {shape_text(value.shape)}, wants {shape_text(wanted)}")
        return found

    def cost(self, x: Value, w: Value, offset: Value, *others: Value | None) -> tuple[Dim, Dim]:
        flops = self.as_conv().cost(x, w)[0]
        read = offset.type.size * (x.shape[1] if x.shape else 1) * 2 ** len((w.shape or ())[2:])
        return flops + read, moved_bytes(self.infer(x, w, offset, *others), (x, w, offset, *others))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        def case(
            x: Sequence[int], w: Sequence[int], out: Sequence[int], note: str, rest: int = 0, **given: Any
        ) -> Sample:
            op = cls(**given)
            places = op.offset_group * math.prod(w[2:])
            offset = floats(rng, (x[0], places * len(out), *out), -1.5, 1.5)
            others = (floats(rng, tuple(w[:1])), floats(rng, (x[0], places, *out), 0, 1))[:rest]
            return Sample(op, (floats(rng, tuple(x)), floats(rng, tuple(w)), offset, *others), note=note)

        yield case((1, 1, 4, 5), (2, 1, 2, 3), (3, 3), "no padding")
        yield case((2, 3, 5, 4), (2, 3, 3, 2), (3, 5), "padding, strides", pads=(1, 1, 1, 1), strides=(2, 1))
        yield case((1, 4, 5, 5), (4, 2, 3, 3), (5, 5), "groups, mask", 2, group=2, offset_group=2, pads=(1, 1, 1, 1))
        yield case((1, 2, 7, 7), (1, 2, 2, 3), (5, 1), "dilated", 1, dilations=(2, 3))
        yield case((1, 2, 6), (2, 2, 3), (4,), "one spatial dim", 2)
        yield case((1, 1, 3, 3, 3), (1, 1, 2, 2, 2), (2, 2, 2), "three spatial dims")
        yield case((0, 1, 4, 4), (1, 1, 2, 2), (3, 3), "empty batch")
