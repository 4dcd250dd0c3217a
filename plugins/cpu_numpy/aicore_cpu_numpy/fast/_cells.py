"""One step of RNN, LSTM and GRU, for all sequences at once: one product for the gates, the rest in place.

With G gates, L directions side by side, N sequences and H hidden units: gates lie one after another, (G, L, N, H), so
that those with one activation are one dense array. States are (L, N, H).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from aicore.ops.recurrent import GRU, LSTM, RNN, Recurrent
from aicore.records import dataclass
from aicore_cpu_numpy.fast._gates import Gate, sigmoid_of_negated

Array = np.ndarray[Any, Any]
Cell: TypeAlias = Callable[..., None]
"""`(x, h, out)`: the next h into `out`, of the projected input x (G, L, N, H) and h; a cell state changes in place.

With a fourth argument, a Kept, what the gradient reads goes there.
"""

_FEW_ROWS, _LONG_ROWS = 4, 64
"""Up to so many sequences of so many hidden units, a product for each takes less time than one of so flat a matrix."""


@dataclass(frozen=True)
class Weights:
    """What a step computes with: w (G, L, I, H), bias (G, L, 1, H), peepholes (3, L, 1, H), and the blocks of r.

    r: for each product of a step, (gates, L, H, H); or (1, 1, H, gates * H), which gives a single sequence the same.
    reset_bias: (L, 1, H), the bias inside the reset of a GRU with `linear_before_reset`.
    negated: the squashed gates, all but the candidate, come out negated, which spares their sigmoid a call.
    """

    w: Array
    r: tuple[Array, ...]
    bias: Array | None = None
    reset_bias: Array | None = None
    peepholes: Array | None = None
    negated: bool = False


@dataclass(frozen=True)
class Room:
    """Memory of a step: gates and scratch (G, L, N, H), one spare state, and the cell state of an LSTM."""

    gates: Array
    scratch: Array
    spare: Array
    cell: Array


class Kept:
    """Where a step leaves what goes into its activations, (G, L, N, H), and what a GRU multiplies last, (L, N, H)."""

    __slots__ = ("each", "last", "squashed", "whole")

    def __init__(self, gates: Array, last: Array | None = None) -> None:
        self.whole, self.squashed, self.each, self.last = gates, gates[:-1], tuple(gates), last


def pack(
    op: Recurrent,
    w: Array,
    r: Array,
    b: Array | None,
    p: Array | None,
    *,
    dense: bool = False,
    single: bool = False,
    negated: bool = False,
) -> Weights:
    """Weights of L directions, of w (L, G*H, I), r (L, G*H, H), b (L, 2*G*H) and p (L, 3*H).

    dense: copy the matrices as the products read them.
    single: they are for one sequence in one direction; one wide product takes less time than one for each gate.
    negated: see Weights; only for dense ones, of an LSTM without peepholes or a GRU.
    """
    count, hidden = len(w), r.shape[2]
    reset_bias = bias = None
    if b is not None:
        ours, theirs = b.reshape(count, 2, op.gates, 1, hidden).transpose(1, 2, 0, 3, 4)
        bias = ours + theirs
        if isinstance(op, GRU) and op.linear_before_reset:
            bias[2] = ours[2]
            reset_bias = np.array(theirs[2])
    peepholes = None if p is None else p.reshape(count, 3, 1, hidden).swapaxes(0, 1)
    inputs, states = (m.reshape(count, op.gates, hidden, m.shape[2]).transpose(1, 0, 3, 2) for m in (w, r))
    two_products = isinstance(op, GRU) and not op.linear_before_reset
    if negated:
        inputs, states = np.array(inputs), np.array(states)
        for array in (inputs, states, bias):
            if array is not None:
                np.negative(array[:-1], array[:-1])
    blocks: tuple[Array, ...] = (states[:2], states[2:]) if two_products else (states,)
    if dense:
        inputs = np.ascontiguousarray(inputs)
        blocks = tuple(_side_by_side(block) if single else np.ascontiguousarray(block) for block in blocks)
    return Weights(inputs, blocks, bias, reset_bias, peepholes, negated)


def _side_by_side(block: Array) -> Array:
    """(gates, 1, H, H) as (1, 1, H, gates * H)."""
    hidden = block.shape[-1]
    return block.transpose(1, 2, 0, 3).reshape(1, 1, hidden, len(block) * hidden)


def make_cell(op: Recurrent, weights: Weights, functions: Sequence[Gate], room: Room) -> Cell:
    """The step of the op in the given memory."""
    match op:
        case LSTM():
            return _lstm(op, weights, functions, room)
        case GRU() if op.linear_before_reset:
            return _gru_resetting_products(weights, functions, room)
        case GRU():
            return _gru(weights, functions, room)
        case RNN():
            return _rnn(weights, functions, room)
    raise TypeError(f"{type(op).__name__} is no recurrent layer")


def _product(r: Array, out: Array) -> Callable[[Array], Array]:
    """`(h)`: out (gates, L, N, H) = h (L, N, H) @ r."""
    if r.shape[:2] == (1, 1) and out.shape[1:3] == (1, 1):
        matrix, row = r[0, 0], out.reshape(-1)
        return lambda h: np.dot(h[0, 0], matrix, row)
    target = out.reshape(*r.shape[:2], out.shape[2], r.shape[3])
    if 1 < out.shape[2] <= _FEW_ROWS and out.shape[3] >= _LONG_ROWS:
        r, target = r[..., None, :, :], target[..., None, :]
        return lambda h: np.matmul(h[..., None, :], r, target)
    return lambda h: np.matmul(h, r, target)


def _rnn(weights: Weights, functions: Sequence[Gate], room: Room) -> Cell:
    gates, (function,), own = room.gates, functions, Kept(room.gates)
    multiply = _product(weights.r[0], gates)

    def step(x: Array, h: Array, out: Array, kept: Kept = own) -> None:
        multiply(h)
        np.add(gates, x, kept.whole)
        function(kept.each[0], out, room.spare)

    return step


def _gru(weights: Weights, functions: Sequence[Gate], room: Room) -> Cell:
    (f, g), spare, own = functions, room.spare, Kept(room.gates)
    f = sigmoid_of_negated if weights.negated else f
    both, candidate = room.gates[:2], room.gates[2]
    update, reset = both
    scratch = room.scratch[:2]
    multiply, multiply_reset = _product(weights.r[0], both), _product(weights.r[1], room.gates[2:])

    def step(x: Array, h: Array, out: Array, kept: Kept = own) -> None:
        multiply(h)
        np.add(both, x[:2], kept.squashed)
        f(kept.squashed, both, scratch)
        np.multiply(reset, h, spare)
        if kept.last is not None:
            np.copyto(kept.last, spare)
        multiply_reset(spare)
        np.add(candidate, x[2], kept.each[2])
        g(kept.each[2], candidate, spare)
        _blend(update, candidate, h, spare, out)

    return step


def _gru_resetting_products(weights: Weights, functions: Sequence[Gate], room: Room) -> Cell:
    gates, (f, g), spare, own = room.gates, functions, room.spare, Kept(room.gates)
    f = sigmoid_of_negated if weights.negated else f
    both, candidate = gates[:2], gates[2]
    update, reset = both
    scratch, bias = room.scratch[:2], weights.reset_bias
    multiply = _product(weights.r[0], gates)

    def step(x: Array, h: Array, out: Array, kept: Kept = own) -> None:
        multiply(h)
        np.add(both, x[:2], kept.squashed)
        f(kept.squashed, both, scratch)
        if bias is not None:
            np.add(candidate, bias, candidate)
        if kept.last is not None:
            np.copyto(kept.last, candidate)
        np.multiply(candidate, reset, candidate)
        np.add(candidate, x[2], kept.each[2])
        g(kept.each[2], candidate, spare)
        _blend(update, candidate, h, spare, out)

    return step


def _blend(update: Array, candidate: Array, h: Array, spare: Array, out: Array) -> None:
    """out = (1 - update) * candidate + update * h."""
    np.subtract(h, candidate, spare)
    np.multiply(spare, update, spare)
    np.add(spare, candidate, out)


def _lstm(op: LSTM, weights: Weights, functions: Sequence[Gate], room: Room) -> Cell:
    gates, (f, g, last), spare, cell, own = room.gates, functions, room.spare, room.cell, Kept(room.gates)
    f = sigmoid_of_negated if weights.negated else f
    admit, emit, keep, candidate = gates
    squashed, squashed_scratch, scratch = gates[:3], room.scratch[:3], room.scratch[0]
    peepholes = weights.peepholes
    multiply = _product(weights.r[0], gates)

    def peeping(raw: Array, gate: Array, peephole: Array) -> None:
        np.multiply(cell, peephole, spare)
        np.add(raw, spare, raw)
        f(raw, gate, scratch)

    def step(x: Array, h: Array, out: Array, kept: Kept = own) -> None:
        multiply(h)
        np.add(gates, x, kept.whole)
        if peepholes is None:
            f(kept.squashed, squashed, squashed_scratch)
        else:
            peeping(kept.each[0], admit, peepholes[0])
            peeping(kept.each[2], keep, peepholes[2])
        if op.input_forget:
            np.subtract(1, admit, keep)
        g(kept.each[3], candidate, scratch)
        np.multiply(keep, cell, cell)
        np.multiply(admit, candidate, candidate)
        np.add(cell, candidate, cell)
        if peepholes is not None:
            peeping(kept.each[1], emit, peepholes[1])
        last(cell, spare, scratch)
        np.multiply(emit, spare, out)

    return step
