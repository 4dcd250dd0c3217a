"""How much of a program runs on 8-bit integers, and why the rest does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aicore.ir import Graph, Node, Value
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct, GemmAct, MatMulAdd, MatMulAddAct, ScaleActConv
from aicore.ops.layout import ChannelsLast
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.quantization import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear
from aicore.ops.quantized_linear import ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul
from aicore.ops.recurrent import GRU, LSTM, RNN
from aicore.program import Program
from aicore_int8_quant.linear_nodes import node_name
from aicore_int8_quant.ops import Int8Linear, Int8Lookup
from aicore_int8_quant.passes.fuse import is_quantized

FLOAT_CONVOLUTIONS = (Conv, ConvTranspose, ConvAct, ConvAdd, ConvAddAct, ScaleActConv)
FLOAT_PRODUCTS = (*FLOAT_CONVOLUTIONS, Gemm, MatMul, GemmAct, MatMulAdd, MatMulAddAct)
INTEGER_PRODUCTS = (Int8Linear, ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul)
_FOLDED = "(int8 weights of a file become float32 when it is compiled)"
"""Of ops that have no kernel for a float input and an int8 weight: the file is smaller, the program is not."""
_FASTER = "floating point is faster, or its weights have no codes that a kernel takes; explain() knows"
_BORDERS = (QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear)


@dataclass(frozen=True)
class Row:
    """One node of the compiled graph. kind: `int8`, `border` (it converts), `float`. products: it multiplies."""

    name: str
    op: str
    kind: str
    reason: str = ""
    products: bool = False


@dataclass(frozen=True)
class Coverage:
    """All nodes of a compiled graph."""

    rows: tuple[Row, ...]

    @property
    def share(self) -> float:
        """Of the nodes that multiply, those that do it with integers; 1 when there are none."""
        products = [row for row in self.rows if row.products]
        return sum(row.kind == "int8" for row in products) / len(products) if products else 1.0

    def summary(self) -> str:
        """One line, and one for each reason."""
        products = [row for row in self.rows if row.products]
        done = sum(row.kind == "int8" for row in products)
        counts = {kind: sum(row.kind == kind for row in self.rows) for kind in ("int8", "border", "float")}
        lines = [
            f"int8 coverage: {done} of {len(products)} products ({100 * self.share:.0f} %); of {len(self.rows)} nodes "
            f"{counts['int8']} run in int8, {counts['border']} convert, {counts['float']} stay in floating point"
        ]
        lines += self._by_reason("border", "convert") + self._by_reason("float", "in float")
        return "\n".join(lines)

    def _by_reason(self, kind: str, title: str) -> list[str]:
        """A line for each reason, the one of most nodes first."""
        reasons: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.kind == kind:
                reasons.setdefault(row.reason, []).append(row)
        lines = []
        for reason, rows in sorted(reasons.items(), key=lambda item: -len(item[1])):
            names = ", ".join(row.name for row in rows[:3])
            lines.append(f"  {len(rows)} {title}: {reason} [{names}{', ...' if len(rows) > 3 else ''}]")
        return lines

    def to_json(self) -> dict[str, Any]:
        rows = [{"name": r.name, "op": r.op, "kind": r.kind, "reason": r.reason} for r in self.rows]
        return {"share": self.share, "nodes": rows}


def coverage(program: Program, kept: Mapping[str, str] | None = None) -> Coverage:
    """Of a program of any quantised model. kept: reasons by name of node."""
    return graph_coverage(program.graph, kept or {})


def graph_coverage(graph: Graph, kept: Mapping[str, str]) -> Coverage:
    """Of a graph whose passes have run."""
    borders = _borders(graph)
    real = {node.outputs[0] for node in graph.nodes if isinstance(node.op, DequantizeLinear)}
    return Coverage(tuple(_row(node, kept, borders, bool(real.intersection(node.inputs[:1]))) for node in graph.nodes))


def _borders(graph: Graph) -> dict[Node, str]:
    """The nodes that convert, and what makes the floats that they read, or reads those that they make."""
    maker = {value: _kind(node) for node in graph.nodes for value in node.outputs}
    readers: dict[Value, set[str]] = {value: {"the caller"} for _, value in graph.outputs}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers.setdefault(value, set()).add(_kind(node))
    found: dict[Node, str] = {}
    for node in graph.nodes:
        if isinstance(node.op, DequantizeLinear):
            by = readers.get(node.outputs[0], {"no node of this graph"})
            found[node] = f"float is read by {', '.join(sorted(by))}"
        elif isinstance(node.op, _BORDERS) and node.inputs[0] is not None:
            found[node] = f"float comes from {maker.get(node.inputs[0], 'the caller')}"
    return found


def _kind(node: Node) -> str:
    return type(node.op.inner if isinstance(node.op, ChannelsLast) else node.op).__name__


def _row(node: Node, kept: Mapping[str, str], borders: Mapping[Node, str], has_codes: bool) -> Row:
    """has_codes: its first operand is made of codes."""
    op, kind = node.op.inner if isinstance(node.op, ChannelsLast) else node.op, _kind(node)
    names = [name for name in node.origin.names() if name in kept] or [node_name(node)]
    if isinstance(op, _BORDERS):
        return Row(names[0], kind, "border", borders.get(node, ""))
    if isinstance(op, INTEGER_PRODUCTS):
        return Row(names[0], kind, "int8", products=True)
    if isinstance(op, Int8Lookup) or is_quantized(Node(op, node.inputs[:1], node.outputs)):
        return Row(names[0], kind, "int8")
    multiplies = isinstance(op, FLOAT_PRODUCTS)
    reason = f"no int8 kernel for {kind}"
    if isinstance(op, LSTM | GRU | RNN):
        reason += f" {_FOLDED}"
    if multiplies:
        why = _FASTER if has_codes else f"its input has no codes {_FOLDED}"
        reason = kept.get(names[0], why)
    return Row(names[0], kind, "float", reason, multiplies)
