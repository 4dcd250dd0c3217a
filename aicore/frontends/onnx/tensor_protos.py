"""Arrays to TensorProto."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.frontends.onnx._elements import NUMBER_OF
from aicore.frontends.onnx.protos import TensorProto
from aicore.ir import dtype_name


def tensor_proto(array: np.ndarray[Any, Any], name: str = "") -> TensorProto:
    """The array as a tensor of the format, with its bytes as raw data; narrow elements are packed, strings listed."""
    dtype = dtype_name(array.dtype)
    proto = TensorProto(name=name, data_type=NUMBER_OF[dtype])
    proto.dims.extend(array.shape)
    if dtype == "string":
        proto.string_data.extend(str(text).encode() for text in array.ravel().tolist())
        return proto
    proto.raw_data = raw_bytes(array)
    return proto


def raw_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """The elements in C order and little-endian, those of two or four bits packed from the low bits up."""
    dtype = dtype_name(array.dtype)
    dense = np.ascontiguousarray(array).reshape(-1)
    bits = 2 if dtype in ("int2", "uint2") else 4 if dtype in ("int4", "uint4", "float4_e2m1fn") else 8
    if bits == 8:
        return dense.astype(dense.dtype.newbyteorder("<"), copy=False).tobytes()
    codes = dense.view(np.uint8) if dtype.startswith("float") else dense.astype(np.int8).view(np.uint8)
    codes = codes & (2**bits - 1)
    per_byte = 8 // bits
    groups = np.concatenate([codes, np.zeros(-len(codes) % per_byte, np.uint8)]).reshape(-1, per_byte)
    packed = np.zeros(len(groups), np.uint8)
    for place in range(per_byte):
        packed |= groups[:, place] << np.uint8(place * bits)
    return packed.tobytes()
