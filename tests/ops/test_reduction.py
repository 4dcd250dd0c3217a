"""Types and resolved fields of reductions, softmax, ordering, running sums, products and normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder, Op, TensorType, Value, as_tuple, is_unknown, symbol
from aicore.ops import CORE
from aicore.ops import normalization as norm
from aicore.ops.cumulative import CumProd, CumSum
from aicore.ops.einsum import Einsum, parse_equation
from aicore.ops.matmul import Det, Gemm, MatMul
from aicore.ops.ordering import ArgMax, ArgMin, TopK
from aicore.ops.reduction import ReduceL2, ReduceLogSum, ReduceMax, ReduceMean, ReduceProd, ReduceSum
from aicore.ops.softmax import Hardmax, LogSoftmax, Softmax

N, M = symbol("N"), symbol("M")
FAMILIES = ("reduction", "softmax", "ordering", "cumulative", "matmul", "einsum", "normalization")
F = "float32"


def build(op: Op, *operands: Any) -> tuple[Op, tuple[Value, ...]]:
    """(resolved op, outputs); operands are shapes of float32 (None is any), types, values, or arrays for constants."""
    builder = Builder()

    def value(given: Any) -> Value:
        if isinstance(given, Value):
            return given
        if isinstance(given, np.ndarray):
            return builder.constant(given)
        tensor = given if isinstance(given, TensorType) else TensorType(F, given)
        return Value("x", tensor)

    results = as_tuple(builder.apply(op, *map(value, operands)))
    return builder.nodes[-1].op, results


def shape(op: Op, *operands: Any) -> Any:
    return build(op, *operands)[1][0].shape


@pytest.mark.parametrize("cls", [cls for cls in CORE.values() if cls.__module__.rsplit(".", 1)[-1] in FAMILIES])
def test_every_op_has_samples_that_infer(cls: type[Op]) -> None:
    samples = list(cls.samples(np.random.default_rng(0)))
    assert len(samples) >= 2
    for sample in samples:
        builder = Builder()
        values = [None if a is None else builder.constant(np.asarray(a)) for a in sample.inputs]
        results = as_tuple(builder.apply(sample.op, *values))
        assert len(results) == builder.nodes[-1].op.n_outputs()
        assert all(value.type.is_static for value in results)
        flops, moved = builder.nodes[-1].op.cost(*builder.nodes[-1].inputs)
        assert min(flops, moved) >= 0


@pytest.mark.parametrize("cls", [ReduceSum, ReduceMax, ReduceMean, ReduceLogSum, ReduceL2])
class TestReductions:
    def test_axes(self, cls: Any) -> None:
        assert shape(cls(), (2, N, 4)) == (1, 1, 1)
        assert shape(cls(keepdims=0), (2, N, 4)) == ()
        assert shape(cls((-1, 0)), (2, N, 4)) == (1, N, 1)
        assert shape(cls((-1, 0), 0), (2, N, 4)) == (N,)
        assert shape(cls(noop_with_empty_axes=1), (2, N, 4)) == (2, N, 4)
        assert shape(cls((), 1, 1), (2, N, 4)) == (2, N, 4)
        assert shape(cls((), 1, 0), (2, N)) == (1, 1)
        assert shape(cls((0,)), None) is None

    def test_fields_are_sorted_and_counted_from_the_front(self, cls: Any) -> None:
        assert build(cls((-1, 0)), (2, 3, 4))[0] == cls((0, 2))
        assert build(cls(), (2, 3))[0] == cls((0, 1))
        assert build(cls(noop_with_empty_axes=1), (2, 3))[0] == cls((), 1, 1)
        assert build(cls(), ())[0] == cls(())

    def test_constant_axes_become_a_field(self, cls: Any) -> None:
        op, _ = build(cls(), (2, 3), np.array([-1]))
        assert op == cls((1,))

    def test_computed_axes(self, cls: Any) -> None:
        one = shape(cls(), (2, 3), TensorType("int64", (1,)))
        assert len(one) == 2
        assert all(map(is_unknown, one))
        assert len(shape(cls(keepdims=0), (2, 3), TensorType("int64", (1,)))) == 1
        assert shape(cls(keepdims=0), (2, 3), TensorType("int64", (N,))) is None
        assert shape(cls(), None, TensorType("int64", (1,))) is None

    def test_refusals(self, cls: Any) -> None:
        with pytest.raises(InferenceError, match="axis 2 is out of range for rank 2"):
            build(cls((2,)), (2, 3))
        with pytest.raises(InferenceError, match="name one axis twice"):
            build(cls((1, -1)), (2, 3))
        with pytest.raises(InferenceError, match="has element type string"):
            build(cls(), TensorType("string", (2,)))
        with pytest.raises(InferenceError, match="has element type int32, wants one of int64"):
            build(cls(), (2, 3), TensorType("int32", (1,)))


def test_product_of_dims() -> None:
    dims = Value("dims", TensorType("int64", (3,)), dims=(N, 2, M))
    assert build(ReduceProd((0,), 0), dims)[1][0].dims == (N * M * 2,)
    assert build(ReduceProd(noop_with_empty_axes=1), dims)[1][0].dims is None
    assert build(ReduceProd(), dims, TensorType("int64", (1,)))[1][0].dims is None
    large = Value("dims", TensorType("int32", (2,)), dims=(2**30, 4))
    assert build(ReduceProd((0,)), large)[1][0].dims is None


@pytest.mark.parametrize("cls", [Softmax, LogSoftmax, Hardmax, norm.LpNormalization])
def test_along_an_axis(cls: Any) -> None:
    op, (y,) = build(cls(), (2, N))
    assert (op, y.shape) == (cls(1), (2, N))
    assert build(cls(), None)[0] == cls()
    with pytest.raises(InferenceError, match="axis 2 is out of range for rank 2"):
        build(cls(2), (2, N))
    with pytest.raises(InferenceError, match="has element type int64"):
        build(cls(), TensorType("int64", (2,)))


@pytest.mark.parametrize("cls", [ArgMax, ArgMin])
def test_index_of_an_extreme(cls: Any) -> None:
    op, (y,) = build(cls(-1), (2, N))
    assert (op, y.type) == (cls(1), TensorType("int64", (2, 1)))
    assert shape(cls(0, 0), (2, N)) == (N,)
    assert shape(cls(), None) is None
    with pytest.raises(InferenceError, match="axis 0 has no elements to choose from"):
        build(cls(), (0, 3))
    with pytest.raises(InferenceError, match="axis 1 is out of range"):
        build(cls(1), (3,))
    with pytest.raises(InferenceError, match="has element type bool"):
        build(cls(), TensorType("bool", (3,)))


class TestTopK:
    def test_k(self) -> None:
        op, (values, indices) = build(TopK(), (2, 5), np.array([3]))
        assert op == TopK(1, k=3)
        assert (values.type, indices.type) == (TensorType(F, (2, 3)), TensorType("int64", (2, 3)))
        computed = shape(TopK(), (2, 5), TensorType("int64", (1,)))
        assert computed[0] == 2
        assert is_unknown(computed[1])
        dims = Value("k", TensorType("int64", (1,)), dims=(N,))
        assert shape(TopK(), (2, 5), dims) == (2, N)
        assert [v.shape for v in build(TopK(k=1), None)[1]] == [None, None]

    def test_refusals(self) -> None:
        with pytest.raises(InferenceError, match="k is 6, axis 1 has 5 elements"):
            build(TopK(k=6), (2, 5))
        with pytest.raises(InferenceError, match="k is -1"):
            build(TopK(k=-1), (2, 5))
        with pytest.raises(InferenceError, match="wants k, once"):
            build(TopK(), (2, 5))
        with pytest.raises(InferenceError, match="wants k, once"):
            build(TopK(k=1), (2, 5), TensorType("int64", (1,)))
        with pytest.raises(InferenceError, match="wants one number"):
            build(TopK(), (2, 5), TensorType("int64", (2,)))
        with pytest.raises(InferenceError, match="has element type int32"):
            build(TopK(), (2, 5), TensorType("int32", (1,)))
        with pytest.raises(InferenceError, match="has element type bool"):
            build(TopK(k=1), TensorType("bool", (5,)))
        with pytest.raises(InferenceError, match="axis 2 is out of range"):
            build(TopK(2, k=1), (2, 5))


@pytest.mark.parametrize("cls", [CumSum, CumProd])
def test_running(cls: Any) -> None:
    assert build(cls(), (2, N), np.array(-1))[0] == cls(axis=1)
    assert build(cls(), (2, N), np.array([0], np.int32))[0] == cls(axis=0)
    assert build(cls(), (2, N), TensorType("int64", ()))[0] == cls()
    assert build(cls(axis=-1), None)[0] == cls(axis=-1)
    with pytest.raises(InferenceError, match="axis 2 is out of range"):
        build(cls(axis=2), (2, N))
    with pytest.raises(InferenceError, match="wants an axis, once"):
        build(cls(), (2, N))
    with pytest.raises(InferenceError, match="has element type float32, wants one of int32, int64"):
        build(cls(), (2, N), ())
    with pytest.raises(InferenceError, match="has element type int8"):
        build(cls(axis=0), TensorType("int8", (2,)))


class TestMatMul:
    @pytest.mark.parametrize(
        ("a", "b", "expected"),
        [
            ((3, 4), (4, 5), (3, 5)),
            ((N, 4), (4, M), (N, M)),
            ((2, 1, 3, 4), (5, 4, 2), (2, 5, 3, 2)),
            ((4,), (4,), ()),
            ((4,), (2, 4, 3), (2, 3)),
            ((2, 3, 4), (4,), (2, 3)),
            ((3, N), (M, 5), (3, 5)),
            (None, (4, 5), None),
        ],
    )
    def test_shapes(self, a: Any, b: Any, expected: Any) -> None:
        assert shape(MatMul(), a, b) == expected

    @pytest.mark.parametrize(
        ("a", "b", "message"),
        [
            ((4, 8), (6, 8), r"inner dimensions differ: \(4, 8\) @ \(6, 8\)"),
            ((4, 8), (6,), r"inner dimensions differ: \(4, 8\) @ \(6,\)"),
            ((), (6,), "wants rank 1 or more"),
            ((2, 3, 4), (3, 4, 5), "shapes do not broadcast"),
            (TensorType("int8", (2, 2)), TensorType("int8", (2, 2)), "has element type int8"),
            (TensorType("int32", (2, 2)), (2, 2), "operands have different dtypes"),
        ],
    )
    def test_refusals(self, a: Any, b: Any, message: str) -> None:
        with pytest.raises(InferenceError, match=message):
            build(MatMul(), a, b)

    def test_cost(self) -> None:
        op, _ = build(MatMul(), (3, 4), (4, 5))
        a, b = Value("a", TensorType(F, (3, 4))), Value("b", TensorType(F, (4, 5)))
        assert op.cost(a, b) == (120, 4 * (12 + 20 + 15))


class TestGemm:
    def test_shapes(self) -> None:
        assert shape(Gemm(), (N, 4), (4, 5), (5,)) == (N, 5)
        assert shape(Gemm(transA=1, transB=1), (4, N), (5, 4)) == (N, 5)
        assert shape(Gemm(), (N, 4), (4, 5), ()) == (N, 5)
        assert shape(Gemm(), None, (4, 5)) is None

    @pytest.mark.parametrize(
        ("op", "operands", "message"),
        [
            (Gemm(), [(3, 4), (5, 6)], r"inner dimensions differ: \(3, 4\) @ \(5, 6\)"),
            (Gemm(transB=1), [(3, 4), (4, 5)], r"inner dimensions differ: \(3, 4\) @ \(4, 5\)ᵀ"),
            (Gemm(), [(2, 3, 4), (4, 5)], "has rank 3, wants 2"),
            (Gemm(), [(3, 4), (4,)], "has rank 1, wants 2"),
            (Gemm(), [(3, 4), (4, 5), (3,)], r"c \(3,\) does not broadcast to \(3, 5\)"),
            (Gemm(), [(1, 4), (4, 5), (2, 5)], r"c \(2, 5\) does not broadcast to \(1, 5\)"),
            (Gemm(), [(3, 4), (4, 5), (1, 3, 5)], r"c \(1, 3, 5\) does not broadcast to \(3, 5\)"),
            (Gemm(), [TensorType("int8", (3, 4)), (4, 5)], "has element type int8"),
            (Gemm(), [(3, 4), (4, 5), TensorType("int64", (5,))], "operands have different dtypes"),
        ],
        ids=str,
    )
    def test_refusals(self, op: Op, operands: list[Any], message: str) -> None:
        with pytest.raises(InferenceError, match=message):
            build(op, *operands)


def test_det() -> None:
    assert shape(Det(), (N, 3, 3)) == (N,)
    assert shape(Det(), None) is None
    for wrong in ((3,), (2, 3)):
        with pytest.raises(InferenceError, match="wants square matrices"):
            build(Det(), wrong)
    with pytest.raises(InferenceError, match="has element type int64"):
        build(Det(), TensorType("int64", (2, 2)))


class TestEinsum:
    @pytest.mark.parametrize(
        ("equation", "operands", "expected"),
        [
            ("ij,jk->ik", [(N, 4), (4, M)], (N, M)),
            ("...ij,...jk", [(2, 1, 3, 4), (5, 4, 6)], (2, 5, 3, 6)),
            ("ba", [(2, 3)], (3, 2)),
            ("ii->i", [(3, 3)], (3,)),
            ("ii", [(3, 3)], ()),
            ("A b -> bA", [(2, 3)], (3, 2)),
            ("i,i->", [None, (3,)], None),
        ],
    )
    def test_shapes(self, equation: str, operands: list[Any], expected: Any) -> None:
        assert shape(Einsum(equation), *operands) == expected

    def test_the_output_is_written_out(self) -> None:
        assert build(Einsum(" bA , ac "), (2, 3), (4, 5))[0] == Einsum("bA,ac->Aabc")
        assert parse_equation("...i,i") == (["...i", "i"], "...")

    @pytest.mark.parametrize(
        ("equation", "operands", "message"),
        [
            ("ij,jk->ik", [(2, 3)], "has 2 terms, not 1"),
            ("ij->i1", [(2, 3)], "has a malformed term 'i1'"),
            ("i.j->i", [(2, 3)], "has a malformed term 'i.j'"),
            ("......i->i", [(2, 3)], "has a malformed term"),
            ("ij->k", [(2, 3)], "has an output label that no term has"),
            ("ij->ii", [(2, 3)], "has an output that repeats a label"),
            ("...i->i", [(2, 3)], "has an output without the ellipsis"),
            ("ijk->i", [(2, 3)], r"term 'ijk' does not fit float32\[2,3\]"),
            ("i->i", [(2, 3)], r"term 'i' does not fit float32\[2,3\]"),
            ("ij,jk->ik", [(2, 3), (4, 5)], "shapes do not broadcast"),
            ("i->i", [TensorType("bool", (2,))], "has element type bool"),
            ("i,i->i", [(2,), TensorType("int8", (2,))], "operands have different dtypes"),
        ],
    )
    def test_refusals(self, equation: str, operands: list[Any], message: str) -> None:
        with pytest.raises(InferenceError, match=message):
            build(Einsum(equation), *operands)


class TestNormalization:
    def test_shapes(self) -> None:
        x = (N, 3, 4)
        c = ((3,),) * 4
        assert shape(norm.BatchNormalization(), x, *c) == x
        assert [v.shape for v in build(norm.BatchNormalization(training_mode=1), x, *c)[1]] == [x, (3,), (3,)]
        assert shape(norm.BatchNormalization(), (7,), *((1,),) * 4) == (7,)
        op, results = build(norm.LayerNormalization(-2, statistics=True), x, (3, 4))
        assert op == norm.LayerNormalization(1, statistics=True)
        assert [v.shape for v in results] == [x, (N, 1, 1), (N, 1, 1)]
        assert build(norm.LayerNormalization(), None, (4,))[1][0].shape is None
        _, (y,) = build(norm.RMSNormalization(), x, TensorType("float16", (4,)))
        assert y.type == TensorType("float16", x)
        assert shape(norm.GroupNormalization(3), x, (3,), (3,)) == x
        assert shape(norm.GroupNormalization(3), None, (3,), (3,)) is None

    @pytest.mark.parametrize(
        ("op", "operands", "message"),
        [
            (norm.BatchNormalization(), [(2, 3), (4,), (3,), (3,), (3,)], r"%x has shape \(4,\), x has 3 channels"),
            (norm.BatchNormalization(), [(2, 3), (1, 3), (3,), (3,), (3,)], "has rank 2, wants 1"),
            (norm.BatchNormalization(), [(), (1,), (1,), (1,), (1,)], "x has rank 0"),
            (norm.BatchNormalization(), [(7,), (7,), (7,), (7,), (7,)], "x has 1 channels"),
            (
                norm.BatchNormalization(),
                [(2, 3), (3,), TensorType("float16", (3,)), (3,), (3,)],
                "operands have different dtypes: float32, float16",
            ),
            (norm.LayerNormalization(), [(2, 3), (2,)], r"%x \(2,\) does not broadcast to \(2, 3\)"),
            (norm.LayerNormalization(), [(2, 3), (3,), (1, 2, 3)], r"%x \(1, 2, 3\) does not broadcast"),
            (norm.LayerNormalization(2), [(2, 3), (3,)], "axis 2 is out of range"),
            (norm.LayerNormalization(stash_type="int8"), [(2, 3), (3,)], "stash_type is int8, wants float32 or"),
            (norm.RMSNormalization(), [(2, 3), (2,)], "does not broadcast"),
            (norm.RMSNormalization(2), [(2, 3), (3,)], "axis 2 is out of range"),
            (norm.RMSNormalization(stash_type="int8"), [(2, 3), (3,)], "stash_type is int8"),
            (norm.InstanceNormalization(), [(3,), (3,), (3,)], r"wants \(n, c, ...\)"),
            (norm.InstanceNormalization(), [(2, 3), (2,), (3,)], "x has 3 channels"),
            (norm.GroupNormalization(2), [(2, 3), (3,), (3,)], "3 channels do not form 2 equal groups"),
            (norm.GroupNormalization(0), [(2, 3), (3,), (3,)], "num_groups is 0"),
            (norm.GroupNormalization(stash_type="int8"), [(2, 3), (3,), (3,)], "stash_type is int8"),
            (norm.LpNormalization(p=3), [(2, 3)], "p is 3, wants 1 or 2"),
            (norm.LRN(0), [(2, 3)], "size is 0"),
            (norm.LRN(3), [(3,)], r"wants \(n, c, ...\)"),
            (norm.MeanVarianceNormalization(), [(2, 3)], "axis 2 is out of range"),
            (norm.MeanVarianceNormalization(), [TensorType("int8", (2, 3, 4, 5))], "has element type int8"),
        ],
        ids=str,
    )
    def test_refusals(self, op: Op, operands: list[Any], message: str) -> None:
        with pytest.raises(InferenceError, match=message):
            build(op, *operands)
