"""Moving whole elements straight into the planned output: one strided copy each, no temporaries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.base import normalize_axis
from aicore.ops.creation import ConstantOfShape
from aicore.ops.movement import Concat, Expand, Split, Tile, Transpose
from aicore.ops.rearrange import DepthToSpace, SpaceToDepth
from aicore.ops.shape import Flatten, Identity, Reshape, Squeeze, Unsqueeze
from aicore_cpu_numpy.fast._copies import copying, transposing
from aicore_cpu_numpy.fast._parallel import Call, Placing
from aicore_cpu_numpy.fast._sized import DENSE, sized

Array = np.ndarray[Any, Any]


def transpose_into(op: Transpose, x: Array, *, out: Array) -> Call:
    return transposing(x, tuple(reversed(range(x.ndim))) if op.perm is None else op.perm, out)


def expand_into(op: Expand, x: Array, shape: Array | None = None, *, out: Array) -> None:
    np.copyto(out, x)


def tile_into(op: Tile, x: Array, repeats: Array | None = None, *, out: Array) -> None:
    times = [new // old if old else 0 for new, old in zip(out.shape, x.shape, strict=True)]
    if out.size:
        woven = [n for pair in zip(times, x.shape, strict=True) for n in pair]
        spread = [n for dim in x.shape for n in (1, dim)]
        np.copyto(out.reshape(woven), x.reshape(spread))


def concat_into(op: Concat, *xs: Array, out: Array) -> Call:
    return copying(_pairs(out, xs, op.axis))


def split_into(op: Split, x: Array, split: Array | None = None, *, out: Any) -> Call:
    pieces: Sequence[Array] = out if isinstance(out, tuple) else (out,)
    return copying([(piece, part) for part, piece in _pairs(x, pieces, op.axis)])


def _pairs(whole: Array, pieces: Sequence[Array], axis: int) -> list[tuple[Array, Array]]:
    """(part of the whole, piece) of the same shape for pieces that lie one after another along an axis.

    They are matrices with a row for each place before the axis, unless rows lie apart, so that axes may not merge.
    """
    axis = normalize_axis(axis, whole.ndim)
    before, inner = whole.shape[:axis], math.prod(whole.shape[axis + 1 :])
    ends = list(itertools.accumulate(piece.shape[axis] for piece in pieces))
    spans = zip([0, *ends], ends, strict=False)
    if not all(array.flags.c_contiguous for array in (whole, *pieces)):
        cuts = [(*(slice(None),) * axis, slice(*span)) for span in spans]
        return [(whole[cut], piece) for cut, piece in zip(cuts, pieces, strict=True)]
    rows = math.prod(before)
    matrix = whole.reshape(rows, ends[-1] * inner)
    parts = [matrix[:, start * inner : stop * inner] for start, stop in spans]
    return [(part, piece.reshape(part.shape)) for part, piece in zip(parts, pieces, strict=True)]


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


def _placed(op: type[Op], place: Callable[..., Call]) -> Kernel:
    """The kernel whose call for certain arrays `place(op, *arrays, out=)` gives."""

    def bind(op: Op, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Placing:
        return Placing(partial(place, op))

    def run(op: Op, *arrays: Array | None, out: Any) -> None:
        place(op, *arrays, out=out)()

    return kernel(op, device="cpu", variant="strided", dtypes=DENSE, supports=sized, bind=bind, pitched=True)(run)


def _no_strings(op: ConstantOfShape, *types: TensorType | None) -> str | None:
    return sized(op, *types) if op.dtype in DENSE else "does not fill with strings"


KERNELS: tuple[Kernel, ...] = (
    _placed(Transpose, transpose_into),
    _strided(Expand, expand_into),
    _strided(Tile, tile_into),
    _placed(Concat, concat_into),
    _placed(Split, split_into),
    _strided(DepthToSpace, depth_to_space_into),
    _strided(SpaceToDepth, space_to_depth_into),
    *(_strided(op, relabel_into) for op in (Identity, Reshape, Flatten, Squeeze, Unsqueeze)),
    kernel(ConstantOfShape, device="cpu", variant="fill", supports=_no_strings)(fill_into),
)
