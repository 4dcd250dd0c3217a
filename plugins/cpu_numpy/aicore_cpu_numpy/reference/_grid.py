"""Where Resize reads: for each position of an output axis, places on the input axis and their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicore.errors import ExecutionError, InferenceError
from aicore.ops.resize import Resize, crop_extents, kept_ratio, rounded, scaled_dim

Array = np.ndarray[Any, Any]


Resized = tuple[int, int, "float | None", tuple[float, float]]
"""(axis, new size, scale, crop) of one resized axis; see `coordinates`."""


def grid(
    op: Resize,
    shape: Sequence[int],
    roi: Sequence[float] | None,
    scales: Sequence[float] | None,
    sizes: Sequence[float] | None,
) -> list[Resized]:
    """What becomes of each resized axis. Raises ExecutionError when the numbers make no sense."""
    axes = op.axes_of(len(shape))
    dims = [shape[a] for a in axes]
    crops = op.coordinate_transformation_mode == "tf_crop_and_resize"
    try:
        extents = crop_extents(roi, len(dims)) if crops else (1.0,) * len(dims)
        news, factors = _new_sizes(op, dims, extents, scales, sizes)
    except (InferenceError, ValueError) as error:
        raise ExecutionError(str(error)) from error
    for axis, old, new in zip(axes, dims, news, strict=True):
        if new and not old:
            raise ExecutionError(f"axis {axis} has no elements to make {new} of")
    bounds = [(roi[i], roi[len(axes) + i]) if crops and roi else (0.0, 1.0) for i in range(len(axes))]
    return list(zip(axes, news, factors, bounds, strict=True))


def coordinates(op: Resize, old: int, new: int, scale: float | None, crop: tuple[float, float]) -> Array:
    """x_original of each output position, in float64.

    scale: as given, or None for new / old, which then divides exactly. crop: begin and end of the axis' roi.
    """
    x = np.arange(new, dtype=np.float64)
    mode = op.coordinate_transformation_mode
    if mode == "align_corners":
        return x * (old - 1) / (new - 1) if new > 1 else x * 0
    if mode == "tf_crop_and_resize":
        begin, end = crop
        if new == 1:
            return x + 0.5 * (begin + end) * (old - 1)
        return begin * (old - 1) + x * (end - begin) * (old - 1) / (new - 1)
    if mode == "pytorch_half_pixel" and new == 1:
        return x * 0
    shift = 0.0 if mode == "asymmetric" else 0.5
    centred: Array = (x + shift) * old / new if scale is None else (x + shift) / scale
    return centred - shift + _symmetric_offset(mode, old, new, scale)


def nearest_places(op: Resize, x: Array, old: int) -> Array:
    """The nearest place to each coordinate, which is rounded to float32 first: 1 / float32(1/3) is 3."""
    exact = x.astype(np.float32)
    if op.nearest_mode == "round_prefer_floor":
        found = np.ceil(exact - np.float32(0.5))
    elif op.nearest_mode == "round_prefer_ceil":
        found = np.floor(exact + np.float32(0.5))
    else:
        found = np.floor(exact) if op.nearest_mode == "floor" else np.ceil(exact)
    places: Array = np.clip(found, 0, old - 1).astype(np.int64)
    return places


def taps(op: Resize, x: Array, old: int, shrink: float) -> tuple[Array, Array]:
    """(places, weights), each (positions, taps): which elements a coordinate mixes in linear or cubic mode.

    shrink: scale of the axis, at most 1; with antialias, the filter is stretched by its inverse.
    Beyond the ends the first and last element repeat, or with exclude_outside weigh nothing.
    """
    squeeze = min(shrink, 1.0) if op.antialias else 1.0
    radius = (1 if op.mode == "linear" else 2) / squeeze
    first = np.floor(x - radius).astype(np.int64) + 1
    places = first[:, None] + np.arange(int(np.ceil(2 * radius)))
    distance = np.abs(places - x[:, None]) * squeeze
    weights = np.maximum(1 - distance, 0) if op.mode == "linear" else _cubic(distance, op.cubic_coeff_a)
    if op.exclude_outside:
        weights = np.where((places < 0) | (places >= old), 0.0, weights)
    if op.exclude_outside or op.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(places, 0, old - 1), weights


def outside(x: Array, old: int) -> Array:
    """Which coordinates lie outside the tensor, where tf_crop_and_resize takes the extrapolation value."""
    return (x < 0) | (x > old - 1)


def _cubic(distance: Array, a: float) -> Array:
    """Keys' convolution kernel (1981), equation 4 generalised to the coefficient a."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _symmetric_offset(mode: str, old: int, new: int, scale: float | None) -> float:
    if mode != "half_pixel_symmetric" or scale is None:
        return 0.0
    adjustment = new / (scale * old) if old else 1.0
    return old / 2 * (1 - adjustment)


def _new_sizes(
    op: Resize,
    dims: Sequence[int],
    extents: Sequence[float],
    scales: Sequence[float] | None,
    sizes: Sequence[float] | None,
) -> tuple[Sequence[int], Sequence[float | None]]:
    """(sizes, scales), where a scale of None stands for new / old."""
    if sizes is not None:
        wanted = tuple(int(n) for n in sizes)
        if op.keep_aspect_ratio_policy == "stretch":
            return wanted, [None] * len(dims)
        ratio = kept_ratio(dims, wanted, op.keep_aspect_ratio_policy)
        return rounded(ratio, dims), [float(ratio)] * len(dims)
    found = [scaled_dim(d, s, e) for d, s, e in zip(dims, scales or (), extents, strict=True)]
    return [n for n in found if isinstance(n, int)], [float(np.float32(s)) for s in scales or ()]
