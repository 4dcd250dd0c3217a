"""int8 without calibration data: dynamic ranges, and weights alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import aicore
from aicore.frontends.onnx import save_model
from aicore.ir import Builder, Graph, Node, constant_value
from aicore.kernels import REFERENCE, KernelTable
from aicore.numerics import expect
from aicore.runtime import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels
from aicore_int8_quant import QuantizedModel, coverage, quantize_dynamic, quantize_weights
from aicore_int8_quant.analysis.measures import sqnr

Array = np.ndarray[Any, Any]
EVALUATE = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


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


def lstm(directions: int, inputs: int = 48, hidden: int = 64) -> tuple[Graph, list[Array]]:
    """An LSTM alone, and W, R and B."""
    rng = np.random.default_rng(2)
    shapes = ((directions, 4 * hidden, inputs), (directions, 4 * hidden, hidden), (directions, 8 * hidden))
    weights = [(rng.standard_normal(shape) * 0.2).astype(np.float32) for shape in shapes]
    op = Builder()
    x = op.input("x", "float32", (7, 3, inputs))
    direction = "forward" if directions == 1 else "bidirectional"
    y, h, c = op.LSTM(x, *(op.constant(w) for w in weights), hidden_size=hidden, direction=direction)
    return op.graph([x], {"y": y, "h": h, "c": c}), weights


def lstm_in_float64(x: Array, w: Array, r: Array, b: Array) -> tuple[Array, Array]:
    """Y of one direction, (steps, batch, hidden), and the last cell, by the equations in ONNX; gates are i, o, f, c."""
    hidden = r.shape[1]
    h, c, results = np.zeros((x.shape[1], hidden)), np.zeros((x.shape[1], hidden)), []
    for step in x.astype(np.float64):
        gates = step @ w.T + h @ r.T + b[: 4 * hidden] + b[4 * hidden :]
        i, o, f = (1 / (1 + np.exp(-gates[:, k * hidden : (k + 1) * hidden])) for k in range(3))
        c = f * c + i * np.tanh(gates[:, 3 * hidden :])
        h = o * np.tanh(c)
        results.append(h)
    return np.stack(results), c


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("quantizer", [quantize_dynamic, quantize_weights])
def test_the_weights_of_an_lstm_are_int8_in_the_file(
    quantizer: Callable[[Graph], QuantizedModel], directions: int, tmp_path: Any
) -> None:
    """The file shrinks to its biases and codes; the program gives what an LSTM of the dequantised weights gives."""
    graph, weights = lstm(directions)
    small, large = tmp_path / "small.onnx", tmp_path / "large.onnx"
    save_model(graph, large)
    quantizer(graph).save(small)
    assert small.stat().st_size < 0.3 * large.stat().st_size

    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(small).graph.initializer}
    kept = sorted(t.shape for t in tensors.values() if t.dtype == np.int8 and t.ndim == 3)
    assert kept == sorted(w.shape for w in weights[:2])

    rounded = []
    for weight in weights[:2]:  # one scale for each row of a gate, of both directions: its largest number is code 127
        scale = (np.abs(weight).max((0, 2), keepdims=True).astype(np.float64) / 127).astype(np.float32)
        rounded.append(np.rint(weight / scale).astype(np.float32) * scale)
    x = np.random.default_rng(3).standard_normal((7, 3, 48)).astype(np.float32)
    (op,) = [node.op for node in graph.nodes]
    allowed = expect(EVALUATE, op, [x, *rounded, weights[2]], ["float32"] * 3).allowed
    found = aicore.compile(small, "cpu").run({"x": x})
    for one in range(directions):
        order = slice(None, None, -1 if one else 1)
        y, c = lstm_in_float64(x[order], *(a[one].astype(np.float64) for a in (*rounded, weights[2])))
        assert (np.abs(found["y"][:, one] - y[order]) <= allowed[0][:, one]).all()
        assert (np.abs(found["h"][one] - y[-1]) <= allowed[1][one]).all()
        assert (np.abs(found["c"][one] - c) <= allowed[2][one]).all()
    unrounded = aicore.compile(graph, "cpu").run({"x": x})
    assert (np.abs(unrounded["y"] - found["y"]) > allowed[0]).mean() > 0.5  # so fine are the bounds


@pytest.mark.parametrize("index", [1, 2])
def test_an_lstm_of_weights_that_are_not_finite_stays(index: int) -> None:
    graph, _ = lstm(1)
    (node,) = graph.nodes
    weight = node.inputs[index]
    assert weight is not None
    assert weight.constant is not None
    broken = weight.constant.array.copy()
    broken[0, 3, 5] = np.nan
    inputs = tuple(constant_value(broken, "w") if v is weight else v for v in node.inputs)
    changed = replace(graph, nodes=(Node(node.op, inputs, node.outputs, node.origin),))
    assert quantize_dynamic(changed).graph.nodes[0].inputs[1:3] == inputs[1:3]


def test_excluded_nodes_stay(graph: Graph) -> None:
    assert quantize_dynamic(graph, exclude=["*"]).graph.nodes == quantize_weights(graph, exclude=["*"]).graph.nodes
