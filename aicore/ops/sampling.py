"""Ops that read a tensor at places which another tensor gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import Simple, ensure, merge_dim, need_rank, same_dim, same_dtype, shape_text
from aicore.ops.sizes import given, need_indices, need_one_of, need_vector, unknown_shape

GRID_MODES = ("linear", "nearest", "cubic")
PADDING_MODES = ("zeros", "border", "reflection")
POOL_MODES = ("avg", "max")
ROI_COORDINATES = ("half_pixel", "output_half_pixel")


@op_class
class GridSample(Simple):
    """`x` (N, C, *dims) read at the places of `grid` (N, *out, rank): (N, C, *out).

    grid: coordinates of the spatial axes from the last to the first, where -1 and 1 are the first and last element's
    centres (align_corners) or outer edges. One that is not finite gives NaN. Nearest rounds halves to even.
    padding_mode: what lies outside: zeros, the border element, or the mirror image (around the centres of the border
    elements with align_corners, else around their outer edges). Source: ONNX GridSample.
    """

    align_corners: int = 0
    mode: str = "linear"
    padding_mode: str = "zeros"

    def infer(self, x: Value, grid: Value) -> Types:
        ensure(self.mode in GRID_MODES, f"mode is {self.mode!r}, wants one of {', '.join(GRID_MODES)}")
        known = self.padding_mode in PADDING_MODES
        ensure(known, f"padding_mode is {self.padding_mode!r}, wants one of {', '.join(PADDING_MODES)}")
        ensure(grid.dtype in FLOATS, f"grid %{grid.name} is {grid.dtype}, wants a float")
        if x.shape is None or grid.shape is None:
            return TensorType(x.dtype, unknown_shape(x.rank if x.rank is not None else grid.rank))
        rank = len(x.shape) - 2
        fits = rank >= 1 and len(grid.shape) == rank + 2 and same_dim(grid.shape[-1], rank)
        ensure(fits, f"grid {shape_text(grid.shape)} does not fit %{x.name}, which is {shape_text(x.shape)}")
        ensure(same_dim(x.shape[0], grid.shape[0]), f"batches of {x.shape[0]} and {grid.shape[0]}")
        return TensorType(x.dtype, (merge_dim(x.shape[0], grid.shape[0]), x.shape[1], *grid.shape[1:-1]))

    def cost(self, x: Value, grid: Value) -> tuple[Dim, Dim]:
        output = self.infer(x, grid)
        size = output.size if isinstance(output, TensorType) else 0
        taps = {"nearest": 0, "linear": 2, "cubic": 4}[self.mode] ** max((x.rank or 2) - 2, 1)
        return size * 2 * taps, moved_bytes(output, (x, grid))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
        grid = rng.uniform(-1.6, 1.6, (2, 3, 2, 2)).astype(np.float32)
        for mode in GRID_MODES:
            for padding in PADDING_MODES:
                for corners in (0, 1):
                    yield Sample(GridSample(corners, mode, padding), (x, grid), note=f"{mode}, {padding}, {corners}")
        volume = rng.normal(size=(1, 2, 3, 4, 2)).astype(np.float32)
        places = rng.uniform(-1.2, 1.2, (1, 2, 2, 2, 3)).astype(np.float32)
        yield Sample(GridSample(), (volume, places), note="three spatial axes")
        yield Sample(GridSample(), (x, grid[:, :0]), note="no places")


@op_class
class AffineGrid(Simple):
    """The grid for GridSample that maps an output of the dims `size` through the affine matrices `theta`.

    theta: (N, 2, 3) for images or (N, 3, 4) for volumes. size: (N, C, *dims). The result is (N, *dims, rank).
    Source: ONNX AffineGrid.
    """

    align_corners: int = 0
    size: tuple[int, ...] | None = None

    operand_fields: ClassVar[dict[int, str]] = {1: "size"}

    def infer(self, theta: Value, size: Value | None = None) -> Types:
        need_one_of(self.size, size, "size")
        need_vector(size, "size")
        need_rank(theta, 3)
        dims = given(self.size, size)
        if dims is None:
            rows = None if theta.shape is None else theta.shape[1]
            return TensorType(theta.dtype, unknown_shape(rows + 2 if isinstance(rows, int) else None))
        ensure(len(dims) in (4, 5), f"size {shape_text(dims)} has {len(dims)} numbers, wants 4 or 5")
        rank = len(dims) - 2
        wanted = (dims[0], rank, rank + 1)
        fits = theta.shape is None or all(map(same_dim, theta.shape, wanted))
        ensure(fits, f"theta %{theta.name} is {shape_text(theta.shape)}, wants {shape_text(wanted)}")
        return TensorType(theta.dtype, (dims[0], *dims[2:], rank))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        plane, space = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 2, 3), (1, 3, 4)))
        for corners in (0, 1):
            yield Sample(AffineGrid(corners, (2, 3, 4, 5)), (plane,), note=f"image, align_corners={corners}")
            yield Sample(AffineGrid(corners, (1, 1, 2, 3, 1)), (space,), note=f"volume, align_corners={corners}")
        yield Sample(AffineGrid(), (plane, np.array([2, 1, 2, 2], np.int64)), note="size known at run time only")


@op_class
class RoiAlign(Simple):
    """Pools each region of `x` (N, C, H, W) to (C, output_height, output_width) from bilinear samples.

    rois: (R, 4), x1, y1, x2, y2 in units that `spatial_scale` makes pixels. batch_indices: (R,), the image of each.
    mode: the mean of a bin's samples, or (max) the largest of the weighted pixels that its samples mix.
    sampling_ratio: samples per bin and axis; 0 means ceil(region / output).
    Source: ONNX RoiAlign; He et al., Mask R-CNN (2017).
    """

    coordinate_transformation_mode: str = "half_pixel"
    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0

    def infer(self, x: Value, rois: Value, batch_indices: Value) -> Types:
        ensure(self.mode in POOL_MODES, f"mode is {self.mode!r}, wants avg or max")
        where = self.coordinate_transformation_mode
        ensure(where in ROI_COORDINATES, f"coordinate_transformation_mode is {where!r}, wants {ROI_COORDINATES}")
        ensure(self.output_height > 0 and self.output_width > 0, "the output has no elements")
        ensure(self.sampling_ratio >= 0, f"sampling_ratio is {self.sampling_ratio}, wants 0 or more")
        same_dtype(x, rois)
        need_indices(batch_indices)
        for value, rank in ((x, 4), (rois, 2), (batch_indices, 1)):
            need_rank(value, rank)
        fits = rois.shape is None or same_dim(rois.shape[1], 4)
        ensure(fits, f"rois %{rois.name} are {shape_text(rois.shape)}, want 4 numbers each")
        count, channels = (rois.shape or unknown_shape(1) or ())[0], (x.shape or unknown_shape(2) or ())[1]
        return TensorType(x.dtype, (count, channels, self.output_height, self.output_width))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 3, 8, 9)).astype(np.float32)
        rois = np.array([[0, 0, 7, 7], [1.5, 2, 6, 12], [3, 3, 3.5, 3.2]], np.float32)
        images = np.array([0, 1, 1], np.int64)
        for mode in POOL_MODES:
            for where in ROI_COORDINATES:
                yield Sample(RoiAlign(where, mode, 3, 2, 2, 0.5), (x, rois, images), note=f"{mode}, {where}")
        yield Sample(RoiAlign(output_height=2, output_width=2), (x, rois, images), note="as many samples as pixels")
        yield Sample(RoiAlign(), (x, rois[:0], images[:0]), note="no regions")
