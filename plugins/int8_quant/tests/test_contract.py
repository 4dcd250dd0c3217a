"""Lines of the numeric contract that no other file has, each with its right value, on the program that runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aicore
from aicore.ir import Builder, Graph, TensorType
from aicore.ops.activation import Clip, Relu
from aicore.ops.convolution import Conv
from aicore.ops.layout import ChannelsLast
from aicore.ops.matmul import MatMul
from aicore.ops.quantization import QuantizeLinear
from aicore_int8_quant import quantize
from aicore_int8_quant.affine import Format, qparams_of
from aicore_int8_quant.job import Options
from aicore_int8_quant.kernels import KERNELS
from aicore_int8_quant.ops import Int8Conv, Int8MatMul
from plugins.int8_quant.tests.layerwise import layers, unfused

Array = np.ndarray[Any, Any]
ONE = np.float32(1)[()]


def computed(op: Any, *operands: Array | None) -> Array:
    """By the program for one op, all operands being inputs."""
    builder = Builder()
    values = [None if a is None else builder.input(f"v{i}", a.dtype.name, a.shape) for i, a in enumerate(operands)]
    graph = builder.graph([v for v in values if v is not None], {"y": builder.apply(op, *values)})
    program = aicore.compile(graph, "cpu", fallback="error")
    return program.run({f"v{i}": a for i, a in enumerate(operands) if a is not None})["y"]


def quantized(x: list[float], scale: float, zero_point: int) -> list[int]:
    found = computed(QuantizeLinear(), np.float32(x), np.float32(scale)[()], np.int8(zero_point)[()])
    return [int(code) for code in found]


def test_quantize_linear_divides() -> None:
    """0.3181818 / (1/11) is 3.4999998; times 11 it would be 3.5, which rounds to 4."""
    assert quantized([0.3181818], 1 / 11, 0) == [3]


def test_quantize_linear_rounds_before_it_adds() -> None:
    """0.5 + 1 would be 1.5, and so 2; 0.5 is rounded to 0 first."""
    assert quantized([-2.5, -0.5, 0.5, 1.5, 2.5], 1, 1) == [-1, 1, 1, 3, 3]


def test_quantize_linear_clamps_floats() -> None:
    assert quantized([3e9, -3e9, np.inf, -np.inf], 1, 0) == [127, -128, 127, -128]
    assert quantized([126.4, 126.6], 1, 1) == [127, 127]


def test_sums_wrap_and_never_saturate() -> None:
    """2^31 - 1 + 127 * 127 is -2^31 + 16128, of which float32 keeps -2^31 + 16128: a multiple of 128."""
    a, b = np.int8([[127]]), np.int8([[127]])
    most = np.int32([2**31 - 1])
    wanted = np.float32(-(2**31) + 16128)
    assert computed(Int8MatMul(), a, b, ONE, None, None, most).item() == wanted
    image, weight = a.reshape(1, 1, 1, 1), b.reshape(1, 1, 1, 1)
    assert computed(Int8Conv(), image, weight, ONE, None, None, most).item() == wanted
    assert last(Int8Conv(), image, weight, ONE, None, None, most).item() == wanted


def last(op: Int8Conv, x: Array, *operands: Array | None) -> Array:
    """By the kernel for channels last, on an image with channels first; all but the images are constants."""
    (kernel,) = [k for k in KERNELS if k.op is ChannelsLast]
    given: list[Array | None] = [np.ascontiguousarray(np.moveaxis(x, 1, -1)), *operands]
    if len(given) > 6 and given[6] is not None:
        given[6] = np.ascontiguousarray(np.moveaxis(given[6], 1, -1))
    builder = Builder()
    values = [None if a is None else builder.input("x", a.dtype.name, a.shape) for a in given]
    y = builder.apply(ChannelsLast(op, x.ndim), *values)
    settled, types = builder.nodes[-1].op, [None if v is None else v.type for v in values]
    assert kernel.reason_against(settled, *types) is None
    assert kernel.workspace is not None
    assert kernel.bind is not None
    out = np.full(y.type.static_shape, 77, y.dtype)
    workspace = np.full(kernel.workspace(settled, *types), 255, np.uint8)
    constants = [None if i in (0, 6) else a for i, a in enumerate(given)]
    kernel.bind(settled, types, constants)(*given, out=out, workspace=workspace)
    return np.moveaxis(out, -1, 1)


@given(seed=st.integers(0, 2**32 - 1), data=st.data())
@settings(deadline=None, max_examples=60)
def test_convolutions_with_channels_last_have_the_same_bits(seed: int, data: st.DataObject) -> None:
    """As the kernel for channels first, which test_exact.py holds to the oracle: groups, dilations, pads, addends."""
    rng = np.random.default_rng(seed)
    group, channels, maps = data.draw(st.sampled_from([(1, 3, 4), (1, 40, 2), (3, 2, 2), (4, 1, 1), (1, 1, 9)]))
    kernel = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations, strides = (data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2))) for _ in range(2))
    pads = data.draw(st.tuples(*[st.integers(0, 2)] * 4))
    left, right = data.draw(st.sampled_from(["int8", "uint8"])), data.draw(st.sampled_from(["int8", "uint8"]))
    ends = data.draw(st.booleans())

    def codes(shape: tuple[int, ...], dtype: str) -> Array:
        limits = np.iinfo(dtype)
        return (
            rng.choice([limits.min, limits.max], shape) if ends else rng.integers(limits.min, limits.max + 1, shape)
        ).astype(dtype)

    conv = Conv(dilations=dilations, strides=strides, pads=pads, group=group, kernel_shape=kernel)
    activation = data.draw(st.sampled_from([None, Relu(), Clip(-3.5, 9.0)]))
    op, x = Int8Conv(activation, conv), codes((2, group * channels, 6, 7), left)
    w = codes((group * maps, channels, *kernel), right)
    operands: list[Array | None] = [
        *(w, (rng.random(len(w)) / 1000).astype(np.float32), codes((), left), codes((len(w),), right)),
        rng.integers(-(2**26), 2**26, len(w)).astype(np.int32),
    ]
    wanted_type = Builder()
    values = [None if a is None else wanted_type.input("x", a.dtype.name, a.shape) for a in (x, *operands)]
    shape = wanted_type.apply(op, *values).type.static_shape
    added = rng.standard_normal(shape).astype(np.float32) if data.draw(st.booleans()) else None
    operands += [added, None, None, data.draw(st.sampled_from([ONE, np.float32(0.37)[()]])), codes((), left)]
    np.testing.assert_array_equal(last(op, x, *operands), computed(op, x, *operands))


@pytest.mark.parametrize("channels", [514, 600, 1024, 1500])
def test_long_sums_with_channels_last(channels: int) -> None:
    """Where float32 does not hold the sums, and channels are cut in parts of unequal length."""
    x = np.full((1, channels, 3, 4), 255, np.uint8)
    w = np.where(np.arange(3 * channels * 4).reshape(3, channels, 2, 2) % 7 == 0, 127, -127).astype(np.int8)
    conv = Conv(kernel_shape=(2, 2))
    sums = np.einsum("mcij->m", w.astype(np.int64)) * 255
    found = last(Int8Conv(None, conv), x, w, ONE)
    np.testing.assert_array_equal(found[0, :, 1, 1], sums.astype(np.float32))


def test_kernels_of_too_many_elements_go_channels_first() -> None:
    (kernel,) = [k for k in KERNELS if k.op is ChannelsLast]
    op = ChannelsLast(Int8Conv(conv=Conv(kernel_shape=(17, 17))), 4)
    types = [TensorType("int8", (1, 20, 20, 1)), TensorType("int8", (1, 1, 17, 17)), TensorType("float32", ())]
    assert kernel.reason_against(op, *types) == "takes kernels of at most 258 elements"
    grouped = ChannelsLast(Int8Conv(conv=Conv(kernel_shape=(9, 9), group=2)), 4)
    types = [TensorType("int8", (1, 20, 20, 8)), TensorType("int8", (2, 4, 9, 9)), TensorType("float32", ())]
    assert kernel.reason_against(grouped, *types) == "takes groups whose sums have at most 258 terms"
    added = [TensorType("int8", (1, 4, 4, 2)), TensorType("int8", (3, 2, 1, 1)), TensorType("float32", ()), *[None] * 3]
    one = kernel.reason_against(ChannelsLast(Int8Conv(), 4), *added, TensorType("float32", (1, 4, 1, 1)))
    assert one is not None
    assert "adds a tensor of the shape of the result" in one


def test_unsigned_codes_are_signed_ones_moved_by_128() -> None:
    """x ^ 0x80 read as s8 is x - 128, and so with the zero point: the same differences, and the same sums."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (5, 33)).astype(np.uint8), rng.integers(-127, 128, (33, 4)).astype(np.int8)
    point = np.uint8(137)[()]
    unsigned = computed(Int8MatMul(), x, w, ONE, point)
    signed = computed(Int8MatMul(), (x ^ 0x80).view(np.int8), w, ONE, np.int8(137 - 128)[()])
    np.testing.assert_array_equal(unsigned, signed)
    np.testing.assert_array_equal(unsigned, ((x.astype(np.int64) - 137) @ w.astype(np.int64)).astype(np.float32))


def test_activations_use_the_lowest_code() -> None:
    found = qparams_of(np.array(-128.0), np.array(127.0), Format())  # 255 steps of 1
    assert found.quantize(np.float32([-128, 127])).tolist() == [-128, 127]


def test_minmax_is_the_default() -> None:
    assert inspect.signature(quantize).parameters["method"].default == Options().method == "minmax"
    assert inspect.signature(quantize).parameters["split_below"].default == Options().split_below == 24


def test_at_most_one_code_from_the_unfused_graph(network: Graph, batches: list[Any]) -> None:
    model = quantize(network, batches)
    found = [apart for _, apart in layers(model.graph, {model.graph.inputs[0]: batches[0]["x"]}, unfused)]
    assert len(found) >= 8
    assert max(apart.max() for apart in found) <= 1


def test_batch_norm_is_folded_before_weights_are_quantised(make_network: Callable[[], Any]) -> None:
    """Per channel w * gamma / sqrt(variance + epsilon): the scale of the codes is that of the product."""
    op = make_network().op
    x = op.input("x", "float32", ("n", 1, 4, 4))
    w = op.constant(np.float32([[[[1.0]]], [[[-2.0]]]]), "w")
    numbers = {"gamma": [3.0, 5.0], "beta": [0.5, -0.5], "mean": [0.0, 0.0], "variance": [1.0, 4.0]}
    scales = [op.constant(np.float32(v), name) for name, v in numbers.items()]
    y = op.BatchNormalization(op.Conv(x, w), *scales, epsilon=0.0)
    model = quantize(op.graph([x], {"y": y}), [np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 1, 4, 4)])
    assert [type(n.op).__name__ for n in model.prepared.nodes] == ["Conv"]
    (weight,) = model.job.weights.values()
    np.testing.assert_allclose(weight.params.scale, [3 / 127, 5 / 127], rtol=1e-6)  # 1 * 3 / 1 and 2 * 5 / 2
    assert weight.codes.ravel().tolist() == [127, -127]
    assert weight.bias is not None
    x_scale = float(next(iter(model.job.params.values())).scale)
    np.testing.assert_allclose(weight.bias, np.rint(np.float64([0.5, -0.5]) / (x_scale * np.float64([3, 5]) / 127)))


def test_batched_weights_have_their_channels_last() -> None:
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((2, 5, 3)) * [1, 10, 100]).astype(np.float32)
    op = Builder()
    x = op.input("x", "float32", (2, 4, 5))
    graph = op.graph([x], {"y": op.apply(MatMul(), x, op.constant(w))})
    (weight,) = quantize(graph, [rng.standard_normal((2, 4, 5)).astype(np.float32)]).job.weights.values()
    assert weight.params.axis == 2
    np.testing.assert_allclose(weight.params.scale, np.abs(w).max((0, 1)) / 127, rtol=1e-6)
