"""ArgMax, ArgMin, TopK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aicore.ir import Op
from aicore.kernels import Kernel, kernel
from aicore.ops.ordering import ArgMax, ArgMin, TopK
from aicore_cpu_numpy.reference._precision import Array, widen


def arg_extreme(cls: type[Op], function: Callable[..., Any]) -> Kernel:
    """The reference kernel of ArgMax or ArgMin."""

    def compute(op: Any, data: Array) -> Any:
        wide = widen(data)
        if not op.select_last_index:
            return function(wide, axis=op.axis, keepdims=bool(op.keepdims))
        first_from_end = function(np.flip(wide, op.axis), axis=op.axis, keepdims=bool(op.keepdims))
        return data.shape[op.axis] - 1 - first_from_end

    return kernel(cls, device="cpu")(compute)


@kernel(TopK, device="cpu")
def top_k(op: TopK, x: Array, k: Array | None = None) -> tuple[Array, Array]:
    count = op.k if k is None else int(k.ravel()[0])
    size = x.shape[op.axis]
    if count is None or not 0 <= count <= size:
        raise ValueError(f"k is {count}, axis {op.axis} has {size} elements")
    order = descending(x, op.axis) if op.largest else np.argsort(widen(x), axis=op.axis, kind="stable")
    indices = np.take(order, np.arange(count), axis=op.axis)
    return np.take_along_axis(x, indices, axis=op.axis), indices


def descending(x: Array, axis: int) -> Array:
    """Indices that sort from the largest, of equals the lower first: an ascending stable sort, seen in a mirror."""
    mirrored = np.argsort(np.flip(widen(x), axis), axis=axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(mirrored, axis))


KERNELS: tuple[Kernel, ...] = (arg_extreme(ArgMax, np.argmax), arg_extreme(ArgMin, np.argmin), top_k)
