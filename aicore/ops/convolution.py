"""Convolution and its transpose, for any number of spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from aicore.errors import InferenceError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, Shape
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, as_tuple, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._convolution_gradients import gradients_of_conv, gradients_of_conv_transpose
from aicore.ops.base import ensure, merge_dim, need_rank, same_dim, same_dtype
from aicore.ops.gradients import Given, Gradients
from aicore.ops.window import check_window, numbers, output_dims, resolve_window, split_padding


@op_class
class Conv(Op):
    """(x, w, b?) -> y: each output channel sums the products of its kernel with a window sliding over its group.

    x (N, C, spatial...), w (M, C / group, kernel...), b (M,); y (N, M, output spatial...). Floating point.
    Source: ONNX Conv-22.
    """

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] = ()
    group: int = 1
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def resolve(self, x: Value, w: Value, b: Value | None = None) -> Conv:
        _check_operands(self.group, x, w, b)
        rank = w.rank if x.rank is None else x.rank
        if rank is None:
            return self
        return self.settled(x.shape and x.shape[2:], _kernel_of(self.kernel_shape, w), rank - 2)

    def settled(self, spatial: Sequence[Dim] | None, kernel: tuple[int, ...], count: int) -> Conv:
        """This op with defaults for `count` spatial dims; with `auto_pad` as pads, if the dims are numbers."""
        op = self if kernel == self.kernel_shape else replace(self, kernel_shape=kernel)
        return resolve_window(op, spatial, count)

    def infer(self, x: Value, w: Value, b: Value | None = None) -> Types:
        op = self.resolve(x, w, b)
        if x.shape is None or w.shape is None:
            return TensorType(x.dtype, None)
        channels, wanted = x.shape[1], w.shape[1] * self.group
        ensure(same_dim(channels, wanted), f"the input has {channels} channels, weight and group want {wanted}")
        maps = w.shape[0]
        divides = not isinstance(maps, int) or maps % self.group == 0
        ensure(divides, f"{maps} output channels do not divide into {self.group} groups")
        ensure(b is None or b.shape is None or same_dim(b.shape[0], maps), f"the bias has not {maps} entries")
        kernel = [merge_dim(given, dim) for given, dim in zip(op.kernel_shape or w.shape[2:], w.shape[2:], strict=True)]
        return TensorType(x.dtype, (x.shape[0], maps, *output_dims(op, x.shape[2:], kernel)))

    def cost(self, x: Value, w: Value, b: Value | None = None) -> tuple[Dim, Dim]:
        (out,) = as_tuple(self.infer(x, w, b))
        return out.size * 2 * math.prod(_shape(w)[1:]), moved_bytes(out, (x, w, b))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        x, w, b = (*inputs, None)[:3]
        return gradients_of_conv(op, self.resolve(x, w, b), x, w, b, grads[0])

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        def case(x: Sequence[int], w: Sequence[int], note: str, bias: bool = True, **fields: object) -> Sample:
            operands = (_normal(rng, x), _normal(rng, w), *((_normal(rng, w[:1]),) if bias else ()))
            return Sample(cls(**fields), operands, constant=(1, 2)[: len(operands) - 1], note=note)  # type: ignore[arg-type]

        yield case((1, 3, 7, 6), (4, 3, 3, 3), "no padding")
        yield case((2, 3, 7, 6), (4, 3, 3, 3), "batch, no bias", bias=False, pads=(1, 1, 1, 1))
        yield case((2, 5, 6, 7), (3, 5, 1, 1), "1x1")
        yield case((2, 4, 3, 5), (6, 2, 1, 1), "1x1, groups", group=2)
        yield case((3, 4, 1, 1), (6, 4, 1, 1), "1x1, one pixel")
        yield case((1, 4, 7, 7), (6, 4, 1, 1), "1x1, strided", strides=(2, 3))
        yield case((1, 2, 5, 5), (3, 2, 1, 1), "1x1, padded", pads=(1, 0, 0, 2))
        yield case((2, 4, 9, 8), (6, 2, 3, 2), "groups", group=2, strides=(2, 1), pads=(1, 0, 2, 1))
        yield case((2, 5, 8, 9), (5, 1, 3, 5), "depthwise", group=5, pads=(1, 2, 1, 2))
        yield case((1, 3, 8, 9), (6, 1, 3, 3), "depthwise, two maps a channel", group=3, strides=(2, 2), pads=(1,) * 4)
        yield case((1, 2, 11, 12), (3, 2, 3, 2), "dilated", dilations=(2, 3), pads=(2, 1, 0, 3), strides=(1, 2))
        yield case((1, 2, 5, 7), (2, 2, 3, 4), "SAME_UPPER", auto_pad="SAME_UPPER", strides=(2, 2))
        yield case((1, 2, 5, 7), (2, 2, 4, 4), "SAME_LOWER", auto_pad="SAME_LOWER", strides=(1, 2))
        yield case((1, 2, 5, 7), (2, 2, 2, 3), "VALID", auto_pad="VALID", strides=(2, 2))
        yield case((2, 3, 11), (4, 3, 4), "one spatial dim", pads=(2, 1), strides=(2,))
        yield case((1, 2, 5, 4, 6), (3, 2, 2, 3, 2), "three spatial dims", pads=(1, 1, 0, 0, 1, 1), strides=(2, 1, 2))
        yield case((0, 2, 4, 4), (3, 2, 3, 3), "empty batch")
        yield case((1, 2, 2, 5), (3, 2, 3, 3), "no room for the window: empty output")
        yield case((1, 2, 1, 1), (3, 2, 3, 3), "more padding than input", pads=(3, 3, 3, 3))


@op_class
class ConvTranspose(Op):
    """(x, w, b?) -> y: each input element adds its multiple of the kernel to the output; the gradient of Conv.

    x (N, C, spatial...), w (C, M / group, kernel...), b (M,); y (N, M, output spatial...). Floating point.
    Where `output_shape` or SAME asks for more than the kernels reach, the rest at the ends is the bias alone.
    Source: ONNX ConvTranspose-22.
    """

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] = ()
    group: int = 1
    kernel_shape: tuple[int, ...] = ()
    output_padding: tuple[int, ...] = ()
    output_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def resolve(self, x: Value, w: Value, b: Value | None = None) -> ConvTranspose:
        _check_operands(self.group, x, w, b)
        rank = w.rank if x.rank is None else x.rank
        if rank is None:
            return self
        return self.settled(_kernel_of(self.kernel_shape, w), rank - 2)

    def settled(self, kernel: tuple[int, ...], count: int) -> ConvTranspose:
        """This op with defaults for `count` spatial dims. Raises InferenceError for fields that do not fit."""
        ones = (1,) * count
        op = replace(
            self,
            kernel_shape=kernel,
            strides=self.strides or ones,
            dilations=self.dilations or ones,
            output_padding=self.output_padding or (0,) * count,
            auto_pad="NOTSET" if self.auto_pad == "VALID" else self.auto_pad,
            pads=self.pads or (0,) * 2 * count,
        )
        check_window(self, count)
        check_window(op, count)
        for name, found in (("output_padding", op.output_padding), ("output_shape", op.output_shape)):
            ensure(len(found) in (0, count), f"{name} {found} has {len(found)} entries, wants {count}")
            ensure(all(n >= 0 for n in found), f"{name} {found} has an entry below 0")
        for extra, stride, dilation in zip(op.output_padding, op.strides, op.dilations, strict=True):
            limit = max(stride, dilation)
            ensure(extra < limit, f"output_padding {extra} is not below the stride or dilation, {limit}")
        return op

    def output_dims(self, spatial: Sequence[Dim], kernel: Sequence[Dim]) -> Shape:
        """Spatial dims of the output of a resolved op."""
        if self.output_shape:
            return self.output_shape
        if self.auto_pad.startswith("SAME"):
            return tuple(d * s for d, s in zip(spatial, self.strides, strict=True))
        count = len(spatial)
        return tuple(dim - self.pads[i] - self.pads[count + i] for i, dim in enumerate(self._unpadded(spatial, kernel)))

    def padding(self, spatial: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
        """How much of the kernels' reach is cut off: all begins, then all ends, for a resolved op and known dims."""
        if not self.output_shape and self.auto_pad == "NOTSET":
            return self.pads
        reach, wanted = numbers(self._unpadded(spatial, kernel)), numbers(self.output_dims(spatial, kernel))
        totals = [max(r - w, 0) for r, w in zip(reach, wanted, strict=True)]
        return split_padding(totals, upper=self.auto_pad == "SAME_UPPER")

    def _unpadded(self, spatial: Sequence[Dim], kernel: Sequence[Dim]) -> Shape:
        return tuple(
            (d - 1) * s + (k - 1) * step + 1 + extra
            for d, k, s, step, extra in zip(
                spatial, kernel, self.strides, self.dilations, self.output_padding, strict=True
            )
        )

    def infer(self, x: Value, w: Value, b: Value | None = None) -> Types:
        op = self.resolve(x, w, b)
        if x.shape is None or w.shape is None:
            return TensorType(x.dtype, None)
        ensure(same_dim(x.shape[1], w.shape[0]), f"the input has {x.shape[1]} channels, the weight wants {w.shape[0]}")
        channels = w.shape[0]
        divides = not isinstance(channels, int) or channels % self.group == 0
        ensure(divides, f"{channels} channels do not divide into {self.group} groups")
        maps = w.shape[1] * self.group
        ensure(b is None or b.shape is None or same_dim(b.shape[0], maps), f"the bias has not {maps} entries")
        out = op.output_dims(x.shape[2:], w.shape[2:])
        fits = all(not isinstance(d, int) or d >= 0 for d in out)
        ensure(fits, f"pads {op.pads} cut off more than there is: output dims {out}")
        return TensorType(x.dtype, (x.shape[0], maps, *out))

    def cost(self, x: Value, w: Value, b: Value | None = None) -> tuple[Dim, Dim]:
        out = self.infer(x, w, b)
        return x.type.size * 2 * math.prod(_shape(w)[1:]), moved_bytes(out, (x, w, b))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        x, w, b = (*inputs, None)[:3]
        return gradients_of_conv_transpose(op, self.resolve(x, w, b), x, w, b, grads[0])

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        def case(x: Sequence[int], w: Sequence[int], note: str, bias: bool = True, **fields: object) -> Sample:
            op = cls(**fields)  # type: ignore[arg-type]
            operands = [_normal(rng, x), _normal(rng, w)] + ([_normal(rng, [w[1] * op.group])] if bias else [])
            return Sample(op, tuple(operands), constant=(1, 2)[: len(operands) - 1], note=note)

        yield case((1, 3, 4, 5), (3, 2, 3, 3), "no padding")
        yield case((2, 3, 4, 5), (3, 2, 2, 2), "kernel equals stride", strides=(2, 2))
        yield case(
            (2, 3, 4, 5), (3, 2, 3, 3), "output_padding", strides=(2, 3), pads=(1, 0, 1, 2), output_padding=(1, 2)
        )
        yield case((1, 2, 3, 3), (2, 2, 3, 3), "output_shape", bias=False, strides=(3, 2), output_shape=(10, 8))
        yield case((1, 2, 3, 3), (2, 2, 3, 3), "output_shape, odd cut", strides=(3, 2), output_shape=(8, 4))
        yield case((1, 2, 3, 4), (2, 1, 4, 3), "SAME_UPPER", auto_pad="SAME_UPPER", strides=(1, 2))
        yield case((1, 2, 3, 4), (2, 1, 4, 3), "SAME_LOWER", auto_pad="SAME_LOWER", strides=(1, 2))
        yield case((1, 2, 3, 4), (2, 1, 2, 3), "SAME, kernel below stride", auto_pad="SAME_UPPER", strides=(3, 3))
        yield case((1, 2, 3, 4), (2, 1, 2, 3), "VALID", auto_pad="VALID", strides=(2, 1))
        yield case((2, 4, 3, 4), (4, 3, 3, 2), "groups", group=2, strides=(2, 1), pads=(1, 0, 0, 1))
        yield case((1, 3, 4, 5), (3, 1, 3, 3), "depthwise", group=3, strides=(2, 2), pads=(1, 1, 1, 1))
        yield case((1, 2, 4, 3), (2, 2, 3, 2), "dilated", dilations=(2, 3), pads=(1, 1, 2, 0))
        yield case((1, 2, 6), (2, 3, 4), "one spatial dim", strides=(2,), pads=(1, 1))
        yield case((1, 2, 2, 3, 2), (2, 2, 2, 2, 3), "three spatial dims", strides=(2, 1, 2))
        yield case((0, 2, 3, 3), (2, 2, 2, 2), "empty batch")


def _normal(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return rng.standard_normal(tuple(shape)).astype(np.float32)


def _shape(value: Value) -> Shape:
    ensure(value.shape is not None, f"the rank of %{value.name} is unknown")
    return value.shape or ()


def _kernel_of(given: tuple[int, ...], w: Value) -> tuple[int, ...]:
    """The kernel's dims: the weight's where they are known, which must be what the attribute says."""
    if w.shape is None:
        return given
    dims = w.shape[2:]
    if dims == given:
        return given
    agree = not given or (len(given) == len(dims) and all(map(same_dim, given, dims)))
    ensure(agree, f"kernel_shape {given} is not that of the weight, {dims}")
    known = tuple(d for d in dims if isinstance(d, int))
    return known if len(known) == len(dims) else given


def _check_operands(group: int, x: Value, w: Value, b: Value | None) -> None:
    same_dtype(x, w, b)
    if x.dtype not in FLOATS:
        raise InferenceError(f"takes floating point, not {x.dtype}")
    if group < 1:
        raise InferenceError(f"group {group} is below 1")
    for value in (x, w):
        if value.shape is not None and len(value.shape) < 3:
            raise InferenceError(f"%{value.name} has rank {value.rank}, wants 3 or more")
    if x.shape is not None and w.shape is not None and len(x.shape) != len(w.shape):
        raise InferenceError(f"input and weight have different ranks: {x.rank} and {w.rank}")
    if b is not None:
        need_rank(b, 1)
