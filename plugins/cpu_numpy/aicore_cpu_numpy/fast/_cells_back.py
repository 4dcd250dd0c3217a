"""A few steps of RNN, LSTM and GRU taken back: what does not depend on later steps first, for all of them at once.

`prepare` leaves in the gradients of the gates what these are multiples of, and `step` multiplies: by the gradient of
the hidden state, or of the cell state. With C steps, N sequences and H hidden units, arrays are (C, N, H) or, of all
gates, (C, N, G, H), in the order of x's time; a step takes views of one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from aicore.ops.recurrent import GRU, LSTM, RNN
from aicore.ops.recurrent_grad import RecurrentGrad
from aicore.records import dataclass
from aicore_cpu_numpy.fast._gates import Gate
from aicore_cpu_numpy.fast._slopes import Slope

Array = np.ndarray[Any, Any]
Squash: TypeAlias = tuple[Gate, Slope]
Step: TypeAlias = Callable[[], None]

ROOMS = 6
"""Arrays (C, N, H) of scratch memory that steps need."""


@dataclass(frozen=True)
class States:
    """Gradients (N, H) of the hidden state and of the cell state after a step, then before it; and scratch."""

    h: Array
    c: Array
    spare: Array
    more: Array


@dataclass(frozen=True)
class Block:
    """C steps of one direction.

    r: (G*H, H). p: (3, H), or none. gates, out: of each gate. hidden, last: residuals, where they are read.
    into_last: what a GRU with linear_before_reset gives. p_grad: (N, 3, H), to which an LSTM adds. ended: (C, N, 1),
    sequences that had; none if no sequence is short. rooms: scratch memory.
    """

    r: Array
    p: Array | None
    gates: Array
    out: Array
    hidden: Array | None
    last: Array | None
    into_last: Array | None
    p_grad: Array | None
    ended: Array | None
    rooms: Sequence[Array]
    states: States

    def of_gate(self, gate: int) -> tuple[Array, Array]:
        return self.gates[:, :, gate], self.out[:, :, gate]

    def matrix(self, step: int, gates: slice = slice(None)) -> Array:
        """The gradients of these gates at a step, (N, gates * H)."""
        found = self.out[step, :, gates]
        return found.reshape(len(found), found.shape[1] * found.shape[2])  # a view, since gates lie side by side

    def silence(self, *factors: Array) -> None:
        """No gradient goes through steps of sequences that had ended."""
        if self.ended is None:
            return
        np.copyto(self.out, 0, where=self.ended[..., None])
        for factor in factors:
            np.copyto(factor, 0, where=self.ended)


class Back:
    """How one layer goes back. `finish` comes after the steps of a block."""

    def __init__(self, op: RecurrentGrad, squash: Sequence[Squash]) -> None:
        self.op, self.squash = op, squash

    def prepare(self, block: Block) -> None:
        raise NotImplementedError

    def step(self, block: Block, index: int) -> Step:
        raise NotImplementedError

    def finish(self, block: Block) -> None:
        """Nothing, as a rule."""


class RnnBack(Back):
    def prepare(self, block: Block) -> None:
        ((f, slope),), (value, scratch, *_) = self.squash, block.rooms
        gate, out = block.of_gate(0)
        f(gate, value, scratch)
        slope(gate, value, out, scratch)
        block.silence()

    def step(self, block: Block, index: int) -> Step:
        states, r, matrix = block.states, block.r, block.matrix(index)

        def step() -> None:
            np.multiply(matrix, states.h, matrix)
            np.matmul(matrix, r, states.h)

        return step


class LstmBack(Back):
    """Rooms 0 and 1 hold, for each step, what dh adds to dc, and what dc is multiplied by; room 2 the cell state."""

    def prepare(self, block: Block) -> None:
        (f, f_slope), (g, g_slope), (squash, squash_slope) = self.squash
        into_c, keep, c, admit, value, scratch = block.rooms
        before = block.last
        assert before is not None  # noqa: S101  # inference refuses a node without it
        (a_i, out_i), (a_o, out_o), (a_f, out_f), (a_c, out_c) = map(block.of_gate, range(4))
        linked = isinstance(self.op.layer, LSTM) and self.op.layer.input_forget
        f(a_i, admit, scratch)
        f_slope(a_i, admit, out_i, scratch)
        if linked:
            np.subtract(1, admit, keep)
            out_f.fill(0)
        else:
            f(a_f, keep, scratch)
            f_slope(a_f, keep, out_f, scratch)
            np.multiply(out_f, before, out_f)
        g(a_c, value, scratch)
        g_slope(a_c, value, out_c, scratch)
        np.multiply(out_c, admit, out_c)
        np.multiply(admit, value, c)
        np.multiply(keep, before, scratch)
        np.add(c, scratch, c)
        if linked:
            np.subtract(value, before, value)
        np.multiply(out_i, value, out_i)
        squash(c, value, scratch)
        squash_slope(c, value, into_c, scratch)
        f(a_o, admit, scratch)  # the output gate, from here on
        np.multiply(into_c, admit, into_c)
        f_slope(a_o, admit, out_o, scratch)
        np.multiply(out_o, value, out_o)
        if block.p is not None:
            for peephole, out, total in zip(block.p, (out_i, out_o, out_f), (keep, into_c, keep), strict=True):
                np.multiply(out, peephole, scratch)
                np.add(total, scratch, total)
        block.silence(into_c)
        if block.ended is not None:
            np.copyto(keep, 1, where=block.ended)

    def step(self, block: Block, index: int) -> Step:
        h, c, spare, r = block.states.h, block.states.c, block.states.spare, block.r
        into_c, keep, matrix = block.rooms[0][index], block.rooms[1][index], block.matrix(index)
        out_o, out_c = block.out[index, :, 1], block.out[index, :, 3]
        out_if, c_twice = block.out[index, :, 0:3:2], c[:, None]

        def step() -> None:
            np.multiply(h, into_c, spare)
            np.add(c, spare, c)
            np.multiply(out_o, h, out_o)
            np.multiply(out_if, c_twice, out_if)
            np.multiply(out_c, c, out_c)
            np.multiply(c, keep, c)
            np.matmul(matrix, r, h)

        return step

    def finish(self, block: Block) -> None:
        if block.p_grad is None:
            return
        scratch, before, spare = block.rooms[3], block.last, block.states.spare
        for i, (gate, factor) in enumerate(((0, before), (1, block.rooms[2]), (2, before))):
            np.multiply(block.out[:, :, gate], factor, scratch)  # type: ignore[arg-type]
            np.add.reduce(scratch, axis=0, out=spare)
            np.add(block.p_grad[:, i], spare, block.p_grad[:, i])


class GruBack(Back):
    """Rooms 0 and 1 hold the update and the reset gates."""

    def prepare(self, block: Block) -> None:
        (f, f_slope), (g, g_slope) = self.squash
        update, reset, value, scratch, *_ = block.rooms
        hidden, factor = block.hidden, block.last if self.op.is_linear_gru else block.hidden
        assert hidden is not None  # noqa: S101  # inference refuses a node without them
        assert factor is not None  # noqa: S101
        (a_z, out_z), (a_r, out_r), (a_h, out_h) = map(block.of_gate, range(3))
        g(a_h, value, scratch)
        g_slope(a_h, value, out_h, scratch)
        f(a_z, update, scratch)
        f_slope(a_z, update, out_z, scratch)
        np.subtract(hidden, value, scratch)
        np.multiply(out_z, scratch, out_z)
        np.subtract(1, update, scratch)
        np.multiply(out_h, scratch, out_h)
        f(a_r, reset, scratch)
        f_slope(a_r, reset, out_r, scratch)
        np.multiply(out_r, factor, out_r)
        block.silence()

    def step(self, block: Block, index: int) -> Step:
        h, spare, more, hidden = block.states.h, block.states.spare, block.states.more, block.r.shape[1]
        squashed_r, last_r = block.r[: 2 * hidden], block.r[2 * hidden :]
        update, reset = block.rooms[0][index], block.rooms[1][index]
        out_z, out_r, out_h = (block.out[index, :, gate] for gate in range(3))
        squashed = block.matrix(index, slice(0, 2))
        into_last = None if block.into_last is None else block.into_last[index]

        def step() -> None:
            np.multiply(out_z, h, out_z)
            np.multiply(out_h, h, out_h)
            np.multiply(h, update, spare)
            if into_last is None:
                np.matmul(out_h, last_r, more)
                np.multiply(out_r, more, out_r)
                np.multiply(more, reset, more)
            else:
                np.multiply(out_r, out_h, out_r)
                np.multiply(out_h, reset, into_last)
                np.matmul(into_last, last_r, more)
            np.matmul(squashed, squashed_r, h)
            np.add(h, more, h)
            np.add(h, spare, h)

        return step


BACK: dict[type[Any], type[Back]] = {RNN: RnnBack, LSTM: LstmBack, GRU: GruBack}
