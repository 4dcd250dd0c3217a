"""Gradients of the weights of convolutions of channels-last images.

products: the gradient of a block of positions, transposed, times the windows of the block (of a 1x1 kernel the image
itself), added up over blocks.
depthwise: products of two images for each offset of the kernel, added up over positions.

Each worker sums up rows of its own, and the workers' sums are added in their order, so that runs agree bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import Conv
from aicore.ops.convolution_grad import ConvWeightGrad
from aicore.ops.layout import ChannelsLast
from aicore.records import dataclass
from aicore.runtime import thread_count
from aicore_cpu_numpy.fast._last_problem import Block, Problem, as_rows, blocks, shares_of_rows
from aicore_cpu_numpy.fast._last_products import needs_windows
from aicore_cpu_numpy.fast._last_rates import CALL, copy_seconds, gemm_seconds, pass_seconds, shared, shifted_seconds
from aicore_cpu_numpy.fast._last_windows import clear_padding, reached_elements, run_of, windows_of
from aicore_cpu_numpy.fast._parallel import PARALLEL, Array, Call, Placing, nothing, run_all, side_by_side
from aicore_cpu_numpy.fast._rows import carve, carved_bytes
from aicore_cpu_numpy.fast._taps import taps

DTYPES = frozenset({"float32", "float64"})

SMALL, PIECE = 1024, 512
"""Elements of a gradient that is small, and positions that its products take at a time.

Two threads that make small products of long factors side by side are in each other's way: for 16 by 9 of 25 thousand
positions, BLAS takes 0.26 ms in one thread, 0.83 in two, and 0.33 in two with pieces of 512 positions.
"""

Shapes = list[tuple[int, ...]]
Calls = list[Call]


class Method(Protocol):
    """One way to sum up the gradient of a problem's weight."""

    @property
    def problem(self) -> Problem: ...
    @property
    def alone(self) -> float:
        """Seconds of one thread."""
        ...

    def shapes(self, start: int, stop: int) -> Shapes:
        """Scratch of a worker for rows `start` to `stop`; the first one holds its sums, as `result` takes them."""
        ...

    def calls(self, x: Array, dy: Array, start: int, stop: int, memory: Sequence[Array]) -> Calls: ...
    def result(self, sums: Array, out: Array) -> Array:
        """The output, in the order of the sums."""
        ...


@dataclass(frozen=True)
class Products:
    """Products of matrices, block by block.

    block: elements of the windows in one block, if those of one row of the output are no more.
    """

    problem: Problem
    block: int = 1 << 17

    @cached_property
    def alone(self) -> float:
        p = self.problem
        count = -(-p.height // self._most)
        products = p.group * gemm_seconds(p.positions, p.maps, p.depth, count)
        sums = pass_seconds(2 * count * p.group * p.maps * p.depth, 1.0)
        if not needs_windows(p):
            return products + sums + 2 * CALL * count
        return products + sums + copy_seconds(p.group * p.depth * p.positions, run_of(p)) + 6 * CALL * count

    @property
    def _most(self) -> int:
        """Rows of a block."""
        p = self.problem
        return max(self.block // max(p.group * p.depth * p.width, 1), 1)

    def shapes(self, start: int, stop: int) -> Shapes:
        p = self.problem
        sums = (p.group, p.maps, p.depth)
        cut = blocks(p, start, stop, self._most)
        positions = max((block.height for block in cut), default=0) * p.width
        pieces = (self._pieces(positions) + 1, p.maps, p.depth) if self._pieces(positions) else (0,)
        if not needs_windows(p):
            return [sums, sums, pieces, (0,), (0,)]
        padded = max((reached_elements(p, block) for block in cut), default=0) if p.pads else 0
        return [sums, sums, pieces, (positions * p.group * p.depth,), (padded,)]

    def calls(self, x: Array, dy: Array, start: int, stop: int, memory: Sequence[Array]) -> Calls:
        p = self.problem
        sums, products, pieces, windows, padded = memory
        calls: Calls = clear_padding(p, x, padded) if needs_windows(p) else []
        for i, block in enumerate(blocks(p, start, stop, self._most)):
            copies, found = self._windows(x, block, windows, padded)
            gradient = block.of(dy)
            target = products if i else sums
            calls += copies
            if count := self._pieces(len(gradient)):
                calls += _sum_of_pieces(gradient, found[0], pieces[: count + 1], target[0])
            else:
                calls.append(_product(gradient.reshape(-1, p.group, p.maps).transpose(1, 2, 0), found, target))
            if i:
                calls.append(partial(np.add, sums, products, out=sums))
        return calls

    def _pieces(self, positions: int) -> int:
        """How many pieces of so many positions have products of their own, besides the rest; 0 if all have one."""
        p = self.problem
        return positions // PIECE if p.group == 1 and p.maps * p.depth <= SMALL else 0

    def _windows(self, x: Array, block: Block, windows: Array, padded: Array) -> tuple[Calls, Array]:
        p = self.problem
        if needs_windows(p):
            return windows_of(p, x, True, block, windows, padded)
        rows = as_rows(x[block.images, block.rows])
        return [], rows.reshape(len(rows), p.group, p.channels).swapaxes(0, 1)

    def result(self, sums: Array, out: Array) -> Array:
        p, rank = self.problem, len(self.problem.geometry.kernel)
        return out.reshape(p.group, p.maps, p.channels, *p.geometry.kernel).transpose(0, 1, *range(3, rank + 3), 2)


def _sum_of_pieces(gradient: Array, windows: Array, pieces: Array, out: Array) -> Calls:
    """out = gradient transposed @ windows, both (positions, ...)."""
    count = len(pieces) - 1
    done = count * PIECE
    return [
        partial(np.matmul, _cut(gradient, count).swapaxes(1, 2), _cut(windows, count), out=pieces[:count]),
        partial(np.matmul, gradient[done:].T, windows[done:], out=pieces[count]),
        partial(np.add.reduce, pieces, axis=0, out=out),
    ]


def _cut(rows: Array, count: int) -> Array:
    """The first rows in so many pieces; a view, however they lie."""
    step, element = rows.strides
    shape, strides = (count, PIECE, rows.shape[1]), (PIECE * step, step, element)
    return np.lib.stride_tricks.as_strided(rows, shape, strides, writeable=False)


def _product(a: Array, b: Array, out: Array) -> Call:
    """a @ b, for one group without a batch around it, which takes BLAS longer to get to."""
    if len(a) == 1:
        return partial(np.matmul, a[0], b[0], out=out[0])
    return partial(np.matmul, a, b, out=out)


@dataclass(frozen=True)
class Depthwise:
    """For kernels of one channel each.

    block: elements of the products of a block, if one row has no more.
    """

    problem: Problem
    block: int = 1 << 15

    @cached_property
    def alone(self) -> float:
        p = self.problem
        count = -(-p.height // self._most)
        return shifted_seconds(2 * p.products, p.outputs * p.width) + 3 * CALL * count * p.geometry.offsets

    @property
    def _most(self) -> int:
        """Rows of a block."""
        return max(self.block // max(self.problem.width * self.problem.outputs, 1), 1)

    def shapes(self, start: int, stop: int) -> Shapes:
        p = self.problem
        cut = blocks(p, start, stop, self._most)
        positions = max((block.height for block in cut), default=0) * p.width
        return [(p.geometry.offsets, p.outputs), (positions * p.outputs,), (p.outputs,)]

    def calls(self, x: Array, dy: Array, start: int, stop: int, memory: Sequence[Array]) -> Calls:
        p = self.problem
        sums, room, one = memory
        calls: Calls = [partial(sums.fill, 0)]
        for block in blocks(p, start, stop, self._most):
            images, gradients = x[block.images], dy[block.images, block.rows]
            for tap in taps(p.geometry, block.rows.start, block.rows.stop):
                gradient = gradients[(slice(None), *tap.target[1:])]
                gradient = gradient.reshape(*gradient.shape[:-1], p.group, p.maps)
                elements = images[(slice(None), *tap.source[1:])][..., None]
                products = room[: gradient.size].reshape(gradient.shape)
                calls.append(partial(np.multiply, gradient, elements, out=products))
                rows = products.reshape(-1, p.outputs)
                calls.append(partial(np.matmul, np.ones(len(rows), rows.dtype), rows, out=one))
                calls.append(partial(np.add, sums[tap.index], one, out=sums[tap.index]))
        return calls

    def result(self, sums: Array, out: Array) -> Array:
        return out.reshape(self.problem.outputs, -1).T


def _reason_against_depthwise(p: Problem) -> str | None:
    return None if p.channels == 1 and p.group > 1 else "needs groups of one channel"


@lru_cache(maxsize=4096)
def problem_of(op: ConvWeightGrad, x: tuple[int, ...], dy: tuple[int, ...], itemsize: int, workers: int) -> Problem:
    """The convolution whose weight has the gradient; shapes have their channels last."""
    conv = Conv(op.auto_pad, op.dilations, op.group, op.kernel_shape, op.pads, op.strides)
    w = (dy[-1], x[-1] // op.group, *op.kernel_shape)
    return Problem.of(conv, x, w, itemsize, workers=workers)


def _problem(op: ChannelsLast, x: TensorType, dy: TensorType) -> Problem:
    assert isinstance(op.inner, ConvWeightGrad)  # the kernels below are for nothing else
    itemsize = numpy_dtype(x.dtype).itemsize
    return problem_of(op.inner, x.static_shape, dy.static_shape, itemsize, thread_count())


def _bounds(method: Method) -> list[tuple[int, int]]:
    """Rows of each worker."""
    p = method.problem
    parts = p.workers if method.alone > PARALLEL else 1
    return shares_of_rows(p.images, p.geometry.dims[0], parts, method.alone) if p.positions else []


def _tasks(method: Method, x: Array, dy: Array, out: Array, workspace: Array) -> Call:
    bounds = _bounds(method)
    if not bounds or not x.size:
        return partial(out.fill, 0) if out.size else nothing
    memory = iter(carve(workspace, x.dtype, *(shape for span in bounds for shape in method.shapes(*span))))
    tasks, sums = [], list[Array]()
    for start, stop in bounds:
        own = [next(memory) for _ in method.shapes(start, stop)]
        sums.append(own[0])
        tasks.append(method.calls(x, dy, start, stop, own))
    total = method.result(sums[0], out)
    first = sums[0].reshape(total.shape)
    ends: Calls = [partial(np.add, first, more.reshape(total.shape), out=first) for more in sums[1:]]
    return partial(run_all, (side_by_side(tasks), *ends, partial(np.copyto, total, first)))


def _make(variant: str, cls: Any, tune: dict[str, tuple[int, ...]], reason_against: Any) -> Kernel:
    def made(op: ChannelsLast, types: Sequence[Any], settings: dict[str, Any]) -> Method:
        found: Method = cls(_problem(op, *types), **settings)
        return found

    def supports(op: ChannelsLast, *types: TensorType) -> str | None:
        if not all(t.is_static for t in types):
            return "needs shapes that are known in numbers"
        reason: str | None = reason_against(_problem(op, *types))
        return reason

    def workspace(op: ChannelsLast, *types: TensorType, **settings: Any) -> int:
        method = made(op, types, settings)
        sizes = (np.prod(shape, dtype=int) for span in _bounds(method) for shape in method.shapes(*span))
        return carved_bytes(*(int(size) * method.problem.itemsize for size in sizes))

    def estimate(op: ChannelsLast, *types: TensorType, **settings: Any) -> float:
        method = made(op, types, settings)
        parts = method.problem.workers if method.alone > PARALLEL else 1
        return shared(method.alone, parts, method.problem.height)

    def bind(op: ChannelsLast, types: Sequence[Any], constants: Sequence[Any], **settings: Any) -> Placing:
        method = made(op, types, settings)

        def place(x: Array, dy: Array, *, out: Array, workspace: Array) -> Call:
            return _tasks(method, x, dy, out, workspace)

        return Placing(place)

    @kernel(
        ChannelsLast,
        wraps=ConvWeightGrad,
        device="cpu",
        variant=variant,
        dtypes=DTYPES,
        supports=supports,
        workspace=workspace,
        estimate=estimate,
        bind=bind,
        tune=tune,
    )
    def gradient(op: ChannelsLast, *operands: Array, out: Array, workspace: Array) -> None:
        types = [TensorType(a.dtype.name, a.shape) for a in operands]
        bind(op, types, [None] * len(types))(*operands, out=out, workspace=workspace)

    return gradient


KERNELS: tuple[Kernel, ...] = (
    _make("products", Products, {"block": (1 << 17, 1 << 16, 1 << 18)}, lambda p: None),
    _make("depthwise", Depthwise, {"block": (1 << 15, 1 << 14)}, _reason_against_depthwise),
)
