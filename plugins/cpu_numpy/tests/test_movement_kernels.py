"""What moving, indexing and selecting mean, by numbers worked out from the ONNX text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import ExecutionError
from aicore.ir import Builder, Op, as_tuple, dtype_name
from aicore.kernels import REFERENCE
from aicore.ops.creation import ConstantOfShape, EyeLike, OneHot, Range, Trilu
from aicore.ops.gather import Gather, GatherElements, GatherND
from aicore.ops.movement import Concat, Expand, Split, Tile
from aicore.ops.rearrange import DepthToSpace, ReverseSequence, SpaceToDepth
from aicore.ops.scatter import Col2Im, ScatterElements, ScatterND, TensorScatter
from aicore.ops.selection import Compress, NonZero, Unique
from aicore.ops.shape import Reshape, Squeeze, Unsqueeze
from aicore.ops.slicing import CenterCropPad, Pad, Slice
from aicore_cpu_numpy.kernels import all_kernels

Run = Callable[..., Any]
MAX, MIN = 2**63 - 1, -(2**63)

REFERENCES = {kernel.op: kernel for kernel in all_kernels() if kernel.variant == REFERENCE}


def run(op: Op, *operands: Any) -> Any:
    """The reference kernel's result, after inference agrees to the operands and to the result's type."""
    arrays = [None if o is None else np.asarray(o) for o in operands]
    builder = Builder()
    values = [None if a is None else builder.input(f"x{i}", dtype_name(a.dtype), a.shape) for i, a in enumerate(arrays)]
    types = [v.type for v in as_tuple(builder.apply(op, *values))]
    with np.errstate(all="ignore"):  # as the launcher does
        results = REFERENCES[type(op)].function(builder.nodes[0].op, *arrays)
    for result, tensor in zip(as_tuple(results), types, strict=True):
        assert dtype_name(result.dtype) == tensor.dtype
        assert tensor.shape is None or len(tensor.shape) == result.ndim
        assert all(d == n for d, n in zip(tensor.shape or (), result.shape, strict=False) if isinstance(d, int))
    return results


def check(result: Any, expected: Any) -> None:
    for found, wanted in zip(as_tuple(result), as_tuple(expected), strict=True):
        np.testing.assert_array_equal(found, np.asarray(wanted))


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def floats(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


ROW = np.arange(5, dtype=np.int64)
GRID = np.arange(6, dtype=np.float64).reshape(2, 3)


@pytest.mark.parametrize(
    ("starts", "ends", "steps", "expected"),
    [
        (1, 4, 1, [1, 2, 3]),
        (-1, MIN, -1, [4, 3, 2, 1, 0]),
        (MAX, MIN, -2, [4, 2, 0]),
        (MAX, -(2**31), -1, [4, 3, 2, 1, 0]),
        (3, 0, -1, [3, 2, 1]),
        (-100, 2, 1, [0, 1]),
        (-100, MIN, -1, [0]),
        (0, MAX, 3, [0, 3]),
        (4, 1, 1, []),
    ],
)
def test_slice(starts: int, ends: int, steps: int, expected: list[int]) -> None:
    operands = ints(starts), ints(ends), ints(0), ints(steps)
    check(run(Slice(), ROW, *operands), np.array(expected, np.int64))
    check(run(Slice((starts,), (ends,), (0,), (steps,)), ROW), np.array(expected, np.int64))


def test_slice_of_nothing() -> None:
    check(run(Slice((-1,), (MIN,), (0,), (-1,)), ROW[:0]), ROW[:0])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("constant", [9, 9, 1, 2, 3, 9]),
        ("edge", [1, 1, 1, 2, 3, 3]),
        ("reflect", [3, 2, 1, 2, 3, 2]),
        ("wrap", [2, 3, 1, 2, 3, 1]),
    ],
)
def test_pad(mode: str, expected: list[int]) -> None:
    check(run(Pad(mode, (2, 1), 9), ints(1, 2, 3)), expected)
    check(run(Pad(mode), ints(1, 2, 3), ints(2, 1), np.int64(9)), expected)


def test_negative_pads_cut_before_anything_is_repeated() -> None:
    check(run(Pad("reflect", (-1, 2)), ints(1, 2, 3, 4)), [2, 3, 4, 3, 2])
    check(run(Pad("wrap", (-1, 2)), ints(1, 2, 3, 4)), [2, 3, 4, 2, 3])
    check(run(Pad("constant", (-2, -1)), ints(1, 2, 3, 4)), [3])
    check(run(Pad("constant", (0, 1), 7, (-1,)), GRID), [[0, 1, 2, 7], [3, 4, 5, 7]])


def test_center_crop_pad() -> None:
    check(run(CenterCropPad((0,), (3,)), ROW), [1, 2, 3])
    check(run(CenterCropPad((0,), (2,)), ROW), [1, 2])
    check(run(CenterCropPad((0,), (8,)), ROW), [0, 0, 1, 2, 3, 4, 0, 0])


def test_gather_counts_negative_indices_from_the_back() -> None:
    check(run(Gather(), ROW, ints(-1, 0, -5)), [4, 0, 0])
    check(run(Gather(1), GRID, np.array([[-1], [0]])), [[[2], [0]], [[5], [3]]])
    check(run(Gather(-1), GRID, np.int64(1)), [1, 4])
    check(run(GatherElements(1), GRID, np.array([[-1, 0], [0, -2]])), [[2, 0], [3, 4]])
    check(run(GatherND(), GRID, np.array([[-1, -1], [0, 1]])), [5, 1])
    check(run(GatherND(1), GRID, np.array([[-1], [0]])), [2, 3])


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Gather(), (ROW, ints(0, 5)), r"indices\[1\] is 5, out of range for axis 0, which has 5 elements"),
        (Gather(1), (GRID, np.array([[0], [-4]], np.int32)), r"indices\[1, 0\] is -4, .* axis 1"),
        (GatherElements(), (GRID, np.array([[2, 0, 0]])), r"indices\[0, 0\] is 2"),
        (GatherND(), (GRID, np.array([[0, 3]])), r"indices\[..., 1\]\[0\] is 3, .* axis 1"),
        (ScatterElements(), (ROW, ints(-6), ints(1)), r"indices\[0\] is -6"),
        (ScatterND(), (ROW, np.array([[9]]), ints(1)), r"indices\[..., 0\]\[0\] is 9"),
        (TensorScatter(axis=1), (GRID, GRID[:, :2], ints(0, 2)), r"write_indices\[1\] is 2"),
        (TensorScatter(axis=1), (GRID, GRID[:, :2], ints(-1, 0)), r"write_indices\[0\] is -1"),
        (ReverseSequence(0, 1), (GRID, ints(3, 4)), r"sequence_lens\[1\] is 4, wants 0 to 3"),
        (Reshape(), (GRID, ints(4, -1)), "no multiple of 4"),
        (Squeeze(), (GRID, ints(0)), "axis 0 .* is 2, not 1"),
        (Squeeze(), (GRID, ints(5)), "out of range"),
        (Unsqueeze(), (GRID, ints(0, 0)), "twice"),
        (Expand(), (GRID, ints(4, 3)), "does not broadcast"),
        (Tile(), (GRID, ints(-1, 1)), "want 2 numbers from 0"),
        (Split(0, 2), (ROW, ints(2, 2)), "do not add up to 5"),
        (Split(0, 2), (ROW, ints(6, -1)), "do not add up to 5"),
        (Slice(), (ROW, ints(0), ints(1), ints(0), ints(0)), "a step is 0"),
        (Slice(), (ROW, ints(0), ints(1), ints(2)), "axis 2 is out of range"),
        (Pad(), (ROW, ints(-3, -3)), "less than nothing"),
        (Pad(), (GRID, ints(0, 0), None, ints(-1, 0)), "2 pads for 2 axes"),
        (ConstantOfShape(), (ints(-1),), "negative dim"),
        (Range(), (np.float32(0), np.float32(1), np.float32(0)), "delta is 0"),
    ],
)
def test_bad_data_is_an_error_of_the_run(op: Op, operands: Any, message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        run(op, *operands)


def test_slice_vectors_of_unequal_length() -> None:
    with pytest.raises(ExecutionError, match="differ in length"):
        REFERENCES[Slice].function(Slice(), ROW, ints(0, 0), ints(1), ints(0), ints(1))


def test_compress_beyond_the_end() -> None:
    with pytest.raises(ExecutionError, match="6 elements for 5"):
        REFERENCES[Compress].function(Compress(0), ROW, np.ones(6, bool))


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("none", [1, 20, 3]), ("add", [1, 32, 3]), ("mul", [1, 400, 3]), ("max", [1, 20, 3]), ("min", [1, 2, 3])],
)
def test_scatter_of_an_index_that_comes_twice(reduction: str, expected: list[float]) -> None:
    x, updates = floats(1, 2, 3), floats(10, 20)
    check(run(ScatterElements(0, reduction), x, ints(1, -2), updates), expected)
    check(run(ScatterND(reduction), x, np.array([[-2], [1]]), updates), expected)


def test_scatter_propagates_nan() -> None:
    for reduction in ("max", "min", "add", "mul"):
        check(run(ScatterElements(0, reduction), floats(1, 2), ints(0), floats(np.nan)), floats(np.nan, 2))


def test_scatter_elements_along_an_axis() -> None:
    check(run(ScatterElements(1), GRID, np.array([[-1], [0]]), np.array([[9.0], [8.0]])), [[0, 1, 9], [8, 4, 5]])


def test_scatter_leaves_its_operand_alone() -> None:
    x = floats(1, 2, 3)
    run(ScatterElements(), x, ints(0), floats(7))
    check(x, [1, 2, 3])


def test_tensor_scatter() -> None:
    cache, update = np.zeros((2, 1, 3)), np.array([[[1.0, 2.0]], [[3.0, 4.0]]])
    check(run(TensorScatter(axis=2), cache, update, ints(1, 0)), [[[0, 1, 2]], [[3, 4, 0]]])
    check(run(TensorScatter("circular", 2), cache, update, ints(2, 1)), [[[2, 0, 1]], [[0, 3, 4]]])


def test_col2im_adds_overlapping_blocks() -> None:
    """Windows of 2 over 3 elements, with stride 1: the middle element lies in both."""
    check(run(Col2Im(image_shape=(3,), block_shape=(2,)), np.array([[[1.0, 2.0], [10.0, 20.0]]])), [[[1, 12, 20]]])
    padded = Col2Im(None, (1, 0), (2,), (3,), (2,))  # windows at -1 and 1; what lies in the padding is dropped
    check(run(padded, np.array([[[1.0, 2.0], [10.0, 20.0]]])), [[[10, 2, 20]]])


def test_col2im_adds_narrow_floats_up_in_float32() -> None:
    """The middle pixel is 2048 + 1 + 1; float16 has no 2049 and would stay at 2048."""
    columns = np.zeros((1, 3, 3), np.float16)
    columns[0, [2, 1, 0], [0, 1, 2]] = 2048, 1, 1
    check(run(Col2Im(image_shape=(5,), block_shape=(3,)), columns), [[[0, 0, 2050, 0, 0]]])


def test_split_into_unequal_and_empty_parts() -> None:
    check(run(Split(0, 3), ROW), ([0, 1], [2, 3], [4]))
    check(run(Split(0, 3), ROW, ints(0, 5, 0)), ([], [0, 1, 2, 3, 4], []))


def test_concat_of_nothing() -> None:
    check(run(Concat(0), np.zeros((0, 2)), np.zeros((0, 2))), np.zeros((0, 2)))


def test_one_hot() -> None:
    values = floats(-1, 1)
    check(run(OneHot(-1, 3), ints(0, -1, 3, -4), None, values), [[1, -1, -1], [-1, -1, 1], [-1] * 3, [-1] * 3])
    check(run(OneHot(0, 2), ints(1, 0), None, values), [[-1, 1], [1, -1]])
    check(run(OneHot(-1, 200), np.array([-1], np.int8), None, values)[0, 199], 1)
    check(run(OneHot(-1, 2), np.array([1], np.uint64), None, values), [[-1, 1]])


def test_range() -> None:
    check(run(Range(), np.int64(10), np.int64(3), np.int64(-3)), [10, 7, 4])
    check(run(Range(), np.float32(1), np.float32(2), np.float32(0.25)), floats(1, 1.25, 1.5, 1.75))
    halves = run(Range(), *(np.array(n, np.float16) for n in (2046, 2050, 0.5)))
    np.testing.assert_array_equal(halves, (2046 + 0.5 * np.arange(8)).astype(np.float16))


def test_eye_like_and_trilu() -> None:
    check(run(EyeLike(None, -1), GRID), [[0, 0, 0], [1, 0, 0]])
    check(run(Trilu(1, 1), GRID), [[0, 1, 2], [0, 0, 5]])
    check(run(Trilu(0, -1), GRID), [[0, 0, 0], [3, 0, 0]])
    nan = np.array([[np.nan, 1.0], [np.nan, 2.0]])
    check(run(Trilu(), nan), [[np.nan, 1], [0, 2]])


def test_depth_and_space() -> None:
    x = np.arange(8.0).reshape(1, 8, 1, 1)
    check(run(DepthToSpace(2, "DCR"), x), [[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]])
    check(run(DepthToSpace(2, "CRD"), x), [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]])
    for mode in ("DCR", "CRD"):
        check(run(SpaceToDepth(2, mode), run(DepthToSpace(2, mode), x)), x)


def test_reverse_sequence() -> None:
    x = np.array([[0, 1, 2], [3, 4, 5]])
    check(run(ReverseSequence(0, 1), x, ints(3, 2)), [[2, 1, 0], [4, 3, 5]])
    check(run(ReverseSequence(1, 0), x, ints(2, 1, 0)), [[3, 1, 2], [0, 4, 5]])


def test_unique() -> None:
    x = floats(2, 1, 1, 3, 4, 3)
    check(run(Unique(None, 1), x), ([1, 2, 3, 4], [1, 0, 3, 4], [1, 0, 0, 2, 3, 2], [2, 1, 2, 1]))
    check(run(Unique(None, 0), x), ([2, 1, 3, 4], [0, 1, 3, 4], [0, 1, 1, 2, 3, 2], [1, 2, 2, 1]))
    rows = np.array([[1, 0], [0, 1], [1, 0]])
    check(run(Unique(0, 1), rows), ([[0, 1], [1, 0]], [1, 0], [1, 0, 1], [1, 2]))
    check(run(Unique(0, 0), rows), ([[1, 0], [0, 1]], [0, 1], [0, 1, 0], [2, 1]))
    check(run(Unique(1, 1), rows.T), ([[0, 1], [1, 0]], [1, 0], [1, 0, 1], [1, 2]))
    check(run(Unique(), floats(np.nan, 1, np.nan)), (floats(1, np.nan), [1, 0], [1, 0, 1], [1, 2]))
    check(run(Unique(0), np.zeros((0, 2))), (np.zeros((0, 2)), [], [], []))


def test_non_zero_and_compress() -> None:
    check(run(NonZero(), np.array([[1, 0, np.nan], [0, -0.0, -1]])), [[0, 0, 1], [0, 2, 2]])
    assert run(NonZero(), np.array(3)).shape == (0, 1)
    assert run(NonZero(), np.array(0)).shape == (0, 0)
    check(run(Compress(1), GRID, np.array([False, True])), [[1], [4]])
    check(run(Compress(), GRID, np.array([True, False, False, True])), [0, 3])


def test_reshape_copies_a_zero() -> None:
    assert run(Reshape(), np.zeros((0, 3, 4)), ints(0, -1)).shape == (0, 12)
    assert run(Reshape(allowzero=1), np.zeros((0, 3, 4)), ints(3, 0, 7)).shape == (3, 0, 7)
    check(run(Unsqueeze(), GRID, ints(-1)), GRID[..., None])


def test_strings_move_like_anything_else() -> None:
    words = np.array([["a", "b"], ["c", "d"]], object)
    check(run(Gather(1), words, ints(-1)), [["b"], ["d"]])
    check(run(Concat(0), words, words[:1]), [["a", "b"], ["c", "d"], ["a", "b"]])
    check(run(Pad("constant", (0, 0, 0, 1)), words), [["a", "b", ""], ["c", "d", ""]])
    check(run(Unique(), words)[0], ["a", "b", "c", "d"])
    check(run(Reshape((4,)), words), ["a", "b", "c", "d"])


def test_narrow_floats_keep_their_type() -> None:
    import ml_dtypes

    x = np.array([[1, 2], [3, 4]], ml_dtypes.bfloat16)
    check(run(Pad("constant", (1, 0, 0, 0), 5.0), x).astype(float), [[5, 5], [1, 2], [3, 4]])
    check(run(Trilu(1, 1), x).astype(float), [[0, 2], [0, 0]])
    check(run(ScatterElements(0, "add"), x, np.array([[0, 0]]), x[:1]).astype(float), [[2, 4], [3, 4]])
