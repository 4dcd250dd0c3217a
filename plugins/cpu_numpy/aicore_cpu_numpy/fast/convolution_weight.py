"""Gradients of the weights of convolutions on BLAS: the gradient of a block times its windows, transposed.

Each worker sums up images of its own, and the workers' sums are added in their order, so that runs agree bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import Conv
from aicore.ops.convolution_grad import ConvWeightGrad
from aicore_cpu_numpy.fast._parallel import Array, Call, Placing, parts_of, run_all, side_by_side, spans
from aicore_cpu_numpy.fast._rows import carved_bytes
from aicore_cpu_numpy.fast.convolution import (
    CALL,
    DTYPES,
    GEMM_RATE,
    POINTWISE_RATE,
    Problem,
    Shape,
    blocks,
    columns_of,
    im2col_bytes,
    im2col_seconds,
    need_plain_1x1,
    problem,
)


@lru_cache(maxsize=4096)
def problem_of(op: ConvWeightGrad, x: Shape, dy: Shape, itemsize: int) -> Problem:
    """The convolution whose weight has the gradient."""
    conv = Conv(op.auto_pad, op.dilations, op.group, op.kernel_shape, op.pads, op.strides)
    return problem(conv, x, (dy[1], x[1] // op.group, *op.kernel_shape), itemsize)


def _problem(op: ConvWeightGrad, x: TensorType, dy: TensorType) -> Problem:
    return problem_of(op, x.static_shape, dy.static_shape, numpy_dtype(x.dtype).itemsize)


def _supports(op: ConvWeightGrad, x: TensorType, dy: TensorType) -> str | None:
    return None if x.is_static and dy.is_static else "needs shapes that are known in numbers"


def _seconds(p: Problem) -> float:
    """Of one thread; rates of convolutions are those of two."""
    sums = 2.0 * p.images * p.group * p.maps * p.depth / POINTWISE_RATE
    if need_plain_1x1(p) is None:
        return 2 * p.flops / GEMM_RATE + sums + 2 * CALL * p.images
    return 2 * im2col_seconds(p) + sums


def _estimate(op: ConvWeightGrad, x: TensorType, dy: TensorType) -> float:
    seconds = _seconds(_problem(op, x, dy))
    return seconds / parts_of(seconds)


def _sizes(p: Problem) -> tuple[int, int, int]:
    """Bytes of a worker's sums, of the products of a block of images, and of its windows."""
    sums = p.group * p.maps * p.depth * p.itemsize
    images = max((len(range(*block.images.indices(p.images))) for block in blocks(p)), default=0)
    return sums, images * sums, im2col_bytes(p)


def _shares(p: Problem) -> list[tuple[Problem, slice]]:
    """Each worker's problem, and its images."""
    cut = [slice(*span) for span in spans(p.images, parts_of(_seconds(p)))]
    return [(replace(p, images=one.stop - one.start), one) for one in cut]


def _workspace(op: ConvWeightGrad, x: TensorType, dy: TensorType) -> int:
    return sum(carved_bytes(*_sizes(own)) for own, _ in _shares(_problem(op, x, dy)))


def _sum_up(p: Problem, x: Array, dy: Array, sums: Array, room: Array, columns_room: Array) -> None:
    """The gradient over these images, in `sums`: (group, maps, depth)."""
    images = x.reshape(p.images, p.group, p.channels, *p.geometry.spatial)
    gradients = dy.reshape(p.images, p.group, p.maps, p.geometry.positions)
    plain, row = need_plain_1x1(p) is None, p.row
    sums.fill(0)
    for block in blocks(p):
        part = images[block.images, block.groups]
        if plain:
            positions = slice(block.start * row, block.stop * row)
            columns = part.reshape(*part.shape[:3], p.geometry.positions)[..., positions]
        else:
            columns = columns_of(p, part, block, columns_room)
        gradient = gradients[block.images, block.groups, :, block.start * row : block.stop * row]
        shape = (*gradient.shape[:3], p.depth)
        products = room[: int(np.prod(shape)) * p.itemsize].view(sums.dtype).reshape(shape)
        np.matmul(gradient, columns.swapaxes(-1, -2), out=products)
        target = sums[block.groups]
        for product in products:
            np.add(target, product, out=target)


def _bind(op: ConvWeightGrad, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Placing:
    x_type, dy_type = types
    assert x_type is not None
    assert dy_type is not None  # infer() refused the op otherwise
    p = _problem(op, x_type, dy_type)

    def place(x: Array, dy: Array, *, out: Array, workspace: Array) -> Call:
        found, tasks, start = list[Array](), list[list[Call]](), 0
        for own, images in _shares(p):
            rooms = []
            for size in _sizes(own):
                rooms.append(workspace[start : start + size])
                start += carved_bytes(size)
            found.append(rooms[0].view(x.dtype).reshape(p.group, p.maps, p.depth))
            tasks.append([partial(_sum_up, own, x[images], dy[images], found[-1], *rooms[1:])])
        return partial(run_all, (side_by_side(tasks), partial(_total, found, out.reshape(p.group, p.maps, p.depth))))

    return Placing(place)


def _total(found: Sequence[Array], out: Array) -> None:
    out.fill(0)
    for sums in found:
        np.add(out, sums, out=out)


@kernel(
    ConvWeightGrad,
    device="cpu",
    variant="im2col",
    dtypes=DTYPES,
    supports=_supports,
    workspace=_workspace,
    estimate=_estimate,
    bind=_bind,
)
def conv_weight_grad_im2col(op: ConvWeightGrad, x: Array, dy: Array, *, out: Array, workspace: Array) -> None:
    types = [TensorType(a.dtype.name, a.shape) for a in (x, dy)]
    _bind(op, types, [None, None])(x, dy, out=out, workspace=workspace)


KERNELS: tuple[Kernel, ...] = (conv_weight_grad_im2col,)
