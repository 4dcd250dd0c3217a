"""Gradients of convolutions by convolutions: each of Conv and ConvTranspose is the other's transpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aicore.errors import UnsupportedError
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim
from aicore.ir.value import Value
from aicore.ops.base import ensure
from aicore.ops.gradients import numbers
from aicore.ops.window import same_pads, split_padding

if TYPE_CHECKING:
    from aicore.ops.convolution import Conv, ConvTranspose


def gradients_of_conv(op: Builder, conv: Conv, x: Value, w: Value, b: Value | None, dy: Value) -> list[Value | None]:
    """Of x by ConvTranspose, of the weight by ConvWeightGrad, of the bias by a sum.

    conv: with the defaults of these operands filled in.
    Raises UnsupportedError where sizes that the gradient needs are not known.
    """
    _need_ranks(x, w)
    kernel = _kernel_of(conv.kernel_shape)
    dw = op.ConvWeightGrad(
        x,
        dy,
        auto_pad=conv.auto_pad,
        dilations=conv.dilations,
        group=conv.group,
        kernel_shape=kernel,
        pads=conv.pads,
        strides=conv.strides,
    )
    pads = conv.pads if conv.auto_pad == "NOTSET" else _same_padding(conv)
    dx = transposed(op, dy, w, x, kernel, conv.strides, conv.dilations, pads, conv.group)
    return [dx, dw, None if b is None else _sum_of_channels(op, dy)]


def transposed(
    op: Builder,
    dy: Value,
    w: Value,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    group: int = 1,
) -> Value:
    """What each window of a convolution of `x` gives back to `x`: dy times the weight, added up, of the shape of x."""
    count = len(kernel)
    spatial = (x.shape or ())[2:]
    rests, cut = [], False
    for i, stride in enumerate(strides):
        extent = (kernel[i] - 1) * dilations[i] + 1
        rest = (spatial[i] + pads[i] + pads[count + i] - extent) % stride  # elements behind the last window
        cut = cut or not isinstance(rest, int)
        rests.append(rest if isinstance(rest, int) else stride - 1)
    dx = op.ConvTranspose(
        dy,
        w,
        dilations=tuple(dilations),
        group=group,
        kernel_shape=tuple(kernel),
        output_padding=tuple(rests),
        pads=tuple(pads),
        strides=tuple(strides),
    )
    if not cut:
        return dx  # type: ignore[no-any-return]
    axes = numbers(op, *range(2, count + 2))
    return op.Slice(dx, numbers(op, *(0,) * count), op.Shape(x, start=2), axes)  # type: ignore[no-any-return]


def gradients_of_conv_transpose(
    op: Builder, conv: ConvTranspose, x: Value, w: Value, b: Value | None, dy: Value
) -> list[Value | None]:
    """Of x by Conv, of the weight by ConvWeightGrad, of the bias by a sum.

    conv: with the defaults of these operands filled in.
    Raises UnsupportedError where sizes that the gradient needs are not known.
    """
    _need_ranks(x, w)
    kernel = _kernel_of(conv.kernel_shape)
    begins, reaches = _reach(conv, (x.shape or ())[2:], kernel)
    reached, ends = dy, []
    for i, (reach, size) in enumerate(zip(reaches, (dy.shape or ())[2:], strict=True)):
        missing = _number(reach - begins[i] - size)
        ends.append(max(missing, 0))
        if -missing >= conv.strides[i]:  # one window more would fit into what no kernel reaches
            reached = op.Slice(reached, *(numbers(op, n) for n in (0, missing, i + 2)))
    fields = {
        "dilations": conv.dilations,
        "group": conv.group,
        "kernel_shape": kernel,
        "pads": (*begins, *ends),
        "strides": conv.strides,
    }
    dx = op.Conv(reached, w, **fields)
    return [dx, op.ConvWeightGrad(reached, x, **fields), None if b is None else _sum_of_channels(op, dy)]


def _reach(conv: ConvTranspose, spatial: Sequence[Dim], kernel: Sequence[int]) -> tuple[list[int], list[Dim]]:
    """How much is cut off at the begin, and where kernels end, in each spatial dim, counted before the cut."""
    reaches = [
        (d - 1) * s + (k - 1) * step + 1
        for d, s, k, step in zip(spatial, conv.strides, kernel, conv.dilations, strict=True)
    ]
    if not conv.output_shape and conv.auto_pad == "NOTSET":
        return list(conv.pads[: len(kernel)]), reaches
    wanted = conv.output_dims(spatial, kernel)
    padded = zip(reaches, conv.output_padding, wanted, strict=True)
    totals = [max(_number(reach + extra - dim), 0) for reach, extra, dim in padded]
    cuts = split_padding(totals, upper=conv.auto_pad == "SAME_UPPER")
    return list(cuts[: len(kernel)]), reaches


def _same_padding(conv: Conv) -> tuple[int, ...]:
    """Pads of SAME for open sizes, which do not matter where the stride is 1."""
    if set(conv.strides) != {1}:
        raise UnsupportedError(f"the gradient of {conv.auto_pad} with strides {conv.strides} needs sizes in numbers")
    return same_pads((1,) * len(conv.strides), conv.kernel_shape, conv.strides, conv.dilations, conv.auto_pad)


def _sum_of_channels(op: Builder, dy: Value) -> Value:
    axes = tuple(axis for axis in range(len(dy.shape or ())) if axis != 1)
    return op.ReduceSum(dy, axes=axes, keepdims=0)  # type: ignore[no-any-return]


def _need_ranks(*values: Value) -> None:
    for value in values:
        ensure(value.shape is not None, f"the rank of %{value.name} is unknown")


def _kernel_of(kernel: tuple[int, ...]) -> tuple[int, ...]:
    if not kernel:
        raise UnsupportedError("the gradient needs the kernel's dims in numbers")
    return kernel


def _number(dim: Dim) -> int:
    if not isinstance(dim, int):
        raise UnsupportedError(f"the gradient of a transposed convolution needs {dim} in numbers")
    return dim
