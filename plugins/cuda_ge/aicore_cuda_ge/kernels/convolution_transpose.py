"""Transposed convolutions, which the gradient of a convolution's images is, by the tiled kernels of convolutions.

A transposed convolution with stride 1 is a convolution with its taps turned around, and with what the padding lacks of
the kernel's reach as padding. With a larger stride the pixels of the result fall into classes by their place modulo the
stride: each class meets its own taps only, so that it is a convolution of stride 1 whose results lie apart. A launch
for each class, then, and no product with zeros between pixels.

implicit: channels in fours. unaligned: other channels. Images with their channels first are turned over before, and
results behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import ConvTranspose
from aicore.ops.layout import ChannelsLast
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels import _conv_tiles as tiles
from aicore_cuda_ge.kernels._activations import IDENTITY
from aicore_cuda_ge.kernels._conv_launch import SIDE_BY_SIDE, AxisTaps, Scattered, implicit_params, pack_params
from aicore_cuda_ge.kernels._conv_problem import Problem, problem_of, reason_against
from aicore_cuda_ge.kernels._conv_tiles import Tile
from aicore_cuda_ge.kernels._memory_bound import run_from_plan
from aicore_cuda_ge.kernels._packing import aligned, pack_seconds

Types = Sequence["TensorType | None"]
_FLOAT32 = frozenset({"float32"})
_MOST_TAPS = 15
_LARGEST = 2**31 - 1
_MOST_COLUMN_TILES = 65535
_MOST_CLASSES = 16


@dataclass(frozen=True)
class Part:
    """The results of one class: a convolution of stride 1, the taps that it takes, and where its results lie."""

    problem: Problem
    taps: tuple[AxisTaps, AxisTaps]
    scattered: Scattered


@dataclass(frozen=True)
class _Axis:
    """A class along one axis: its results, `out` of them from `place` on, and their window."""

    place: int
    out: int
    taps: AxisTaps
    begin: int


def _classes(size: int, kernel: int, stride: int, dilation: int, begin: int) -> Iterator[_Axis]:
    """size: of the result. A result at o meets tap k at (o + begin - k * dilation) / stride, if that is whole."""
    for place in range(min(stride, size)):
        first = (place + begin) % stride
        count = max(0, -(-(kernel - first) // stride))
        last = first + (count - 1) * stride  # the tap that comes first when they are turned around
        behind = (place + begin - first) // stride
        out = -(-(size - place) // stride)
        yield _Axis(place, out, AxisTaps(kernel, count, last, -stride), (count - 1) * dilation - behind)


@lru_cache(maxsize=4096)
def parts_of(problem: Problem) -> tuple[Part, ...]:
    """The classes that meet a tap; results of others are zero."""
    window = problem.window
    numbers = zip(window.out, window.kernel, window.stride, window.dilation, window.begin, strict=True)
    _, lines, pixels = (tuple(_classes(*axis)) for axis in numbers)
    _, stride, step = window.stride
    found = []
    for line, pixel in product(lines, pixels):
        if line.taps.count == 0 or pixel.taps.count == 0:
            continue
        inner = replace(
            window,
            out=(1, line.out, pixel.out),
            kernel=(1, line.taps.count, pixel.taps.count),
            stride=(1, 1, 1),
            begin=(0, line.begin, pixel.begin),
        )
        outputs, width = problem.outputs, window.out[2]
        first, image = (line.place * width + pixel.place) * outputs, math.prod(window.out) * outputs
        apart = (first, image, stride * width * outputs, step * outputs)
        scattered = SIDE_BY_SIDE if stride == step == 1 else apart
        found.append(Part(replace(problem, window=inner, channels_last=True), (line.taps, pixel.taps), scattered))
    return tuple(found)


def _fills(problem: Problem) -> bool:
    """Whether some results meet no tap."""
    return sum(part.problem.rows for part in parts_of(problem)) < problem.rows


def supports(is_aligned: bool, op: Op, *types: TensorType | None) -> str | None:
    if reason := reason_against(op, *types):
        return reason
    problem = problem_of(op, *types)
    window = problem.window
    if (window.size[0], window.out[0], window.kernel[0]) != (1, 1, 1):
        return "takes images of at most two spatial axes"
    if min(problem.channels, problem.maps, problem.rows, *window.size, *window.kernel) < 1:
        return "takes sizes of at least 1"
    if any(s > 1 and d > 1 for s, d in zip(window.stride, window.dilation, strict=True)):
        return "takes strides or dilations along an axis"
    if math.prod(window.stride) > _MOST_CLASSES:
        return f"takes strides of at most {_MOST_CLASSES} pixels"
    if is_aligned != (problem.channels % 4 == 0):
        return f"takes channels of a group in {'fours' if is_aligned else 'other numbers than fours'}"
    if max(window.kernel) > _MOST_TAPS:
        return f"takes at most {_MOST_TAPS} taps along an axis"
    least = min(tile.columns for tile in tiles.ALIGNED.values())
    if problem.groups * -(-problem.maps // least) > _MOST_COLUMN_TILES:
        return f"takes at most {_MOST_COLUMN_TILES} tiles of maps"
    if problem.bias_at >= 0 and _fills(problem):
        return "adds a bias where each result meets a tap"
    reach = sum(k * d for k, d in zip(window.kernel, window.dilation, strict=True)) + sum(map(abs, window.begin))
    margin = reach * (window.size[2] + reach) * problem.groups * problem.channels
    elements = problem.images * max(math.prod(window.size) * problem.groups * problem.channels, 1)
    too_large = max(elements + margin, 2 * problem.rows * problem.outputs) > _LARGEST
    return "takes images of fewer than 2**30 elements" if too_large else None


@dataclass(frozen=True)
class _Room:
    """Where things begin in the workspace, in bytes: results to turn over, packed weights, images turned over."""

    packed: tuple[int, ...]
    x: int
    total: int

    @classmethod
    def of(cls, problem: Problem, is_turned: bool) -> _Room:
        at, starts = aligned(4 * problem.rows * problem.outputs) if is_turned else 0, []
        for part in parts_of(problem):
            starts.append(at)
            at += aligned(tiles.packed_bytes(part.problem))
        images = problem.images * math.prod(problem.window.size) * problem.groups * problem.channels
        return cls(tuple(starts), at, at + (4 * images if is_turned else 0))


def bind(
    choices: dict[str, Tile], op: Op, types: Types, constants: Sequence[Any], tile: str, split: int
) -> tuple[Call, ...]:
    """Weights are packed for each class, then a launch for each; images with channels first are turned over."""
    problem, chosen = problem_of(op, *types), choices[tile]
    is_turned, out, at = not problem.channels_last, problem.out_at, problem.out_at + 1
    room = _Room.of(problem, is_turned)
    y = at if is_turned else out
    pointers = [at if is_turned and i in (0, out) else i for i in range(at + 1)]
    calls: list[Call] = []
    if is_turned:
        channels, pixels = problem.groups * problem.channels, math.prod(problem.window.size)
        calls.append(compiled("conv_turn", (problem.images, channels, pixels, 0, 0, at, room.x, *_NOTHING)))
    if _fills(problem):
        calls.append(compiled("fill", (4 * problem.rows * problem.outputs, 0), pick=(y,)))
    parts = tuple(zip(parts_of(problem), room.packed, strict=True))
    for part, packed in parts:
        calls.append(compiled("conv_pack", pack_params(part.problem, part.taps, at, packed, transposed=True)))
    for part, packed in parts:
        places: Any = {"w_at": at, "w_byte": packed, "x_byte": room.x if is_turned else 0}
        numbers = implicit_params(part.problem, chosen, split, **places, scattered=part.scattered)
        calls.append(compiled(chosen.kernel, numbers, pick=tuple(pointers)))
    if is_turned:
        back = (problem.images, problem.window.positions, problem.outputs, at, 0, out, 0, *_NOTHING)
        calls.append(compiled("conv_turn", back))
    return tuple(calls)


_NOTHING = (-1, -1, -1, *IDENTITY)
"""Neither bias nor residual, flag or activation of a turn."""


def workspace(op: Op, *types: TensorType | None, **settings: Any) -> int:
    """Bytes of what _Room has."""
    problem = problem_of(op, *types)
    return _Room.of(problem, not problem.channels_last).total


def estimate(choices: dict[str, Tile], op: Op, *types: TensorType | None, tile: str = "", split: int = 1) -> float:
    """The launches of all classes, packing, and turning images over where that is needed."""
    problem, chosen = problem_of(op, *types), choices[tile or next(iter(choices))]
    total = 0.0
    for part in parts_of(problem):
        packed = tiles.packed_bytes(part.problem)
        total += tiles.seconds(part.problem, chosen, split) + pack_seconds(packed)
    if problem.channels_last:
        return total
    images = problem.images * math.prod(problem.window.size) * problem.groups * problem.channels
    return total + pack_seconds(4 * images) + pack_seconds(4 * problem.rows * problem.outputs)


def _made(op: type[Op], wraps: type[Op] | None, is_aligned: bool) -> Kernel:
    choices = tiles.ALIGNED if is_aligned else tiles.UNALIGNED
    made = kernel(
        op,
        device="cuda",
        variant="implicit" if is_aligned else "unaligned",
        dtypes=_FLOAT32,
        supports=partial(supports, is_aligned),
        workspace=workspace,
        estimate=partial(estimate, choices),
        tune={"tile": tuple(choices), "split": tiles.SPLITS},
        bind=partial(bind, choices),
        wraps=wraps,
    )
    return made(run_from_plan)


KERNELS: tuple[Kernel, ...] = tuple(
    _made(op, wraps, is_aligned)
    for op, wraps in ((ConvTranspose, None), (ChannelsLast, ConvTranspose))
    for is_aligned in (True, False)
)
