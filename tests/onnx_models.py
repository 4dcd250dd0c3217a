"""Small ONNX models as bytes."""

from __future__ import annotations

from typing import Any

from onnx import ModelProto, TensorProto, helper

Shape = list[int | str | None]


def value(name: str, dtype: int = TensorProto.FLOAT, shape: Shape | None = None) -> Any:
    """A declared input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], **said: Any) -> ModelProto:
    """A model of opset 17; keywords are what it says about itself."""
    graph = helper.make_graph(nodes, said.pop("name", "g"), inputs, outputs, doc_string=said.pop("graph_doc", ""))
    properties = said.pop("properties", {})
    made: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, **said)
    helper.set_model_props(made, properties)
    return made


def mixed() -> bytes:
    """y = relu(x) * s; z = -k: named, unknown and fixed dims, a scalar, integers."""
    return model(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Mul", ["r", "s"], ["y"], name="mul"),
            helper.make_node("Neg", ["k"], ["z"]),
        ],
        [value("x", shape=["batch", 3]), value("k", TensorProto.INT64, [None, 2]), value("s", shape=[])],
        [value("y", shape=["batch", 3]), value("z", TensorProto.INT64, [None, 2])],
        name="mixed",
        graph_doc="what the graph does",
        producer_name="a producer",
        producer_version="1.2",
        domain="org.example",
        model_version=7,
        doc_string="what the model does",
        properties={"labels": "a,b", "": "no key"},
    ).SerializeToString()


def bare() -> bytes:
    """y = relu(x), and the file says nothing about itself."""
    made = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", shape=[2])], [value("y", shape=[2])])
    made.ClearField("producer_name")
    return made.SerializeToString()


def identity(dtype: int) -> bytes:
    """y = x of an element type."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return model([node], [value("x", dtype, [None, 2])], [value("y", dtype, [None, 2])]).SerializeToString()


def gather() -> bytes:
    """y = x[i], so that an index can be out of range."""
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="pick")
    inputs = [value("x", shape=[None, 3]), value("i", TensorProto.INT64, [None])]
    return model([node], inputs, [value("y", shape=[None, 3])]).SerializeToString()
