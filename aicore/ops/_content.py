"""Arithmetic on what is known of integer tensors before the run: shapes on their way through Add, Div, Min, Where.

A result that is not provable is None. Dims are not negative, so a sum of dims is not either; a difference may be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from aicore.ir.dims import Dim, DimExpr, FloorDiv, Shape, may_be_negative
from aicore.ir.value import Value

Decide: TypeAlias = Callable[..., "Dim | None"]


def combine(decide: Decide, *operands: Value, dtype: str | None = None) -> Shape | None:
    """`decide` applied element by element, after broadcasting; None as soon as one element is undecided.

    dtype: element type of the result, that of the first operand if left out; a number outside its range is undecided.
    """
    columns: list[Shape] = []
    for value in operands:
        content = value.content if value.rank is not None and value.rank <= 1 else None
        if content is None:
            return None
        columns.append(content)
    sizes = {len(column) for column in columns} - {1}
    found: list[Dim] = []
    for i in range(max(sizes, default=1)):
        result = decide(*(column[0 if len(column) == 1 else i] for column in columns))
        if result is None or not representable(result, dtype or operands[0].dtype):
            return None
        found.append(result)
    return tuple(found)


def representable(dim: Dim, dtype: str) -> bool:
    """Whether the number fits the integer type; a symbolic dim is taken to fit."""
    if isinstance(dim, DimExpr) or dtype == "bool":
        return True
    limits = np.iinfo(dtype)
    return bool(limits.min <= dim <= limits.max)


def is_nonnegative(dim: Dim) -> bool:
    """Whether the dim is provably zero or more."""
    if isinstance(dim, int):
        return dim >= 0
    return dim.constant >= 0 and all(
        factor >= 0 and all(_is_nonnegative_atom(atom) for atom in atoms) for atoms, factor in dim.terms
    )


def _is_nonnegative_atom(atom: str | FloorDiv) -> bool:
    if isinstance(atom, str):
        return not may_be_negative(atom)
    return is_nonnegative(atom.numerator) and is_nonnegative(atom.denominator)


def less_equal(a: Dim, b: Dim) -> bool | None:
    """Whether a <= b, where that is provable either way."""
    if is_nonnegative(b - a):
        return True
    return False if is_nonnegative(a - b - 1) else None


def equal(a: Dim, b: Dim) -> bool | None:
    """Whether a == b, where that is provable either way."""
    if a == b:
        return True
    return False if is_nonnegative(a - b - 1) or is_nonnegative(b - a - 1) else None


def divide(a: Dim, b: Dim) -> Dim | None:
    """a / b towards zero, as integers divide in ONNX."""
    if isinstance(b, int):
        if b == 0:
            return None
        if isinstance(a, int):
            return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        if b < 0:
            return None
    if isinstance(a, int):
        return None
    if is_nonnegative(a) and is_nonnegative(b):
        return a // b
    quotient = a // b  # exact division rounds nowhere, whatever the sign
    return quotient if quotient * b == a else None
