"""Models that others have quantised run on int8 kernels: QDQ graphs, QLinear nodes, integer products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import aicore
from aicore.ir import Builder, Graph, Value
from aicore.ops.activation import Clip, HardSwish, Relu
from aicore_int8_quant import coverage
from aicore_int8_quant.ops import Int8Conv, Int8Lookup, Int8MatMul, WeightOnlyMatMul

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def kinds(graph: Graph) -> list[str]:
    return [type(node.op).__name__ for node in graph.nodes]


def both(graph: Any, **feeds: Array) -> tuple[aicore.Program, Array, Array]:
    """The fused program, its output y, and that of the graph as it was, which runs in floating point."""
    program = aicore.compile(graph, "cpu", fallback="error", choices="-place-channels-last")
    plain = aicore.compile(graph, "cpu", fallback="error", optimize=False)
    return program, program.run(feeds)["y"], plain.run(feeds)["y"]


class Qdq:
    """A builder of QDQ graphs."""

    def __init__(self) -> None:
        self.op = Builder()

    def constant(self, array: Any, dtype: str) -> Value:
        return self.op.constant(np.asarray(array, dtype))

    def coded(self, x: Value, scale: float = 0.05, point: int = 3, dtype: str = "int8") -> Value:
        s, z = self.constant(scale, "float32"), self.constant(point, dtype)
        return self.op.DequantizeLinear(self.op.QuantizeLinear(x, s, z), s, z)

    def weight(self, *shape: int, axis: int | None = 0, dtype: str = "int8", low: int = -127) -> Value:
        codes = RNG.integers(low, 128 if dtype == "int8" else 256, shape)
        scale = RNG.uniform(0.002, 0.02, () if axis is None else shape[axis])
        points = np.zeros(np.shape(scale)) if dtype == "int8" else np.full(np.shape(scale), 121)
        parts = self.constant(codes, dtype), self.constant(scale, "float32"), self.constant(points, dtype)
        return self.op.DequantizeLinear(*parts, axis=0 if axis is None else axis)


def test_a_convolution_grows_by_bias_activation_and_result() -> None:
    q = Qdq()
    x = q.op.input("x", "float32", ("n", 4, 6, 6))
    w = q.weight(8, 4, 3, 3)
    scale = 0.05 * w_scale(q, w)
    bias = q.op.DequantizeLinear(q.constant(RNG.integers(-99, 99, 8), "int32"), q.constant(scale, "float32"), axis=0)
    y = q.coded(q.op.Relu(q.op.Conv(q.coded(x), w, bias, pads=(1, 1, 1, 1))), 0.1)
    program, got, wanted = both(q.op.graph([x], {"y": y}), x=normal(2, 4, 6, 6))
    assert kinds(program.graph) == ["QuantizeLinear", "Int8Conv", "DequantizeLinear"]
    conv = program.graph.nodes[1]
    assert isinstance(conv.op, Int8Conv)
    assert conv.op.activation == Relu()
    assert conv.inputs[5].dtype == "int32"  # type: ignore[union-attr]
    close_to_one_code(got, wanted, 0.1)


def w_scale(q: Qdq, w: Value) -> Array:
    node = next(node for node in q.op.nodes if w in node.outputs)
    assert node.inputs[1] is not None
    assert node.inputs[1].constant is not None
    return node.inputs[1].constant.array.astype(np.float64)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def close_to_one_code(got: Array, wanted: Array, scale: float) -> None:
    """Equal, or one code apart, and that rarely."""
    apart = np.abs(got - wanted) / scale
    assert apart.max() < 1.01
    assert (apart > 0.5).mean() < 0.02


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_with_weights_of_either_type_and_order(dtype: str, transposed: int) -> None:
    q = Qdq()
    x = q.op.input("x", "float32", ("n", 9))
    w = q.weight(*((5, 9) if transposed else (9, 5)), axis=0 if transposed else 1, dtype=dtype, low=0)
    y = q.coded(q.op.Gemm(q.coded(x, dtype="uint8", point=120), w, transB=transposed), 0.1)
    program, got, wanted = both(q.op.graph([x], {"y": y}), x=normal(4, 9))
    assert kinds(program.graph) == ["QuantizeLinear", "Int8MatMul", "DequantizeLinear"]
    close_to_one_code(got, wanted, 0.1)


def test_a_transposed_weight_is_folded_first() -> None:
    q = Qdq()
    x = q.op.input("x", "float32", ("n", 9))
    w = q.op.Transpose(q.weight(5, 9, axis=0), perm=(1, 0))
    program, got, wanted = both(q.op.graph([x], {"y": q.coded(q.op.MatMul(q.coded(x), w), 0.1)}), x=normal(4, 9))
    assert kinds(program.graph) == ["QuantizeLinear", "Int8MatMul", "DequantizeLinear"]
    close_to_one_code(got, wanted, 0.1)


def test_scales_along_the_summed_axis_stay_in_float() -> None:
    q = Qdq()
    x = q.op.input("x", "float32", ("n", 9))
    graph = q.op.graph([x], {"y": q.op.MatMul(q.coded(x), q.weight(9, 5, axis=0))})
    program, got, wanted = both(graph, x=normal(4, 9))
    assert coverage(program).share == 0
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_a_weight_that_is_quantised_while_the_model_runs() -> None:
    """Some exporters leave QuantizeLinear in front of constant weights."""
    q = Qdq()
    x = q.op.input("x", "float32", ("n", 9))
    w = q.coded(q.op.constant(normal(9, 5)), 0.0213, 0)
    program, got, wanted = both(q.op.graph([x], {"y": q.coded(q.op.MatMul(q.coded(x), w), 0.1)}), x=normal(4, 9))
    assert kinds(program.graph) == ["QuantizeLinear", "Int8MatMul", "DequantizeLinear"]
    close_to_one_code(got, wanted, 0.1)


def test_two_tensors_are_multiplied() -> None:
    q = Qdq()
    a, b = q.op.input("a", "float32", (2, 3, 8)), q.op.input("b", "float32", (2, 8, 5))
    y = q.coded(q.op.MatMul(q.coded(a), q.coded(b, 0.04, -7)), 0.2)
    program, got, wanted = both(q.op.graph([a, b], {"y": y}), a=normal(2, 3, 8), b=normal(2, 8, 5))
    assert "Int8MatMul" in kinds(program.graph)
    close_to_one_code(got, wanted, 0.2)


@pytest.mark.parametrize("activation", [Clip(0.0, 6.0), HardSwish(), None])
def test_a_residual_joins_the_later_product(activation: Any) -> None:
    q = Qdq()
    x = q.op.input("x", "float32", (1, 4, 6, 6))
    start = q.coded(x)
    short = q.coded(q.op.Conv(start, q.weight(8, 4, 1, 1)), 0.07)
    total = q.op.Add(short, q.op.Conv(start, q.weight(8, 4, 3, 3), pads=(1, 1, 1, 1)))
    y = q.coded(total if activation is None else q.op.apply(activation, total), 0.1)
    program, got, wanted = both(q.op.graph([x], {"y": y}), x=normal(1, 4, 6, 6))
    assert kinds(program.graph) == ["QuantizeLinear", "Int8Conv", "Int8Conv", "DequantizeLinear"]
    assert program.graph.nodes[2].inputs[6].dtype == "int8"  # type: ignore[union-attr]
    close_to_one_code(got, wanted, 0.1)


def test_a_float_bias_is_added_after_the_scale() -> None:
    q = Qdq()
    x = q.op.input("x", "float32", (1, 4, 6, 6))
    conv = q.op.Conv(q.coded(x), q.weight(8, 4, 3, 3), q.op.constant(normal(8) * np.float32(1e9)))
    program, got, wanted = both(q.op.graph([x], {"y": conv}), x=normal(1, 4, 6, 6))
    assert kinds(program.graph) == ["QuantizeLinear", "Int8Conv"]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_a_result_that_others_read_is_not_swallowed() -> None:
    q = Qdq()
    x = q.op.input("x", "float32", (1, 4, 6, 6))
    conv = q.op.Conv(q.coded(x), q.weight(8, 4, 1, 1))
    graph = q.op.graph([x], {"y": q.coded(q.op.Relu(conv), 0.1), "z": conv})
    program = aicore.compile(graph, "cpu", fallback="error", choices="-place-channels-last")
    results = program.run({"x": normal(1, 4, 6, 6)})
    assert results["z"].min() < 0
    conv8 = next(node for node in program.graph.nodes if isinstance(node.op, Int8Conv))
    assert conv8.op.activation is None  # type: ignore[attr-defined]


def test_what_moves_numbers_moves_codes() -> None:
    q = Qdq()
    x = q.op.input("x", "float32", (1, 4, 6, 6))
    h = q.op.MaxPool(q.coded(q.op.Conv(q.coded(x), q.weight(8, 4, 1, 1)), 0.1), kernel_shape=(2, 2), strides=(2, 2))
    h = q.coded(q.op.Reshape(q.coded(h, 0.1), q.op.constant(np.array([1, -1]))), 0.1)
    program, got, wanted = both(q.op.graph([x], {"y": q.op.MatMul(h, q.weight(72, 3, axis=1))}), x=normal(1, 4, 6, 6))
    assert kinds(program.graph) == ["QuantizeLinear", "Int8Conv", "MaxPool", "Reshape", "Int8MatMul"]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=0.3)  # a code more or less in front of the last product


def test_functions_between_codes_become_a_table() -> None:
    q = Qdq()
    x = q.op.input("x", "float32", (3, 70))
    y = q.coded(q.op.Exp(q.op.Neg(q.coded(x, 0.02))), 0.01, -128)
    program, got, wanted = both(q.op.graph([x], {"y": y}), x=normal(3, 70))
    assert kinds(program.graph) == ["QuantizeLinear", "Int8Lookup", "DequantizeLinear"]
    np.testing.assert_array_equal(got, wanted)
    assert Int8Lookup in {type(node.op) for node in program.graph.nodes}


def test_other_scales_do_not_cancel() -> None:
    q = Qdq()
    x = q.op.input("x", "float32", (3, 70))
    program, got, wanted = both(q.op.graph([x], {"y": q.coded(q.coded(x, 0.02), 0.03)}), x=normal(3, 70))
    assert kinds(program.graph).count("QuantizeLinear") == 2
    np.testing.assert_array_equal(got, wanted)
    program, got, wanted = both(q.op.graph([x], {"y": q.coded(q.coded(x, 0.02), 0.02)}), x=normal(3, 70))
    assert kinds(program.graph) == ["QuantizeLinear", "DequantizeLinear"]


QLINEAR = """
<ir_version: 8, opset_import: ["" : 18]>
g (uint8[2,4,6,6] x) => (uint8[2,6,6,6] y)
<float xs = {0.02}, uint8 xz = {113}, float ys = {0.05}, uint8 yz = {7}>
{ y = QLinearConv<pads=[1,1,1,1]>(x, xs, xz, w, ws, wz, ys, yz, b) }
"""


def qlinear_conv() -> onnx.ModelProto:
    model = onnx.parser.parse_model(QLINEAR)
    constants = {
        "w": RNG.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8),
        "ws": RNG.uniform(0.001, 0.01, 6).astype(np.float32),
        "wz": np.zeros(6, np.int8),
        "b": RNG.integers(-999, 999, 6).astype(np.int32),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in constants.items())
    return model


def test_qlinear_convolutions_have_the_same_bits() -> None:
    model = qlinear_conv()
    x = RNG.integers(0, 256, (2, 4, 6, 6)).astype(np.uint8)
    program, got, wanted = both(model, x=x)
    assert kinds(program.graph) == ["Int8Conv"]
    np.testing.assert_array_equal(got, wanted)


def test_qlinear_products_have_the_same_bits() -> None:
    op = Builder()
    a = op.input("a", "uint8", ("n", 9))
    parts = [np.float32(0.02), np.uint8(113), RNG.integers(-127, 128, (9, 5)).astype(np.int8)]
    parts += [RNG.uniform(0.001, 0.01, 5).astype(np.float32), np.zeros(5, np.int8), np.float32(0.03), np.uint8(5)]
    graph = op.graph([a], {"y": op.QLinearMatMul(a, *(op.constant(np.asarray(p)) for p in parts))})
    program, got, wanted = both(graph, a=RNG.integers(0, 256, (4, 9)).astype(np.uint8))
    assert kinds(program.graph) == ["Int8MatMul"]
    np.testing.assert_array_equal(got, wanted)


def dynamic_product(scale_of: Callable[[Builder, Value, Value], Value]) -> Graph:
    op = Builder()
    x = op.input("x", "float32", ("n", 9))
    codes, scale, point = op.DynamicQuantizeLinear(x)
    w = op.constant(RNG.integers(-127, 128, (9, 5)).astype(np.int8))
    sums = op.MatMulInteger(codes, w, point, op.constant(np.zeros((), np.int8)))
    real = op.Mul(op.Cast(sums, to="float32"), scale_of(op, scale, w))
    return op.graph([x], {"y": op.Relu(op.Add(real, op.constant(normal(5))))})


def test_dynamic_products_take_scale_bias_and_activation() -> None:
    def scale_of(op: Builder, scale: Value, w: Value) -> Value:
        return op.Mul(scale, op.constant(RNG.uniform(0.001, 0.01, 5).astype(np.float32)))

    program, got, wanted = both(dynamic_product(scale_of), x=normal(4, 9))
    names = kinds(program.graph)
    assert "Int8MatMul" in names
    assert not {"MatMulInteger", "Relu", "Add"} & set(names)
    np.testing.assert_array_equal(got, wanted)


def test_dynamic_products_with_a_scale_for_each_row_are_left() -> None:
    def scale_of(op: Builder, scale: Value, w: Value) -> Value:
        return op.constant(RNG.uniform(0.001, 0.01, (4, 1)).astype(np.float32))

    program, got, wanted = both(dynamic_product(scale_of), x=normal(4, 9))
    assert "MatMulInteger" in kinds(program.graph)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_weights_of_integers_alone() -> None:
    q = Qdq()
    x = q.op.input("x", "float32", ("n", 9))
    program, got, wanted = both(q.op.graph([x], {"y": q.op.MatMul(x, q.weight(9, 5, axis=1))}), x=normal(4, 9))
    assert [type(node.op) for node in program.graph.nodes] == [WeightOnlyMatMul]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_models_in_floating_point_are_left_alone() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3))
    graph = op.graph([x], {"y": op.MatMul(x, op.constant(normal(3, 4)))})
    assert not {Int8MatMul, Int8Conv} & {
        type(node.op) for node in aicore.compile(graph, "cpu", choices="-place-channels-last").graph.nodes
    }
