"""Cases: of every op, in all types that it takes, in odd layouts, at the edges, and the same everywhere."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import aicore.ops as ops
from aicore.ops import CORE
from aicore.testing import Case, conformance_cases
from aicore.testing.cases import KINDS, kind_of
from aicore.testing.layouts import LAYOUTS, lay_out, same_bytes
from tests.testing.backends import Array


@pytest.fixture(scope="module")
def everything() -> list[Case]:
    return list(conformance_cases(CORE))


def test_ids_are_unique_and_the_same_every_time(everything: list[Case]) -> None:
    counts = Counter(case.id for case in everything)
    assert [key for key, count in counts.items() if count > 1] == []
    again = list(conformance_cases({"Conv": ops.Conv, "Add": ops.Add}))
    digests = {case.id: case.digest for case in everything}
    assert [digests[case.id] for case in again] == [case.digest for case in again]


def test_every_op_has_cases(everything: list[Case]) -> None:
    drawn = {"DrawKey"}  # another result each time, as it should be: there is nothing to compare with
    assert {case.name for case in everything} == set(CORE) - drawn


def test_every_kind_and_float_type_is_there(everything: list[Case]) -> None:
    counts = Counter((case.kind, case.dtype) for case in everything)
    for kind in KINDS:
        assert counts[kind, "float32"] > 40, kind
        wanted = [] if kind == "strided" else ["float16", "bfloat16", "float64"]  # layouts are tried in one type
        assert all(counts[kind, dtype] > 20 for dtype in wanted), kind


@pytest.mark.parametrize("name", ["Conv", "MatMul", "Softmax", "LSTM", "Resize"])
def test_edges_are_derived_where_an_op_has_none(name: str, everything: list[Case]) -> None:
    notes = {case.sample.note for case in everything if case.name == name}
    kinds = {case.kind for case in everything if case.name == name}
    assert "special" in kinds, notes


def test_patterns_and_dtypes() -> None:
    found = list(conformance_cases(CORE, "Reduce*,Relu", ["float16"]))
    assert {case.dtype for case in found} == {"float16"}
    assert {"Relu", "ReduceSum"} <= {case.name for case in found}
    assert all(case.name.startswith(("Reduce", "Relu")) for case in found)


def test_integers_change_type_only_where_they_fit() -> None:
    found = [case for case in conformance_cases({"Add": ops.Add}, dtypes=["uint8"]) if case.layout == "dense"]
    assert found
    for case in found:
        assert all(a is None or a.dtype == np.uint8 for a in case.sample.inputs)
        assert case.sample.note != "int64"  # it has negative numbers


@pytest.mark.parametrize(
    ("arrays", "kind"),
    [
        ([np.zeros((2, 0)), np.array([np.nan])], "empty"),
        ([np.array([1, np.inf])], "special"),
        ([np.array(1.0), np.array(2.0)], "scalar"),
        ([np.zeros(4), np.zeros((2, 4))], "broadcast"),
        ([np.zeros(7), np.zeros(7)], "odd"),
        ([np.zeros(8), np.zeros(8)], "plain"),
    ],
)
def test_kinds(arrays: list[Array], kind: str) -> None:
    assert kind_of(ops.Add(), arrays) == kind


def test_the_op_stands_twice_on_the_same_operands() -> None:
    case = next(conformance_cases({"Gemm": ops.Gemm}))
    graph = case.graph(2)
    first, second = graph.nodes
    assert first.inputs == second.inputs
    assert [name for name, _ in graph.outputs] == ["y0", "y1"]
    assert list(case.feeds()) == [value.name for value in graph.inputs]


@pytest.mark.parametrize("layout", ["dense", *LAYOUTS])
@pytest.mark.parametrize("shape", [(3, 5), (2, 0, 3), (4,), ()])
def test_layouts_keep_the_numbers(layout: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    laid_out = lay_out(array, layout)
    assert same_bytes(laid_out, array)
    assert not np.shares_memory(laid_out, array)


def test_layouts_are_what_they_say() -> None:
    array = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert lay_out(array, "reversed").strides == (-20, -4)
    assert lay_out(array, "transposed").flags.f_contiguous
    assert lay_out(array, "every_other").strides == (40, 8)
    assert not lay_out(array, "unaligned").flags.aligned
    with pytest.raises(ValueError, match="layout 'diagonal' is none of dense, reversed"):
        lay_out(array, "diagonal")


def test_same_bytes() -> None:
    nan = np.array([np.nan])
    assert same_bytes(nan, nan.copy())
    assert not same_bytes(np.array([0.0]), np.array([-0.0]))
    assert not same_bytes(np.zeros(2), np.zeros((2, 1)))
    assert same_bytes(np.array(["a"], object), np.array(["a"], object))
