"""3x3 convolutions of channels-last images by Winograd's minimal filtering, with what follows done on each strip.

winograd4: F(4 x 4, 3 x 3), for wide layers of many positions. winograd2: F(2 x 2, 3 x 3), where there are few.

Each worker transforms strips of tiles that stay in the cache, multiplies a block of them with the transformed weights,
and transforms the products of each strip back, with bias, residual and activation.

Numerics: rounding errors are relative to the largest numbers of a tile. Measured on normal, rectified and heavy-tailed
images and normal weights, 1 to 512 channels, against float64: at most 4e-6 (F4) and 7e-7 (F2) of the largest output,
where a plain sum has 7e-7; or 21 and 4 roundings of the largest sum of absolute products. A sum of 9 C products may
have 18 C of its own, element by element; from 16 channels on (292) there is room for the differences within a tile, for
which fewer channels leave none. They would not be faster either.

An input that is infinite or no number at all would spread over its tile; strips with such results are computed again
as plain sums, so such numbers go where they go in every other kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct
from aicore.ops.layout import ChannelsLast
from aicore.records import dataclass
from aicore.runtime import thread_count
from aicore_cpu_numpy.fast._last_epilogue import Array, Bias, Call, reason_against
from aicore_cpu_numpy.fast._last_problem import Arrays, Problem
from aicore_cpu_numpy.fast._parallel import run_all, side_by_side
from aicore_cpu_numpy.fast._rows import carve, carved_bytes
from aicore_cpu_numpy.fast._winograd_calls import ShareCalls
from aicore_cpu_numpy.fast._winograd_cost import seconds
from aicore_cpu_numpy.fast._winograd_forms import FORM_2, FORM_4, KERNEL, Form, transform_weights
from aicore_cpu_numpy.fast._winograd_tiles import Block, Grid, Room, Share, Split
from aicore_cpu_numpy.fast.last_convolution import problem_of

LEAST_CHANNELS = 16
TUNE = {"tiles": (256, 128, 512), "split": (Split.ROWS.value, Split.MAPS.value)}
"""Tiles that are multiplied at a time, and what the workers share out."""

_FLOAT32 = np.dtype(np.float32)
Types = Sequence[TensorType | None]


@dataclass(frozen=True, eq=False)
class Bound:
    """A convolution of known shapes with its constants packed; threads may share it.

    transformed: the weights, if they are constant; else each run transforms them, in memory of the call's own.
    """

    grid: Grid
    transformed: Array | None
    bias: Bias | None

    def __call__(self, *operands: Array | None, out: Array, workspace: Array) -> None:
        self.place(*operands, out=out, workspace=workspace)()

    def place(self, *operands: Array | None, out: Array, workspace: Array) -> Call:
        """The call for these arrays, with the views of all strips made."""
        x, w, *rest = operands
        assert x is not None  # infer() refused the op otherwise
        assert w is not None
        adds = self.grid.problem.residual
        loose = rest[adds] if len(rest) > adds else None
        bias = self.bias if self.bias is not None or loose is None else Bias(loose)
        arrays = Arrays(x, out, bias, rest[0] if adds else None, packed=True)
        if self.transformed is not None:
            return self._placed(arrays, w, self.transformed, workspace)

        room = np.empty((self.grid.form.products, self.grid.problem.channels, self.grid.problem.maps), _FLOAT32)
        transform = partial(transform_weights, self.grid.form, w, room)
        return partial(run_all, (transform, self._placed(arrays, w, room, workspace)))

    def _placed(self, arrays: Arrays, w: Array, transformed: Array, workspace: Array) -> Call:
        pitched = not arrays.out.flags.c_contiguous
        grid = replace(self.grid, problem=replace(self.grid.problem, pitched=pitched))
        parts = _parts(grid)
        memory = carve(workspace, _FLOAT32, *((size,) for _, _, room in parts for size in room.sizes))
        tasks = []
        for share, blocks, room in parts:
            own, memory = memory[: len(room.sizes)], memory[len(room.sizes) :]
            maker = ShareCalls(grid, share, arrays, w, transformed, own)
            tasks.append([call for block in blocks for call in maker.of(block)])
        return side_by_side(tasks)


@lru_cache(maxsize=1024)
def _parts(grid: Grid) -> tuple[tuple[Share, list[Block], Room], ...]:
    """What each worker does, and the memory that it needs."""
    found = []
    for share in grid.shares():
        blocks = grid.blocks(share)
        found.append((share, blocks, Room.of(grid, share, blocks)))
    return tuple(found)


@lru_cache(maxsize=4096)
def _grid_of(form: Form, workers: int, tiles: int, split: str, op: ChannelsLast, *types: TensorType | None) -> Grid:
    return Grid(problem_of(op, workers, *types), form, tiles, Split(split))


def _reason_against(p: Problem) -> str | None:
    g = p.geometry
    if g.kernel != (KERNEL, KERNEL) or set(g.strides + g.dilations) != {1} or p.group != 1:
        return "needs a 3x3 kernel without stride, dilation or groups"
    if p.channels < LEAST_CHANNELS:
        return f"needs {LEAST_CHANNELS} channels, or rounding shows: {p.channels}"
    return None if p.activation is None else reason_against(p.activation)


def _residual_reason(p: Problem, residual: TensorType | None) -> str | None:
    wanted = (p.images, *p.geometry.dims, p.maps)
    if residual is not None and residual.shape == wanted:
        return None
    return f"adds a residual of the output's shape only: {residual} to {wanted}"


def _supports(op: ChannelsLast, *types: TensorType | None) -> str | None:
    x, w = types[:2]
    if x is None or w is None or not (x.is_static and w.is_static):
        return "needs shapes that are known in numbers"
    p = problem_of(op, 1, *types)
    return _reason_against(p) or (_residual_reason(p, types[2]) if p.residual else None)


def _make(wraps: type[Op], form: Form) -> Kernel:
    def grid_of(op: ChannelsLast, types: Types, tiles: int, split: str) -> Grid:
        return _grid_of(form, thread_count(), tiles, split, op, *types)

    def workspace(op: ChannelsLast, *types: TensorType | None, pitched: bool = False, **settings: Any) -> int:
        parts = _parts(grid_of(op, types, **settings))
        return carved_bytes(*(size * _FLOAT32.itemsize for _, _, room in parts for size in room.sizes))

    @lru_cache(maxsize=4096)
    def cached(grid: Grid) -> float:
        return seconds(grid)

    def estimate(op: ChannelsLast, *types: TensorType | None, **settings: Any) -> float:
        return cached(grid_of(op, types, **settings))

    def bind(op: ChannelsLast, types: Types, constants: Sequence[Array | None], **settings: Any) -> Callable[..., None]:
        grid = grid_of(op, types, **settings)
        w, *rest = constants[1:]
        bias = rest[grid.problem.residual] if len(rest) > grid.problem.residual else None
        transformed = None if w is None else transform_weights(form, w)
        return Bound(grid, transformed, None if bias is None else Bias.constant(bias))

    @kernel(
        ChannelsLast,
        wraps=wraps,
        device="cpu",
        variant=f"winograd{form.outputs}",
        dtypes={"float32"},
        supports=_supports,
        workspace=workspace,
        estimate=estimate,
        bind=bind,
        pitched=True,
        tune=TUNE,
    )
    def convolve(op: ChannelsLast, *operands: Array | None, out: Array, workspace: Array, **settings: Any) -> None:
        types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
        bind(op, types, [None] * len(types), **settings)(*operands, out=out, workspace=workspace)

    return convolve


KERNELS: tuple[Kernel, ...] = tuple(
    _make(wraps, form) for wraps in (Conv, ConvAct, ConvAdd, ConvAddAct) for form in (FORM_4, FORM_2)
)
