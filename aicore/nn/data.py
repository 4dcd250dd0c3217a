"""Batches of arrays in an order that a seed and the epoch decide, so that a resumed run sees the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from aicore.errors import ConfigError, InputError
from aicore.ir import FLOATS, TensorType, dtype_name, numpy_dtype, symbol
from aicore.records import dataclass

Array = np.ndarray[Any, Any]
Data: TypeAlias = "Array | Sequence[Any] | Mapping[str, Any]"
"""An array whose first axis counts samples, or several by the names of the model's inputs."""

BATCH = "batch"


@dataclass(frozen=True)
class Samples:
    """Arrays of equally many samples. arrays: by name of the model's input. target: None where there is none."""

    arrays: Mapping[str, Array]
    target: Array | None
    count: int

    @staticmethod
    def of(x: Any, y: Any = None, names: Sequence[str] = ("input",)) -> Samples:
        """Raises InputError for arrays that do not fit the names, or each other, or that are empty."""
        arrays = _named(x, names)
        target = None if y is None else _rows(y, "y")
        counts = {name: len(array) for name, array in arrays.items()} | ({} if target is None else {"y": len(target)})
        if len(set(counts.values())) > 1:
            raise InputError(f"data of different lengths: {', '.join(f'{n} has {c}' for n, c in counts.items())}")
        count = next(iter(counts.values()))
        if not count:
            raise InputError("there are no samples: the data are empty")
        return Samples(arrays, target, count)

    def split(self, share: float) -> tuple[Samples, Samples]:
        """The first samples, and the last ones that make up the share. Raises InputError unless both get some."""
        if not 0 < share < 1:
            raise InputError(f"a split of {share!r} is not between 0 and 1")
        first = self.count - round(self.count * share)
        if not 0 < first < self.count:
            raise InputError(f"{self.count} samples leave none on one side of a split of {share}")
        return self.take(slice(first)), self.take(slice(first, None))

    def take(self, which: Any) -> Samples:
        """Those that an index array or a slice names."""
        arrays = {name: array[which] for name, array in self.arrays.items()}
        target = None if self.target is None else self.target[which]
        return Samples(arrays, target, len(next(iter(arrays.values()))))

    def batches(self, size: int, order: Array | None = None) -> Iterator[Samples]:
        """One after the other, the last one smaller if need be. Raises ConfigError for a size that is none."""
        size = count_of("batch_size", size)
        for start in range(0, self.count, size):
            which = slice(start, start + size) if order is None else order[start : start + size]
            yield self.take(which)


def count_of(what: str, number: Any) -> int:
    """The number as an int, which NumPy's integers are not. Raises ConfigError unless it is 1 or more."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise ConfigError(f"{what}={number!r} is no whole number from 1")
    return int(number)


def pair_of(given: Any, what: str) -> tuple[Any, Any]:
    """x and y. Raises InputError for anything but two."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        count = f" of {len(given)}" if isinstance(given, tuple | list) else ""
        raise InputError(f"{what} is a {type(given).__name__}{count}, wants a pair (x, y)")
    return given[0], given[1]


def order_of(count: int, seed: int, epoch: int) -> Array:
    """A permutation of the samples, which depends on seed and epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def input_types(samples: Samples, dtype: str) -> dict[str, TensorType]:
    """Types of the model's inputs for such data, whatever the size of a batch; numbers other than integers as dtype."""
    return {name: _batched(array, _element(array, dtype)) for name, array in samples.arrays.items()}


def target_type(target: Array, dtype: str) -> TensorType:
    """As `input_types`, for the target: booleans become numbers."""
    return _batched(target, dtype if target.dtype == bool else _element(target, dtype))


def fitting(array: Array, tensor: TensorType, name: str) -> Array:
    """The array with the element type that a graph's input has; no copy where it has it.

    Raises InputError for numbers that would become others: 0.5 where the first data were integers, say.
    """
    wanted = numpy_dtype(tensor.dtype)
    if array.dtype == wanted or tensor.dtype in FLOATS:
        return array.astype(wanted, copy=False)
    with np.errstate(invalid="ignore"):  # of NaN, which is told below
        found = array.astype(wanted)
    if not np.array_equal(found, array):
        raise InputError(f"{name!r} has {array.dtype} numbers that {tensor.dtype} does not have, which the model takes")
    return found


def _batched(array: Array, dtype: str) -> TensorType:
    return TensorType(dtype, (symbol(BATCH), *array.shape[1:]))


def _element(array: Array, dtype: str) -> str:
    name = dtype_name(array.dtype)
    if name in FLOATS:
        return dtype
    if array.dtype.kind in "iu":
        return "int64"
    if array.dtype.kind == "b":
        return "bool"
    raise InputError(f"data of type {array.dtype} is neither numbers nor truth values")


def _named(x: Any, names: Sequence[str]) -> dict[str, Array]:
    if isinstance(x, Mapping):
        missing, extra = set(names) - set(x), set(x) - set(names)
        if missing or extra:
            raise InputError(f"the model takes {', '.join(map(repr, names))}; got {', '.join(map(repr, x))}")
        return {name: _rows(x[name], name) for name in names}
    given = x if isinstance(x, tuple) else (x,)
    if len(given) != len(names):
        raise InputError(f"the model takes {len(names)} inputs, {', '.join(map(repr, names))}; got {len(given)}")
    return {name: _rows(one, name) for name, one in zip(names, given, strict=True)}


def array_of(given: Any, name: str) -> Array:
    """Numbers as an array. Raises InputError for anything else."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise InputError(f"{name!r} is no array: {error}") from error
    if array.dtype.kind not in "fiubV" or (array.dtype.kind == "V" and array.dtype.names):
        raise InputError(f"{name!r} has element type {array.dtype}, wants numbers")
    return array


def _rows(given: Any, name: str) -> Array:
    array = array_of(given, name)
    if array.ndim == 0:
        raise InputError(f"{name!r} is {given!r}, wants an array with one row for each sample")
    return array
