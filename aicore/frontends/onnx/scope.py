"""Names in force while nodes are converted, and names for what they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from aicore.frontends.onnx.attributes import Attribute
from aicore.ir import Builder, Node, Value
from aicore.records import dataclass


@dataclass(eq=False)
class Scope:
    """The names that a graph's nodes may use.

    captured: values of the graphs around, and the inputs that stand for them inside.
    attributes: of the function call that is being expanded, for its nodes to refer to.
    calls: how many calls deep. is_call: the nodes stand for a call, and so carry its name.
    """

    outer: Scope | None = None
    values: dict[str, Value] = field(default_factory=dict)
    captured: dict[Value, Value] = field(default_factory=dict)
    attributes: Mapping[str, Attribute] | None = None
    calls: int = 0
    is_call: bool = False

    def find(self, name: str) -> Value | None:
        """The value called `name`; one of a graph around becomes an input, unless it is a constant."""
        if name in self.values:
            return self.values[name]
        outside = None if self.outer is None else self.outer.find(name)
        if outside is None or outside.constant is not None:
            return outside
        return self.capture(outside)

    def capture(self, outside: Value) -> Value:
        """The input that stands for a value of the graph around."""
        if outside not in self.captured:
            self.captured[outside] = Value(outside.name, outside.type, dims=outside.dims)
        return self.captured[outside]


def name_outputs(
    builder: Builder, start: int, names: Sequence[str], results: Sequence[Value | None]
) -> tuple[Value | None, ...]:
    """Give the values that the nodes from `start` on made for these results the names of the file, and no other."""
    fresh = builder.nodes[start:]
    whole = len(fresh) == 1 and len(names) == len(results) and tuple(results) == fresh[0].outputs
    if whole and all(map(_is_called, results, names)):
        return fresh[0].outputs  # the usual case: an op as it is
    made = {value: node for node in fresh for value in node.outputs}
    wanted = {value: name for name, value in zip(names, results, strict=False) if value in made and name}
    renamed: dict[Value, Value] = {}
    for value, node in made.items():
        name = wanted.get(value, type(node.op).__name__.lower() if value.name in names else value.name)
        if name != value.name:
            renamed[value] = replace(value, name=name)
    if not renamed:
        return tuple(results)
    for index in range(start, len(builder.nodes)):
        node = builder.nodes[index]
        inputs = tuple(renamed.get(v, v) if v is not None else None for v in node.inputs)
        builder.nodes[index] = Node(node.op, inputs, tuple(renamed.get(v, v) for v in node.outputs), node.origin)
    return tuple(renamed.get(v, v) if v is not None else None for v in results)


def _is_called(value: Value | None, name: str) -> bool:
    return value is not None and value.name == name
