"""Graphs of the earlier version: a list of records becomes a Graph, which passes and every backend take as any other.

graph = graph_of([{"op_type": "MATMUL", "inputs": ["x"], "params": ["w"], "output_id": "y"}], {"x": x, "w": w})
"""

from aicore.frontends.records.graph import graph_of, parameters_of
from aicore.frontends.records.record import Extra, Record, read_records

__all__ = ["Extra", "Record", "graph_of", "parameters_of", "read_records"]
