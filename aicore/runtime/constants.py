"""The constants of a program on one device: uploaded when first needed, and shared by all its executables."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from aicore.ir import Buffer
from aicore.runtime.device import Device


class Constants(dict[Buffer, Any]):
    """Device array by Buffer. Threads may share it; a constant is uploaded once."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device
        self._lock = threading.Lock()

    def __missing__(self, buffer: Buffer) -> Any:
        with self._lock:
            if buffer not in self:
                # Folding may leave a transposed view or a splat; kernels expect dense arrays.
                self[buffer] = self._device.upload(np.ascontiguousarray(buffer.array).reshape(buffer.array.shape))
            return self[buffer]

    @property
    def nbytes(self) -> int:
        """Bytes of all constants that were needed so far."""
        return sum(buffer.array.nbytes for buffer in self)
