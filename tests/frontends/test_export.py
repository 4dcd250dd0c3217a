"""What is written passes the checker, and reads back as the same graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import aicore
from aicore.errors import UnsupportedError
from aicore.frontends import onnx as frontend
from aicore.frontends.onnx import export_model, load_model, save_model
from aicore.frontends.onnx.fields import written_fields
from aicore.ir import Builder, Graph, Op, Sample, TensorType, Value, as_tuple, dtype_name, symbol, unknown
from aicore.ops import CORE
from tests.frontends.models import run

# Ops that ONNX has in the same form, so that they come back as they were.
SAME = sorted(name for name in CORE if onnx.defs.has(name, ""))


def graph_of(sample: Sample) -> tuple[Graph, dict[str, Any]]:
    """A graph of the sample's op alone, and arrays for its inputs."""
    op = Builder()
    operands: list[Value | None] = []
    feeds = {}
    for index, array in enumerate(sample.inputs):
        if array is None:
            operands.append(None)
        elif index in sample.constant:
            operands.append(op.constant(array, f"c{index}"))
        else:
            operands.append(op.input(f"x{index}", dtype_name(np.asarray(array).dtype), np.asarray(array).shape))
            feeds[f"x{index}"] = array
    results = as_tuple(op.apply(sample.op, *operands))
    inputs = [v for v in operands if v is not None and v.constant is None]
    return op.graph(inputs, {f"y{i}": value for i, value in enumerate(results)}), feeds


LOOSE = {
    "ConvTranspose": "SAME with a window smaller than the stride: the text says input * stride",
    "Einsum": "operands whose ellipses stand for different numbers of axes",
    "OneHot": "scalar indices",
    "Reshape": "a copied dim of 0 beside -1",
    "Resize": "the size under tf_crop_and_resize, which the text multiplies by the extent of the roi",
    "STFT": "onesided that is left out: 1 in the text, 0 in the inference",
}
"""Ops with samples that the text allows and the package's shape inference rejects, and why."""


def checked(graph: Graph, inference: bool = True) -> onnx.ModelProto:
    made = export_model(graph)
    onnx.checker.check_model(made, full_check=inference)
    return made


@pytest.mark.parametrize("name", SAME)
def test_every_sample_of_an_onnx_op_comes_back(name: str) -> None:
    samples = list(CORE[name].samples(np.random.default_rng(0)))
    assert samples
    for sample in samples:
        if name == "Dropout" and sample.inputs[3:]:  # ONNX draws without a key
            continue
        if getattr(sample.op, "residuals", False) or (name, getattr(sample.op, "statistics", False)) == (
            "BatchNormalization",
            True,
        ):  # with more outputs than ONNX has, which gradients read
            continue
        graph, feeds = graph_of(sample)
        made = checked(graph, inference=name not in LOOSE)
        assert made.graph.node[0].op_type == name, sample.note
        if feeds:
            _same_results(graph, load_model(made), feeds, sample.note)


def _same_results(first: Graph, second: Graph, feeds: dict[str, Any], note: str) -> None:
    one, two = (aicore.compile(graph, target="cpu").run(feeds) for graph in (first, second))
    assert list(one) == list(two)
    for name, array in one.items():
        other = two[name]
        assert (array.dtype, array.shape) == (other.dtype, other.shape), note
        if array.dtype.name == "float32":  # fields hold float64 numbers, files float32
            np.testing.assert_allclose(array, other, rtol=1e-5, atol=1e-6, err_msg=note)
        else:
            assert array.tolist() == other.tolist() if array.dtype.hasobject else array.tobytes() == other.tobytes(), (
                note
            )


def test_a_network_comes_back_as_the_same_graph() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 3, 8, 8))
    w, b = (np.random.default_rng(i).normal(size=s).astype(np.float32) for i, s in enumerate([(4, 3, 3, 3), (4,)]))
    h = op.Clip(op.Conv(x, op.constant(w, "w"), op.constant(b, "b"), pads=(1, 1, 1, 1)), min=0.0, max=6.0)
    h = op.MaxPool(h, kernel_shape=(2, 2), strides=(2, 2))
    y = op.ReduceMean(op.Reshape(h, shape=(0, 4, -1)), axes=(2,), keepdims=0)
    graph = op.graph([x], {"y": y}, metadata={"description": "a net", "property:a": "b", "graph_name": "net"})
    made = checked(graph)
    again = load_model(made)
    assert [n.op for n in again.nodes] == [n.op for n in graph.nodes]
    assert [v.type for n in again.nodes for v in n.outputs] == [v.type for n in graph.nodes for v in n.outputs]
    assert again.inputs[0].type == TensorType("float32", (symbol("N"), 3, 8, 8))
    assert again.metadata["property:a"] == "b"
    assert (again.metadata["description"], again.metadata["graph_name"]) == ("a net", "net")
    assert [(n.op_type, n.input, n.output, n.attribute) for n in checked(again).graph.node] == [
        (n.op_type, n.input, n.output, n.attribute) for n in made.graph.node
    ]


def test_sub_graphs_give_captured_values_back() -> None:
    op, inner, other = Builder(), Builder(), Builder()
    p, x = op.input("p", "bool", ()), op.input("x", "float32", (2,))
    a, b = inner.input("a", "float32", (2,)), other.input("a", "float32", (2,))
    h = op.Exp(x)
    then = inner.graph([a], {"r": inner.Mul(a, inner.constant(np.float32(3), "three"))})
    y = op.If(p, h, then_branch=then, else_branch=other.graph([b], {"r": b}))
    made = checked(op.graph([p, x], {"y": y}))
    assert list(made.graph.node[1].input) == ["p"]
    array = np.array([0, 1], np.float32)
    np.testing.assert_allclose(run(made, p=np.array(True), x=array)[0], np.exp(array) * 3, rtol=1e-6)
    np.testing.assert_allclose(run(made, p=np.array(False), x=array)[0], np.exp(array), rtol=1e-6)


def test_state_pairs_come_back() -> None:
    op = Builder()
    x, count = op.input("x", "float32", (2,)), op.input("count", "float32", (2,))
    graph = op.graph([x, count], {"next": op.Add(count, x)}, state=[("next", "count")])
    assert load_model(checked(graph)).state == (("next", "count"),)


def test_results_without_a_node_of_their_own_are_copied() -> None:
    op = Builder()
    x = op.input("x", "float32", (2,))
    y = op.Relu(x)
    graph = op.graph([x], {"y": y, "again": y, "same": x, "w": op.constant(np.float32(2), "w")})
    array = np.array([-1, 1], np.float32)
    results = aicore.compile(load_model(checked(graph)), target="cpu")(x=array)
    assert {name: value.tolist() for name, value in results.items()} == {
        "y": [0, 1],
        "again": [0, 1],
        "same": [-1, 1],
        "w": 2,
    }


def test_equal_names_are_told_apart_and_one_buffer_is_written_once() -> None:
    op = Builder()
    x = op.input("add", "float32", (2,))
    w = op.constant(np.ones(2, np.float32), "w")
    y = op.Add(op.Add(op.Add(x, w), w), w)
    made = checked(op.graph([x], {"add_2": y}))
    outputs = [n.output[0] for n in made.graph.node]
    assert len({*outputs, "add"}) == 4
    assert outputs[-1] == "add_2"
    assert [t.name for t in made.graph.initializer] == ["w"]


def test_unknown_dims_and_ranks() -> None:
    op = Builder()
    x = Value("x", TensorType("float32", (unknown(), symbol("N") + 1, 2)))
    z = Value("z", TensorType("float32"))
    made = export_model(op.graph([x, z], {"y": op.Relu(x), "u": op.Relu(z)}))  # the checker wants a rank
    dims = made.graph.input[0].type.tensor_type.shape.dim
    assert [(d.dim_value, d.dim_param) for d in dims] == [(0, ""), (0, "N+1"), (2, "")]
    assert not made.graph.input[1].type.tensor_type.HasField("shape")


@dataclass(frozen=True)
class Twice(Op):
    """x + x, of a plugin."""

    domain = "org.example"

    def infer(self, x: Value) -> TensorType:  # type: ignore[override]
        return x.type


@dataclass(frozen=True)
class Fourfold(Op):
    """A fused op: two parts."""

    domain = "org.example"

    def decompose(self, op: Any, x: Any) -> Any:  # type: ignore[override]
        return op.Add(op.Add(x, x), op.Add(x, x))


@dataclass(frozen=True)
class Nothing(Op):
    """A fused op whose decomposition is its operand."""

    def decompose(self, op: Any, x: Any) -> Any:  # type: ignore[override]
        return x


def single(op: Op) -> Graph:
    builder = Builder()
    x = builder.input("x", "float32", (2,))
    return builder.graph([x], {"y": builder.apply(op, x)})


def test_fused_ops_are_written_as_their_parts() -> None:
    made = checked(single(Fourfold()))
    assert [n.op_type for n in made.graph.node] == ["Add", "Add", "Add"]
    assert run(made, x=np.ones(2, np.float32))[0].tolist() == [4, 4]
    assert [n.op_type for n in checked(single(Nothing())).graph.node] == ["Identity"]


def test_ops_of_plugins_are_nodes_of_their_domain() -> None:
    graph = single(Twice())
    made = export_model(graph)
    assert [(n.op_type, n.domain) for n in made.graph.node] == [("Twice", "org.example")]
    assert load_model(made, extra_ops=[Twice]) == graph
    with pytest.raises(UnsupportedError, match=r"no operator 'Twice' is known in the domain 'org.example'"):
        load_model(made)


@dataclass(frozen=True)
class Core(Op):
    """An op of the standard domain that ONNX does not have."""

    def infer(self, x: Value) -> TensorType:  # type: ignore[override]
        return x.type


def test_what_onnx_cannot_express() -> None:
    with pytest.raises(UnsupportedError, match="Core 'core': ONNX has no Core, and it has no decomposition"):
        export_model(single(Core()))


def test_fields_without_a_place() -> None:
    @dataclass(frozen=True)
    class Odd(Op):
        domain = "org.example"
        what: Any = frozenset()

        def infer(self, x: Value) -> TensorType:  # type: ignore[override]
            return x.type

    with pytest.raises(UnsupportedError, match="Odd 'odd': ONNX has no place for what=frozenset"):
        written_fields(single(Odd()).nodes[0], None, "y")


def test_save_writes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    graph = single(Fourfold())
    save_model(graph, path)
    assert len(load_model(path).nodes) == 3
    monkeypatch.setattr(frontend, "SIZE_LIMIT", 10)
    with pytest.raises(UnsupportedError, match="are more than one protobuf can hold"):
        save_model(graph, tmp_path / "large.onnx")
    assert not (tmp_path / "large.onnx").exists()


def test_older_opsets_for_other_runtimes() -> None:
    """What an operator does not have yet is left out where it is the default, and refused where it is not."""
    op = Builder()
    x, scale = op.input("x", "float32", (2, 3)), op.constant(np.float32(0.5)[()])
    graph = op.graph([x], {"y": op.QuantizeLinear(x, scale)})
    model = export_model(graph, 21)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 21
    assert model.ir_version == 10
    exact = op.graph([x], {"y": op.QuantizeLinear(x, scale, precision="float16")})
    assert export_model(exact).opset_import[0].version == onnx.defs.onnx_opset_version()
    with pytest.raises(UnsupportedError, match="ONNX has no place for precision='float16'"):
        export_model(op.graph([x], {"y": exact.outputs[0][1]}), 21)
    for opset in (20, onnx.defs.onnx_opset_version() + 1):
        with pytest.raises(UnsupportedError, match=f"not {opset}"):
            export_model(graph, opset)


def test_element_types_that_an_older_opset_lacks() -> None:
    op = Builder()
    x = op.input("x", "bfloat16", (2,))
    graph = op.graph([x], {"y": op.Sin(x)})
    assert export_model(graph).graph.node[0].op_type == "Sin"
    with pytest.raises(UnsupportedError, match="opset 21 takes no bfloat16 for input"):
        export_model(graph, 21)
