"""The second step: checked graphs to Graphs, node by node, sub-graphs closed, functions expanded in place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aicore.errors import AicoreError, InferenceError, ModelError, UnsupportedError
from aicore.frontends.onnx.attributes import Attribute, Reference, decode
from aicore.frontends.onnx.checks import check_declared, check_operand_types
from aicore.frontends.onnx.convert import SourceNode, conversion_of, to_array
from aicore.frontends.onnx.convert.source import Converter
from aicore.frontends.onnx.external import ExternalData
from aicore.frontends.onnx.metadata import read_metadata, read_state
from aicore.frontends.onnx.order import in_order
from aicore.frontends.onnx.protos import FunctionProto, ValueInfoProto
from aicore.frontends.onnx.read import ModelFile, domain_name, opset_versions
from aicore.frontends.onnx.scope import Scope, name_outputs
from aicore.frontends.onnx.texts import text, texts
from aicore.frontends.onnx.typing import input_value
from aicore.frontends.onnx.validate import (
    DEPTH_LIMIT,
    CheckedGraph,
    CheckedNode,
    Context,
    FunctionKey,
    check_main,
    check_node,
)
from aicore.ir import Builder, Graph, Op, Origin, TensorType, Value, as_tuple, constant_value
from aicore.ir.builder import BAD_OPERANDS
from aicore.ops import CORE

_NO_DATA: Mapping[int, memoryview] = {}

EXPANDED_LIMIT = 100_000
"""Nodes that the functions of one model may become: a few that call each other could fill the memory."""


class Importer:
    """Turns one model into a Graph.

    extra_ops: ops of plugins, found by domain and class name.
    overridable: names of initializers that are to be inputs.
    """

    def __init__(self, model: ModelFile, extra_ops: Iterable[type[Op]] = (), overridable: Collection[str] = ()) -> None:
        self.model = model
        self.external = ExternalData(model.folder)
        self.overridable = frozenset(overridable)
        self._extra = {(domain_name(cls.domain), cls.__name__): cls for cls in extra_ops}
        self._functions = _functions(model.proto.functions)
        self._bodies: dict[FunctionKey, list[CheckedNode]] = {}
        self._expanded = 0

    def run(self) -> Graph:
        """The model's graph; raises ModelError, UnsupportedError or InferenceError naming the node at fault."""
        context = Context(self.model.opsets, self._functions, self._extra.keys())
        checked = check_main(self.model.proto.graph, context)
        unknown = self.overridable - checked.initializers.keys()
        if unknown:
            raise ModelError(f"{min(unknown)!r} cannot be overridden: the model has no initializer of that name")
        scope, builder = Scope(), Builder()
        inputs = self._main_inputs(checked, scope)
        self.convert(checked.nodes, scope, builder)
        outputs = {value.name: self._output(value, scope, "") for value in checked.outputs}
        self._check_declared(checked, scope)
        return builder.graph(inputs, outputs, read_state(self.model.proto), read_metadata(self.model.proto))

    def op_class(self, domain: str, kind: str) -> type[Op] | None:
        """The op that has the name of an ONNX operator."""
        if domain:
            return self._extra.get((domain, kind))
        return CORE.get(kind)

    def convert(self, nodes: Sequence[CheckedNode], scope: Scope, builder: Builder) -> None:
        """Append what the nodes become to the builder, and enter their outputs into the scope."""
        outer_origin = builder.origin
        for node in nodes:
            if scope.is_call:
                self._count_expanded(node)
            else:
                builder.origin = Origin(node.name)
            self._convert_node(node, scope, builder)
        builder.origin = outer_origin

    def _count_expanded(self, node: CheckedNode) -> None:
        self._expanded += 1
        if self._expanded > EXPANDED_LIMIT:
            raise ModelError(f"{node.where}: the model's functions become more than {EXPANDED_LIMIT} nodes")

    def subgraph(self, checked: CheckedGraph, outer: Scope, types: Sequence[TensorType | None]) -> tuple[Graph, Scope]:
        """A sub-graph whose inputs have the given types where it declares none; the scope knows what it captures."""
        scope, builder = Scope(outer, attributes=outer.attributes, calls=outer.calls), Builder()
        self._constants(checked, scope)
        inputs = []
        for index, value in enumerate(checked.inputs):
            inputs.append(input_value(value, types[index] if index < len(types) else None))
            scope.values[value.name] = inputs[-1]
        self.convert(checked.nodes, scope, builder)
        outputs = {value.name: self._output(value, scope, f" of {checked.name!r}") for value in checked.outputs}
        return builder.graph(inputs, outputs), scope

    def _main_inputs(self, checked: CheckedGraph, scope: Scope) -> list[Value]:
        self._constants(checked, scope, self.model.raw_data)
        inputs = []
        for declared in checked.inputs:
            if declared.name in scope.values:
                check_declared(declared, scope.values[declared.name], "initializer")
                continue
            inputs.append(input_value(declared))
            scope.values[declared.name] = inputs[-1]
        listed = {value.name for value in checked.inputs}
        for name in sorted(self.overridable - listed):
            raise ModelError(f"{name!r} cannot be overridden: the model does not list it as an input")
        return inputs

    def _constants(self, checked: CheckedGraph, scope: Scope, raw_data: Mapping[int, memoryview] = _NO_DATA) -> None:
        for number, (name, tensor) in enumerate(checked.initializers.items()):
            if name in self.overridable and scope.outer is None:
                continue
            array = to_array(tensor, self.external, raw_data=raw_data.get(number))
            scope.values[name] = constant_value(array, name)

    def _convert_node(self, node: CheckedNode, scope: Scope, builder: Builder) -> None:
        inputs = [self._operand(node, name, scope) for name in node.inputs]
        node = _with_attributes(node, scope.attributes)
        if node.signature is not None:
            check_operand_types(node, node.signature, inputs)
        start = len(builder.nodes)
        results = self._results(node, inputs, scope, builder)
        if len(node.outputs) > len(results):
            raise UnsupportedError(
                f"{node.where}: gives no output number {len(results)} ({node.outputs[len(results)]!r})"
            )
        named = name_outputs(builder, start, node.outputs, results)
        for name, value in zip(node.outputs, named, strict=False):
            if not name:
                continue
            if value is None:
                raise UnsupportedError(f"{node.where}: its output {name!r} is not supported")
            scope.values[name] = value

    def _results(
        self, node: CheckedNode, inputs: Sequence[Value | None], scope: Scope, builder: Builder
    ) -> tuple[Value | None, ...]:
        if node.function is not None:
            return self._expand(self._functions[node.function], node, inputs, scope, builder, node.function)
        source = SourceNode(node, inputs, builder, scope, self)
        converter = conversion_of(node.kind, node.opset, node.domain)
        if converter is None and self.op_class(node.domain, node.kind) is None:
            from aicore.frontends.onnx.functions import schema_function  # imports onnx, which few models need

            return self._expand(schema_function(node, inputs), node, inputs, scope, builder)
        results = source.as_is() if converter is None else _converted(converter, source, node)
        for name in source.attributes.unread():
            raise UnsupportedError(f"{node.where}: attribute {name!r} is not supported")
        return as_tuple(results)

    def _expand(
        self,
        function: FunctionProto,
        call: CheckedNode,
        inputs: Sequence[Value | None],
        outer: Scope,
        builder: Builder,
        key: FunctionKey | None = None,
    ) -> tuple[Value | None, ...]:
        """The function's nodes in place of the call."""
        if outer.calls >= DEPTH_LIMIT:
            raise ModelError(f"{call.where}: functions call each other more than {DEPTH_LIMIT} deep")
        body = self._bodies.get(key) if key is not None else None
        if body is None:
            body = self._check_body(function, call)
        if key is not None:
            self._bodies[key] = body
        defaults = {proto.name: decode(proto, call.where) for proto in function.attribute_proto}
        if key is None and call.signature is not None:
            defaults |= call.signature.defaults
        scope = Scope(attributes={**defaults, **call.attributes}, calls=outer.calls + 1, is_call=True)
        scope.values.update((name, value) for name, value in zip(function.input, inputs, strict=False) if value)
        absent = {name for name in function.input if name not in scope.values}
        body = [_without(node, absent) for node in body]
        try:
            self.convert(body, scope, builder)
        except AicoreError as error:
            raise type(error)(f"{call.where}: {error}") from error
        return tuple(scope.find(name) for name in function.output)

    def _check_body(self, function: FunctionProto, call: CheckedNode) -> list[CheckedNode]:
        opsets = opset_versions(function.opset_import, f"{call.where}: its function")
        context = Context({**self.model.opsets, **opsets}, self._functions, self._extra.keys(), in_function=True)
        nodes = [
            check_node(node, i, context, f" in function {function.name!r}", 0) for i, node in enumerate(function.node)
        ]
        defined = set(function.input)
        for node in nodes:
            for name in node.outputs:
                if name and name in defined:
                    raise ModelError(f"{node.where}: its output {name!r} is defined already")
                defined.add(name)
        return in_order(nodes)

    def _operand(self, node: CheckedNode, name: str, scope: Scope) -> Value | None:
        if not name:
            return None
        value = scope.find(name)
        if value is None:
            raise ModelError(f"{node.where}: its operand {name!r} is not defined")
        return value

    def _output(self, declared: ValueInfoProto, scope: Scope, where: str) -> Value:
        value = scope.find(declared.name)
        if value is None:
            raise ModelError(f"output {declared.name!r}{where} is not defined")
        check_declared(declared, value, f"output{where}")
        return value

    def _check_declared(self, checked: CheckedGraph, scope: Scope) -> None:
        for name, declared in checked.value_info.items():
            if name in scope.values:
                check_declared(declared, scope.values[name], "value")


def _functions(protos: Iterable[FunctionProto]) -> dict[FunctionKey, FunctionProto]:
    found: dict[FunctionKey, FunctionProto] = {}
    for proto in protos:
        key = (domain_name(text(proto.domain)), text(proto.name), text(proto.overload))
        texts((*proto.input, *proto.output, *proto.attribute))
        if key in found:
            raise ModelError(f"two functions are called {proto.name!r} in the domain {proto.domain!r}")
        found[key] = proto
    return found


def _converted(converter: Converter, source: SourceNode, node: CheckedNode) -> Any:
    """What the converter makes of the node; like inference, it may trip over operands that do not fit."""
    try:
        return converter(source)
    except BAD_OPERANDS as error:
        raise InferenceError(f"{node.where}: does not fit its operands: {type(error).__name__}: {error}") from error


def _with_attributes(node: CheckedNode, given: Mapping[str, Attribute] | None) -> CheckedNode:
    """The node with references replaced by the attributes of the call; those that the call leaves out vanish."""
    if given is None or not any(isinstance(a.value, Reference) for a in node.attributes.values()):
        return node
    attributes = {}
    for name, attribute in node.attributes.items():
        if not isinstance(attribute.value, Reference):
            attributes[name] = attribute
        elif attribute.value.name in given:
            attributes[name] = given[attribute.value.name]
            if attribute.type and attributes[name].type != attribute.type:
                raise ModelError(f"{node.where}: attribute {name!r} is {attributes[name].type}, not {attribute.type}")
    return replace(node, attributes=attributes)


def _without(node: CheckedNode, absent: Collection[str]) -> CheckedNode:
    """The node of a function body without the operands that the call leaves out."""
    if not any(name in absent for name in node.inputs):
        return node
    return replace(node, inputs=tuple("" if name in absent else name for name in node.inputs))


def import_model(model: ModelFile, extra_ops: Iterable[type[Op]] = (), overridable: Collection[str] = ()) -> Graph:
    """The Graph of a model that read_model has read."""
    return Importer(model, extra_ops, overridable).run()
