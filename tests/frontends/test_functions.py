"""Functions, of the model and of ONNX's own operators, are expanded where they are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from aicore.errors import InferenceError, ModelError, UnsupportedError
from aicore.frontends.onnx import importer, load_model
from tests.frontends.models import FLOAT, model, node, ops_of, run, tensor

LOCAL = "my.own"


def function(name: str, inputs: list[str], outputs: list[str], nodes: list[Any], **more: Any) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(LOCAL, 1)]
    return helper.make_function(LOCAL, name, inputs, outputs, nodes, opsets, **more)


def reference(kind: str, inputs: list[str], outputs: list[str], **references: str) -> onnx.NodeProto:
    made = node(kind, inputs, outputs)
    for name, other in references.items():
        attribute = made.attribute.add()
        attribute.name, attribute.ref_attr_name, attribute.type = name, other, onnx.AttributeProto.FLOAT
    return made


def calling(functions: list[onnx.FunctionProto], nodes: list[Any], shape: Any = (3,)) -> onnx.ModelProto:
    return model(nodes, {"x": shape}, ["y"], functions=functions, domains=[LOCAL])


X = np.array([-1, 0, 2], np.float32)


def test_a_function_of_the_model_is_expanded_at_each_call() -> None:
    twice = function("Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["t"]), node("Identity", ["t"], ["b"])])
    made = calling(
        [twice],
        [node("Twice", ["x"], ["h"], domain=LOCAL, name="one"), node("Twice", ["h"], ["y"], domain=LOCAL, name="two")],
    )
    np.testing.assert_array_equal(run(made, x=X)[0], X * 4)
    origins = [n.origin.names() for n in load_model(made).nodes]
    assert origins == [["one"], ["one"], ["two"], ["two"]]


def test_attributes_of_the_call_and_their_defaults() -> None:
    body = [reference("Elu", ["a"], ["b"], alpha="strength")]
    given = function("Given", ["a"], ["b"], body, attributes=["strength"])
    default = function("Default", ["a"], ["b"], body, attribute_protos=[helper.make_attribute("strength", 3.0)])
    left_out = function("LeftOut", ["a"], ["b"], body)
    for made, alpha in ((given, 2.0), (default, 3.0), (left_out, 1.0)):
        call = node(made.name, ["x"], ["y"], domain=LOCAL, **({"strength": 2.0} if made is given else {}))
        np.testing.assert_allclose(
            run(calling([made], [call]), x=X)[0], np.where(X < 0, alpha * np.expm1(X), X), rtol=1e-6
        )


def test_operands_may_be_left_out() -> None:
    clip = function("Bounded", ["a", "low", "high"], ["b"], [node("Clip", ["a", "low", "high"], ["b"])])
    made = calling([clip], [node("Bounded", ["x"], ["y"], domain=LOCAL)])
    np.testing.assert_array_equal(run(made, x=X)[0], X)


def test_a_function_may_replace_an_operator() -> None:
    relu = helper.make_function("", "Relu", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 18)])
    assert ops_of(model([node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"], functions=[relu])) == ["Neg"]


def test_sub_graphs_inside_functions_see_the_functions_values() -> None:
    branch = helper.make_graph([node("Mul", ["a", "a"], ["t"])], "b", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph([node("Neg", ["a"], ["t"])], "b", [], [onnx.ValueInfoProto(name="t")])
    body = [
        node("ReduceSum", ["a"], ["s"], keepdims=0),
        node("Cast", ["s"], ["c"], to=9),
        node("If", ["c"], ["b"], then_branch=branch, else_branch=other),
    ]
    made = calling([function("Chosen", ["a"], ["b"], body)], [node("Chosen", ["x"], ["y"], domain=LOCAL)])
    np.testing.assert_array_equal(run(made, x=X)[0], X * X)
    np.testing.assert_array_equal(run(made, x=X * 0)[0], X * 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"inputs": ["x", "x"]}, "Twice 't': has 2 inputs, wants 0 to 1"),
        ({"outputs": ["y", "z"]}, "Twice 't': has 2 outputs, wants 0 to 1"),
        ({"inputs": ["x"], "odd": 1}, "Twice 't': the function has no attribute 'odd'"),
    ],
)
def test_calls_that_do_not_fit(call: dict[str, Any], message: str) -> None:
    twice = function("Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])])
    made = node("Twice", call.pop("inputs", ["x"]), call.pop("outputs", ["y"]), domain=LOCAL, name="t", **call)
    with pytest.raises(ModelError, match=message):
        load_model(calling([twice], [made]))


def test_a_call_without_a_required_attribute() -> None:
    given = function("Given", ["a"], ["b"], [reference("Elu", ["a"], ["b"], alpha="s")], attributes=["s"])
    with pytest.raises(ModelError, match="Given 'g': the required attribute 's' is missing"):
        load_model(calling([given], [node("Given", ["x"], ["y"], domain=LOCAL, name="g")]))


def test_a_reference_of_another_type() -> None:
    given = function("Given", ["a"], ["b"], [reference("Elu", ["a"], ["b"], alpha="s")], attributes=["s"])
    with pytest.raises(ModelError, match="attribute 'alpha' is INT, not FLOAT"):
        load_model(calling([given], [node("Given", ["x"], ["y"], domain=LOCAL, s=3)]))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Frob", ["a"], ["b"])], "Twice 't': .*no operator 'Frob'|no operator 'Frob'"),
        (
            [node("Add", ["a", "ghost"], ["b"], name="inner")],
            "Twice 't': Add 'inner' in function 'Twice': its operand 'ghost'",
        ),
        (
            [node("Neg", ["a"], ["b"]), node("Abs", ["a"], ["b"])],
            "in function 'Twice': its output 'b' is defined already",
        ),
        ([node("Neg", ["a"], ["c"])], "Twice 't': its output 'y' is not supported"),
    ],
)
def test_bodies_that_break_the_rules(nodes: list[Any], message: str) -> None:
    made = calling([function("Twice", ["a"], ["b"], nodes)], [node("Twice", ["x"], ["y"], domain=LOCAL, name="t")])
    with pytest.raises((ModelError, UnsupportedError), match=message):
        load_model(made)


def test_two_functions_of_one_name() -> None:
    twice = function("Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])])
    with pytest.raises(ModelError, match=r"two functions are called 'Twice' in the domain 'my.own'"):
        load_model(calling([twice, twice], [node("Twice", ["x"], ["y"], domain=LOCAL)]))


def test_functions_that_call_each_other_without_end() -> None:
    ping = function("Ping", ["a"], ["b"], [node("Pong", ["a"], ["b"], domain=LOCAL)])
    pong = function("Pong", ["a"], ["b"], [node("Ping", ["a"], ["b"], domain=LOCAL)])
    with pytest.raises(ModelError, match="functions call each other more than 32 deep"):
        load_model(calling([ping, pong], [node("Ping", ["x"], ["y"], domain=LOCAL)]))


def test_functions_that_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = [function("F0", ["a"], ["b"], [node("Neg", ["a"], ["b"])])]
    for i in range(1, 20):
        body = [node(f"F{i - 1}", ["a"], ["t"], domain=LOCAL), node(f"F{i - 1}", ["t"], ["b"], domain=LOCAL)]
        functions.append(function(f"F{i}", ["a"], ["b"], body))
    monkeypatch.setattr(importer, "EXPANDED_LIMIT", 5000)
    with pytest.raises(ModelError, match="the model's functions become more than 5000 nodes"):
        load_model(calling(functions, [node("F19", ["x"], ["y"], domain=LOCAL)]))


def test_an_operator_without_an_op_is_expanded_by_its_schema() -> None:
    """BlackmanWindow has a function body whose attribute keeps its default."""
    made = model([node("BlackmanWindow", ["n"], ["y"])], [tensor("n", onnx.TensorProto.INT32, [])], ["y"], opset=17)
    (y,) = run(made, n=np.array(8, np.int32))
    position = np.arange(8) / 8
    wanted = 0.42 - 0.5 * np.cos(2 * np.pi * position) + 0.08 * np.cos(4 * np.pi * position)
    np.testing.assert_allclose(y, wanted, atol=1e-6)


def test_a_body_that_depends_on_types_and_operands() -> None:
    """The loss has no op; its body differs with and without weights, and it leaves the second output out."""
    inputs = [tensor("x", FLOAT, [3, 5]), tensor("t", onnx.TensorProto.INT64, [3])]
    made = model([node("SoftmaxCrossEntropyLoss", ["x", "t"], ["y"], name="loss")], inputs, ["y"], opset=13)
    x, target = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32), np.array([1, 0, 4])
    shifted = x - np.log(np.exp(x).sum(1, keepdims=True))
    np.testing.assert_allclose(run(made, x=x, t=target)[0], -shifted[np.arange(3), target].mean(), rtol=1e-5)


def test_errors_inside_an_expanded_operator_name_the_call() -> None:
    inputs = [tensor("x", FLOAT, [3, 5]), tensor("t", onnx.TensorProto.INT64, [4])]
    made = model([node("SoftmaxCrossEntropyLoss", ["x", "t"], ["y"], name="loss")], inputs, ["y"], opset=13)
    text = r"SoftmaxCrossEntropyLoss 'loss': .* in function 'SoftmaxCrossEntropyLoss'"
    with pytest.raises(InferenceError, match=text):
        load_model(made)
