"""Operands with rows that repeat: what the reference says of a few rows holds for all, and every element counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Node, Op
from aicore.kernels import REFERENCE, KernelTable
from aicore.numerics import Expected, expect
from aicore.ops.activation import Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAddAct, GemmAct, MatMulAdd, MatMulAddAct
from aicore.ops.layout import ChannelsLast
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.pooling import MaxPool
from aicore.ops.softmax import Softmax
from aicore.runtime import ReferenceEvaluator
from aicore.tuning import repeats as module
from aicore.tuning.repeats import Repeats, repeats_of
from aicore.tuning.trial import made_up, variables
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]
EVALUATE = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))
CONV = Conv(pads=(1, 1, 1, 1))


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FLOPS", 1.0)
    monkeypatch.setattr(module, "_BLOCK", 100)


def node_of(op: Op, *shapes: tuple[int, ...] | None, constant: tuple[int, ...] = ()) -> Node:
    b = Builder()
    rng = np.random.default_rng(1)
    operands = [
        None
        if shape is None
        else b.constant(rng.standard_normal(shape).astype(np.float32))
        if i in constant
        else b.input(f"x{i}", "float32", shape)
        for i, shape in enumerate(shapes)
    ]
    b.apply(op, *operands)
    return b.nodes[-1]


def of(node: Node) -> Repeats:
    found = repeats_of(node)
    assert found is not None
    return found


def arrays_of(node: Node, numbers: list[Array]) -> list[Array | None]:
    given = dict(zip(variables(node), numbers, strict=True))
    return [None if v is None else given[v] if v.constant is None else v.constant.array for v in node.inputs]


NODES: dict[str, Node] = {
    "images": node_of(CONV, (9, 3, 5, 5), (4, 3, 3, 3), constant=(1,)),
    "residuals": node_of(
        ChannelsLast(ConvAddAct(CONV, Relu())), (9, 5, 5, 3), (4, 3, 3, 3), (9, 5, 5, 4), (4,), constant=(1, 3)
    ),
    "rows": node_of(GemmAct(Gemm(), Relu()), (11, 6), (6, 5), (11, 5)),
    "rows and a bias": node_of(MatMulAddAct(Relu()), (11, 6), (6, 5), (5,), constant=(1, 2)),
    "a longer axis behind": node_of(MatMulAdd(), (2, 11, 6), (6, 5), (11, 1)),
    "pool": node_of(MaxPool(kernel_shape=(2, 2)), (9, 3, 5, 5)),
}


@pytest.mark.parametrize("note", NODES)
def test_few_rows_say_what_all_should_be(note: str) -> None:
    """Against the reference of all rows; one element that is off, anywhere, is found, and so is a row in place of
    another one."""
    node = NODES[note]
    repeats = of(node)
    few = made_up(node, repeats)
    arrays = [repeats.repeated(value, array) for value, array in zip(variables(node), few, strict=True)]
    assert [a.shape for a in arrays] == [v.type.static_shape for v in variables(node)]
    expected = expect(EVALUATE, node.op, arrays_of(node, few), ["float32"])
    whole = expect(EVALUATE, node.op, arrays_of(node, arrays), ["float32"])
    right = whole.arrays[0].astype(np.float32)
    assert repeats.fault(expected, [right]) == ""
    for at in range(right.size):
        wrong = right.copy()
        wrong.reshape(-1)[at] += 1e-3
        assert "1 of" in repeats.fault(expected, [wrong])
    order = np.arange(len(repeats.rows))
    shifted = right.take((order + 1) % len(order), repeats.axis)
    assert f"of axis {repeats.axis}: " in repeats.fault(expected, [shifted])


def test_every_row_that_differs_occurs_in_random_order() -> None:
    repeats = of(NODES["rows"])
    assert repeats.different == 3
    assert set(repeats.rows) == {0, 1, 2}
    assert len(repeats.rows) == 11
    again = of(NODES["rows"])
    np.testing.assert_array_equal(repeats.rows, again.rows)


def test_shapes_and_counts_of_results_are_compared() -> None:
    repeats = of(NODES["rows and a bias"])
    expected = Expected((np.zeros((3, 5)),), (np.zeros(()),), wide=True)
    right = np.zeros((11, 5), np.float32)
    assert repeats.fault(expected, [right]) == ""
    assert repeats.fault(expected, [right[:10]]) == "the shape is [10, 5], should be [11, 5]"
    assert repeats.fault(expected, [right, right]) == "2 results instead of 1"


@pytest.mark.parametrize(
    "node",
    [
        node_of(CONV, (5, 3, 5, 5), (4, 3, 3, 3)),  # too few images
        node_of(CONV, (9, 3, 5, 5), (4, 3, 3, 3), constant=(0,)),
        node_of(Gemm(transA=1), (6, 11), (6, 5)),
        node_of(MatMul(), (2, 11, 6), (2, 6, 5)),
        node_of(MatMul(), (6,), (6, 5)),
        node_of(MatMulAdd(), (11, 6), (6, 5), (3, 11, 5)),
        node_of(Softmax(axis=0), (11, 6)),
        node_of(MaxPool(kernel_shape=(2, 2)), (3, 3, 5, 5)),
    ],
    ids=lambda node: str(node.op),
)
def test_others_do_not_repeat(node: Node) -> None:
    assert repeats_of(node) is None


def test_the_square_of_a_matrix_does_not_repeat() -> None:
    b = Builder()
    x = b.input("x", "float32", (11, 11))
    b.MatMul(x, x)
    assert repeats_of(b.nodes[-1]) is None


def test_small_problems_do_not_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FLOPS", 1e9)
    assert repeats_of(NODES["images"]) is None
