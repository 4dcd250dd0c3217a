"""What an op should give: its reference kernels in float64, and how much of the result rounding may change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np

from aicore.config import Precision
from aicore.errors import InferenceError, UnsupportedError
from aicore.ir import FLOATS, Op, dtype_name
from aicore.numerics.difference import measure, precision
from aicore.numerics.kinks import before_activation, change_by_activation, with_input_of_activation
from aicore.numerics.lowered import error_of_lowered_factors
from aicore.numerics.recast import WIDE, Recast
from aicore.numerics.tolerances import Magnitude, kinds_of_operands, tolerance_of
from aicore.records import dataclass

Array = np.ndarray[Any, Any]
Operands: TypeAlias = "Sequence[Array | None]"
Evaluate: TypeAlias = Callable[..., "tuple[Array, ...]"]
"""`(op, *operands) -> results` of reference kernels, in the operands' own types."""

_PERTURBATIONS = 4
_AGAINST = ((1.0, -1.0, 1.0, -1.0), (1.0, 1.0, -1.0, -1.0), (1.0, -1.0, -1.0, 1.0))
"""Signs of operands; with all alike, these are every way in which three can move against each other."""
_CHUNK = 1 << 15
"""Elements that are compared at once, so that they stay in the processor's cache."""
_STEP = 2.0**-20
"""Large beside the rounding of float64, small enough for the result to follow in proportion."""


@dataclass(frozen=True)
class Expected:
    """Results of one op.

    arrays: the results, floats in float64 if `wide`.
    allowed: largest error of each element, by result.
    wide: False where the op does not take float64, so that the reference rounds as the op's own type does.
    """

    arrays: tuple[Array, ...]
    allowed: tuple[Array, ...]
    wide: bool

    def fault(self, results: Sequence[Array]) -> str:
        """What is wrong with results, naming the worst element; empty when nothing is."""
        if len(results) != len(self.arrays):
            return f"{len(results)} results instead of {len(self.arrays)}"
        found = (
            measure(got, want, allowed)
            for got, want, allowed in zip(results, self.arrays, self.allowed, strict=True)
            if not _is_plainly_right(got, want, allowed)
        )
        return next((difference.text for difference in found if not difference.is_right), "")


def _is_plainly_right(got: Array, want: Array, allowed: Array) -> bool:
    """Whether numbers are within what is allowed; in a tenth of the time of `measure`, which knows of all else."""
    if got.shape != want.shape or dtype_name(got.dtype) not in FLOATS or want.dtype != np.float64:
        return False
    flat, wide, limits = got.reshape(-1), want.reshape(-1), allowed.reshape(-1)
    with np.errstate(all="ignore"):
        for at in range(0, flat.size, _CHUNK):
            part = slice(at, at + _CHUNK)
            off = np.subtract(flat[part], wide[part], dtype=np.float64)
            near = np.abs(off, out=off) <= (limits if limits.size == 1 else limits[part])
            if not near.all():  # or one is no number
                return False
    return True


def expect(
    evaluate: Evaluate, op: Op, operands: Operands, dtypes: Sequence[str], lowered: Precision = "float32"
) -> Expected:
    """Results, and what a backend may be off by.

    op: as a node has it, so with defaults filled in.
    dtypes: element types of the results.
    lowered: what factors of products of float32 numbers may be rounded to; see numerics/lowered.py.
    Raises AicoreError where the op means nothing for these operands.
    """
    tolerance = tolerance_of(op)
    if tolerance.is_exact or not any(dtype in FLOATS for dtype in dtypes):
        # Nothing is rounded, and a decision such as x < 0.1 falls where the op's own type has that bound.
        exact = evaluate(op, *operands)
        return Expected(exact, tuple(np.zeros(()) for _ in exact), wide=False)
    bends = before_activation(op) is not None
    wide = widest(partial(with_input_of_activation, evaluate) if bends else evaluate, op, operands)
    kinds = kinds_of_operands(op, len(operands))
    magnitudes, of_results = _magnitudes(tolerance.magnitude, wide, kinds), [*dtypes, *dtypes] if bends else dtypes
    roundings, stores = tolerance.count(op, operands), tolerance.count_stores(op, operands)
    allowed = tuple(
        _allowed(array, magnitude, dtype, roundings, stores)
        for array, magnitude, dtype in zip(wide.results, magnitudes, of_results, strict=True)
    )
    results = wide.results
    if bends:
        result, given = results
        changed = change_by_activation(evaluate, op, result, given, allowed[1])
        results, allowed = (result,), (np.maximum(allowed[0], changed),)
    if lowered != "float32" and "float32" in dtypes:
        more = error_of_lowered_factors(evaluate, op, wide.operands, lowered)
        allowed = tuple(limit + extra for limit, extra in zip(allowed, more, strict=True))
    return Expected(results, allowed, wide.is_wide)


def widest(evaluate: Evaluate, op: Op, operands: Operands) -> Wide:
    """The op in the widest types that it takes."""
    for recast, only_first in ((WIDE, False), (_KEPT_STATISTICS, False), (WIDE, True), (_KEPT_STATISTICS, True)):
        wide = [a if a is None or (only_first and i) else recast.array(a) for i, a in enumerate(operands)]
        try:
            function = partial(evaluate, recast.op(op))
            return Wide(function, wide, function(*wide))
        except (InferenceError, UnsupportedError):
            continue
    function = partial(evaluate, op)
    return Wide(function, operands, function(*operands))


@dataclass(frozen=True)
class Wide:
    """An op in wide types: the function, operands for it, and their results."""

    function: Callable[..., tuple[Array, ...]]
    operands: Operands
    results: tuple[Array, ...]

    @property
    def is_wide(self) -> bool:
        return all(dtype_name(a.dtype) not in FLOATS or a.dtype == np.float64 for a in self.results)

    def at(self, change: Callable[[Array], Array]) -> tuple[Array, ...]:
        """The results for other operands: those of floating point, changed."""
        changed = [change(a) if a is not None and dtype_name(a.dtype) in FLOATS else a for a in self.operands]
        return tuple(_numbers(a) for a in self.function(*changed))


def _magnitudes(kind: Magnitude, wide: Wide, kinds: Sequence[int]) -> list[Array]:
    results = [np.abs(_numbers(a)) for a in wide.results]
    floats = [np.abs(_numbers(a)) for a in wide.operands if a is not None and dtype_name(a.dtype) in FLOATS]
    match kind:
        case Magnitude.ABSOLUTE:
            return [np.maximum(a, np.abs(b)) for a, b in zip(results, wide.at(_absolute), strict=True)]
        case Magnitude.LAST:
            *others, last = wide.operands
            absolute = wide.function(*others, None if last is None else _absolute(last))
            return [np.maximum(a, np.abs(_numbers(b))) for a, b in zip(results, absolute, strict=True)]
        case Magnitude.CONDITION:
            return [a + b for a, b in zip(results, _condition(wide), strict=True)]
        case Magnitude.TERMS:
            return _terms(wide, kinds)
        case Magnitude.OPERANDS:
            return [a + sum(floats) for a in results]
        case Magnitude.UNIT:
            return [a + sum(floats) + 1 for a in results]
        case Magnitude.LARGEST:
            return [a + (float(floats[0].max(initial=0)) if floats else 0.0) for a in results]
    return results


def _condition(wide: Wide) -> list[Array]:
    """The largest change of each result, over the relative change of the operands, in random directions.

    Operands also move against each other: where all directions happened to move two of them alike, the change of a
    difference would pass for small.
    """
    rng = np.random.default_rng(0)
    shapes = [a.shape for a in wide.operands if a is not None and dtype_name(a.dtype) in FLOATS]
    directions = [[rng.choice([-1.0, 1.0], shape) for shape in shapes] for _ in range(_PERTURBATIONS)]
    if len(shapes) > 1:
        directions += [[s * d for s, d in zip(cycle(signs), directions[0], strict=False)] for signs in _AGAINST]
    base = [_numbers(a) for a in wide.results]
    changes = [np.zeros(a.shape) for a in base]
    for direction in directions:
        for change, a, b in zip(changes, base, _moved(wide, direction), strict=True):
            if a.shape == b.shape:
                np.maximum(change, np.abs(a - b) / _STEP, out=change)
    return changes


def _terms(wide: Wide, kinds: Sequence[int]) -> list[Array]:
    """|y| and, for each kind of operand x, |x dy/dx|: what relative roundings may do, and in which nothing cancels.

    Directions that are drawn move all terms of some element alike where there are millions of elements.
    """
    base = [_numbers(a) for a in wide.results]
    found = [np.abs(a) for a in base]
    for kind in dict.fromkeys(kinds):
        moved = [
            a if a is None or of != kind or dtype_name(a.dtype) not in FLOATS else (a * (1 + _STEP)).astype(a.dtype)
            for a, of in zip(wide.operands, kinds, strict=True)
        ]
        for total, a, b in zip(found, base, wide.function(*moved), strict=True):
            total += np.abs(a - _numbers(b)) / _STEP
    return found


def _moved(wide: Wide, direction: Sequence[Array]) -> tuple[Array, ...]:
    """The results where each operand of floating point makes a small step in its direction."""
    steps = iter(direction)
    return wide.at(lambda a: a * (1 + _STEP * next(steps)).astype(a.dtype))


def _absolute(array: Array) -> Array:
    """Absolute values; an operand that is no number spoils its own results only, which must be no numbers either."""
    return np.where(np.isfinite(array), np.abs(array), 0).astype(array.dtype)


def _numbers(array: Array) -> Array:
    """In float64, with 0 for what is not finite; what is no number at all has no magnitude."""
    if dtype_name(array.dtype) not in FLOATS:
        return np.zeros(array.shape)
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0.0)


def _allowed(want: Array, magnitude: Array, dtype: str, roundings: float, stores: float) -> Array:
    if dtype not in FLOATS:
        return np.zeros(())
    kind = precision(dtype)
    working = precision("float64" if dtype == "float64" else "float32")
    stored = np.abs(_numbers(want)) if stores == 1 else magnitude
    limit: Array = stores * kind.roundoff * stored + roundings * working.roundoff * magnitude
    # A result in float64 has no wider reference: both sides round.
    return limit * (2 if dtype == "float64" else 1) + kind.roundoff * kind.smallest + working.smallest


_KEPT_STATISTICS = Recast(WIDE.dtypes, kept=frozenset({"stash_type"}))
"""For ops that compute statistics in a type which they do not let one choose."""
