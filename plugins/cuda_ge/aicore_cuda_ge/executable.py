"""A plan on a CUDA device: a list of launches, captured once and replayed as one CUDA Graph."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from aicore.errors import ExecutionError, UnsupportedError
from aicore.runtime import Plan, Step, Storage, type_of
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Call, Compiled, calls_of, compiled
from aicore_cuda_ge.device import CudaDevice

_POISON = 0xFF


class CudaExecutable:
    """Runs one plan. Each concurrent run has memory, a stream and a captured graph of its own."""

    def __init__(self, plan: Plan, device: CudaDevice) -> None:
        loose = next((b for b in plan.buffers if b.storage is Storage.DYNAMIC), None)
        if loose is not None:
            raise UnsupportedError(f"{device.name} runs no plan in which the size of %{loose.name} depends on data")
        self.plan = plan
        self._device = device
        self._calls = [_bind(plan, step) for step in plan.steps]
        self._idle: deque[_Capture] = deque()
        self._lock = threading.Lock()
        self._steps_run = 0

    @property
    def steps_run(self) -> int:
        """Steps of replays that the device finished."""
        return self._steps_run

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[DeviceArray]:
        """Compute the outputs, into `outputs` if they are given.

        Raises ExecutionError for arrays that are not of this device or not of the plan's types, when no memory is
        left, and, naming node and kernel, when a launch fails.
        """
        given = self._checked(inputs)
        types = [self.plan.buffers[output.buffer].type for output in self.plan.outputs]
        results = [self._device.empty(t) for t in types] if outputs is None else [*map(self._device.check, outputs)]
        capture = self._lease()
        try:
            capture.run([a.address for a in given], [a.address for a in results])
        finally:
            self._idle.append(capture)
        with self._lock:
            self._steps_run += len(self.plan.steps)
        return results

    def profile(self, inputs: Sequence[Any]) -> tuple[list[DeviceArray], list[float]]:
        """As `run`, and the seconds of each step when it is launched alone, between two events."""
        results = self.run(inputs)
        capture = self._lease()
        try:
            return results, capture.seconds([a.address for a in self._checked(inputs)])
        finally:
            self._idle.append(capture)

    def release(self) -> None:
        """Free the memory and the graphs that no run is using."""
        self._idle.clear()
        self._device.pool.release()

    def time_replay(self, repeats: int) -> float:
        """Seconds of one replay on the device, the mean of many in a row, on the numbers of the latest run."""
        capture = self._lease()
        try:
            return float(capture.launches.time_replay(repeats)) * 1e-6
        finally:
            self._idle.append(capture)

    def _checked(self, inputs: Sequence[Any]) -> list[DeviceArray]:
        if len(inputs) != len(self.plan.inputs):
            raise ExecutionError(f"the plan takes {len(self.plan.inputs)} inputs, got {len(inputs)}")
        given = [self._device.check(array) for array in inputs]
        for buffer, array in zip(self.plan.inputs, given, strict=True):
            wanted = self.plan.buffers[buffer]
            if type_of(array) != wanted.type:
                raise ExecutionError(f"%{wanted.name}: captured for {wanted.type}, got {type_of(array)}")
        return given

    def _lease(self) -> _Capture:
        try:
            return self._idle.pop()
        except IndexError:
            return _Capture(self.plan, self._device, self._calls)


class _Capture:
    """Fixed memory for one run at a time, and the graph over it."""

    def __init__(self, plan: Plan, device: CudaDevice, calls: Sequence[tuple[Call, ...]]) -> None:
        self._arena = device.pool.allocate(plan.memory.arena)
        own = [i for i, b in enumerate(plan.buffers) if b.root == i and b.storage in (Storage.INPUT, Storage.OUTPUT)]
        self._fixed = {i: device.pool.allocate(plan.buffers[i].nbytes) for i in own}
        self._plan = plan
        self._kept = calls  # packed weights and loaded functions live as long as the graph that names them
        self._counts = [len(step) for step in calls]
        self.launches = native.LaunchList(device.index)
        addresses = [self._address(i) for i in range(len(plan.buffers))]
        for i, buffer in enumerate(plan.inputs):
            self.launches.add_input(i, addresses[buffer], plan.buffers[buffer].nbytes)
        for i, output in enumerate(plan.outputs):
            self.launches.add_output(i, addresses[output.buffer], plan.buffers[output.buffer].nbytes)
        for step, bound in zip(plan.steps, calls, strict=True):
            self._add(step, bound, addresses)
        try:
            self.launches.capture()
        except native.CudaError as error:
            raise _failure(error, "capturing") from error

    def run(self, inputs: list[int], outputs: list[int]) -> None:
        try:
            self.launches.run(inputs, outputs)
        except native.CudaError as error:
            raise _failure(error, "running") from error

    def seconds(self, inputs: list[int]) -> list[float]:
        """Of each step of the plan; poisoning, which is no step, aside."""
        try:
            times = iter(self.launches.time_launches(inputs))
        except native.CudaError as error:
            raise _failure(error, "profiling") from error
        found = []
        for step, count in zip(self._plan.steps, self._counts, strict=True):
            found.append(sum(next(times) for _ in range(count)) * 1e-6)
            for _ in range(len(self._dying(step))):
                next(times)
        return found

    def _add(self, step: Step, calls: Sequence[Call], addresses: Sequence[int]) -> None:
        pointers = [0 if i is None else addresses[i] for i in (*step.inputs, *step.outputs)]
        if step.kernel.workspace is not None:
            pointers.append(self._arena.ptr + step.workspace[0])
        for call in calls:
            self._add_call(call, [*pointers, *(array.address for array in call.extra)], str(step.node), step)
        for address, nbytes in self._dying(step):
            self._add_call(compiled("fill", (nbytes, _POISON)), [address], f"poison after {step.node}", step)

    def _add_call(self, call: Call, pointers: list[int], what: str, step: Step) -> None:
        label = f"{what}: kernel {step.kernel.name}"
        if call.pick is not None:
            pointers = [pointers[i] if i >= 0 else 0 for i in call.pick]
        if isinstance(call, Compiled):
            self.launches.add_kernel(call.kernel, pointers, call.params, label)
        else:
            self.launches.add_function(call.function, call.grid, call.block, call.shared, pointers, call.params, label)

    def _dying(self, step: Step) -> list[tuple[int, int]]:
        """(address, bytes) of what no later step reads, in poison mode."""
        if not self._plan.poison:
            return []
        dead = [self._plan.buffers[i] for i in step.dies]
        regions = [(b.offset, b.nbytes) for b in dead if b.storage is Storage.ARENA]
        return [(self._arena.ptr + offset, nbytes) for offset, nbytes in (*regions, step.workspace) if nbytes]

    def _address(self, index: int) -> int:
        buffer = self._plan.buffers[index]
        if buffer.storage is Storage.ARENA:
            return int(self._arena.ptr) + buffer.offset
        if buffer.constant is not None:
            return int(self._plan.resident[buffer.constant].address)
        return int(self._fixed[buffer.root].ptr)


def _bind(plan: Plan, step: Step) -> tuple[Call, ...]:
    kernel = step.kernel
    if kernel.bind is None:
        raise ExecutionError(f"{step.node}: kernel {kernel.name} has no bind, which kernels for cuda need")
    buffers = [None if i is None else plan.buffers[i] for i in step.inputs]
    constants = [None if b is None or b.constant is None else plan.resident[b.constant] for b in buffers]
    types = [None if v is None else v.type for v in step.node.inputs]
    return calls_of(kernel.bind(step.node.op, types, constants, **step.settings))


def _failure(error: Any, doing: str) -> ExecutionError:
    if error.out_of_memory:
        return ExecutionError(f"no memory is left on the device while {doing}: {error}")
    return ExecutionError(f"{doing} failed: {error}")
