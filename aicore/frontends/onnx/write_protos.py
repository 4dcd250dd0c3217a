"""Arrays, types and attributes to messages of the onnx package: the reverse of what reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import AttributeProto, TensorProto, TypeProto

from aicore.frontends.onnx._elements import NUMBER_OF
from aicore.frontends.onnx.attributes import FIELD_OF, REPEATED, Attribute, Reference
from aicore.ir import Dim, TensorType, dtype_name, is_unknown, symbol, symbols


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


def type_proto(tensor: TensorType) -> TypeProto:
    """The type as a message; an unknown dim has neither number nor name."""
    proto = TypeProto()
    proto.tensor_type.elem_type = NUMBER_OF[tensor.dtype]
    if tensor.shape is None:
        return proto
    proto.tensor_type.shape.SetInParent()
    for dim in tensor.shape:
        entry = proto.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            entry.dim_value = dim
        elif not is_unknown(dim):
            entry.dim_param = dim_text(dim)
    return proto


def dim_text(dim: Dim) -> str:
    """A symbolic dim as a dim_param: a symbol's bare name, or the expression."""
    names = symbols(dim)
    name = next(iter(names)) if len(names) == 1 else ""
    return name if name and dim == symbol(name) else str(dim)


def encode(name: str, attribute: Attribute) -> AttributeProto:
    """The attribute as a message."""
    proto = AttributeProto(name=name, type=AttributeProto.AttributeType.Value(attribute.type))
    field, value = FIELD_OF[attribute.type], attribute.value
    if isinstance(value, Reference):
        proto.ref_attr_name = value.name
    elif attribute.type in REPEATED:
        getattr(proto, field).extend(text.encode() if isinstance(text, str) else text for text in value)
    elif attribute.type in ("FLOAT", "INT", "STRING"):
        setattr(proto, field, value.encode() if attribute.type == "STRING" else value)
    else:
        getattr(proto, field).CopyFrom(value)
    return proto
