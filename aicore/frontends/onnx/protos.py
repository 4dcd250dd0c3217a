"""Messages of the ONNX format, to read models with.

They are those of the onnx package under names of their own: in a pool that is not the process's, so that both can be in
one process. Fields are the same, and so may messages of either be read. Whoever writes models, which others take,
makes messages of the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        SparseTensorProto,
        TensorProto,
        TypeProto,
        ValueInfoProto,
    )
else:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    from aicore.frontends.onnx.published import published

    _POOL = DescriptorPool()
    _POOL.AddSerializedFile(published().messages)

    def _message(name: str) -> type:
        return GetMessageClass(_POOL.FindMessageTypeByName(f"onnx.{name}"))

    AttributeProto = _message("AttributeProto")
    FunctionProto = _message("FunctionProto")
    GraphProto = _message("GraphProto")
    ModelProto = _message("ModelProto")
    NodeProto = _message("NodeProto")
    SparseTensorProto = _message("SparseTensorProto")
    TensorProto = _message("TensorProto")
    TypeProto = _message("TypeProto")
    ValueInfoProto = _message("ValueInfoProto")

__all__ = [
    "AttributeProto",
    "FunctionProto",
    "GraphProto",
    "ModelProto",
    "NodeProto",
    "SparseTensorProto",
    "TensorProto",
    "TypeProto",
    "ValueInfoProto",
    "is_message",
]


def is_message(value: object, name: str) -> bool:
    """Whether it is a message of that name, such as `GraphProto`, made here or by the onnx package."""
    descriptor = getattr(type(value), "DESCRIPTOR", None)  # of a class it is no message
    return getattr(descriptor, "full_name", "") == f"onnx.{name}"
