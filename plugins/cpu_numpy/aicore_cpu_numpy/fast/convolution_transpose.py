"""Transposed convolution on BLAS: one matrix product, then each kernel offset's share is added where it belongs."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import ConvTranspose
from aicore.ops.window import numbers
from aicore_cpu_numpy.fast._taps import Geometry, taps
from aicore_cpu_numpy.fast.convolution import CALL, DTYPES, GEMM_RATE, POINTWISE_RATE, Problem, Shape

Array = np.ndarray[Any, Any]

SHARES_BYTES = 4 << 20
"""Workspace for the shares of a block of input rows, if one row's fit."""


@lru_cache(maxsize=4096)
def problem(op: ConvTranspose, x: Shape, w: Shape, itemsize: int) -> Problem:
    """As a convolution from output to input: its window moves over the output, with an input element at each place.

    `channels` are input channels and `maps` output channels of one group.
    """
    op = op.settled(w[2:], len(x) - 2)
    out = numbers(op.output_dims(x[2:], w[2:]))
    begins = op.padding(x[2:], w[2:])[: len(out)]
    geometry = Geometry(out, x[2:], w[2:], op.strides, op.dilations, begins)
    return Problem(geometry, x[0], op.group, w[0] // op.group, w[1], itemsize)


def _problem_of(op: ConvTranspose, x: TensorType, w: TensorType) -> Problem:
    return problem(op, x.static_shape, w.static_shape, numpy_dtype(x.dtype).itemsize)


def _supports(op: ConvTranspose, x: TensorType, w: TensorType, b: TensorType | None = None) -> str | None:
    return None if x.is_static and w.is_static else "needs shapes that are known in numbers"


def _rows(p: Problem) -> int:
    """Input rows of a block."""
    dims = p.geometry.dims
    row_bytes = max(p.group * p.maps * p.geometry.offsets * math.prod(dims[1:]) * p.itemsize, 1)
    return min(max(SHARES_BYTES // row_bytes, 1), max(dims[0], 1))


def _workspace(op: ConvTranspose, x: TensorType, w: TensorType, b: TensorType | None = None) -> int:
    p = _problem_of(op, x, w)
    return p.group * p.maps * p.geometry.offsets * _rows(p) * math.prod(p.geometry.dims[1:]) * p.itemsize


def _estimate(op: ConvTranspose, x: TensorType, w: TensorType, b: TensorType | None = None) -> float:
    p = _problem_of(op, x, w)
    shares = p.images * p.group * p.maps * p.geometry.offsets * p.geometry.positions
    return 2 * shares * p.channels / GEMM_RATE + shares / POINTWISE_RATE + p.geometry.offsets * CALL * p.images


@kernel(
    ConvTranspose,
    device="cpu",
    variant="gemm_scatter",
    dtypes=DTYPES,
    supports=_supports,
    workspace=_workspace,
    estimate=_estimate,
)
def conv_transpose_gemm_scatter(
    op: ConvTranspose, x: Array, w: Array, b: Array | None = None, *, out: Array, workspace: Array
) -> None:
    p = problem(op, x.shape, w.shape, x.itemsize)
    dims, offsets, maps = p.geometry.dims, p.geometry.offsets, p.group * p.maps
    weights = w.reshape(p.group, p.channels, p.maps * offsets).swapaxes(1, 2)
    pixels = x.reshape(p.images, p.group, p.channels, p.geometry.positions)
    row, step = math.prod(dims[1:]), _rows(p)
    out[...] = 0 if b is None else b.reshape(-1, *(1,) * len(dims))
    for image in range(p.images):
        for start in range(0, dims[0], step):
            stop = min(start + step, dims[0])
            size = p.group * p.maps * offsets * (stop - start) * row
            shares = workspace[: size * p.itemsize].view(x.dtype)
            products = shares.reshape(p.group, p.maps * offsets, (stop - start) * row)
            np.matmul(weights, pixels[image, :, :, start * row : stop * row], out=products)
            by_offset = shares.reshape(maps, offsets, stop - start, *dims[1:])
            for tap in taps(p.geometry, start, stop):
                place = out[image][tap.source]
                np.add(place, by_offset[:, tap.index][tap.target], out=place)


KERNELS: tuple[Kernel, ...] = (conv_transpose_gemm_scatter,)
