"""Checks that a graph keeps the rules, and the difference between two versions of it."""

from __future__ import annotations

from aicore.errors import AicoreError, GraphError
from aicore.ir.graph import Graph
from aicore.ir.inference import infer_types
from aicore.ir.op import subgraphs
from aicore.ir.value import Node, Value


def verify(graph: Graph, before: Graph | None = None) -> None:
    """Check the structure of the whole graph, and infer again the nodes that `before` did not have.

    Raises GraphError naming the node, and the rules that made it.
    """
    todo: list[tuple[Graph, set[Node]]] = [(graph, set() if before is None else set(before.nodes))]
    while todo:
        current, trusted = todo.pop()
        seen = set(current.inputs)
        for node in current.nodes:
            for value in node.inputs:
                if value is not None and value.constant is None and value not in seen:
                    raise _error(node, f"operand %{value.name} is used before it is defined")
            for value in node.outputs:
                if value in seen:
                    raise _error(node, f"%{value.name} is defined twice")
            seen.update(node.outputs)
            if node not in trusted:
                _check_types(node)
                todo.extend((sub, set()) for sub in subgraphs(node.op).values())
        _check_ends(current, seen)


def diff(old: Graph, new: Graph) -> tuple[list[Node], list[Node]]:
    """(nodes that only `old` has, nodes that only `new` has), by identity and in order."""
    before, after = set(old.nodes), set(new.nodes)
    return [n for n in old.nodes if n not in after], [n for n in new.nodes if n not in before]


def _check_types(node: Node) -> None:
    try:
        types = infer_types(node.op, node.inputs)
    except AicoreError as error:
        raise _error(node, str(error)) from error
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError) as error:
        raise _error(node, f"does not fit its operands: {error}") from error
    if len(types) != len(node.outputs):
        raise _error(node, f"has {len(node.outputs)} outputs, inference gives {len(types)}")
    for value, inferred in zip(node.outputs, types, strict=True):
        if not value.type.agrees(inferred):
            raise _error(node, f"%{value.name} is recorded as {value.type}, inference gives {inferred}")


def _check_ends(graph: Graph, seen: set[Value]) -> None:
    if len({value.name for value in graph.inputs}) != len(graph.inputs):
        raise GraphError("two inputs have the same name")
    if len({name for name, _ in graph.outputs}) != len(graph.outputs):
        raise GraphError("two outputs have the same name")
    for name, value in graph.outputs:
        if value.constant is None and value not in seen:
            raise GraphError(f"output {name!r} (%{value.name}) is computed by no node")
    outputs, inputs = dict(graph.outputs), {value.name: value for value in graph.inputs}
    for output, input_ in graph.state:
        if output not in outputs or input_ not in inputs:
            raise GraphError(f"state {output!r} -> {input_!r} names no output and input of the graph")
        if not outputs[output].type.agrees(inputs[input_].type):
            raise GraphError(
                f"state {input_!r}: {inputs[input_].type} would become {outputs[output].type} ({output!r})"
            )


def _error(node: Node, why: str) -> GraphError:
    rules = node.origin.rules()
    return GraphError(f"{node}{f' made by {chr(44).join(rules)}' if rules else ''}: {why}")
