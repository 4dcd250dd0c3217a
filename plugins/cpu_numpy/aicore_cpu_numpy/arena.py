"""The memory of one run, and an array over it for each buffer of the plan."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from aicore.ir import numpy_dtype
from aicore.pages import aligned_bytes
from aicore.runtime import BufferPlan, Plan, Storage

Array: TypeAlias = np.ndarray[Any, Any]
Environment: TypeAlias = list["Array | None"]
"""Arrays by buffer, while a run lasts."""

POISON = 0xFF
"""Repeated, a NaN in every floating-point format, -1 in signed and the largest value in unsigned integers."""


class Arena:
    """Aligned bytes, and `views`: an array for each buffer in the arena and each constant, None for all others."""

    def __init__(self, plan: Plan) -> None:
        self.bytes = aligned_bytes(plan.memory.arena)
        self.views: Environment = [self._view(plan, buffer) for buffer in plan.buffers]

    def slice(self, offset: int, nbytes: int) -> Array:
        return self.bytes[offset : offset + nbytes]

    def poison(self) -> None:
        self.bytes.fill(POISON)

    def _view(self, plan: Plan, buffer: BufferPlan) -> Array | None:
        if buffer.pitch is not None:
            return self._rows_apart(buffer, buffer.pitch)
        if buffer.storage is Storage.ARENA:
            return np.ndarray(buffer.type.static_shape, numpy_dtype(buffer.type.dtype), self.bytes, buffer.offset)
        if buffer.constant is not None:
            array: Array = plan.resident[buffer.constant]
            return array.reshape(buffer.type.static_shape)
        return None

    def _rows_apart(self, buffer: BufferPlan, pitch: int) -> Array:
        """A part of each row of another buffer."""
        dtype, shape = numpy_dtype(buffer.type.dtype), buffer.type.static_shape
        strides, step = [dtype.itemsize], pitch
        for dim in reversed(shape[:-1]):
            strides.append(step)
            step *= dim
        return np.ndarray(shape, dtype, self.bytes, buffer.offset, strides[::-1])
