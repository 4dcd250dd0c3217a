"""Element types: the numbers of TensorProto.DataType, aicore's names, and the texts of ONNX type constraints."""

from __future__ import annotations

from aicore.frontends.onnx.protos import TensorProto
from aicore.ir import DTYPES

_OWN_NAMES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "FLOAT4E2M1": "float4_e2m1fn",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
    "FLOAT8E8M0": "float8_e8m0fnu",
}

NAME_OF: dict[int, str] = {
    number: name
    for onnx_name, number in TensorProto.DataType.items()
    if (name := _OWN_NAMES.get(onnx_name, onnx_name.lower())) in DTYPES
}
"""TensorProto.DataType to the name of the element type."""

NUMBER_OF: dict[str, int] = {name: number for number, name in NAME_OF.items()}
"""The name of an element type to TensorProto.DataType."""

CONSTRAINT_OF: dict[str, str] = {
    name: f"tensor({TensorProto.DataType.Name(number).lower()})" for number, name in NAME_OF.items()
}
"""The name of an element type as the type constraints of an ONNX schema write it."""


def type_text(number: int) -> str:
    """What to call a TensorProto.DataType in a message, known or not."""
    if number in NAME_OF:
        return NAME_OF[number]
    try:
        return str(TensorProto.DataType.Name(number))
    except ValueError:
        return f"number {number}"
