"""What RNN, GRU and LSTM mean, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.recurrent import GRU, LSTM, RNN, Activated, Recurrent
from aicore.records import dataclass
from aicore_cpu_numpy.reference._precision import widen

Array = np.ndarray[Any, Any]
Function: TypeAlias = "Callable[[Array], Array]"
Cell: TypeAlias = "Callable[..., tuple[tuple[Array, ...], tuple[Array, ...]]]"
"""(direction, x, *states) -> (states, residuals); the first residuals are what goes into each gate's activation."""


@dataclass(frozen=True)
class Direction:
    """What one direction computes with: for each gate, weights and biases; then peepholes and activations."""

    w: Sequence[Array]
    r: Sequence[Array]
    wb: Sequence[Array]
    rb: Sequence[Array]
    p: Sequence[Array]
    activations: Sequence[Function]


@kernel(RNN, device="cpu")
def rnn(
    op: RNN,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
) -> tuple[Array, ...]:
    op = op.checked()
    return _layer(op, _rnn_step, (x, w, r, b, None), sequence_lens, (initial_h,))


@kernel(GRU, device="cpu")
def gru(
    op: GRU,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
) -> tuple[Array, ...]:
    op = op.checked()
    return _layer(op, partial(_gru_step, op), (x, w, r, b, None), sequence_lens, (initial_h,))


@kernel(LSTM, device="cpu")
def lstm(
    op: LSTM,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    p: Array | None = None,
) -> tuple[Array, ...]:
    op = op.checked()
    return _layer(op, partial(_lstm_step, op), (x, w, r, b, p), sequence_lens, (initial_h, initial_c))


def _rnn_step(d: Direction, x: Array, h: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    (f,) = d.activations
    gate = x @ d.w[0].T + h @ d.r[0].T + d.wb[0] + d.rb[0]
    return (f(gate),), (gate, h)


def _gru_step(op: GRU, d: Direction, x: Array, h: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    f, g = d.activations
    gate_z, gate_r = (x @ d.w[k].T + h @ d.r[k].T + d.wb[k] + d.rb[k] for k in range(2))
    update, reset = f(gate_z), f(gate_r)
    if op.linear_before_reset:
        last = h @ d.r[2].T + d.rb[2]
        gate_h = x @ d.w[2].T + reset * last + d.wb[2]
    else:
        last = reset * h
        gate_h = x @ d.w[2].T + last @ d.r[2].T + d.rb[2] + d.wb[2]
    return ((1 - update) * g(gate_h) + update * h,), (gate_z, gate_r, gate_h, h, last)


def _lstm_step(op: LSTM, d: Direction, x: Array, h: Array, c: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    f, g, squash = d.activations
    gate_i, gate_o, gate_f, gate_c = (x @ d.w[k].T + h @ d.r[k].T + d.wb[k] + d.rb[k] for k in range(4))
    peep_i, peep_o, peep_f = d.p
    gate_i = gate_i + peep_i * c
    gate_f = gate_f + peep_f * c
    admit = f(gate_i)
    keep = 1 - admit if op.input_forget else f(gate_f)
    new = keep * c + admit * g(gate_c)
    gate_o = gate_o + peep_o * new
    return (f(gate_o) * squash(new), new), (gate_i, gate_o, gate_f, gate_c, h, c)


def _layer(
    op: Recurrent,
    step: Cell,
    operands: Sequence[Array | None],
    lengths: Array | None,
    initial: Sequence[Array | None],
) -> tuple[Array, ...]:
    """All directions over all steps: y and the last states, laid out as the op says."""
    x, w, r, b, p = (None if v is None else widen(v) for v in operands)
    if x is None or w is None or r is None:
        raise ValueError("x, w and r are required")
    sequence = x.swapaxes(0, 1) if op.layout else x
    steps, batch = sequence.shape[:2]
    hidden = r.shape[2]
    lengths = np.full(batch, steps) if lengths is None else lengths
    functions = [partial(_clipped, op.clip, a) for a in op.settled_activations()]
    share = len(functions) // op.directions
    ys, finals, residuals = [], [], []
    for k in range(op.directions):
        bias = np.zeros(2 * op.gates * hidden, x.dtype) if b is None else b[k]
        direction = Direction(
            w=np.split(w[k], op.gates),
            r=np.split(r[k], op.gates),
            wb=np.split(bias, 2 * op.gates)[: op.gates],
            rb=np.split(bias, 2 * op.gates)[op.gates :],
            p=np.split(np.zeros(3 * hidden, x.dtype) if p is None else p[k], 3),
            activations=functions[k * share : (k + 1) * share],
        )
        states = [_initial(op, s, k, (batch, hidden), x.dtype) for s in initial]
        backwards = op.direction == "reverse" or k == 1
        y, last, kept = _scan(partial(step, direction), sequence, lengths, states, backwards)
        ys.append(y)
        finals.append(last)
        kept = kept or [y] * (op.gates + op.kept - 1)  # of no steps at all
        residuals.append((np.concatenate(kept[: op.gates], axis=-1), *kept[op.gates :]))
    outputs = (np.stack(ys, axis=1), *(np.stack(s, axis=0) for s in zip(*finals, strict=True)))
    if op.layout:
        outputs = (outputs[0].transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in outputs[1:]))
    if op.residuals:
        by_step = [np.stack(kept, axis=0) for kept in zip(*residuals, strict=True)]
        outputs = (*outputs, *(kept.swapaxes(1, 2) if op.layout else kept for kept in by_step))
    dtype = operands[0].dtype if operands[0] is not None else x.dtype
    return tuple(np.ascontiguousarray(o).astype(dtype, copy=False) for o in outputs)


def _scan(
    step: Cell, x: Array, lengths: Array, states: Sequence[Array], backwards: bool
) -> tuple[Array, Sequence[Array], Sequence[Array]]:
    """Outputs (T, N, H), last states and residuals of one direction.

    Beyond a sequence's end its state waits, its output is 0. Backwards, a sequence therefore starts from its initial
    state at its own last step.
    """
    steps = range(len(x))
    y = np.zeros((len(x), *states[0].shape), states[0].dtype)
    found: dict[int, tuple[Array, ...]] = {}
    for t in reversed(steps) if backwards else steps:
        alive = (t < lengths)[:, None]
        new, found[t] = step(x[t], *states)
        states = [np.where(alive, n, s) for n, s in zip(new, states, strict=True)]
        y[t] = np.where(alive, new[0], 0)
    return y, states, [np.stack(parts) for parts in zip(*(found[t] for t in steps), strict=True)]


def _initial(op: Recurrent, state: Array | None, direction: int, shape: tuple[int, int], dtype: Any) -> Array:
    if state is None:
        return np.zeros(shape, dtype)
    return widen(state[:, direction] if op.layout else state[direction])


def _clipped(clip: float | None, activation: Activated, x: Array) -> Array:
    bounded = x if clip is None else np.clip(x, -clip, clip)
    return FORMULAS[activation.name](bounded, activation.alpha, activation.beta)


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):  # exp(-x) is infinite where the result is 0
        return np.asarray(1 / (1 + np.exp(-x)))


FORMULAS: dict[str, Callable[[Array, Any, Any], Array]] = {
    "Relu": lambda x, alpha, beta: np.maximum(x, 0),
    "Tanh": lambda x, alpha, beta: np.tanh(x),
    "Sigmoid": lambda x, alpha, beta: _sigmoid(x),
    "Affine": lambda x, alpha, beta: alpha * x + beta,
    "LeakyRelu": lambda x, alpha, beta: np.where(x < 0, alpha * x, x),
    "ThresholdedRelu": lambda x, alpha, beta: np.where(x < alpha, 0, x),
    "ScaledTanh": lambda x, alpha, beta: alpha * np.tanh(beta * x),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "Elu": lambda x, alpha, beta: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
    "Softsign": lambda x, alpha, beta: x / (1 + np.abs(x)),
    "Softplus": lambda x, alpha, beta: np.logaddexp(x, 0),
}
"""The activations by name, of (x, alpha, beta), as the ONNX text of the recurrent ops lists them."""

KERNELS: tuple[Kernel, ...] = (rnn, gru, lstm)
