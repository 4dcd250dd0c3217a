"""Fast kernels write to arrays of known sizes; nodes whose sizes depend on data stay with the reference."""

from __future__ import annotations

from aicore.ir import DTYPES, Op, TensorType, Value, as_tuple

DENSE = DTYPES - {"string"}
"""Element types whose arrays the planner can place; strings are Python objects."""


def sized(op: Op, *types: TensorType | None) -> str | None:
    """A reason unless the results' sizes follow from the operands' types and the op's fields alone."""
    values = [None if t is None else Value("operand", t) for t in types]
    return None if all(t.is_static for t in as_tuple(op.infer(*values))) else "the result's size depends on data"
