"""IOBinding: inputs and outputs bound by name, for one run or many."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aicore.compat.onnxruntime.errors import InvalidArgument, Refused
from aicore.compat.onnxruntime.ortvalue import OrtValue, check_device, element_dtype, memory_of

if TYPE_CHECKING:
    from aicore.compat.onnxruntime.session import InferenceSession

Array = np.ndarray[Any, Any]


class IOBinding:
    """Inputs bound by name, and results after a run; everything lies on the host."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._input_names = [node.name for node in session.get_inputs()]
        self._output_names = [node.name for node in session.get_outputs()]
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: list[Array] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Feed the array, as it is at the run. Raises InvalidArgument for a name that the model has not."""
        self._inputs[_known(name, self._input_names, "input")] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self.bind_cpu_input(name, memory_of(ortvalue))

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Feed memory of the host by its address; the caller keeps it alive. Raises Refused for other memory."""
        self.bind_cpu_input(name, _array_at(device_type, element_type, shape, buffer_ptr))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: in memory of the host by its address, or fresh."""
        _known(name, self._output_names, "output")
        if buffer_ptr is not None:
            self._outputs[name] = _array_at(device_type, element_type, shape or (), buffer_ptr)
            return
        check_device(device_type)
        self._outputs[name] = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output in the memory of `ortvalue`."""
        self._outputs[_known(name, self._output_names, "output")] = memory_of(ortvalue)

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: bound arrays are on the host."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for: a run returns when its results are on the host."""

    def run(self, session: InferenceSession) -> None:
        """Run on the bound inputs.

        Raises ValueError for another session than the binding's, InvalidArgument when a bound output's shape or dtype
        does not fit.
        """
        if session is not self._session:
            raise ValueError("IOBinding must be used with the session that created it.")
        bound = self._outputs or dict.fromkeys(self._output_names)
        results = session.run(list(bound), self._inputs)
        self._results = [_deliver(*item, result) for item, result in zip(bound.items(), results, strict=True)]

    def get_outputs(self) -> list[OrtValue]:
        return [OrtValue(array) for array in self._results]

    def copy_outputs_to_cpu(self) -> list[Array]:
        return [array.copy() for array in self._results]


def _known(name: str, names: Sequence[str], what: str) -> str:
    if name not in names:
        raise InvalidArgument(f"no {what} is called {name!r}; the model has {', '.join(names)}")
    return name


def _deliver(name: str, target: Array | None, result: Array) -> Array:
    """The result, written to the memory that was bound for it."""
    if target is None:
        return result
    if target.shape != result.shape or target.dtype != result.dtype:
        raise InvalidArgument(
            f"output {name!r} is {result.dtype}{list(result.shape)}, bound is {target.dtype}{list(target.shape)}"
        )
    np.copyto(target, result)
    return target


def _array_at(device_type: str, element_type: Any, shape: Sequence[int], address: int) -> Array:
    if device_type != "cpu":
        raise Refused(f"memory of {device_type!r} by its address; bind an OrtValue or an array of the host")
    dtype = element_dtype(element_type)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_uint8 * count).from_address(address)
    return np.ndarray(tuple(shape), dtype, memoryview(memory))
