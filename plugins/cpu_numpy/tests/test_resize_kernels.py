"""What Resize, sampling and box selection mean, by numbers worked out from the ONNX text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicore.errors import ExecutionError
from aicore.ir import Builder, Op, as_tuple, dtype_name
from aicore.kernels import REFERENCE
from aicore.ops.detection import NonMaxSuppression
from aicore.ops.random import Dropout
from aicore.ops.resize import Resize
from aicore.ops.sampling import AffineGrid, GridSample, RoiAlign
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cpu_numpy.reference.random import philox

CROP = "tf_crop_and_resize"
REFERENCES = {kernel.op: kernel for kernel in all_kernels() if kernel.variant == REFERENCE}


def run(op: Op, *operands: Any) -> Any:
    """The reference kernel's result, of the type that inference gives."""
    arrays = [None if o is None else np.asarray(o) for o in operands]
    builder = Builder()
    values = [None if a is None else builder.input(f"x{i}", dtype_name(a.dtype), a.shape) for i, a in enumerate(arrays)]
    types = [v.type for v in as_tuple(builder.apply(op, *values))]
    results = REFERENCES[type(op)].function(builder.nodes[0].op, *arrays)
    for result, tensor in zip(as_tuple(results), types, strict=True):
        assert dtype_name(result.dtype) == tensor.dtype
        assert not tensor.is_static or tensor.static_shape == result.shape
    return results


def resized(row: Any, scale: float | None = None, size: int | None = None, **fields: Any) -> Any:
    """A row of numbers resized along its only axis, in float64."""
    scales, sizes = (None if scale is None else (scale,)), (None if size is None else (size,))
    return run(Resize(scales=scales, sizes=sizes, **fields), np.asarray(row, np.float64))


@pytest.mark.parametrize(
    ("where", "row", "scale", "expected"),
    [
        ("half_pixel", [1, 2], 2, [1, 1.25, 1.75, 2]),  # at -1/4, 1/4, 3/4, 5/4
        ("half_pixel", [1, 2, 3, 4], 0.5, [1.5, 3.5]),  # at 1/2, 5/2
        ("asymmetric", [1, 2], 2, [1, 1.5, 2, 2]),  # at 0, 1/2, 1, 3/2
        ("align_corners", [1, 2], 2, [1, 4 / 3, 5 / 3, 2]),
        ("align_corners", [1, 2, 3, 4], 0.6, [1, 4]),  # two elements: the first and the last
        ("align_corners", [5, 6, 7], 0.4, [5]),
        ("pytorch_half_pixel", [5, 6, 7], 0.4, [5]),
        ("pytorch_half_pixel", [1, 2], 2, [1, 1.25, 1.75, 2]),
        # two elements of 2.4: offset 2 * (1 - 2 / 2.4) = 1/3, so at 1/3 + 5/6 - 1/2 = 2/3 and 1/3 + 5/2 - 1/2 = 7/3
        ("half_pixel_symmetric", [1, 2, 3, 4], 0.6, [5 / 3, 10 / 3]),
    ],
)
def test_coordinates(where: str, row: Any, scale: float, expected: Any) -> None:
    y = resized(row, scale, coordinate_transformation_mode=where, mode="linear")
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_crop_and_resize() -> None:
    """From 0.5 * 3 to 1.5 * 3 in steps of 1.5: at 1.5, 3 and 4.5, the last outside."""
    fields: dict[str, Any] = {"coordinate_transformation_mode": CROP, "mode": "linear", "roi": (0.5, 1.5)}
    y = resized([1, 2, 3, 4], size=3, extrapolation_value=-7.0, **fields)
    np.testing.assert_allclose(y, [2.5, 4, -7])
    np.testing.assert_allclose(resized([1, 2, 3, 4], size=1, **fields), [4])  # 0.5 * (0.5 + 1.5) * 3 = 3
    dynamic = Resize(coordinate_transformation_mode=CROP, mode="linear", sizes=(3,), extrapolation_value=-7.0)
    np.testing.assert_allclose(run(dynamic, np.arange(1.0, 5), np.array([0.5, 1.5], np.float32)), [2.5, 4, -7])


@pytest.mark.parametrize(
    ("nearest_mode", "expected"),
    [
        ("round_prefer_floor", [1, 1, 2, 2]),  # at 0, 1/2, 1, 3/2
        ("round_prefer_ceil", [1, 2, 2, 2]),
        ("floor", [1, 1, 2, 2]),
        ("ceil", [1, 2, 2, 2]),
    ],
)
def test_nearest(nearest_mode: str, expected: Any) -> None:
    fields = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest_mode}
    np.testing.assert_array_equal(resized([1, 2], 2, **fields), expected)


def test_nearest_rounds_to_float32_first() -> None:
    """1 / float32(1/3) is 2.99999991, which means 3."""
    fields = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    np.testing.assert_array_equal(resized(range(6), 1 / 3, **fields), [0, 3])


def test_every_axis_may_be_resized() -> None:
    x = np.arange(4).reshape(2, 2)
    np.testing.assert_array_equal(run(Resize(scales=(2.0, 1.0)), x), [[0, 1], [0, 1], [2, 3], [2, 3]])
    np.testing.assert_array_equal(run(Resize(axes=(-2,), sizes=(1,)), x), [[0, 1]])


def test_cubic() -> None:
    """An impulse: the filter at the distances 7/4, 5/4, 3/4, 1/4 with a = -3/4."""
    y = resized([0, 0, 1, 0, 0], 2, mode="cubic")
    taps = [-0.03515625, -0.10546875, 0.26171875, 0.87890625]
    np.testing.assert_allclose(y, [0, *taps, *taps[::-1], 0])


def test_cubic_coefficient() -> None:
    """With a = -1/2: 1.5 / 64 - 2.5 / 16 + 1 at the distance 1/4."""
    assert resized([0, 0, 1, 0, 0], 2, mode="cubic", cubic_coeff_a=-0.5)[4] == 0.8671875


def test_exclude_outside() -> None:
    """At 1/4, the tap of weight -0.10546875 lies before the first element; the others are divided by what is left."""
    y = resized([1, 0, 0, 0, 0], 2, mode="cubic", exclude_outside=1)
    np.testing.assert_allclose(y[1], 0.87890625 / 1.10546875)
    np.testing.assert_allclose(resized([1, 0, 0, 0, 0], 2, mode="cubic")[1], 0.87890625 - 0.10546875)


def test_antialias() -> None:
    """Half as many: the triangle is twice as wide, with the weights 1, 3, 3, 1 over 8 around each half pixel."""
    y = resized([1, 2, 3, 4], 0.5, mode="linear", antialias=1)
    np.testing.assert_allclose(y, [(1 + 3 + 6 + 3) / 8, (2 + 9 + 12 + 4) / 8])
    np.testing.assert_allclose(resized([1, 2], 2, mode="linear", antialias=1), [1, 1.25, 1.75, 2])


@pytest.mark.parametrize(("policy", "expected"), [("not_larger", (4, 6)), ("not_smaller", (6, 9)), ("stretch", (4, 9))])
def test_aspect_ratio(policy: str, expected: Any) -> None:
    op = Resize(keep_aspect_ratio_policy=policy, mode="linear", sizes=(4, 9))
    x = np.arange(6.0).reshape(2, 3)
    assert run(op, x).shape == expected
    assert run(Resize(keep_aspect_ratio_policy=policy), x, None, None, np.array([4, 9])).shape == expected


def test_integers_are_cut_off_towards_zero() -> None:
    y = run(Resize(mode="linear", scales=(2.0,)), np.array([-1, 2], np.int8))
    np.testing.assert_array_equal(y, [-1, 0, 1, 2])  # -1, -1/4, 5/4, 2


def test_numbers_of_the_run_are_checked() -> None:
    with pytest.raises(ExecutionError, match="not a positive number"):
        run(Resize(), np.zeros(2), None, np.array([-1], np.float32))
    with pytest.raises(ExecutionError, match="no elements to make 3 of"):
        run(Resize(), np.zeros(0), None, None, np.array([3]))


@settings(deadline=None, max_examples=60)
@given(
    old=st.integers(1, 9), new=st.integers(1, 20), where=st.sampled_from(["half_pixel", "asymmetric", "align_corners"])
)
def test_a_constant_stays_constant(old: int, new: int, where: str) -> None:
    for mode in ("nearest", "linear", "cubic"):
        for antialias in (0, 1):
            y = resized([3.0] * old, size=new, mode=mode, antialias=antialias, coordinate_transformation_mode=where)
            np.testing.assert_allclose(y, [3.0] * new, rtol=1e-12)


@settings(deadline=None, max_examples=60)
@given(old=st.integers(2, 9), new=st.integers(2, 20))
def test_a_line_stays_a_line_between_its_corners(old: int, new: int) -> None:
    for mode in ("linear", "nearest"):
        y = resized(np.linspace(0, 1, old), size=new, mode=mode, coordinate_transformation_mode="align_corners")
        tolerance = 1e-12 if mode == "linear" else 0.5 / (old - 1) + 1e-6
        np.testing.assert_allclose(y, np.linspace(0, 1, new), atol=tolerance)


def sampled(places: Any, **fields: Any) -> Any:
    """The row 1, 2, 3 at places along its only axis."""
    grid = np.asarray(places, np.float64).reshape(1, -1, 1)
    return run(GridSample(**fields), np.array([[[1.0, 2.0, 3.0]]]), grid)[0, 0]


@pytest.mark.parametrize(
    ("fields", "places", "expected"),
    [
        ({"align_corners": 1}, [-1, 0, 0.5, 1], [1, 2, 2.5, 3]),
        ({"align_corners": 0}, [-2 / 3, 0, 1], [1, 2, 1.5]),  # 1 is the outer edge: half of 3, half of nothing
        ({"padding_mode": "border"}, [-1, 1, 5], [1, 3, 3]),
        # at 3, 4 and 4.5, which the edge at 2.5 mirrors to 2, 1 and 0.5
        ({"padding_mode": "reflection"}, [4 / 3, 2, 7 / 3], [3, 2, 1.5]),
        ({"padding_mode": "reflection", "align_corners": 1}, [2, 3, -2], [2, 1, 2]),
        ({"mode": "nearest", "align_corners": 1}, [-0.5, 0.5, 0.6], [1, 3, 3]),  # at 0.5, 1.5, 1.6: halves to even
    ],
)
def test_grid_sample(fields: Any, places: Any, expected: Any) -> None:
    np.testing.assert_allclose(sampled(places, **fields), expected, atol=1e-12)


def test_grid_sample_cubic() -> None:
    y = sampled([0.25], mode="cubic", align_corners=1)  # at 1.25, between elements 1 and 2, with nothing beyond 2
    np.testing.assert_allclose(y, [-0.10546875 * 1 + 0.87890625 * 2 + 0.26171875 * 3])


def test_a_place_that_is_not_finite_gives_nan() -> None:
    y = sampled([0, np.nan, np.inf], align_corners=1)
    np.testing.assert_array_equal(y, [2, np.nan, np.nan])


def test_grid_sample_takes_the_last_axis_first() -> None:
    x = np.arange(6.0).reshape(1, 1, 2, 3)
    y = run(GridSample(align_corners=1), x, np.array([[[[1.0, -1.0]]]]))
    assert y.item() == x[0, 0, 0, 2]


def test_affine_grid() -> None:
    identity = np.array([[[1.0, 0, 0], [0, 1, 0]]])
    y = run(AffineGrid(1, (1, 1, 2, 3)), identity)
    np.testing.assert_allclose(y[0, :, :, 0], [[-1, 0, 1]] * 2)
    np.testing.assert_allclose(y[0, :, :, 1], [[-1] * 3, [1] * 3])
    centres = run(AffineGrid(0, (1, 1, 2, 1)), identity)
    np.testing.assert_allclose(centres[0, :, 0], [[0, -0.5], [0, 0.5]])
    np.testing.assert_allclose(run(AffineGrid(1, (1, 1, 1, 1)), identity), np.zeros((1, 1, 1, 2)))


def test_roi_align() -> None:
    """A ramp x: each bin's mean is the ramp at its centre."""
    ramp = np.tile(np.arange(8.0), (1, 1, 8, 1))
    roi, image = np.array([[1.0, 1.0, 5.0, 5.0]]), np.array([0])
    y = run(RoiAlign("output_half_pixel", "avg", 2, 2, 2), ramp, roi, image)
    np.testing.assert_allclose(y[0, 0], [[2, 4], [2, 4]])
    y = run(RoiAlign("half_pixel", "avg", 2, 2, 2), ramp, roi, image)
    np.testing.assert_allclose(y[0, 0], [[1.5, 3.5], [1.5, 3.5]])
    y = run(RoiAlign("output_half_pixel", "avg", 2, 2, 2, 0.5), ramp, roi, image)
    np.testing.assert_allclose(y[0, 0], [[1, 2], [1, 2]])
    tiny = run(RoiAlign("output_half_pixel", "avg", 1, 1, 1), ramp, np.array([[2.0, 2, 2, 2]]), image)
    np.testing.assert_allclose(tiny.item(), 2.5)  # a region is at least one pixel wide in this mode
    with pytest.raises(ExecutionError, match=r"batch_indices\[0\] is 3"):
        run(RoiAlign(), ramp, roi, np.array([3]))


def test_roi_align_max_takes_the_largest_weighted_pixel() -> None:
    ramp = np.tile(np.arange(8.0), (1, 1, 8, 1))
    y = run(RoiAlign("output_half_pixel", "max", 1, 1, 1), ramp, np.array([[2.0, 2, 4.5, 4]]), np.array([0]))
    np.testing.assert_allclose(y.item(), 0.75 * 3)  # one sample at 3.25, whose left pixel weighs more


BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 0, 1, 2], [2, 2, 1, 1]]], np.float32)
SCORES = np.array([[[0.9, 0.8, 0.7, 0.6]]], np.float32)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (NonMaxSuppression(0, 9, 0.5), [0, 2, 3]),  # 0.9 / 1.1 = 0.82 is too much; 1 / 2 is not above 0.5
        (NonMaxSuppression(0, 9, 0.4), [0, 3]),
        (NonMaxSuppression(0, 2, 0.5), [0, 2]),
        (NonMaxSuppression(0, 9, 0.5, float(np.float32(0.7))), [0, 2]),
        (NonMaxSuppression(0, 9, 1.0, 0.95), []),
        (NonMaxSuppression(), []),
    ],
)
def test_non_max_suppression(op: Op, expected: list[int]) -> None:
    np.testing.assert_array_equal(run(op, BOXES, SCORES), np.reshape([[0, 0, box] for box in expected], (-1, 3)))


def test_boxes_by_centre_and_equal_scores() -> None:
    centred = np.array([[[0.5, 0.5, 1, 1], [0.6, 0.5, 1, 1], [5, 5, 1, 1]]], np.float32)
    y = run(NonMaxSuppression(1, 9, 0.5), centred, np.full((1, 1, 3), 0.5, np.float32))
    np.testing.assert_array_equal(y, [[0, 0, 0], [0, 0, 2]])


def test_philox_matches_its_published_numbers() -> None:
    """The known answer of Random123 for the counter 0 and the key 0."""
    words = philox(np.zeros(2, np.uint32), 0, 4)
    assert [f"{w:08x}" for w in words] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


def test_dropout() -> None:
    x, key = np.ones(4000, np.float32), np.array([1, 2], np.uint32)
    y, kept = run(Dropout(0.25, True, True), x, None, None, key)
    assert abs(kept.mean() - 0.75) < 0.03
    np.testing.assert_array_equal(y, np.where(kept, np.float32(1) / np.float32(0.75), 0))
    _, again = run(Dropout(0.25, True, True), x, None, None, key)
    np.testing.assert_array_equal(kept, again)
    _, other = run(Dropout(0.25, True, True, 1), x, None, None, key)
    assert (kept != other).any(), "another stream draws other numbers"
    y, kept = run(Dropout(0.25, mask=True), x)
    assert kept.all()
    np.testing.assert_array_equal(y, x)
    with pytest.raises(ExecutionError, match="ratio is 1"):
        run(Dropout(), x, np.float32(1))
