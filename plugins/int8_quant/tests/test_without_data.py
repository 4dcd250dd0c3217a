"""int8 without calibration data: dynamic ranges, and weights alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import aicore
from aicore.ir import Builder, Graph
from aicore_int8_quant import QuantizedModel, coverage, quantize_dynamic, quantize_weights
from aicore_int8_quant.analysis.measures import sqnr

Array = np.ndarray[Any, Any]


def recurrent() -> Graph:
    """LSTM, Gemm with a transposed weight, MatMul of three dims."""
    rng = np.random.default_rng(0)
    op = Builder()

    def weight(*shape: int) -> Any:
        return op.constant((rng.standard_normal(shape) * 0.4).astype(np.float32))

    x = op.input("x", "float32", ("t", "n", 12))
    y, *_ = op.LSTM(x, weight(1, 32, 12), weight(1, 32, 8), weight(1, 64), hidden_size=8)
    h = op.MatMul(op.Squeeze(y, axes=(1,)), weight(8, 20))
    flat = op.Reshape(op.Relu(h), op.constant(np.array([-1, 20])))
    return op.graph([x], {"y": op.Gemm(flat, weight(5, 20), weight(5), transB=1)})


@pytest.fixture(scope="module")
def graph() -> Graph:
    return recurrent()


def kinds(graph: Graph) -> list[str]:
    return [type(node.op).__name__ for node in graph.nodes]


def check(model: QuantizedModel, graph: Graph, tmp_path: Any) -> None:
    """As good as the float model, here and in another runtime."""
    x = np.random.default_rng(1).standard_normal((3, 4, 12)).astype(np.float32)
    wanted = aicore.compile(graph, "cpu").run({"x": x})["y"]
    assert sqnr(wanted, model.compile("cpu").run({"x": x})["y"]) > 30
    path = tmp_path / "m.onnx"
    model.save(path)
    (theirs,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert sqnr(wanted, theirs) > 30


def test_coverage_says_that_weights_of_an_lstm_become_float_again(graph: Graph) -> None:
    program = quantize_weights(graph).compile("cpu")
    (lstm,) = [node for node in program.graph.nodes if type(node.op).__name__ == "LSTM"]
    assert [v.dtype for v in lstm.inputs[1:3] if v is not None] == ["float32", "float32"]
    (row,) = [row for row in coverage(program).rows if row.op == "LSTM"]
    wanted = "no int8 kernel for LSTM (int8 weights of a file become float32 when it is compiled)"
    assert (row.kind, row.reason) == ("float", wanted)


def test_dynamic(graph: Graph, tmp_path: Any) -> None:
    model = quantize_dynamic(graph)
    assert kinds(model.graph).count("MatMulInteger") == 2
    assert kinds(model.graph).count("DequantizeLinear") == 2  # W and R of the LSTM
    assert kinds(model.compile("cpu").graph).count("Int8MatMul") == 2
    check(model, graph, tmp_path)


def test_weights_only(graph: Graph, tmp_path: Any) -> None:
    model = quantize_weights(graph)
    assert kinds(model.graph).count("DequantizeLinear") == 4
    assert "WeightOnlyMatMul" in kinds(model.compile("cpu").graph)
    check(model, graph, tmp_path)
    model.save(tmp_path / "small.onnx")


def test_excluded_nodes_stay(graph: Graph) -> None:
    assert quantize_dynamic(graph, exclude=["*"]).graph.nodes == quantize_weights(graph, exclude=["*"]).graph.nodes
