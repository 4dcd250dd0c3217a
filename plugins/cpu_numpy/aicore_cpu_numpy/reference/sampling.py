"""Reading a tensor at places that another tensor gives."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.sampling import AffineGrid, GridSample, RoiAlign
from aicore.runtime import check_room
from aicore_cpu_numpy.reference._indices import counted_from_front, numbers_of
from aicore_cpu_numpy.reference._precision import widen

Array = np.ndarray[Any, Any]

CUBIC = -0.75
"""The coefficient of Keys' kernel that GridSample uses."""
_ROI_ARRAYS = 6
"""Arrays of one number for each sample that RoiAlign holds at once: a region's size is data, and may be anything."""


@kernel(GridSample, device="cpu")
def grid_sample(op: GridSample, x: Array, grid: Array) -> Array:
    wide, places = widen(x), widen(grid).astype(np.float64)
    finite: Array = np.logical_and.reduce(np.isfinite(places), axis=-1)
    places = np.where(finite[..., None], places, 0.0)
    rank = x.ndim - 2
    axes = [_grid_taps(op, places[..., rank - 1 - i], x.shape[2 + i]) for i in range(rank)]
    batch = np.arange(x.shape[0]).reshape(-1, *(1,) * rank)
    y = np.zeros((*finite.shape, x.shape[1]), wide.dtype)
    for choice in itertools.product(*axes):  # one tap of each axis
        weight = math.prod(w for _, w in choice)
        place: tuple[Any, ...] = (batch, slice(None), *(index for index, _ in choice))
        y += wide[place] * np.asarray(weight, wide.dtype)[..., None]
    if not finite.all() and wide.dtype.kind == "f":
        y[~finite] = np.nan
    return np.moveaxis(y, -1, 1).astype(x.dtype)


@kernel(AffineGrid, device="cpu")
def affine_grid(op: AffineGrid, theta: Array, size: Array | None = None) -> Array:
    dims = numbers_of(op.size, size)[2:]
    steps = [_centres(n, bool(op.align_corners)) for n in dims]
    mesh = np.meshgrid(*steps, indexing="ij")
    homogeneous = np.stack([*reversed(mesh), np.ones(dims)], axis=-1).reshape(-1, len(dims) + 1)
    wide = widen(theta)
    y = homogeneous.astype(wide.dtype) @ wide.swapaxes(1, 2)
    return y.reshape(theta.shape[0], *dims, len(dims)).astype(theta.dtype)


@kernel(RoiAlign, device="cpu")
def roi_align(op: RoiAlign, x: Array, rois: Array, batch_indices: Array) -> Array:
    images = counted_from_front(batch_indices, x.shape[0], 0, "batch_indices")
    wide = widen(x)
    y = np.zeros((len(rois), x.shape[1], op.output_height, op.output_width), wide.dtype)
    for i, (region, image) in enumerate(zip(widen(rois).tolist(), images.tolist(), strict=True)):
        y[i] = _pooled(op, wide[image], region)
    return y.astype(x.dtype)


def _grid_taps(op: GridSample, places: Array, dim: int) -> list[tuple[Array, Array]]:
    """(index, weight) arrays, one for each element that a place mixes along one axis."""
    x = (places + 1) / 2 * (dim - 1) if op.align_corners else ((places + 1) * dim - 1) / 2
    if op.mode == "nearest":
        found = [(np.rint(x), np.ones_like(x))]
    elif op.mode == "linear":
        low = np.floor(x)
        found = [(low + i, 1 - np.abs(x - low - i)) for i in range(2)]
    else:
        low = np.floor(x) - 1
        found = [(low + i, _keys(np.abs(x - low - i))) for i in range(4)]
    return [_inside(op, index, weight, dim) for index, weight in found]


def _inside(op: GridSample, index: Array, weight: Array, dim: int) -> tuple[Array, Array]:
    if op.padding_mode == "zeros":
        weight = np.where((index < 0) | (index > dim - 1), 0.0, weight)
    elif op.padding_mode == "reflection":
        index = _reflected(index, dim, bool(op.align_corners))
    return np.clip(index, 0, dim - 1).astype(np.int64), weight


def _reflected(index: Array, dim: int, around_centres: bool) -> Array:
    """Mirrored until it is inside: a triangle wave of the period 2 (dim - 1) between centres, 2 dim between edges."""
    low, period = (0.0, 2.0 * (dim - 1)) if around_centres else (-0.5, 2.0 * dim)
    if period == 0:
        return np.zeros_like(index)
    phase = np.mod(index - low, period)
    return np.minimum(phase, period - phase) + low


def _keys(distance: Array) -> Array:
    near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance * distance + 1
    far = ((CUBIC * distance - 5 * CUBIC) * distance + 8 * CUBIC) * distance - 4 * CUBIC
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _centres(count: int, align_corners: bool) -> Array:
    """The elements' places along an axis that spans -1 to 1; a single one lies in the middle."""
    if align_corners and count > 1:
        return np.linspace(-1, 1, count)
    return np.linspace(-1, 1, 2 * count + 1)[1::2]  # every other edge of 2 * count half elements


def _pooled(op: RoiAlign, image: Array, region: list[float]) -> Array:
    height, width = op.output_height, op.output_width
    ys, rows = _roi_places(op, region[1], region[3], height)
    xs, columns = _roi_places(op, region[0], region[2], width)
    check_room(8 * _ROI_ARRAYS * image.shape[0] * len(ys) * len(xs), f"{len(ys)} by {len(xs)} samples of a region")
    y_taps, x_taps = _roi_taps(ys, image.shape[1]), _roi_taps(xs, image.shape[2])
    terms = [
        image[:, y[:, None], x] * (wy[:, None] * wx).astype(image.dtype)
        for (y, wy), (x, wx) in itertools.product(y_taps, x_taps)
    ]
    if not rows or not columns:
        return np.zeros((image.shape[0], height, width), image.dtype)
    samples: Array = (np.maximum if op.mode == "max" else np.add).reduce(terms)
    bins = samples.reshape(image.shape[0], height, rows, width, columns)
    pooled: Array = bins.max(axis=(2, 4)) if op.mode == "max" else bins.mean(axis=(2, 4))
    return pooled


def _roi_places(op: RoiAlign, begin: float, end: float, count: int) -> tuple[Array, int]:
    """(sampled coordinates of all bins along one axis, samples per bin)."""
    shift = 0.5 if op.coordinate_transformation_mode == "half_pixel" else 0.0
    start = begin * op.spatial_scale - shift
    extent = end * op.spatial_scale - shift - start
    if not shift:
        extent = max(extent, 1.0)
    samples = op.sampling_ratio or max(math.ceil(extent / count), 0)
    check_room(
        8 * _ROI_ARRAYS * count * samples, f"a region of {extent:g} elements, with {samples} samples for each bin,"
    )
    steps = np.arange(count)[:, None] + (np.arange(samples) + 0.5) / max(samples, 1)
    return start + steps.reshape(-1) * extent / count, samples


def _roi_taps(places: Array, dim: int) -> list[tuple[Array, Array]]:
    """Bilinear (index, weight) pairs; up to one element outside, the border counts, and beyond that nothing."""
    inside = (places >= -1) & (places <= dim)
    x = np.clip(places, 0, dim - 1)
    low = np.floor(x).astype(np.int64)
    high = np.minimum(low + 1, dim - 1)
    part = x - low
    return [(low, np.where(inside, 1 - part, 0.0)), (high, np.where(inside, part, 0.0))]


KERNELS: tuple[Kernel, ...] = (grid_sample, affine_grid, roi_align)
