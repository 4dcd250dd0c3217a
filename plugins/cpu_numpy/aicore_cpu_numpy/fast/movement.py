"""Moving whole elements straight into the planned output: one strided copy each, no temporaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.base import normalize_axis
from aicore.ops.creation import ConstantOfShape
from aicore.ops.movement import Concat, Expand, Split, Tile, Transpose
from aicore.ops.rearrange import DepthToSpace, SpaceToDepth
from aicore.ops.shape import Flatten, Identity, Reshape, Squeeze, Unsqueeze
from aicore_cpu_numpy.fast._sized import DENSE, sized

Array = np.ndarray[Any, Any]


def transpose_into(op: Transpose, x: Array, *, out: Array) -> None:
    np.copyto(out, x.transpose(op.perm))


def expand_into(op: Expand, x: Array, shape: Array | None = None, *, out: Array) -> None:
    np.copyto(out, x)


def tile_into(op: Tile, x: Array, repeats: Array | None = None, *, out: Array) -> None:
    times = [new // old if old else 0 for new, old in zip(out.shape, x.shape, strict=True)]
    if out.size:
        woven = [n for pair in zip(times, x.shape, strict=True) for n in pair]
        spread = [n for dim in x.shape for n in (1, dim)]
        np.copyto(out.reshape(woven), x.reshape(spread))


def concat_into(op: Concat, *xs: Array, out: Array) -> None:
    np.concatenate(xs, op.axis, out=out)


def split_into(op: Split, x: Array, split: Array | None = None, *, out: Any) -> None:
    pieces: Sequence[Array] = out if isinstance(out, tuple) else (out,)
    axis, start = normalize_axis(op.axis, x.ndim), 0
    for piece in pieces:
        end = start + piece.shape[axis]
        np.copyto(piece, x[(slice(None),) * axis + (slice(start, end),)])
        start = end


def relabel_into(op: Op, x: Array, *operands: Array | None, out: Array) -> None:
    np.copyto(out, x.reshape(out.shape))


def fill_into(op: ConstantOfShape, shape: Array | None = None, *, out: Array) -> None:
    out.fill(0 if op.value is None else op.value.array.reshape(-1)[0])


def depth_to_space_into(op: DepthToSpace, x: Array, *, out: Array) -> None:
    n, depth, _, _ = out.shape
    h, w = x.shape[2:]
    b = op.blocksize
    order = (0, 3, 4, 1, 5, 2) if op.mode == "DCR" else (0, 1, 4, 2, 5, 3)
    blocks = x.reshape((n, b, b, depth, h, w) if op.mode == "DCR" else (n, depth, b, b, h, w))
    np.copyto(out.reshape(n, depth, h, b, w, b), blocks.transpose(order))


def space_to_depth_into(op: SpaceToDepth, x: Array, *, out: Array) -> None:
    n, c, _, _ = x.shape
    h, w = out.shape[2:]
    b = op.blocksize
    order = (0, 3, 5, 1, 2, 4) if op.mode == "DCR" else (0, 1, 3, 5, 2, 4)
    blocks = x.reshape(n, c, h, b, w, b).transpose(order)
    np.copyto(out.reshape(blocks.shape), blocks)


def _strided(op: type[Op], function: Any) -> Kernel:
    return kernel(op, device="cpu", variant="strided", dtypes=DENSE, supports=sized)(function)


def _no_strings(op: ConstantOfShape, *types: TensorType | None) -> str | None:
    return sized(op, *types) if op.dtype in DENSE else "does not fill with strings"


KERNELS: tuple[Kernel, ...] = (
    _strided(Transpose, transpose_into),
    _strided(Expand, expand_into),
    _strided(Tile, tile_into),
    _strided(Concat, concat_into),
    _strided(Split, split_into),
    _strided(DepthToSpace, depth_to_space_into),
    _strided(SpaceToDepth, space_to_depth_into),
    *(_strided(op, relabel_into) for op in (Identity, Reshape, Flatten, Squeeze, Unsqueeze)),
    kernel(ConstantOfShape, device="cpu", variant="fill", supports=_no_strings)(fill_into),
)
