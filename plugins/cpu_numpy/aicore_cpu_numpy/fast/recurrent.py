"""RNN, LSTM and GRU: the inputs of all steps are projected in one product, and a step is one product and a few calls.

Both directions of a layer take their steps side by side, each in its own time. Weights that are constant are packed
once, when the plan is made, and what a run computes on the way lies in the workspace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.recurrent import GRU, LSTM, RNN, Recurrent
from aicore.records import dataclass
from aicore_cpu_numpy.fast._cells import Cell, Kept, Room, Weights, make_cell, pack
from aicore_cpu_numpy.fast._gates import gate
from aicore_cpu_numpy.fast._shares import GAIN, axes_of_layer, in_shares, laid_out, sequences_of, side_by_side, types_of

Array = np.ndarray[Any, Any]
Operands = Sequence["Array | None"]
Lanes = tuple[int, ...]
"""Directions that go side by side: 0 alone, 1 alone, or both."""

DTYPES = frozenset({"float32", "float64"})
WEIGHTS = (1, 2, 3, 7)
"""Operands w, r, b and p, by number."""
_LENGTHS, _FIRST_STATE = 4, 5
GEMM_RATE, CALL, CALLS = 30e9, 1.2e-6, 16
"""For estimates: operations per second of one core, seconds of one NumPy call, and calls of a step."""


@dataclass(frozen=True)
class _Sizes:
    """Steps, sequences, features, directions, gates and hidden units, and how many directions go side by side."""

    steps: int
    batch: int
    features: int
    directions: int
    gates: int
    hidden: int
    lanes: int

    @classmethod
    def of(cls, op: Recurrent, x: TensorType, r: TensorType) -> _Sizes:
        first, second, features = x.static_shape
        steps, batch = (second, first) if op.layout else (first, second)
        directions, _, hidden = r.static_shape
        return cls(steps, batch, features, directions, op.gates, hidden, len(_groups(op)[0]))

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Shapes in the workspace: inputs in order of time, projected, gates, scratch, outputs, four states."""
        state = (self.lanes, self.batch, self.hidden)
        return (
            (self.steps * self.batch, self.features),
            (self.gates, self.lanes, self.steps * self.batch, self.hidden),
            (self.gates, *state),
            (self.gates, *state),
            (self.steps, *state),
            *(state,) * 4,
        )


def _groups(op: Recurrent) -> tuple[Lanes, ...]:
    """Both directions at once, unless they have different activations."""
    op = op.checked()
    activations = op.settled_activations()
    half = len(activations) // op.directions
    if op.directions == 2 and activations[:half] == activations[half:]:
        return ((0, 1),)
    return tuple((k,) for k in range(op.directions))


def _supports(op: Recurrent, *types: TensorType | None) -> str | None:
    known = all(t is None or t.is_static for t in types)
    return None if known else "needs shapes that are known in numbers"


def _memory(op: Recurrent, *types: TensorType | None) -> list[int]:
    """Bytes of each share, in multiples of 64."""
    axes, _ = axes_of_layer(op)
    found = []
    for sequences in _sequences(op, *types):
        x, _, r = types_of(types[:3], axes, sequences)
        assert x is not None and r is not None  # noqa: PT018  # inference refuses a node without them
        nbytes = sum(map(math.prod, _Sizes.of(op, x, r).parts)) * numpy_dtype(x.dtype).itemsize
        found.append(-(-nbytes // 64) * 64)
    return found


def _workspace(op: Recurrent, *types: TensorType | None) -> int:
    return sum(_memory(op, *types))


def _sequences(op: Recurrent, *types: TensorType | None) -> list[slice]:
    """Threads share a layer in training; in inference each would pack the constant weights for itself."""
    x, _, r = types[:3]
    assert x is not None and r is not None  # noqa: PT018  # inference refuses a node without them
    return sequences_of(_Sizes.of(op, x, r).batch, _alone(op, x, r) if op.residuals else 0.0)


def _seconds(op: Recurrent, x: TensorType, w: TensorType, r: TensorType, *others: TensorType | None) -> float:
    return _alone(op, x, r) / (1 + GAIN * (len(_sequences(op, x, w, r)) - 1))


def _alone(op: Recurrent, x: TensorType, r: TensorType) -> float:
    """Seconds of one thread."""
    sizes = _Sizes.of(op, x, r)
    products = sizes.steps * sizes.batch * sizes.gates * sizes.hidden * (sizes.features + sizes.hidden)
    calls = sizes.steps * CALLS * sizes.directions // sizes.lanes
    return sizes.directions * 2 * products / GEMM_RATE + calls * CALL


class _Layer:
    """A recurrent op with its functions resolved and its constant weights packed."""

    def __init__(self, op: Recurrent, types: Sequence[TensorType | None], constants: Operands) -> None:
        x, _, r = types[:3]
        assert x is not None and r is not None  # noqa: PT018  # inference refuses a node without them
        self._op = op.checked()
        self._groups = _groups(op)
        self._sizes = _Sizes.of(op, x, r)
        self._dtype = numpy_dtype(x.dtype)
        functions = [gate(activation, self._op.clip) for activation in self._op.settled_activations()]
        share = len(functions) // op.directions
        self._functions = [functions[lanes[0] * share : (lanes[0] + 1) * share] for lanes in self._groups]
        fixed = all(_operand(types, i) is None or _operand(constants, i) is not None for i in WEIGHTS)
        self._weights = self._pack(constants, dense=True) if fixed else None

    def __call__(self, *operands: Array | None, out: tuple[Array, ...], workspace: Array) -> None:
        self.place(*operands, out=out, workspace=workspace)()

    def place(self, *operands: Array | None, out: tuple[Array, ...], workspace: Array) -> Callable[[], None]:
        """A call for these arrays: all views of them are made once."""
        if self._weights is not None:
            return self._runs(self._memory(self._weights, workspace), operands, out)

        def run() -> None:
            self._runs(self._memory(self._pack(operands, dense=False), workspace), operands, out)()

        return run

    def prepare(self, workspace: Array) -> Callable[..., None]:
        """`(*operands, out=)` in this memory, whose views are made once."""
        if self._weights is None:
            return partial(self, workspace=workspace)
        memory = self._memory(self._weights, workspace)

        def run(*operands: Array | None, out: tuple[Array, ...]) -> None:
            self._runs(memory, operands, out)()

        return run

    def _pack(self, operands: Operands, dense: bool) -> list[Weights]:
        w, r, b, p = (_operand(operands, i) for i in WEIGHTS)
        single = self._sizes.parts[-1][:2] == (1, 1)
        negated = dense and p is None and self._is_sigmoid and not self._op.residuals
        packed = []
        for lanes in self._groups:
            part = slice(lanes[0], lanes[-1] + 1)
            bias, peepholes = (None if a is None else a[part] for a in (b, p))
            packed.append(
                pack(self._op, w[part], r[part], bias, peepholes, dense=dense, single=single, negated=negated)
            )
        return packed

    @property
    def _is_sigmoid(self) -> bool:
        """Whether gates that let through are squashed by sigmoids of what is not clipped."""
        names = [activation.name for activation in self._op.settled_activations()]
        gated = names[:: len(names) // self._op.directions]
        return self._op.clip is None and not isinstance(self._op, RNN) and set(gated) == {"Sigmoid"}

    def _memory(self, weights: Sequence[Weights], workspace: Array) -> list[_Memory]:
        """Of each group of directions, which all work in the same bytes."""
        sizes, found = self._sizes, []
        ordered, projected, gates, scratch, outputs, *states = laid_out(workspace, self._dtype, sizes.parts)
        h, cell, spare, saved = states
        by_step = projected.reshape(*gates.shape[:2], sizes.steps, *gates.shape[2:]).transpose(2, 0, 1, 3, 4)
        for one, functions in zip(weights, self._functions, strict=True):
            step = make_cell(self._op, one, functions, Room(gates, scratch, spare, cell))
            own = [h, cell][: self._op.states]
            found.append(_Memory(one, step, ordered, projected, list(by_step), outputs, own, saved))
        return found

    def _runs(self, memory: Sequence[_Memory], operands: Operands, out: tuple[Array, ...]) -> Callable[[], None]:
        runs = [self._group(i, one, operands, out).run for i, one in enumerate(memory)]
        if len(runs) == 1:
            return runs[0]

        def run() -> None:
            for one in runs:
                one()

        return run

    def _group(self, index: int, memory: _Memory, operands: Operands, out: tuple[Array, ...]) -> _Group:
        x, lanes, layout = operands[0], self._groups[index], self._op.layout
        assert x is not None  # inference refuses a node without it
        backwards = [self._op.direction == "reverse" or k == 1 for k in lanes]
        steps = slice(None, None, -1)
        in_time, y = (x.swapaxes(0, 1), out[0].transpose(1, 2, 0, 3)) if layout else (x, out[0])
        placed = not layout and self._op.direction == "forward"
        first = [_operand(operands, _FIRST_STATE + i) for i in range(self._op.states)]
        outputs = y if placed else memory.outputs
        return _Group(
            memory=memory,
            xs=[in_time[steps] if back else in_time for back in backwards],
            outputs=outputs,
            made=list(outputs),
            ys=[] if placed else [y[steps, k] if back else y[:, k] for k, back in zip(lanes, backwards, strict=True)],
            first=[None if a is None else _of_lanes(a, lanes, layout) for a in first],
            last=[_of_lanes(a, lanes, layout) for a in out[1 : 1 + self._op.states]],
            lengths=_operand(operands, _LENGTHS),
            backwards=backwards,
            residuals=self._residuals(out[1 + self._op.states :], lanes, backwards),
        )

    def _residuals(self, out: Sequence[Array], lanes: Lanes, backwards: Sequence[bool]) -> list[_Residuals]:
        """Of each step, where it leaves them; none if nobody asks."""
        if not out:
            return []
        sizes = self._sizes
        gates, *states = (a.swapaxes(1, 2) if self._op.layout else a for a in out)
        by_gate = gates.reshape(*gates.shape[:3], sizes.gates, sizes.hidden).transpose(0, 1, 3, 2, 4)
        found = []
        for t in range(sizes.steps):
            times = [sizes.steps - 1 - t if back else t for back in backwards]
            of_gates, *of_states = (
                side_by_side([a[k, time] for k, time in zip(lanes, times, strict=True)]) for a in (by_gate, *states)
            )
            is_gru = isinstance(self._op, GRU)
            kept = Kept(of_gates.swapaxes(0, 1), of_states[1] if is_gru else None)
            found.append(_Residuals(kept, of_states[:1] if is_gru else of_states))
        return found


@dataclass(frozen=True)
class _Residuals:
    """Where one step leaves its gates, and the states (L, N, H) as they were before it."""

    kept: Kept
    states: Sequence[Array]


@dataclass(frozen=True)
class _Memory:
    """Where L directions side by side work: views of a workspace, and their step in it.

    ordered: room for an input that is not dense. projected: (G, L, T * N, H), and `steps` each step of it.
    outputs: (T, L, N, H), where they cannot go to their place at once. states: during the steps.
    saved: room for the cell state, which sequences that have ended keep.
    """

    weights: Weights
    cell: Cell
    ordered: Array
    projected: Array
    steps: Sequence[Array]
    outputs: Array
    states: Sequence[Array]
    saved: Array


@dataclass(frozen=True)
class _Group:
    """L directions side by side, on given arrays.

    xs: the input (T, N, I) in the order of each direction's time.
    outputs: (T, L, N, H) in the directions' own time, `made` each step of it, and `ys` where each of them goes; none
        if they are y already.
    first, last: states before and after the steps. backwards: which directions are.
    """

    memory: _Memory
    xs: Sequence[Array]
    outputs: Array
    made: Sequence[Array]
    ys: Sequence[Array]
    first: Sequence[Array | None]
    last: Sequence[Array]
    lengths: Array | None
    backwards: Sequence[bool]
    residuals: Sequence[_Residuals]

    def run(self) -> None:
        self._project()
        states = self.memory.states
        for state, first in zip(states, self.first, strict=True):
            np.copyto(state, 0 if first is None else first)
        if self.lengths is None or (self.lengths >= len(self.made)).all():
            if self.residuals:
                self._scan_and_keep()
            else:
                self._scan()
        else:
            self._scan_some(self.lengths)
        for lane, y in enumerate(self.ys):
            np.copyto(y, self.outputs[:, lane])
        for state, last in zip(states, self.last, strict=True):
            np.copyto(last, state)

    def _project(self) -> None:
        weights, ordered, projected = self.memory.weights, self.memory.ordered, self.memory.projected
        for lane, x in enumerate(self.xs):
            if not x.flags.c_contiguous:
                np.copyto(ordered.reshape(x.shape), x)
            flat = x.reshape(ordered.shape) if x.flags.c_contiguous else ordered
            np.matmul(flat, weights.w[:, lane], out=projected[:, lane])
        if weights.bias is not None:
            np.add(projected, weights.bias, out=projected)

    def _scan(self) -> None:
        """Every sequence has every step."""
        cell, state = self.memory.cell, self.memory.states[0]
        before = state
        for x, y in zip(self.memory.steps, self.made, strict=True):
            cell(x, before, y)
            before = y
        if before is not state:
            np.copyto(state, before)

    def _scan_and_keep(self) -> None:
        """The same, with residuals."""
        cell, (state, *others) = self.memory.cell, self.memory.states
        before = state
        for x, y, residuals in zip(self.memory.steps, self.made, self.residuals, strict=True):
            for found, kept in zip((before, *others), residuals.states, strict=True):
                np.copyto(kept, found)
            cell(x, before, y, residuals.kept)
            before = y
        if before is not state:
            np.copyto(state, before)

    def _scan_some(self, lengths: Array) -> None:
        """Beyond a sequence's end its states wait and its outputs are 0."""
        memory = self.memory
        h, *others = memory.states
        count, backwards = len(self.made), np.array(self.backwards).reshape(-1, 1, 1)
        for t, (x, y) in enumerate(zip(memory.steps, self.made, strict=True)):
            ended = lengths[:, None] <= np.where(backwards, count - 1 - t, t)
            for state in others:  # one at most
                np.copyto(memory.saved, state)
            if self.residuals:
                residuals = self.residuals[t]
                for found, kept in zip(memory.states, residuals.states, strict=True):
                    np.copyto(kept, found)
                memory.cell(x, h, y, residuals.kept)
            else:
                memory.cell(x, h, y)
            for state in others:
                np.copyto(state, memory.saved, where=ended)
            np.copyto(y, h, where=ended)
            np.copyto(h, y)
            np.copyto(y, 0, where=ended)


def _operand(operands: Sequence[Any], index: int) -> Any:
    return operands[index] if index < len(operands) else None


def _of_lanes(state: Array, lanes: Lanes, layout: int) -> Array:
    """The states (L, N, H) of these directions."""
    ordered = state.swapaxes(0, 1) if layout else state
    return ordered[lanes[0] : lanes[-1] + 1]


def _bind(op: Recurrent, types: Sequence[TensorType | None], constants: Operands) -> Callable[..., None]:
    parts = _sequences(op, *types)
    if len(parts) == 1:
        return _Layer(op, types, constants)
    return in_shares(lambda own: _Layer(op, own, constants), types, parts, _memory(op, *types), axes_of_layer(op))


def _make(cls: type[Recurrent]) -> Kernel:
    @kernel(
        cls,
        device="cpu",
        variant="stepped",
        dtypes=DTYPES,
        supports=_supports,
        workspace=_workspace,
        estimate=_seconds,
        bind=_bind,
    )
    def stepped(op: Recurrent, *operands: Array | None, out: tuple[Array, ...], workspace: Array) -> None:
        types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
        _bind(op, types, [None] * len(types))(*operands, out=out, workspace=workspace)

    return stepped


KERNELS: tuple[Kernel, ...] = tuple(map(_make, (RNN, GRU, LSTM)))
