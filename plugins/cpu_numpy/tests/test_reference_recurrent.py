"""RNN, GRU and LSTM against their equations written out with scalars, each attribute in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aicore.ops.recurrent import GRU, LSTM, RNN

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

# One feature and one hidden unit, so that every weight is a number. Gates in ONNX order.
X = (0.5, -1.0, 2.0)
W, R = (0.7, -0.4, 0.9, 0.3), (0.2, 0.6, -0.5, 0.8)
WB, RB = (0.1, -0.2, 0.05, 0.15), (-0.3, 0.25, 0.4, -0.1)
P = (0.35, -0.45, 0.55)
H0, C0 = 0.3, -0.6


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def clipped(limit: float | None) -> Callable[[float], float]:
    return lambda x: x if limit is None else max(-limit, min(limit, x))


def rnn_by_hand(f: Any = math.tanh, clip: float | None = None, xs: Sequence[float] = X, h: float = H0) -> list[float]:
    bound, found = clipped(clip), []
    for x in xs:
        h = f(bound(x * W[0] + h * R[0] + WB[0] + RB[0]))
        found.append(h)
    return found


def gru_by_hand(
    f: Any = sigmoid, g: Any = math.tanh, clip: float | None = None, linear_before_reset: bool = False
) -> list[float]:
    bound, h, found = clipped(clip), H0, []
    for x in X:
        z = f(bound(x * W[0] + h * R[0] + WB[0] + RB[0]))
        r = f(bound(x * W[1] + h * R[1] + WB[1] + RB[1]))
        if linear_before_reset:
            n = g(bound(x * W[2] + r * (h * R[2] + RB[2]) + WB[2]))
        else:
            n = g(bound(x * W[2] + r * h * R[2] + RB[2] + WB[2]))
        h = (1 - z) * n + z * h
        found.append(h)
    return found


def lstm_by_hand(
    f: Any = sigmoid,
    g: Any = math.tanh,
    last: Any = math.tanh,
    clip: float | None = None,
    input_forget: bool = False,
    peepholes: Sequence[float] = P,
) -> tuple[list[float], float]:
    bound, h, c, found = clipped(clip), H0, C0, []
    for x in X:
        i = f(bound(x * W[0] + h * R[0] + WB[0] + RB[0] + peepholes[0] * c))
        forget = f(bound(x * W[2] + h * R[2] + WB[2] + RB[2] + peepholes[2] * c))
        if input_forget:
            forget = 1 - i
        cell = g(bound(x * W[3] + h * R[3] + WB[3] + RB[3]))
        c = forget * c + i * cell
        o = f(bound(x * W[1] + h * R[1] + WB[1] + RB[1] + peepholes[1] * c))
        h = o * last(bound(c))
        found.append(h)
    return found, c


def operands(cls: type[Any], p: bool = True) -> list[Array | None]:
    gates = cls.gates
    column = [np.array(v[:gates], np.float64).reshape(1, gates, 1) for v in (W, R)]
    bias = np.array([WB[:gates] + RB[:gates]], np.float64)
    states = [np.array([[[H0]]])] + ([np.array([[[C0]]])] if cls is LSTM else [])
    peepholes = [np.array([P])] if cls is LSTM and p else []
    return [np.array(X).reshape(3, 1, 1), *column, bias, None, *states, *peepholes]


def run_layer(reference: Run, op: Any, p: bool = True) -> list[float]:
    y, y_h, *_ = reference(op, operands(type(op), p))
    assert y_h.item() == y[-1].item()
    return list(y.ravel())


CLIP = 0.4  # below what most activations get, so that it matters at every one of them


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (RNN(), rnn_by_hand()),
        (RNN(clip=CLIP), rnn_by_hand(clip=CLIP)),
        (RNN(activations=("Sigmoid",)), rnn_by_hand(sigmoid)),
        (GRU(), gru_by_hand()),
        (GRU(clip=CLIP), gru_by_hand(clip=CLIP)),
        (GRU(linear_before_reset=1), gru_by_hand(linear_before_reset=True)),
        (GRU(activations=("Tanh", "Sigmoid")), gru_by_hand(math.tanh, sigmoid)),
        (LSTM(), lstm_by_hand()[0]),
        (LSTM(clip=CLIP), lstm_by_hand(clip=CLIP)[0]),
        (LSTM(input_forget=1), lstm_by_hand(input_forget=True)[0]),
        (
            LSTM(activations=("Tanh", "Sigmoid", "Softsign")),
            lstm_by_hand(math.tanh, sigmoid, lambda x: x / (1 + abs(x)))[0],
        ),
    ],
    ids=str,
)
def test_equations(op: Any, expected: list[float], reference: Run) -> None:
    np.testing.assert_allclose(run_layer(reference, op), expected, rtol=1e-12)


def test_every_attribute_changes_the_numbers() -> None:
    """Else the cases above would prove nothing."""
    lstms = [
        lstm_by_hand(),
        lstm_by_hand(clip=CLIP),
        lstm_by_hand(input_forget=True),
        lstm_by_hand(peepholes=(0, 0, 0)),
    ]
    grus = [gru_by_hand(), gru_by_hand(clip=CLIP), gru_by_hand(linear_before_reset=True)]
    for outputs in ([h for h, _ in lstms], grus, [rnn_by_hand(), rnn_by_hand(clip=CLIP), rnn_by_hand(sigmoid)]):
        assert len(set(map(tuple, outputs))) == len(outputs)


def test_the_cell_state_is_an_output_and_is_not_clipped_itself(reference: Run) -> None:
    for clip in (None, CLIP, 0.1):
        _, _, y_c = reference(LSTM(clip=clip), operands(LSTM))
        np.testing.assert_allclose(y_c.item(), lstm_by_hand(clip=clip)[1], rtol=1e-12)
    _, _, y_c = reference(LSTM(clip=0.01), [*operands(LSTM)[:6], np.array([[[9.0]]])])
    assert y_c.item() > 0.9  # 9 / 2 / 2 / 2, about, since a forget gate of sigmoid(0.01) is a half


def test_peepholes_are_optional(reference: Run) -> None:
    found = run_layer(reference, LSTM(), p=False)
    np.testing.assert_allclose(found, lstm_by_hand(peepholes=(0, 0, 0))[0], rtol=1e-12)


FORMULAS: dict[str, Callable[[float, float, float], float]] = {
    "Relu": lambda x, a, b: max(x, 0),
    "Tanh": lambda x, a, b: math.tanh(x),
    "Sigmoid": lambda x, a, b: sigmoid(x),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: x if x >= 0 else a * x,
    "ThresholdedRelu": lambda x, a, b: x if x >= a else 0,
    "ScaledTanh": lambda x, a, b: a * math.tanh(b * x),
    "HardSigmoid": lambda x, a, b: min(max(a * x + b, 0), 1),
    "Elu": lambda x, a, b: x if x >= 0 else a * (math.exp(x) - 1),
    "Softsign": lambda x, a, b: x / (1 + abs(x)),
    "Softplus": lambda x, a, b: math.log(1 + math.exp(x)),
}
DEFAULTS = {
    "Affine": (1, 0), "LeakyRelu": (0.01, 0), "ThresholdedRelu": (1, 0),
    "HardSigmoid": (0.2, 0.5), "Elu": (1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(FORMULAS) - {"ScaledTanh"}))
def test_activations_with_default_and_given_parameters(name: str, reference: Run) -> None:
    formula, (alpha, beta) = FORMULAS[name], DEFAULTS.get(name, (0, 0))
    op = RNN(activations=(name,))
    expected = rnn_by_hand(lambda x: formula(x, alpha, beta))
    np.testing.assert_allclose(run_layer(reference, op), expected, rtol=1e-12)
    if name not in DEFAULTS:
        return
    with_alpha = rnn_by_hand(lambda x: formula(x, 1.3, beta))
    assert with_alpha != expected
    found = run_layer(reference, replace(op, activation_alpha=(1.3,)))
    np.testing.assert_allclose(found, with_alpha, rtol=1e-12)
    if name in ("Affine", "HardSigmoid"):
        with_both = rnn_by_hand(lambda x: formula(x, 1.3, 0.45))
        assert with_both != with_alpha
        found = run_layer(reference, replace(op, activation_alpha=(1.3,), activation_beta=(0.45,)))
        np.testing.assert_allclose(found, with_both, rtol=1e-12)


def test_parameters_skip_activations_that_take_none(reference: Run) -> None:
    op = LSTM(activations=("Sigmoid", "LeakyRelu", "ScaledTanh"), activation_alpha=(0.3, 0.6), activation_beta=(1.5,))
    leaky: Any = lambda x: x if x >= 0 else 0.3 * x  # noqa: E731
    expected, _ = lstm_by_hand(sigmoid, leaky, lambda x: 0.6 * math.tanh(1.5 * x))
    np.testing.assert_allclose(run_layer(reference, op), expected, rtol=1e-12)


def test_reverse_runs_from_the_last_step(reference: Run) -> None:
    y, y_h = reference(RNN(direction="reverse"), operands(RNN))
    expected = rnn_by_hand(xs=X[::-1])[::-1]
    np.testing.assert_allclose(y.ravel(), expected, rtol=1e-12)
    assert y_h.item() == y[0].item()


@pytest.mark.parametrize("cls", [RNN, GRU, LSTM])
def test_bidirectional_is_both_directions_with_their_own_weights_and_activations(
    cls: type[Any], reference: Run
) -> None:
    rng = np.random.default_rng(0)
    gates, count = cls.gates, len(cls.default_activations)
    x = rng.standard_normal((4, 3, 2))
    both = [rng.standard_normal(shape) for shape in ((2, gates * 3, 2), (2, gates * 3, 3), (2, 2 * gates * 3))]
    states = [rng.standard_normal((2, 3, 3)) for _ in range(cls.states)]
    others = ("Softsign", "Sigmoid", "Relu")[:count]
    outputs = reference(
        cls(direction="bidirectional", activations=cls.default_activations + others), [x, *both, None, *states]
    )
    for k, (direction, names) in enumerate((("forward", cls.default_activations), ("reverse", others))):
        one = [v[k : k + 1] for v in both]
        parts = reference(cls(direction=direction, activations=names), [x, *one, None, *(s[k : k + 1] for s in states)])
        np.testing.assert_array_equal(outputs[0][:, k : k + 1], parts[0])
        for whole, part in zip(outputs[1:], parts[1:], strict=True):
            np.testing.assert_array_equal(whole[k : k + 1], part)


@pytest.mark.parametrize("cls", [RNN, GRU, LSTM])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_layout_moves_the_batch_to_the_front(cls: type[Any], direction: str, reference: Run) -> None:
    samples = [s for s in cls.samples(np.random.default_rng(0)) if s.op.direction == direction and s.op.layout == 0]
    sample = max(samples, key=lambda s: len(s.inputs))
    x, w, r, b, lengths, *states = sample.inputs
    first = [s.swapaxes(0, 1) if s.ndim == 3 else s for s in states]
    y, *finals = reference(sample.op, [x, w, r, b, lengths, *states])
    moved = replace(sample.op, layout=1)
    y_moved, *finals_moved = reference(moved, [np.ascontiguousarray(x.swapaxes(0, 1)), w, r, b, lengths, *first])
    np.testing.assert_array_equal(y_moved, y.transpose(2, 0, 1, 3))
    for a, b in zip(finals_moved, finals, strict=True):
        np.testing.assert_array_equal(a, b.swapaxes(0, 1))


@pytest.mark.parametrize("cls", [RNN, GRU, LSTM])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_short_sequence_is_as_if_alone(cls: type[Any], direction: str, reference: Run) -> None:
    """Zeros after its end, last states from its own last step, and an empty one keeps its initial states."""
    samples = [s for s in cls.samples(np.random.default_rng(0)) if s.op.direction == direction and s.op.layout == 0]
    sample = max(samples, key=lambda s: len(s.inputs))
    x, w, r, b, lengths, *states = sample.inputs
    assert lengths is not None
    y, *finals = reference(sample.op, sample.inputs)
    for n, length in enumerate(lengths.tolist()):
        one = [s[:, n : n + 1] if s.ndim == 3 else s for s in states]
        y_one, *finals_one = reference(sample.op, [x[:length, n : n + 1], w, r, b, None, *one])
        np.testing.assert_allclose(y[:length, :, n : n + 1], y_one, rtol=1e-5)
        np.testing.assert_array_equal(y[length:, :, n], 0)
        for whole, part in zip(finals, finals_one, strict=True):
            np.testing.assert_allclose(whole[:, n : n + 1], part, rtol=1e-5)
        if length == 0:
            for whole, initial in zip(finals, states, strict=False):
                np.testing.assert_array_equal(whole[:, n], initial[:, n])


@pytest.mark.parametrize("cls", [RNN, GRU, LSTM])
def test_narrow_floats_keep_their_type(cls: type[Any], reference: Run) -> None:
    for sample in cls.samples(np.random.default_rng(0)):
        arrays = [a.astype(np.float16) if a is not None and a.dtype.kind == "f" else a for a in sample.inputs]
        wide = [a.astype(np.float64) if a is not None and a.dtype.kind == "f" else a for a in arrays]
        for found, expected in zip(reference(sample.op, arrays), reference(sample.op, wide), strict=True):
            assert found.dtype == np.float16
            np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


def test_sigmoid_saturates_without_warnings(reference: Run) -> None:
    x = np.array([-1000.0, 1000.0]).reshape(2, 1, 1)
    one = np.ones((1, 1, 1))
    y, _ = reference(RNN(activations=("Sigmoid",)), [x, one, one * 0])
    np.testing.assert_array_equal(y.ravel(), [0, 1])


def layer_with_residuals(cls: type[Any], reference: Run, **fields: Any) -> tuple[Any, ...]:
    """Three steps of two sequences forwards: initial states, y, gates one by one, and the other residuals."""
    rng, rows = np.random.default_rng(0), cls.gates * 2
    x, w, r, b, h = (rng.standard_normal(s) for s in ((3, 2, 4), (1, rows, 4), (1, rows, 2), (1, 2 * rows), (1, 2, 2)))
    op = cls(residuals=True, **fields)
    y, *rest = reference(op, [x, w, r, b, None, *[h] * op.states])
    gates, *others = rest[op.states :]
    return h, y[:, 0], np.split(gates[0], cls.gates, axis=-1), [other[0] for other in others], r, b


def tanh_and_sigmoid(gates: Sequence[Array]) -> list[Array]:
    return [*(1 / (1 + np.exp(-gate)) for gate in gates[:-1]), np.tanh(gates[-1])]


def test_residuals_of_rnn(reference: Run) -> None:
    h, y, (gate,), (hidden,), *_ = layer_with_residuals(RNN, reference)
    np.testing.assert_allclose(np.tanh(gate), y)
    np.testing.assert_array_equal(hidden, np.concatenate((h, y[:-1])))


def test_residuals_of_lstm(reference: Run) -> None:
    h, y, gates, (hidden, before), *_ = layer_with_residuals(LSTM, reference)
    admit, show, keep, new = tanh_and_sigmoid(gates)
    cell = keep * before + admit * new
    np.testing.assert_allclose(show * np.tanh(cell), y)
    np.testing.assert_array_equal(before[0], h[0])
    np.testing.assert_allclose(before[1:], cell[:-1])
    np.testing.assert_array_equal(hidden, np.concatenate((h, y[:-1])))


@pytest.mark.parametrize("linear", [0, 1])
def test_residuals_of_gru(linear: int, reference: Run) -> None:
    h, y, gates, (hidden, last), r, b = layer_with_residuals(GRU, reference, linear_before_reset=linear)
    update, reset, new = tanh_and_sigmoid(gates)
    np.testing.assert_allclose((1 - update) * new + update * hidden, y)
    np.testing.assert_array_equal(hidden, np.concatenate((h, y[:-1])))
    np.testing.assert_allclose(last, hidden @ r[0, 4:].T + b[0, 10:] if linear else reset * hidden)
