"""TensorProto to arrays: every element type in every way to store it, and sizes that lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from aicore.errors import ModelError, UnsupportedError
from aicore.frontends.onnx._elements import NAME_OF, NUMBER_OF
from aicore.frontends.onnx.external import ExternalData
from aicore.frontends.onnx.tensors import DENSE_LIMIT, sparse_array, tensor_array
from aicore.frontends.onnx.write_protos import tensor_proto
from aicore.ir import DTYPES, numpy_dtype

NONE = ExternalData(None)
CODES = [0, 1, 2, 3, 1, 0, 1]
"""Seven elements: narrow types do not fill their last byte. Every type can hold these."""


def elements(name: str) -> np.ndarray[Any, Any]:
    if name == "string":
        return np.array(["a", "", "ü", "日本", "b", "c", "d"], object)
    if name.startswith("complex"):
        return (np.array(CODES) + 1j * np.array(CODES[::-1])).astype(name)
    if name == "float8_e8m0fnu":
        return np.array([1, 2, 4, 0.5, 1, 2, 8], np.float32).astype(numpy_dtype(name))
    if name == "int2":
        return np.array([0, 1, -2, -1, 1, 0, 1], np.int8).astype(numpy_dtype(name))
    return np.array(CODES, np.float32).astype(numpy_dtype(name))


def test_every_element_type_of_the_format_is_known() -> None:
    unknown = set(TensorProto.DataType.values()) - set(NAME_OF) - {TensorProto.UNDEFINED}
    names = {TensorProto.DataType.Name(number) for number in unknown}
    assert {n for n in names if not n.startswith("FLOAT6")} == set()
    assert set(NUMBER_OF) == DTYPES


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_what_is_written_is_read(name: str) -> None:
    array = elements(name).reshape(7, 1)
    again = tensor_array(tensor_proto(array, "t"), NONE)
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(again.astype(object), array.astype(object))


@pytest.mark.parametrize("name", sorted(DTYPES - {"string"}))
def test_raw_bytes_are_those_of_the_onnx_package(name: str) -> None:
    array = elements(name)
    ours, theirs = tensor_proto(array, "t"), numpy_helper.from_array(array, "t")
    assert ours.data_type == theirs.data_type
    assert ours.raw_data == theirs.raw_data


@pytest.mark.parametrize("name", sorted(DTYPES - {"int2", "uint2"}))
def test_lists_of_numbers(name: str) -> None:
    array = elements(name)
    values: Any = [t.encode() for t in array] if name == "string" else array.ravel()
    if name == "float8_e8m0fnu":
        proto = TensorProto(name="t", data_type=NUMBER_OF[name], dims=[7])
        proto.int32_data.extend(array.view(np.uint8).tolist())
    else:
        proto = helper.make_tensor("t", NUMBER_OF[name], (7,), values)
    again = tensor_array(proto, NONE)
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(again.astype(object), array.astype(object))


def test_numbers_are_read_only() -> None:
    array = tensor_array(tensor_proto(np.ones(3, np.float32)), NONE)
    assert not array.flags.writeable


def made(**fields: Any) -> TensorProto:
    return TensorProto(**{"name": "t", "data_type": TensorProto.FLOAT, "dims": [2], **fields})


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (made(raw_data=bytes(7)), r"tensor 't': shape \(2,\) of float32 needs 8 bytes, the file has 7"),
        (made(raw_data=b"", dims=[1 << 60]), "needs 4611686018427387904 bytes, the file has 0"),
        (made(raw_data=bytes(8), dims=[-2]), r"has a negative dimension: \(-2,\)"),
        (made(float_data=[1.0]), "needs 2 items of float_data, the file has 1"),
        (made(int32_data=[1, 2]), "float32 data cannot be in int32_data"),
        (made(raw_data=bytes(8), float_data=[1, 2]), "data cannot be in float_data"),
        (made(data_type=TensorProto.INT8, int32_data=[1, 300]), "an item of int32_data is no int8"),
        (made(data_type=TensorProto.STRING, string_data=[b"\xff", b""]), "an item of string_data is no string"),
        (made(data_type=TensorProto.STRING, raw_data=b"ab"), "strings cannot be raw data"),
        (made(data_type=TensorProto.STRING, dims=[0, 1 << 62]), "is impossible"),
        (made(dims=[0, 1 << 62, 1 << 62], raw_data=b""), "is impossible"),
        (made(data_type=TensorProto.COMPLEX64, float_data=[1, 2]), "needs 4 items"),
        (made(data_type=TensorProto.INT4, dims=[3], int32_data=[1, 2, 3]), "needs 2 items"),
    ],
)
def test_sizes_and_fields_that_do_not_fit(proto: TensorProto, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        tensor_array(proto, NONE)


def test_types_and_layouts_that_are_not_supported() -> None:
    with pytest.raises(UnsupportedError, match="tensor 't': element type number 77 is not supported"):
        tensor_array(made(data_type=77), NONE)
    with pytest.raises(UnsupportedError, match="element type UNDEFINED is not supported"):
        tensor_array(made(data_type=0), NONE)
    with pytest.raises(UnsupportedError, match="is stored in segments"):
        tensor_array(made(segment=TensorProto.Segment(begin=0, end=1)), NONE)


def sparse(values: Any, indices: Any, dims: list[int]) -> SparseTensorProto:
    proto = SparseTensorProto(dims=dims)
    proto.values.CopyFrom(numpy_helper.from_array(np.array(values, np.float32), "s"))
    proto.indices.CopyFrom(numpy_helper.from_array(np.array(indices, np.int64)))
    return proto


def test_sparse_tensors_are_made_dense() -> None:
    wanted = np.zeros((2, 3), np.float32)
    wanted[0, 2], wanted[1, 0] = 5, 7
    np.testing.assert_array_equal(sparse_array(sparse([5, 7], [2, 3], [2, 3]), NONE), wanted)
    np.testing.assert_array_equal(sparse_array(sparse([5, 7], [[0, 2], [1, 0]], [2, 3]), NONE), wanted)
    np.testing.assert_array_equal(sparse_array(sparse([], np.zeros(0), [2]), NONE), [0, 0])


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (sparse([5], [6], [2, 3]), r"sparse tensor 's': an index lies outside the shape \(2, 3\)"),
        (sparse([5], [-1], [2, 3]), "an index lies outside"),
        (sparse([5], [[0, 3]], [2, 3]), "an index lies outside"),
        (sparse([5], [1, 2], [2, 3]), r"1 values do not go with indices of shape \(2,\)"),
        (sparse([[5]], [1], [2, 3]), "wants values of rank 1"),
        (sparse([5], [0], [1 << 40]), f"would take {4 << 40} bytes when dense, over {DENSE_LIMIT}"),
    ],
)
def test_sparse_tensors_that_lie(proto: SparseTensorProto, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        sparse_array(proto, NONE)


def test_sparse_strings_are_not_supported() -> None:
    proto = sparse([1], [0], [2])
    proto.values.CopyFrom(onnx.helper.make_tensor("s", TensorProto.STRING, (1,), [b"x"]))
    with pytest.raises(UnsupportedError, match="holds strings"):
        sparse_array(proto, NONE)
