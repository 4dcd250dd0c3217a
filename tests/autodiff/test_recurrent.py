"""Gradients of recurrent layers: by hand where the recurrence is short, by differences over lengths and open sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore import compile, grad  # noqa: A004  # aicore.compile
from aicore.errors import InferenceError, UnsupportedError
from aicore.ir import Builder, Graph, as_tuple, verify
from aicore.ops.recurrent import GRU, LSTM, RNN, Recurrent
from aicore.ops.recurrent_grad import RecurrentGrad

Array = np.ndarray[Any, Any]
F = "float64"
LINEAR = RNN(activations=("Affine",))
"""h = w x + r h, so that all gradients are polynomials."""


def run(graph: Graph, **feeds: Any) -> dict[str, Array]:
    verify(graph)
    return compile(graph, "cpu").run(feeds)


def layer_graph(layer: Recurrent, x_shape: Any, names: str, output: int = 0, **shapes: Any) -> Graph:
    """loss = sum(output * weights); operands by name, of which those left out are absent."""
    op = Builder()
    order = ("x", "w", "r", "b", "lengths", "h", "c", "p")
    found = {name: op.input(name, "int32" if name == "lengths" else F, shape) for name, shape in shapes.items()}
    x = op.input("x", F, x_shape)
    results = as_tuple(op.apply(layer, *({**found, "x": x}.get(name) for name in order)))
    weights = op.input("weights", F, None)
    loss = op.ReduceSum(op.Mul(results[output], weights), keepdims=0)
    inputs = [x, *found.values(), weights]
    graph = op.graph(inputs, {"loss": op.Reshape(loss, shape=())})
    return grad(graph, "loss", names.split())


def test_two_steps_of_a_linear_layer_by_hand() -> None:
    """h1 = w x1 + r h0, h2 = w x2 + r h1; the loss is h2."""
    one = (1, 1, 1)
    graph = layer_graph(LINEAR, (2, 1, 1), "x w r b h", output=1, w=one, r=one, b=(1, 2), h=one)
    x1, x2, w, r, h0 = 3.0, 5.0, 0.5, 2.0, 7.0
    found = run(
        graph,
        x=np.reshape([x1, x2], (2, 1, 1)),
        w=np.full(one, w),
        r=np.full(one, r),
        b=np.zeros((1, 2)),
        h=np.full(one, h0),
        weights=np.ones(one),
    )
    h1 = w * x1 + r * h0
    np.testing.assert_allclose(found["grad.x"].ravel(), [r * w, w])
    np.testing.assert_allclose(found["grad.w"].ravel(), [x2 + r * x1])
    np.testing.assert_allclose(found["grad.r"].ravel(), [h1 + r * h0])
    np.testing.assert_allclose(found["grad.b"].ravel(), [1 + r, 1 + r])
    np.testing.assert_allclose(found["grad.h"].ravel(), [r**2])


def test_one_step_of_an_lstm_by_hand() -> None:
    """With gates of 0 sigmoids are 1/2 and tanh is 0: c = c0 / 2, h = tanh(c) / 2. The loss is h."""
    row, state = (1, 4, 1), (1, 1, 1)
    graph = layer_graph(LSTM(), (1, 1, 1), "w c", output=1, w=row, r=row, h=state, c=state)
    zeros, c0, x = np.zeros(row), 0.8, 3.0
    found = run(
        graph,
        x=np.full((1, 1, 1), x),
        w=zeros,
        r=zeros,
        h=np.zeros(state),
        c=np.full(state, c0),
        weights=np.ones(state),
    )
    tanh, slope = np.tanh(c0 / 2), 1 - np.tanh(c0 / 2) ** 2
    np.testing.assert_allclose(found["grad.c"].ravel(), [slope / 2 / 2])
    input_gate, output_gate, forget_gate, cell = 0.0, tanh / 4, slope / 2 * c0 / 4, slope / 2 / 2
    np.testing.assert_allclose(found["grad.w"].ravel(), x * np.array([input_gate, output_gate, forget_gate, cell]))


def test_one_step_of_a_gru_by_hand() -> None:
    """With gates of 0: h = h0 / 2; update's gradient is (h0 - 0) / 4, reset's nothing, hidden's 1/2."""
    row, state = (1, 3, 1), (1, 1, 1)
    graph = layer_graph(GRU(), (1, 1, 1), "w h", output=1, w=row, r=row, h=state)
    found = run(
        graph, x=np.full(state, 3.0), w=np.zeros(row), r=np.zeros(row), h=np.full(state, 2.0), weights=np.ones(state)
    )
    np.testing.assert_allclose(found["grad.h"].ravel(), [0.5])
    np.testing.assert_allclose(found["grad.w"].ravel(), [3 * 2 / 4, 0, 3 / 2])


def test_steps_after_the_end_of_a_sequence_have_no_part() -> None:
    """Whatever stands there: the gradient is that of the shorter sequence alone, and 0 behind its end."""
    rng, layer = np.random.default_rng(0), LSTM(direction="bidirectional")
    shapes = {"w": (2, 12, 2), "r": (2, 12, 3)}
    feeds = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    x, weights = rng.standard_normal((5, 1, 2)), rng.standard_normal((5, 2, 1, 3))
    long = layer_graph(layer, (5, 1, 2), "x w r", **shapes, lengths=(1,))
    short = layer_graph(layer, (3, 1, 2), "x w r", **shapes)
    cut = run(long, **feeds, x=x, weights=weights, lengths=np.array([3], np.int32))
    alone = run(short, **feeds, x=x[:3], weights=weights[:3])
    np.testing.assert_allclose(cut["grad.x"][:3], alone["grad.x"], rtol=1e-12)
    np.testing.assert_array_equal(cut["grad.x"][3:], 0)
    np.testing.assert_allclose(cut["grad.w"], alone["grad.w"], rtol=1e-12)
    np.testing.assert_allclose(cut["grad.r"], alone["grad.r"], rtol=1e-12)


@pytest.mark.parametrize("layer", [RNN(), GRU(), GRU(linear_before_reset=1), LSTM()], ids=lambda layer: str(layer)[:3])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize("layout", [0, 1])
def test_open_sizes_against_differences(layer: Any, direction: str, layout: int) -> None:
    """One graph for any number of steps and sequences."""
    layer = type(layer)(**{**vars(layer), "direction": direction, "layout": layout})
    count, rng = layer.directions, np.random.default_rng(1)
    shapes = {"w": (count, layer.gates * 3, 2), "r": (count, layer.gates * 3, 3), "b": (count, layer.gates * 6)}
    graph = layer_graph(layer, ("steps", "batch", 2) if not layout else ("batch", "steps", 2), "x w r b", **shapes)
    for steps, batch in ((3, 2), (1, 4)):
        y = (batch, steps, count, 3) if layout else (steps, count, batch, 3)
        feeds = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
        feeds["x"] = rng.standard_normal((batch, steps, 2) if layout else (steps, batch, 2))
        feeds["weights"] = rng.standard_normal(y)
        found = run(graph, **feeds)
        for name in ("x", "w", "r", "b"):
            way, step = rng.standard_normal(feeds[name].shape), 1e-6
            up, down = (run(graph, **{**feeds, name: feeds[name] + s * way})["loss"] for s in (step, -step))
            np.testing.assert_allclose((found[f"grad.{name}"] * way).sum(), (up - down) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize(("gate", "expected"), [(0.0, 0.0), (0.5, 1.0), (1.0, 1.0), (1.25, 0.0)])
def test_kinks_and_the_bounds_of_clip(gate: float, expected: float) -> None:
    """Relu has no slope at 0; what clip leaves as it is has one, the bound itself too."""
    one = (1, 1, 1)
    layer = RNN(activations=("Relu",), clip=1.0)
    graph = layer_graph(layer, one, "x", output=1, w=one, r=one)
    found = run(graph, x=np.full(one, gate), w=np.ones(one), r=np.zeros(one), weights=np.ones(one))
    assert found["grad.x"].item() == expected


def test_only_the_last_state_may_be_read() -> None:
    """The gradients of outputs that nothing reads are absent, not zeros."""
    graph = layer_graph(LSTM(), (4, 2, 3), "w", output=2, w=(1, 20, 3), r=(1, 20, 5))
    (walk,) = [node for node in graph.nodes if isinstance(node.op, RecurrentGrad)]
    y_grad, h_grad, c_grad = (*walk.inputs, None, None, None)[6:9]
    assert y_grad is None
    assert h_grad is None
    assert c_grad is not None


def test_hidden_units_have_to_be_known() -> None:
    with pytest.raises(UnsupportedError, match="number of hidden units that is known"):
        layer_graph(RNN(), (4, 2, 3), "x", w=(1, "units", 3), r=(1, "units", "units"))


def test_residuals_have_no_gradient() -> None:
    with pytest.raises(UnsupportedError, match="no gradient of its residuals"):
        layer_graph(RNN(residuals=True), (4, 2, 3), "x", output=2, w=(1, 5, 3), r=(1, 5, 5))


def refusal(op: RecurrentGrad, *shapes: Any) -> str:
    builder = Builder()
    values = [None if shape is None else builder.input(f"x{i}", F, shape) for i, shape in enumerate(shapes)]
    with pytest.raises(InferenceError) as error:
        builder.apply(op, *values)
    return str(error.value)


def test_operands_that_do_not_fit_are_refused() -> None:
    r, gates, row, y = (1, 5, 5), (1, 4, 2, 5), (1, 4, 2, 5), (4, 1, 2, 5)
    op = RecurrentGrad(RNN().checked())
    assert "not settled" in refusal(RecurrentGrad(RNN()), r, gates, None, None, None, None, y)
    assert "no gradient to take back" in refusal(op, r, gates)
    assert "gates have 4 numbers" in refusal(op, r, (1, 4, 2, 4), None, None, None, None, y)
    assert "gates have 2 directions" in refusal(op, r, (2, 4, 2, 5), None, None, None, None, y)
    assert "y_grad %x6 has shape" in refusal(op, r, gates, None, None, None, None, (4, 1, 2, 6))
    assert "has no cell state" in refusal(op, r, gates, None, None, None, None, y, None, (1, 2, 5))
    assert "peepholes tells" in refusal(op, r, gates, None, None, None, (1, 15), y)
    assert "those of an LSTM" in refusal(RecurrentGrad(RNN().checked(), True), r, gates, None, None, None, (1, 15), y)
    gru, wide = RecurrentGrad(GRU().checked()), (1, 4, 2, 15)
    assert "reads hidden" in refusal(gru, (1, 15, 5), wide, None, None, None, None, y)
    linear = RecurrentGrad(GRU(linear_before_reset=1).checked())
    assert "reads its last residual" in refusal(linear, (1, 15, 5), wide, row, None, None, None, y)
