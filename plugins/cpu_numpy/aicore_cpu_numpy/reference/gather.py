"""Reading elements at computed places."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.gather import Gather, GatherElements, GatherND
from aicore_cpu_numpy.reference._indices import counted_from_front

Array = np.ndarray[Any, Any]


@kernel(Gather, device="cpu")
def gather(op: Gather, x: Array, indices: Array) -> Array:
    axis = op.axis % x.ndim
    return np.asarray(np.take(x, counted_from_front(indices, x.shape[axis], axis), axis))


@kernel(GatherElements, device="cpu")
def gather_elements(op: GatherElements, x: Array, indices: Array) -> Array:
    axis = op.axis % x.ndim
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = counted_from_front(indices, x.shape[axis], axis)
    return x[tuple(places)]


@kernel(GatherND, device="cpu")
def gather_nd(op: GatherND, x: Array, indices: Array) -> Array:
    batch, depth = op.batch_dims, indices.shape[-1]
    columns = [
        counted_from_front(indices[..., i], x.shape[batch + i], batch + i, f"indices[..., {i}]") for i in range(depth)
    ]
    leading = np.indices(indices.shape[:-1], sparse=True)[:batch]
    return np.asarray(x[(*leading, *columns)])


KERNELS: tuple[Kernel, ...] = (gather, gather_elements, gather_nd)
