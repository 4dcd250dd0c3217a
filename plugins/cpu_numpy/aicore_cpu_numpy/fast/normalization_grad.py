"""Gradients of normalisations over the last axes, a few rows at a time.

Each worker takes rows of its own; the workers' sums for scale and bias are added in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.normalization_grad import LayerNormalizationGrad, RMSNormalizationGrad
from aicore_cpu_numpy.fast._last_rates import shared
from aicore_cpu_numpy.fast._parallel import parts_of, spans
from aicore_cpu_numpy.fast._rows import Array, carve, carved_bytes, row_blocks, rows_of_block
from aicore_cpu_numpy.workers import run_tasks

FLOATS = frozenset({"float32", "float64"})
ELEMENT = 4e-9
"""Seconds of one thread for an element: ten passes in the cache."""


def _rows(op: Any, shape: Sequence[int]) -> tuple[int, int]:
    axis = op.axis % len(shape)
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def _seconds(op: Op, x: TensorType) -> float:
    return math.prod(x.static_shape) * ELEMENT


def _estimate(op: Op, x: TensorType, *others: TensorType) -> float:
    return shared(_seconds(op, x), parts_of(_seconds(op, x)))


def _shapes(op: Op, x: TensorType) -> list[tuple[int, ...]]:
    """Of each worker: sums for scale and bias, h and g of a block, and two numbers for each row."""
    rows, columns = _rows(op, x.static_shape)
    block = rows_of_block(rows, columns)
    own: list[tuple[int, ...]] = [(2, columns), (block, columns), (block, columns), (block, 1), (block, 1)]
    return own * max(len(spans(rows, parts_of(_seconds(op, x)))), 1)


def _workspace(op: Op, x: TensorType, *others: TensorType) -> int:
    return carved_bytes(*(math.prod(shape) * numpy_dtype(x.dtype).itemsize for shape in _shapes(op, x)))


def _supports(op: Op, x: TensorType, *others: TensorType) -> str | None:
    if not all(t.is_static for t in (x, *others)):
        return "needs shapes that are known in numbers"
    wrong = {t.dtype for t in others} - {x.dtype}
    return f"wants operands of x's type, not {', '.join(sorted(wrong))}" if wrong else None


def _back(
    x: Array, dy: Array, scale: Array, dx: Array, inverse: Array, h: Array, g: Array, share: Array, centers: bool
) -> None:
    """dx = inverse * (g - h * mean(g * h)), and without the mean of g too where h has none; h and g are spoilt."""
    np.multiply(dy, scale, out=g)
    np.einsum("ij,ij->i", g, h, out=share[:, 0])
    np.divide(share, x.shape[1], out=share)
    np.multiply(h, share, out=h)
    if centers:
        np.add.reduce(g, axis=1, out=share, keepdims=True)
        np.divide(share, x.shape[1], out=share)
        np.subtract(g, share, out=g)
    np.subtract(g, h, out=g)
    np.multiply(g, inverse, out=dx)


def _add_up(sums: Array, block: Array) -> None:
    """Sums over rows are a product with ones, which reads each element once."""
    sums += np.matmul(np.ones(len(block), block.dtype), block)


def layer(
    op: Op, x: Array, scale: Array, mean: Array, inverse: Array, dy: Array, *, out: Sequence[Array], workspace: Array
) -> None:
    def normal(block: slice, h: Array, inverse_of: Array) -> Array:
        np.subtract(rows[0][block], mean.reshape(-1, 1)[block], out=h)
        own = inverse.reshape(-1, 1)[block]
        np.multiply(h, own, out=h)
        return own

    rows = _as_rows(op, x, dy, out[0])
    _run(op, rows, scale, normal, out, workspace, centers=True)


def root_mean_square(op: Op, x: Array, scale: Array, dy: Array, *, out: Sequence[Array], workspace: Array) -> None:
    epsilon = op.epsilon  # type: ignore[attr-defined]

    def normal(block: slice, h: Array, inverse_of: Array) -> Array:
        source = rows[0][block]
        np.einsum("ij,ij->i", source, source, out=inverse_of[:, 0])
        np.divide(inverse_of, source.shape[1], out=inverse_of)
        np.add(inverse_of, epsilon, out=inverse_of)
        np.sqrt(inverse_of, out=inverse_of)
        np.reciprocal(inverse_of, out=inverse_of)
        np.multiply(source, inverse_of, out=h)
        return inverse_of

    rows = _as_rows(op, x, dy, out[0])
    _run(op, rows, scale, normal, out, workspace, centers=False)


def _as_rows(op: Op, *arrays: Array) -> list[Array]:
    return [array.reshape(_rows(op, array.shape)) for array in arrays]


def _run(
    op: Op,
    arrays: Sequence[Array],
    scale: Array,
    normal: Callable[[slice, Array, Array], Array],
    out: Sequence[Array],
    workspace: Array,
    centers: bool,
) -> None:
    """normal: `(rows, h, room) -> inverse`, which writes what is normalised of some rows to h."""
    x, dy, dx = arrays
    x_type = TensorType(out[0].dtype.name, out[0].shape)
    rooms = carve(workspace, x.dtype, *_shapes(op, x_type))
    cut = spans(len(x), parts_of(_seconds(op, x_type))) or [(0, 0)]
    factors = scale.reshape(-1)

    def work(start: int, stop: int, sums: Array, h: Array, g: Array, room: Array, share: Array) -> None:
        sums.fill(0)
        for block in row_blocks(stop - start, x.shape[1]):
            rows, count = slice(start + block.start, start + block.stop), block.stop - block.start
            inverse = normal(rows, h[:count], room[:count])
            np.multiply(h[:count], dy[rows], out=g[:count])
            _add_up(sums[0], g[:count])
            _add_up(sums[1], dy[rows])
            _back(x[rows], dy[rows], factors, dx[rows], inverse, h[:count], g[:count], share[:count], centers)

    own = [rooms[5 * i : 5 * i + 5] for i in range(len(cut))]
    run_tasks([partial(work, *span, *room) for span, room in zip(cut, own, strict=True)])
    total = np.add.reduce(np.stack([room[0] for room in own]), axis=0)
    for sums, result in zip(total, out[1:], strict=False):
        np.copyto(result, sums.reshape(result.shape))


def _make(op: type[Op], compute: Callable[..., None]) -> Kernel:
    def run(op: Op, *operands: Array, out: Sequence[Array], workspace: Array) -> None:
        compute(op, *operands, out=out, workspace=workspace)

    return kernel(
        op,
        device="cpu",
        variant="rows",
        dtypes=FLOATS,
        supports=_supports,
        workspace=_workspace,
        estimate=_estimate,
    )(run)


KERNELS: tuple[Kernel, ...] = (_make(LayerNormalizationGrad, layer), _make(RMSNormalizationGrad, root_mean_square))
