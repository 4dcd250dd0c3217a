"""The graph: a topologically ordered tuple of nodes. A rewrite makes another one that shares most nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any

from aicore.errors import GraphError
from aicore.ir.op import Op, subgraphs
from aicore.ir.value import Node, Value
from aicore.records import dataclass


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs, named outputs, and nodes in an order in which they can run.

    state: (output name, input name) pairs; the output is the input's next value (running statistics, parameters).
    metadata: free text from the source file; it takes no part in equality.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[tuple[str, Value], ...]
    nodes: tuple[Node, ...]
    state: tuple[tuple[str, str], ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def kinds(self) -> frozenset[type[Op]]:
        """Classes of the nodes' ops."""
        return frozenset([type(node.op) for node in self.nodes])

    @cached_property
    def bases(self) -> frozenset[type]:
        """These classes, and all from which they derive."""
        return frozenset([base for kind in self.kinds for base in kind.__mro__])

    @cached_property
    def producer(self) -> dict[Value, Node]:
        """The node that computes each value."""
        return {value: node for node in self.nodes for value in node.outputs}

    @cached_property
    def uses(self) -> Counter[Value]:
        """How often each value is an operand or an output."""
        count = Counter(value for node in self.nodes for value in node.inputs if value is not None)
        count.update(value for _, value in self.outputs)
        return count

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The structure without names; sub-graphs compare by it, so that ops which hold one hash like any other."""
        number: dict[Value, int] = {value: i for i, value in enumerate(self.inputs)}

        def reference(value: Value | None) -> Any:
            if value is None or value.constant is not None:
                return value and value.constant
            return number[value]

        rows = []
        for node in self.nodes:
            rows.append((node.op, tuple(map(reference, node.inputs)), tuple(v.type for v in node.outputs)))
            for value in node.outputs:
                number[value] = len(number)
        return tuple(v.type for v in self.inputs), tuple(rows), tuple(reference(v) for _, v in self.outputs), self.state

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Graph) and self._hash == other._hash and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        from aicore.ir.printer import print_graph

        return print_graph(self)


def walk_graphs(graph: Graph) -> Iterator[Graph]:
    """The graph and every sub-graph inside it, outermost first; iterative, so depth costs no stack."""
    todo = [graph]
    while todo:
        current = todo.pop()
        yield current
        for node in current.nodes:
            todo.extend(subgraphs(node.op).values())


def constants(graph: Graph) -> dict[Value, None]:
    """Every constant that the graph refers to, in order of first use, sub-graphs included."""
    found: dict[Value, None] = {}
    for current in walk_graphs(graph):
        operands = [value for node in current.nodes for value in node.inputs]
        for value in (*operands, *(value for _, value in current.outputs)):
            if value is not None and value.constant is not None:
                found[value] = None
    return found


def sort_nodes(nodes: list[Node]) -> list[Node]:
    """A stable topological order; iterative. Raises GraphError naming a node on a cycle."""
    made = {value: node for node in nodes for value in node.outputs}
    open_, done = set[Node](), set[Node]()
    ordered: list[Node] = []
    for root in nodes:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            waiting = [made[v] for v in node.inputs if v in made and made[v] not in done] if node not in open_ else []
            if node in open_ or not waiting:
                stack.pop()
                open_.discard(node)
                done.add(node)
                ordered.append(node)
                continue
            open_.add(node)
            for other in waiting:
                if other in open_:
                    raise GraphError(f"{other}: the graph has a cycle through it")
            stack.extend(waiting)
    return ordered
