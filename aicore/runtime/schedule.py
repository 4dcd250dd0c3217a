"""Which device runs each node, and in which order, so that data changes device as rarely as possible."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from aicore.errors import UnsupportedError
from aicore.ir import Graph, Node, Value
from aicore.kernels import Selection
from aicore.records import dataclass
from aicore.runtime.backend import Backend
from aicore.runtime.control_flow import is_control_flow
from aicore.runtime.planner import only_renames

CORE = "core"
"""Where If, Loop and Scan run: the core walks them, and their bodies are programs for the target."""


@dataclass(frozen=True)
class Placement:
    """The device of each node, and why a node is not on the target.

    selections: the kernel of each node that needs one.
    refusals: by node that is not on the target, what the target said.
    plugins: the plugin that owns each device.
    """

    target: str
    devices: Mapping[Node, str]
    selections: Mapping[Node, Selection]
    refusals: Mapping[Node, str]
    plugins: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """`cuda_ge 39/42 nodes; 3 -> cpu_numpy [NonZero: no kernel]`."""
        on_target = sum(device in (self.target, CORE) for device in self.devices.values())
        text = f"{self._owner(self.target)} {on_target}/{len(self.devices)} nodes"
        elsewhere = Counter(self.devices[node] for node in self.refusals)
        for device, count in elsewhere.items():
            refused = {node: reason for node, reason in self.refusals.items() if self.devices[node] == device}
            why = sorted({f"{type(node.op).__name__}: {_in_short(node, reason)}" for node, reason in refused.items()})
            text += f"; {count} -> {self._owner(device)} [{'; '.join(why)}]"
        return text

    def _owner(self, device: str) -> str:
        return self.plugins.get(device) or device


@dataclass(frozen=True)
class Segment:
    """Nodes that one device runs without a break, or one node that the core walks."""

    device: str
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def place_nodes(graph: Graph, target: Backend, fallbacks: Sequence[Backend], advice: str = "") -> Placement:
    """Put each node on the target if it can run it, else on the first fallback that can.

    Raises UnsupportedError naming the node and what each device says when none can; it ends with the advice.
    """
    devices: dict[Node, str] = {}
    selections: dict[Node, Selection] = {}
    refusals: dict[Node, str] = {}
    home: dict[Value, str] = {}
    for node in graph.nodes:
        if is_control_flow(node.op):
            device = CORE
        elif only_renames(node):
            device = _device_of_operand(node, home, target.name)
        else:
            device, selection, refusal = _choose(node, target, fallbacks, advice)
            selections[node] = selection
            if refusal:
                refusals[node] = refusal
        devices[node] = device
        home.update(dict.fromkeys(node.outputs, target.name if device == CORE else device))
    plugins = {backend.name: backend.plugin for backend in (target, *fallbacks)}
    return Placement(target.name, devices, selections, refusals, plugins)


def make_segments(graph: Graph, placement: Placement) -> list[Segment]:
    """The nodes in an order in which they can run, cut where the device changes."""
    order = _order(graph, placement.devices)
    groups: list[tuple[str, list[Node]]] = []
    for node in order:
        device = placement.devices[node]
        if not groups or groups[-1][0] != device or device == CORE:
            groups.append((device, []))
        groups[-1][1].append(node)
    return _with_ends(graph, groups)


def _choose(node: Node, target: Backend, fallbacks: Sequence[Backend], advice: str) -> tuple[str, Selection, str]:
    reasons: list[str] = []
    for backend in (target, *fallbacks):
        try:
            return backend.name, backend.select(node), reasons[0] if reasons else ""
        except UnsupportedError as error:
            reasons.append(str(error))
    raise UnsupportedError(f"{node}: {'; '.join(dict.fromkeys(reasons))}{advice}")


def _in_short(node: Node, reason: str) -> str:
    """The reason without what the summary says already."""
    return "no kernel" if re.fullmatch(rf"no kernel for {type(node.op).__name__} on \S+", reason) else reason


def _device_of_operand(node: Node, home: Mapping[Value, str], target: str) -> str:
    return next((home[value] for value in node.inputs if value is not None and value in home), target)


def _order(graph: Graph, devices: Mapping[Node, str]) -> Sequence[Node]:
    """A topological order that stays on one device while any node is ready there; else the order of the graph."""
    if len(set(devices.values())) <= 1:
        return graph.nodes
    number = {node: i for i, node in enumerate(graph.nodes)}
    users: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
    waiting: Counter[Node] = Counter()
    for node in graph.nodes:
        for source in {graph.producer[v] for v in node.inputs if v in graph.producer}:
            users[source].append(node)
            waiting[node] += 1
    ready: dict[str, list[int]] = {device: [] for device in devices.values()}
    for node in graph.nodes:
        if not waiting[node]:
            heapq.heappush(ready[devices[node]], number[node])
    order: list[Node] = []
    current = devices[graph.nodes[0]]
    while len(order) < len(graph.nodes):
        if not ready[current]:
            current = min((queue[0], device) for device, queue in ready.items() if queue)[1]
        node = graph.nodes[heapq.heappop(ready[current])]
        order.append(node)
        for user in users[node]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready[devices[user]], number[user])
    return order


def _with_ends(graph: Graph, groups: Sequence[tuple[str, list[Node]]]) -> list[Segment]:
    made_in = {value: i for i, (_, nodes) in enumerate(groups) for node in nodes for value in node.outputs}
    inputs: list[dict[Value, None]] = [{} for _ in groups]
    # Those of the graph come first, in its order, so that a plan that makes all of them needs no rearranging.
    crossing: dict[Value, None] = dict.fromkeys(value for _, value in graph.outputs)
    for i, (_, nodes) in enumerate(groups):
        for value in (v for node in nodes for v in node.inputs):
            if value is not None and value.constant is None and made_in.get(value) != i:
                inputs[i][value] = None
                crossing[value] = None
    made: list[list[Value]] = [[] for _ in groups]
    for value in crossing:
        if value in made_in:
            made[made_in[value]].append(value)
    return [Segment(device, tuple(nodes), tuple(inputs[i]), tuple(made[i])) for i, (device, nodes) in enumerate(groups)]
