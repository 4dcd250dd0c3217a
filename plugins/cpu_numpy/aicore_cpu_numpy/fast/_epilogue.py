"""What follows a convolution or matrix product, in place on its output: bias, residual, activation.

It runs over chunks that stay in the cache, with a chunk of scratch for the activations that need both x and f(x).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.ops.activation import (
    Activation,
    Clip,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Relu,
    Sigmoid,
    Swish,
    Tanh,
)

Array = np.ndarray[Any, Any]

CHUNK = 32768
"""Elements of a chunk: 128 KiB of float32, so that chunk, residual and scratch fit in a second-level cache."""


def finish(
    y: Array, bias: Array | None, residual: Array | None, activation: Op | None, workspace: Array | None
) -> None:
    """y = activation(y + bias + residual), in place.

    y: (blocks, rows, columns), C-contiguous. bias: (rows,), one for each row. residual: the shape of y.
    workspace: at least `scratch_bytes`.
    """
    if bias is None and residual is None and activation is None:
        return
    blocks, rows, columns = y.shape
    step = _rows_of_chunk(columns)
    apply = None if activation is None else IN_PLACE[type(activation)]
    for block in range(blocks):
        for row in range(0, rows, step):
            part = y[block, row : row + step]
            if bias is not None:
                np.add(part, bias[row : row + step, None], out=part)
            if residual is not None:
                np.add(part, residual[block, row : row + step], out=part)
            if apply is not None:
                apply(activation, part, _scratch_like(part, activation, workspace))


def scratch_bytes(activation: Op | None, rows: int, columns: int, dtype: str) -> int:
    """Workspace that `finish` needs."""
    if type(activation) not in _WITH_SCRATCH:
        return 0
    return min(rows, _rows_of_chunk(columns)) * columns * numpy_dtype(dtype).itemsize


def reason_against(activation: Op) -> str | None:
    """Why the activation cannot be applied in place, or None."""
    if type(activation) in IN_PLACE:
        return None
    known = ", ".join(sorted(cls.__name__ for cls in IN_PLACE))
    return f"has no in-place form of {type(activation).__name__}, only of {known}"


def residual_reason(out: TensorType, residual: TensorType | None) -> str | None:
    """Why the residual cannot be added in place, or None."""
    if residual is None or residual.shape != out.shape:
        return f"adds a residual of the output's shape only: {residual} to {out}"
    return None


def _rows_of_chunk(columns: int) -> int:
    return max(1, CHUNK // max(columns, 1))


def _scratch_like(part: Array, activation: Op | None, workspace: Array | None) -> Array:
    if type(activation) not in _WITH_SCRATCH or workspace is None:
        return part
    return workspace[: part.nbytes].view(part.dtype).reshape(part.shape)


def _relu(op: Relu, y: Array, scratch: Array) -> None:
    np.maximum(y, 0, out=y)


def _clip(op: Clip, y: Array, scratch: Array) -> None:
    if op.min is not None:
        np.maximum(y, op.min, out=y)
    if op.max is not None:
        np.minimum(y, op.max, out=y)


def _leaky_relu(op: LeakyRelu, y: Array, scratch: Array) -> None:
    np.minimum(y, 0, out=scratch)
    np.multiply(scratch, op.alpha, out=scratch)
    np.maximum(y, 0, out=y)
    np.add(y, scratch, out=y)


def _hard_sigmoid(op: HardSigmoid, y: Array, scratch: Array) -> None:
    _ramp(y, op.alpha, op.beta)


def _hard_swish(op: HardSwish, y: Array, scratch: Array) -> None:
    np.copyto(scratch, y)
    _ramp(scratch, 1 / 6, 0.5)
    np.multiply(y, scratch, out=y)


def _sigmoid(op: Sigmoid, y: Array, scratch: Array) -> None:
    _logistic(y)


def _swish(op: Swish, y: Array, scratch: Array) -> None:
    np.multiply(y, op.alpha, out=scratch)
    _logistic(scratch)
    np.multiply(y, scratch, out=y)


def _tanh(op: Tanh, y: Array, scratch: Array) -> None:
    np.tanh(y, out=y)


def _ramp(y: Array, alpha: float, beta: float) -> None:
    """alpha * y + beta between 0 and 1."""
    np.multiply(y, alpha, out=y)
    np.add(y, beta, out=y)
    np.maximum(y, 0, out=y)
    np.minimum(y, 1, out=y)


def _logistic(y: Array) -> None:
    """1 / (1 + exp(-y))."""
    with np.errstate(over="ignore"):  # exp(-y) is infinite where the result is 0
        np.negative(y, out=y)
        np.exp(y, out=y)
        np.add(y, 1, out=y)
        np.reciprocal(y, out=y)


IN_PLACE: dict[type[Op], Callable[[Any, Array, Array], None]] = {
    Relu: _relu,
    Clip: _clip,
    LeakyRelu: _leaky_relu,
    HardSigmoid: _hard_sigmoid,
    HardSwish: _hard_swish,
    Sigmoid: _sigmoid,
    Swish: _swish,
    Tanh: _tanh,
}
"""How each activation changes an array in place, given scratch memory of the same shape."""

_WITH_SCRATCH: frozenset[type[Activation]] = frozenset({LeakyRelu, HardSwish, Swish})
