"""What the caller passes, checked against a program's inputs before anything runs."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aicore.errors import InputError
from aicore.ir import Dim, DimExpr, TensorType, Value, dtype_name, is_unknown, numpy_dtype, substitute, symbols

Array = np.ndarray[Any, Any]


def read_feeds(inputs: Sequence[Value], feeds: Mapping[str, Any]) -> list[Array]:
    """Dense arrays of the right dtypes in the order of the inputs; their shapes are for `check_shapes`.

    Anything with `__array__` or DLPack goes in, and numbers and nested lists, which take the input's dtype.
    Raises InputError naming the input, and what was expected and given, when one is missing, extra or no such array.
    """
    check_names(inputs, feeds, "feeds")
    return [_to_array(value, feeds[value.name]) for value in inputs]


def check_names(inputs: Sequence[Value], feeds: Mapping[str, Any], what: str) -> None:
    """Raise InputError unless there is something for each input and for nothing else; what: the argument's name."""
    if not isinstance(feeds, Mapping):
        raise InputError(f"{what} must map names to arrays, got {type(feeds).__name__}")
    missing = [value.name for value in inputs if value.name not in feeds]
    if missing:
        raise InputError(f"missing input{_plural(missing)}; the program takes {_listing(inputs)}")
    if len(feeds) > len(inputs):
        extra = [name for name in feeds if name not in {value.name for value in inputs}]
        raise InputError(f"no such input{_plural(extra)}; the program takes {_listing(inputs)}")


def check_shapes(inputs: Sequence[Value], shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise InputError unless ranks and dims fit, and each named dim has one size."""
    sizes: dict[str, tuple[int, str]] = {}
    for value, shape in zip(inputs, shapes, strict=True):
        if value.shape is None:
            continue
        if len(value.shape) != len(shape):
            raise _mismatch(value, shape, f"rank {len(shape)} instead of {len(value.shape)}")
        for dim, size in zip(value.shape, shape, strict=True):
            _check_dim(value, shape, dim, size, sizes)
    bound: dict[str, Dim] = {name: size for name, (size, _) in sizes.items()}
    for value, shape in zip(inputs, shapes, strict=True):
        _check_expressions(value, shape, bound)


def read_shapes(inputs: Sequence[Value], shapes: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Shapes in the order of the inputs, as `check_shapes` takes them.

    Raises InputError naming the input for which there is none, or none of whole numbers from 0, and for unknown names.
    """
    if not isinstance(shapes, Mapping):
        raise InputError(f"shapes must map names to shapes, got {type(shapes).__name__}")
    missing = [value for value in inputs if value.name not in shapes]
    if missing:
        raise InputError(f"no shape for input {missing[0].name!r}: {missing[0].type}")
    extra = [name for name in shapes if name not in {value.name for value in inputs}]
    if extra:
        raise InputError(f"no such input{_plural(extra)}; the program takes {_listing(inputs)}")
    return [_read_shape(value, shapes[value.name]) for value in inputs]


def _read_shape(value: Value, given: Any) -> tuple[int, ...]:
    try:
        shape = tuple(operator.index(size) for size in given)
    except TypeError as error:
        raise InputError(f"input {value.name!r}: {given!r} is no shape: {error}") from error
    if any(size < 0 for size in shape):
        raise _mismatch(value, shape, "a size is negative")
    return shape


def _check_dim(value: Value, shape: tuple[int, ...], dim: Dim, size: int, sizes: dict[str, tuple[int, str]]) -> None:
    if isinstance(dim, int):
        if dim != size:
            raise _mismatch(value, shape, f"{size} where {dim} belongs")
        return
    name = _only_symbol(dim)
    if name is None or is_unknown(dim):
        return
    known, owner = sizes.setdefault(name, (size, value.name))
    if known != size:
        where = f"in input {owner!r}" if owner != value.name else "elsewhere in it"
        raise _mismatch(value, shape, f"dim {name!r} is {size} here but {known} {where}")


def _check_expressions(value: Value, shape: tuple[int, ...], bound: Mapping[str, Dim]) -> None:
    for dim, size in zip(value.shape or (), shape, strict=value.shape is not None):
        if isinstance(dim, DimExpr) and symbols(dim) <= bound.keys():
            wanted = substitute(dim, bound)
            if wanted != size:
                raise _mismatch(value, shape, f"{size} where {dim} = {wanted} belongs")


def _only_symbol(dim: DimExpr) -> str | None:
    """The name, if the dim is one symbol and nothing else."""
    if dim.constant or len(dim.terms) != 1:
        return None
    atoms, factor = dim.terms[0]
    only = atoms[0] if len(atoms) == 1 and factor == 1 else None
    return only if isinstance(only, str) else None


def _to_array(value: Value, given: Any) -> Array:
    try:
        array = _read(given, value.dtype)
        if array.dtype == object:
            _check_texts(value, array)
        if dtype_name(array.dtype) != value.dtype:
            raise wrong_dtype(value, TensorType(dtype_name(array.dtype), array.shape))
    except InputError:
        raise
    except Exception as error:  # the array protocols run code of any library, which raises what it likes
        raise InputError(f"input {value.name!r} ({value.type}): {type(given).__name__} is no array: {error}") from error
    if value.dtype == "string" and array.dtype != object:
        array = array.astype(object)
    return array if array.flags.c_contiguous and array.dtype.isnative else _dense(array)


def _check_texts(value: Value, array: Array) -> None:
    """Objects are texts, or no elements at all."""
    strangers = [type(element).__name__ for element in array.flat if not isinstance(element, str | bytes)]
    if strangers:
        raise InputError(f"input {value.name!r}: expected {value.type}, got objects of the kind {strangers[0]}")


def _plain(given: Array) -> Array:
    """The array without what a subclass adds: np.matrix, for one, has another idea of `reshape`."""
    # NumPy loads `ma` when it is first asked for, which takes longer than a run; without it nothing is masked.
    if type(given) is not np.ndarray and isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise ValueError("some of its elements are masked out; fill them first")
    return np.asarray(given)


def _read(given: Any, dtype: str) -> Array:
    if isinstance(given, np.ndarray):
        return given if type(given) is np.ndarray else _plain(given)
    if hasattr(given, "__array__") or hasattr(given, "__array_interface__"):
        return np.asarray(given)
    if hasattr(given, "__dlpack__"):
        return np.from_dlpack(given)
    natural = np.asarray(given)
    wanted = numpy_dtype(dtype)
    # Python numbers carry no dtype of their own, but 1.5 is no integer, and True is no number.
    if natural.size and not _fits(natural.dtype, wanted, dtype):
        return natural
    return np.asarray(given, wanted)


def _fits(natural: np.dtype[Any], wanted: np.dtype[Any], name: str) -> bool:
    if name == "string":
        return natural.kind in "OUST"
    if natural.kind == "b" or wanted.kind == "b":
        return natural.kind == wanted.kind
    if natural.kind in "iu":
        return True
    return natural.kind == "f" and name not in ("string", "bool") and wanted.kind not in "iu"


def _dense(array: Array) -> Array:
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def wrong_dtype(value: Value, given: TensorType) -> InputError:
    """What to raise for an array of another element type."""
    return InputError(f"input {value.name!r}: expected {value.type}, got {given}: wrong dtype")


def _mismatch(value: Value, shape: tuple[int, ...], detail: str) -> InputError:
    given = TensorType(value.dtype, shape)
    return InputError(f"input {value.name!r}: expected {value.type}, got {given}: {detail}")


def _plural(names: Sequence[str]) -> str:
    return f"{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _listing(inputs: Sequence[Value]) -> str:
    return ", ".join(f"{value.name!r}: {value.type}" for value in inputs) or "no inputs"
