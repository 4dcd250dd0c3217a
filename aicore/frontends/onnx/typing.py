"""TypeProto and ValueInfoProto to aicore's types and values."""

from __future__ import annotations

from aicore.errors import ModelError, UnsupportedError
from aicore.frontends.onnx._elements import NAME_OF, type_text
from aicore.frontends.onnx.protos import TypeProto, ValueInfoProto
from aicore.frontends.onnx.texts import text
from aicore.ir import Dim, TensorType, Value, symbol, unknown


def declared_type(declared: ValueInfoProto) -> TensorType | None:
    """The tensor type that a value is declared with, None when it has none.

    Raises UnsupportedError for sequences, maps, optionals and sparse tensors, and for an unknown element type.
    """
    if not declared.HasField("type"):
        return None
    text(declared.name)
    kind = declared.type.WhichOneof("value")
    if kind is None:
        return None
    if kind != "tensor_type":
        raise UnsupportedError(f"{declared.name!r} is a {kind.removesuffix('_type')}; aicore has tensors only")
    tensor = declared.type.tensor_type
    if not tensor.elem_type:
        return None
    if tensor.elem_type not in NAME_OF:
        raise UnsupportedError(f"{declared.name!r}: element type {type_text(tensor.elem_type)} is not supported")
    return TensorType(NAME_OF[tensor.elem_type], _dims(tensor))


def input_value(declared: ValueInfoProto, actual: TensorType | None = None) -> Value:
    """An input of a graph.

    actual: what is known of its operand, for the input of a sub-graph. The dtype must agree; a shape that the file does
    not declare is open, because loops may change it.
    Raises ModelError when there is no element type, or when both contradict each other.
    """
    wanted = declared_type(declared)
    if wanted is None:
        if actual is None:
            raise ModelError(f"input {declared.name!r} has no element type")
        return Value(declared.name, TensorType(actual.dtype))
    if actual is None or wanted.agrees(actual):
        return Value(declared.name, wanted)
    if wanted.dtype != actual.dtype:
        raise ModelError(f"input {declared.name!r} is declared as {wanted}, but its operand is {actual}")
    return Value(declared.name, TensorType(wanted.dtype))  # a stale shape: the op finds out what holds


def dim_of(proto: TypeProto.Tensor, index: int) -> Dim:
    """One dim: a number, a symbol, or unknown where the file gives neither, an empty name or a negative number."""
    dim = proto.shape.dim[index]
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else unknown()
    name = text(dim.dim_param).strip()
    return unknown() if not name or name.startswith("?") else symbol(name)


def _dims(tensor: TypeProto.Tensor) -> tuple[Dim, ...] | None:
    if not tensor.HasField("shape"):
        return None
    return tuple(dim_of(tensor, index) for index in range(len(tensor.shape.dim)))
