"""An op's fields as a node holds them: attributes, and constant operands that were moved into fields."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from onnx import defs

from aicore.errors import UnsupportedError
from aicore.frontends.onnx._elements import CONSTRAINT_OF, NUMBER_OF
from aicore.frontends.onnx.attributes import Attribute
from aicore.frontends.onnx.schema import Signature, signature
from aicore.frontends.onnx.write_protos import tensor_proto
from aicore.ir import Buffer, Node, Value, constant_value, numpy_dtype
from aicore.records import dataclass

_NOT_WRITTEN = {
    "MaxPool": {"indices"},
    "LayerNormalization": {"statistics"},
    "Dropout": {"mask", "stream"},
}
"""Fields that the number of outputs of the ONNX node tells, or that ONNX does not have."""
_VECTORS = {"TopK": {"k"}}
"""Fields that hold a number where the operand is a vector of one element."""


@dataclass(frozen=True)
class Written:
    """attributes: by name. operands: constants by index, for fields that hold what was an operand."""

    attributes: dict[str, Attribute]
    operands: dict[int, Value]


def written_fields(node: Node, schema: Signature | None, called: str) -> Written:
    """How ONNX writes the fields of a node's op; without a schema, each becomes an attribute.

    called: what constants that become operands are called after.

    Raises UnsupportedError naming the node and the field that has no place.
    """
    op = node.op
    kind = type(op).__name__
    operand_of = {name: index for index, name in op.operand_fields.items()}
    written = Written({}, {})
    for field in fields(op):  # type: ignore[arg-type]
        value, name = getattr(op, field.name), field.name
        if value is None or name in _NOT_WRITTEN.get(kind, ()) or _is_redundant(node, name):
            continue
        if value is False and field.default is False and schema is not None and name not in schema.attributes:
            continue  # a flag that adds something to ONNX's operator, and is off
        if schema is None:
            written.attributes[name] = _attribute(node, name, _type_of(value), value)
        elif name in schema.attributes:
            attribute = _attribute(node, name, schema.attributes[name][0], value)
            # The checker expands functions and takes defaults for absent there.
            is_default = attribute == schema.defaults.get(name) and not schema.has_function
            if not is_default and value != () and not _contradicts(node, name):
                written.attributes[name] = attribute
        elif name in operand_of:
            array = _operand_array(node, schema, operand_of[name], value, name in _VECTORS.get(kind, ()))
            written.operands[operand_of[name]] = constant_value(array, f"{called}_{name}")
        elif not (is_younger(kind, name, schema.since) and value == field.default):
            raise UnsupportedError(f"{node}: ONNX has no place for {name}={value!r}")
    return written


def is_younger(kind: str, name: str, since: int) -> bool:
    """Whether a later version of a standard operator than the one of opset `since` added the attribute."""
    newest = signature(kind, "", defs.onnx_opset_version())
    return newest is not None and newest.since > since and name in newest.attributes


def check_types(node: Node, schema: Signature, opset: int) -> None:
    """Raise UnsupportedError for an operand of an element type that the operator takes in later opsets only."""
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        formal = schema.formal_input(index)
        if CONSTRAINT_OF[value.dtype] not in formal.types:
            raise UnsupportedError(f"{node}: opset {opset} takes no {value.dtype} for {formal.name}")


def _is_redundant(node: Node, name: str) -> bool:
    """Split tells the number of pieces twice: sizes say it, too."""
    if type(node.op).__name__ != "Split" or name != "num_outputs":
        return False
    return getattr(node.op, "split", None) is not None or len(node.inputs) > 1


def _contradicts(node: Node, name: str) -> bool:
    """The resolved pads of a convolution stand beside the rule that they came from; ONNX allows one of both."""
    return name == "pads" and getattr(node.op, "auto_pad", "NOTSET") not in ("NOTSET", "")


def _attribute(node: Node, name: str, kind: str, value: Any) -> Attribute:
    match kind, value:
        case "INT", str():
            return Attribute(kind, NUMBER_OF[value])
        case "INT", _:
            return Attribute(kind, int(value))
        case "FLOAT", _:
            return Attribute(kind, float(np.float32(value)))
        case "TENSOR", Buffer():
            return Attribute(kind, tensor_proto(value.array, name))
        case (("STRING" | "INTS" | "FLOATS" | "STRINGS"), _):
            return Attribute(kind, value)
    raise UnsupportedError(f"{node}: ONNX has no place for {name}={value!r}")


def _type_of(value: Any) -> str:
    match value:
        case bool() | int():
            return "INT"
        case float():
            return "FLOAT"
        case str():
            return "STRING"
        case Buffer():
            return "TENSOR"
        case tuple():
            return f"{_type_of(value[0])}S" if value else "INTS"
    return ""


def _operand_array(node: Node, schema: Signature, index: int, value: Any, is_vector: bool) -> np.ndarray[Any, Any]:
    array = np.array([value] if is_vector else value, numpy_dtype(_operand_dtype(node, schema, index, value)))
    return array.reshape(0) if value == () else array


def _operand_dtype(node: Node, schema: Signature, index: int, value: Any) -> str:
    """That of the first operand where the schema asks for it, else one that the schema allows for such a value."""
    formal, first = schema.formal_input(index), node.inputs[0] if node.inputs else None
    if first is not None and index and formal.type_text == schema.inputs[0].type_text:
        return first.dtype
    sample = value[0] if isinstance(value, tuple) and value else value
    if isinstance(sample, bool):
        return "bool"
    if isinstance(sample, float):
        return "float32"
    return "int64" if "tensor(int64)" in formal.types else "float32"
