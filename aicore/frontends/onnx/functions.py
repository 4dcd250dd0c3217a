"""Operators that onnx defines by a function body: what to put in their place when aicore has no op of that name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from onnx import FunctionProto, NodeProto, TypeProto, defs

from aicore.errors import UnsupportedError
from aicore.frontends.onnx.validate import CheckedNode
from aicore.frontends.onnx.write_protos import encode, type_proto
from aicore.ir import Value


def schema_function(node: CheckedNode, inputs: Sequence[Value | None]) -> FunctionProto:
    """The body of the node's operator, for the types and attributes at hand.

    Raises UnsupportedError when the operator has none that suits the model's opset.
    """
    body = None
    schema = None if node.signature is None else _schema(node)
    if schema is not None:
        body = _plain_body(schema, node.opset) or _typed_body(schema, node, inputs)
    if body is None:
        raise UnsupportedError(f"{node.where}: the operator {node.kind} is not supported")
    if not body.opset_import:
        entry = body.opset_import.add()
        entry.domain, entry.version = node.domain, node.opset
    return body


def _schema(node: CheckedNode) -> defs.OpSchema | None:
    """None where the installed onnx is older than the operator."""
    try:
        return defs.get_schema(node.kind, node.opset, node.domain)
    except defs.SchemaError:
        return None


def _plain_body(schema: Any, opset: int) -> FunctionProto | None:
    version = _suitable(schema.function_opset_versions, opset)
    return None if version is None else _parsed(schema.get_function_with_opset_version(version))


def _typed_body(schema: Any, node: CheckedNode, inputs: Sequence[Value | None]) -> FunctionProto | None:
    """The body of an operator whose body depends on attributes, types or which operands are there."""
    version = _suitable(schema.context_dependent_function_opset_versions, node.opset)
    if version is None:
        return None
    types = [TypeProto() if value is None else type_proto(value.type) for value in inputs]
    try:
        content = schema.get_context_dependent_function_with_opset_version(
            version, _node_proto(node).SerializeToString(), [proto.SerializeToString() for proto in types]
        )
    except (RuntimeError, ValueError, TypeError, IndexError, defs.SchemaError) as error:
        raise UnsupportedError(f"{node.where}: onnx cannot write {node.kind} as a function: {error}") from error
    return _parsed(content)


def _suitable(versions: Sequence[int], opset: int) -> int | None:
    """The newest body that is not newer than the model, else the oldest; each says which opset it is written in."""
    return max((v for v in versions if v <= opset), default=min(versions, default=None))


def _parsed(content: bytes) -> FunctionProto | None:
    try:
        body = FunctionProto.FromString(content)
    except DecodeError:
        return None
    return body if body.node else None


def _node_proto(node: CheckedNode) -> NodeProto:
    proto = NodeProto(op_type=node.kind, domain=node.domain, name=node.name)
    proto.input.extend(node.inputs)
    proto.output.extend(node.outputs)
    proto.attribute.extend(encode(name, attribute) for name, attribute in node.attributes.items())
    return proto
