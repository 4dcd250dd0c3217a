"""Reductions, softmax, ordering, running sums, products and normalisation by numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import AicoreError
from aicore.ir import Op, numpy_dtype
from aicore.ops import normalization as norm
from aicore.ops import reduction as red
from aicore.ops.cumulative import CumProd, CumSum
from aicore.ops.einsum import Einsum
from aicore.ops.matmul import Det, Gemm, MatMul
from aicore.ops.ordering import ArgMax, ArgMin, TopK
from aicore.ops.softmax import Hardmax, LogSoftmax, Softmax

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]
NAN, INF = math.nan, math.inf
LOWEST = np.iinfo(np.int32).min


def array(numbers: Any, dtype: str = "float32") -> Array:
    return np.array(numbers, numpy_dtype(dtype))


def evaluate(reference: Run, op: Op, *operands: Array | None) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        results: tuple[Array, ...] = reference(op, list(operands))
    return results


EMPTY = np.zeros((2, 0), np.float32)
CASES: list[tuple[Op, list[Any], Array]] = [
    (red.ReduceSum((0,)), [np.zeros((0, 2), np.float32)], array([[0.0, 0.0]])),
    (red.ReduceProd((1,), 0), [EMPTY], array([1.0, 1.0])),
    (red.ReduceMax((1,), 0), [EMPTY], array([-INF, -INF])),
    (red.ReduceMin((1,), 0), [EMPTY], array([INF, INF])),
    (red.ReduceMax((1,), 0), [np.zeros((1, 0), np.int32)], array([LOWEST], "int32")),
    (red.ReduceMin((1,), 0), [np.zeros((1, 0), np.uint8)], array([255], "uint8")),
    (red.ReduceMax((1,), 0), [np.zeros((1, 0), bool)], array([False], "bool")),
    (red.ReduceMin((1,), 0), [np.zeros((1, 0), bool)], array([True], "bool")),
    (red.ReduceMean((1,), 0), [EMPTY], array([NAN, NAN])),
    (red.ReduceL1((1,), 0), [EMPTY], array([0.0, 0.0])),
    (red.ReduceL2((1,), 0), [EMPTY], array([0.0, 0.0])),
    (red.ReduceSumSquare((1,), 0), [EMPTY], array([0.0, 0.0])),
    (red.ReduceLogSum((1,), 0), [EMPTY], array([-INF, -INF])),
    (red.ReduceLogSumExp((1,), 0), [EMPTY], array([-INF, -INF])),
    (red.ReduceSum(keepdims=0), [array([[1.0, 2.0], [3.0, 4.0]])], array(10.0)),
    (red.ReduceSum(noop_with_empty_axes=1), [array([[1.0, 2.0]])], array([[1.0, 2.0]])),
    (red.ReduceSumSquare(noop_with_empty_axes=1), [array([[1.0, -2.0]])], array([[1.0, 4.0]])),
    (red.ReduceLogSum(noop_with_empty_axes=1), [array([1.0, math.e])], array([0.0, 1.0])),
    (red.ReduceL2(noop_with_empty_axes=1), [array([-3.0])], array([3.0])),
    (red.ReduceSum(), [array([[1, 2], [3, 4]], "int64"), array([-1], "int64")], array([[3], [7]], "int64")),
    (red.ReduceSum(noop_with_empty_axes=1), [array([1.0, 2.0]), array([], "int64")], array([1.0, 2.0])),
    (red.ReduceSum(), [array([1.0, 2.0]), array([], "int64")], array([3.0])),
    (red.ReduceMean((0,), 0), [array([-3, -4], "int32")], array(-3, "int32")),
    (red.ReduceMean((0,), 0), [array([3, 4], "uint32")], array(3, "uint32")),
    (red.ReduceMean((0,), 0), [np.full(4096, 60000, np.float16)], array(60000, "float16")),
    (red.ReduceL2((0,), 0), [array([3, 4], "int64")], array(5, "int64")),
    (red.ReduceL2((0,), 0), [array([1, 2], "int32")], array(2, "int32")),
    (red.ReduceSum((0,), 0), [array([2**31 - 1, 1], "int32")], array(LOWEST, "int32")),
    (red.ReduceMax((0,), 0), [array([1.0, NAN, 3.0])], array(NAN)),
    (red.ReduceMin((0,), 0), [array([1.0, NAN, 3.0])], array(NAN)),
    (red.ReduceMax((1,), 0), [array([[True, False], [False, False]], "bool")], array([True, False], "bool")),
    (red.ReduceLogSumExp((0,), 0), [array([1000.0, 1000.0])], array(1000 + math.log(2))),
    (red.ReduceLogSumExp((0,), 0), [array([-INF, -INF])], array(-INF)),
    (red.ReduceLogSumExp((0,), 0), [array([INF, 1.0])], array(INF)),
    (Softmax(0), [array([0.0, math.log(3)])], array([0.25, 0.75])),
    (Softmax(), [array([1000.0, 1000.0, -INF])], array([0.5, 0.5, 0.0])),
    (Softmax(), [array([[NAN, 1.0], [0.0, 0.0]])], array([[NAN, NAN], [0.5, 0.5]])),
    (Softmax(), [EMPTY], EMPTY),
    (LogSoftmax(), [array([0.0, math.log(3)])], array([math.log(0.25), math.log(0.75)])),
    (Hardmax(0), [array([[3.0, 1.0], [3.0, 2.0]])], array([[1.0, 0.0], [0.0, 1.0]])),
    (ArgMax(1, 0), [array([[2, 9, 9, 1]], "int32")], array([1], "int64")),
    (ArgMax(1, 1, 1), [array([[2, 9, 9, 1]], "int32")], array([[2]], "int64")),
    (ArgMin(-1, 0, 1), [array([3.0, 1.0, 1.0])], array(2, "int64")),
    (ArgMax(0, 0), [array([1.0, NAN, INF])], array(1, "int64")),
    (CumSum(axis=0), [array([1.0, 2.0, 3.0])], array([1.0, 3.0, 6.0])),
    (CumSum(exclusive=1, axis=0), [array([1.0, 2.0, 3.0])], array([0.0, 1.0, 3.0])),
    (CumSum(reverse=1, axis=0), [array([1.0, 2.0, 3.0])], array([6.0, 5.0, 3.0])),
    (CumSum(1, 1, 0), [array([1, 2, 3], "int32")], array([5, 3, 0], "int32")),
    (CumSum(), [array([[1.0, 2.0]]), array(-1, "int32")], array([[1.0, 3.0]])),
    (CumProd(axis=0), [array([1.0, 2.0, 3.0])], array([1.0, 2.0, 6.0])),
    (CumProd(1, 0, 0), [array([1.0, 2.0, 3.0])], array([1.0, 1.0, 2.0])),
    (CumProd(1, 1, 0), [array([1.0, 2.0, 3.0])], array([6.0, 3.0, 1.0])),
    (MatMul(), [array([1.0, 2.0]), array([[3.0], [4.0]])], array([11.0])),
    (MatMul(), [array([1, 2], "int32"), array([3, 4], "int32")], array(11, "int32")),
    (MatMul(), [np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)], np.zeros((2, 3), np.float32)),
    (Gemm(2.0, 0.5, 1, 1), [array([[1.0], [2.0]]), array([[3.0, 4.0]]), array([10.0])], array([[27.0]])),
    (Gemm(beta=2.0), [np.zeros((2, 0), np.float32), np.zeros((0, 1), np.float32), array([3.0])], array([[6.0], [6.0]])),
    (Gemm(0.5), [array([[3]], "int32"), array([[-1]], "int32")], array([[-1]], "int32")),
    (Gemm(), [array([[3]], "int64"), array([[4]], "int64"), array([[1]], "int64")], array([[13]], "int64")),
    (Det(), [array([[1.0, 2.0], [3.0, 4.0]])], array(-2.0)),
    (Einsum("ij->ji"), [array([[1, 2]], "int8")], array([[1], [2]], "int8")),
    (Einsum("ii"), [array([[1.0, 2.0], [3.0, 4.0]])], array(5.0)),
    (Einsum("ba"), [array([[1.0, 2.0], [3.0, 4.0]])], array([[1.0, 3.0], [2.0, 4.0]])),
    (norm.LpNormalization(0, 1), [array([[1.0, 0.0], [-3.0, 0.0]])], array([[0.25, 0.0], [-0.75, 0.0]])),
    (norm.LpNormalization(), [array([3.0, -4.0])], array([0.6, -0.8])),
    (norm.MeanVarianceNormalization((0,)), [array([1.0, 3.0])], array([-1.0, 1.0])),
    # squares 1, 4, 9, 16; with size 2 a window holds its own channel and the next
    (norm.LRN(2, 2.0, 1.0, 1.0), [array([[1.0, 2.0, 3.0, 4.0]])], array([[1 / 6, 2 / 14, 3 / 26, 4 / 17]])),
    (norm.RMSNormalization(-1, 0.0), [array([[3.0, 4.0]]), array([1.0, 2.0])],
     array([[3 / math.sqrt(12.5), 8 / math.sqrt(12.5)]])),
    (norm.InstanceNormalization(0.0), [array([[[1.0, 3.0], [5.0, 5.5]]]), array([2.0, 1.0]), array([0.5, 0.0])],
     array([[[-1.5, 2.5], [-1.0, 1.0]]])),
    (norm.GroupNormalization(1, 0.0), [array([[[1.0], [3.0]]]), array([2.0, 1.0]), array([0.5, 0.0])],
     array([[[-1.5], [1.0]]])),
    (norm.LayerNormalization(0, 0.0), [array([1.0, 3.0]), array([2.0, 1.0])], array([-2.0, 1.0])),
    (norm.BatchNormalization(0.0), [array([[5.0], [7.0]]), *(array([v]) for v in (2.0, 1.0, 3.0, 4.0))],
     array([[3.0], [5.0]])),
    (norm.BatchNormalization(0.0), [array([5.0, 7.0]), *(array([v]) for v in (2.0, 1.0, 3.0, 4.0))],
     array([3.0, 5.0])),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}")
def test_by_hand(case: tuple[Op, list[Any], Array], reference: Run) -> None:
    op, operands, wanted = case
    (got,) = evaluate(reference, op, *operands)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=2e-6, atol=1e-7)


class TestTopK:
    def test_of_equals_the_lower_index_comes_first(self, reference: Run) -> None:
        x = array([1, 3, 3, 2, 3], "int32")
        values, indices = evaluate(reference, TopK(k=4), x)
        assert (values.tolist(), indices.tolist()) == ([3, 3, 3, 2], [1, 2, 4, 3])
        values, indices = evaluate(reference, TopK(largest=0, k=3), array([2, 1, 1, 2], "uint8"))
        assert (values.tolist(), indices.tolist()) == ([1, 1, 2], [1, 2, 0])

    def test_nan_is_the_largest_number(self, reference: Run) -> None:
        x = array([1.0, NAN, INF, -INF])
        assert evaluate(reference, TopK(k=4), x)[1].tolist() == [1, 2, 0, 3]
        assert evaluate(reference, TopK(largest=0, k=4), x)[1].tolist() == [3, 0, 2, 1]

    def test_a_computed_k(self, reference: Run) -> None:
        x = array([[1.0, 5.0], [7.0, 2.0]])
        values, indices = evaluate(reference, TopK(axis=0), x, array([1], "int64"))
        assert (values.tolist(), indices.tolist()) == ([[7.0, 5.0]], [[1, 0]])

    def test_a_computed_k_that_is_too_large(self, reference: Run) -> None:
        with pytest.raises((ValueError, AicoreError), match="k is 3, axis 0 has 2 elements"):
            evaluate(reference, TopK(), array([1.0, 2.0]), array([3], "int64"))


def test_a_computed_axis_that_is_out_of_range(reference: Run) -> None:
    with pytest.raises((ValueError, AicoreError), match="axis 2 is out of range for rank 1"):
        evaluate(reference, red.ReduceSum(), array([1.0]), array([2], "int64"))


class TestBatchNormalization:
    X = array([[[1.0, 3.0]], [[5.0, 7.0]]])  # mean 4, variance 5

    def outputs(self, reference: Run, momentum: float) -> tuple[Array, ...]:
        op = norm.BatchNormalization(0.0, momentum, 1)
        return evaluate(reference, op, self.X, array([1.0]), array([0.0]), array([10.0]), array([20.0]))

    def test_running_statistics(self, reference: Run) -> None:
        _, mean, variance = self.outputs(reference, 0.75)
        np.testing.assert_allclose(mean, [0.75 * 10 + 0.25 * 4])
        np.testing.assert_allclose(variance, [0.75 * 20 + 0.25 * 5])

    def test_y_does_not_depend_on_momentum(self, reference: Run) -> None:
        y = self.outputs(reference, 0.75)[0]
        np.testing.assert_array_equal(y, self.outputs(reference, 0.1)[0])
        np.testing.assert_allclose(y, (self.X - 4) / math.sqrt(5), rtol=1e-6)


class TestLayerNormalization:
    def test_statistics(self, reference: Run) -> None:
        op = norm.LayerNormalization(1, 0.5, statistics=True)
        y, mean, inverse = evaluate(reference, op, array([[1.0, 3.0]], "float16"), array([1.0, 2.0], "float16"))
        assert (y.dtype, mean.dtype, inverse.dtype) == (np.float16, np.float32, np.float32)
        np.testing.assert_allclose(mean, [[2.0]])
        np.testing.assert_allclose(inverse, [[1 / math.sqrt(1.5)]], rtol=1e-6)
        np.testing.assert_allclose(y, [[-0.8165, 1.633]], rtol=1e-3)

    def test_the_type_of_statistics(self, reference: Run) -> None:
        op = norm.LayerNormalization(stash_type="bfloat16", statistics=True)
        _, mean, _ = evaluate(reference, op, array([[1.0, 3.0]]), array([1.0, 2.0]))
        assert mean.dtype == numpy_dtype("bfloat16")

    def test_a_large_mean(self, reference: Run) -> None:
        (y,) = evaluate(reference, norm.LayerNormalization(), array([10000.0, 10002.0]), array([1.0, 1.0]))
        np.testing.assert_allclose(y, [-1.0, 1.0], rtol=1e-5)
