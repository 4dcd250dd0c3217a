"""Resize: interpolation on a regular grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from aicore.errors import InferenceError, UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, Shape, unknown
from aicore.ir.op import Op, Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import Simple, ensure, normalize_axes, shape_text
from aicore.ops.gradients import Given, Gradients, dim_of, numbers
from aicore.ops.sizes import as_ints, need_vector, unknown_shape

if TYPE_CHECKING:
    from fractions import Fraction

MODES = ("nearest", "linear", "cubic")
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
POLICIES = ("stretch", "not_larger", "not_smaller")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)


@op_class
class Resize(Simple):
    """`x` sampled on a coarser or finer grid along `axes` (all when not given), one axis independent of the others.

    Either `scales` (float32, one for each axis) or `sizes` (int64) is given. An axis gets floor(dim * scale) elements,
    in float32 as scales are, or the size, which `keep_aspect_ratio_policy` may shrink or grow.
    roi: begins, then ends, as fractions of the axes; read by tf_crop_and_resize only, where places outside the tensor
    give `extrapolation_value`.
    align_corners divides by the whole number of resized elements, so that the last one falls on the last one.
    Source: ONNX Resize.
    """

    antialias: int = 0
    axes: tuple[int, ...] | None = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"
    roi: tuple[float, ...] | None = None
    scales: tuple[float, ...] | None = None
    sizes: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "roi", 2: "scales", 3: "sizes"}

    def absorb(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        """An empty operand says, in older files, that it is not given."""
        given = tuple(None if i and v is not None and v.shape == (0,) else v for i, v in enumerate(inputs))
        return super().absorb(*given)

    def resolve(self, x: Value, *operands: Value | None) -> Op:
        if x.rank is None:
            return self
        return replace(self, axes=self.axes_of(x.rank))

    def infer(
        self, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
    ) -> Types:
        self._check(roi, scales, sizes)
        if x.shape is None:
            return TensorType(x.dtype, None)
        axes = self.axes_of(len(x.shape))
        self._check_lengths(len(axes))
        dims = list(x.shape)
        for axis, dim in zip(axes, self._resized(tuple(dims[a] for a in axes), roi, sizes), strict=True):
            grows = dims[axis] == 0 and isinstance(dim, int) and dim > 0
            ensure(not grows, f"axis {axis} of %{x.name} has no elements to make {dim} of")
            dims[axis] = dim
        return TensorType(x.dtype, tuple(dims))

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        output = self.infer(*inputs)  # type: ignore[arg-type]
        taps = {"nearest": 0, "linear": 2, "cubic": 4}[self.mode]
        size = output.size if isinstance(output, TensorType) else 0
        return size * 2 * taps, moved_bytes(output, inputs)

    def axes_of(self, rank: int) -> tuple[int, ...]:
        """The axes that are resized, counted from the front."""
        return normalize_axes(range(rank) if self.axes is None else self.axes, rank)

    def _check(self, roi: Value | None, scales: Value | None, sizes: Value | None) -> None:
        for name, choices in (
            ("mode", MODES),
            ("nearest_mode", NEAREST_MODES),
            ("coordinate_transformation_mode", COORDINATES),
            ("keep_aspect_ratio_policy", POLICIES),
        ):
            value = getattr(self, name)
            ensure(value in choices, f"{name} is {value!r}, wants one of {', '.join(choices)}")
        by_scales, by_sizes = self.scales is not None or scales is not None, self.sizes is not None or sizes is not None
        ensure(by_scales != by_sizes, "wants either scales or sizes")
        ensure(scales is None or scales.dtype == "float32", "scales must be float32")
        need_vector(sizes, "sizes")
        crops = self.coordinate_transformation_mode == "tf_crop_and_resize"
        ensure(not crops or self.roi is not None or roi is not None, "tf_crop_and_resize needs a roi")

    def _check_lengths(self, count: int) -> None:
        for name, wanted in (("scales", count), ("sizes", count), ("roi", 2 * count)):
            numbers = getattr(self, name)
            unread = name == "roi" and self.coordinate_transformation_mode != "tf_crop_and_resize"
            fits = numbers is None or unread or len(numbers) == wanted
            ensure(fits, f"{name} has {len(numbers or ())} numbers for {count} axes, wants {wanted}")

    def _resized(self, dims: Shape, roi: Value | None, sizes: Value | None) -> Shape:
        wanted = sizes.content if self.sizes is None and sizes is not None else self.sizes
        if wanted is not None:
            ensure(len(wanted) == len(dims), f"sizes {shape_text(tuple(wanted))} for {len(dims)} axes")
            low = any(isinstance(n, int) and n < 0 for n in wanted)
            ensure(not low, f"sizes {shape_text(tuple(wanted))} has a negative number")
            if self.keep_aspect_ratio_policy == "stretch":
                return tuple(wanted)
            numbers, static = as_ints(tuple(wanted)), as_ints(dims)
            if numbers is not None and static is not None:
                return rounded(kept_ratio(static, numbers, self.keep_aspect_ratio_policy), static)
        crops = self.coordinate_transformation_mode == "tf_crop_and_resize"
        if self.scales is None or (crops and roi is not None):
            return unknown_shape(len(dims)) or ()
        extents = crop_extents(self.roi, len(dims)) if crops else (1.0,) * len(dims)
        return tuple(scaled_dim(d, s, e) for d, s, e in zip(dims, self.scales, extents, strict=True))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """Back along each axis by the transpose of its weights, which are what Resize makes of the identity matrix."""
        x, g = inputs[0], grads[0]
        if x.rank is None:
            raise UnsupportedError(f"the gradient of Resize needs to know the rank of %{x.name}")
        if self.keep_aspect_ratio_policy != "stretch":
            raise UnsupportedError(f"there is no gradient for keep_aspect_ratio_policy {self.keep_aspect_ratio_policy}")
        for i, axis in enumerate(self.axes_of(x.rank)):
            if not self._keeps(i, x.shape[axis]):
                g = _product_along(op, g, self._weights(op, i, dim_of(op, x, axis), inputs), axis)
        return (g,)

    def _keeps(self, i: int, dim: Dim) -> bool:
        """Whether the axis is known to stay as it is."""
        same = (self.scales is not None and self.scales[i] == 1) or (self.sizes is not None and self.sizes[i] == dim)
        return same and self.coordinate_transformation_mode != "tf_crop_and_resize"

    def _weights(self, op: Builder, i: int, dim: Value, inputs: Given) -> Value:
        """(resized elements, elements) of the i-th axis."""
        x, *operands = (*inputs, None, None, None)[:4]
        roi, scales, sizes = (None if v is None else op.Slice(v, numbers(op, i), numbers(op, i + 1)) for v in operands)
        if operands[0] is not None:
            count = len(self.axes_of(x.rank))
            end = op.Slice(operands[0], numbers(op, count + i), numbers(op, count + i + 1))
            roi = op.Concat(roi, end, axis=0)
        alone = replace(
            self,
            axes=(0,),
            extrapolation_value=0.0,
            roi=None if self.roi is None else (self.roi[i], self.roi[len(self.roi) // 2 + i]),
            scales=None if self.scales is None else (self.scales[i],),
            sizes=None if self.sizes is None else (self.sizes[i],),
        )
        identity = op.EyeLike(op.Expand(op.scalar(0.0, x), op.Concat(dim, dim, axis=0)))
        return op.apply(alone, identity, roi, scales, sizes)  # type: ignore[no-any-return]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(1, 2, 4, 5)).astype(np.float32)
        up, down = (1.0, 1.0, 2.0, 1.6), (1.0, 1.0, 0.6, 0.8)
        crop = (0.0, 0.0, 0.4, -0.2, 1.0, 1.0, 1.2, 0.9)
        for mode in MODES:
            for where in COORDINATES:
                roi = crop if where == "tf_crop_and_resize" else None
                for scales in (up, down):
                    op = Resize(coordinate_transformation_mode=where, mode=mode, roi=roi, scales=scales)
                    yield Sample(op, (x,), note=f"{mode}, {where}, {scales}")
            yield Sample(Resize(mode=mode, sizes=(1, 2, 7, 3)), (x,), note=f"{mode}, sizes")
            yield Sample(Resize(mode=mode, sizes=(1, 2, 1, 1)), (x,), note=f"{mode}, to one element")
            yield Sample(Resize(mode=mode, scales=up), (x[:0],), note=f"{mode}, no elements")
            run_time = (None, None, np.array([1, 2, 6, 4], np.int64))
            yield Sample(Resize(mode=mode), (x, *run_time), note=f"{mode}, sizes known at run time only")
        for mode in MODES[1:]:
            yield Sample(Resize(antialias=1, mode=mode, scales=down), (x,), note=f"{mode}, antialias")
            yield Sample(Resize(exclude_outside=1, mode=mode, scales=up), (x,), note=f"{mode}, exclude_outside")
        for nearest_mode in NEAREST_MODES:
            yield Sample(Resize(nearest_mode=nearest_mode, scales=up), (x,), note=nearest_mode)
        yield Sample(Resize(cubic_coeff_a=-0.5, mode="cubic", scales=up), (x,), note="another cubic")
        yield Sample(Resize(axes=(-1,), mode="linear", scales=(2.5,)), (x,), note="one axis")
        for policy in POLICIES:
            op = Resize(axes=(2, 3), keep_aspect_ratio_policy=policy, mode="linear", sizes=(7, 8))
            yield Sample(op, (x,), note=policy)
        signal = rng.normal(size=(2, 3, 6)).astype(np.float32)
        yield Sample(Resize(mode="linear", scales=(1.0, 1.0, 1.5)), (signal,), note="one spatial axis")
        volume = rng.normal(size=(1, 1, 2, 3, 4)).astype(np.float32)
        yield Sample(Resize(mode="linear", scales=(1.0, 1.0, 2.0, 2.0, 0.5)), (volume,), note="three spatial axes")
        yield Sample(Resize(scales=(2.0, 1.5)), (rng.integers(0, 99, (3, 4)),), note="int64")


def kept_ratio(dims: Sequence[int], sizes: Sequence[int], policy: str) -> Fraction:
    """The scale of all axes that keeps within (not_larger) or around (not_smaller) the sizes asked for.

    Raises InferenceError for a tensor without elements.
    """
    from fractions import Fraction  # few graphs resize, and its import takes as long as that of ten modules

    ensure(0 not in dims, f"the aspect ratio of {shape_text(tuple(dims))} is undefined")
    ratios = [Fraction(size, dim) for size, dim in zip(sizes, dims, strict=True)]
    return min(ratios) if policy == "not_larger" else max(ratios)


def rounded(ratio: Fraction, dims: Sequence[int]) -> tuple[int, ...]:
    """The dims times the ratio, rounded to the nearest integer, halves up."""
    return tuple(math.floor((2 * ratio * dim + 1) / 2) for dim in dims)


def scaled_dim(dim: Dim, scale: float, extent: float = 1.0) -> Dim:
    """floor(dim * extent * scale) in float32; for a symbol, where that is a simple fraction of it.

    Raises InferenceError unless the scale is positive.
    """
    ensure(scale > 0 and math.isfinite(scale), f"scale {scale} is not a positive number")
    if isinstance(dim, int):
        return int(np.floor(np.float32(dim) * np.float32(extent) * np.float32(scale)))
    numerator, denominator = float(np.float32(extent) * np.float32(scale)).as_integer_ratio()
    return dim * numerator // denominator if denominator <= 64 else unknown()


def crop_extents(roi: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """end - begin of each axis; raises InferenceError when a roi is missing or cuts nothing out."""
    if roi is None:
        raise InferenceError("tf_crop_and_resize needs a roi")
    extents = tuple(float(np.float32(roi[count + i]) - np.float32(roi[i])) for i in range(count))
    ensure(all(e >= 0 for e in extents), f"roi {tuple(roi)} ends before it begins")
    return extents


def _product_along(op: Builder, g: Value, weights: Value, axis: int) -> Value:
    """The sum of g[..., i, ...] * weights[i, j] over i, with j in its place."""
    rank = g.rank or 0
    if axis == rank - 1:
        return op.MatMul(g, weights)  # type: ignore[no-any-return]
    if axis == rank - 2:
        return op.MatMul(op.Transpose(weights, perm=(1, 0)), g)  # type: ignore[no-any-return]
    order = (*range(axis), *range(axis + 1, rank), axis)
    back = tuple(order.index(i) for i in range(rank))
    return op.Transpose(op.MatMul(op.Transpose(g, perm=order), weights), perm=back)  # type: ignore[no-any-return]
