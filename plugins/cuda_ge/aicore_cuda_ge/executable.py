"""A plan on a CUDA device: a list of launches, captured once and replayed as one CUDA Graph."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aicore.errors import ExecutionError, UnsupportedError
from aicore.ir import numpy_dtype
from aicore.runtime import Plan, Step, StepTime, Storage, type_of
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.bound_run import BoundRun
from aicore_cuda_ge.builder import Bound
from aicore_cuda_ge.calls import Call, calls_of
from aicore_cuda_ge.capture import Capture
from aicore_cuda_ge.device import CudaDevice
from aicore_cuda_ge.interop import PER_THREAD_STREAM
from aicore_cuda_ge.profiler import mark_of_environment, mark_of_profile, no_mark

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """How a plan ran: graphs captured, runs replayed, graphs given back to make room; graphs kept now, and their bytes.

    Graphs that a run is using are not among those kept.
    """

    captures: int
    replays: int
    evictions: int
    kept: int
    bytes: int


class _Tally:
    """Apart from the executable, so that the cache of graphs does not keep that alive."""

    def __init__(self) -> None:
        self.captures = self.evictions = 0
        self._lock = threading.Lock()

    def count_capture(self) -> None:
        with self._lock:
            self.captures += 1

    def count_eviction(self) -> None:
        with self._lock:
            self.evictions += 1


class CudaExecutable:
    """Runs one plan. Each concurrent run has memory, a stream and a captured graph of its own."""

    def __init__(self, plan: Plan, device: CudaDevice) -> None:
        loose = next((b for b in plan.buffers if b.storage is Storage.DYNAMIC), None)
        if loose is not None:
            raise UnsupportedError(f"{device.name} runs no plan in which the size of %{loose.name} depends on data")
        self.plan = plan
        self._device = device
        with device.current():
            self._calls = [_bind(plan, step, device) for step in plan.steps]
        self._runs = native.Counter()
        self._tally = _Tally()
        self._timers: dict[int, Callable[[], float]] = {}
        self._whole = all(call.capturable for calls in self._calls for call in calls)
        self._arenas: weakref.WeakValueDictionary[int, DeviceArray] = weakref.WeakValueDictionary()
        self._takes = [
            (plan.buffers[i].type.static_shape, numpy_dtype(plan.buffers[i].type.dtype)) for i in plan.inputs
        ]
        self._makes = [
            (plan.buffers[output.buffer].type.static_shape, numpy_dtype(plan.buffers[output.buffer].type.dtype))
            for output in plan.outputs
        ]
        self._gives = [plan.buffers[output.buffer].type for output in plan.outputs]
        self._name = f"{device.name}: {len(plan.steps)} steps"
        self._mark = mark_of_environment()
        self._owner = object()  # stands for this executable in the cache of graphs, and does not keep it alive
        weakref.finalize(self, device.graphs.drop, self._owner)

    @property
    def steps_run(self) -> int:
        """Steps of replays that the device finished, or that are queued for arrays that are bound."""
        return self._runs.value * len(self.plan.steps)

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[DeviceArray]:
        """Compute the outputs, into `outputs` if they are given.

        Raises ExecutionError for arrays that are not of this device or not of the plan's types, OutOfMemoryError when
        no memory is left, and ExecutionError naming node and kernel when a launch fails.
        """
        given = self._checked(inputs)
        results = [self._device.empty(t) for t in self._gives] if outputs is None else self._results(outputs)
        capture = self._lease()
        try:
            with self._mark(self._name):
                capture.run([a.address for a in given], [a.address for a in results])
        finally:
            self._give_back(capture)
        return results

    def run_from_host(self, inputs: Sequence[Array], outputs: Sequence[Array] | None = None) -> list[Array]:
        """See `aicore.runtime.RunsFromHost`: copied straight into place, with one wait at the end. Raises as `run`."""
        self._check_types(inputs)
        results = self._made_on_host() if outputs is None else list(outputs)
        capture = self._lease()
        try:
            with self._mark(self._name):
                capture.run(native.addresses_of(inputs), native.addresses_of(results))
        finally:
            self._give_back(capture)
        return results

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> BoundRun:
        """See `aicore.runtime.BindsArrays`; what arrays are aligned to 64 bytes is not copied."""
        bound = Bound(tuple(self._checked(inputs)), tuple(self._results(outputs)), stream)
        mark = None if self._mark is no_mark else self._mark
        return BoundRun(lambda: self._bound_capture(bound), stream, self._name, mark)

    def profile(self, inputs: Sequence[Any]) -> tuple[list[DeviceArray], list[float]]:
        """As `run`, and the seconds of each step when it is launched alone, between two events."""
        results, times = self.step_times(inputs)
        return results, [taken.device for taken in times]

    def step_times(self, inputs: Sequence[Any]) -> tuple[list[DeviceArray], list[StepTime]]:
        """See `aicore.runtime.ClocksApart`: events on the device, and the host's clock around launch and wait."""
        results = self.run(inputs)
        capture = self._lease()
        try:
            return results, capture.step_times([a.address for a in self._checked(inputs)], mark_of_profile())
        finally:
            self._give_back(capture)

    def time_step(self, index: int) -> float:
        """See `aicore.runtime.TimesSteps`: in a graph that holds the step many times, each with weights of its own."""
        if index not in self._timers:
            capture = self._lease()
            try:
                self._timers[index] = capture.timer(index)
            finally:
                self._give_back(capture)
        return self._timers[index]()

    def statistics(self) -> GraphStatistics:
        """What was captured, replayed and given back since the plan was launched."""
        kept, nbytes = self._device.graphs.held(self._owner)
        return GraphStatistics(self._tally.captures, self._runs.value, self._tally.evictions, kept, nbytes)

    def release(self) -> None:
        """Free the memory and the graphs that no run is using."""
        self._timers.clear()
        self._device.graphs.drop(self._owner)
        self._device.pool.release()

    def time_replay(self, repeats: int, bare: bool = False) -> float:
        """Seconds of one replay on the device, the mean of many in a row, on the numbers of the latest run.

        bare: of a graph of the same launches that was captured anew, with nothing of aicore around it.
        """
        capture = self._lease()
        try:
            return capture.time_replay(repeats, bare)
        finally:
            self._give_back(capture)

    def _checked(self, inputs: Sequence[Any]) -> list[DeviceArray]:
        given = [self._device.check(array) for array in inputs]
        self._check_types(given)
        return given

    def _check_types(self, inputs: Sequence[Any]) -> None:
        if len(inputs) != len(self._takes):
            raise ExecutionError(f"the plan takes {len(self._takes)} inputs, got {len(inputs)}")
        for i, (array, (shape, dtype)) in enumerate(zip(inputs, self._takes, strict=True)):
            if array.shape != shape or array.dtype != dtype:
                wanted = self.plan.buffers[self.plan.inputs[i]]
                raise ExecutionError(f"%{wanted.name}: captured for {wanted.type}, got {type_of(array)}")

    def _made_on_host(self) -> list[Array]:
        return [np.empty(shape, dtype) for shape, dtype in self._makes]

    def _results(self, outputs: Sequence[Any]) -> list[DeviceArray]:
        if len(outputs) != len(self._gives):
            raise ExecutionError(f"the plan gives {len(self._gives)} outputs, got arrays for {len(outputs)}")
        results = [self._device.check(array) for array in outputs]
        for array, wanted in zip(results, self._gives, strict=True):
            if type_of(array) != wanted:
                raise ExecutionError(f"an output is {wanted}, got an array of {type_of(array)}")
        return results

    def _lease(self) -> Capture:
        found = self._device.graphs.take(self._owner)
        return found if isinstance(found, Capture) else self._capture(None)

    def _give_back(self, capture: Capture) -> None:
        self._device.graphs.keep(self._owner, capture, self._tally.count_eviction)

    def _bound_capture(self, bound: Bound) -> Capture:
        key = (self._owner, *bound.key)
        found = self._device.graphs.find(key)
        if isinstance(found, Capture):
            return found
        capture = self._capture(bound)
        self._device.graphs.keep(self._owner, capture, self._tally.count_eviction, key)
        return capture

    def _capture(self, bound: Bound | None) -> Capture:
        capture = Capture(self.plan, self._device, self._calls, self._runs, bound, self._arena(bound))
        self._tally.count_capture()
        return capture

    def _arena(self, bound: Bound | None) -> DeviceArray:
        """What is bound on one stream shares an arena: a run there begins after the one before it has ended.

        Not where a run is several graphs, as another thread's may come between them, nor on the default stream of
        each thread, which is one number for many streams.
        """
        found = None if bound is None else self._arenas.get(bound.stream)
        if found is None:
            found = self._device.allocate(self.plan.memory.arena)
        if bound is not None and self._whole and bound.stream != PER_THREAD_STREAM:
            self._arenas[bound.stream] = found
        return found


def _bind(plan: Plan, step: Step, device: CudaDevice) -> tuple[Call, ...]:
    kernel = step.kernel
    if kernel.bind is None:
        raise ExecutionError(f"{step.node}: kernel {kernel.name} has no bind, which kernels for cuda need")
    buffers = [None if i is None else plan.buffers[i] for i in step.inputs]
    constants = [None if b is None or b.constant is None else plan.resident[b.constant] for b in buffers]
    types = [None if v is None else v.type for v in step.node.inputs]
    try:
        calls = calls_of(kernel.bind(step.node.op, types, constants, **step.settings))
    except TypeError as error:
        raise ExecutionError(f"{step.node}: kernel {kernel.name}: {error}") from error
    return tuple(_with_own_arrays(call, device) for call in calls)


def _with_own_arrays(call: Call, device: CudaDevice) -> Call:
    """Arrays of other libraries, such as weights that a plugin packed with CuPy, as arrays of the device."""
    if all(isinstance(array, DeviceArray) for array in call.extra):
        return call
    return replace(call, extra=tuple(device.adopt(array, 1) for array in call.extra))
