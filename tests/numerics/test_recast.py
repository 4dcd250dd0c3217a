"""Ops and graphs in other element types."""

from __future__ import annotations

import numpy as np
import pytest

import aicore.ops as ops
from aicore.errors import InferenceError
from aicore.ir import Buffer, Builder
from aicore.numerics.recast import WIDE, Recast

HALF = Recast({"float32": "float16"})


def test_arrays_are_rounded() -> None:
    result = HALF.array(np.float32([1, 1e9, 1 / 3]))
    assert result.dtype == np.float16
    assert result.tolist() == [1, np.inf, np.float16(1 / 3)]


def test_an_array_of_another_type_stays_itself() -> None:
    array = np.arange(3)
    assert HALF.array(array) is array


def test_dtypes_constants_and_ops_in_fields() -> None:
    assert HALF.op(ops.Cast("float32")) == ops.Cast("float16")
    assert HALF.op(ops.Cast("int8")) == ops.Cast("int8")
    constant = HALF.op(ops.ConstantOfShape(Buffer(np.float32([2])), (3,)))
    assert isinstance(constant, ops.ConstantOfShape)
    assert constant.value is not None
    assert constant.value.array.dtype == np.float16
    relu = ops.ConvAct(ops.Conv(), ops.Relu())
    assert HALF.op(relu) is relu


def test_fields_that_are_kept() -> None:
    op = ops.LayerNormalization()
    assert Recast({"float32": "float16"}, frozenset({"stash_type"})).op(op) is op
    assert HALF.op(op) != op


def test_a_graph_in_float64() -> None:
    b = Builder()
    x = b.input("x", "float32", ("n", 2))
    y = b.Add(b.MatMul(x, b.constant(np.ones((2, 2), np.float32))), b.Cast(b.Shape(x), to="float32"))
    wide = WIDE.graph(b.graph((x,), {"y": y, "c": b.constant(np.float32(1))}))
    assert wide.inputs[0].dtype == "float64"
    assert [value.dtype for _, value in wide.outputs] == ["float64", "float64"]
    assert wide.inputs[0].shape == x.shape


def test_bodies_are_recast_too() -> None:
    sample = next(iter(ops.Scan.samples(np.random.default_rng(0))))
    scan = WIDE.op(sample.op)
    assert isinstance(scan, ops.Scan)
    assert {value.dtype for value in scan.body.inputs} == {"float64"}


def test_what_an_op_does_not_take_is_an_error() -> None:
    b = Builder()
    x = b.input("x", "int32", (2,))
    with pytest.raises(InferenceError, match="BitwiseNot"):
        Recast({"int32": "float32"}).graph(b.graph((x,), {"y": b.BitwiseNot(x)}))
