"""What a file leaves out means the same to an op as to ONNX, in every opset from 6 on, or a converter sees to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

import numpy as np
import onnx
import pytest

from aicore.frontends.onnx._elements import NAME_OF
from aicore.frontends.onnx.convert import conversion_of
from aicore.frontends.onnx.read import CONVERTED_SINCE
from aicore.frontends.onnx.schema import Signature, signature
from aicore.ops import CORE

SAME_THOUGH_DIFFERENT = {
    ("RNN", "activations"): "an empty tuple stands for the default of each direction",
    ("RNN", "hidden_size"): "0 stands for what the weights say",
    ("GRU", "hidden_size"): "0 stands for what the weights say",
    ("LSTM", "hidden_size"): "0 stands for what the weights say",
}
NEWEST = onnx.defs.onnx_opset_version()


def versions(name: str) -> Iterator[tuple[int, Signature]]:
    seen = set()
    for opset in range(CONVERTED_SINCE, NEWEST + 1):
        schema = signature(name, "", opset)
        if schema is not None and schema.since not in seen:
            seen.add(schema.since)
            yield opset, schema


def agrees(schema: Signature, attribute: str, field: Field[Any]) -> bool:
    default = field.default
    if attribute not in schema.defaults:
        return schema.attributes[attribute][1] or default is MISSING or default in (None, (), "")
    wanted = schema.defaults[attribute].value
    if isinstance(default, str) and isinstance(wanted, int):
        wanted = NAME_OF.get(wanted, wanted)
    if isinstance(wanted, float) and isinstance(default, float | int):
        return np.float32(default) == np.float32(wanted)
    return bool(default == wanted)


@pytest.mark.parametrize("name", sorted(name for name in CORE if onnx.defs.has(name, "")))
def test_attributes_and_their_defaults(name: str) -> None:
    held = {field.name: field for field in fields(CORE[name])}  # type: ignore[arg-type]
    for opset, schema in versions(name):
        if conversion_of(name, opset) is not None:
            continue
        for attribute in schema.attributes:
            place = f"{name} of opset {schema.since}: {attribute}"
            assert attribute in held, place
            assert agrees(schema, attribute, held[attribute]) or (name, attribute) in SAME_THOUGH_DIFFERENT, place
