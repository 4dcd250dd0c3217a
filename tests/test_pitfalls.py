"""Classes of faults that other runtimes had, each with the right value worked out by hand from the ONNX text.

Every model runs optimised and not, on both devices, with its data as inputs and as constants, so that kernels, fusions
and constant folding all have to give that value. One test for each class; it carries the class's name.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import aicore
from aicore.errors import AicoreError, InferenceError
from aicore.plugins import PluginRegistry

Array = np.ndarray[Any, Any]
NAN, INF = math.nan, math.inf
INT_MAX, INT_MIN = 2**63 - 1, -(2**63)


@pytest.fixture
def check(registry: PluginRegistry) -> Any:
    """`check(text, feeds, wanted)`: the graph gives these outputs however it is run."""

    def checked(text: str, feeds: dict[str, Array], *wanted: Array, opset: int = 21, within: float = 0.0) -> None:
        source = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')
        for model, given in ((source, feeds), (_with_constants(source, feeds), {})):
            for target, optimize in itertools.product(("cpu", "fake"), (True, False)):
                program = aicore.compile(model, target, optimize=optimize, registry=registry, fallback="quiet")
                for found, right in zip(program.run(given).values(), wanted, strict=True):
                    where = f"{target}, {optimize=}, {'inputs' if given else 'constants'}"
                    assert found.dtype == right.dtype, where
                    np.testing.assert_allclose(found, right, rtol=within, atol=within, strict=True, err_msg=where)

    return checked


def _with_constants(source: onnx.ModelProto, feeds: dict[str, Array]) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(source)
    del model.graph.input[:]
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in feeds.items())
    return model


def f32(*numbers: Any) -> Array:
    return np.array(numbers, np.float32)


def i64(*numbers: Any) -> Array:
    return np.array(numbers, np.int64)


def test_1_softmax_family_flattens_before_opset_13(check: Any) -> None:
    """Opset 12 and older: all dims from `axis`, by default 1, are one row."""
    x = np.zeros((1, 2, 2), np.float32)
    for op, row, newer in (("Softmax", 1 / 4, 1 / 2), ("LogSoftmax", -math.log(4), -math.log(2))):
        text = f"g (float[1,2,2] x) => (float[1,2,2] y) {{ y = {op}(x) }}"
        check(text, {"x": x}, np.full_like(x, row), opset=12, within=1e-6)
        check(text, {"x": x}, np.full_like(x, newer), opset=13, within=1e-6)
    text = "g (float[1,2,2] x) => (float[1,2,2] y) { y = Hardmax(x) }"
    check(text, {"x": x}, f32([[1, 0], [0, 0]]), opset=12)
    check(text, {"x": x}, f32([[1, 0], [1, 0]]), opset=13)


def test_3_mod_takes_the_sign_of_the_divisor_and_fmod_that_of_the_dividend(check: Any) -> None:
    feeds = {"a": i64(-7, 7, -7, 7), "b": i64(3, -3, -3, 3)}
    text = "g (int64[4] a, int64[4] b) => (int64[4] y) { y = Mod%s(a, b) }"
    check(text % "", feeds, i64(2, -2, -1, 1))
    check(text % "<fmod = 1>", feeds, i64(-1, 1, -1, 1))
    check(
        "g (float[2] a, float[2] b) => (float[2] y) { y = Mod<fmod = 1>(a, b) }",
        {"a": f32(-5.5, 5.5), "b": f32(2, -2)},
        f32(-1.5, 1.5),
    )


def test_5_padding_before_a_pool_is_not_padding_of_the_pool(check: Any) -> None:
    """Elements of a Pad count and can be the largest; those of a pool's own padding do neither."""
    start = "g (float[1,1,1,1] x, int64[8] p) => (float[1,1,1,1] y) { h = Pad(x, p) y = "
    pads = i64(0, 0, 1, 1, 0, 0, 1, 1)
    four, minus = np.full((1, 1, 1, 1), 4, np.float32), np.full((1, 1, 1, 1), -1, np.float32)
    for include in (0, 1):
        pool = f"AveragePool<kernel_shape = [3, 3], count_include_pad = {include}>(h) }}"
        check(start + pool, {"x": four, "p": pads}, four / 9, within=1e-6)
    check(start + "MaxPool<kernel_shape = [3, 3]>(h) }", {"x": minus, "p": pads}, minus * 0)
    own = "g (float[1,1,1,1] x) => (float[1,1,1,1] y) { y = "
    check(own + "AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x) }", {"x": four}, four)
    check(own + "MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x) }", {"x": minus}, minus)


def test_7_resize_of_the_batch_axis(check: Any) -> None:
    x = f32(1, 2).reshape(2, 1, 1, 1)
    check(
        "g (float[2,1,1,1] x, float[4] s) => (float[4,1,1,1] y) { y = Resize(x, , s) }",
        {"x": x, "s": f32(2, 1, 1, 1)},
        f32(1, 1, 2, 2).reshape(4, 1, 1, 1),
    )


def test_9_align_corners_uses_the_length_that_results(check: Any) -> None:
    """0.6 * 4 becomes 2 elements; the corners are aligned, so the last one is the last one."""
    check(
        """g (float[1,1,1,4] x, float[4] s) => (float[1,1,1,2] y)
           { y = Resize<mode = "linear", coordinate_transformation_mode = "align_corners">(x, , s) }""",
        {"x": f32(1, 2, 3, 4).reshape(1, 1, 1, 4), "s": f32(1, 1, 1, 0.6)},
        f32(1, 4).reshape(1, 1, 1, 2),
        within=1e-6,
    )


def test_11_clip_keeps_nan_and_lets_the_maximum_win(check: Any) -> None:
    text = "g (float[4] x, float low, float high) => (float[4] y) { y = Clip(x, low, high) }"
    x = f32(NAN, -5, 0, 5)
    check(text, {"x": x, "low": np.float32(-1), "high": np.float32(1)}, f32(NAN, -1, 0, 1))
    check(text, {"x": x, "low": np.float32(3), "high": np.float32(1)}, f32(NAN, 1, 1, 1))


def test_13_nan_goes_through_activations_and_maxima(check: Any) -> None:
    for op, of_minus_two in (("Relu", 0), ("Sign", -1), ("LeakyRelu<alpha = 0.5>", -1), ("HardSigmoid", 0.1)):
        check(
            f"g (float[2] x) => (float[2] y) {{ y = {op}(x) }}",
            {"x": f32(NAN, -2)},
            f32(NAN, of_minus_two),
            within=1e-6,
        )
    x = f32(1, NAN, 3, 2).reshape(1, 1, 4)
    pool = "g (float[1,1,4] x) => (float[1,1,2] y) { y = MaxPool<kernel_shape = [2], strides = [2]>(x) }"
    check(pool, {"x": x}, f32(NAN, 3).reshape(1, 1, 2))
    check("g (float[1,1,4] x) => (float[1,1,1] y) { y = GlobalMaxPool(x) }", {"x": x}, f32([[NAN]]))
    for op in ("ReduceMax", "ReduceMin"):
        check(f"g (float[1,1,4] x) => (float y) {{ y = {op}<keepdims = 0>(x) }}", {"x": x}, np.array(NAN, np.float32))
    for op, larger in (("Max", 2), ("Min", 1)):
        text = f"g (float[3] a, float[3] b) => (float[3] y) {{ y = {op}(a, b) }}"
        check(text, {"a": f32(NAN, 1, 1), "b": f32(1, NAN, 2)}, f32(NAN, NAN, larger))


def test_13_nan_goes_through_a_fused_activation(check: Any) -> None:
    text = "g (float[1,1,2] x, float[1,1,1] w) => (float[1,1,2] y) { h = Conv(x, w) y = Relu(h) }"
    check(text, {"x": f32(NAN, -2).reshape(1, 1, 2), "w": f32(1).reshape(1, 1, 1)}, f32(NAN, 0).reshape(1, 1, 2))


def test_15_chains_of_casts_round_at_every_step(check: Any) -> None:
    def chain(start: str, between: tuple[int, str], end: tuple[int, str]) -> str:
        text = "g (%s[2] x) => (%s[2] y) { h = Cast<to = %d>(x) y = Cast<to = %d>(h) }"
        return text % (start, end[1], between[0], end[0])

    int32, boolean, float32, float16 = (6, "int32"), (9, "bool"), (1, "float"), (10, "float16")
    check(chain("float", int32, boolean), {"x": f32(0.5, -1.5)}, np.array([False, True]))
    check(chain("float", int32, float32), {"x": f32(2.7, -2.7)}, f32(2, -2))
    check(chain("float", boolean, float32), {"x": f32(0.5, 0)}, f32(1, 0))
    check(chain("int64", (3, "int8"), (7, "int64")), {"x": i64(300, -129)}, i64(300 - 256, -129 + 256))
    check(chain("float", float16, float32), {"x": f32(2049, 1)}, f32(2048, 1))


def test_17_int8_reaches_minus_128(check: Any) -> None:
    """Quantised, cast and computed: -128 is a number as good as any, and only beyond it is saturation."""
    ends = np.int8([-128, -127, 127])
    check("g (float[3] x) => (int8[3] y) { y = Cast<to = 3>(x) }", {"x": f32(-128, -127, 127)}, ends)
    scale, zero = np.array(0.5, np.float32), np.array(0, np.int8)
    check(
        "g (float[5] x, float s, int8 z) => (int8[5] y) { y = QuantizeLinear(x, s, z) }",
        {"x": f32(-64, -63.5, 63.5, -3e9, INF), "s": scale, "z": zero},
        np.int8([-128, -127, 127, -128, 127]),
    )
    check(
        "g (int8[3] x, float s, int8 z) => (float[3] y) { y = DequantizeLinear(x, s, z) }",
        {"x": ends, "s": scale, "z": zero},
        f32(-64, -63.5, 63.5),
    )
    one = np.array(1, np.float32)
    product = "QLinearMatMul(a, s, z, b, s, z, s, z)"
    check(
        f"g (int8[3,1] a, int8[1,1] b, float s, int8 z) => (int8[3,1] y) {{ y = {product} }}",
        {"a": ends.reshape(3, 1), "b": np.int8([[1]]), "s": one, "z": zero},
        ends.reshape(3, 1),
    )


def test_17_halves_are_rounded_to_even_and_then_the_zero_point_is_added(check: Any) -> None:
    check(
        "g (float[4] x, float s, uint8 z) => (uint8[4] y) { y = QuantizeLinear(x, s, z) }",
        {"x": f32(0.5, 1.5, -0.5, -1.5), "s": np.array(1, np.float32), "z": np.array(3, np.uint8)},
        np.uint8([3, 5, 3, 1]),
    )


def test_17_integer_sums_do_not_saturate_at_16_bits(check: Any) -> None:
    """255 * 127 twice is 64,770: kernels that add pairs of products in 16 bits stop at 32,767."""
    a, b = np.full((1, 2), 255, np.uint8), np.full((2, 1), 127, np.int8)
    text = "g (uint8[1,2] a, int8[2,1] b) => (int32[1,1] y) { y = MatMulInteger(a, b) }"
    check(text, {"a": a, "b": b}, np.int32([[64770]]))
    text = "g (uint8[1,2,1] a, int8[1,2,1] b) => (int32[1,1,1] y) { y = ConvInteger(a, b) }"
    check(text, {"a": a.reshape(1, 2, 1), "b": b.reshape(1, 2, 1)}, np.int32([[[64770]]]))


def test_19_negative_indices_count_from_the_end(check: Any) -> None:
    x = f32([1, 2], [3, 4])
    head = "g (float[2,2] x, int64[%s] i%s) => (float[%s] y) { y = "
    check(head % ("1", "", "1,2") + "Gather(x, i) }", {"x": x, "i": i64(-1)}, f32([3, 4]))
    elements = "GatherElements<axis = 1>(x, i) }"
    check(head % ("2,1", "", "2,1") + elements, {"x": x, "i": i64([-1], [-2])}, f32([2], [3]))
    check(head % ("1,2", "", "1") + "GatherND(x, i) }", {"x": x, "i": i64([-1, -2])}, f32(3))
    scattered = head % ("1,2", ", float[1] u", "2,2") + "ScatterND(x, i, u) }"
    check(scattered, {"x": x, "i": i64([-1, -2]), "u": f32(9)}, f32([1, 2], [9, 4]))
    scattered = head % ("1,1", ", float[1,1] u", "2,2") + "ScatterElements<axis = 1>(x, i, u) }"
    check(scattered, {"x": x, "i": i64([-1]), "u": f32([9])}, f32([1, 9], [3, 4]))
    check(
        "g (int64[4] i, int64 d, float[2] v) => (float[4,3] y) { y = OneHot(i, d, v) }",
        {"i": i64(-1, 0, -3, 3), "d": np.array(3), "v": f32(0, 1)},
        f32([0, 0, 1], [1, 0, 0], [1, 0, 0], [0, 0, 0]),  # 3 is out of range: no element is hot
    )


@pytest.mark.parametrize(
    ("start", "end", "step", "wanted"),
    [
        (INT_MAX, INT_MIN, -1, (4, 3, 2, 1, 0)),
        (-1, INT_MIN, -1, (4, 3, 2, 1, 0)),
        (10, 0, -1, (4, 3, 2, 1)),
        (-1, -6, -1, (4, 3, 2, 1, 0)),
        (INT_MAX, INT_MIN, -2, (4, 2, 0)),
        (INT_MIN, INT_MAX, INT_MAX, (0,)),
        (INT_MAX, INT_MIN, INT_MIN, (4,)),
        (0, INT_MIN, 1, ()),
        (3, INT_MAX, 1, (3, 4)),
    ],
)
def test_21_slices_with_extreme_ends(check: Any, start: int, end: int, step: int, wanted: tuple[int, ...]) -> None:
    check(
        f"""g (float[5] x, int64[1] a, int64[1] b, int64[1] axes, int64[1] s) => (float[{len(wanted)}] y)
            {{ y = Slice(x, a, b, axes, s) }}""",
        {"x": f32(0, 1, 2, 3, 4), "a": i64(start), "b": i64(end), "axes": i64(0), "s": i64(step)},
        f32(*wanted),
    )


def test_21_slices_with_extreme_ends_of_int32(check: Any) -> None:
    check(
        """g (float[3] x, int32[1] a, int32[1] b, int32[1] axes, int32[1] s) => (float[3] y)
           { y = Slice(x, a, b, axes, s) }""",
        {"x": f32(0, 1, 2), **{n: np.int32([v]) for n, v in zip("ab", (2**31 - 1, -(2**31)), strict=True)}}
        | {"axes": np.int32([-1]), "s": np.int32([-1])},
        f32(2, 1, 0),
    )


def test_23_tensors_without_elements(check: Any) -> None:
    neutral = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -INF, "ReduceMin": INF, "ReduceSumSquare": 0}
    for op, wanted in (neutral | {"ReduceL1": 0, "ReduceL2": 0, "ReduceLogSum": -INF, "ReduceLogSumExp": -INF}).items():
        text = f"g (float[2,0] x, int64[1] axes) => (float[2] y) {{ y = {op}<keepdims = 0>(x, axes) }}"
        check(text, {"x": np.zeros((2, 0), np.float32), "axes": i64(1)}, f32(wanted, wanted))
    check(
        "g (int32[0] x) => (int32 y) { y = ReduceMax<keepdims = 0>(x) }",
        {"x": np.zeros(0, np.int32)},
        np.array(-(2**31), np.int32),
    )
    check(
        "g (float[0,3] a, float[1,3] b) => (float[0,3] y) { y = Mul(a, b) }",
        {"a": np.zeros((0, 3), np.float32), "b": np.ones((1, 3), np.float32)},
        np.zeros((0, 3), np.float32),
    )
    gemm = {"a": np.zeros((2, 0), np.float32), "b": np.zeros((0, 2), np.float32), "c": f32(1, 2)}
    text = "g (float[2,0] a, float[0,2] b, float[2] c) => (float[2,2] y) { "
    check(text + "y = Gemm<beta = 2.0>(a, b, c) }", gemm, f32([2, 4], [2, 4]))
    check(text + "h = MatMul(a, b) y = Add(h, c) }", gemm, f32([1, 2], [1, 2]))
    check(
        "g (float[0] a, float[2] b) => (float[2] y) { y = Concat<axis = 0>(a, b, a) }",
        {"a": f32(), "b": f32(1, 2)},
        f32(1, 2),
    )


def test_25_training_batch_norm_uses_the_batch_whatever_the_momentum(check: Any) -> None:
    """Mean 2 and variance 1 of the batch; the running ones move by 1 - momentum."""
    for momentum in (0.9, 0.25):
        check(
            f"""g (float[2,1] x, float[1] s, float[1] b, float[1] m, float[1] v)
                => (float[2,1] y, float[1] running_mean, float[1] running_var)
            {{ y, running_mean, running_var
                 = BatchNormalization<training_mode = 1, momentum = {momentum}, epsilon = 0.0>(x, s, b, m, v) }}""",
            {"x": f32([1], [3]), "s": f32(5), "b": f32(1), "m": f32(10), "v": f32(3)},
            f32([-4], [6]),
            f32(10 * momentum + 2 * (1 - momentum)),
            f32(3 * momentum + 1 * (1 - momentum)),
            within=1e-6,
        )


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _lstm(attributes: str, direction: str = "forward") -> str:
    """Two steps, two sequences, one unit; all that a gate gets is its bias, in the order i, o, f, c."""
    return f"""
        g (float[2,2,1] x, float[1,4,1] w, float[1,4,1] r, float[1,8] b, int32[2] lengths)
        => (float[2,1,2,1] y, float[1,2,1] h, float[1,2,1] c)
        {{ y, h, c = LSTM<hidden_size = 1, direction = "{direction}" {attributes}>(x, w, r, b, lengths) }}"""


def _lstm_feeds(i: float, o: float, f: float, c: float, lengths: tuple[int, int] = (2, 2)) -> dict[str, Array]:
    zeros = {"x": np.zeros((2, 2, 1), np.float32), "w": np.zeros((1, 4, 1), np.float32)}
    bias = f32([i, o, f, c, 0, 0, 0, 0])
    return zeros | {"r": np.zeros((1, 4, 1), np.float32), "b": bias, "lengths": np.int32(lengths)}


def test_27_lstm_clip_input_forget_and_activations(check: Any) -> None:
    def both(c1: float, c2: float, out: float, outer: Any = math.tanh) -> tuple[Array, Array, Array]:
        h1, h2 = out * outer(c1), out * outer(c2)
        y = f32([[[h1], [h1]]], [[[h2], [h2]]])
        return y, f32([[h2], [h2]]), f32([[c2], [c2]])

    i, o, f, g = _sigmoid(1), _sigmoid(-1), _sigmoid(0.5), math.tanh(1)
    check(_lstm(", clip = 1.0"), _lstm_feeds(9, -9, 0.5, 9), *both(i * g, f * i * g + i * g, o), within=1e-6)
    coupled = both(i * g, (1 - i) * i * g + i * g, o)
    check(_lstm(", input_forget = 1"), _lstm_feeds(1, -1, 99, 1), *coupled, within=1e-6)
    hard = 0.2 * 1 + 0.5  # HardSigmoid with the default alpha and beta
    relu = both(hard * 3, hard * hard * 3 + hard * 3, hard, outer=lambda c: c / (1 + abs(c)))
    chosen = ', activations = ["HardSigmoid", "Relu", "Softsign"]'
    check(_lstm(chosen), _lstm_feeds(1, 1, 1, 3), *relu, within=1e-6)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_27_lstm_sequence_lengths(check: Any, direction: str) -> None:
    """Beyond its length a sequence gives zeros, and its last state is that of its last step."""
    i, o, f, g = _sigmoid(1), _sigmoid(-1), _sigmoid(0.5), math.tanh(1)
    c1, c2 = i * g, f * i * g + i * g
    h1, h2 = o * math.tanh(c1), o * math.tanh(c2)
    first, second = ((h1, h1), (0, h2)) if direction == "forward" else ((h1, h2), (0, h1))
    y = f32([[[first[0]], [first[1]]]], [[[second[0]], [second[1]]]])
    feeds = _lstm_feeds(1, -1, 0.5, 1, lengths=(1, 2))
    check(_lstm("", direction), feeds, y, f32([[h1], [h2]]), f32([[c1], [c2]]), within=1e-6)


def test_27_gru_linear_before_reset_and_clip(check: Any) -> None:
    """The recurrent bias of the hidden gate is inside the reset only when linear_before_reset is set."""
    z, r = _sigmoid(-1), _sigmoid(1)
    for linear, clip, hidden in ((0, "", 2.0), (1, "", r * 2.0), (1, ", clip = 0.5", 0.5)):
        gate, mixed = (z, hidden) if not clip else (_sigmoid(-0.5), 0.5)
        h = (1 - gate) * math.tanh(mixed)
        check(
            f"""g (float[1,1,1] x, float[1,3,1] w, float[1,3,1] r, float[1,6] b) => (float[1,1,1,1] y, float[1,1,1] h)
                {{ y, h = GRU<hidden_size = 1, linear_before_reset = {linear} {clip}>(x, w, r, b) }}""",
            {
                "x": np.zeros((1, 1, 1), np.float32),
                "w": np.zeros((1, 3, 1), np.float32),
                "r": np.zeros((1, 3, 1), np.float32),
                "b": f32([-1, 1, 0, 0, 0, 2]),
            },
            f32([[[h]]]),
            f32([[h]]),
            within=1e-6,
        )


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ("", (1, 2, 4, 2, 3)),
        (", output_padding = [1]", (1, 2, 4, 2, 3, 0)),
        (', auto_pad = "SAME_UPPER"', (1, 2, 4, 2)),
        (', auto_pad = "SAME_LOWER"', (2, 4, 2, 3)),
        (', auto_pad = "VALID"', (1, 2, 4, 2, 3)),
        (", output_shape = [4]", (2, 4, 2, 3)),
        (", pads = [1, 0]", (2, 4, 2, 3)),
    ],
)
def test_29_transposed_convolution_pads(check: Any, attributes: str, wanted: tuple[int, ...]) -> None:
    """(1, 2, 3) put down at 0 and at 2: (1, 2, 3 + 1, 2, 3), of which the padding is cut off."""
    check(
        f"""g (float[1,1,2] x, float[1,1,3] w) => (float[1,1,{len(wanted)}] y)
            {{ y = ConvTranspose<strides = [2] {attributes}>(x, w) }}""",
        {"x": np.ones((1, 1, 2), np.float32), "w": f32(1, 2, 3).reshape(1, 1, 3)},
        f32(*wanted).reshape(1, 1, -1),
    )


@pytest.mark.parametrize("shape", [(2,), (1, 2), (2, 1), (2, 2), (1, 1), (1,), (3, 1, 2), (3, 2, 1), (1, 2, 2), ()])
def test_31_a_bias_of_any_rank_after_matmul(check: Any, shape: tuple[int, ...]) -> None:
    """(1, 1) @ identity is (1, 1) in each row; the bias keeps its own rank and broadcasting."""
    bias = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    wanted = np.broadcast_to(bias, np.broadcast_shapes(shape, (2, 2))) + np.float32(1)
    dims = ",".join(map(str, wanted.shape))
    declared = f"float[{','.join(map(str, shape))}]" if shape else "float"
    check(
        f"""g (float[2,2] x, float[2,2] w, {declared} b) => (float[{dims}] y)
            {{ h = MatMul(x, w) y = Add(h, b) }}""",
        {"x": np.ones((2, 2), np.float32), "w": np.eye(2, dtype=np.float32), "b": bias},
        wanted,
    )


def test_33_a_neutral_operand_may_still_broadcast(check: Any) -> None:
    x = f32([1, 2])
    for op, neutral in (("Mul", 1), ("Add", 0), ("Sub", 0), ("Div", 1)):
        operand = np.full((2, 2), neutral, np.float32)
        check(
            f"""g (float[1,2] x) => (float[2,2] y) <float[2,2] c = {{{", ".join([str(float(neutral))] * 4)}}}>
                {{ y = {op}(x, c) }}""",
            {"x": x},
            np.broadcast_to(x, operand.shape).copy(),
        )
    check(
        "g (float[2] x) => (float[2] y, float[2] z) { y = Identity(x) z = Identity(y) }",
        {"x": f32(1, 2)},
        *[f32(1, 2)] * 2,
    )


def test_33_adding_zero_turns_minus_zero_into_zero(registry: PluginRegistry) -> None:
    text = "g (float[1] x) => (float[1] y) <float[1] c = {0.0}> { y = Add(x, c) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    for optimize in (True, False):
        (y,) = aicore.compile(model, "cpu", optimize=optimize, registry=registry).run({"x": f32(-0.0)}).values()
        assert not np.signbit(y[0]), optimize


def test_35_split_without_a_middle_output(check: Any) -> None:
    text = "g (float[3] x, int64[3] s) => (float[1] a, float[1] c) { a, , c = Split<axis = 0>(x, s) }"
    check(text, {"x": f32(1, 2, 3), "s": i64(1, 1, 1)}, f32(1), f32(3))


def test_37_squeeze_of_a_dim_that_is_not_one(registry: PluginRegistry) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float[%s,1] x) => (float[M] y) <int64[1] a = {0}> { y = Squeeze(x, a) }"""
    with pytest.raises(InferenceError, match="Squeeze 'y'"):
        aicore.compile(onnx.parser.parse_model(text % "2"), "cpu", registry=registry)
    program = aicore.compile(onnx.parser.parse_model(text % "N"), "cpu", registry=registry)
    np.testing.assert_array_equal(program.run({"x": f32([5])})["y"], f32(5))
    with pytest.raises(AicoreError, match="Squeeze 'y'"):
        program.run({"x": f32([5], [6])})


def test_39_cumulative_sums_from_the_end(check: Any) -> None:
    for attributes, wanted in (
        ("", (1, 3, 6)),
        ("<reverse = 1>", (6, 5, 3)),
        ("<exclusive = 1>", (0, 1, 3)),
        ("<reverse = 1, exclusive = 1>", (5, 3, 0)),
    ):
        text = f"g (float[3] x, int64 axis) => (float[3] y) {{ y = CumSum{attributes}(x, axis) }}"
        check(text, {"x": f32(1, 2, 3), "axis": np.array(-1)}, f32(*wanted))


@pytest.mark.parametrize(
    ("axis", "rows", "columns"),
    [(0, 1, 6), (1, 2, 3), (2, 2, 3), (3, 6, 1), (-1, 2, 3), (-3, 1, 6)],
)
def test_41_flatten_before_a_reduction(check: Any, axis: int, rows: int, columns: int) -> None:
    """Ones of (2, 1, 3): each sum over the rows counts them."""
    for keepdims, shape in ((0, (columns,)), (1, (1, columns))):
        check(
            f"""g (float[2,1,3] x, int64[1] a) => (float[{",".join(map(str, shape))}] y)
                {{ h = Flatten<axis = {axis}>(x) y = ReduceSum<keepdims = {keepdims}>(h, a) }}""",
            {"x": np.ones((2, 1, 3), np.float32), "a": i64(0)},
            np.full(shape, rows, np.float32),
        )


def test_43_an_initializer_that_is_an_input_too(registry: PluginRegistry) -> None:
    """It is a constant unless the caller asks to override it, and then no pass may have folded it."""
    text = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {2, 3}> { h = Add(w, w) y = Mul(x, h) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    if "w" not in {value.name for value in model.graph.input}:
        model.graph.input.add().CopyFrom(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [2]))
    x = f32(1, 10)
    constant = aicore.compile(aicore.load(model, registry=registry), "cpu", registry=registry)
    np.testing.assert_array_equal(constant.run({"x": x})["y"], f32(4, 60))
    open_ = aicore.compile(aicore.load(model, registry=registry, overridable=["w"]), "cpu", registry=registry)
    np.testing.assert_array_equal(open_.run({"x": x, "w": f32(1, 1)})["y"], f32(2, 20))


def test_45_layer_normalization_of_one_axis_and_without_a_bias(check: Any) -> None:
    """1, 2, 3 have the mean 2 and the variance 2/3."""
    one = math.sqrt(3 / 2)
    x, scale = f32(1, 2, 3), f32(1, 1, 2)
    text = "g (float[3] x, float[3] s%s) => (float[3] y) { y = LayerNormalization<epsilon = 0.0>(x, s%s) }"
    check(text % ("", ""), {"x": x, "s": scale}, f32(-one, 0, 2 * one), within=1e-6)
    bias = {"x": x, "s": scale, "b": f32(1, 1, 1)}
    check(text % (", float[3] b", ", b"), bias, f32(1 - one, 1, 1 + 2 * one), within=1e-6)


def test_47_logic_broadcasts(check: Any) -> None:
    a, b = np.array([[True], [False]]), np.array([False, True])
    for op, wanted in (("Or", [[1, 1], [0, 1]]), ("And", [[0, 1], [0, 0]]), ("Xor", [[1, 0], [0, 1]])):
        text = f"g (bool[2,1] a, bool[2] b) => (bool[2,2] y) {{ y = {op}(a, b) }}"
        check(text, {"a": a, "b": b}, np.array(wanted, bool))
