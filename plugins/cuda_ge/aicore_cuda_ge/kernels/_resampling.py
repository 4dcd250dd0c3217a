"""Where Resize reads: for each axis, the places that a result mixes and how much of each, as tables of NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicore.ops.resize import Resize, crop_extents, kept_ratio, rounded, scaled_dim

Array = np.ndarray[Any, Any]

_CROPS = "tf_crop_and_resize"


@dataclass(frozen=True)
class Sampled:
    """One axis. places: (results, taps) on the operand's axis; -1 where a result lies outside. weights: alike."""

    places: Array
    weights: Array

    def is_copy(self, length: int) -> bool:
        """Each result is the element at its own place, of an axis of this length."""
        results, taps = self.places.shape
        return (results, taps) == (length, 1) and bool((self.places[:, 0] == np.arange(results)).all())

    @property
    def used(self) -> Sampled:
        """Without taps that weigh nothing in any result, as on an axis that keeps its size."""
        columns = np.flatnonzero((self.weights != 0).any(axis=0)) if self.weights.size else np.array([0])
        return Sampled(self.places[:, columns], self.weights[:, columns])


def sampled_axes(op: Resize, shape: Sequence[int]) -> list[Sampled | None]:
    """For each axis of an operand of this shape, how it is sampled; None for one that is not resized.

    The op's sizes or scales, and a roi where it needs one, are fields.
    """
    axes = op.axes_of(len(shape))
    dims = [shape[axis] for axis in axes]
    crops = op.coordinate_transformation_mode == _CROPS
    roi = op.roi if crops and op.roi is not None else (0.0,) * len(axes) + (1.0,) * len(axes)
    sizes, scales = _sizes(op, dims, crop_extents(roi, len(axes)) if crops else (1.0,) * len(axes))
    found: list[Sampled | None] = [None] * len(shape)
    for i, axis in enumerate(axes):
        where = _coordinates(op, dims[i], sizes[i], scales[i], (roi[i], roi[len(axes) + i]))
        found[axis] = _sampled(op, where, dims[i], sizes[i], scales[i])
    return found


def _sizes(op: Resize, dims: Sequence[int], extents: Sequence[float]) -> tuple[Sequence[int], Sequence[float | None]]:
    """(sizes, scales); a scale of None stands for new / old, which then divides exactly."""
    if op.scales is not None:
        sizes = [scaled_dim(d, s, e) for d, s, e in zip(dims, op.scales, extents, strict=True)]
        return [size for size in sizes if isinstance(size, int)], [float(np.float32(s)) for s in op.scales]
    wanted = op.sizes or ()
    if op.keep_aspect_ratio_policy == "stretch":
        return wanted, [None] * len(dims)
    ratio = kept_ratio(dims, wanted, op.keep_aspect_ratio_policy)
    return rounded(ratio, dims), [float(ratio)] * len(dims)


def _coordinates(op: Resize, old: int, new: int, scale: float | None, crop: tuple[float, float]) -> Array:
    """On the operand's axis, in float64, of each result."""
    mode, i = op.coordinate_transformation_mode, np.arange(new, dtype=np.float64)
    begin, end = crop
    last = old - 1
    if mode == "align_corners":
        return i * last / (new - 1) if new > 1 else i
    if mode == _CROPS and new > 1:
        return begin * last + i * (end - begin) * last / (new - 1)
    if mode == _CROPS:
        return i + 0.5 * (begin + end) * last
    if mode == "pytorch_half_pixel" and new == 1:
        return i
    centre = 0.0 if mode == "asymmetric" else 0.5
    found = ((i + centre) * old / new if scale is None else (i + centre) / scale) - centre
    if mode == "half_pixel_symmetric" and scale is not None and old:
        found = found + old / 2 * (1 - new / (scale * old))
    return found


def _sampled(op: Resize, where: Array, old: int, new: int, scale: float | None) -> Sampled:
    if op.mode == "nearest":
        places = np.clip(_rounded(op.nearest_mode, where), 0, max(old - 1, 0)).astype(np.int64)[:, None]
        weights = np.ones(places.shape)
    else:
        places, weights = _mixture(op, where, old, new / max(old, 1) if scale is None else scale)
    if op.coordinate_transformation_mode == _CROPS:
        outside = (where < 0) | (where > old - 1)
        places = np.where(outside[:, None], -1, places)
    return Sampled(places, weights).used


def _rounded(mode: str, where: Array) -> Array:
    """In float32, as scales are, in which 1 / (1/3) is 3."""
    near, half = where.astype(np.float32), np.float32(0.5)
    ways = {
        "floor": np.floor(near),
        "ceil": np.ceil(near),
        "round_prefer_floor": np.ceil(near - half),
        "round_prefer_ceil": np.floor(near + half),
    }
    return np.asarray(ways[mode])


def _mixture(op: Resize, where: Array, old: int, scale: float) -> tuple[Array, Array]:
    """Neighbours within the filter's reach, which antialias stretches where the axis shrinks."""
    stretch = 1.0 / min(scale, 1.0) if op.antialias else 1.0
    reach = (1 if op.mode == "linear" else 2) * stretch
    first = np.floor(where - reach).astype(np.int64) + 1
    places = first[:, None] + np.arange(math.ceil(2 * reach))
    distance = np.abs(places - where[:, None]) / stretch
    weights = np.maximum(1 - distance, 0) if op.mode == "linear" else _cubic(distance, op.cubic_coeff_a)
    if op.exclude_outside:
        weights = np.where((places >= 0) & (places < old), weights, 0.0)
    if op.exclude_outside or op.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(places, 0, old - 1), weights


def _cubic(distance: Array, a: float) -> Array:
    """Keys' kernel of interpolation (1981) with coefficient a: two polynomials, 0 from a distance of 2 on."""
    near = 1 - (a + 3) * distance**2 + (a + 2) * distance**3
    far = a * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
