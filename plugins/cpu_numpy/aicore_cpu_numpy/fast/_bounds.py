"""Maxima and minima with a number, as NumPy's clip: with a scalar operand that takes a third of the time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from aicore_cpu_numpy.fast._trace import Array, Instruction, Tape


class _Probe:
    """NumPy has no public name for the ufunc behind `clip`, but hands it to an operand that overrides ufuncs."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> np.ufunc:
        return ufunc


CLIP: Any = np.zeros(1).clip(_Probe(), 1)  # type: ignore[call-overload]
"""CLIP(x, low, high) is min(max(x, low), high), and NaN where one of them is."""


def merge_bounds(tape: Tape, kept: set[int]) -> list[Instruction]:
    """The tape's instructions with each bound, or pair of bounds, of a float as one CLIP.

    kept: variables that are outputs, and must be computed even if an instruction makes them superfluous.
    """
    uses = Counter(x for step in tape.instructions for x in step.operands if isinstance(x, int))
    done: list[Instruction] = []
    for step in tape.instructions:
        clipped = _as_clip(tape, step)
        before = done[-1] if done else None
        joined = None if clipped is None or before is None else _join(before, clipped)
        if joined is not None and before is not None and uses[before.result] == 1 and before.result not in kept:
            done[-1] = joined
        else:
            done.append(clipped or step)
    return done


def _as_clip(tape: Tape, step: Instruction) -> Instruction | None:
    if step.function not in (np.maximum, np.minimum) or tape.variables[step.result].dtype.kind != "f":
        return None
    numbers = [x for x in step.operands if isinstance(x, int)]
    bounds = [x for x in step.operands if not isinstance(x, int)]
    if len(numbers) != 1 or bounds[0].ndim or tape.variables[numbers[0]].dtype != bounds[0].dtype:
        return None
    infinity = np.asarray(np.inf, bounds[0].dtype)
    low, high = (bounds[0], infinity) if step.function is np.maximum else (-infinity, bounds[0])
    return Instruction(CLIP, (numbers[0], np.asarray(low), high), step.result)


def _join(first: Instruction, second: Instruction) -> Instruction | None:
    """Both as one: low <= high, so the order in which they apply does not matter."""
    if first.function is not CLIP or second.operands[0] != first.result:
        return None
    x, *pair = first.operands
    low, high = _tighter(pair, second.operands[1:])
    return Instruction(CLIP, (x, low, high), second.result) if low <= high else None


def _tighter(first: Any, second: Any) -> tuple[Array, Array]:
    return np.maximum(first[0], second[0]), np.minimum(first[1], second[1])
