"""What families share whose kernels wait for memory and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from aicore.ir import Op, TensorType, Value, as_tuple, moved_bytes, numpy_dtype

NARROW = frozenset({"float32", "float16", "bfloat16"})
"""Element types whose arithmetic is float32."""
FLOATS = NARROW | {"float64"}


def seconds_of(bytes_per_second: float, launch_seconds: float) -> Callable[..., float]:
    """An estimate: a launch, and reading and writing at this rate."""

    def seconds(op: Op, *types: TensorType | None) -> float:
        values = [None if t is None else Value("x", t) for t in types]
        moved = moved_bytes(op.infer(*values), values)
        return launch_seconds + (moved / bytes_per_second if isinstance(moved, int) else 0.0)

    return seconds


row_seconds = seconds_of(bytes_per_second=3.5e12, launch_seconds=1.5e-6)
"""Of kernels that read each row once."""


def shape_of(tensor: TensorType | None) -> tuple[int, ...]:
    """The sizes of an operand that is required, or that was asked about before."""
    assert tensor is not None
    return tensor.static_shape


def results_of(op: Op, types: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """What the op makes of operands of these types."""
    return as_tuple(op.infer(*(None if t is None else Value("x", t) for t in types)))


def dtype_of(types: Sequence[TensorType | None]) -> str:
    """The element type of the first operand."""
    assert types[0] is not None
    return types[0].dtype


def along(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """The shape as (outer, length, inner) around one axis."""
    axis %= len(shape)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def need_words(dtype: str) -> str | None:
    """The reason against element types that are no words of 1, 2, 4 or 8 bytes."""
    shares_bytes = dtype in ("string", "int4", "uint4", "int2", "uint2", "float4e2m1")
    is_word = not shares_bytes and numpy_dtype(dtype).itemsize in (1, 2, 4, 8)
    return None if is_word else f"does not take {dtype}"


def need_static(*types: TensorType | None) -> str | None:
    """The reason against sizes that are open."""
    return None if all(t is None or t.is_static for t in types) else "needs shapes that are known in numbers"


def need_axes(op: Op, *types: TensorType | None) -> str | None:
    """The reason against open sizes, and against tensors without an axis."""
    known = all(t is None or (t.is_static and t.static_shape) for t in types)
    return None if known else "needs shapes that are known in numbers, and at least one axis"


def run_from_plan(op: Op, *operands: Any, out: Any, workspace: Any = None) -> None:
    """The function of a kernel that only `bind` makes runnable; nothing calls it."""
    raise NotImplementedError(f"{type(op).__name__} runs from a plan only")
