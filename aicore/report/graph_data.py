"""A graph as plain data for the page: nodes with kernels and times, edges, and blocks that repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aicore.errors import InputError
from aicore.ir import Graph, Node, Value, op_text
from aicore.kernels import Candidate
from aicore.report.blocks import repeated_blocks
from aicore.report.packing import Table, number
from aicore.runtime import Plan, Profile, ProfileRow, op_label

_LONGEST_TEXT = 2000
"""Of an op with its attributes."""
_MOST_SOURCES = 30


def graph_data(graph: Graph, plans: Sequence[Plan], profile: Profile | None) -> dict[str, Any]:
    """Nodes in running order, with what was chosen and measured for each.

    texts: strings that occur often; types of operands and edges, names of candidates and notes are positions in it.
    """
    texts = Table()
    chosen = _chosen(plans)
    rows = rows_by_node(plans, profile)
    inputs = {value: -1 - i for i, value in enumerate(graph.inputs)}
    producers = {**inputs, **{value: i for i, node in enumerate(graph.nodes) for value in node.outputs}}
    nodes = [_node(node, producers, chosen, rows.get(node), profile, texts) for node in graph.nodes]
    edges = [
        [producers[value], i, texts.position(str(value.type))]
        for i, node in enumerate(graph.nodes)
        for value in dict.fromkeys(node.inputs)
        if value in producers
    ]
    edges += [[producers[value], len(nodes) + k, texts.position(str(value.type))]
              for k, (_, value) in enumerate(graph.outputs) if value in producers]  # fmt: skip
    blocks = repeated_blocks([op_label(node.op) for node in graph.nodes])
    return {
        "nodes": nodes,
        "edges": edges,
        "inputs": [{"name": value.name, "type": str(value.type)} for value in graph.inputs],
        "outputs": [{"name": name, "type": str(value.type)} for name, value in graph.outputs],
        "blocks": [[block.start, block.length, block.count] for block in blocks],
        "texts": texts.values,
    }


def rows_by_node(plans: Sequence[Plan], profile: Profile | None) -> dict[Node, ProfileRow]:
    """The rows of steps; those of moves and control flow belong to no node of a plan.

    Raises InputError for a profile of other input shapes than those of the plans.
    """
    if profile is None:
        return {}
    steps = [step for plan in plans for step in plan.steps]
    rows = [row for row in profile.rows if row.value]
    made = [", ".join(str(value.type) for value in step.node.outputs) for step in steps]
    if made != [row.types for row in rows]:
        raise InputError("the profile is of other input shapes than those that the program ran last")
    return {step.node: row for step, row in zip(steps, rows, strict=True)}


def _chosen(plans: Sequence[Plan]) -> dict[Node, tuple[Plan, str, tuple[Candidate, ...]]]:
    """Plan, kernel and candidates; nodes that need no kernel have `alias`."""
    found: dict[Node, tuple[Plan, str, tuple[Candidate, ...]]] = {}
    for plan in plans:
        found.update((node, (plan, "alias", ())) for node in plan.aliased)
        for step in plan.steps:
            candidates = step.selection.candidates
            found[step.node] = (plan, candidates[0].name if candidates else step.kernel.name, candidates)
    return found


def _node(
    node: Node,
    producers: Mapping[Value, int],
    chosen: Mapping[Node, tuple[Plan, str, tuple[Candidate, ...]]],
    row: ProfileRow | None,
    profile: Profile | None,
    texts: Table,
) -> dict[str, Any]:
    plan, kernel, candidates = chosen.get(node, (None, "", ()))
    sources = node.origin.names()
    made = {
        "op": op_label(node.op),
        "name": node.outputs[0].name,
        "outputs": [[value.name, str(value.type)] for value in node.outputs],
        "inputs": [_operand(value, producers, texts) for value in node.inputs],
        "attributes": op_text(node.op)[:_LONGEST_TEXT],
        "sources": sources[:_MOST_SOURCES],
        "more_sources": max(len(sources) - _MOST_SOURCES, 0),
        "device": plan.device if plan else "",
        "kernel": kernel,
        "note": plan.notes.get(node, "") if plan else "",
        "candidates": [
            [texts.position(c.name), c.usable, number(c.seconds), texts.position(c.note)] for c in candidates
        ],
    }
    return made if row is None or profile is None else {**made, "measured": _measured(row, profile)}


def _operand(value: Value | None, producers: Mapping[Value, int], texts: Table) -> Any:
    """None for an absent one; name, type, and the node that makes it: below 0 for inputs, None for constants."""
    return None if value is None else [value.name, texts.position(str(value.type)), producers.get(value)]


def _measured(row: ProfileRow, profile: Profile) -> dict[str, Any]:
    place = profile.place(row)
    return {
        "seconds": number(row.seconds),
        "host": number(row.host),
        "flops": row.flops,
        "bytes": row.nbytes,
        "bound": place.bound if place else "",
        "of_roof": number(place.share) if place else None,
    }
