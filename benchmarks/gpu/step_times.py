"""How long each step of a plan takes inside of a graph, and how long it would take if only memory or arithmetic did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aicore.ir import numpy_dtype
from aicore.ops.layout import ChannelsLast
from aicore.runtime import Plan, Step
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.calls import Compiled, Eager, picked
from aicore_cuda_ge.device import CudaDevice

BYTES_EACH_SECOND = 4.0e12
"""Of an H200's memory, as copies reach it."""
_GRAPH_SECONDS, _MOST_COPIES, _ROUNDS = 0.0004, 40, 5


@dataclass(frozen=True)
class StepTime:
    """seconds: of one of many runs in a row in one graph. floor: of what it must read and write, and multiply."""

    node: str
    op: str
    kernel: str
    shape: str
    seconds: float
    floor: float


def step_times(executable: Any, device: CudaDevice, operations_each_second: float) -> list[StepTime]:
    """Of an executable of the CUDA backend, in order; memory holds whatever is there."""
    plan: Plan = executable.plan
    rows = []
    for step, calls in zip(plan.steps, executable._calls, strict=True):
        op = step.node.op.inner if isinstance(step.node.op, ChannelsLast) else step.node.op
        shape = " ".join("x".join(map(str, plan.buffers[i].type.static_shape)) for i in _large(plan, step))
        seconds = _seconds(plan, step, calls, device)
        floor = max(_moved(plan, step) / BYTES_EACH_SECOND, _operations(step) / operations_each_second)
        kernel = step.selection.candidates[0].name
        rows.append(StepTime(str(step.node.outputs[0].name), type(op).__name__, kernel, shape, seconds, floor))
    return rows


def _large(plan: Plan, step: Step) -> list[int]:
    """Operands and results of some size."""
    return [i for i in (*step.inputs, *step.outputs) if i is not None and plan.buffers[i].nbytes > 1 << 12]


def _moved(plan: Plan, step: Step) -> int:
    return sum(plan.buffers[i].nbytes for i in {*step.inputs, *step.outputs} if i is not None)


def _operations(step: Step) -> float:
    """Of multiplying nodes, as their ops count them; with channels last the inner op is asked about sizes only."""
    op, values = step.node.op, step.node.inputs
    if isinstance(op, ChannelsLast):
        w = values[1].type.static_shape if len(values) > 1 and values[1] is not None else ()
        result = step.node.outputs[0].type.static_shape
        return 2.0 * math.prod(result) * math.prod(w[1:]) if len(w) > 2 else 0.0
    flops = op.cost(*values)[0]
    return float(flops) if isinstance(flops, int) else 0.0


def _seconds(plan: Plan, step: Step, calls: Sequence[Any], device: CudaDevice) -> float:
    if any(isinstance(call, Eager) for call in calls):
        return math.nan
    with device.current():
        arrays: list[Any] = [_array(plan, i, device) for i in (*step.inputs, *step.outputs)]
        if step.kernel.workspace is not None:
            arrays.append(device.allocate(max(step.workspace[1], 64)))
        trial = _listed(calls, arrays, device, 2, str(step.node))
        trial.time_replay(2)
        copies = max(2, min(_MOST_COPIES, math.ceil(_GRAPH_SECONDS / max(trial.time_replay(2) * 1e-6 / 2, 1e-9))))
        launches = _listed(calls, arrays, device, copies, str(step.node))
        launches.time_replay(2)
        return float(min(launches.time_replay(3) for _ in range(_ROUNDS))) * 1e-6 / copies


def _array(plan: Plan, index: int | None, device: CudaDevice) -> Any:
    if index is None:
        return None
    buffer = plan.buffers[index]
    if buffer.constant is not None:
        return plan.resident[buffer.constant]
    found = device.empty(buffer.type)
    if numpy_dtype(buffer.type.dtype).itemsize * math.prod(buffer.type.static_shape):
        found._as_cupy().fill(1)  # numbers that neither overflow nor are subnormal
    return found


def _listed(
    calls: Sequence[Any], arrays: Sequence[Any], device: CudaDevice, copies: int, label: str
) -> native.LaunchList:
    launches = native.LaunchList(device.index)
    for _ in range(copies):
        for call in calls:
            pointers = [0 if a is None else a.address for a in picked(call, [*arrays, *call.extra])]
            if call.reports:
                pointers.append(launches.add_fault())
            if isinstance(call, Compiled):
                launches.add_kernel(call.kernel, pointers, call.params, label)
            else:
                launches.add_function(
                    call.function, call.grid, call.block, call.shared, pointers, call.params, label, call.early
                )
    launches.keep((tuple(arrays), tuple(calls)))
    launches.capture()
    return launches
