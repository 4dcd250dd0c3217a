"""A convolution in numbers: the struct ConvParams of graph_executor/cnn/direct.cuh, whatever op asks for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.fused_linear import ConvAdd, ConvAddAct
from aicore.ops.layout import ChannelsLast
from aicore.ops.window import numbers, output_dims
from aicore_cuda_ge.kernels._activations import Params, activation_params, refusal
from aicore_cuda_ge.kernels._windows import AXES, ELEMENTS, Window, distances, extended

_KERNEL = 1
"""Position of the weights among the operands."""


@dataclass(frozen=True)
class Problem:
    """A convolution, or its transpose, of known shapes.

    channels, maps: of one group, in and out. residual: distances in elements, of images, channels and AXES spatial
    axes. fused: the residual, if there is one, has the shape of the output. bias_at, residual_at, out_at: positions
    among operands and results; -1 for none.
    """

    dtype: str
    images: int
    groups: int
    channels: int
    maps: int
    window: Window
    channels_last: bool
    residual: tuple[int, ...]
    fused: bool
    bias_at: int
    residual_at: int
    out_at: int
    activation: Params

    @property
    def rows(self) -> int:
        """Positions of all images."""
        return self.images * self.window.positions

    @property
    def depth(self) -> int:
        """Length of the dot products."""
        return self.channels * self.window.taps

    @property
    def outputs(self) -> int:
        """Channels of the output."""
        return self.groups * self.maps

    @property
    def products(self) -> int:
        return self.rows * self.outputs * self.depth

    @property
    def nbytes(self) -> int:
        """Of all operands and the result, each once."""
        image = self.images * self.groups * self.channels * math.prod(self.window.size)
        results = self.rows * self.outputs * (2 if self.residual_at >= 0 else 1)
        return (image + self.outputs * self.depth + results) * numpy_dtype(self.dtype).itemsize

    def params(self, w_at: int = _KERNEL) -> tuple[int | float, ...]:
        """The struct ConvParams. w_at: position of the weights, packed ones perhaps."""
        w = self.window
        return (
            *(ELEMENTS[self.dtype], self.images, self.groups, self.channels, self.maps),
            *w.params,
            *distances(self.groups * self.channels, math.prod(w.size), self.channels_last),
            *distances(self.outputs, w.positions, self.channels_last),
            *self.residual,
            *(w_at, self.bias_at, self.residual_at, self.out_at),
            *self.activation,
        )


def reason_against(op: Op, *types: TensorType | None) -> str | None:
    """What no kernel takes: open sizes, many axes, unknown activations, activations of float64, odd residuals."""
    if not all(t is None or t.is_static for t in types):
        return "takes operands of known sizes"
    inner = op.inner if isinstance(op, ChannelsLast) else op
    activation = getattr(inner, "activation", None)
    if unknown := refusal(activation):
        return unknown
    x, w = types[:2]
    assert x is not None  # infer() refused the op otherwise
    assert w is not None
    if len(x.static_shape) - 2 > AXES:
        return f"takes at most {AXES} spatial axes, here {len(x.static_shape) - 2}"
    if x.dtype == "float64" and activation is not None:
        return "applies no activation to float64"
    residual = types[2] if isinstance(inner, ConvAdd | ConvAddAct) else None
    if residual is None:
        return None
    out = _out_shape(op, x.static_shape, w.static_shape)
    return None if _broadcast(residual.static_shape, out) is not None else f"adds no residual {residual} to {out}"


@lru_cache(maxsize=4096)
def problem_of(op: Op, *types: TensorType | None) -> Problem:
    """The convolution that the op is for operands that reason_against has nothing against."""
    last, inner = isinstance(op, ChannelsLast), op.inner if isinstance(op, ChannelsLast) else op
    x, w = types[:2]
    assert x is not None  # infer() refused the op otherwise
    assert w is not None
    conv, _, window = _window(op, x.static_shape, w.static_shape)
    transposed = isinstance(conv, ConvTranspose)
    adds = isinstance(inner, ConvAdd | ConvAddAct)
    bias_at = 2 + adds
    out = _out_shape(op, x.static_shape, w.static_shape)
    residual = types[2] if adds else None
    steps = _broadcast(residual.static_shape, out) if residual is not None else None
    images, total = x.static_shape[0], x.static_shape[-1 if last else 1]
    return Problem(
        dtype=x.dtype,
        images=images,
        groups=conv.group,
        channels=total // conv.group,
        maps=w.static_shape[1] if transposed else w.static_shape[0] // conv.group,
        window=window,
        channels_last=last,
        residual=(0,) * (2 + AXES) if steps is None else _placed(steps, last),
        fused=residual is None or residual.static_shape == out,
        bias_at=bias_at if len(types) > bias_at and types[bias_at] is not None else -1,
        residual_at=2 if adds else -1,
        out_at=len(types),
        activation=activation_params(getattr(inner, "activation", None)),
    )


def _window(op: Op, x: Sequence[int], w: Sequence[int]) -> tuple[Any, Sequence[int], Window]:
    """(the convolution with its defaults, spatial dims of the image, the window)."""
    last, inner = isinstance(op, ChannelsLast), op.inner if isinstance(op, ChannelsLast) else op
    conv: Any = inner if isinstance(inner, Conv | ConvTranspose) else inner.conv  # type: ignore[attr-defined]
    size, kernel = tuple(x[1:-1] if last else x[2:]), tuple(w[2:])
    if isinstance(conv, ConvTranspose):
        conv = conv.settled(kernel, len(size))
        out = numbers(conv.output_dims(size, kernel))
        return conv, size, Window.of(conv, size, out, conv.padding(size, kernel)[: len(size)])
    conv = conv.settled(size, kernel, len(size))
    return conv, size, Window.of(conv, size, numbers(output_dims(conv, size, kernel)))


def _out_shape(op: Op, x: Sequence[int], w: Sequence[int]) -> tuple[int, ...]:
    conv, size, window = _window(op, x, w)
    outputs = w[1] * conv.group if isinstance(conv, ConvTranspose) else w[0]
    spatial = window.out[AXES - len(size) :]
    return (x[0], *spatial, outputs) if isinstance(op, ChannelsLast) else (x[0], outputs, *spatial)


def _broadcast(shape: Sequence[int], out: Sequence[int]) -> tuple[int, ...] | None:
    """Distances along the axes of `out` of an array that is broadcast to it; None if it is not."""
    if len(shape) > len(out):
        return None
    full, steps, step = (1,) * (len(out) - len(shape)) + tuple(shape), [], 1
    for dim, wanted in zip(full[::-1], out[::-1], strict=True):
        if dim not in (1, wanted):
            return None
        steps.append(0 if dim == 1 else step)
        step *= dim
    return tuple(steps[::-1])


def _placed(steps: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    """Distances of images, channels and spatial axes, from those of the axes in order."""
    if channels_last:
        return (steps[0], steps[-1], *extended(steps[1:-1], 0))
    return (steps[0], steps[1], *extended(steps[2:], 0))
