"""Scatters straight into the planned output, which may be the operand itself: a cache is then updated where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.scatter import ScatterElements, ScatterND, TensorScatter
from aicore_cpu_numpy.fast._sized import DENSE, sized
from aicore_cpu_numpy.reference.scatter import write_elements, write_slices, write_update

Array = np.ndarray[Any, Any]


@kernel(ScatterElements, device="cpu", variant="inplace", dtypes=DENSE, supports=sized, inplace=True)
def scatter_elements_into(op: ScatterElements, x: Array, indices: Array, updates: Array, *, out: Array) -> None:
    np.copyto(out, x)
    write_elements(op, out, indices, updates)


@kernel(ScatterND, device="cpu", variant="inplace", dtypes=DENSE, supports=sized, inplace=True)
def scatter_nd_into(op: ScatterND, x: Array, indices: Array, updates: Array, *, out: Array) -> None:
    np.copyto(out, x)
    write_slices(op, out, indices, updates)


@kernel(TensorScatter, device="cpu", variant="inplace", dtypes=DENSE, supports=sized, inplace=True)
def tensor_scatter_into(
    op: TensorScatter, x: Array, update: Array, write_indices: Array | None = None, *, out: Array
) -> None:
    np.copyto(out, x)
    write_update(op, out, update, write_indices)


KERNELS: tuple[Kernel, ...] = (scatter_elements_into, scatter_nd_into, tensor_scatter_into)
