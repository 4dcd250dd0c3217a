"""TensorProto and SparseTensorProto to arrays; every size is checked before memory is asked for."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from aicore.errors import ModelError, UnsupportedError
from aicore.frontends.onnx._elements import NAME_OF, type_text
from aicore.frontends.onnx.external import ExternalData
from aicore.frontends.onnx.protos import SparseTensorProto, TensorProto
from aicore.ir import numpy_dtype
from aicore.pages import dense_copy

DENSE_LIMIT = 1 << 28
"""Bytes that a sparse tensor may have once it is dense: a few bytes of a file must not ask for all memory."""

_FOUR_BITS = frozenset({"int4", "uint4", "float4_e2m1fn"})
_TWO_BITS = frozenset({"int2", "uint2"})
_FIELD_OF = {
    "float32": "float_data",
    "complex64": "float_data",
    "float64": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
    "string": "string_data",
}
_LISTS = ("float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data")


def tensor_array(
    tensor: TensorProto, external: ExternalData, what: str = "", raw_data: memoryview | None = None
) -> np.ndarray[Any, Any]:
    """The tensor's numbers, read-only where they can be shared with the file.

    what: how errors call the tensor. raw_data: those of the tensor, where `split_raw_data` emptied them.
    Strings give an array of objects.
    Raises ModelError when sizes and data disagree, UnsupportedError for an element type that aicore lacks.
    """
    what = what or f"tensor {tensor.name!r}"
    shape = _shape(tensor.dims, what)
    name = NAME_OF.get(tensor.data_type)
    if name is None:
        raise UnsupportedError(f"{what}: element type {type_text(tensor.data_type)} is not supported")
    if tensor.HasField("segment"):
        raise UnsupportedError(f"{what}: is stored in segments")
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, name, shape, external, what)
    if len(tensor.external_data) > 0:
        raise ModelError(f"{what}: names external data but is not marked as external")
    if tensor.HasField("raw_data"):
        _check_no_lists(tensor, "", what)
        data = tensor.raw_data if raw_data is None else dense_copy(np.frombuffer(raw_data, np.uint8))
        return _from_bytes(data, name, shape, what)
    return _from_list(tensor, name, shape, what)


def sparse_array(sparse: SparseTensorProto, external: ExternalData) -> np.ndarray[Any, Any]:
    """A sparse tensor made dense.

    Raises ModelError for indices out of range or unsorted shapes, and beyond DENSE_LIMIT bytes.
    """
    what = f"sparse tensor {sparse.values.name!r}"
    shape = _shape(sparse.dims, what)
    values = tensor_array(sparse.values, external, f"values of {what}")
    indices = tensor_array(sparse.indices, external, f"indices of {what}")
    if values.dtype.hasobject:
        raise UnsupportedError(f"{what}: holds strings")
    size = math.prod(shape)
    if size * values.dtype.itemsize > DENSE_LIMIT:
        raise ModelError(f"{what}: would take {size * values.dtype.itemsize} bytes when dense, over {DENSE_LIMIT}")
    if values.ndim != 1 or indices.dtype != np.int64:
        raise ModelError(f"{what}: wants values of rank 1 and int64 indices")
    flat = _flat_indices(indices, values.shape[0], shape, what)
    if flat.size and (flat.min() < 0 or flat.max() >= size):
        raise ModelError(f"{what}: an index lies outside the shape {shape}")
    dense = np.zeros(size, values.dtype)
    dense[flat] = values
    return dense.reshape(shape)


def _flat_indices(indices: np.ndarray[Any, Any], count: int, shape: tuple[int, ...], what: str) -> np.ndarray[Any, Any]:
    if indices.shape == (count,):
        return indices
    if indices.shape != (count, len(shape)):
        raise ModelError(f"{what}: {count} values do not go with indices of shape {indices.shape}")
    if ((indices < 0) | (indices >= np.array(shape, np.int64))).any():
        raise ModelError(f"{what}: an index lies outside the shape {shape}")
    flat = np.zeros(count, np.int64)
    for axis, dim in enumerate(shape):
        flat = flat * dim + indices[:, axis]
    return flat


def _shape(dims: Any, what: str) -> tuple[int, ...]:
    shape = tuple(dims)
    if shape and min(shape) < 0:
        raise ModelError(f"{what}: has a negative dimension: {shape}")
    return shape


def stored_bytes(name: str, size: int) -> int:
    """Bytes of `size` elements in raw or external data, where narrow elements are packed."""
    if name in _FOUR_BITS:
        return (size + 1) // 2
    if name in _TWO_BITS:
        return (size + 3) // 4
    return size * numpy_dtype(name).itemsize


def _external(
    tensor: TensorProto, name: str, shape: tuple[int, ...], external: ExternalData, what: str
) -> np.ndarray[Any, Any]:
    if tensor.HasField("raw_data"):
        raise ModelError(f"{what}: has both external and raw data")
    _check_no_lists(tensor, "", what)
    if name == "string":
        raise ModelError(f"{what}: strings cannot be external data")
    data = external.map(tensor, stored_bytes(name, math.prod(shape)), what)
    return _from_bytes(data, name, shape, what)


def _from_bytes(data: Any, name: str, shape: tuple[int, ...], what: str) -> np.ndarray[Any, Any]:
    if name == "string":
        raise ModelError(f"{what}: strings cannot be raw data")
    size = math.prod(shape)
    wanted, given = stored_bytes(name, size), len(data)
    if wanted != given:
        raise ModelError(f"{what}: shape {shape} of {name} needs {wanted} bytes, the file has {given}")
    if name in _FOUR_BITS or name in _TWO_BITS:
        return _reshape(_unpack(np.frombuffer(data, np.uint8), name, size), shape, what)
    try:
        array = np.ndarray(shape, _stored_dtype(name), data)
    except ValueError as error:  # a zero-size tensor with dimensions that no array can have
        raise ModelError(f"{what}: the shape {shape} is impossible: {error}") from error
    return array.astype(numpy_dtype(name), copy=False)


@cache
def _stored_dtype(name: str) -> np.dtype[Any]:
    return numpy_dtype(name).newbyteorder("<")


def _from_list(tensor: TensorProto, name: str, shape: tuple[int, ...], what: str) -> np.ndarray[Any, Any]:
    field = _FIELD_OF.get(name, "int32_data")
    _check_no_lists(tensor, field, what)
    items, size = getattr(tensor, field), math.prod(shape)
    packed = stored_bytes(name, size) if name in _FOUR_BITS | _TWO_BITS else size
    wanted = 2 * size if name.startswith("complex") else packed
    if len(items) != wanted:
        raise ModelError(f"{what}: shape {shape} of {name} needs {wanted} items of {field}, the file has {len(items)}")
    try:
        return _reshape(_elements(items, name, size), shape, what)
    except (OverflowError, UnicodeDecodeError) as error:
        raise ModelError(f"{what}: an item of {field} is no {name}: {error}") from error


def _elements(items: Any, name: str, size: int) -> np.ndarray[Any, Any]:
    dtype = numpy_dtype(name)
    if name == "string":
        texts = np.empty(size, object)
        texts[:] = [item.decode("utf-8") for item in items]
        return texts
    if name in _FOUR_BITS or name in _TWO_BITS:
        return _unpack(np.array(items, np.int32).astype(np.uint8), name, size)
    if name in ("complex64", "complex128"):
        return np.array(items, np.float32 if name == "complex64" else np.float64).view(dtype)
    if name in ("float16", "bfloat16") or name.startswith("float8"):  # int32_data holds their bit patterns
        bits = np.array(items, np.int32).astype(np.uint16 if dtype.itemsize == 2 else np.uint8)
        return bits.view(dtype)
    wide = np.asarray(items)
    array = wide.astype(dtype)
    if dtype.kind in "iu" and (array != wide).any():
        raise OverflowError(f"{wide[array != wide][0]} is out of range")
    return array


def _unpack(packed: np.ndarray[Any, Any], name: str, size: int) -> np.ndarray[Any, Any]:
    """Elements of two or four bits, the first one in the low bits of a byte."""
    bits = 2 if name in _TWO_BITS else 4
    parts = [(packed >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    codes = np.stack(parts, axis=-1).reshape(-1)[:size]
    if name == "float4_e2m1fn":
        return codes.view(numpy_dtype(name))
    if name.startswith("int"):
        sign = 1 << (bits - 1)
        return ((codes.astype(np.int8) ^ sign) - sign).astype(numpy_dtype(name))
    return codes.astype(numpy_dtype(name))


def _reshape(array: np.ndarray[Any, Any], shape: tuple[int, ...], what: str) -> np.ndarray[Any, Any]:
    try:
        return array.reshape(shape)
    except ValueError as error:  # a zero-size tensor with dimensions that no array can have
        raise ModelError(f"{what}: the shape {shape} is impossible: {error}") from error


def _check_no_lists(tensor: TensorProto, allowed: str, what: str) -> None:
    numbers = tensor.float_data or tensor.int32_data or tensor.int64_data or tensor.double_data or tensor.uint64_data
    if not numbers and not tensor.string_data:
        return  # as for nearly all tensors
    for field in _LISTS:
        if field != allowed and len(getattr(tensor, field)):
            raise ModelError(f"{what}: {type_text(tensor.data_type)} data cannot be in {field}")
