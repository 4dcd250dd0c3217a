"""The loss of classes and its gradient, a few rows at a time; workers take rows.

The loss of a row is log(sum(exp(x - m))) sum(q) - sum(q (x - m)), where m is its largest logit; of a target that is an
index, the second sum is one element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.losses import INDICES, SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad
from aicore.records import dataclass
from aicore_cpu_numpy.fast._parallel import PASS, Array, Call, Placing, parts_of, run_all, side_by_side, spans
from aicore_cpu_numpy.fast._rows import carve, carved_bytes, row_blocks, rows_of_block, split_axis, view_as

FLOATS = frozenset({"float32", "float64"})
_PASSES = 14
"""Of which the exponential takes eight."""


@dataclass(frozen=True)
class _Problem:
    """One op on logits seen as (outer, classes, inner)."""

    op: Any
    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    sparse: bool
    parts: int

    @property
    def rows(self) -> int:
        """Of a block."""
        outer, classes, inner = self.shape
        return rows_of_block(outer, classes * inner)

    @property
    def rooms(self) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
        """What a worker needs: up to two blocks, the vectors of a block's rows, and places of targets."""
        _, classes, inner = self.shape
        block, vector = (self.rows, classes, inner), (self.rows, inner)
        blocks = [(self.dtype, block)] * (int(not self.writes_block) + int(not self.sparse))
        indices = [(np.dtype(np.int64), vector), (np.dtype(bool), vector)] if self.sparse else []
        return [*blocks, *[(self.dtype, vector)] * 3, *indices]

    @property
    def writes_block(self) -> bool:
        """Whether the result is as large as the logits, and serves as a room."""
        return isinstance(self.op, SoftmaxCrossEntropyGrad)

    def nbytes(self) -> int:
        return carved_bytes(*[math.prod(shape) * dtype.itemsize for dtype, shape in self.rooms] * self.parts)

    def carved(self, workspace: Array) -> list[list[Array]]:
        """The rooms of each worker."""
        found, at = [], 0
        for dtype, shape in self.rooms * self.parts:
            (room,) = carve(workspace[at:], dtype, shape)
            at += carved_bytes(room.nbytes)
            found.append(room)
        count = len(self.rooms)
        return [found[i * count : (i + 1) * count] for i in range(self.parts)]

    def blocks(self) -> Iterator[tuple[int, slice]]:
        """(worker, rows) of every block."""
        outer, classes, inner = self.shape
        for worker, (start, stop) in enumerate(spans(outer, self.parts)):
            for rows in row_blocks(stop - start, classes * inner):
                yield worker, slice(start + rows.start, start + rows.stop)


def _problem(op: Any, *types: TensorType | None) -> _Problem:
    logits, target = types[:2]
    assert logits is not None  # the op requires both
    assert target is not None
    shape = logits.static_shape
    parts = parts_of(math.prod(shape) * PASS * _PASSES)
    split = split_axis(shape, op.axis % len(shape))
    return _Problem(op, split, numpy_dtype(logits.dtype), target.dtype in INDICES, parts)


def _workspace(op: Any, *types: TensorType | None) -> int:
    return _problem(op, *types).nbytes()


def _supports(op: Any, *types: TensorType | None) -> str | None:
    if not all(t is not None and t.is_static for t in types):
        return "needs shapes that are known in numbers"
    is_empty = types[0] is None or 0 in types[0].static_shape
    return "has nothing to compute" if is_empty else None


def _place(problem: _Problem, logits: Array, target: Array, *g: Array, out: Array, workspace: Array) -> Call:
    outer, classes, inner = problem.shape
    x = view_as(logits, problem.shape)
    wanted = view_as(target, (outer, inner) if problem.sparse else problem.shape)
    factors = [view_as(array, (outer, inner)) for array in g]
    result = view_as(out, problem.shape if problem.writes_block else (outer, inner))
    rooms = problem.carved(workspace)
    tasks: list[list[Call]] = [[] for _ in rooms]
    for worker, rows in problem.blocks():
        own = [room[: rows.stop - rows.start] for room in rooms[worker]]
        if factors:
            tasks[worker] += _gradient(problem, x[rows], wanted[rows], factors[0][rows], result[rows], own)
        else:
            tasks[worker] += _loss(problem, x[rows], wanted[rows], result[rows], own)
    whole = side_by_side(tasks)
    if not problem.sparse:
        return whole
    check = partial(_check, wanted, classes, problem.op.ignore_index)
    return partial(run_all, (check, whole))


def _check(target: Array, classes: int, ignored: int | None) -> None:
    """Raise ExecutionError for a target that is no class."""
    if int(target.min()) >= 0 and int(target.max()) < classes:
        return
    wrong = (target < 0) | (target >= classes)
    if ignored is not None:
        wrong &= target != ignored
    if wrong.any():
        raise ExecutionError(f"the target has class {target[wrong].flat[0]}, and there are {classes} classes")


def _loss(problem: _Problem, x: Array, target: Array, out: Array, rooms: list[Array]) -> list[Call]:
    block, *rooms = rooms
    largest, total, of_target = rooms[int(not problem.sparse) :][:3]
    smoothing = problem.op.label_smoothing
    calls: list[Call] = [*_less_largest(x, block, largest)]
    if problem.sparse:
        calls += [*_places(problem, target, rooms[3:]), partial(_take, block, rooms[3], of_target)]
    else:
        calls += [
            partial(np.multiply, block, target, out=rooms[0]),
            partial(np.add.reduce, rooms[0], axis=1, out=of_target),
        ]
    if smoothing:
        calls += [
            partial(np.multiply, of_target, _number(1 - smoothing, x), out=of_target),
            partial(np.add.reduce, block, axis=1, out=total),
            partial(np.multiply, total, _number(smoothing / problem.shape[1], x), out=total),
            partial(np.add, of_target, total, out=of_target),
        ]
    calls += [
        partial(np.exp, block, out=block),
        partial(np.add.reduce, block, axis=1, out=total),
        partial(np.log, total, out=total),
    ]
    if not problem.sparse:
        calls += [*_weight(problem, target, largest), partial(np.multiply, total, largest, out=total)]
    calls.append(partial(np.subtract, total, of_target, out=out))
    return [*calls, *_ignored(problem, out, rooms)]


def _gradient(problem: _Problem, x: Array, target: Array, g: Array, out: Array, rooms: list[Array]) -> list[Call]:
    largest, total, of_target = rooms[int(not problem.sparse) :][:3]
    smoothing = problem.op.label_smoothing
    share = _number(smoothing / problem.shape[1], x)
    calls: list[Call] = [
        *_less_largest(x, out, largest),
        partial(np.exp, out, out=out),
        partial(np.add.reduce, out, axis=1, out=total),
        partial(np.divide, out, total[:, None], out=out),
    ]
    if problem.sparse:
        calls += _places(problem, target, rooms[3:])
        calls.append(partial(_add_at, out, rooms[3], _number(smoothing - 1, x), of_target))
    else:
        calls += [*_weight(problem, target, total), partial(np.multiply, out, total[:, None], out=out)]
        q = target
        if smoothing:
            calls.append(partial(np.multiply, target, _number(1 - smoothing, x), out=rooms[0]))
            q = rooms[0]
        calls.append(partial(np.subtract, out, q, out=out))
    if smoothing:
        calls.append(partial(np.subtract, out, share, out=out))
    calls.append(partial(np.multiply, out, g[:, None], out=out))
    return [*calls, *_ignored(problem, out, rooms)]


def _less_largest(x: Array, to: Array, largest: Array) -> list[Call]:
    return [
        partial(np.maximum.reduce, x, axis=1, out=largest),
        partial(np.subtract, x, largest[:, None], out=to),
    ]


def _weight(problem: _Problem, target: Array, to: Array) -> list[Call]:
    """The sum of the probabilities of each row, smoothed."""
    smoothing = problem.op.label_smoothing
    calls: list[Call] = [partial(np.add.reduce, target, axis=1, out=to)]
    if smoothing:
        calls += [
            partial(np.multiply, to, _number(1 - smoothing, to), out=to),
            partial(np.add, to, _number(smoothing, to), out=to),
        ]
    return calls


def _places(problem: _Problem, target: Array, rooms: Sequence[Array]) -> list[Call]:
    """Where the elements of the targets lie in a block, and which rows are ignored; those point to class 0."""
    places, ignored = rooms
    _, classes, inner = problem.shape
    starts = np.arange(len(target))[:, None] * (classes * inner) + np.arange(inner)
    calls: list[Call] = [partial(np.copyto, places, target)]
    if problem.op.ignore_index is not None:
        calls += [
            partial(np.equal, target, problem.op.ignore_index, out=ignored),
            partial(np.copyto, places, 0, where=ignored),
        ]
    if inner > 1:
        calls.append(partial(np.multiply, places, inner, out=places))
    return [*calls, partial(np.add, places, starts, out=places)]


def _take(block: Array, places: Array, to: Array) -> None:
    block.reshape(-1).take(places, out=to, mode="clip")  # which writes to `to` without a copy; none is out of range


def _add_at(block: Array, places: Array, term: Array, room: Array) -> None:
    """Add a number to one element of each row."""
    _take(block, places, room)
    np.add(room, term, out=room)
    block.reshape(-1)[places] = room


def _ignored(problem: _Problem, out: Array, rooms: Sequence[Array]) -> list[Call]:
    if problem.op.ignore_index is None:
        return []
    mask = rooms[4]
    return [partial(np.copyto, out, 0, where=mask if out.ndim == mask.ndim else mask[:, None])]


def _number(value: float, like: Array) -> Array:
    return np.asarray(value, like.dtype)


def _bind(op: Any, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Placing:
    return Placing(partial(_place, _problem(op, *types)))


@kernel(
    SoftmaxCrossEntropy,
    device="cpu",
    variant="rows",
    dtypes=FLOATS,
    supports=_supports,
    workspace=_workspace,
    bind=_bind,
)
def softmax_cross_entropy(
    op: SoftmaxCrossEntropy, logits: Array, target: Array, *, out: Array, workspace: Array
) -> None:
    raise NotImplementedError("it runs as bound")


@kernel(
    SoftmaxCrossEntropyGrad,
    device="cpu",
    variant="rows",
    dtypes=FLOATS,
    supports=_supports,
    workspace=_workspace,
    bind=_bind,
    inplace=True,
)
def softmax_cross_entropy_grad(
    op: SoftmaxCrossEntropyGrad, logits: Array, target: Array, g: Array, *, out: Array, workspace: Array
) -> None:
    raise NotImplementedError("it runs as bound")


KERNELS: tuple[Kernel, ...] = (softmax_cross_entropy, softmax_cross_entropy_grad)
