"""A model on several targets: its outputs, and every node by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aicore.ir import Graph, print_graph
from aicore.testing.check import check_case, expected_of
from aicore.testing.faults import Fault, find_fault, node_fault
from aicore.testing.outcomes import Outcome, Verdict
from aicore.testing.parity import Column, Entry, Matrix, Progress, with_versus
from aicore.testing.reference import Reference
from aicore.testing.targets import Target
from aicore.testing.wholes import Whole, check_whole, node_cases, specialised

Array = np.ndarray[Any, Any]
OUTPUTS = "model"
"""The kind of the entry for all outputs of a model."""


def compare_model(
    graph: Graph,
    feeds: Mapping[str, Array],
    columns: Sequence[Column],
    targets: Sequence[Target],
    reference: Reference,
    title: str,
    progress: Progress | None = None,
) -> tuple[Matrix, dict[str, Fault]]:
    """The model's outputs with all passes, and each of its nodes, on every target; and what is to blame where it fails.

    A node gets the operands that references compute, so an error shows where it is made, and in no node after it. One
    that is wrong by itself is a fault also where the whole is right: a fused kernel or a tolerance may hide it there.
    """
    graph = specialised(graph, feeds)
    whole = Whole.of(graph, feeds, reference)
    digest = _digest(graph, feeds)
    verdicts = {target.name: check_whole(whole, target, keep_outputs=True) for target in targets}
    label = ", ".join(name for name, _ in graph.outputs)
    entries = [with_versus(Entry("outputs", label, "", OUTPUTS, "all passes", digest, verdicts), columns)]
    nodes = list(node_cases(graph, feeds, reference))
    faults: dict[str, Fault] = {}
    for done, (node, case) in enumerate(nodes):
        if progress is not None:
            progress(done, len(nodes), case.id)
        expected = expected_of(replace(case, derived=True), reference)
        if expected is None:
            continue
        by_target = {target.name: check_case(case, target, expected, keep_outputs=True) for target in targets}
        name = f"{done}. {case.name} {node.outputs[0].name}"
        entry = Entry(f"{done}", name, case.dtype, case.kind, ", ".join(node.origin.names()), digest, by_target)
        entries.append(with_versus(entry, columns))
        for target in targets:
            if by_target[target.name].outcome is Outcome.FAILED and target.name not in faults:
                faults[target.name] = node_fault(node, case, target, expected, by_target[target.name])
    for target in targets:
        if verdicts[target.name].outcome is Outcome.FAILED:  # what made that is of more use than the first node
            faults[target.name] = find_fault(whole, target, reference, verdicts[target.name].reason)
    remarks = [*(_divergence(target.name, entries) for target in targets), *_blames(faults)]
    return Matrix(title, tuple(columns), tuple(entries), tuple(remarks)), faults


def _divergence(column: str, entries: Sequence[Entry]) -> str:
    """The first node that is wrong by itself; else the one with the largest error."""
    nodes = [(e, e.verdicts[column]) for e in entries if e.kind != OUTPUTS and column in e.verdicts]
    wrong = next((pair for pair in nodes if pair[1].outcome is Outcome.FAILED), None)
    if wrong is not None:
        return f"{column}: first divergent node: {wrong[0].name}: {wrong[1].reason}"
    largest = max(nodes, key=lambda pair: _relative(pair[1]), default=None)
    if largest is None:
        return f"{column}: no node was compared"
    entry, verdict = largest
    return f"{column}: no node diverges; the largest relative error, {_relative(verdict):.1e}, is that of {entry.name}"


def _relative(verdict: Verdict) -> float:
    return 0.0 if verdict.difference is None else verdict.difference.max_relative


def _blames(faults: Mapping[str, Fault]) -> list[str]:
    return [f"{target}: to blame: {fault.text}" for target, fault in faults.items()]


def _digest(graph: Graph, feeds: Mapping[str, Array]) -> str:
    """Of the model and its inputs: operands of later nodes may differ in the last bit between two machines."""
    state = hashlib.blake2b(print_graph(graph).encode(), digest_size=8)
    for name, array in sorted(feeds.items()):
        state.update(f"{name}{array.dtype}{array.shape}".encode())
        state.update(repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes())
    return state.hexdigest()
