"""From a plan to launches on fixed memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aicore.ir import numpy_dtype
from aicore.runtime import Plan, Step, Storage
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Call, Compiled, Eager, Generated, compiled, picked
from aicore_cuda_ge.failures import told
from aicore_cuda_ge.parts import EagerPart, Part

if TYPE_CHECKING:
    from aicore_cuda_ge.device import CudaDevice

ALIGNMENT = 64
"""Of every address that a kernel gets, in bytes."""
_POISON = 0xFF
_SHOWN = 8
"""Operands that a label lists; some ops take thousands."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Arrays of a caller that a plan reads and writes where they are, by runs on this stream."""

    inputs: tuple[DeviceArray, ...]
    outputs: tuple[DeviceArray, ...]
    stream: int

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for arrays with which one captured graph can do."""
        return (*(a.address for a in self.inputs), None, *(a.address for a in self.outputs), None, self.stream)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one call is. step: its number in the plan, -1 for what belongs to none, such as poisoning."""

    step: int
    part: Part
    index: int


class Builder:
    """Makes the parts of a capture.

    plan, calls: what is built, and the calls of each step.
    parts: in order; the first and the last are lists. places: of every call, in order.
    reports: what it means when a kernel reports a fault, by part and number of the fault: (label, text).
    arena: bytes of the device, as many as the plan's arena has.
    memory: bytes of each block that it holds, the arena among them, by address.
    Raises OutOfMemoryError, and ExecutionError naming node, kernel and types for a launch that fails.
    """

    def __init__(
        self,
        plan: Plan,
        device: CudaDevice,
        calls: Sequence[tuple[Call, ...]],
        bound: Bound | None,
        arena: DeviceArray,
    ) -> None:
        self.plan = plan
        self.calls = calls
        self._device = device
        self._bound = bound
        self._arena = arena
        self.memory = {arena.address: arena.nbytes}
        self._roots = self._fixed_memory()
        self._arrays = [self._array(index) for index in range(len(plan.buffers))]
        self.first = native.LaunchList(device.index)
        self.parts: list[Part] = [self.first]
        self.places: list[Place] = []
        self.reports: dict[tuple[int, int], tuple[str, str]] = {}
        self._add_inputs()
        for number, (step, bound_calls) in enumerate(zip(plan.steps, calls, strict=True)):
            self._add_step(number, step, bound_calls)
        self.last = self._add_outputs()
        for part in self.parts:
            part.keep((self._arena, self._roots, calls, bound))
            with told("capturing"):
                part.capture()

    def arrays_of(self, step: Step) -> list[DeviceArray | None]:
        """What a step gives each of its calls, whose own arrays follow: operands, results, workspace."""
        arrays = [None if i is None else self._arrays[i] for i in (*step.inputs, *step.outputs)]
        if step.kernel.workspace is not None:
            offset, nbytes = step.workspace
            arrays.append(self._bytes(self._arena.address + offset, nbytes))
        return arrays

    def constants_of(self, step: Step) -> list[DeviceArray]:
        """Those of its operands that never change."""
        return [self._arrays[i] for i in step.inputs if i is not None and self.plan.buffers[i].constant is not None]

    def label_of(self, step: Step) -> str:
        """Node, kernel and types, for messages."""
        shown = step.inputs[:_SHOWN]
        types = ", ".join("absent" if i is None else str(self.plan.buffers[i].type) for i in shown)
        more = f", and {len(step.inputs) - _SHOWN} more" if len(step.inputs) > _SHOWN else ""
        return f"{step.node}: kernel {step.kernel.name} on ({types}{more})"

    def _fixed_memory(self) -> dict[int, DeviceArray]:
        """Of inputs and outputs, by root: the caller's, where it is aligned, or our own."""
        found: dict[int, DeviceArray] = {}
        for index, array in self._bound_roots():
            if array.nbytes and array.address % ALIGNMENT == 0 and index not in found:
                found[index] = array
        for index, buffer in enumerate(self.plan.buffers):
            outside = buffer.root == index and buffer.storage in (Storage.INPUT, Storage.OUTPUT)
            if outside and index not in found:
                found[index] = self._device.allocate(buffer.nbytes)
                self.memory[found[index].address] = buffer.nbytes
        return found

    def _bound_roots(self) -> Iterator[tuple[int, DeviceArray]]:
        if self._bound is None:
            return
        yield from zip(self.plan.inputs, self._bound.inputs, strict=True)
        for output, array in zip(self.plan.outputs, self._bound.outputs, strict=True):
            buffer = self.plan.buffers[output.buffer]
            root = self.plan.buffers[buffer.root]
            if not output.copied and root.storage is Storage.OUTPUT and root.nbytes == buffer.nbytes:
                yield buffer.root, array

    def _array(self, index: int) -> DeviceArray:
        buffer = self.plan.buffers[index]
        if buffer.storage is Storage.ARENA:
            address = self._arena.address + buffer.offset
        elif buffer.constant is not None:
            address = int(self.plan.resident[buffer.constant].address)
        else:
            address = self._roots[buffer.root].address
        return self._view(address, buffer.type.static_shape, numpy_dtype(buffer.type.dtype))

    def _view(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        return DeviceArray(address, shape, dtype, self._device.index, None)

    def _bytes(self, address: int, nbytes: int) -> DeviceArray:
        return self._view(address, (nbytes,), np.dtype(np.uint8))

    def _add_inputs(self) -> None:
        for i, index in enumerate(self.plan.inputs):
            fixed, nbytes = self._arrays[index].address, self.plan.buffers[index].nbytes
            if self._bound is None:
                self.first.add_input(i, fixed, nbytes)
            else:
                self._add_copy(self._bound.inputs[i].address, fixed, nbytes, f"copy of input {i}")

    def _add_outputs(self) -> native.LaunchList:
        last = self._open_list()
        for i, output in enumerate(self.plan.outputs):
            fixed, nbytes = self._arrays[output.buffer].address, self.plan.buffers[output.buffer].nbytes
            if self._bound is None:
                last.add_output(i, fixed, nbytes)
            else:
                self._add_copy(fixed, self._bound.outputs[i].address, nbytes, f"copy of output {i}")
        return last

    def _add_copy(self, source: int, target: int, nbytes: int, label: str) -> None:
        if nbytes and source != target:
            copy = compiled("copy", (nbytes,))
            self._open_list().add_kernel(copy.kernel, [source, target], copy.params, label)

    def _add_step(self, number: int, step: Step, calls: Sequence[Call]) -> None:
        arrays, label = self.arrays_of(step), self.label_of(step)
        for call in calls:
            self._add_call(number, call, [*arrays, *call.extra], label)
        for address, nbytes in self._dying(step):
            fill = compiled("fill", (nbytes, _POISON))
            self._add_call(-1, fill, [self._bytes(address, nbytes)], f"poison after {step.node}")

    def _add_call(self, number: int, call: Call, arrays: Sequence[DeviceArray | None], label: str) -> None:
        chosen = picked(call, arrays)
        if isinstance(call, Eager):
            self.parts.append(EagerPart(self._device, self.first.stream, call, chosen, label))
            self.places.append(Place(number, self.parts[-1], 0))
            return
        part = self._open_list()
        self.places.append(Place(number, part, len(part)))
        if call.reports:
            self._expect_report(label, call.reports)
        add_launch(part, call, chosen, label)

    def _expect_report(self, label: str, text: str) -> None:
        """Of the next launch; faults of a list are numbered in the order of its launches."""
        place = len(self.parts) - 1
        number = sum(1 for known, _ in self.reports if known == place)
        self.reports[place, number] = (label, text)

    def _open_list(self) -> native.LaunchList:
        """The list that the next launch goes to; a call that is no launch has ended the one before."""
        part = self.parts[-1]
        if isinstance(part, EagerPart):
            part = native.LaunchList(self._device.index, self.first.stream)
            self.parts.append(part)
        return part

    def _dying(self, step: Step) -> list[tuple[int, int]]:
        """(address, bytes) of what no later step reads, in poison mode."""
        if not self.plan.poison:
            return []
        dead = [self.plan.buffers[i] for i in step.dies]
        regions = [(b.offset, b.nbytes) for b in dead if b.storage is Storage.ARENA]
        return [(self._arena.address + offset, nbytes) for offset, nbytes in (*regions, step.workspace) if nbytes]


def add_launch(
    to: native.LaunchList, call: Compiled | Generated, arrays: Sequence[DeviceArray | None], label: str
) -> None:
    """Add a call to a list. arrays: what it picked; one that reports gets a number for that, too."""
    pointers = [0 if array is None else array.address for array in arrays]
    if call.reports:
        pointers.append(to.add_fault())
    if isinstance(call, Compiled):
        to.add_kernel(call.kernel, pointers, call.params, label)
        return
    to.add_function(call.function, call.grid, call.block, call.shared, pointers, call.params, label, call.early)
