"""What a captured plan consists of: lists of launches, each one graph, and between them calls that none can hold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from aicore.errors import AicoreError, ExecutionError, OutOfMemoryError
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Eager

if TYPE_CHECKING:
    from aicore_cuda_ge.device import CudaDevice


@dataclass(frozen=True, slots=True)
class _Address:
    """A stream of others, as CuPy takes it."""

    stream: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream  # the version of the protocol comes first


def as_cupy_stream(stream: int, device: int) -> Any:
    """CuPy's view of a stream; making it current, by `with`, is what it is for."""
    import cupy

    adopt = getattr(cupy.cuda.Stream, "from_external", None)  # from CuPy 14 on, which warns of the older way
    return cupy.cuda.ExternalStream(stream, device) if adopt is None else adopt(_Address(stream))


class EagerPart:
    """A call that runs eagerly; it answers to the methods of a LaunchList."""

    def __init__(
        self, device: CudaDevice, stream: int, call: Eager, arrays: Sequence[DeviceArray | None], label: str
    ) -> None:
        self.stream = stream
        self._device = device
        self._call = call
        self._arrays = tuple(arrays)
        self._label = label

    def run(self, inputs: Sequence[int], outputs: Sequence[int], stream: int) -> None:
        self.replay(stream)

    def replay(self, stream: int) -> int:
        """Call the function. Raises ExecutionError naming the node, whatever it raises."""
        import cupy

        try:
            with self._device.current(), as_cupy_stream(stream, self._device.index):
                self._call.function(stream, *self._arrays)
        except AicoreError:
            raise
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise OutOfMemoryError(f"{self._label}: {error}") from error
        except Exception as error:
            raise ExecutionError(f"{self._label} failed: {type(error).__name__}: {error}") from error
        return 0

    def time_launch(self, index: int) -> float:
        """Microseconds on the host's clock."""
        start = time.perf_counter()
        self.replay(self.stream)
        self.wait(self.stream)
        return (time.perf_counter() - start) * 1e6

    def take_faults(self) -> list[tuple[int, int]]:
        return []

    def keep(self, owner: Any) -> None:
        """Lists beside this part keep it."""

    def capture(self) -> None:
        """There is nothing to capture."""

    def wait(self, stream: int) -> None:
        native.synchronize_stream(self._device.index, stream)

    def close(self) -> None:
        """Lists beside this part wait for the device."""


Part: TypeAlias = "native.LaunchList | EagerPart"
