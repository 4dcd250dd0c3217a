"""Graphs to ONNX models of the newest opset: fields become attributes or operands, fused ops their parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from onnx import IR_VERSION, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, defs
from onnx.helper import OP_SET_ID_VERSION_MAP

from aicore.errors import UnsupportedError
from aicore.frontends.onnx.attributes import Attribute
from aicore.frontends.onnx.fields import Written, check_types, written_fields
from aicore.frontends.onnx.metadata import write_metadata
from aicore.frontends.onnx.names import Names
from aicore.frontends.onnx.schema import Signature, signature
from aicore.frontends.onnx.write_protos import encode, tensor_proto, type_proto
from aicore.ir import Buffer, Builder, Graph, Node, Op, Value, as_tuple, is_fused
from aicore.ops import CORE
from aicore.ops.control import If, Loop, Scan

OLDEST_OPSET = 21
"""Later opsets added operators, element types and attributes, and gave nothing another meaning."""


def export_model(graph: Graph, opset: int | None = None) -> ModelProto:
    """The graph as a model of the newest opset that the installed onnx package knows, or of an older one.

    opset: 21 or later, for runtimes that do not know the newest yet.
    Fused ops are written as their parts, ops of plugins that have none as nodes of their domain.
    Raises UnsupportedError, naming the node, for what ONNX, or that opset of it, cannot express.
    """
    newest = defs.onnx_opset_version()
    if opset is not None and not OLDEST_OPSET <= opset <= newest:
        raise UnsupportedError(f"models are written with opset {OLDEST_OPSET} to {newest}, not {opset}")
    return _Exporter(opset or newest).model(graph)


class _Exporter:
    def __init__(self, opset: int) -> None:
        self._names = Names()
        self._by_buffer: dict[Buffer, str] = {}
        self._initializers: list[TensorProto] = []
        self._domains: set[str] = set()
        self._node_names: Counter[str] = Counter()
        self._opset = opset

    def model(self, graph: Graph) -> ModelProto:
        version = (
            IR_VERSION if self._opset == defs.onnx_opset_version() else OP_SET_ID_VERSION_MAP["ai.onnx", self._opset]
        )
        model = ModelProto(ir_version=version, producer_name="aicore")
        self._fill(model.graph, graph, {})
        model.graph.initializer.extend(self._initializers)
        write_metadata(graph, model)
        for domain in ("", *sorted(self._domains)):
            entry = model.opset_import.add()
            entry.domain, entry.version = domain, 1 if domain else self._opset
        return model

    def _fill(self, proto: GraphProto, graph: Graph, captured: Mapping[Value, str]) -> None:
        """Write inputs, nodes and outputs; captured inputs go by the names of the graph around."""
        for value in graph.inputs:
            if value in captured:
                self._names.give(value, captured[value])
                continue
            self._names.give(value, self._names.take(value.name))
            proto.input.append(_value_info(self._names.of(value), value))
        results = [(self._names.take(name), value) for name, value in graph.outputs]
        copies = self._claim(graph, results)
        todo = list(reversed(graph.nodes))
        while todo:
            node = todo.pop()
            if self._schema(node.op) is not None or (node.op.domain and not is_fused(node.op)):
                proto.node.append(self._node(node))
            else:
                todo.extend(reversed(self._parts(node)))
        for name, value in copies:
            proto.node.append(NodeProto(op_type="Identity", input=[self._operand(value)], output=[name]))
        proto.output.extend(_value_info(name, value) for name, value in results)

    def _claim(self, graph: Graph, results: list[tuple[str, Value]]) -> list[tuple[str, Value]]:
        """Call values by the names of the outputs that they are; inputs, constants and repeated ones need a copy."""
        made = {value for node in graph.nodes for value in node.outputs}
        copies = []
        for name, value in results:
            if value in made and value not in self._names:
                self._names.give(value, name)
            else:
                copies.append((name, value))
        return copies

    def _schema(self, op: Op) -> Signature | None:
        name = type(op).__name__
        return signature(name, "", self._opset) if CORE.get(name) is type(op) else None

    def _parts(self, node: Node) -> list[Node]:
        """The nodes of a fused op's decomposition; their results go by the names of the node's outputs."""
        if not is_fused(node.op):
            raise UnsupportedError(f"{node}: ONNX has no {type(node.op).__name__}, and it has no decomposition")
        builder = Builder(node.origin)
        results = as_tuple(node.op.decompose(builder, *node.inputs))
        made = {value for part in builder.nodes for value in part.outputs}
        for value, result in zip(node.outputs, results, strict=True):
            if result not in made or result in self._names:
                result = builder.Identity(result)
            self._names.give(result, self._names.of(value))
        return builder.nodes

    def _node(self, node: Node) -> NodeProto:
        op = node.op
        proto = NodeProto(op_type=type(op).__name__, domain=op.domain)
        if op.domain:
            self._domains.add(op.domain)
        names = sorted(node.origin.names())
        proto.name = self._node_name(names[0]) if len(names) == 1 else ""
        if isinstance(op, If | Loop | Scan):
            self._control_flow(proto, node)
        else:
            schema = self._schema(op)
            if schema is not None and self._opset < defs.onnx_opset_version():
                check_types(node, schema, self._opset)
            written = written_fields(node, schema, self._names.of(node.outputs[0]))
            self._operands(proto, node, written)
        proto.output.extend(self._names.of(value) for value in node.outputs)
        return proto

    def _node_name(self, name: str) -> str:
        """The name, numbered where another node has it: onnxruntime refuses to load two nodes of one name."""
        self._node_names[name] += 1
        count = self._node_names[name]
        return name if count == 1 else f"{name}#{count}"

    def _operands(self, proto: NodeProto, node: Node, written: Written) -> None:
        operands: list[Value | None] = list(node.inputs)
        for index, value in written.operands.items():
            operands.extend([None] * (index + 1 - len(operands)))
            if operands[index] is None:
                operands[index] = value
        proto.input.extend("" if value is None else self._operand(value) for value in operands)
        proto.attribute.extend(encode(name, attribute) for name, attribute in written.attributes.items())

    def _operand(self, value: Value) -> str:
        if value.constant is None or value in self._names:
            return self._names.of(value)
        buffer = value.constant
        if buffer not in self._by_buffer:
            name = self._names.of(value)
            self._by_buffer[buffer] = name
            self._initializers.append(tensor_proto(buffer.array, name))
        self._names.give(value, self._by_buffer[buffer])
        return self._by_buffer[buffer]

    def _control_flow(self, proto: NodeProto, node: Node) -> None:
        """Captured operands are left out: the sub-graphs use their names."""
        op, bodies = node.op, _bodies(node.op)
        own = _own_operands(op)
        operands = [None if value is None else self._operand(value) for value in node.inputs]
        while len(operands) < own:
            operands.append(None)
        proto.input.extend(name or "" for name in operands[:own])
        for name, body in bodies.items():
            inner = body.inputs[len(body.inputs) - len(operands) + own :]
            captured = {v: outer for v, outer in zip(inner, operands[own:], strict=True) if outer is not None}
            graph = GraphProto(name=name)
            self._fill(graph, body, captured)
            proto.attribute.append(encode(name, Attribute("GRAPH", graph)))
        if isinstance(op, Scan):
            proto.attribute.extend(encode(name, attribute) for name, attribute in _scan_attributes(op).items())


def _bodies(op: Op) -> dict[str, Graph]:
    if isinstance(op, If):
        return {"then_branch": op.then_branch, "else_branch": op.else_branch}
    return {"body": op.body}  # type: ignore[attr-defined]


def _own_operands(op: Op) -> int:
    """How many operands are the op's own; captured values follow."""
    match op:
        case Loop():
            return 2 + op.carried
        case Scan():
            return op.carried + op.num_scan_inputs
    return 1


def _scan_attributes(op: Scan) -> dict[str, Attribute]:
    found: dict[str, Any] = {"num_scan_inputs": Attribute("INT", op.num_scan_inputs)}
    for side in ("input", "output"):
        for what in ("axes", "directions"):
            numbers = getattr(op, f"scan_{side}_{what}")
            if numbers:
                found[f"scan_{side}_{what}"] = Attribute("INTS", numbers)
    return found


def _value_info(name: str, value: Value) -> ValueInfoProto:
    info = ValueInfoProto(name=name)
    info.type.CopyFrom(type_proto(value.type))
    return info
