"""The earlier version's entry points: values and gradients by hand, updates against the formulas, XOR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.compat.records import (
    OpExtraParams,
    OpStruct,
    first_state,
    optimizer_update,
    run_graph_backward,
    run_graph_forward,
    run_graph_with_loss,
    train_step,
    training_graph,
)
from aicore.errors import ConfigError, InputError, ModelError
from aicore.nn.optimizers import SGD, Adam
from aicore.nn.schedules import StepDecay

RNG = np.random.default_rng(0)
X, W1, B1 = RNG.standard_normal((5, 3)), RNG.standard_normal((3, 4)), RNG.standard_normal(4)
W2 = RNG.standard_normal((4, 2))
TARGET = np.eye(2)[[0, 1, 1, 0, 1]]
WEIGHTS = {"w1": W1, "b1": B1, "w2": W2}
ALL = {**WEIGHTS, "x": X, "t": TARGET}

NETWORK = [
    OpStruct("MATMUL", ["x"], ["w1"], "a"),
    OpStruct("ADD_BIAS", ["a"], ["b1"], "z"),
    OpStruct("TANH", ["z"], [], "h"),
    OpStruct("MATMUL", ["h"], ["w2"], "logits"),
    OpStruct("SOFTMAX", ["logits"], [], "p", OpExtraParams(axis=-1)),
]
LOSS = OpStruct("LOSS", ["p", "t"], [], "loss", OpExtraParams(loss_type="cce"))


def by_hand() -> tuple[float, Any, dict[str, Any]]:
    """Loss, prediction and gradients."""
    h = np.tanh(X @ W1 + B1)
    logits = h @ W2
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    g = (p - TARGET) / len(X)
    inner = g @ W2.T * (1 - h * h)
    return -(TARGET * np.log(p)).sum(1).mean(), p, {"w1": X.T @ inner, "b1": inner.sum(0), "w2": h.T @ g}


@pytest.mark.parametrize("records", [NETWORK, [*NETWORK, LOSS]])
def test_forward(records: Any) -> None:
    _, p, _ = by_hand()
    given = {name: ALL[name] for name in ("x", "w1", "b1", "w2")}  # the label is for training
    np.testing.assert_allclose(run_graph_forward(records, given)["p"], p, rtol=1e-10)
    assert list(run_graph_forward(records, given, ["h", "p"])) == ["h", "p"]
    assert list(run_graph_forward(records, given, "a")) == ["a"]


def test_forward_gives_the_loss_when_asked_for() -> None:
    assert float(run_graph_forward([*NETWORK, LOSS], ALL, "loss")["loss"]) == pytest.approx(by_hand()[0], rel=1e-9)


@pytest.mark.parametrize(("records", "loss"), [([*NETWORK, LOSS], ()), (NETWORK, ("cce", "t"))])
def test_with_loss(records: Any, loss: Any) -> None:
    expected, p, gradients = by_hand()
    found, outputs = run_graph_with_loss(records, ALL, *loss)
    assert found == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(outputs["p"], p, rtol=1e-10)
    assert list(run_graph_with_loss(records, ALL, *loss, outputs=["h"])[1]) == ["h"]
    assert list(run_graph_with_loss(records, ALL, *loss, outputs="h")[1]) == ["h"]
    slopes = run_graph_backward(records, ALL, *loss)
    assert list(slopes) == ["w1", "b1", "w2"]
    for name, gradient in gradients.items():
        np.testing.assert_allclose(slopes[name], gradient, rtol=1e-8, atol=1e-12)
    assert list(run_graph_backward(records, ALL, *loss, wrt=["x"])) == ["x"]


def test_gradients_by_finite_differences() -> None:
    slopes = run_graph_backward(NETWORK, ALL, "cce", "t")
    for name in WEIGHTS:
        step = np.zeros_like(WEIGHTS[name])
        step.flat[1] = 1e-6
        losses = [run_graph_with_loss(NETWORK, {**ALL, name: ALL[name] + s * step}, "cce", "t")[0] for s in (1, -1)]
        assert slopes[name].flat[1] == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-5)


def test_train_step_is_forward_backward_and_update() -> None:
    loss, _, gradients = by_hand()
    trained = train_step(NETWORK, ALL, SGD(0.5), loss="cce", label="t")
    assert trained.loss == pytest.approx(loss, rel=1e-9)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(trained.parameters[name], WEIGHTS[name] - 0.5 * gradient, rtol=1e-7, atol=1e-10)
        np.testing.assert_array_equal(ALL[name], WEIGHTS[name])  # what went in stays as it was
    assert trained.state["optimizer.step"] == 1


def test_steps_carry_state() -> None:
    _, _, gradients = by_hand()
    optimizer = SGD(0.1, momentum=0.5)
    first = train_step(NETWORK, ALL, optimizer, loss="cce", label="t")
    second = train_step(NETWORK, {**ALL, **first.parameters}, optimizer, first.state, "cce", "t")
    slope = run_graph_backward(NETWORK, {**ALL, **first.parameters}, "cce", "t")["w1"]
    velocity = 0.5 * gradients["w1"] + slope
    np.testing.assert_allclose(second.state["optimizer.momentum_buffer.w1"], velocity, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(second.parameters["w1"], first.parameters["w1"] - 0.1 * velocity, rtol=1e-7)
    assert second.state["optimizer.step"] == 2


def test_update_alone() -> None:
    p, g = {"w": np.array([1.0, -2.0]), "b": np.array(0.5)}, {"w": np.array([0.25, -4.0]), "b": np.array(0.0)}
    new, state = optimizer_update(p, g, Adam(0.1, eps=0.0))
    np.testing.assert_allclose(new["w"], [0.9, -1.9], rtol=1e-6)  # the first step of Adam is the sign times the rate
    np.testing.assert_allclose(state["optimizer.exp_avg.w"], 0.1 * g["w"], rtol=1e-6)
    plain, _ = optimizer_update(p, g, SGD(0.1, weight_decay=0.5))
    np.testing.assert_allclose(plain["w"], p["w"] - 0.1 * (g["w"] + 0.5 * p["w"]), rtol=1e-6)
    clipped, _ = optimizer_update(p, g, SGD(1.0, global_clipnorm=1.0))
    np.testing.assert_allclose(clipped["w"], p["w"] - g["w"] / np.sqrt(16.0625), rtol=1e-5)
    named, _ = optimizer_update(p, g, "sgd")
    np.testing.assert_allclose(named["w"], p["w"] - 1e-3 * g["w"], rtol=1e-6)


def test_rates_may_change_with_the_step() -> None:
    p, g = {"w": np.array([1.0])}, {"w": np.array([1.0])}
    optimizer = SGD(StepDecay(0.5, step_size=1, gamma=0.1))
    first, state = optimizer_update(p, g, optimizer)
    second, _ = optimizer_update(first, g, optimizer, state)
    np.testing.assert_allclose([first["w"][0], second["w"][0]], [0.5, 0.45], rtol=1e-6)


def test_xor() -> None:
    records = [
        OpStruct("MATMUL", ["x"], ["w1"], "a"),
        OpStruct("ADD_BIAS", ["a"], ["b1"], "z"),
        OpStruct("TANH", ["z"], [], "h"),
        OpStruct("MATMUL", ["h"], ["w2"], "o"),
        OpStruct("ADD_BIAS", ["o"], ["b2"], "logits"),
        OpStruct("SIGMOID", ["logits"], [], "p"),
    ]
    x = np.float32([[0, 0], [0, 1], [1, 0], [1, 1]])
    y = np.float32([[0], [1], [1], [0]])
    rng = np.random.default_rng(0)
    weights: Any = {
        "w1": rng.standard_normal((2, 8)),
        "b1": np.zeros(8),
        "w2": rng.standard_normal((8, 1)),
        "b2": [0.0],
    }
    weights = {name: np.float32(array) for name, array in weights.items()}
    state = None
    for _ in range(150):
        trained = train_step(records, {**weights, "x": x, "y": y}, Adam(0.1), state, "bce", "y")
        weights, state = trained.parameters, trained.state
    assert trained.loss < 0.02
    np.testing.assert_array_equal(run_graph_forward(records, {**weights, "x": x})["p"].round(), y)


def test_the_graph_pairs_its_state() -> None:
    graph = training_graph(NETWORK, ALL, Adam(), "cce", "t")
    inputs = {value.name for value in graph.inputs}
    assert dict(graph.state) == {f"next.{name}": name for name in inputs - {"x", "t"}}
    feeds = {**ALL, **first_state(Adam(), WEIGHTS)}
    found = aicore.compile(graph, "cpu").run(feeds)
    trained = train_step(NETWORK, ALL, Adam(), loss="cce", label="t")
    np.testing.assert_array_equal(found["next.w1"], trained.parameters["w1"])


def test_the_graph_in_a_session() -> None:
    graph = training_graph(NETWORK, ALL, Adam(), "cce", "t")
    session = aicore.compile(graph, "cpu").session({**WEIGHTS, **first_state(Adam(), WEIGHTS)})
    losses = [float(session.run({"x": X, "t": TARGET})["loss"]) for _ in range(3)]
    weights: Any = WEIGHTS
    state = None
    for loss in losses:
        trained = train_step(NETWORK, {**ALL, **weights}, Adam(), state, "cce", "t")
        weights, state = trained.parameters, trained.state
        assert trained.loss == loss
    np.testing.assert_array_equal(session.state.read(["w1"])["w1"], weights["w1"])


def test_graphs_that_differ_in_names_alone_are_kept_apart() -> None:
    for name in ("first", "second"):
        assert list(run_graph_forward([OpStruct("RELU", ["x"], [], name)], {"x": X})) == [name]


def test_extra_parameters_set_afterwards() -> None:
    extra = OpExtraParams()
    extra.kernel_h, extra.kernel_w = 2, 2
    found = run_graph_forward([OpStruct("POOL_MAX", ["x"], [], "y", extra)], {"x": np.ones((1, 1, 4, 4))})
    assert found["y"].shape == (1, 1, 2, 2)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: run_graph_with_loss(NETWORK, ALL), ModelError, "the records have no LOSS: name the loss"),
        (lambda: run_graph_with_loss(NETWORK, ALL, "cce"), ModelError, "the records have no LOSS"),
        (lambda: run_graph_with_loss([*NETWORK, LOSS], ALL, "cce", "t"), ModelError, r"record 5 \(LOSS\) is the loss"),
        (
            lambda: run_graph_backward([*NETWORK, LOSS, LOSS], ALL),
            ModelError,
            r"there are 2 LOSS records, wants one: record 5 \(LOSS\), record 6",
        ),
        (lambda: run_graph_with_loss(NETWORK, ALL, "cce", "u"), ModelError, "'u' is neither a tensor that is given"),
        (lambda: run_graph_forward([OpStruct("RELU", ["x"], [], "y")], {"x": (5, 3)}), InputError, "x"),
        (
            lambda: run_graph_with_loss(NETWORK, ALL, "cce", "z"),
            ModelError,
            r"name 'z' is that of what record 1 \(ADD_B",
        ),
        (lambda: train_step(NETWORK, ALL, "adamm", loss="cce", label="t"), ConfigError, "'adamm' is none of"),
        (
            lambda: train_step([OpStruct("ADD", ["x"], ["h"], "y")], {"x": X, "h": X, "t": X}, "sgd", {}, "mse", "t"),
            InputError,
            "there is no array for the tensor 'optimizer.step'",
        ),
        (
            lambda: training_graph(
                [OpStruct("RELU", ["x"], [], "h"), OpStruct("ADD", ["x"], ["h"], "y")], ALL, "sgd", "mse", "x"
            ),
            ModelError,
            "the parameter 'h' is no tensor that is given; a record computes it",
        ),
        (lambda: optimizer_update({"w": X}, {}), InputError, "no gradient for the parameter 'w'"),
    ],
)
def test_refused(make: Callable[[], Any], error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        make()
