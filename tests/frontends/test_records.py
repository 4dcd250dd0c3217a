"""Records of the earlier version: each op_type, losses and branches against NumPy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.frontends.records import Record, graph_of, parameters_of
from tests.frontends.records_run import one, run

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
IMAGE = RNG.standard_normal((2, 3, 6, 7))
SERIES = RNG.standard_normal((2, 5, 3))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def softmax(x: Any, axis: int = -1) -> Any:
    return np.exp(x) / np.exp(x).sum(axis, keepdims=True)


def windows(x: Any, size: tuple[int, int], strides: tuple[int, int], dilation: tuple[int, int] = (1, 1)) -> Any:
    """(batch, channels, rows, columns, window...)."""
    spans = tuple((k - 1) * d + 1 for k, d in zip(size, dilation, strict=True))
    found = np.lib.stride_tricks.sliding_window_view(x, spans, (2, 3))
    return found[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]


POINTWISE: list[tuple[str, Any, Any]] = [
    ("RELU", None, np.maximum(X, 0)),
    ("relu", None, np.maximum(X, 0)),
    ("SIGMOID", None, sigmoid(X)),
    ("TANH", None, np.tanh(X)),
    ("LEAKY_RELU", {"alpha": 0.25}, np.where(X < 0, 0.25 * X, X)),
    ("LEAKY_RELU", None, np.where(X < 0, 0.01 * X, X)),
    ("ELU", {"alpha": 0.5}, np.where(X < 0, 0.5 * np.expm1(X), X)),
    ("ELU", None, np.where(X < 0, np.expm1(X), X)),
    ("GELU", None, X / 2 * (1 + np.vectorize(math.erf)(X / math.sqrt(2)))),
    ("GELU", {"gelu_tanh": False}, X / 2 * (1 + np.vectorize(math.erf)(X / math.sqrt(2)))),
    ("GELU", {"gelu_tanh": True}, X / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)))),
    ("GELU", {"approximate": "tanh"}, X / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)))),
    ("SILU", None, X * sigmoid(X)),
    ("SOFTMAX", None, softmax(X)),
    ("SOFTMAX", {"axis": 0, "temperature": 2.0}, softmax(X / 2, 0)),
    ("FLATTEN", None, X),
    ("VIEW", {"shape": (2, 6)}, X.reshape(2, 6)),
    ("VIEW", {"shape": (-1,)}, X.ravel()),
    ("SLICE", {"starts": 1, "ends": 3, "axes": 1}, X[:, 1:3]),
    ("SLICE", {"starts": (0, 3), "ends": (2, 0), "steps": (1, -2)}, X[:2, 3:0:-2]),
    ("PAD", {"pads": (0, 1, 2, 0), "value": 1.5}, np.pad(X, [(0, 2), (1, 0)], constant_values=1.5)),
    ("PAD", {"pads": (1, 1), "axes": 1, "mode": "reflect"}, np.pad(X, [(0, 0), (1, 1)], "reflect")),
]


@pytest.mark.parametrize(("kind", "extra", "expected"), POINTWISE)
def test_one_operand(kind: str, extra: Any, expected: Any) -> None:
    np.testing.assert_allclose(one(kind, X, extra=extra), expected, rtol=1e-7, atol=1e-12)


def test_products_and_sums() -> None:
    w, b = RNG.standard_normal((4, 5)), RNG.standard_normal(5)
    np.testing.assert_allclose(one("MATMUL", X, w), X @ w, rtol=1e-12)
    np.testing.assert_allclose(one("ADD_BIAS", X @ w, b), X @ w + b, rtol=1e-12)
    np.testing.assert_allclose(one("ADD_BIAS", X @ w, b[None]), X @ w + b, rtol=1e-12)
    channels = RNG.standard_normal(3)
    np.testing.assert_allclose(one("ADD_BIAS", IMAGE, channels), IMAGE + channels[:, None, None], rtol=1e-12)
    found = run([Record("ADD", ["x", "y", "x"], [], "z")], {"x": X, "y": Y})
    np.testing.assert_allclose(found["z"], 2 * X + Y, rtol=1e-12)
    found = run([Record("MATMUL", ["x", "w"], [], "z")], {"x": X, "w": w})
    np.testing.assert_allclose(found["z"], X @ w, rtol=1e-12)


def test_concat() -> None:
    found = run([Record("CONCAT", ["x", "y"], [], "z", {"axis": 0})], {"x": X, "y": Y})
    np.testing.assert_array_equal(found["z"], np.concatenate([X, Y]))
    found = run([Record("CONCAT", ["x", "y"], [], "z")], {"x": X, "y": Y})
    np.testing.assert_array_equal(found["z"], np.concatenate([X, Y], 1))


@pytest.mark.parametrize(
    ("extra", "strides", "pads", "dilation"),
    [
        (None, (1, 1), (0, 0), (1, 1)),
        ({"kernel": (3, 2), "stride": 2, "padding": 1}, (2, 2), (1, 1), (1, 1)),
        ({"kernel_h": 3, "kernel_w": 2, "stride_h": 1, "stride_w": 2, "dilation": (2, 1)}, (1, 2), (0, 0), (2, 1)),
        ({"padding_h": 2, "padding_w": 0, "strides": (1, 1), "padding": None}, (1, 1), (2, 0), (1, 1)),
    ],
)
def test_convolution(extra: Any, strides: Any, pads: Any, dilation: Any) -> None:
    w, b = RNG.standard_normal((5, 3, 3, 2)), RNG.standard_normal((1, 5))
    x = np.pad(IMAGE, [(0, 0), (0, 0), (pads[0],) * 2, (pads[1],) * 2])
    expected = np.einsum("ncrskl,mckl->nmrs", windows(x, (3, 2), strides, dilation), w)
    np.testing.assert_allclose(one("CONV2D", IMAGE, w, extra=extra), expected, rtol=1e-9, atol=1e-12)
    biased = expected + b.reshape(-1, 1, 1)
    np.testing.assert_allclose(one("CONV2D", IMAGE, w, b, extra=extra), biased, rtol=1e-9, atol=1e-12)


def test_padding_by_name() -> None:
    w = RNG.standard_normal((5, 3, 3, 3))
    same = one("CONV2D", IMAGE, w, extra={"padding": "SAME"})
    np.testing.assert_allclose(same, one("CONV2D", IMAGE, w, extra={"padding": 1}), rtol=1e-12)
    valid = one("CONV2D", IMAGE, w, extra={"padding": "valid"})
    np.testing.assert_allclose(valid, one("CONV2D", IMAGE, w), rtol=1e-12)


def test_groups() -> None:
    w = RNG.standard_normal((3, 1, 3, 3))
    expected = np.einsum("ncrskl,ckl->ncrs", windows(IMAGE, (3, 3), (1, 1)), w[:, 0])
    np.testing.assert_allclose(one("CONV2D", IMAGE, w, extra={"groups": 3}), expected, rtol=1e-9, atol=1e-12)


def test_pooling() -> None:
    found = windows(IMAGE, (3, 2), (1, 2))
    extra = {"kernel": (3, 2), "stride": (1, 2)}
    np.testing.assert_allclose(one("POOL_MAX", IMAGE, extra=extra), found.max((-1, -2)), rtol=1e-12)
    np.testing.assert_allclose(one("POOL_AVG", IMAGE, extra=extra), found.mean((-1, -2)), rtol=1e-12)
    default = windows(IMAGE, (2, 2), (2, 2))
    np.testing.assert_allclose(one("POOL_MAX", IMAGE, extra={"kernel": 2}), default.max((-1, -2)), rtol=1e-12)
    ones = np.ones((1, 1, 4, 4))
    corner = {"kernel": 2, "padding": 1}
    assert one("POOL_AVG", ones, extra=corner)[0, 0, 0, 0] == 1
    assert one("POOL_AVG", ones, extra={**corner, "count_include_pad": True})[0, 0, 0, 0] == 0.25


def test_time() -> None:
    np.testing.assert_array_equal(one("SLICE_TIME", SERIES, extra={"time": 2}), SERIES[:, 2])
    np.testing.assert_array_equal(one("SLICE_TIME", SERIES, extra={"time": -1}), SERIES[:, -1])
    np.testing.assert_array_equal(one("SLICE_TIME", SERIES, extra={"t": -3}), SERIES[:, -3])
    steps = [Record("SLICE_TIME", ["x"], [], f"x{t}", {"time": t}) for t in (3, 0)]
    joined = run([*steps, Record("CONCAT_TIME", ["x3", "x0"], [], "y")], {"x": SERIES})["y"]
    np.testing.assert_array_equal(joined, SERIES[:, [3, 0]])
    whole = run([Record("CONCAT_TIME", ["x", "x"], [], "y")], {"x": SERIES})["y"]
    np.testing.assert_array_equal(whole, np.concatenate([SERIES, SERIES], 1))


def test_zeros() -> None:
    found = run([Record("FILL_ZERO", [], [], "z", {"shape": (2, 3)})], {})["z"]
    assert (found.shape, found.dtype, found.any()) == ((2, 3), np.float32, False)
    assert run([Record("FILL_ZERO", [], [], "z")], {"z": (4, 1)})["z"].shape == (4, 1)
    like = one("FILL_ZERO", X)
    assert (like.shape, like.dtype, like.any()) == (X.shape, X.dtype, False)


@pytest.mark.parametrize("activation", ["tanh", "relu", "sigmoid"])
@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_rnn(activation: str, has_state: bool, has_bias: bool) -> None:
    w, r, b, h = (RNG.standard_normal(shape) for shape in ((3, 4), (4, 4), (1, 4), (2, 4)))
    function = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0), "sigmoid": sigmoid}[activation]
    state, states = h if has_state else np.zeros((2, 4)), []
    for t in range(5):
        state = function(SERIES[:, t] @ w + state @ r + (b if has_bias else 0))
        states.append(state)
    inputs, params = ["x", "h"][: 1 + has_state], ["w", "r", "b"][: 2 + has_bias]
    tensors = {"x": SERIES, "h": h, "w": w, "r": r, "b": b}
    extra = {"activation": activation}
    last = run([Record("RNN", inputs, params, "y", extra)], tensors)["y"]
    np.testing.assert_allclose(last, state, rtol=1e-9, atol=1e-12)
    every = run([Record("RNN", inputs, params, "y", {**extra, "return_sequences": 1})], tensors)["y"]
    np.testing.assert_allclose(every, np.stack(states, 1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_embedding(dtype: str) -> None:
    table, ids = RNG.standard_normal((7, 3)), np.array([[0, 6], [2, 2]])
    np.testing.assert_array_equal(one("EMBEDDING", ids.astype(dtype), table), table[ids])


T = np.array([[1.0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])


class TestLosses:
    def loss(self, kind: str, target: Array, *before: Record, **extra: Any) -> tuple[float, Array]:
        """The loss of x, or of what is made of it, and its gradient by x."""
        prediction = before[-1].output_id if before else "x"
        record = Record("LOSS", [prediction, "t"], [], "loss", {"loss_type": kind, **extra})
        graph = aicore.grad(graph_of([*before, record], {"x": X, "t": target}, "loss"), "loss", ["x"])
        found = aicore.compile(graph, "cpu").run({"x": X, "t": target})
        assert found["loss"].shape == ()
        return float(found["loss"]), found["grad.x"]

    def test_mse(self) -> None:
        loss, gradient = self.loss("MSE", Y)
        assert loss == pytest.approx(((X - Y) ** 2).mean(), rel=1e-10)
        np.testing.assert_allclose(gradient, 2 * (X - Y) / X.size, rtol=1e-10)

    def test_bce_of_probabilities(self) -> None:
        p = sigmoid(X)
        loss, gradient = self.loss("bce", T, Record("SIGMOID", ["x"], [], "p"))
        assert loss == pytest.approx(-(T * np.log(p) + (1 - T) * np.log(1 - p)).mean(), rel=1e-10)
        np.testing.assert_allclose(gradient, (p - T) / T.size, rtol=1e-9, atol=1e-12)

    def test_bce_of_logits(self) -> None:
        loss, gradient = self.loss("bce", T, from_logits=True)
        p = sigmoid(X)
        assert loss == pytest.approx(-(T * np.log(p) + (1 - T) * np.log(1 - p)).mean(), rel=1e-10)
        np.testing.assert_allclose(gradient, (p - T) / T.size, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("temperature", [1.0, 2.0])
    def test_cce_of_softmax(self, temperature: float) -> None:
        p = softmax(X / temperature)
        loss, gradient = self.loss("cce", T, Record("SOFTMAX", ["x"], [], "p", {"temperature": temperature}))
        assert loss == pytest.approx(-(T * np.log(p)).sum(1).mean(), rel=1e-9)
        np.testing.assert_allclose(gradient, (p - T) / len(T) / temperature, rtol=1e-7, atol=1e-10)

    def test_cce_of_logits(self) -> None:
        loss, _ = self.loss("cce", T, from_logits=True)
        assert loss == pytest.approx(-(T * np.log(softmax(X))).sum(1).mean(), rel=1e-9)

    def test_of_probabilities_from_elsewhere(self) -> None:
        p = softmax(RNG.standard_normal((3, 4)))
        tensors = {"p": p, "t": T}
        found = run([Record("LOSS", ["p", "t"], [], "loss", {"loss_type": "cce"})], tensors)["loss"]
        assert found == pytest.approx(-(T * np.log(p)).sum(1).mean(), rel=1e-9)
        found = run([Record("LOSS", ["p", "t"], [], "loss", {"loss_type": "bce"})], tensors)["loss"]
        assert found == pytest.approx(-(T * np.log(p) + (1 - T) * np.log(1 - p)).mean(), rel=1e-9)

    def test_of_a_softmax_along_another_axis(self) -> None:
        p = softmax(X, 0)
        loss, _ = self.loss("cce", T, Record("SOFTMAX", ["x"], [], "p", {"axis": 0}))
        assert loss == pytest.approx(-(T * np.log(p)).sum(1).mean(), rel=1e-9)

    def test_certain_and_wrong_is_finite(self) -> None:
        tensors = {"p": np.array([[1.0, 0.0]]), "t": np.array([[0.0, 1.0]])}
        for kind, expected in (("cce", -math.log(1e-7)), ("bce", -math.log(1e-7))):
            found = run([Record("LOSS", ["p", "t"], [], "loss", {"loss_type": kind})], tensors)["loss"]
            assert found == pytest.approx(expected, rel=1e-6)

    def test_label_among_the_extra_parameters(self) -> None:
        record = Record("LOSS", ["x"], [], "loss", {"loss_type": "mse", "label_id": "t"})
        found = run([record], {"x": X, "t": Y})["loss"]
        assert found == pytest.approx(((X - Y) ** 2).mean(), rel=1e-10)


class TestBranches:
    records = (
        Record("MATMUL", ["x"], ["w"], "z"),
        Record(
            "IF",
            ["flag"],
            [],
            "y",
            {
                "then": [Record("RELU", ["z"], [], "a"), Record("ADD", ["a", "x"], [], "b")],
                "otherwise": [{"op_type": "ADD_BIAS", "inputs": ["z"], "params": ["c"], "output_id": "b"}],
            },
        ),
    )
    w, c = RNG.standard_normal((4, 4)), RNG.standard_normal(4)

    @pytest.mark.parametrize("flag", [np.array(True), np.array([0.0]), np.array([[1]], np.int64), np.array(False)])
    @pytest.mark.parametrize("parameters", ["inputs", "constants"])
    def test_either_way(self, flag: Array, parameters: Any) -> None:
        tensors = {"x": X, "w": self.w, "c": self.c, "flag": flag}
        expected = np.maximum(X @ self.w, 0) + X if flag.any() else X @ self.w + self.c
        found = run(self.records, tensors, parameters=parameters)["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-10)

    @pytest.mark.parametrize("flag", [True, False])
    def test_gradients(self, flag: bool) -> None:
        tensors = {"x": X, "w": self.w, "c": self.c, "flag": np.array(flag), "t": Y}
        loss = Record("LOSS", ["y", "t"], [], "loss", {"loss_type": "mse"})
        graph = aicore.grad(graph_of([*self.records, loss], tensors, "loss"), "loss", ["w", "c"])
        found = aicore.compile(graph, "cpu").run(tensors)
        z = X @ self.w
        g = 2 * ((np.maximum(z, 0) + X if flag else z + self.c) - Y) / X.size
        np.testing.assert_allclose(found["grad.w"], X.T @ (g * (z > 0) if flag else g), rtol=1e-9)
        np.testing.assert_allclose(found["grad.c"], np.zeros(4) if flag else g.sum(0), rtol=1e-9)

    def test_parameters_inside(self) -> None:
        assert parameters_of(self.records) == ("w", "c")
