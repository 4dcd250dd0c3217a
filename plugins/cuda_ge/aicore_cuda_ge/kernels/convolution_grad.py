"""The gradient of a convolution's weights by the kernels of graph_executor/cnn/weight_gradient.cu.

tiled: a matrix product over the pixels of all images, in float32; images with their channels first are turned over
before. direct: a block for each weight, for everything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import Conv
from aicore.ops.convolution_grad import ConvWeightGrad
from aicore.ops.layout import ChannelsLast
from aicore_cuda_ge.calls import Call, Compiled, compiled
from aicore_cuda_ge.kernels import _weight_gradient_tiles as tiles
from aicore_cuda_ge.kernels._activations import IDENTITY
from aicore_cuda_ge.kernels._conv_problem import Problem, problem_of, reason_against
from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND
from aicore_cuda_ge.kernels._memory_bound import FLOATS, run_from_plan
from aicore_cuda_ge.kernels._packing import aligned, pack_seconds
from aicore_cuda_ge.kernels._weight_gradient_tiles import Tile

Types = Sequence["TensorType | None"]
_FLOAT32 = frozenset({"float32"})
_LARGEST = 2**31 - 1
_LARGEST_REACH = 2**15 - 1
"""Of a tap from the first one along an axis: both are halves of a word."""
_DIRECT_PRODUCTS = 4e11
"""Products each second of the direct kernel."""
_NOTHING = (-1, -1, -1, *IDENTITY)
"""Neither bias nor residual, flag or activation where images are turned over."""


def convolution_of(op: Op, x: TensorType, dy: TensorType) -> tuple[Op, TensorType, TensorType]:
    """The convolution whose weights get a gradient, with the types of its operands."""
    inner, axis = (op.inner, -1) if isinstance(op, ChannelsLast) else (op, 1)
    assert isinstance(inner, ConvWeightGrad)  # its kernels are registered for nothing else
    w = (dy.static_shape[axis], x.static_shape[axis] // inner.group, *inner.kernel_shape)
    conv = Conv(
        auto_pad=inner.auto_pad,
        dilations=inner.dilations,
        group=inner.group,
        kernel_shape=inner.kernel_shape,
        pads=inner.pads,
        strides=inner.strides,
    )
    return ChannelsLast(conv, op.rank) if isinstance(op, ChannelsLast) else conv, x, TensorType(x.dtype, w)


def gradient_of(op: Op, x: TensorType, dy: TensorType) -> Problem:
    """The convolution in numbers."""
    return problem_of(*convolution_of(op, x, dy))


def supports(op: Op, x: TensorType, dy: TensorType) -> str | None:
    if not (x.is_static and dy.is_static):
        return "takes operands of known sizes"
    return reason_against(*convolution_of(op, x, dy))


def tiled_reason(is_four: tuple[bool, bool], op: Op, x: TensorType, dy: TensorType) -> str | None:
    """is_four: whether maps, and whether channels, of a group come in fours."""
    if reason := supports(op, x, dy):
        return reason
    problem = gradient_of(op, x, dy)
    window = problem.window
    if (window.size[0], window.out[0], window.kernel[0]) != (1, 1, 1):
        return "takes images of at most two spatial axes"
    if min(problem.rows, problem.depth, problem.outputs, *window.size) < 1:
        return "takes sizes of at least 1"
    found = problem.maps % 4 == 0, problem.channels % 4 == 0
    if found != is_four and not (is_four == _NEITHER and not found[0]):
        return f"takes {_NAMES[is_four]}"
    reach = [d * k for d, k in zip(window.dilation, window.kernel, strict=True)]
    if max(reach) > _LARGEST_REACH:
        return f"takes kernels that reach over at most {_LARGEST_REACH} elements"
    elements = problem.images * max(math.prod(window.size) * problem.groups * problem.channels, 1)
    margin = (sum(reach) + sum(window.begin)) * (window.size[2] + sum(reach)) * problem.groups * problem.channels
    results = (problem.rows + 2 * tiles.STEP) * problem.outputs
    too_large = max(elements + margin, results, problem.outputs * problem.depth) > _LARGEST
    return "takes images of fewer than 2**31 elements" if too_large else None


_NEITHER = (False, False)
_NAMES = {
    (True, True): "channels and maps of a group in fours",
    (True, False): "maps of a group in fours, and channels that are not",
    _NEITHER: "maps of a group that are not in fours",
}


@dataclass(frozen=True)
class _Room:
    """Where things begin in the workspace, in bytes: images and gradients turned over, sums of the splits."""

    x: int
    dy: int
    partial: int
    total: int

    @classmethod
    def of(cls, problem: Problem, splits: int) -> _Room:
        is_turned = not problem.channels_last
        images = problem.images * math.prod(problem.window.size) * problem.groups * problem.channels
        dy = aligned(4 * images) if is_turned else 0
        sums = dy + (aligned(4 * problem.rows * problem.outputs) if is_turned else 0)
        return cls(0, dy, sums, sums + tiles.partial_bytes(problem, splits))


def workspace(choices: dict[str, Tile], op: Op, x: TensorType, dy: TensorType, tile: str, blocks: int) -> int:
    """Bytes of what _Room has."""
    problem = gradient_of(op, x, dy)
    return _Room.of(problem, tiles.splits_of(problem, choices[tile], blocks)).total


def bind_tiled(
    choices: dict[str, Tile], op: Op, types: Types, constants: Sequence[Any], tile: str, blocks: int
) -> tuple[Call, ...]:
    """The product, and the sum of what its splits leave."""
    x, dy = types
    assert x is not None  # infer() refused the op otherwise
    assert dy is not None
    problem = gradient_of(op, x, dy)
    splits = tiles.splits_of(problem, choices[tile], blocks)
    room, is_turned, dw_at, at = _Room.of(problem, splits), not problem.channels_last, 2, 3
    turns: tuple[Call, ...] = ()
    if is_turned:
        channels, pixels = problem.groups * problem.channels, math.prod(problem.window.size)
        of_results = (problem.images, problem.outputs, problem.window.positions)
        turns = (
            compiled("conv_turn", (problem.images, channels, pixels, 0, 0, at, room.x, *_NOTHING)),
            compiled("conv_turn", (*of_results, 1, 0, at, room.dy, *_NOTHING)),
        )
    places = (at, room.x, at, room.dy) if is_turned else (0, 0, 1, 0)
    last = _with_channels_last(problem)
    return (
        *turns,
        compiled("conv_weight_gradient", (*last, choices[tile].index, splits, *places, at, room.partial)),
        compiled(
            "conv_weight_gradient_sum",
            (problem.outputs, problem.channels, problem.window.taps, splits, at, room.partial, dw_at),
        ),
    )


def _with_channels_last(problem: Problem) -> tuple[int | float, ...]:
    """The struct ConvParams, of images that are turned over if need be."""
    return replace(problem, channels_last=True).params()


def estimate(choices: dict[str, Tile], op: Op, x: TensorType, dy: TensorType, tile: str = "", blocks: int = 1) -> float:
    problem = gradient_of(op, x, dy)
    found = tiles.seconds(problem, choices[tile or next(iter(choices))], blocks)
    if problem.channels_last:
        return found
    return found + pack_seconds(math.prod(x.static_shape) * 4) + pack_seconds(math.prod(dy.static_shape) * 4)


def bind_direct(op: Op, types: Types, constants: Sequence[Any]) -> Compiled:
    x, dy = types
    assert x is not None  # infer() refused the op otherwise
    assert dy is not None
    return compiled("conv_weight_gradient_direct", gradient_of(op, x, dy).params())


def direct_estimate(op: Op, x: TensorType, dy: TensorType) -> float:
    problem = gradient_of(op, x, dy)
    return 10e-6 + problem.products / _DIRECT_PRODUCTS + problem.nbytes / BYTES_EACH_SECOND


_TILED = (
    ("tiled", (True, True), tiles.ALIGNED),
    ("tiled-channels", (True, False), tiles.CHANNELS),
    ("tiled-any", _NEITHER, tiles.ANY),
)
"""Variant, whether maps and channels come in fours, tiles."""


def _tiled(op: type[Op], wraps: type[Op] | None, variant: str, is_four: Any, choices: dict[str, Tile]) -> Kernel:
    made = kernel(
        op,
        device="cuda",
        variant=variant,
        dtypes=_FLOAT32,
        supports=partial(tiled_reason, is_four),
        workspace=partial(workspace, choices),
        estimate=partial(estimate, choices),
        tune={"tile": tuple(choices), "blocks": tiles.BLOCKS},
        bind=partial(bind_tiled, choices),
        wraps=wraps,
    )
    return made(run_from_plan)


def _direct(op: type[Op], wraps: type[Op] | None) -> Kernel:
    made = kernel(
        op,
        device="cuda",
        variant="direct",
        dtypes=FLOATS,
        supports=supports,
        estimate=direct_estimate,
        bind=bind_direct,
        wraps=wraps,
    )
    return made(run_from_plan)


_WHERE: tuple[tuple[type[Op], type[Op] | None], ...] = ((ConvWeightGrad, None), (ChannelsLast, ConvWeightGrad))

KERNELS: tuple[Kernel, ...] = (
    *(_direct(op, wraps) for op, wraps in _WHERE),
    *(_tiled(op, wraps, *what) for op, wraps in _WHERE for what in _TILED),
)
