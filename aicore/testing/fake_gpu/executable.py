"""A plan on the fake device: launches are captured once with fixed addresses, then replayed as one command."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from aicore.errors import ExecutionError, UnsupportedError
from aicore.ir import as_tuple, numpy_dtype
from aicore.runtime import Plan, Step, StepTime, Storage, type_of, using_threads
from aicore.testing.fake_gpu.device import Array, FakeDevice
from aicore.testing.fake_gpu.memory import FakeArray
from aicore.testing.fake_gpu.stream import Stream

_POISON = 0xFF


class FakeExecutable:
    """Runs one plan. Inputs are copied into fixed buffers, a capture is replayed, results are copied out.

    Each concurrent run has a capture of its own. `run` returns while the work is still queued.

    around: a context that the kernels count on while they run.
    """

    def __init__(
        self, plan: Plan, device: FakeDevice, around: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        loose = next((b for b in plan.buffers if b.storage is Storage.DYNAMIC), None)
        if loose is not None:
            raise UnsupportedError(f"{device.name} runs no plan in which the size of %{loose.name} depends on data")
        self.plan = plan
        self.captures = self.replays = 0
        self._device = device
        self._around = around
        self._threads = plan.threads
        self._functions = [_function(plan, step, device) for step in plan.steps]
        self._idle: deque[_Capture] = deque()
        self._lock = threading.Lock()
        self._steps_run = 0

    @property
    def steps_run(self) -> int:
        """Launches that ran to their end."""
        return self._steps_run

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[FakeArray]:
        """Queue one run. Raises ExecutionError for host pointers, and for sizes or addresses that were not captured."""
        given = [self._device.check(array) for array in inputs]
        self._guard_shapes(given)
        types = [self.plan.buffers[output.buffer].type for output in self.plan.outputs]
        results = [self._device.empty(t) for t in types] if outputs is None else [*map(self._device.check, outputs)]
        capture = self._lease()
        after = [array.ready for array in given if array.ready is not None]
        done = capture.stream.submit(partial(self._replay, capture, given, results), after)
        for result in results:
            result.ready = done
        return results

    def profile(self, inputs: Sequence[Any]) -> tuple[list[FakeArray], list[float]]:
        """As `run`, launch by launch instead of by replay, with the seconds of each."""
        results, times = self.step_times(inputs)
        return results, [taken.device for taken in times]

    def step_times(self, inputs: Sequence[Any]) -> tuple[list[FakeArray], list[StepTime]]:
        """See `aicore.runtime.ClocksApart`: the stream's thread stands for the device."""
        self._device.synchronize()
        given = [self._device.check(array) for array in inputs]
        self._guard_shapes(given)
        results = [self._device.empty(self.plan.buffers[output.buffer].type) for output in self.plan.outputs]
        times: list[StepTime] = []
        capture = self._lease()
        capture.stream.submit(partial(self._replay, capture, given, results, times)).finish()
        return results, times

    def release(self) -> None:
        """Free the captures, with their memory, that no run is using."""
        self._idle.clear()

    def _lease(self) -> _Capture:
        try:
            return self._idle.pop()
        except IndexError:
            self.captures += 1
            return _Capture(self.plan, self._device, self._functions)

    def _guard_shapes(self, inputs: Sequence[FakeArray]) -> None:
        if len(inputs) != len(self.plan.inputs):
            raise ExecutionError(f"the plan takes {len(self.plan.inputs)} inputs, got {len(inputs)}")
        for buffer, array in zip(self.plan.inputs, inputs, strict=True):
            wanted = self.plan.buffers[buffer]
            if type_of(array) != wanted.type:
                raise ExecutionError(f"%{wanted.name}: captured for {wanted.type}, got {type_of(array)}")

    def _replay(
        self,
        capture: _Capture,
        inputs: Sequence[FakeArray],
        results: Sequence[FakeArray],
        times: list[StepTime] | None = None,
    ) -> None:
        """Runs on the stream's thread."""
        try:
            capture.guard_addresses()
            for fixed, given in zip(capture.inputs, inputs, strict=True):
                fixed[...] = self._device.bytes(given)
            with self._around(), using_threads(self._threads), np.errstate(all="ignore"):
                for launch in capture.launches:
                    if times is None:
                        launch()
                    else:
                        times.append(_timed(launch))
            for result, source in zip(results, capture.outputs, strict=True):
                self._device.bytes(result)[...] = source
            with self._lock:
                self._steps_run += len(capture.launches)
                self.replays += 1
        finally:
            self._idle.append(capture)


def _timed(launch: Callable[[], None]) -> StepTime:
    """Two clocks, one inside the other, as a host's clock and the events of a device are."""
    start = time.perf_counter()
    began = time.perf_counter()
    launch()
    computed = time.perf_counter() - began
    return StepTime(start, time.perf_counter() - start, computed)


class _Capture:
    """Fixed memory for one run at a time, and the launches over it."""

    def __init__(self, plan: Plan, device: FakeDevice, functions: Sequence[Callable[..., Any]]) -> None:
        self.stream: Stream = device.next_stream()
        self._device = device
        self._arena = device.allocate(plan.memory.arena)
        own = [i for i, b in enumerate(plan.buffers) if b.root == i and b.storage in (Storage.INPUT, Storage.OUTPUT)]
        self._fixed = {i: device.empty(plan.buffers[i].type) for i in own}
        views = [self._view(plan, i) for i in range(len(plan.buffers))]
        constants = [plan.resident[b.constant] for b in plan.buffers if b.constant is not None]
        self._addresses = {a.address: a.nbytes for a in (self._arena, *self._fixed.values(), *constants)}
        self.inputs = [_flat(views[i]) for i in plan.inputs]
        self.outputs = [_flat(views[output.buffer]) for output in plan.outputs]
        self.launches = [
            _Launch(step, function, views, self._slice(*step.workspace), self._dying(plan, step))
            for step, function in zip(plan.steps, functions, strict=True)
        ]
        if plan.poison:
            device.bytes(self._arena).fill(_POISON)

    def guard_addresses(self) -> None:
        """Raise ExecutionError if memory that the launches point to was freed."""
        for address, nbytes in self._addresses.items():
            self._device.memory.read(address, nbytes)

    def _view(self, plan: Plan, index: int) -> Array:
        buffer = plan.buffers[index]
        shape = buffer.type.static_shape
        if buffer.storage is Storage.ARENA:
            dtype = numpy_dtype(buffer.type.dtype)
            return self._slice(buffer.offset, buffer.nbytes).view(dtype).reshape(shape)
        if buffer.constant is not None:
            array = self._device.view(plan.resident[buffer.constant]).reshape(shape)
            array.flags.writeable = False
            return array
        return self._device.view(self._fixed[buffer.root]).reshape(shape)

    def _slice(self, offset: int, nbytes: int) -> Array:
        return self._device.bytes(self._arena)[offset : offset + nbytes]

    def _dying(self, plan: Plan, step: Step) -> list[Array]:
        if not plan.poison:
            return []
        dead = [plan.buffers[i] for i in step.dies]
        regions = [self._slice(b.offset, b.nbytes) for b in dead if b.storage is Storage.ARENA]
        return [*regions, self._slice(*step.workspace)]


@dataclass(slots=True)
class _Launch:
    """One kernel with everything that it needs."""

    step: Step
    function: Callable[..., Any]
    views: Sequence[Array]
    workspace: Array
    dying: Sequence[Array]

    def __call__(self) -> None:
        kernel, step = self.step.kernel, self.step
        operands = [None if i is None else self.views[i] for i in step.inputs]
        outputs = [self.views[i] for i in step.outputs]
        options: dict[str, Any] = {} if kernel.workspace is None else {"workspace": self.workspace}
        if not kernel.returns:
            options["out"] = outputs[0] if len(outputs) == 1 else tuple(outputs)
        try:
            results = self.function(*operands, **options)
            if kernel.returns:
                _store(as_tuple(results), outputs)
        except Exception as error:
            shapes = ", ".join("absent" if a is None else str(type_of(a)) for a in operands)
            text = f"{step.node}: kernel {kernel.name} failed on ({shapes}): {type(error).__name__}: {error}"
            raise ExecutionError(text) from error
        for region in self.dying:
            region.fill(_POISON)


def _function(plan: Plan, step: Step, device: FakeDevice) -> Callable[..., Any]:
    kernel = step.kernel
    if kernel.bind is None:
        return partial(kernel.function, step.node.op)
    buffers = [None if i is None else plan.buffers[i] for i in step.inputs]
    constants = [
        # An alias of a constant has a shape of its own.
        None if b is None or b.constant is None else device.view(plan.resident[b.constant]).reshape(b.type.static_shape)
        for b in buffers
    ]
    types = [None if v is None else v.type for v in step.node.inputs]
    bound: Callable[..., Any] = kernel.bind(step.node.op, types, constants, **step.settings)
    return bound


def _store(results: tuple[Any, ...], outputs: Sequence[Array]) -> None:
    for result, output in zip(results, outputs, strict=True):
        if result.dtype != output.dtype or result.shape != output.shape:
            raise ExecutionError(f"it returned {type_of(result)}, expected {type_of(output)}")
        np.copyto(output, result)


def _flat(view: Array) -> Array:
    flat: Array = view.reshape(-1).view(np.uint8)
    return flat
