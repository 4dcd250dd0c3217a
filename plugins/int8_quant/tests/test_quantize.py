"""From a float graph to QDQ: what is quantised, which scales are shared, and what the result computes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import aicore
from aicore.errors import InputError
from aicore.ir import Builder, Graph, Node, Value
from aicore.ops.quantization import DequantizeLinear, QuantizeLinear
from aicore_int8_quant import CalibrationError, QuantizationError, QuantizedModel, coverage, quantize
from aicore_int8_quant.analysis.measures import sqnr

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def model(network: Graph, batches: list[Any]) -> QuantizedModel:
    return quantize(network, batches)


def codes_of(graph: Graph, value: Value) -> tuple[Array, Array] | None:
    """Scale and zero point of the QuantizeLinear behind a value."""
    for node in graph.nodes:
        if isinstance(node.op, QuantizeLinear) and node.inputs[0] is value:
            return tuple(v.constant.array for v in node.inputs[1:3])  # type: ignore[return-value,union-attr]
    return None


def nodes(graph: Graph, kind: str) -> list[Node]:
    return [node for node in graph.nodes if type(node.op).__name__ == kind]


def test_it_computes_what_the_float_model_does(model: QuantizedModel, network: Graph, batches: list[Any]) -> None:
    exact, quantized = aicore.compile(network, "cpu"), model.compile("cpu")
    assert sqnr(exact.run(batches[0])["y"], quantized.run(batches[0])["y"]) > 35


def test_every_product_runs_in_int8(model: QuantizedModel) -> None:
    found = model.coverage("cpu")
    assert found.share == 1
    assert "int8 coverage: 11 of 11 products (100 %)" in found.summary()
    assert "1 in float: no int8 kernel for Concat" in found.summary()
    converting = {(row.op, row.name): row.reason for row in found.rows if row.kind == "border"}
    assert converting == {  # the Concat joins tensors of different scales
        ("QuantizeLinear", "x_codes"): "float comes from the caller",
        ("QuantizeLinear", "concat_codes"): "float comes from Concat",
        ("QuantizeLinear", "globalaveragepool_codes"): "float comes from GlobalAveragePool",
        ("DequantizeLinear", "hardswish_dequantized"): "float is read by Concat",
        ("DequantizeLinear", "sigmoid_dequantized"): "float is read by Concat",
    }
    assert "  2 convert: float is read by Concat [hardswish_dequantized, sigmoid_dequantized]" in found.summary()


def test_a_conversion_for_the_caller_is_told() -> None:
    op = Builder()
    codes = op.input("x", "int8", (2, 3))
    graph = op.graph([codes], {"y": op.DequantizeLinear(codes, op.constant(np.float32(0.5)[()]))})
    (row,) = coverage(aicore.compile(graph, "cpu")).rows
    assert (row.kind, row.reason) == ("border", "float is read by the caller")


def test_fused_and_unfused_agree(model: QuantizedModel, batches: list[Any]) -> None:
    """Against the unfused graph, one unit in the last place of a code is allowed; here the outputs hardly differ."""
    unfused = aicore.compile(model.graph, "cpu", optimize=False).run(batches[0])["y"]
    assert sqnr(unfused, model.compile("cpu").run(batches[0])["y"]) > 45


def test_a_residual_sum_is_rounded_once(model: QuantizedModel) -> None:
    """Between a convolution, the Add behind it and its Relu there is no QuantizeLinear; the other branch has one."""
    quantized = {node.inputs[0] for node in model.graph.nodes if isinstance(node.op, QuantizeLinear)}
    for add in nodes(model.prepared, "Add")[:2]:
        late, early = sorted(add.inputs, key=lambda v: "block" not in v.name)  # type: ignore[union-attr]
        assert late not in quantized
        assert early in quantized
        assert add.outputs[0] not in quantized
    kinds = [type(node.op).__name__ for node in model.compile("cpu").graph.nodes]
    assert kinds.count("Add") == 0


def test_a_residual_that_is_normalised_in_float_has_no_codes() -> None:
    """In eight blocks of a transformer with one large channel; with codes for the residuals, 16 dB are left."""
    rng = np.random.default_rng(0)
    op = Builder()
    h = op.input("x", "float32", ("n", 16, 32))
    x = h

    def constant(*shape: int, scale: float) -> Value:
        return op.constant((scale * rng.standard_normal(shape)).astype(np.float32))

    ones, zeros = op.constant(np.ones(32, np.float32)), op.constant(np.zeros(32, np.float32))
    for _ in range(8):
        y = op.Relu(op.MatMul(op.LayerNormalization(h, ones, zeros), constant(32, 64, scale=0.18)))
        h = op.Add(op.MatMul(y, constant(64, 32, scale=0.12)), h)
    graph = op.graph([x], {"y": h})
    sizes = np.where(np.arange(32) == 3, 20, 1).astype(np.float32)
    data = [rng.standard_normal((4, 16, 32)).astype(np.float32) * sizes for _ in range(3)]
    model = quantize(graph, data)
    wanted = aicore.compile(graph, "cpu").run({"x": data[0]})["y"]
    assert sqnr(wanted, model.compile("cpu").run({"x": data[0]})["y"]) > 30
    assert model.coverage("cpu").share == 1
    added = {add.inputs[1] for add in nodes(model.prepared, "Add")}
    assert all(codes_of(model.graph, value) is None for value in added if value is not None)


def test_what_passes_numbers_on_shares_their_scale(model: QuantizedModel) -> None:
    (pool,) = nodes(model.prepared, "MaxPool")
    source = pool.inputs[0]
    assert source is not None
    before, after = codes_of(model.graph, source), codes_of(model.graph, pool.outputs[0])
    assert before is not None
    assert before == after
    (flat,) = nodes(model.prepared, "Flatten")
    assert flat.inputs[0] is not None
    assert codes_of(model.graph, flat.inputs[0]) == codes_of(model.graph, flat.outputs[0])


def test_a_sigmoid_has_its_own_range_and_breaks_a_concat(model: QuantizedModel) -> None:
    (gate,) = nodes(model.prepared, "Sigmoid")
    assert codes_of(model.graph, gate.outputs[0]) == (np.float32(1 / 256), -128)
    assert model.notes == ["%concat has a scale of its own: %hardswish, %sigmoid have fixed and observed ranges"]


def test_a_concat_of_observed_tensors_shares_one_range() -> None:
    op = Builder()
    x = op.input("x", "float32", (1, 2, 4, 4))
    both = op.Concat(op.Abs(x), op.Mul(x, op.scalar(10.0, x)), axis=1)
    graph = op.graph([x], {"y": op.Conv(both, op.constant(np.ones((2, 4, 1, 1), np.float32)))})
    data = np.linspace(-1, 2, 32, dtype=np.float32).reshape(1, 2, 4, 4)
    model = quantize(graph, [data])
    scales = {float(p.scale) for p in model.job.params.values()}
    assert scales == {float(np.float32(30 / 255))}
    kinds = [type(node.op).__name__ for node in model.compile("cpu").graph.nodes]
    assert "Concat" in kinds
    assert model.coverage("cpu").share == 1


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_has_its_channels_where_transB_says(transposed: int) -> None:
    rng = np.random.default_rng(0)
    w = (rng.normal(size=(5, 3)) * [1, 10, 100]).astype(np.float32)
    op = Builder()
    x = op.input("x", "float32", ("n", 5))
    weight = op.constant(np.ascontiguousarray(w.T) if transposed else w)
    graph = op.graph([x], {"y": op.Gemm(x, weight, transB=transposed)})
    model = quantize(graph, [rng.normal(size=(9, 5)).astype(np.float32)])
    (dequantize,) = [
        n for n in nodes(model.graph, "DequantizeLinear") if n.outputs[0] in nodes(model.graph, "Gemm")[0].inputs[1:]
    ]
    assert isinstance(dequantize.op, DequantizeLinear)
    assert dequantize.op.axis == (0 if transposed else 1)
    np.testing.assert_allclose(dequantize.inputs[1].constant.array, np.abs(w).max(0) / 127, rtol=1e-6)  # type: ignore[union-attr]


def test_excluded_nodes_stay_in_float(network: Graph, batches: list[Any]) -> None:
    model = quantize(network, batches, exclude=["block2*", "stem"])
    assert model.kept == {"stem": "excluded", "block2a": "excluded", "block2b": "excluded"}
    found = model.coverage("cpu")
    assert sum(row.kind == "int8" and row.products for row in found.rows) == 8
    assert "3 in float: excluded" in found.summary()


def test_one_scale_for_a_whole_weight(network: Graph, batches: list[Any]) -> None:
    model = quantize(network, batches, per_channel=False)
    assert {w.params.scale.shape for w in model.job.weights.values()} == {()}


@pytest.mark.parametrize("method", ["moving-average", "percentile", "entropy", "mse"])
def test_other_methods(method: str, network: Graph, batches: list[Any]) -> None:
    model = quantize(network, batches, method=method)
    exact, quantized = aicore.compile(network, "cpu"), model.compile("cpu")
    assert sqnr(exact.run(batches[0])["y"], quantized.run(batches[0])["y"]) > 15


def test_the_file_is_standard_and_other_runtimes_agree(
    model: QuantizedModel, batches: list[Any], tmp_path: Any
) -> None:
    path = tmp_path / "m.onnx"
    assert model.save(path) == 21
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()  # its fused kernels saturate where there is no VNNI: not an oracle
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, batches[0])
    ours = aicore.compile(path, "cpu")
    assert coverage(ours).share == 1
    assert sqnr(theirs, ours.run(batches[0])["y"]) > 45


def test_data_in_every_form(network: Graph, batches: list[Any]) -> None:
    wanted = quantize(network, batches).job.params
    forms = [[b["x"] for b in batches], [(b["x"],) for b in batches], (b for b in batches)]
    for form in forms:
        found = quantize(network, form).job.params
        assert [float(p.scale) for p in found.values()] == [float(p.scale) for p in wanted.values()]


def test_bad_data_is_refused(network: Graph, batches: list[Any]) -> None:
    with pytest.raises(QuantizationError, match="the calibration data is empty"):
        quantize(network, [])
    bad = batches[1]["x"].copy()
    bad[0, 0, 0, 0] = np.nan
    with pytest.raises(QuantizationError, match=r"%?x: 1 of 768 numbers are not finite \(NaN\)"):
        quantize(network, [bad])
    with pytest.raises(QuantizationError, match=r"batch 0 of the data feeds \['z'\]"):
        quantize(network, [{"z": batches[0]["x"]}])
    with pytest.raises(CalibrationError, match="there is no method 'best'"):
        quantize(network, batches, method="best")
    assert issubclass(CalibrationError, QuantizationError)
    assert issubclass(InputError, Exception)


@pytest.mark.parametrize("method", ["minmax", pytest.param("entropy", marks=pytest.mark.slow)])
def test_memory_is_flat_over_a_thousand_batches(method: str) -> None:
    """Peak of Python's allocations, NumPy's among them, after everything is compiled and warm."""
    op = Builder()
    x = op.input("x", "float32", (4, 64))
    h = op.Relu(op.MatMul(x, op.constant(np.eye(64, dtype=np.float32))))
    graph = op.graph([x], {"y": op.MatMul(h, op.constant(np.eye(64, dtype=np.float32)))})

    def data(count: int) -> Iterator[Array]:
        rng = np.random.default_rng(0)
        for _ in range(count):
            yield rng.standard_normal((4, 64)).astype(np.float32)

    def peak(count: int) -> int:
        tracemalloc.start()
        quantize(graph, data(count), method=method)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)
    kept = peak(1000) - peak(10)
    # Python's free lists hold up to 2,000 tuples of each length, 56 bytes each, and how full they are is chance; were
    # batches kept, that would be 990 KiB.
    assert kept < 990 * 1024 / 4
