"""Text, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.kernels import Kernel, kernel
from aicore.ops.strings import RegexFullMatch, StringConcat, StringNormalizer, StringSplit, compiled
from aicore_cpu_numpy.reference._precision import Array

CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@kernel(StringNormalizer, device="cpu")
def string_normalizer(op: StringNormalizer, x: Array) -> Any:
    if x.ndim == 2 and len(x) != 1:
        raise ExecutionError(f"wants a vector or one row, not {x.shape}")
    fold: Callable[[str], str] = str if op.is_case_sensitive else str.lower
    stopped = {fold(word) for word in op.stopwords}
    kept = [CASES[op.case_change_action](text) for text in _each(x) if fold(text) not in stopped]
    return _texts(kept or [""], (1, -1) if x.ndim == 2 else (-1,))


@kernel(StringConcat, device="cpu")
def string_concat(op: StringConcat, a: Array, b: Array) -> Any:
    left, right = np.broadcast_arrays(a, b)
    return _texts([x + y for x, y in zip(_each(left), _each(right), strict=True)], left.shape)


@kernel(StringSplit, device="cpu")
def string_split(op: StringSplit, x: Array) -> Any:
    limit = -1 if op.maxsplit is None else op.maxsplit
    parts = [text.split(op.delimiter or None, limit) for text in _each(x)]
    counts = np.array([len(found) for found in parts], np.int64).reshape(x.shape)
    width = int(counts.max(initial=0))
    filled = [part for found in parts for part in (*found, *[""] * (width - len(found)))]
    return _texts(filled, (*x.shape, width)), counts


@kernel(RegexFullMatch, device="cpu")
def regex_full_match(op: RegexFullMatch, x: Array) -> Any:
    pattern = compiled(op.pattern)
    return np.array([pattern.fullmatch(text) is not None for text in _each(x)], bool).reshape(x.shape)


def _each(x: Array) -> list[str]:
    return [text.decode() if isinstance(text, bytes) else str(text) for text in x.reshape(-1).tolist()]


def _texts(found: list[str], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(found), object)
    array[:] = found
    return array.reshape(shape)


KERNELS: tuple[Kernel, ...] = (string_normalizer, string_concat, string_split, regex_full_match)
