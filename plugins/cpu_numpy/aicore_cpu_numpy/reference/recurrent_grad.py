"""What goes back through the steps of RNN, GRU and LSTM, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.recurrent import GRU, LSTM, RNN, Activated, Recurrent
from aicore.ops.recurrent_grad import RecurrentGrad
from aicore.records import dataclass
from aicore_cpu_numpy.reference._precision import widen
from aicore_cpu_numpy.reference.recurrent import FORMULAS

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Squash:
    """A gate's activation behind its clip, and its derivative, as functions of the gate."""

    activation: Activated
    clip: float | None

    def __call__(self, gate: Array) -> Array:
        bounded = gate if self.clip is None else np.clip(gate, -self.clip, self.clip)
        return np.asarray(FORMULAS[self.activation.name](bounded, self.activation.alpha, self.activation.beta))

    def slope(self, gate: Array) -> Array:
        slope = np.asarray(SLOPES[self.activation.name](gate, self.activation.alpha, self.activation.beta))
        return slope if self.clip is None else np.where(np.abs(gate) > self.clip, 0, slope)


@dataclass(frozen=True)
class Step:
    """One step of one direction: r of each gate, peepholes, activations, gates, and residuals."""

    r: Sequence[Array]
    p: Sequence[Array]
    squash: Sequence[Squash]
    gates: Sequence[Array]
    hidden: Array | None
    last: Array | None


Back: TypeAlias = "Callable[..., tuple[Sequence[Array], Sequence[Array], Sequence[Array]]]"
"""(step, *gradients of states) -> (gradients of gates, of the states before, and what the op gives beside them)."""


@kernel(RecurrentGrad, device="cpu")
def recurrent_grad(
    op: RecurrentGrad,
    r: Array,
    gates: Array,
    hidden: Array | None = None,
    last: Array | None = None,
    sequence_lens: Array | None = None,
    p: Array | None = None,
    y_grad: Array | None = None,
    h_grad: Array | None = None,
    c_grad: Array | None = None,
) -> tuple[Array, ...]:
    layer, dtype = op.layer, gates.dtype
    gates_in_time, hidden_in_time, last_in_time = (_in_time(layer, a) for a in (gates, hidden, last))
    steps, batch, units = gates_in_time.shape[1], gates_in_time.shape[2], r.shape[2]
    lengths = np.full(batch, steps) if sequence_lens is None else sequence_lens
    squash = [Squash(a, layer.clip) for a in layer.settled_activations()]
    share = len(squash) // layer.directions
    by_direction = []
    for k in range(layer.directions):
        of_r = np.split(widen(r)[k], layer.gates)
        of_p = np.split(np.zeros(3 * units, r.dtype) if p is None else widen(p)[k], 3)
        of_steps = [
            Step(
                of_r,
                of_p,
                squash[k * share : (k + 1) * share],
                np.split(gates_in_time[k, t], layer.gates, axis=-1),
                None if hidden is None else hidden_in_time[k, t],
                None if last is None else last_in_time[k, t],
            )
            for t in range(steps)
        ]
        into_y = np.zeros((steps, batch, units)) if y_grad is None else _steps_of(layer, widen(y_grad), k)
        states = [_state(layer, g, k, (batch, units), gates_in_time.dtype) for g in (h_grad, c_grad)[: layer.states]]
        backwards = layer.direction == "reverse" or k == 1
        by_direction.append(_walk(partial(_BACK[type(layer)], op), of_steps, lengths, into_y, states, backwards))
    return tuple(np.ascontiguousarray(a).astype(dtype, copy=False) for a in _outputs(op, by_direction, gates_in_time))


def _walk(
    back: Back, steps: Sequence[Step], lengths: Array, into_y: Array, states: Sequence[Array], backwards: bool
) -> tuple[list[Sequence[Array]], Sequence[Array], list[Sequence[Array]]]:
    """Gradients of the gates of each step, of the initial states, and what else each step gives; zero where a sequence
    had ended, whose states waited."""
    of_gates: list[Sequence[Array]] = [()] * len(steps)
    others: list[Sequence[Array]] = [()] * len(steps)
    for t in range(len(steps)) if backwards else reversed(range(len(steps))):
        alive = (t < lengths)[:, None]
        found, before, other = back(steps[t], states[0] + into_y[t], *states[1:])
        of_gates[t] = [np.where(alive, g, 0) for g in found]
        others[t] = [np.where(alive, g, 0) for g in other]
        states = [np.where(alive, b, s) for b, s in zip(before, states, strict=True)]
    return of_gates, states, others


def _rnn_back(op: RecurrentGrad, step: Step, dh: Array) -> Any:
    (f,), (gate,) = step.squash, step.gates
    found = dh * f.slope(gate)
    return (found,), (found @ step.r[0],), ()


def _gru_back(op: RecurrentGrad, step: Step, dh: Array) -> Any:
    f, g = step.squash
    gate_z, gate_r, gate_h = step.gates
    update, reset, h = f(gate_z), f(gate_r), step.hidden
    into_z = dh * (h - g(gate_h)) * f.slope(gate_z)
    into_h = dh * (1 - update) * g.slope(gate_h)
    if op.is_linear_gru:
        into_last = into_h * reset
        into_r = into_h * step.last * f.slope(gate_r)
        before = dh * update + into_last @ step.r[2]
    else:
        into_last = into_h @ step.r[2]
        into_r = into_last * h * f.slope(gate_r)
        before = dh * update + into_last * reset
    before = before + into_z @ step.r[0] + into_r @ step.r[1]
    return (into_z, into_r, into_h), (before,), (into_last,) if op.is_linear_gru else ()


def _lstm_back(op: RecurrentGrad, step: Step, dh: Array, dc: Array) -> Any:
    f, g, squash = step.squash
    gate_i, gate_o, gate_f, gate_c = step.gates
    peep_i, peep_o, peep_f = step.p
    linked = isinstance(op.layer, LSTM) and op.layer.input_forget
    admit, show, new = f(gate_i), f(gate_o), g(gate_c)
    keep = 1 - admit if linked else f(gate_f)
    c = keep * step.last + admit * new
    into_o = dh * squash(c) * f.slope(gate_o)
    dc = dc + dh * show * squash.slope(c) + into_o * peep_o
    into_keep = dc * step.last
    into_f = np.zeros_like(into_keep) if linked else into_keep * f.slope(gate_f)
    into_i = dc * new - into_keep if linked else dc * new
    into_i = into_i * f.slope(gate_i)
    into_c = dc * admit * g.slope(gate_c)
    found = (into_i, into_o, into_f, into_c)
    before = sum(a @ b for a, b in zip(found, step.r, strict=True))
    dc_before = dc * keep + into_i * peep_i + into_f * peep_f
    of_peepholes = (into_i * step.last, into_o * c, into_f * step.last)
    return found, (before, dc_before), (np.concatenate(of_peepholes, axis=-1),) if op.peepholes else ()


_BACK: dict[type[Recurrent], Callable[..., Any]] = {RNN: _rnn_back, GRU: _gru_back, LSTM: _lstm_back}


def _outputs(op: RecurrentGrad, by_direction: Sequence[Any], gates: Array) -> list[Array]:
    """Laid out as the op says, of (gradients of the gates of each step, of the states, others) by direction."""
    layer = op.layer
    into_gates = np.zeros_like(gates)
    for k, (of_gates, _, _) in enumerate(by_direction):
        for t, found in enumerate(of_gates):
            into_gates[k, t] = np.concatenate(found, axis=-1)
    states = [np.stack(s, axis=1 if layer.layout else 0) for s in zip(*(s for _, s, _ in by_direction), strict=True)]
    results = [_in_time(layer, into_gates), *states]
    shape = (*gates.shape[:3], gates.shape[3] // layer.gates)
    if op.peepholes:
        width = 3 * shape[-1]
        sums = [sum((o[0] for o in others), np.zeros((shape[2], width), gates.dtype)) for *_, others in by_direction]
        results.append(np.stack(sums))
    if op.is_linear_gru:
        into_last = np.zeros(shape, gates.dtype)
        for k, (*_, others) in enumerate(by_direction):
            for t, found in enumerate(others):
                into_last[k, t] = found[0]
        results.append(_in_time(layer, into_last))
    return results


def _in_time(layer: Recurrent, rows: Array | None) -> Any:
    """(D, A, B, width) as (D, T, N, width), or back."""
    if rows is None:
        return None
    return widen(rows).swapaxes(1, 2) if layer.layout else widen(rows)


def _steps_of(layer: Recurrent, y: Array, direction: int) -> Array:
    """(T, N, H) of one direction."""
    return y[:, :, direction].swapaxes(0, 1) if layer.layout else y[:, direction]


def _state(layer: Recurrent, state: Array | None, direction: int, shape: tuple[int, int], dtype: Any) -> Array:
    if state is None:
        return np.zeros(shape, dtype)
    return widen(state[:, direction] if layer.layout else state[direction])


def _sigmoid(x: Array) -> Array:
    return np.asarray(FORMULAS["Sigmoid"](x, None, None))


SLOPES: dict[str, Callable[[Array, Any, Any], Array]] = {
    "Relu": lambda x, alpha, beta: np.where(x <= 0, 0.0, 1.0),
    "Tanh": lambda x, alpha, beta: 1 - np.tanh(x) ** 2,
    "Sigmoid": lambda x, alpha, beta: _sigmoid(x) * _sigmoid(-x),
    "Affine": lambda x, alpha, beta: np.full_like(x, alpha),
    "LeakyRelu": lambda x, alpha, beta: np.where(x <= 0, alpha, 1.0),
    "ThresholdedRelu": lambda x, alpha, beta: np.where(x <= alpha, 0.0, 1.0),
    "ScaledTanh": lambda x, alpha, beta: alpha * beta * (1 - np.tanh(beta * x) ** 2),
    "HardSigmoid": lambda x, alpha, beta: np.where((alpha * x + beta <= 0) | (alpha * x + beta >= 1), 0.0, alpha),
    "Elu": lambda x, alpha, beta: np.where(x <= 0, alpha * np.exp(np.minimum(x, 0)), 1.0),
    "Softsign": lambda x, alpha, beta: 1 / (1 + np.abs(x)) ** 2,
    "Softplus": lambda x, alpha, beta: _sigmoid(x),
}
"""Derivatives of the activations by name, of (x, alpha, beta); on kinks as the op says."""

KERNELS: tuple[Kernel, ...] = (recurrent_grad,)
