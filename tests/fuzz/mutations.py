"""Seeded damage to models: bytes, fields, and changes that leave a model plausible enough to get as far as a run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper, numpy_helper

from tests.frontends.test_fuzz import damaged_bytes, damaged_fields

INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    5,
    17,
    255,
    -2,
    -7,
    65536,
    10**6,
    2**31 - 1,
    -(2**31),
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
NUMBERS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-30,
    1e30,
    3e38,
    float("nan"),
    float("inf"),
    float("-inf"),
    2.0**31,
    2.0**63,
    -3.7,
)
TEXTS = (b"", b"SAME_UPPER", b"VALID", b"linear", b"cubic", b"reflect", b"edge", b"add", b"bogus", b"\xff")
OPS = sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain})
Change = Callable[[ModelProto, GraphProto, random.Random], None]


def mutated(model: ModelProto, rng: random.Random) -> bytes:
    """The bytes of a damaged copy."""
    copy = ModelProto()
    copy.CopyFrom(model)
    how = rng.random()
    if how < 0.05:
        return damaged_bytes(copy.SerializeToString(), rng)
    if how < 0.15:
        return damaged_fields(copy, rng).SerializeToString()
    for _ in range(rng.choice((1, 1, 1, 2))):
        rng.choice(_CHANGES)(copy, rng.choice(_graphs(copy)), rng)
    return copy.SerializeToString()


def mutated_array(array: np.ndarray[Any, Any], rng: random.Random) -> np.ndarray[Any, Any]:
    """The array with another element, dtype, rank or length."""
    match rng.randrange(7):
        case 0:
            return array.astype(rng.choice(("int64", "float32", "int32", "float64", "int8", "bool", "uint64")))
        case 1:
            return array.reshape(-1) if rng.random() < 0.5 else array[None]
        case 2:
            return np.concatenate([array.reshape(-1)] * 2)[: rng.randrange(2 * array.size + 1)]
    if not array.size or array.dtype.kind not in "iuf":
        return array
    changed = array.copy()
    value: Any = rng.choice(NUMBERS)
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        value = max(int(limits.min), min(int(limits.max), rng.choice(INTEGERS)))
    with np.errstate(over="ignore"):
        changed.reshape(-1)[rng.randrange(array.size)] = value
    return changed


def with_constants(model: ModelProto, feeds: dict[str, np.ndarray[Any, Any]], rng: random.Random) -> ModelProto:
    """The model with some inputs, and their feeds, as initializers, so that constants are folded and shapes known."""
    share = rng.choice((0.0, 0.5, 1.0))
    for value in list(model.graph.input):
        if value.name in feeds and rng.random() < share:
            model.graph.initializer.append(numpy_helper.from_array(feeds.pop(value.name), value.name))
            model.graph.input.remove(value)
    return model


def _graphs(model: ModelProto) -> list[GraphProto]:
    found, todo = [], [model.graph]
    while todo:
        graph = todo.pop()
        found.append(graph)
        todo.extend(a.g for node in graph.node for a in node.attribute if a.type == AttributeProto.GRAPH)
    return found


def _node(graph: GraphProto, rng: random.Random) -> NodeProto:
    return rng.choice(list(graph.node)) if graph.node else NodeProto()


def _names(graph: GraphProto) -> list[str]:
    return [name for node in graph.node for name in (*node.input, *node.output)] + ["", "fresh"]


def _change_constant(model: ModelProto, graph: GraphProto, rng: random.Random) -> None:
    for tensor in rng.sample(list(graph.initializer), min(1, len(graph.initializer))):
        match rng.randrange(5):
            case 0:
                tensor.dims.append(rng.choice(INTEGERS))
            case 1:
                tensor.data_type = rng.randrange(26)
            case 2:
                graph.initializer.remove(tensor)
            case _:
                changed = mutated_array(numpy_helper.to_array(tensor), rng)
                tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))


def _change_attribute(model: ModelProto, graph: GraphProto, rng: random.Random) -> None:
    node = _node(graph, rng)
    if not node.attribute:
        return
    attribute = rng.choice(list(node.attribute))
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = rng.choice(INTEGERS)
        case AttributeProto.FLOAT:
            attribute.f = rng.choice(NUMBERS)
        case AttributeProto.STRING:
            attribute.s = rng.choice(TEXTS)
        case AttributeProto.INTS:
            numbers = [*attribute.ints, 1]
            numbers[rng.randrange(len(numbers))] = rng.choice(INTEGERS)
            attribute.ints[:] = numbers[: len(numbers) - rng.randrange(2)]


def _add_attribute(model: ModelProto, graph: GraphProto, rng: random.Random) -> None:
    node = _node(graph, rng)
    if not onnx.defs.has(node.op_type, node.domain):
        return
    schema = onnx.defs.get_schema(node.op_type, node.domain)
    absent = sorted(schema.attributes.keys() - {attribute.name for attribute in node.attribute})
    if not absent:
        return
    kind, name = onnx.defs.OpSchema.AttrType, rng.choice(absent)
    match schema.attributes[name].type:
        case kind.INT:
            node.attribute.append(helper.make_attribute(name, rng.choice(INTEGERS)))
        case kind.FLOAT:
            node.attribute.append(helper.make_attribute(name, rng.choice(NUMBERS)))
        case kind.INTS:
            node.attribute.append(
                helper.make_attribute(name, [rng.choice(INTEGERS) for _ in range(rng.randrange(1, 5))])
            )


def _rewire(model: ModelProto, graph: GraphProto, rng: random.Random) -> None:
    """Other operands and results: absent, of another type, defined twice, in a cycle."""
    node = _node(graph, rng)
    match rng.randrange(4):
        case 0 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(_names(graph))
        case 1:
            node.input.append(rng.choice(_names(graph)))
        case 2 if node.input:
            del node.input[-1]
        case _ if node.output:
            node.output[rng.randrange(len(node.output))] = rng.choice(_names(graph))


def _change_op(model: ModelProto, graph: GraphProto, rng: random.Random) -> None:
    if graph.node:
        _node(graph, rng).op_type = rng.choice(OPS)


def _change_type(model: ModelProto, graph: GraphProto, rng: random.Random) -> None:
    if not graph.input:
        return
    tensor = rng.choice(list(graph.input)).type.tensor_type
    match rng.randrange(4):
        case 0:
            tensor.elem_type = rng.randrange(26)
        case 1:
            tensor.shape.dim.add().dim_value = rng.choice(INTEGERS)
        case 2 if tensor.shape.dim:
            rng.choice(list(tensor.shape.dim)).dim_param = rng.choice(("N", "M", "?", "a b"))
        case _ if tensor.shape.dim:
            rng.choice(list(tensor.shape.dim)).dim_value = rng.choice(INTEGERS)


def _drop_node(model: ModelProto, graph: GraphProto, rng: random.Random) -> None:
    if len(graph.node) > 1:
        del graph.node[rng.randrange(len(graph.node))]


def _change_opset(model: ModelProto, graph: GraphProto, rng: random.Random) -> None:
    if model.opset_import:
        model.opset_import[0].version = rng.randrange(6, 27)


_CHANGES: tuple[Change, ...] = (
    *(_change_constant,) * 6,
    *(_change_attribute,) * 6,
    *(_add_attribute,) * 3,
    *(_rewire,) * 4,
    *(_change_type,) * 4,
    _change_op,
    _drop_node,
    _change_opset,
)
