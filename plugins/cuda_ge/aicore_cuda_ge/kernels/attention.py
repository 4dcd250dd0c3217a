"""Attention of heads up to 128 numbers, by graph_executor/kernels/attention.cuh, from operands in any order of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.attention import DotProductAttention
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, FLOPS_EACH_MULTIPROCESSOR, LAUNCH_SECONDS, machine
from aicore_cuda_ge.kernels._memory_bound import NARROW, dtype_of, need_static, run_from_plan, shape_of

Types = Sequence["TensorType | None"]
Params = tuple[int | float, ...]

LARGEST_HEAD = 128
_LARGEST = 2**31 - 1
_WIDE_Q, _WIDE_K, _WIDE_V, _WIDE_Y = 1, 2, 4, 8


@dataclass(frozen=True)
class _Tile:
    """How long blocks take, fitted to times on an H200; by size of head: up to 32, 64, 128.

    alone, further: the share of a multiprocessor's arithmetic that one block reaches, and that one beside others adds.
    step: keys that all warps of a block take at once.
    alone_seconds, further_seconds: of a block beside its arithmetic, likewise.
    """

    alone: tuple[float, float, float]
    further: tuple[float, float, float]
    step: tuple[int, int, int]
    alone_seconds: float
    further_seconds: float


_TILES = {
    64: _Tile((0.18, 0.24, 0.46), (0.39, 0.56, 0.53), (64, 32, 32), 1.7e-6, 0.0),
    16: _Tile((0.28, 0.16, 0.36), (1.05, 0.44, 0.35), (128, 128, 128), 1.2e-6, 1.3e-6),
    8: _Tile((2.1, 0.14, 0.20), (0.30, 0.26, 0.18), (128, 128, 128), 3.1e-6, 0.3e-6),
}
"""By queries of a block."""
_JOIN_SECONDS = 3.6e-6
_JOINED_EACH_SECOND = 1.3e12
"""Bytes of what splits leave, written and read."""
PLANS = tuple(f"{rows}/{splits}" for rows in _TILES for splits in (1, 2, 4, 8, 16, 32) if rows == 8 or splits == 1)
"""Queries of a block, and into how many parts the keys are cut."""


@dataclass(frozen=True)
class View:
    """Sizes and strides in elements by axis of a dense tensor with a layout; `first` is where its part begins."""

    sizes: dict[str, int]
    strides: dict[str, int]
    first: int

    @classmethod
    def of(cls, layout: str, shape: Sequence[int], part: int = 0) -> View:
        steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        strides = dict(zip(layout, steps, strict=True))
        return cls(dict(zip(layout, shape, strict=True)), strides, part * strides.get("p", 0))

    def size(self, axis: str) -> int:
        return self.sizes.get(axis, 1)

    @property
    def params(self) -> Params:
        """The struct AttentionAxes."""
        return (self.first, *(self.strides.get(axis, 0) for axis in "bhld"))

    @property
    def is_wide(self) -> bool:
        """Whether its rows can be read 16 bytes at a time, as float32."""
        steps = (self.first, self.size("d"), *(self.strides[axis] for axis in self.strides if axis != "d"))
        return self.strides["d"] == 1 and all(step % 4 == 0 for step in steps)


@dataclass(frozen=True)
class Problem:
    """An attention on operands of known shapes."""

    scale: float
    q: View
    k: View
    v: View
    y: View
    mask: Params

    @property
    def heads(self) -> int:
        """In all entries of the batch."""
        return self.q.size("b") * self.q.size("h")

    @property
    def rows(self) -> int:
        return self.heads * self.q.size("l")

    @property
    def width(self) -> int:
        return self.v.size("d")

    def blocks(self, plan: str) -> int:
        rows, splits = parse(plan)
        return self.heads * -(-self.q.size("l") // rows) * splits

    def params(self, plan: str) -> Params:
        """The struct AttentionParams."""
        bits = ((self.q, _WIDE_Q), (self.k, _WIDE_K), (self.v, _WIDE_V), (self.y, _WIDE_Y))
        wide = sum(bit for view, bit in bits if view.is_wide)
        sizes = (self.q.size("b"), self.q.size("h"), self.q.size("l"), self.k.size("l"), self.q.size("d"), self.width)
        views = (*self.q.params, *self.k.params, *self.v.params, *self.y.params, *self.mask)
        return (*sizes, *views, float(self.scale), wide, parse(plan)[1], self.rows)


def parse(plan: str) -> tuple[int, int]:
    """(queries of a block, splits)"""
    rows, _, splits = plan.partition("/")
    return int(rows), int(splits)


def problem_of(op: DotProductAttention, *types: TensorType | None) -> Problem:
    q, k, v = (
        View.of(layout, shape_of(tensor), part)
        for layout, tensor, part in zip((op.q_layout, op.k_layout, op.v_layout), types, op.parts, strict=False)
    )
    sizes = {**q.sizes, "d": v.size("d")}
    y = View.of(op.y_layout, [sizes[axis] for axis in op.y_layout])
    mask = types[3] if len(types) > 3 else None
    return Problem(op.scale, q, k, v, y, (0,) * 5 if mask is None else _mask_params(mask.static_shape))


def _mask_params(shape: Sequence[int]) -> Params:
    """Strides of a mask that broadcasts to (batch, head, query, key)."""
    shape = (1,) * (4 - len(shape)) + tuple(shape)
    steps = [math.prod(shape[axis + 1 :]) for axis in range(4)]
    return (0, *(0 if size == 1 else step for size, step in zip(shape, steps, strict=True)))


def reason_against(op: DotProductAttention, *types: TensorType | None) -> str | None:
    reason = need_static(*types)
    if reason is not None:
        return reason
    problem = problem_of(op, *types)
    q, k, v = problem.q, problem.k, problem.v
    if any(len({view.size(axis) for view in (q, k, v)}) > 1 for axis in "bh"):
        return "takes as many heads and batch entries of keys and values as of queries"
    if max(q.size("d"), v.size("d")) > LARGEST_HEAD:
        return f"takes heads up to {LARGEST_HEAD}, here {max(q.size('d'), v.size('d'))}"
    if k.size("l") == 0 or q.size("d") == 0:
        return "takes at least one key, of at least one number"
    mask = types[3] if len(types) > 3 else None
    if mask is not None and not _broadcasts(mask.static_shape, op, problem):
        return "takes a mask that makes the scores no larger"
    if max(problem.blocks(plan) for plan in PLANS) > _LARGEST or k.size("l") > _LARGEST // 2:
        return "takes numbers of blocks and of keys below 2**30"
    return None


def _broadcasts(shape: Sequence[int], op: DotProductAttention, problem: Problem) -> bool:
    scores = [problem.q.size(axis) for axis in "bhl" if axis in op.y_layout] + [problem.k.size("l")]
    if len(shape) > len(scores):
        return False
    return all(size in (1, wanted) for size, wanted in zip(shape[::-1], scores[::-1], strict=False))


def bind(op: DotProductAttention, types: Types, constants: Sequence[Any], plan: str) -> Call:
    problem, dtype = problem_of(op, *types), dtype_of(types)
    mask = 3 if len(types) > 3 and types[3] is not None else -1
    out = len(types)
    return compiled(f"attention_{parse(plan)[0]}_{dtype}", problem.params(plan), pick=(0, 1, 2, mask, out, out + 1))


def workspace(op: DotProductAttention, *types: TensorType | None, plan: str) -> int:
    """Bytes of what splits leave: for each query its results, its largest score, and its total."""
    _, splits = parse(plan)
    problem = problem_of(op, *types)
    return 4 * splits * problem.rows * (problem.width + 2) if splits > 1 else 0


def estimate(op: DotProductAttention, *types: TensorType | None, plan: str) -> float:
    """The first block of a multiprocessor, what those beside it add, memory, and joining splits."""
    problem = problem_of(op, *types)
    rows, splits = parse(plan)
    tile = _TILES[rows]
    head = max(problem.width, problem.q.size("d"))
    size = 0 if head <= 32 else 1 if head <= 64 else 2
    steps = -(-problem.k.size("l") // tile.step[size])
    each = -(-steps // splits)
    busy = -(-steps // each)  # splits that have keys
    if not problem.blocks(plan):
        return 0.0
    one = 4 * rows * each * tile.step[size] * (32, 64, 128)[size] / FLOPS_EACH_MULTIPROCESSOR
    crowd = problem.blocks(plan) / splits / machine().multiprocessors
    further = max(crowd * busy - 1, 0.0) * (one / tile.further[size] + tile.further_seconds)
    idle = crowd * (splits - busy) * tile.further_seconds
    moved = 4 * problem.heads * (problem.k.size("l") + problem.q.size("l")) * (problem.width + problem.q.size("d"))
    arithmetic = one / tile.alone[size] + further + idle
    joining = _JOIN_SECONDS + 2 * workspace(op, *types, plan=plan) / _JOINED_EACH_SECOND if splits > 1 else 0.0
    return LAUNCH_SECONDS + tile.alone_seconds + max(arithmetic, moved / BYTES_EACH_SECOND) + joining


KERNELS: tuple[Kernel, ...] = (
    kernel(
        DotProductAttention,
        device="cuda",
        variant="online",
        dtypes=NARROW,
        supports=reason_against,
        workspace=workspace,
        bind=bind,
        estimate=estimate,
        tune={"plan": PLANS},
    )(run_from_plan),
)
