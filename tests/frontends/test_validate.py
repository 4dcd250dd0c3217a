"""Models that break the format's rules: each gives a typed error that names node and value."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from aicore.errors import InferenceError, ModelError, UnsupportedError
from aicore.frontends.onnx import load_model, validate
from tests.frontends.models import FLOAT, INT64, model, node, ops_of, run, tensor

X = {"x": [2]}


def refused(error: type[Exception], message: str, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(error, match=message):
        load_model(model(*args, **kwargs))


def test_unsorted_nodes_are_sorted() -> None:
    unsorted = model([node("Exp", ["b"], ["y"]), node("Neg", ["x"], ["a"]), node("Abs", ["a"], ["b"])], X, ["y"])
    assert ops_of(unsorted) == ["Neg", "Abs", "Exp"]


def test_a_cycle_is_named() -> None:
    loop = [node("Add", ["x", "b"], ["a"], name="one"), node("Relu", ["a"], ["b"], name="two")]
    refused(ModelError, "Add 'one': the graph has a cycle through it: Add 'one' <- Relu 'two'", loop, X, ["b"])
    refused(ModelError, "Relu 'self': the graph has a cycle", [node("Relu", ["y"], ["y"], name="self")], X, ["y"])


def test_a_cycle_through_a_sub_graph() -> None:
    branch = helper.make_graph([node("Relu", ["y"], ["t"])], "b", [], [onnx.ValueInfoProto(name="t")])
    nodes = [
        node("Cast", ["x"], ["c"], to=9),
        node("If", ["c"], ["y"], name="i", then_branch=branch, else_branch=branch),
    ]
    refused(ModelError, "If 'i': the graph has a cycle", nodes, {"x": []}, ["y"])


def test_names_are_defined_once() -> None:
    twice = [node("Relu", ["x"], ["y"], name="a"), node("Neg", ["x"], ["y"], name="b")]
    refused(ModelError, "Neg 'b': its output 'y' is defined already", twice, X, ["y"])
    refused(ModelError, "its output 'x' is defined already", [node("Relu", ["x"], ["x"])], X, ["x"])
    inputs = [tensor("x", FLOAT, [1]), tensor("x", FLOAT, [1])]
    refused(ModelError, "two inputs are called 'x'", [node("Relu", ["x"], ["y"])], inputs, ["y"])
    refused(ModelError, "two outputs are called 'y'", [node("Relu", ["x"], ["y"])], X, ["y", "y"])
    double = model([node("Add", ["x", "w"], ["y"])], X, ["y"], {"w": np.ones(2, np.float32)})
    double.graph.initializer.append(double.graph.initializer[0])
    with pytest.raises(ModelError, match="two initializers are called 'w'"):
        load_model(double)


@pytest.mark.parametrize("where", ["input", "output", "initializer"])
def test_names_are_not_empty(where: str) -> None:
    bad = model([node("Add", ["x", "w"], ["y"])], X, ["y"], {"w": np.ones(2, np.float32)})
    getattr(bad.graph, where)[0].name = ""
    with pytest.raises(ModelError, match=f"an {where} has no name"):
        load_model(bad)


def test_operands_are_defined() -> None:
    refused(ModelError, "Relu 'r': 'ghost' is not defined", [node("Relu", ["ghost"], ["y"], name="r")], X, ["y"])
    refused(ModelError, "output 'ghost': 'ghost' is not defined", [node("Relu", ["x"], ["y"])], X, ["ghost"])


def test_unknown_operators_and_domains() -> None:
    refused(
        UnsupportedError,
        "Frob 'f': no operator 'Frob' is known in the domain 'ai.onnx'",
        [node("Frob", ["x"], ["y"], name="f")],
        X,
        ["y"],
    )
    foreign = node("Relu", ["x"], ["y"], name="f", domain="com.example")
    refused(ModelError, "Relu 'f': the model imports no operator set of the domain 'com.example'", [foreign], X, ["y"])
    refused(
        UnsupportedError,
        "no operator 'Relu' is known in the domain 'com.example'",
        [foreign],
        X,
        ["y"],
        domains=["com.example"],
    )
    refused(
        UnsupportedError,
        "Gelu 'g': opset 18 of 'ai.onnx' has no Gelu yet",
        [node("Gelu", ["x"], ["y"], name="g")],
        X,
        ["y"],
    )
    refused(ModelError, "node 'y': has no operator", [node("", ["x"], ["y"])], X, ["y"])


def test_a_known_operator_that_aicore_lacks() -> None:
    nodes = [node("SequenceConstruct", ["x"], ["y"], name="pack")]
    text = "SequenceConstruct 'pack': the operator SequenceConstruct is not supported"
    refused(UnsupportedError, text, nodes, {"x": [1, 2]}, ["y"])


def test_operand_counts() -> None:
    refused(ModelError, "Add 'a': has 1 inputs, wants 2", [node("Add", ["x"], ["y"], name="a")], X, ["y"])
    refused(ModelError, "Relu 'a': has 2 inputs, wants 1", [node("Relu", ["x", "x"], ["y"], name="a")], X, ["y"])
    refused(ModelError, "Relu 'y': has 2 outputs, wants 1", [node("Relu", ["x"], ["y", "z"])], X, ["y"])
    refused(ModelError, "Clip 'c': has 4 inputs, wants 1 to 3", [node("Clip", ["x"] * 4, ["y"], name="c")], X, ["y"])
    refused(ModelError, "Max 'm': has 0 inputs, wants at least 1", [node("Max", [], ["y"], name="m")], X, ["y"])
    refused(
        ModelError, "Add 'a': the required operand 'B' is missing", [node("Add", ["x", ""], ["y"], name="a")], X, ["y"]
    )


def test_attributes_follow_the_schema() -> None:
    refused(
        ModelError,
        "Concat 'c': the required attribute 'axis' is missing",
        [node("Concat", ["x", "x"], ["y"], name="c")],
        X,
        ["y"],
    )
    refused(
        ModelError,
        "Relu 'r': Relu of opset 14 has no attribute 'alpha'",
        [node("Relu", ["x"], ["y"], name="r", alpha=1.0)],
        X,
        ["y"],
    )
    refused(
        ModelError,
        "Elu 'e': attribute 'alpha' is INT, not FLOAT",
        [node("Elu", ["x"], ["y"], name="e", alpha=1)],
        X,
        ["y"],
    )


def broken_attribute(change: Any) -> onnx.ModelProto:
    made = model([node("Concat", ["x", "x"], ["y"], name="c", axis=0)], X, ["y"])
    change(made.graph.node[0].attribute)
    return made


def set_type(number: int) -> Any:
    return lambda attributes: setattr(attributes[0], "type", number)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.append(a[0]), "Concat 'c': has the attribute 'axis' twice"),
        (lambda a: setattr(a[0], "name", ""), "Concat 'c': an attribute has no name"),
        (lambda a: a[0].ClearField("i"), "attribute 'axis': is declared as INT but holds no such value"),
        (lambda a: (a[0].ClearField("i"), a[0].ClearField("type")), "attribute 'axis': has no type"),
        (set_type(4), "attribute 'axis': is declared as TENSOR but holds no such value"),
        (lambda a: setattr(a[0], "ref_attr_name", "other"), "attribute 'axis' refers to 'other' outside a function"),
    ],
    ids=["twice", "nameless", "no value", "no type", "another type", "reference"],
)
def test_damaged_attributes(change: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(broken_attribute(change))


def test_an_attribute_that_is_not_text() -> None:
    made = model([node("Gelu", ["x"], ["y"], name="g", approximate="tanh")], X, ["y"], opset=20)
    made.graph.node[0].attribute[0].s = b"\xff\xfe"
    with pytest.raises(ModelError, match="Gelu 'g': attribute 'approximate': is not UTF-8 text"):
        load_model(made)


def test_an_attribute_type_left_out_by_old_writers_is_guessed() -> None:
    made = broken_attribute(lambda attributes: attributes[0].ClearField("type"))
    assert ops_of(made) == ["Concat"]


def test_operand_types_follow_the_schema() -> None:
    inputs = [tensor("x", onnx.TensorProto.STRING, [1])]
    refused(
        ModelError,
        r"Relu 'r': operand 'x' \(X\) is string\[1\]; Relu of opset 14 takes",
        [node("Relu", ["x"], ["y"], name="r")],
        inputs,
        ["y"],
    )


def test_operands_that_contradict_the_operator() -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"], name="fc1")]
    refused(InferenceError, r"MatMul 'y' \(from fc1\)", nodes, {"x": [4, 8]}, ["y"], {"w": np.ones((6, 8), np.float32)})


def test_indices_out_of_range_in_attributes() -> None:
    refused(
        InferenceError,
        r"Concat 'y' \(from c\): .*axis",
        [node("Concat", ["x", "x"], ["y"], name="c", axis=5)],
        X,
        ["y"],
    )


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [1])), "'x' is a sequence"),
        (helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [1])), "'x' is a optional"),
        (helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, [1])), "'x' is a map"),
        (helper.make_tensor_type_proto(999, [1]), "'x': element type number 999 is not supported"),
    ],
    ids=["sequence", "optional", "map", "element type"],
)
def test_inputs_that_are_no_tensors(kind: onnx.TypeProto, what: str) -> None:
    inputs = [helper.make_value_info("x", kind)]
    refused(UnsupportedError, what, [node("Identity", ["x"], ["y"])], inputs, ["y"])


def test_sequences_inside_name_the_node() -> None:
    nodes = [node("SequenceConstruct", ["x"], ["s"], name="seq"), node("SequenceLength", ["s"], ["y"])]
    refused(UnsupportedError, "SequenceConstruct 'seq'", nodes, X, ["y"])


def test_an_input_without_type() -> None:
    refused(
        ModelError,
        "input 'x' has no element type",
        [node("Relu", ["x"], ["y"])],
        [onnx.ValueInfoProto(name="x")],
        ["y"],
    )


def test_dims_without_a_name_are_all_different() -> None:
    inputs = [tensor("a", FLOAT, ["", "?", -1, "N"]), tensor("b", FLOAT, ["", "?", -1, "N"])]
    graph = load_model(model([node("Add", ["a", "b"], ["y"])], inputs, ["y"]))
    first, second = (value.shape for value in graph.inputs)
    assert first is not None
    assert second is not None
    assert [p == q for p, q in zip(first, second, strict=True)] == [False, False, False, True]


def test_an_input_of_unknown_rank() -> None:
    graph = load_model(model([node("Relu", ["x"], ["y"])], [tensor("x", FLOAT, None)], ["y"]))
    assert graph.inputs[0].shape is None


def test_a_declared_output_type_is_checked() -> None:
    wrong = [tensor("y", INT64, [2])]
    refused(
        ModelError,
        r"output 'y' is declared as int64\[2\], but it is float32\[2\]",
        [node("Relu", ["x"], ["y"])],
        X,
        wrong,
    )


def test_a_stale_output_shape_is_told_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    graph = load_model(model([node("Relu", ["x"], ["y"])], X, [tensor("y", FLOAT, [7])]))
    assert str(graph.outputs[0][1].type) == "float32[2]"
    assert "output 'y' is declared as float32[7], but it is float32[2]; the declared shape is ignored" in caplog.text


def test_a_declared_type_of_a_value_inside_is_checked() -> None:
    made = model([node("Relu", ["x"], ["h"]), node("Relu", ["h"], ["y"])], X, ["y"])
    made.graph.value_info.append(tensor("h", onnx.TensorProto.DOUBLE, [2]))
    with pytest.raises(ModelError, match="value 'h' is declared as float64"):
        load_model(made)


def test_sub_graphs_nested_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    end = [onnx.ValueInfoProto(name="t")]
    body = helper.make_graph([node("Identity", ["x"], ["t"])], "b", [], end)
    for _ in range(3):
        body = helper.make_graph([node("If", ["c"], ["t"], then_branch=body, else_branch=body)], "b", [], end)
    nested = model([node("Cast", ["x"], ["c"], to=9), *body.node], {"x": []}, ["t"])
    assert ops_of(nested) == ["Cast", "If"]
    monkeypatch.setattr(validate, "DEPTH_LIMIT", 2)
    with pytest.raises(
        ModelError, match="sub-graphs are nested more than 2 deep in else_branch of If 't' in else_branch"
    ):
        load_model(nested)


def test_ten_thousand_nodes() -> None:
    chain = [node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(10_000)]
    made = model(chain, {"v0": [2]}, ["v10000"])
    assert len(load_model(made).nodes) == 10_000
    reversed_chain = model(chain[::-1], {"v0": [2]}, ["v10000"])
    assert len(load_model(reversed_chain).nodes) == 10_000


def test_results_that_are_inputs_or_constants() -> None:
    made = model([], X, ["x", "w"], {"w": np.float32(3)})
    x, w = run(made, x=np.array([1, 2], np.float32))
    assert x.tolist() == [1, 2]
    assert w == 3
