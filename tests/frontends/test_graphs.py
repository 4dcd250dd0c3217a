"""Initializers, captured values and metadata: what a loaded graph holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import aicore
from aicore.errors import ModelError
from aicore.frontends.onnx import load_model
from aicore.frontends.onnx.metadata import overridable_names
from aicore.ir import subgraphs, verify
from tests.frontends.models import FLOAT, INT64, model, node, run, tensor

BOOL = onnx.TensorProto.BOOL
END = [onnx.ValueInfoProto(name="t")]


def branch(*nodes: onnx.NodeProto, constants: Any = ()) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "branch", [], END, list(constants))


def test_both_branches_take_the_same_captured_values() -> None:
    then, other = branch(node("Add", ["a", "b"], ["t"])), branch(node("Neg", ["c"], ["t"]))
    made = model(
        [
            node("Exp", ["x"], ["a"]),
            node("Abs", ["x"], ["b"]),
            node("Relu", ["x"], ["c"]),
            node("If", ["p"], ["y"], name="if", then_branch=then, else_branch=other),
        ],
        [tensor("x", FLOAT, [2]), tensor("p", BOOL, [])],
        ["y"],
    )
    graph = load_model(made)
    verify(graph)
    chosen = graph.nodes[-1]
    assert [v.name for v in chosen.inputs if v] == ["p", "a", "b", "c"]
    assert all(len(sub.inputs) == 3 for sub in subgraphs(chosen.op).values())
    x = np.array([1, -1], np.float32)
    np.testing.assert_allclose(run(made, x=x, p=np.array(True))[0], np.exp(x) + np.abs(x), rtol=1e-6)
    np.testing.assert_array_equal(run(made, x=x, p=np.array(False))[0], -np.maximum(x, 0))


def test_constants_are_not_captured() -> None:
    three = onnx.numpy_helper.from_array(np.float32(3), "three")
    then, other = branch(node("Mul", ["x", "w"], ["t"])), branch(node("Mul", ["x", "three"], ["t"]), constants=[three])
    made = model(
        [node("If", ["p"], ["y"], then_branch=then, else_branch=other)],
        [tensor("x", FLOAT, [2]), tensor("p", BOOL, [])],
        ["y"],
        {"w": np.float32(2)},
    )
    assert [v.name for v in load_model(made).nodes[0].inputs if v] == ["p", "x"]
    assert run(made, x=np.ones(2, np.float32), p=np.array(False))[0].tolist() == [3, 3]


def test_values_pass_through_graphs_in_between() -> None:
    inner = branch(node("Add", ["x", "h"], ["t"]))
    outer = branch(node("If", ["q"], ["t"], then_branch=inner, else_branch=branch(node("Neg", ["x"], ["t"]))))
    made = model(
        [
            node("Exp", ["x"], ["h"]),
            node("If", ["p"], ["y"], then_branch=outer, else_branch=branch(node("Identity", ["h"], ["t"]))),
        ],
        [tensor("x", FLOAT, [2]), tensor("p", BOOL, []), tensor("q", BOOL, [])],
        ["y"],
    )
    graph = load_model(made)
    verify(graph)
    x, yes, no = np.array([0, 1], np.float32), np.array(True), np.array(False)
    np.testing.assert_allclose(run(made, x=x, p=yes, q=yes)[0], x + np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(run(made, x=x, p=yes, q=no)[0], -x)
    np.testing.assert_allclose(run(made, x=x, p=no, q=no)[0], np.exp(x), rtol=1e-6)


def test_a_branch_may_hand_on_an_outer_value() -> None:
    made = model(
        [
            node(
                "If",
                ["p"],
                ["y"],
                then_branch=helper.make_graph([], "b", [], [onnx.ValueInfoProto(name="x")]),
                else_branch=branch(node("Neg", ["x"], ["t"])),
            )
        ],
        [tensor("x", FLOAT, [2]), tensor("p", BOOL, [])],
        ["y"],
    )
    assert run(made, x=np.ones(2, np.float32), p=np.array(True))[0].tolist() == [1, 1]


def test_a_loop_sums_captured_steps() -> None:
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["total", "x"], ["sum"]), node("Identity", ["sum"], ["each"])],
        "body",
        [tensor("i", INT64, []), tensor("go", BOOL, []), tensor("total", FLOAT, [2])],
        [onnx.ValueInfoProto(name=n) for n in ("on", "sum", "each")],
    )
    made = model(
        [node("Loop", ["n", "", "zero"], ["y", "all"], body=body)],
        [tensor("x", FLOAT, [2]), tensor("n", INT64, [])],
        ["y", "all"],
        {"zero": np.zeros(2, np.float32)},
    )
    last, steps = run(made, x=np.array([1, 2], np.float32), n=np.array(3))
    assert last.tolist() == [3, 6]
    assert steps.tolist() == [[1, 2], [2, 4], [3, 6]]


def test_a_scan_needs_enough_operands() -> None:
    body = helper.make_graph([node("Identity", ["s"], ["t"])], "body", [tensor("s", FLOAT, [2])], END)
    made = model([node("Scan", ["x"], ["y"], name="s", body=body, num_scan_inputs=3)], {"x": [4, 2]}, ["y"])
    with pytest.raises(ModelError, match="Scan 's': has 1 operands, of which 3 are to be scanned"):
        load_model(made)


def test_a_sub_graph_input_of_another_element_type() -> None:
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Identity", ["v"], ["w"])],
        "body",
        [tensor("i", INT64, []), tensor("go", BOOL, []), tensor("v", INT64, [2])],
        [onnx.ValueInfoProto(name="on"), onnx.ValueInfoProto(name="w")],
    )
    made = model([node("Loop", ["", "", "x"], ["y"], body=body)], {"x": [2]}, ["y"])
    with pytest.raises(ModelError, match=r"input 'v' is declared as int64.2., but its operand is float32"):
        load_model(made)


def listed(ir: int) -> onnx.ModelProto:
    inputs = [tensor("x", FLOAT, [2]), tensor("w", FLOAT, [2])]
    return model([node("Mul", ["x", "w"], ["y"])], inputs, ["y"], {"w": np.array([2, 3], np.float32)}, ir=ir)


@pytest.mark.parametrize("ir", [3, 8])
def test_an_initializer_that_is_also_an_input_is_a_constant_unless_asked_for(ir: int) -> None:
    graph = load_model(listed(ir))
    assert [v.name for v in graph.inputs] == ["x"]
    assert overridable_names(graph.metadata) == (("w",) if ir > 3 else ())
    open_graph = load_model(listed(ir), overridable=["w"])
    assert [v.name for v in open_graph.inputs] == ["x", "w"]
    ones = np.ones(2, np.float32)
    program = aicore.compile(open_graph, target="cpu")
    assert program(x=ones, w=ones * 5)["y"].tolist() == [5, 5]


def test_what_cannot_be_overridden() -> None:
    with pytest.raises(ModelError, match="'ghost' cannot be overridden: the model has no initializer of that name"):
        load_model(listed(8), overridable=["ghost"])
    plain = model([node("Mul", ["x", "w"], ["y"])], {"x": [1]}, ["y"], {"w": np.float32(2)})
    with pytest.raises(ModelError, match="'w' cannot be overridden: the model does not list it as an input"):
        load_model(plain, overridable=["w"])


def test_an_initializer_declared_as_another_type() -> None:
    made = listed(8)
    made.graph.input[1].type.tensor_type.elem_type = INT64
    with pytest.raises(ModelError, match="initializer 'w' is declared as int64"):
        load_model(made)


def test_metadata() -> None:
    made = model([node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"], opset=17)
    made.producer_name, made.producer_version, made.domain, made.model_version = "maker", "1.2", "org.example", 7
    made.doc_string, made.graph.doc_string = "a model", "a graph"
    helper.set_model_props(made, {"labels": "a,b"})
    assert load_model(made).metadata == {
        "producer_name": "maker",
        "producer_version": "1.2",
        "domain": "org.example",
        "model_version": "7",
        "description": "a model",
        "graph_name": "tested",
        "graph_description": "a graph",
        "ir_version": "8",
        "opset:ai.onnx": "17",
        "property:labels": "a,b",
    }


def test_damaged_state_pairs() -> None:
    made = model([node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"])
    helper.set_model_props(made, {"aicore.state": "[[1]]"})
    with pytest.raises(ModelError, match=r"the property 'aicore.state' is damaged"):
        load_model(made)


def test_names_of_values_are_those_of_the_file() -> None:
    made = model(
        [node("Softmax", ["x"], ["soft"], axis=0), node("Relu", ["soft"], ["y"])], {"x": [2, 3]}, ["y"], opset=11
    )
    names = [[v.name for v in n.outputs] for n in load_model(made).nodes]
    assert names[-2:] == [["soft"], ["y"]]
    assert sum("soft" in outputs for outputs in names) == 1
