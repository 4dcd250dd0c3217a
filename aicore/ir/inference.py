"""Inference of one node, remembered: a rewrite is typed when it is built and again when it is verified."""

from __future__ import annotations

import math
from typing import Any

from aicore.errors import InferenceError
from aicore.ir.dims import is_unknown, symbols
from aicore.ir.dtypes import numpy_dtype
from aicore.ir.op import Op, as_tuple
from aicore.ir.types import TensorType
from aicore.ir.value import KNOWN_LIMIT, Value

MOST_BYTES = (1 << 63) - 1
"""Bytes of an array, were its dims of 0 at least 1: NumPy makes none that is larger, not even an empty one."""
MOST_DIMS = 64
_MOST_KEPT = 65_536
"""Answers; a graph with more nodes than that is inferred anew again and again."""
_kept: dict[Any, tuple[TensorType, ...]] = {}


def infer_types(op: Op, inputs: tuple[Value | None, ...]) -> tuple[TensorType, ...]:
    """Types of the outputs. The same op on operands of which the same is known has the same types.

    A result with a fresh unknown dim is inferred anew: two nodes with data-dependent sizes must not seem equal.
    Raises what `op.infer` raises, and InferenceError for a result that no array can hold.
    """
    key = _facts(op, inputs)
    found = _kept.get(key)
    if found is None:
        found = as_tuple(op.infer(*inputs))
        for tensor in found:
            check_possible(tensor)
        if not _has_fresh_unknown(found, inputs):
            if len(_kept) >= _MOST_KEPT:
                _kept.clear()
            _kept[key] = found
    return found


def check_possible(tensor: TensorType) -> None:
    """Raise InferenceError for a type that no array can have: a negative dim, too many dims, too many bytes."""
    sizes = [dim for dim in tensor.shape or () if isinstance(dim, int)]
    if sizes and min(sizes) < 0:
        raise InferenceError(f"the result would be {tensor}, which has a negative dim")
    if len(tensor.shape or ()) > MOST_DIMS:
        raise InferenceError(f"the result would have rank {tensor.rank}; arrays have at most {MOST_DIMS} dims")
    if math.prod(filter(None, sizes)) * numpy_dtype(tensor.dtype).itemsize > MOST_BYTES:
        raise InferenceError(f"the result would be {tensor}, which is larger than any array can be")


def _facts(op: Op, inputs: tuple[Value | None, ...]) -> tuple[Any, ...]:
    """The op and all that inference may read of its operands; flat, as the collector walks each tuple."""
    facts: list[Any] = [op]
    for value in inputs:
        if value is None:
            facts.append(None)
            continue
        constant = value.constant
        small = constant is not None and constant.array.size <= KNOWN_LIMIT
        facts += (value.type, value.dims, constant if small else None)
    return tuple(facts)


def _has_fresh_unknown(types: tuple[TensorType, ...], inputs: tuple[Value | None, ...]) -> bool:
    if all([tensor.is_static for tensor in types]):  # noqa: C419  # in half the time
        return False
    unknowns = {name for tensor in types for dim in tensor.shape or () if is_unknown(dim) for name in symbols(dim)}
    if not unknowns:
        return False
    operands = [value for value in inputs if value is not None]
    known = {name for value in operands for dim in (*(value.shape or ()), *(value.dims or ())) for name in symbols(dim)}
    return not unknowns <= known
