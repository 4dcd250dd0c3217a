"""The table of tolerances: complete, tight, and with a reason for each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import aicore.ops as ops
from aicore.errors import PluginError
from aicore.ir import Namespace, Op, Sample, TensorType, Value
from aicore.numerics.tolerances import TABLE, Magnitude
from aicore.ops import CORE
from aicore.plugins import PluginRegistry
from aicore.testing import Case, Reference, tolerance_of
from tests.testing.backends import Array

U32, U16 = 2.0**-24, 2.0**-11
TINY = 2.0**-126


@pytest.fixture(scope="module")
def reference(registry: PluginRegistry) -> Reference:
    return Reference(registry)


def allowed(reference: Reference, op: Op, *inputs: Array) -> tuple[Array, Array]:
    case = Case(type(op).__name__, 0, Sample(op, inputs), "", "plain")
    node = case.node()
    found = reference.expected(node.op, inputs, [value.dtype for value in node.outputs])
    return found.arrays[0], np.broadcast_to(found.allowed[0], found.arrays[0].shape)


def test_every_primitive_op_has_a_row() -> None:
    missing = [name for name, cls in CORE.items() if name not in TABLE and cls.decompose is Op.decompose]
    assert missing == []
    assert set(TABLE) <= set(CORE)


def test_every_row_has_a_reason() -> None:
    assert all(len(row.reason) > 20 for row in TABLE.values())


def test_copies_are_exact(reference: Reference) -> None:
    _, limit = allowed(reference, ops.Relu(), np.float32([1, -1]))
    assert limit.tolist() == [0, 0]


def test_one_rounding_is_half_a_unit(reference: Reference) -> None:
    a, b = np.float32([1, 3]), np.float32([2**-30, 1])
    want, limit = allowed(reference, ops.Add(), a, b)
    assert want.tolist() == [1 + 2**-30, 4]  # in float64, so unrounded
    np.testing.assert_allclose(limit, [U32, 4 * U32], rtol=1e-6)


def test_sixteen_bits_are_rounded_once_at_the_end(reference: Reference) -> None:
    ones = np.ones((1, 64), np.float16)
    want, limit = allowed(reference, ops.MatMul(), ones, ones.T)
    assert want.tolist() == [[64]]
    assert limit.item() == pytest.approx(U16 * 64 + (2 * 64 + 4) * U32 * 64)


def test_near_zero_the_spacing_of_subnormals_counts(reference: Reference) -> None:
    tiny = np.float16([6e-8])
    _, limit = allowed(reference, ops.Mul(), tiny, np.float16([0.5]))
    assert limit.item() == pytest.approx(2.0**-25, rel=1e-2)
    _, limit = allowed(reference, ops.Mul(), tiny.astype(np.float32), np.float32([1e-35]))
    assert limit.item() == pytest.approx(TINY, rel=1e-2)


def test_a_sum_is_judged_by_its_absolute_terms(reference: Reference) -> None:
    want, limit = allowed(reference, ops.ReduceSum(axes=(0,), keepdims=0), np.float32([1000, -1000, 1]))
    assert want == 1
    assert limit == pytest.approx((3 + 4) * U32 * 2001 + U32, rel=1e-3)


def test_the_condition_sees_what_subtracting_the_mean_cancels(reference: Reference) -> None:
    scale = np.ones(4, np.float32)
    near, far = np.float32([[1, 2, 3, 4]]), np.float32([[1001, 1002, 1003, 1004]])
    limits = [allowed(reference, ops.LayerNormalization(), x, scale)[1].max() for x in (near, far)]
    assert 50 < limits[1] / limits[0] < 2000


def test_the_condition_sees_terms_that_cancel_in_every_element(reference: Reference) -> None:
    """x + y of y = -x, where x and y may have been rounded: random directions alone move many pairs alike."""

    @dataclass(frozen=True)
    class Both(Op):
        def decompose(self, op: Namespace, x: Value, y: Value, z: Value) -> Value:
            total: Value = op.Add(op.Add(x, y), z)
            return total

    x = np.linspace(1, 2, 1000).astype(np.float16)
    want, limit = allowed(reference, Both(), x, -2 * x, x)
    assert not want.any()
    np.testing.assert_array_less(4 * U16 * 4 * np.abs(x.astype(np.float64)) * (1 - 1e-4), limit)


def test_nan_spoils_only_its_own_results(reference: Reference) -> None:
    x = np.float32([[1, np.nan], [3, 4]])
    want, limit = allowed(reference, ops.ReduceSum(axes=(1,), keepdims=0), x)
    np.testing.assert_array_equal(want, [np.nan, 7])
    assert 0 < limit[1] < 1e-5


def test_decisions_fall_where_the_op_s_own_type_has_the_bound(reference: Reference) -> None:
    low = np.float32(0.1)
    want, _ = allowed(reference, ops.Clip(min=0.1), np.float32([0, 1]))
    assert want.dtype == np.float32
    assert want[0] == low


def test_a_subclass_has_its_base_s_row_and_an_unknown_op_the_most_general() -> None:
    @dataclass(frozen=True)
    class MyRelu(ops.Relu):
        """As Relu."""

    @dataclass(frozen=True)
    class Unheard(Op):
        def infer(self, x: Value) -> TensorType:  # type: ignore[override]
            return x.type

    assert tolerance_of(MyRelu()) is TABLE["Relu"]
    assert tolerance_of(Unheard()).magnitude is Magnitude.CONDITION
    assert "parts" in tolerance_of(ops.ConvAct(ops.Conv(), ops.Relu())).reason


def test_a_reference_needs_the_cpu() -> None:
    with pytest.raises(PluginError, match="needs a reference: install a plugin that drives cpu"):
        Reference(PluginRegistry.from_modules({}))


def test_an_op_that_takes_no_float64_is_computed_in_its_own_type(reference: Reference) -> None:
    x = np.ones((1, 1, 2, 2), np.float32)
    scales = np.float32([1, 1, 2, 2])
    op = ops.Resize(mode="linear")
    found = reference.expected(op, (x, None, scales), ["float32"])
    assert found.wide  # its data can be, although scales must be float32
    assert found.arrays[0].dtype == np.float64


def updated(count: int) -> tuple[Op, list[Array]]:
    """An update of many tensors, and operands for it: every parameter is almost what is subtracted from it."""
    op = ops.SGDUpdate(count=count, weight_decay=0.5, momentum=0.5)
    rng = np.random.default_rng(0)
    p, buffer = (np.float32(rng.uniform(1, 2, (count, 4000))) for _ in range(2))
    # p - 0.1 (0.5 buf + g + 0.5 p) is about 0
    g = np.float32(10.0 * p - 0.5 * buffer - 0.5 * p)
    return op, [np.array(0.1, np.float32), np.array(1), *p, *g, *buffer]


@pytest.mark.parametrize("count", [1, 4, 12])
def test_updates_may_be_off_by_what_is_added_up(count: int, reference: Reference) -> None:
    """However many tensors there are, and for each element."""
    op, operands = updated(count)
    rate, step, *tensors = operands
    found = reference.expected(op, [rate, step, None, *tensors], ["float32"] * (2 * count))
    for i in range(count):
        p, g, buffer = (np.float64(tensors[i + k * count]) for k in range(3))
        left = p - np.float64(rate) * (0.5 * buffer + g + 0.5 * p)
        np.testing.assert_allclose(found.arrays[i], left, atol=1e-12)
        # |p| |1 - 0.05|, 0.1 |g|, 0.1 * 0.5 |buf|, and the rate's |0.1 (0.5 buf + g + 0.5 p)|, which is about |p|.
        terms = np.abs(left) + 0.95 * p + 0.1 * np.abs(g) + 0.05 * buffer + np.abs(p - left)
        roundings = 16 + 6
        np.testing.assert_allclose(found.allowed[i], U32 * np.abs(left) + roundings * U32 * terms, rtol=1e-4)


def test_an_error_beyond_what_is_added_up_is_found(reference: Reference) -> None:
    op, (rate, step, *tensors) = updated(1)
    expected = reference.expected(op, [rate, step, None, *tensors], ["float32"] * 2)
    right = [np.asarray(array, np.float32) for array in expected.arrays]
    assert not expected.fault(right)
    near, far = (np.asarray(right[0] + error, np.float32) for error in (20 * U32, 1e-4))
    assert not expected.fault([near, right[1]])
    assert "should be" in expected.fault([far, right[1]])
