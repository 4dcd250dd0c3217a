"""From a plan to calls of NumPy kernels: views are made once, and a run is a loop over bound calls."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from aicore.collector import collector_at_rest
from aicore.errors import ExecutionError
from aicore.ir import numpy_dtype
from aicore.runtime import Plan, StepTime, Storage, using_threads
from aicore_cpu_numpy.arena import Arena, Array, Environment
from aicore_cpu_numpy.calls import BoundStep, Call, bind_step
from aicore_cpu_numpy.workers import single_threaded_blas

_SHOWN = 8
"""Operands that an error lists; some ops take thousands."""


class CpuExecutable:
    """Runs one plan on the CPU. Each concurrent run leases an arena of its own; idle arenas wait for the next run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._steps = [BoundStep(plan, step) for step in plan.steps]  # packed weights are shared by all arenas
        self._aliases = _aliases(plan)
        self._idle: deque[_Lease] = deque()
        self._lock = threading.Lock()
        self._steps_run = 0

    @property
    def steps_run(self) -> int:
        """Steps that ran to their end since the plan was launched."""
        return self._steps_run

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array] | None = None) -> list[Array]:
        """Compute the outputs, into `outputs` if they are given (dense, and of the plan's types).

        Raises ExecutionError naming kernel, node and shapes when a kernel fails.
        """
        return self._execute(inputs, outputs, None)

    def profile(self, inputs: Sequence[Array]) -> tuple[list[Array], list[float]]:
        """As `run`, and the seconds that each step took."""
        results, times = self.step_times(inputs)
        return results, [taken.device for taken in times]

    def step_times(self, inputs: Sequence[Array]) -> tuple[list[Array], list[StepTime]]:
        """See `aicore.runtime.ClocksApart`: here the device is the host."""
        times: list[StepTime] = []
        return self._execute(inputs, None, times), times

    def release(self) -> None:
        """Free the arenas that no run is using."""
        self._idle.clear()

    def _execute(
        self, inputs: Sequence[Array], outputs: Sequence[Array] | None, times: list[StepTime] | None
    ) -> list[Array]:
        with using_threads(self.plan.threads):
            lease = self._lease()
        try:
            environment, results = self._enter(lease, inputs, outputs)
            with (
                single_threaded_blas(),
                using_threads(self.plan.threads),
                np.errstate(all="ignore"),
            ):  # kernels follow IEEE 754: a division by zero is an infinity
                if times is None:
                    self._loop(lease.calls, environment)
                else:
                    self._loop([_timed(call, times) for call in lease.calls], environment)
            with self._lock:  # for one addition, never while a kernel runs
                self._steps_run += len(lease.calls)
            return self._leave(environment, results, outputs)
        finally:
            self._idle.append(lease)

    def _lease(self) -> _Lease:
        try:
            return self._idle.pop()
        except IndexError:
            with collector_at_rest():  # views and calls are many, and live on
                return _Lease(self.plan, self._steps)

    def _loop(self, calls: Sequence[Call], environment: Environment) -> None:
        done = 0
        try:
            for call in calls:
                call(environment)
                done += 1
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too, which would end the program
            raise self._failure(done, environment, error) from error

    def _enter(
        self, lease: _Lease, inputs: Sequence[Array], outputs: Sequence[Array] | None
    ) -> tuple[Environment, list[Array | None]]:
        """The arrays by buffer as the first step finds them, and the results that steps write to directly."""
        plan = self.plan
        if plan.poison:
            lease.arena.poison()
        environment = lease.arena.views.copy()
        for buffer, array in zip(plan.inputs, inputs, strict=True):
            self._set(environment, buffer, array)
        results: list[Array | None] = []
        for i, output in enumerate(plan.outputs):
            buffer_plan = plan.buffers[output.buffer]
            if output.copied or buffer_plan.storage is not Storage.OUTPUT:
                results.append(None)
                continue
            tensor = buffer_plan.type
            array = np.empty(tensor.static_shape, numpy_dtype(tensor.dtype)) if outputs is None else outputs[i]
            self._set(environment, buffer_plan.root, array)
            results.append(array)
        return environment, results

    def _leave(
        self, environment: Environment, results: Sequence[Array | None], outputs: Sequence[Array] | None
    ) -> list[Array]:
        finished: list[Array] = []
        for i, output in enumerate(self.plan.outputs):
            result = results[i]
            if result is None:
                made = environment[output.buffer]
                if made is None:
                    raise ExecutionError(f"%{self.plan.buffers[output.buffer].name} was computed by no step")
                result = made.copy() if output.copied else made
                if outputs is not None and result.shape == outputs[i].shape:  # else the caller gets what there is
                    np.copyto(outputs[i], result, casting="no")
                    result = outputs[i]
            finished.append(result)
        return finished

    def _set(self, environment: Environment, root: int, array: Array) -> None:
        environment[root] = array
        for buffer, shape in self._aliases.get(root, ()):
            environment[buffer] = array if array.shape == shape else array.reshape(shape)

    def _failure(self, index: int, environment: Environment, error: BaseException) -> ExecutionError:
        step = self.plan.steps[index]
        operands = [None if i is None else environment[i] for i in step.inputs]
        shown = operands[:_SHOWN]
        shapes = ", ".join("absent" if a is None else f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in shown)
        if len(operands) > _SHOWN:
            shapes += f", and {len(operands) - _SHOWN} more"
        detail = str(error) if isinstance(error, ExecutionError) else f"{type(error).__name__}: {error}"
        return ExecutionError(f"{step.node}: kernel {step.kernel.name} failed on ({shapes}): {detail}")


class _Lease:
    """One arena, and the steps bound to its views."""

    def __init__(self, plan: Plan, steps: Sequence[BoundStep]) -> None:
        self.arena = Arena(plan)
        self.calls = [bind_step(step, self.arena) for step in steps]


def _aliases(plan: Plan) -> dict[int, list[tuple[int, tuple[int, ...]]]]:
    """(buffer, shape) of all that share the bytes of an input or an output, whose arrays differ from run to run."""
    found: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for number, buffer in enumerate(plan.buffers):
        is_view = buffer.storage is Storage.OUTPUT or (buffer.storage is Storage.INPUT and number != buffer.root)
        if is_view:
            found.setdefault(buffer.root, []).append((number, buffer.type.static_shape))
    return found


def _timed(call: Call, times: list[StepTime]) -> Call:
    def timed(environment: Environment) -> None:
        start = time.perf_counter()
        call(environment)
        taken = time.perf_counter() - start
        times.append(StepTime(start, taken, taken))

    return timed
