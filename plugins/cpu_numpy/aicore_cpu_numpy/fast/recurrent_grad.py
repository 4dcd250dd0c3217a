"""Back through the steps of RNN, LSTM and GRU: a step is one product or two and a few calls, all in given memory.

Steps are prepared in blocks that stay in the caches; see _cells_back.py. Directions go one after the other; threads
share the sequences, see _shares.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.recurrent import Recurrent
from aicore.ops.recurrent_grad import RecurrentGrad
from aicore.records import dataclass
from aicore_cpu_numpy.fast._cells_back import BACK, ROOMS, Back, Block, States, Step
from aicore_cpu_numpy.fast._gates import gate
from aicore_cpu_numpy.fast._shares import GAIN, Axes, axes_of_gradient, in_shares, laid_out, sequences_of, types_of
from aicore_cpu_numpy.fast._slopes import slope

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 14
"""Numbers of one state that steps of a block have together: six rooms of so many lie in a core's own cache."""
_GEMM_RATE, _CALL, _CALLS, _EACH = 30e9, 1.2e-6, 12, 12e-9
"""For estimates: operations per second, seconds of a NumPy call, calls of a step, seconds for one unit's functions."""


@dataclass(frozen=True)
class _Sizes:
    """Steps, sequences, hidden units, directions, and steps of a block."""

    steps: int
    batch: int
    hidden: int
    directions: int
    block: int

    @classmethod
    def of(cls, op: RecurrentGrad, gates: TensorType) -> _Sizes:
        directions, *rows, width = gates.static_shape
        batch, steps = rows if op.layer.layout else reversed(rows)
        hidden = width // op.layer.gates
        return cls(steps, batch, hidden, directions, max(1, min(steps, _BLOCK // max(batch * hidden, 1))))

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Shapes in the workspace: five states, and the rooms of a block."""
        return (*((self.batch, self.hidden),) * 5, *((self.block, self.batch, self.hidden),) * ROOMS)


def _supports(op: RecurrentGrad, *types: TensorType | None) -> str | None:
    known = all(t is None or t.is_static for t in types)
    return None if known else "needs shapes that are known in numbers"


def _memory(op: RecurrentGrad, *types: TensorType | None) -> list[int]:
    """Bytes of each share, in multiples of 64."""
    gates = types[1]
    assert gates is not None  # inference refuses a node without it
    axes, _ = _axes(op)
    item = numpy_dtype(gates.dtype).itemsize
    found = []
    for sequences in _sequences(op, *types):
        (own,) = types_of([gates], axes[1:], sequences)
        assert own is not None
        found.append(-(-sum(map(math.prod, _Sizes.of(op, own).parts)) * item // 64) * 64)
    return found


def _workspace(op: RecurrentGrad, *types: TensorType | None) -> int:
    return sum(_memory(op, *types))


def _axes(op: RecurrentGrad) -> tuple[Axes, Axes]:
    return axes_of_gradient(op.layer, op.peepholes, op.is_linear_gru)


def _sequences(op: RecurrentGrad, *types: TensorType | None) -> list[slice]:
    gates = types[1]
    assert gates is not None  # inference refuses a node without it
    return sequences_of(_Sizes.of(op, gates).batch, _alone(op, gates))


def _seconds(op: RecurrentGrad, r: TensorType, gates: TensorType, *others: TensorType | None) -> float:
    return _alone(op, gates) / (1 + GAIN * (len(_sequences(op, r, gates)) - 1))


def _alone(op: RecurrentGrad, gates: TensorType) -> float:
    """Seconds of one thread."""
    sizes = _Sizes.of(op, gates)
    each = sizes.batch * sizes.hidden * op.layer.gates * (2 * sizes.hidden / _GEMM_RATE + _EACH)
    return sizes.directions * sizes.steps * (each + _CALLS * _CALL)


class _Walk:
    """The op with its functions resolved."""

    def __init__(self, op: RecurrentGrad, types: Sequence[TensorType | None]) -> None:
        r, gates = types[:2]
        assert r is not None and gates is not None  # noqa: PT018  # inference refuses a node without them
        self._op, self._sizes, self._dtype = op, _Sizes.of(op, gates), numpy_dtype(r.dtype)
        clip = op.layer.clip
        squash = [(gate(a, clip), slope(a, clip)) for a in op.layer.settled_activations()]
        share = len(squash) // op.layer.directions
        self._backs = [BACK[type(op.layer)](op, squash[i : i + share]) for i in range(0, len(squash), share)]

    def place(self, *operands: Array | None, out: tuple[Array, ...], workspace: Array) -> Callable[[], None]:
        """A call for these arrays: all views of them are made once."""
        padded = (*operands, *[None] * (9 - len(operands)))
        parts = laid_out(workspace, self._dtype, self._sizes.parts)
        states, rooms = parts[:-ROOMS], parts[-ROOMS:]
        directions = [_Direction(self._op, k, padded, out, states, rooms, self._backs[k]) for k in range(len(out[0]))]
        runs = [direction.place(self._sizes) for direction in directions]

        def run() -> None:
            for one in runs:
                one()

        return run


@dataclass(frozen=True)
class _Direction:
    """One direction on given arrays. states: five (N, H) of scratch. rooms: (C, N, H) each."""

    op: RecurrentGrad
    number: int
    operands: Sequence[Array | None]
    out: Sequence[Array]
    states: Sequence[Array]
    rooms: Sequence[Array]
    back: Back

    @property
    def layer(self) -> Recurrent:
        return self.op.layer

    def place(self, sizes: _Sizes) -> Callable[[], None]:
        lengths, y = self.operands[4], self._of_steps(self.operands[6])
        h, c, spare, more, saved = self.states
        states = States(h, c, spare, more)
        of_state = [self._state(a) for a in (*self.operands[7:9], *self.out[1 : 1 + self.layer.states])]
        given, found = of_state[:2], of_state[2:]
        carried = (h, c)[: self.layer.states]
        ended = None if lengths is None else np.zeros((sizes.steps, sizes.batch, 1), bool)
        p_grad = self.out[1 + self.layer.states][self.number] if self.op.peepholes else None
        blocks = self._blocks(sizes, states, ended, p_grad)

        def run() -> None:
            if ended is not None and lengths is not None:
                np.greater_equal(np.arange(sizes.steps)[:, None, None], lengths[:, None], out=ended)
            if p_grad is not None:
                p_grad.fill(0)
            for state, initial in zip(carried, given, strict=False):
                np.copyto(state, 0 if initial is None else initial)
            for block, steps in blocks:
                self.back.prepare(block)
                for t, step in steps:
                    _take(step, h, None if y is None else y[t], saved, None if ended is None else ended[t])
                self.back.finish(block)
            for result, state in zip(found, carried, strict=True):
                np.copyto(result, state)  # type: ignore[arg-type]

        return run

    def _blocks(
        self, sizes: _Sizes, states: States, ended: Array | None, p_grad: Array | None
    ) -> list[tuple[Block, list[tuple[int, Step]]]]:
        """Blocks with the number and the call of each of their steps, all in the order in which they are taken."""
        r, _, hidden, last, *_ = self.operands
        p = self.operands[5]
        assert r is not None  # inference refuses a node without it
        shape = (sizes.steps, sizes.batch, self.layer.gates, sizes.hidden)
        gates, out = (self._rows(a).reshape(shape) for a in (self.operands[1], self.out[0]))
        into_last = self._rows(self.out[-1]) if self.op.is_linear_gru else None
        hidden, last = self._rows(hidden), self._rows(last)
        forwards = self.layer.direction == "reverse" or self.number == 1
        starts = range(0, sizes.steps, sizes.block)
        found = []
        for start in starts if forwards else reversed(starts):
            part = slice(start, min(start + sizes.block, sizes.steps))
            count = part.stop - start
            block = Block(
                r=r[self.number],
                p=None if p is None else p[self.number].reshape(3, sizes.hidden),
                gates=gates[part],
                out=out[part],
                hidden=None if hidden is None else hidden[part],
                last=None if last is None else last[part],
                into_last=None if into_last is None else into_last[part],
                p_grad=None if p_grad is None else p_grad.reshape(sizes.batch, 3, sizes.hidden),
                ended=None if ended is None else ended[part],
                rooms=[room[:count] for room in self.rooms],
                states=states,
            )
            order = range(count) if forwards else reversed(range(count))
            found.append((block, [(start + i, self.back.step(block, i)) for i in order]))
        return found

    def _rows(self, rows: Array | None) -> Any:
        """(T, N, width) of this direction, of (D, A, B, width)."""
        if rows is None:
            return None
        return rows[self.number].swapaxes(0, 1) if self.layer.layout else rows[self.number]

    def _of_steps(self, y: Array | None) -> Array | None:
        if y is None:
            return None
        return y[:, :, self.number].swapaxes(0, 1) if self.layer.layout else y[:, self.number]

    def _state(self, state: Array | None) -> Array | None:
        if state is None:
            return None
        return state[:, self.number] if self.layer.layout else state[self.number]


def _take(step: Step, h: Array, into_y: Array | None, saved: Array, ended: Array | None) -> None:
    """One step back: where a sequence had ended, the gradient of its state waits."""
    if ended is None:
        if into_y is not None:
            np.add(h, into_y, h)
        step()
        return
    np.copyto(saved, h)
    if into_y is not None:
        np.add(h, into_y, h, where=~ended)
    step()
    np.copyto(h, saved, where=ended)


def _bind(op: RecurrentGrad, types: Sequence[TensorType | None], constants: Any) -> Callable[..., None]:
    return in_shares(lambda own: _Walk(op, own), types, _sequences(op, *types), _memory(op, *types), _axes(op))


@kernel(
    RecurrentGrad,
    device="cpu",
    variant="stepped",
    dtypes=frozenset({"float32", "float64"}),
    supports=_supports,
    workspace=_workspace,
    estimate=_seconds,
    bind=_bind,
)
def stepped(op: RecurrentGrad, *operands: Array | None, out: tuple[Array, ...], workspace: Array) -> None:
    types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
    _bind(op, types, ())(*operands, out=out, workspace=workspace)


KERNELS: tuple[Kernel, ...] = (stepped,)
