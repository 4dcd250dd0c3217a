"""WeightOnlyMatMul: the weight becomes float32 a block of rows at a time, never as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore_int8_quant.ops.weight_only import WeightOnlyMatMul

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 18
"""Elements of the weight that are float32 at a time."""
_GEMM_RATE, _BYTE_RATE, _CALL = 30e9, 2e9, 3e-6
"""For estimates: operations and converted weights per second of one core, and seconds of one NumPy call."""


def _reason(op: WeightOnlyMatMul, x: TensorType, w: TensorType, *others: TensorType | None) -> str | None:
    if not all(t is None or t.is_static for t in (x, w, *others)):
        return "needs shapes that are known in numbers"
    if len(w.static_shape) != 2 or not x.static_shape:
        return "takes one matrix of weights"
    return None


def _rows(w: tuple[int, ...]) -> int:
    return max(min(_BLOCK // max(w[1], 1), w[0]), 1)


def _bytes(op: WeightOnlyMatMul, x: TensorType, w: TensorType, *others: TensorType | None) -> int:
    """A block of the weight, and one product."""
    terms, columns = w.static_shape
    rows = int(np.prod(x.static_shape[:-1]))
    return 4 * (_rows((terms, columns)) * columns + rows * columns)


def _seconds(op: WeightOnlyMatMul, x: TensorType, w: TensorType, *others: TensorType | None) -> float:
    terms, columns = w.static_shape
    rows = int(np.prod(x.static_shape[:-1]))
    blocks = -(-terms // _rows((terms, columns)))
    return 2 * rows * terms * columns / _GEMM_RATE + terms * columns / _BYTE_RATE + 4 * blocks * _CALL


@kernel(
    WeightOnlyMatMul,
    device="cpu",
    variant="blocks",
    dtypes={"float32"},
    supports=_reason,
    workspace=_bytes,
    estimate=_seconds,
)
def weight_only_matmul_blocks(
    op: WeightOnlyMatMul,
    x: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array | None = None,
    *,
    out: Array,
    workspace: Array,
) -> None:
    """The scales are applied to the sums: they differ by column only."""
    terms, columns = w.shape
    step = _rows((terms, columns))
    left, result = x.reshape(-1, terms), out.reshape(-1, columns)
    room = workspace.view(np.float32)
    block, product = room[: step * columns].reshape(step, columns), room[step * columns :][: result.size]
    result.fill(0)
    for start in range(0, terms, step):
        part = block[: min(step, terms - start)]
        np.copyto(part, w[start : start + step])
        if w_zero_point is not None:
            np.subtract(part, w_zero_point.astype(np.float32), out=part)
        np.matmul(left[:, start : start + step], part, out=product.reshape(result.shape))
        np.add(result, product.reshape(result.shape), out=result)
    np.multiply(result, w_scale, out=result)


KERNELS: tuple[Kernel, ...] = (weight_only_matmul_blocks,)
