"""The intermediate representation: dims, types, values, nodes, graphs, and what builds and checks them."""

from aicore.ir.builder import Builder, Namespace, inline, retype
from aicore.ir.dims import Dim, DimExpr, Shape, is_unknown, parse_dim, substitute, symbol, symbols, unknown
from aicore.ir.dtypes import DTYPES, FLOATS, INTEGERS, NUMBERS, dtype_name, numpy_dtype
from aicore.ir.graph import Graph, constants, sort_nodes, walk_graphs
from aicore.ir.nodes import decomposed, needed_nodes
from aicore.ir.op import Op, Sample, as_tuple, has_gradient, is_fused, moved_bytes, subgraphs
from aicore.ir.parser import parse_graph
from aicore.ir.printer import VersionPrinter, op_text, print_graph, text_constants
from aicore.ir.types import TensorType, static_bytes
from aicore.ir.value import RECOMPUTED, Buffer, Node, Origin, Value, constant_value, describe
from aicore.ir.verify import diff, verify

__all__ = [
    "DTYPES",
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "RECOMPUTED",
    "Buffer",
    "Builder",
    "Dim",
    "DimExpr",
    "Graph",
    "Namespace",
    "Node",
    "Op",
    "Origin",
    "Sample",
    "Shape",
    "TensorType",
    "Value",
    "VersionPrinter",
    "as_tuple",
    "constant_value",
    "constants",
    "decomposed",
    "describe",
    "diff",
    "dtype_name",
    "has_gradient",
    "inline",
    "is_fused",
    "is_unknown",
    "moved_bytes",
    "needed_nodes",
    "numpy_dtype",
    "op_text",
    "parse_dim",
    "parse_graph",
    "print_graph",
    "retype",
    "sort_nodes",
    "static_bytes",
    "subgraphs",
    "substitute",
    "symbol",
    "symbols",
    "text_constants",
    "unknown",
    "verify",
    "walk_graphs",
]
