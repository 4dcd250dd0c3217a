"""Params of the implicit kernel and of the launch that packs its weights: implicit.cuh and pack.cuh in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from aicore_cuda_ge.kernels import _conv_tiles as tiles
from aicore_cuda_ge.kernels._conv_problem import Problem
from aicore_cuda_ge.kernels._conv_tiles import Tile
from aicore_cuda_ge.kernels._windows import Window

Scattered = tuple[int, int, int, int]
"""The struct of that name: elements before the first result, between images, lines and pixels."""
SIDE_BY_SIDE: Scattered = (0, 0, 0, 0)


@dataclass(frozen=True)
class AxisTaps:
    """Which taps of a kernel of `size` taps are used along an axis: `count` of them, from `first` on, `step` apart."""

    size: int
    count: int
    first: int = 0
    step: int = 1

    @classmethod
    def all_of(cls, window: Window) -> tuple[AxisTaps, AxisTaps]:
        """Every tap of a window over two axes, in order."""
        _, lines, across = window.kernel
        return cls(lines, lines), cls(across, across)


def implicit_params(
    problem: Problem,
    tile: Tile,
    split: int,
    *,
    w_at: int,
    w_byte: int = 0,
    x_byte: int = 0,
    scattered: Scattered = SIDE_BY_SIDE,
    is_fixed: bool = False,
) -> tuple[int | float, ...]:
    """The struct ImplicitParams. w_at, w_byte: packed weights, which no kernel writes if they are fixed.

    x_byte: where images begin behind pointer 0.
    """
    depth, columns = tiles.padded_depth(problem), tiles.padded_columns(problem)
    return (*problem.params(w_at), *scattered, tile.index, split, columns, depth, int(is_fixed), x_byte, w_byte)


def pack_params(
    problem: Problem, taps: tuple[AxisTaps, AxisTaps], to_at: int, to_byte: int = 0, transposed: bool = False
) -> tuple[int, ...]:
    """The struct PackParams, of weights at pointer 1. transposed: they are (channels, maps, taps)."""
    sizes = (problem.groups, problem.maps, problem.channels, tiles.padded_depth(problem), tiles.padded_columns(problem))
    places = tuple(
        number
        for field in ("size", "count", "first", "step")
        for number in (getattr(taps[0], field), getattr(taps[1], field))
    )
    return (*sizes, int(transposed), *places, to_at, to_byte)
