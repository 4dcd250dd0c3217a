"""Operands that one code a number serves badly get two, in standard operators, on the same kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import aicore
from aicore.ir import Builder, Graph
from aicore.ops.matmul import MatMul
from aicore_int8_quant import QuantizedModel, analyze, quantize
from aicore_int8_quant.affine import Format, QParams, qparams_of
from aicore_int8_quant.analysis.measures import sqnr
from aicore_int8_quant.observers.magnitudes import Magnitudes, decibels
from aicore_int8_quant.passes.split import rest_params, two_codes

Array = np.ndarray[Any, Any]


def peaked(seed: int) -> Array:
    """Of 1024 numbers one is 600 or -600: 8 bits between these leave the others 3 codes."""
    x = np.random.default_rng(seed).standard_normal((4, 64, 32)).astype(np.float32)
    x[0, 0, :8] = 600 * np.sign(x[0, 0, :8])
    return x


def data(*seeds: int) -> list[dict[str, Array]]:
    normal = [np.random.default_rng(seed + 9).standard_normal((4, 64, 32)).astype(np.float32) for seed in seeds]
    return [{"x": peaked(seed), "s": s} for seed, s in zip(seeds, normal, strict=True)]


def attention() -> Graph:
    """A product by a constant behind a Reshape; one of two tensors, the first a Softmax over 64."""
    rng = np.random.default_rng(0)
    op = Builder()

    def weight(*shape: int) -> Any:
        return op.constant((rng.standard_normal(shape) / 6).astype(np.float32))

    def product(name: str, x: Any, w: Any) -> Any:
        return op.apply(MatMul(), x, w, names=[name])

    x, s = op.input("x", "float32", (4, 64, 32)), op.input("s", "float32", (4, 64, 32))
    q, k, v = product("q", s, weight(32, 32)), product("k", s, weight(32, 32)), op.Relu(product("v", s, weight(32, 32)))
    scores = op.Mul(product("scores", q, op.Transpose(k, perm=(0, 2, 1))), op.scalar(0.1, s))
    p = op.Softmax(scores, axis=-1)
    y = op.Add(product("head", op.Reshape(x, op.constant(np.array([256, 32]))), weight(32, 8)), weight(8))
    return op.graph([x, s], {"y": y, "z": product("mixed", p, v)})


@pytest.fixture(scope="module")
def model() -> QuantizedModel:
    return quantize(attention(), data(1, 2))


def outputs(model: QuantizedModel) -> dict[str, Array]:
    return model.compile("cpu").run(data(3)[0])


def test_what_is_coarse_gets_two_codes(model: QuantizedModel) -> None:
    exact = aicore.compile(model.prepared, "cpu").run(data(3)[0])
    one = outputs(quantize(attention(), data(1, 2), split_below=None))
    two = outputs(model)
    assert sqnr(exact["y"][1:64], one["y"][1:64]) < 15
    assert sqnr(exact["y"][1:64], two["y"][1:64]) > 30
    assert sqnr(exact["z"], two["z"]) > sqnr(exact["z"], one["z"]) + 6


def test_every_product_runs_in_int8(model: QuantizedModel) -> None:
    split = [note for note in model.notes if "two codes for each number" in note]
    assert len(split) == len(model.job.coarse) == 2
    assert sorted(note.split("'")[1] for note in split) == ["head", "mixed"]
    found = model.coverage("cpu")
    assert found.share == 1
    assert sum(row.products for row in found.rows) == 6 + 2


def test_other_runtimes_read_it(model: QuantizedModel, tmp_path: Any) -> None:
    assert model.save(tmp_path / "m.onnx") == 21
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    theirs = dict(zip(("y", "z"), session.run(["y", "z"], data(3)[0]), strict=True))
    for name, array in outputs(model).items():
        assert sqnr(theirs[name], array) > 60


def test_tensors_with_a_second_reader_in_codes_keep_one_code() -> None:
    """A depthwise convolution reads codes of x, so that there are no floats of it any more."""
    rng = np.random.default_rng(0)
    op = Builder()
    x = op.input("x", "float32", (1, 4, 32, 32))
    h = op.Abs(x)
    ones = op.constant(rng.standard_normal((4, 1, 3, 3)).astype(np.float32))
    narrow = op.constant(rng.standard_normal((2, 4, 1, 1)).astype(np.float32))
    graph = op.graph([x], {"a": op.Conv(h, narrow), "b": op.Conv(h, ones, group=4)})
    data = rng.standard_normal((1, 4, 32, 32)).astype(np.float32)
    data[0, 0, 0, 0] = 1000
    model = quantize(graph, [data])
    assert len(model.job.coarse) == 1
    assert model.notes == []
    assert sum(row.products for row in model.coverage("cpu").rows) == 2


def test_the_diagnosis_counts_both_codes(model: QuantizedModel) -> None:
    layers = {layer["name"]: layer for layer in analyze(model, data(3), batches=1).layers}
    assert sum(layer["codes_a_number"] == 2 for layer in layers.values()) == len(model.job.coarse)
    one = analyze(quantize(attention(), data(1), split_below=None), data(3), batches=1)
    for layer in one.layers:
        if layers[layer["name"]]["codes_a_number"] == 2:
            assert layers[layer["name"]]["activation_sqnr"] > layer["activation_sqnr"] + 20


def test_two_codes_have_sixteen_bits() -> None:
    """A step of 1 leaves up to 0.5, in 127 steps of 1/254."""
    params = QParams(np.asarray(np.float32(1)), np.asarray(np.int8(3)))
    rest = rest_params(params)
    assert rest.scale == np.float32(1) / np.float32(254)
    assert rest.zero_point == 0
    x = np.float32([0.5, -0.5, 1 / 254, 17.2, 1000])
    assert params.quantize(x).tolist() == [3, 3, 3, 20, 127]
    np.testing.assert_allclose(two_codes(params, x)[:4], x[:4], atol=0.5 / 254 + 1e-6)
    assert two_codes(params, x)[4] == pytest.approx(124 + 0.5, abs=0.01)  # what lies beyond the codes is cut off


def test_steps_are_never_zero() -> None:
    params = qparams_of(np.array(0.0), np.array(1e-44), Format())
    assert rest_params(params).scale > 0


def test_decibels_above_the_rounding() -> None:
    """Steps of 1 have the power 1/12; a tensor of ones is 10 log10(12) above that, and one of tens 20 more."""
    assert decibels(1.0, 1.0) == pytest.approx(10.79, abs=0.01)
    assert decibels(100.0, 1.0) == pytest.approx(30.79, abs=0.01)
    assert decibels(1.0, 0.1) == pytest.approx(30.79, abs=0.01)
    assert decibels(0.0, 1.0) == np.inf


def test_magnitudes_give_the_mean_square() -> None:
    rng = np.random.default_rng(0)
    for numbers in (rng.standard_normal(50_000), rng.laplace(size=50_000) * 1e-20, rng.uniform(-1e20, 0, 50_000)):
        seen = Magnitudes()
        seen.update(numbers.astype(np.float32))
        assert seen.mean_square == pytest.approx((numbers**2).mean(), rel=0.01)
    assert Magnitudes().mean_square == 0


def test_magnitudes_do_not_depend_on_batches() -> None:
    numbers = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    numbers[:3] = np.nan, np.inf, -np.inf
    whole, parts, other = Magnitudes(), Magnitudes(), Magnitudes()
    whole.update(numbers)
    for part in np.array_split(numbers[::-1][:700], 7):
        parts.update(part)
    other.update(numbers[::-1][700:])
    parts.merge(other)
    np.testing.assert_array_equal(whole.counts, parts.counts)
    assert whole.counts.sum() == 997
