"""One step of one run, measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from aicore.ir import Op
from aicore.records import dataclass
from aicore.runtime.executable import ClocksApart, Executable, StepTime
from aicore.runtime.plan import Step


@dataclass(frozen=True)
class ProfileRow:
    """One step: a kernel, a move between devices, or control flow.

    seconds: on the device; for moves and control flow, which the host does, on the host.
    host: seconds that the host spent on it beside those, launching and waiting.
    start: on the clock of `time.perf_counter`.
    op: its type, with those of ops that it holds: `ChannelsLast(ConvAct)`. value: what it computes, its first output.
    types: of all outputs.
    flops, nbytes: what the op has to compute, and to read and write at least; None where sizes are not known. Kernels
        may do more or less of both.
    """

    name: str
    kernel: str
    device: str
    seconds: float
    host: float = 0.0
    start: float = 0.0
    op: str = ""
    value: str = ""
    types: str = ""
    flops: int | None = None
    nbytes: int | None = None


def step_times(executable: Executable, inputs: Sequence[Any]) -> tuple[list[Any], list[StepTime]]:
    """Results of one run, and what each step took.

    Where an executable has one clock only, the device's and the host's time are the same, and steps follow each other
    without a gap.
    """
    if isinstance(executable, ClocksApart):
        return executable.step_times(inputs)
    start = time.perf_counter()
    results, seconds = executable.profile(inputs)
    times = []
    for taken in seconds:
        times.append(StepTime(start, taken, taken))
        start += taken
    return results, times


def row_of(step: Step, device: str, taken: StepTime) -> ProfileRow:
    flops, nbytes = _cost(step)
    return ProfileRow(
        str(step.node),
        step.kernel.name,
        device,
        taken.device,
        max(taken.host - taken.device, 0.0),
        taken.start,
        op_label(step.node.op),
        step.node.outputs[0].name,
        ", ".join(str(value.type) for value in step.node.outputs),
        flops,
        nbytes,
    )


def op_label(op: Op) -> str:
    """`ChannelsLast(ConvAct)`: the op's type, and those of the ops that it holds."""
    held = [value for value in vars(op).values() if isinstance(value, Op)]
    inner = ", ".join(type(one).__name__ for one in held)
    return f"{type(op).__name__}({inner})" if inner else type(op).__name__


def _cost(step: Step) -> tuple[int | None, int | None]:
    """(floating-point operations, bytes read and written), None where sizes are open."""
    flops, nbytes = step.node.op.cost(*step.node.inputs)
    return flops if isinstance(flops, int) else None, nbytes if isinstance(nbytes, int) else None
