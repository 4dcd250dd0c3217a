"""Updates of all parameters: block by block, so that all passes over one stay in the cache; workers share the blocks.

Numbers that depend on the learning rate and the step are computed once for each run, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType, as_tuple, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.optimizers import SCALARS, GlobalNorm, LambUpdate, grouped
from aicore.records import dataclass
from aicore_cpu_numpy.fast._parallel import PASS, Array, Call, Placing, parts_of
from aicore_cpu_numpy.fast._rows import carve, carved_bytes, view_as
from aicore_cpu_numpy.fast._updates import FORMULAS, Block, Numbers, lamb_direction, move_moments, rates, step
from aicore_cpu_numpy.workers import run_tasks

FLOATS = frozenset({"float32", "float64"})
BLOCK = 1 << 17
"""Elements. Smaller blocks stay in the second cache, but calls on them are so short that threads wait for each other at
the interpreter's lock: two of them update 1.9 million parameters in 8.1 ms with 32 thousand, in 6.0 with 131.
"""
_ROOMS = 3
"""Of each worker: two for formulas, and one for the gradient as it counts."""


def _supports(op: Any, *types: TensorType | None) -> str | None:
    for tensor in types[SCALARS:]:
        if tensor is None or not tensor.is_static:
            return "needs shapes that are known in numbers"
        if tensor.dtype not in FLOATS:
            return f"does not take {tensor.dtype}"
    return None


def _sizes(types: Sequence[TensorType | None]) -> list[int]:
    return [math.prod(t.static_shape) for t in types if t is not None]


def _parts(op: Any, sizes: Sequence[int]) -> int:
    return parts_of(sum(sizes) * PASS * op.flops)


def _block_size(sizes: Sequence[int]) -> int:
    return min(BLOCK, max(sizes, default=0))


def _workspace(op: Any, *types: TensorType | None) -> int:
    """Rooms of each worker; for LAMB, the sums of squares of blocks before them."""
    sizes, first = _sizes(types[SCALARS : SCALARS + op.count]), types[SCALARS]
    itemsize = 4 if first is None else numpy_dtype(first.dtype).itemsize
    rooms = [_block_size(sizes) * itemsize] * (_ROOMS * _parts(op, sizes))
    return carved_bytes(*([16 * len(_cuts(sizes))] if isinstance(op, LambUpdate) else []), *rooms)


def _cuts(sizes: Sequence[int]) -> list[tuple[int, slice]]:
    """(tensor, its elements) of every block."""
    return [
        (i, slice(start, min(start + BLOCK, size))) for i, size in enumerate(sizes) for start in range(0, size, BLOCK)
    ]


def _shared(sizes: Sequence[int], parts: int) -> list[list[tuple[int, int, slice]]]:
    """(number, tensor, elements) of the blocks of each worker: neighbours, of about as many elements."""
    total = max(sum(sizes), 1)
    shares: list[list[tuple[int, int, slice]]] = [[] for _ in range(parts)]
    before = 0
    for number, (tensor, cut) in enumerate(_cuts(sizes)):
        shares[min(before * parts // total, parts - 1)].append((number, tensor, cut))
        before += cut.stop - cut.start
    return shares


@dataclass(frozen=True)
class _Placed:
    """One update of the arrays of a plan; calling it is one step. shares: the blocks of each worker."""

    op: Any
    scalars: tuple[Array, Array, Array | None]
    shares: list[list[Block]]
    lengths: Array | None

    def __call__(self) -> None:
        learning_rate, step, scale = self.scalars
        numbers = rates(self.op, float(learning_rate[()]), int(step[()]))
        factor = None if scale is None else float(scale[()])
        if self.lengths is None:
            _side_by_side(_update, self.shares, self.op, factor, numbers)
            return
        _side_by_side(_measure, self.shares, self.op, factor, numbers, self.lengths)
        trust = _trust(self.shares, self.op.count, numbers[2], self.lengths)
        _side_by_side(_step, self.shares, self.op, numbers, trust)


def _side_by_side(run: Callable[..., None], shares: list[list[Block]], *arguments: Any) -> None:
    run_tasks([partial(run, share, *arguments) for share in shares])


def _update(share: list[Block], op: Any, scale: float | None, numbers: Numbers) -> None:
    formula, couples = FORMULAS[type(op)], op.couples
    for block in share:
        decay = op.decay_of(block.tensor)
        formula(op, block, block.gradient(scale, decay if couples else 0.0), decay, numbers)


def _measure(share: list[Block], op: LambUpdate, scale: float | None, numbers: Numbers, lengths: Array) -> None:
    """New moments, and the sums of squares of the parameter and of the direction."""
    for block in share:
        move_moments(op, block, block.gradient(scale, 0.0))
        lamb_direction(op, block, op.decay_of(block.tensor), numbers)
        lengths[0, block.number] = _sum_of_squares(block.p)
        lengths[1, block.number] = _sum_of_squares(block.room)


def _trust(shares: list[list[Block]], count: int, rate: float, lengths: Array) -> list[float]:
    """The learning rate of each tensor. Blocks are added up in their order, whoever computed them."""
    sums = np.zeros((2, count))
    for share in shares:
        for block in share:
            sums[:, block.tensor] += lengths[:, block.number]
    return [rate if 0 in pair else rate * float(pair[0] / pair[1]) for pair in np.sqrt(sums).T]


def _step(share: list[Block], op: LambUpdate, numbers: Numbers, trust: Sequence[float]) -> None:
    """The direction is computed again, so that it needs no room for whole tensors."""
    for block in share:
        lamb_direction(op, block, op.decay_of(block.tensor), numbers)
        step(block, block.room, trust[block.tensor])


def _place(op: Any, parts: int, *operands: Any, out: Any, workspace: Array) -> Call:
    flat = [view_as(array, (array.size,)) for array in operands[SCALARS:]]
    results = [view_as(array, (array.size,)) for array in as_tuple(out)]
    sizes = [array.size for array in flat[: op.count]]
    lengths, used = None, 0
    if isinstance(op, LambUpdate):
        (lengths,) = carve(workspace, np.dtype(np.float64), (2, len(_cuts(sizes))))
        used = carved_bytes(lengths.nbytes)
    rooms = carve(workspace[used:], flat[0].dtype, *[(_block_size(sizes),)] * (_ROOMS * parts))
    tensors, kept = grouped(op, flat), grouped(op, results)
    shares = []
    for worker, share in enumerate(_shared(sizes, parts)):
        own = rooms[worker * _ROOMS : (worker + 1) * _ROOMS]
        shares.append([_block(number, i, cut, tensors[i], kept[i], own) for number, i, cut in share])
    return _Placed(op, operands[:SCALARS], shares, lengths)


def _block(
    number: int, tensor: int, cut: slice, given: Sequence[Array], results: Sequence[Array], rooms: Sequence[Array]
) -> Block:
    p, g, *slots = [array[cut] for array in given]
    new, *kept = [array[cut] for array in results]
    room, second, mine = [array[: p.size] for array in rooms]
    return Block(tensor, number, p, g, slots, new, kept, room, second, mine)


def _sum_of_squares(x: Array) -> float:
    """In float64 where it is too large for the type."""
    total = float(np.dot(x, x))
    return total if math.isfinite(total) else float(np.dot(x.astype(np.float64), x))


def _bind(op: Any, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Placing:
    return Placing(partial(_place, op, _parts(op, _sizes(types[SCALARS : SCALARS + op.count]))))


def _make(cls: type[Op]) -> Kernel:
    def run(op: Op, *operands: Any, out: Any, workspace: Array) -> None:
        _place(op, 1, *operands, out=out, workspace=workspace)()

    named = {"workspace": _workspace, "supports": _supports, "bind": _bind, "inplace": True}
    return kernel(cls, device="cpu", variant="blocked", **named)(run)  # type: ignore[arg-type]


def _norm_sizes(tensors: Sequence[Any]) -> list[int]:
    return [math.prod(t.static_shape if isinstance(t, TensorType) else t.shape) for t in tensors]


def _norm_supports(op: GlobalNorm, *types: TensorType | None) -> str | None:
    return None if all(t is not None and t.is_static for t in types) else "needs shapes that are known in numbers"


def _norm_workspace(op: GlobalNorm, *types: TensorType | None) -> int:
    return carved_bytes(8 * len(_cuts(_norm_sizes(types))))


def _place_norm(op: GlobalNorm, parts: int, *tensors: Array, out: Array, workspace: Array) -> Call:
    flat = [view_as(array, (array.size,)) for array in tensors]
    sizes = _norm_sizes(tensors)
    (squares,) = carve(workspace, np.dtype(np.float64), (len(_cuts(sizes)),))
    shares = [[(number, flat[i][cut]) for number, i, cut in share] for share in _shared(sizes, parts)]
    return partial(_norm, shares, squares, out)


def _norm(shares: list[list[tuple[int, Array]]], squares: Array, out: Array) -> None:
    run_tasks([partial(_write_squares, share, squares) for share in shares])
    out[()] = math.sqrt(squares.sum())


def _write_squares(share: list[tuple[int, Array]], squares: Array) -> None:
    for number, x in share:
        squares[number] = _sum_of_squares(x)


def _bind_norm(op: GlobalNorm, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Placing:
    return Placing(partial(_place_norm, op, parts_of(sum(_norm_sizes(types)) * PASS)))


@kernel(
    GlobalNorm,
    device="cpu",
    variant="blocked",
    dtypes=FLOATS,
    supports=_norm_supports,
    workspace=_norm_workspace,
    bind=_bind_norm,
)
def global_norm(op: GlobalNorm, *tensors: Array, out: Array, workspace: Array) -> None:
    _place_norm(op, 1, *tensors, out=out, workspace=workspace)()


KERNELS: tuple[Kernel, ...] = (*map(_make, (*FORMULAS, LambUpdate)), global_norm)
