"""What the ops of shape arithmetic share: operands that may be fields, and what can be proven of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from aicore.ir.dims import Atom, Dim, DimExpr, Shape, is_unknown, symbols, unknown
from aicore.ir.op import moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import KNOWN_LIMIT, Value
from aicore.ops.base import Simple, ensure

MOST_AXES = 64
"""The largest rank, which is NumPy's."""

INDEX_DTYPES = frozenset({"int32", "int64"})


class Movement(Simple):
    """Moves, repeats or selects elements without arithmetic."""

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        return 0, moved_bytes(self.infer(*inputs), inputs)


class Relabel(Movement):
    """The same elements in the same order under another shape, so no kernel need run."""

    alias: ClassVar[tuple[tuple[int, int], ...]] = ((0, 0),)

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        return 0, 0


def given(field: Sequence[int] | None, operand: Value | None) -> Shape | None:
    """Numbers that are a field once constant, else the operand's content; None when neither is known."""
    if field is not None:
        return tuple(field)
    return None if operand is None else operand.content


def one_number(found: Any, what: str) -> Any:
    """The number in a field that a constant became: files hold one number as a scalar or as a vector of one.

    Raises InferenceError for more or fewer.
    """
    if not isinstance(found, tuple):
        return found
    ensure(len(found) == 1, f"{what} is {found}, wants one number")
    return found[0]


def need_one_of(field: object, operand: Value | None, what: str) -> None:
    """Raise InferenceError when a required operand is neither a field nor there."""
    ensure(field is not None or operand is not None, f"{what} is missing")


def need_vector(operand: Value | None, what: str) -> None:
    """Raise InferenceError unless the operand is absent or may be an integer tensor of rank 1."""
    if operand is None:
        return
    ensure(operand.dtype in INDEX_DTYPES, f"{what} %{operand.name} has dtype {operand.dtype}, wants int32 or int64")
    ensure(operand.rank in (None, 1), f"{what} %{operand.name} has rank {operand.rank}, wants 1")


def need_indices(indices: Value) -> None:
    """Raise InferenceError unless the operand holds indices."""
    ensure(indices.dtype in INDEX_DTYPES, f"indices %{indices.name} are {indices.dtype}, want int32 or int64")


def vector_length(operand: Value | None) -> int | None:
    """How many numbers a rank-1 operand holds, when that is known."""
    if operand is None or operand.shape is None or len(operand.shape) != 1:
        return None
    length = operand.shape[0]
    return length if isinstance(length, int) else None


def unknown_shape(rank: int | None) -> Shape | None:
    """A shape of which only the rank is known, or nothing.

    Raises InferenceError for a rank that no array has: one number of a damaged file must not ask for all memory.
    """
    ensure(rank is None or rank <= MOST_AXES, f"rank {rank} is above {MOST_AXES}, the most that arrays can have")
    return None if rank is None else tuple(unknown() for _ in range(rank))


def kept_content(x: Value, result: TensorType) -> Shape | None:
    """The content of `x` passed on unchanged, if the result is a vector or a scalar."""
    return x.content if result.rank in (0, 1) else None


def small(content: Shape | None) -> Shape | None:
    """The content unless it has too many numbers to be worth carrying."""
    return None if content is None or len(content) > KNOWN_LIMIT else content


def as_ints(dims: Shape | None) -> tuple[int, ...] | None:
    """The dims as numbers, or None when one is symbolic."""
    if dims is None or not all(isinstance(d, int) for d in dims):
        return None
    return tuple(d for d in dims if isinstance(d, int))


def at_least(dim: Dim, bound: int) -> bool:
    """Whether the dim is provably no smaller than the bound; a symbol is some size, so it is not negative."""
    if isinstance(dim, int):
        return dim >= bound
    grows = all(factor > 0 and all(map(_not_negative, atoms)) for atoms, factor in dim.terms)
    return grows and dim.constant >= bound


def _not_negative(atom: Atom) -> bool:
    return isinstance(atom, str) or (at_least(atom.numerator, 0) and at_least(atom.denominator, 0))


def exported(shape: Shape | None, outer: set[str]) -> Shape | None:
    """A sub-graph's shape seen from outside: an unknown that is not an operand's means another size each time."""
    if shape is None:
        return None
    return tuple(unknown() if is_unknown(d) and not symbols(d) <= outer else d for d in shape)


def operand_symbols(operands: Sequence[Value | None]) -> set[str]:
    """Names of all symbols in the operands' shapes."""
    shapes = [v.shape for v in operands if v is not None and v.shape is not None]
    return {name for shape in shapes for dim in shape if isinstance(dim, DimExpr) for name in symbols(dim)}
