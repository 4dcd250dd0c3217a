"""Graphs as text. `parse_graph` of aicore.ir.parser reads it back: print(parse(print(g))) == print(g).

    graph (%x: float32[N,4]) {
      const %w: float32[4,4] = @0c51d2c5a9b8a07e
      %y: float32[N,4] = Gemm(%x, %w){transB=1} from ["/fc1/MatMul"] by ["fuse-bias#3"]
      return "y"=%y
    }

Constants of up to 16 elements are in line, one element broadcast over a shape is a `splat`, larger ones are named by
digest. Names are made unique, and unknown dims numbered from 0, so that equal graphs give equal text. What can be
derived (fixed values, known contents) is not printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from typing import Any

import numpy as np

from aicore.errors import GraphError
from aicore.ir.dims import Dim, DimExpr, substitute, symbol, symbols
from aicore.ir.dtypes import dtype_name
from aicore.ir.graph import Graph
from aicore.ir.op import Op
from aicore.ir.types import TensorType
from aicore.ir.value import Buffer, Node, Value

INLINE_LIMIT = 16
"""Constants of at most this many elements are written in line."""

_PLAIN_NAME = re.compile(r"[\w.~/-]+")


def print_graph(graph: Graph) -> str:
    """The text of the graph. Raises GraphError for an attribute that text cannot hold."""
    return _Printer().graph(graph, "")


class VersionPrinter:
    """Prints versions of one graph: a value has the same name, and an unknown dim the same number, in all of them."""

    def __init__(self) -> None:
        self._printer = _Printer(_Names())

    def text(self, graph: Graph) -> str:
        """As `print_graph`, which names each version anew. Raises GraphError as it does."""
        return self._printer.graph(graph, "")


def op_text(op: Op) -> str:
    """`Conv{strides=[2, 2]}`: the op with the fields that differ from their defaults, large arrays by digest.

    Equal ops give equal text, in every process. Raises GraphError for an attribute that text cannot hold.
    """
    return _Printer().literal(op, "")


def text_constants(graph: Graph) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays that `print_graph` names by digest; `parse_graph` needs them."""
    printer = _Printer()
    printer.graph(graph, "")
    return printer.stored


def unknown_names(dim: Dim) -> list[str]:
    """Names of the unknowns in a dim, oldest first.

    The parser makes new ones in this order, so that the next print numbers them alike.
    """
    found = [name for name in symbols(dim) if name.startswith("?")]
    return sorted(found, key=lambda name: (int(name[1:]) if name[1:].isdigit() else -1, name))


class _Names:
    """Unique names for the values of one graph, or of all its versions; a closed sub-graph of one graph has its own."""

    def __init__(self) -> None:
        self._of: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}  # where counting goes on for each name, else many equal ones cost a square

    def of(self, value: Value) -> str:
        if value not in self._of:
            self._of[value] = self._unique(value.name or "v")
        name = self._of[value]
        return "%" + (name if _PLAIN_NAME.fullmatch(name) else json.dumps(name))

    def _unique(self, hint: str) -> str:
        name = hint
        while name in self._taken:
            self._last[hint] = self._last.get(hint, 0) + 1
            name = f"{hint}~{self._last[hint]}"
        self._taken.add(name)
        return name


class _Printer:
    """names: for all graphs that are printed; None gives each one names of its own."""

    def __init__(self, names: _Names | None = None) -> None:
        self.stored: dict[str, np.ndarray[Any, Any]] = {}
        self._unknown: dict[str, Dim] = {}
        self._names = names

    def graph(self, graph: Graph, indent: str) -> str:
        names = self._names or _Names()
        inner = indent + "  "
        shown: set[Value] = set()
        head = ", ".join(f"{names.of(v)}: {self.type(v.type)}" for v in graph.inputs)
        lines: list[str] = []
        for node in graph.nodes:
            lines += self._constants(node.inputs, names, shown, inner)
            lines.append(self._node(node, names, inner))
        lines += self._constants((value for _, value in graph.outputs), names, shown, inner)
        ends = ", ".join(f"{json.dumps(name)}={names.of(value)}" for name, value in graph.outputs)
        state = "".join(f" state {json.dumps(o)}->{json.dumps(i)}" for o, i in graph.state)
        lines.append(f"{inner}return {ends}{state}")
        return "\n".join([f"graph ({head}) {{", *lines, f"{indent}}}"])

    def _constants(self, values: Iterable[Value | None], names: _Names, shown: set[Value], indent: str) -> list[str]:
        """Lines for constants that are used here for the first time."""
        lines = []
        for value in values:
            if value is not None and value.constant is not None and value not in shown:
                shown.add(value)
                name, content = names.of(value), self.array(value.constant)
                lines.append(f"{indent}const {name}: {self.type(value.type)} = {content}")
        return lines

    def _node(self, node: Node, names: _Names, indent: str) -> str:
        operands = ", ".join("_" if v is None else names.of(v) for v in node.inputs)
        attributes = self.attributes(node.op, indent)
        results = ", ".join(f"{names.of(v)}: {self.type(v.type)}" for v in node.outputs)
        sources, rules = node.origin.names(), node.origin.rules()
        source_text = f" from {json.dumps(sources)}" if sources else ""
        rule_text = f" by {json.dumps(rules)}" if rules else ""
        return f"{indent}{results} = {type(node.op).__name__}({operands}){attributes}{source_text}{rule_text}"

    def type(self, tensor: TensorType) -> str:
        if tensor.shape is None:
            return f"{tensor.dtype}[*]"
        return f"{tensor.dtype}[{','.join(map(self.dim, tensor.shape))}]"

    def dim(self, dim: Dim) -> str:
        for name in unknown_names(dim):
            self._unknown.setdefault(name, symbol(f"?{len(self._unknown)}"))
        return str(substitute(dim, self._unknown))

    def array(self, buffer: Buffer) -> str:
        array = buffer.array
        if buffer.is_splat:
            return f"splat {_element(array.flat[0])}"
        if array.size <= INLINE_LIMIT:
            return f"[{', '.join(map(_element, array.ravel()))}]"
        self.stored[buffer.digest] = array
        return f"@{buffer.digest}"

    def attributes(self, op: Op, indent: str) -> str:
        """Fields that differ from their default, in braces."""
        shown = []
        for field in fields(op):  # type: ignore[arg-type]
            value = getattr(op, field.name)
            if value is field.default:
                continue  # most are, and their texts need not be compared
            text = self.literal(value, indent)
            if text != self._default(field, indent):
                shown.append(f"{field.name}={text}")
        return "{" + ", ".join(shown) + "}" if shown else ""

    def _default(self, field: Field[Any], indent: str) -> str | None:
        return None if field.default is MISSING else self.literal(field.default, indent)

    def literal(self, value: Any, indent: str) -> str:
        match value:
            case Graph():
                return self.graph(value, indent)
            case Op():
                return type(value).__name__ + self.attributes(value, indent)
            case Buffer():
                tensor = TensorType(dtype_name(value.array.dtype), value.array.shape)
                return f"const {tensor} {self.array(value)}"
            case DimExpr():
                return f"dim {self.dim(value)}"
            case tuple():
                return "[" + ", ".join(self.literal(item, indent) for item in value) + "]"
            case np.generic():
                return self.literal(value.item(), indent)
            case str():
                return json.dumps(value)
            case float():
                return float.__repr__(value)
            case None | bool() | int():
                return repr(value)
        raise GraphError(f"an attribute of type {type(value).__name__} cannot be written as text: {value!r}")


def _element(x: Any) -> str:
    """One element of an array, in the shortest form that reads back to the same value of its dtype."""
    if isinstance(x, bytes):
        return json.dumps(x.decode("utf-8", "surrogateescape"))
    if isinstance(x, str | np.str_):
        return json.dumps(str(x))
    if isinstance(x, np.complexfloating):
        return json.dumps(str(x))
    return str(x)
