"""Which graph a step of a trace is about: the model, or the body of a loop or branch, and what that is called with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from aicore.experiments.sides import Feeds
from aicore.ir import Graph, Node, Op, Value, retype
from aicore.passes import PassStep, PassTrace
from aicore.runtime import is_control_flow, type_of
from aicore.runtime.control_flow import control_flow
from aicore.runtime.device import Device
from aicore.testing.reference import Reference

Array = np.ndarray[Any, Any]
Group: TypeAlias = "list[PassStep]"
"""The steps of one graph, from one stage, in a row."""

MOST_CALLS = 8
"""Of a body that are looked at, the first ones: a loop may make millions."""


def groups_of(trace: PassTrace) -> list[Group]:
    """The passes on the whole graph, those on the graph for known sizes, then those on each body."""
    found: list[Group] = []
    for step in trace.steps:
        last = found[-1][-1] if found else None
        if last is None or step.stage != last.stage or step.before is not last.after:
            found.append([])
        found[-1].append(step)
    return found


def is_body(group: Group, groups: Sequence[Group]) -> bool:
    """Whether the steps are about a body: the graph for known sizes comes before all of them."""
    sized = [one for one in groups if one[0].stage == "sized"]
    return group[0].stage == "sized" and group is not sized[0]


def calls_of(group: Group, groups: Sequence[Group], feeds: Feeds, reference: Reference, host: Device) -> list[Feeds]:
    """What a body is called with when the model runs on `feeds`, by its inputs; the first few times.

    host: the device whose arrays are NumPy's. Raises AicoreError where the reference lacks an op.
    """
    (outer,) = [one for one in groups if one[0].stage == "sized" and not is_body(one, groups)]
    walk = _Walk(group, groups, reference, host)
    graph = outer[-1].after
    walk.outputs(graph, [np.asarray(feeds[value.name]) for value in graph.inputs])
    return walk.calls


class _Walk:
    """Runs a model on the reference kernels as it was compiled, body by body; the wanted one as it was before."""

    def __init__(self, wanted: Group, groups: Sequence[Group], reference: Reference, host: Device) -> None:
        self.calls: list[Feeds] = []
        self._wanted, self._groups, self._reference, self._host = wanted, groups, reference, host

    def outputs(self, graph: Graph, arrays: Sequence[Array]) -> list[Array]:
        known: dict[Value | None, Array | None] = {None: None, **dict(zip(graph.inputs, arrays, strict=True))}
        for node in graph.nodes:
            results = self._evaluate(node, [_array(value, known) for value in node.inputs])
            known.update(zip(node.outputs, results, strict=True))
        return [np.asarray(_array(value, known)) for _, value in graph.outputs]

    def _evaluate(self, node: Node, operands: list[Array | None]) -> Sequence[Array]:
        op: Op = node.op
        if not is_control_flow(op):
            return self._reference.evaluate(op, *operands)
        return control_flow(node, self._host, lambda body: lambda arrays: self._call(body, arrays))(operands)

    def _call(self, body: Graph, arrays: Sequence[Array]) -> list[Array]:
        typed = retype(body, [type_of(array) for array in arrays])
        group = next((one for one in self._groups if one[0].stage == "sized" and one[0].before == typed), None)
        if group is self._wanted and len(self.calls) < MOST_CALLS:
            self.calls.append({value.name: np.array(a) for value, a in zip(typed.inputs, arrays, strict=True)})
        return self.outputs(typed if group is None or group is self._wanted else group[-1].after, arrays)


def _array(value: Value | None, known: dict[Value | None, Array | None]) -> Array | None:
    return value.constant.array if value is not None and value.constant is not None else known[value]
