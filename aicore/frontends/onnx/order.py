"""Sorting nodes: the format asks for sorted graphs, files in the wild are not always; a cycle is an error."""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING

from aicore.errors import ModelError

if TYPE_CHECKING:
    from aicore.frontends.onnx.validate import CheckedNode


def in_order(nodes: list[CheckedNode]) -> list[CheckedNode]:
    """The nodes in an order in which they can run; those of a sorted graph stay as they are.

    Raises ModelError naming the nodes of a cycle.
    """
    maker = {name: index for index, node in enumerate(nodes) for name in node.outputs if name}
    waits = [{maker[name] for name in node.needs if name in maker} for node in nodes]
    if all(earlier < index for index, earlier_ones in enumerate(waits) for earlier in earlier_ones):
        return nodes
    followers: dict[int, list[int]] = defaultdict(list)
    for index, earlier_ones in enumerate(waits):
        for earlier in earlier_ones:
            followers[earlier].append(index)
    count = [len(earlier_ones) for earlier_ones in waits]
    ready = [index for index, left in enumerate(count) if not left]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for follower in followers[index]:
            count[follower] -= 1
            if not count[follower]:
                heapq.heappush(ready, follower)
    if len(order) < len(nodes):
        raise ModelError(_cycle_text(nodes, waits, {index for index, left in enumerate(count) if left}))
    return [nodes[index] for index in order]


def _cycle_text(nodes: list[CheckedNode], waits: list[set[int]], stuck: set[int]) -> str:
    """Each stuck node waits for another stuck one, so walking back must come round."""
    step_of: dict[int, int] = {}
    index = min(stuck)
    while index not in step_of:
        step_of[index] = len(step_of)
        index = min(waits[index] & stuck)
    cycle = list(step_of)[step_of[index] :]
    shown = " <- ".join(nodes[i].where for i in cycle[:4])
    return f"{nodes[cycle[0]].where}: the graph has a cycle through it: {shown}{' ...' if len(cycle) > 4 else ''}"
