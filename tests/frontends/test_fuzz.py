"""Damaged models: whatever the damage, a typed error or a graph comes out, soon. Seeds make failures repeatable."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor
from onnx import helper

from aicore.errors import AicoreError
from aicore.frontends.onnx import load_model
from tests.frontends.models import BOOL, FLOAT, INT64, model, node, tensor

ROUNDS = 1500
SLOW = 5.0
"""Seconds; far above what a small model takes on a busy machine."""

INTEGERS = (0, 1, -1, 2, 3, 7, 255, -2, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**40, 10**6)
TEXTS = ("", "x", "y", "h", "N", "?", "ai.onnx", "Relu", "Loop", "axis", "axes", "\0", "ü", "../x")


def corpus() -> Iterator[onnx.ModelProto]:
    """One small model for each part of the importer."""
    w = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    yield model(
        [node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1]), node("Relu", ["h"], ["y"])],
        {"x": ["N", 3, 8, 8]},
        ["y"],
        {"w": w},
    )
    yield model(
        [node("Shape", ["x"], ["s"]), node("Reshape", ["x", "s"], ["h"]), node("Softmax", ["h"], ["y"], axis=1)],
        {"x": [2, "N", 3]},
        ["y"],
        opset=12,
    )
    yield model(
        [node("Slice", ["x", "a", "b"], ["h"]), node("Pad", ["h", "p"], ["y"])],
        {"x": [4, 5]},
        ["y"],
        {"a": np.array([0, 1]), "b": np.array([2, 9]), "p": np.array([1, 0, 0, 1])},
    )
    branch = helper.make_graph([node("Mul", ["x", "h"], ["t"])], "b", [], [onnx.ValueInfoProto(name="t")])
    yield model(
        [node("Exp", ["x"], ["h"]), node("If", ["p"], ["y"], then_branch=branch, else_branch=branch)],
        [tensor("x", FLOAT, [2]), tensor("p", BOOL, [])],
        ["y"],
    )
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["v", "x"], ["w"])],
        "body",
        [tensor("i", INT64, []), tensor("go", BOOL, []), tensor("v", FLOAT, [2])],
        [onnx.ValueInfoProto(name="on"), onnx.ValueInfoProto(name="w")],
    )
    yield model(
        [node("Loop", ["n", "", "x"], ["y"], body=body)], [tensor("x", FLOAT, [2]), tensor("n", INT64, [])], ["y"]
    )
    function = helper.make_function(
        "my", "F", ["a"], ["b"], [node("Elu", ["a"], ["b"], alpha=2.0)], [helper.make_opsetid("", 18)]
    )
    yield model(
        [node("F", ["x"], ["h"], domain="my"), node("HannWindow", ["n"], ["k"]), node("Add", ["h", "k"], ["y"])],
        [tensor("x", FLOAT, ["N"]), tensor("n", INT64, [])],
        ["y"],
        functions=[function],
        domains=["my"],
    )
    yield model(
        [node("BatchNormalization", ["x", "s", "s", "s", "s"], ["h"], spatial=1), node("Upsample", ["h", "k"], ["y"])],
        {"x": [1, 2, 4, 4]},
        ["y"],
        {"s": np.ones(2, np.float32), "k": np.ones(4, np.float32)},
        opset=8 + 1,
    )


CORPUS = list(corpus())


def damaged_bytes(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    if rng.random() < 0.1:
        return bytes(data[: rng.randrange(len(data))])
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data)) if data else 0
        match rng.randrange(4):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                data[at : at + 1] = rng.choice((b"\0", b"\x7f", b"\x80", b"\xff"))
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(data)


def messages(root: Any) -> list[Any]:
    found, todo = [], [root]
    while todo:
        message = todo.pop()
        found.append(message)
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                todo.extend(value if field.is_repeated else [value])
    return found


def some_value(field: Any, rng: random.Random) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_INT64:
            return rng.choice(INTEGERS)
        case FieldDescriptor.TYPE_INT32:
            return max(-(2**31), min(2**31 - 1, rng.choice(INTEGERS)))
        case FieldDescriptor.TYPE_UINT64:
            return abs(rng.choice(INTEGERS))
        case FieldDescriptor.TYPE_STRING:
            return rng.choice(TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return rng.choice(TEXTS).encode() + rng.choice((b"", b"\xff"))
        case FieldDescriptor.TYPE_ENUM:
            return rng.choice([v.number for v in field.enum_type.values])
    return rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))


def damage(field: Any, message: Any, rng: random.Random) -> None:
    """Change one field of one message."""
    if field.is_repeated:
        items = getattr(message, field.name)
        if len(items) and rng.random() < 0.4:
            del items[rng.randrange(len(items))]
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            items.add().CopyFrom(rng.choice(list(items)) if len(items) else items.add())
        elif len(items):
            items[rng.randrange(len(items))] = some_value(field, rng)
        else:
            items.append(some_value(field, rng))
    elif field.type == FieldDescriptor.TYPE_MESSAGE or rng.random() < 0.3:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, some_value(field, rng))


def damaged_fields(proto: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for _ in range(rng.choice((1, 1, 2, 3))):
        message = rng.choice(messages(copy))
        present = [field for field, _ in message.ListFields()]
        everything = list(message.DESCRIPTOR.fields)
        damage(rng.choice(present if present and rng.random() < 0.7 else everything), message, rng)
    return copy


DAMAGES: dict[str, Callable[[onnx.ModelProto, random.Random], Any]] = {
    "bytes": lambda proto, rng: damaged_bytes(proto.SerializeToString(), rng),
    "fields": damaged_fields,
}


@pytest.mark.parametrize("how", DAMAGES)
def test_damage_gives_a_typed_error_or_a_graph(how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "aicore.frontends.onnx")
    rng = random.Random(how)
    outcomes = {"graph": 0, "error": 0}
    for round_number in range(ROUNDS):
        source = DAMAGES[how](CORPUS[round_number % len(CORPUS)], rng)
        start = time.perf_counter()
        try:
            load_model(source)
            outcomes["graph"] += 1
        except AicoreError:
            outcomes["error"] += 1
        assert time.perf_counter() - start < SLOW, f"round {round_number}"
    assert min(outcomes.values()) > 20, outcomes
