"""What families share whose kernels wait for memory and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aicore.ir import Op, TensorType, Value, moved_bytes


def seconds_of(bytes_per_second: float, launch_seconds: float) -> Callable[..., float]:
    """An estimate: a launch, and reading and writing at this rate."""

    def seconds(op: Op, *types: TensorType | None) -> float:
        values = [None if t is None else Value("x", t) for t in types]
        moved = moved_bytes(op.infer(*values), values)
        return launch_seconds + (moved / bytes_per_second if isinstance(moved, int) else 0.0)

    return seconds


def shape_of(tensor: TensorType | None) -> tuple[int, ...]:
    """The sizes of an operand that is required, or that was asked about before."""
    assert tensor is not None
    return tensor.static_shape


def run_from_plan(op: Op, *operands: Any, out: Any) -> None:
    """The function of a kernel that only `bind` makes runnable; nothing calls it."""
    raise NotImplementedError(f"{type(op).__name__} runs from a plan only")
