"""The first step: protobufs to checked graphs, in an order that can run, with every name and attribute accounted for.

Nothing is converted here; what this step lets through has known operators, the right number of operands, the
attributes that the operator's schema asks for, and names that are defined exactly once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

from aicore.errors import ModelError, UnsupportedError
from aicore.frontends.onnx.attributes import Attribute, decode
from aicore.frontends.onnx.order import in_order
from aicore.frontends.onnx.protos import (
    FunctionProto,
    GraphProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
    is_message,
)
from aicore.frontends.onnx.read import CONVERTED_SINCE, domain_name
from aicore.frontends.onnx.schema import Signature, is_known, signature
from aicore.frontends.onnx.texts import text, texts
from aicore.records import dataclass

DEPTH_LIMIT = 32
"""Levels of sub-graphs inside sub-graphs, and of functions inside functions."""

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a function of the model."""


@dataclass
class CheckedNode:
    """One node.

    name: what its origin is called. where: how errors call it. opset: the version of its domain in force.
    signature: of an operator that onnx knows; function: the key of a function of the model, which goes first.
    graphs: sub-graphs by attribute name. needs: names of values that it uses, sub-graphs included.
    """

    kind: str
    domain: str
    opset: int
    name: str
    where: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Attribute]
    graphs: dict[str, CheckedGraph]
    signature: Signature | None = None
    function: FunctionKey | None = None
    needs: tuple[str, ...] = ()


@dataclass
class CheckedGraph:
    """One graph with sorted nodes.

    free: names that it takes from the graphs around it, with what uses them.
    """

    name: str
    inputs: list[ValueInfoProto]
    outputs: list[ValueInfoProto]
    initializers: dict[str, TensorProto | SparseTensorProto]
    value_info: dict[str, ValueInfoProto]
    nodes: list[CheckedNode]
    free: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What is in force where a node stands.

    opsets: version by domain. functions: of the model, by key. extra: (domain, name) of ops that plugins add.
    """

    opsets: Mapping[str, int]
    functions: Mapping[FunctionKey, FunctionProto]
    extra: Collection[tuple[str, str]] = ()
    in_function: bool = False


def check_main(proto: GraphProto, context: Context) -> CheckedGraph:
    """The model's graph.

    Raises ModelError naming node and value for whatever breaks the format's rules, and UnsupportedError for an
    operator, domain or version that nothing installed can do.
    """
    graph = check_graph(proto, context, "")
    for name, user in graph.free.items():
        raise ModelError(f"{user}: {name!r} is not defined: no input, initializer or node has that name")
    return graph


def check_graph(proto: GraphProto, context: Context, where: str, depth: int = 0) -> CheckedGraph:
    """A graph or sub-graph; `where` says which one it is, in words that follow a node's name."""
    if depth > DEPTH_LIMIT:
        raise ModelError(f"sub-graphs are nested more than {DEPTH_LIMIT} deep{where}")
    initializers = _initializers(proto, where)
    inputs, outputs = list(proto.input), list(proto.output)
    defined = _names_of_inputs(inputs, where) | set(initializers)
    nodes = [check_node(node, index, context, where, depth) for index, node in enumerate(proto.node)]
    _define_outputs(nodes, defined)
    graph = CheckedGraph(
        text(proto.name), inputs, outputs, initializers, {text(v.name): v for v in proto.value_info}, in_order(nodes)
    )
    graph.free = _free_names(graph, defined, where)
    return graph


def check_node(node: NodeProto, index: int, context: Context, where: str, depth: int) -> CheckedNode:
    """One node, without regard to its neighbours."""
    kind, domain = text(node.op_type), domain_name(text(node.domain))
    inputs, outputs = texts(node.input), texts(node.output)
    name = text(node.name) or next((o for o in outputs if o), f"node {index}")
    called = f"{kind} {name!r}{where}"
    if not kind:
        raise ModelError(f"node {name!r}{where}: has no operator")
    attributes = _attributes(node, called, context.in_function)
    graphs = {
        key: check_graph(attribute.value, context, f" in {key} of {called}", depth + 1)
        for key, attribute in attributes.items()
        if attribute.type == "GRAPH" and is_message(attribute.value, "GraphProto")
    }
    free = {inner: None for graph in graphs.values() for inner in graph.free}
    needs = tuple(dict.fromkeys(filter(None, (*inputs, *free))))
    checked = CheckedNode(kind, domain, 0, name, called, inputs, outputs, attributes, graphs, None, None, needs)
    _find_operator(checked, text(node.overload), context)
    return checked


def _find_operator(node: CheckedNode, overload: str, context: Context) -> None:
    key = (node.domain, node.kind, overload)
    if key in context.functions:
        node.function = key
        _check_function_use(node, context.functions[key])
        return
    node.opset = _opset(node, context)
    node.signature = signature(node.kind, node.domain, node.opset)
    if not node.domain and node.opset < CONVERTED_SINCE:
        _check_unchanged(node)
    if node.signature is not None:
        _check_against_schema(node, node.signature)
    elif (node.domain, node.kind) not in context.extra:
        raise UnsupportedError(_why_unknown(node))


def _check_unchanged(node: CheckedNode) -> None:
    """Opsets before the first that has converters are read as far as their operators are the same there."""
    later = signature(node.kind, node.domain, CONVERTED_SINCE)
    if node.signature is not None and (later is None or later.since != node.signature.since):
        raise UnsupportedError(f"{node.where}: {node.kind} of opset {node.signature.since} is not supported")


def _opset(node: CheckedNode, context: Context) -> int:
    if node.domain in context.opsets:
        return context.opsets[node.domain]
    domain = node.domain or "ai.onnx"
    if any(domain == extra for extra, _ in context.extra):
        return 1
    raise ModelError(f"{node.where}: the model imports no operator set of the domain {domain!r}")


def _why_unknown(node: CheckedNode) -> str:
    domain = node.domain or "ai.onnx"
    if is_known(node.kind, node.domain):
        return f"{node.where}: opset {node.opset} of {domain!r} has no {node.kind} yet"
    return f"{node.where}: no operator {node.kind!r} is known in the domain {domain!r}"


def _check_against_schema(node: CheckedNode, schema: Signature) -> None:
    _check_count(node, "inputs", node.inputs, schema.min_inputs, schema.max_inputs)
    _check_count(node, "outputs", node.outputs, schema.min_outputs, schema.max_outputs)
    for index, formal in enumerate(schema.inputs):
        missing = index >= len(node.inputs) or not node.inputs[index]
        if missing and not formal.optional and not formal.variadic:
            raise ModelError(f"{node.where}: the required operand {formal.name!r} is missing")
    for name, attribute in node.attributes.items():
        if name not in schema.attributes:
            raise ModelError(f"{node.where}: {schema.kind} of opset {schema.since} has no attribute {name!r}")
        wanted = schema.attributes[name][0]
        if attribute.type not in (wanted, ""):  # a reference may leave its type open
            raise ModelError(f"{node.where}: attribute {name!r} is {attribute.type}, not {wanted}")
    for name, (_, required) in schema.attributes.items():
        if required and name not in node.attributes:
            raise ModelError(f"{node.where}: the required attribute {name!r} is missing")


def _check_count(node: CheckedNode, what: str, names: tuple[str, ...], least: int, most: int) -> None:
    if least <= len(names) <= most:
        return
    wanted = str(least) if least == most else f"{least} to {most}" if most < 1 << 20 else f"at least {least}"
    raise ModelError(f"{node.where}: has {len(names)} {what}, wants {wanted}")


def _check_function_use(node: CheckedNode, function: FunctionProto) -> None:
    _check_count(node, "inputs", node.inputs, 0, len(function.input))
    _check_count(node, "outputs", node.outputs, 0, len(function.output))
    known = {*function.attribute, *(default.name for default in function.attribute_proto)}
    for name in node.attributes:
        if name not in known:
            raise ModelError(f"{node.where}: the function has no attribute {name!r}")
    for name in function.attribute:
        if name not in node.attributes:
            raise ModelError(f"{node.where}: the required attribute {name!r} is missing")


def _attributes(node: NodeProto, where: str, in_function: bool) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for proto in node.attribute:
        if not text(proto.name):
            raise ModelError(f"{where}: an attribute has no name")
        if proto.name in found:
            raise ModelError(f"{where}: has the attribute {proto.name!r} twice")
        if proto.ref_attr_name and not in_function:
            raise ModelError(f"{where}: attribute {proto.name!r} refers to {proto.ref_attr_name!r} outside a function")
        found[proto.name] = decode(proto, where)
    return found


def _initializers(proto: GraphProto, where: str) -> dict[str, TensorProto | SparseTensorProto]:
    found: dict[str, TensorProto | SparseTensorProto] = {}
    dense = ((text(tensor.name), tensor) for tensor in proto.initializer)
    sparse = ((text(tensor.values.name), tensor) for tensor in proto.sparse_initializer)
    for name, tensor in (*dense, *sparse):
        if not name:
            raise ModelError(f"an initializer has no name{where}")
        if name in found:
            raise ModelError(f"two initializers are called {name!r}{where}")
        found[name] = tensor
    return found


def _names_of_inputs(inputs: list[ValueInfoProto], where: str) -> set[str]:
    names: set[str] = set()
    for value in inputs:
        if not text(value.name):
            raise ModelError(f"an input has no name{where}")
        if value.name in names:
            raise ModelError(f"two inputs are called {value.name!r}{where}")
        names.add(value.name)
    return names


def _define_outputs(nodes: list[CheckedNode], defined: set[str]) -> None:
    for node in nodes:
        for name in node.outputs:
            if name and name in defined:
                raise ModelError(f"{node.where}: its output {name!r} is defined already")
            defined.add(name)


def _free_names(graph: CheckedGraph, defined: set[str], where: str) -> dict[str, str]:
    free: dict[str, str] = {}
    for node in graph.nodes:
        for name in node.needs:
            if name not in defined:
                free.setdefault(name, node.where)
    seen: set[str] = set()
    for value in graph.outputs:
        if not text(value.name):
            raise ModelError(f"an output has no name{where}")
        if value.name in seen:
            raise ModelError(f"two outputs are called {value.name!r}{where}")
        seen.add(value.name)
        if value.name not in defined:
            free.setdefault(value.name, f"output {value.name!r}{where}")
    return free
