"""Runs one case on one target, and judges everything that it promised: numbers, placement, and hands off operands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from aicore.api import compile  # noqa: A004  # aicore.compile
from aicore.errors import AicoreError, UnsupportedError
from aicore.ir import Node, dtype_name
from aicore.kernels import KernelTable, Selector
from aicore.numerics.difference import Difference, measure
from aicore.numerics.expected import Expected
from aicore.plugins import PluginRegistry
from aicore.program import Program
from aicore.runtime import is_control_flow
from aicore.testing.cases import Case
from aicore.testing.layouts import same_bytes
from aicore.testing.outcomes import Outcome, Verdict, said_by
from aicore.testing.reference import Reference
from aicore.testing.registries import Watch
from aicore.testing.targets import Target

Array = np.ndarray[Any, Any]
_COPIES = 2


def expected_of(case: Case, reference: Reference) -> Expected | None:
    """What the case should give; None for an edge case that the op refuses.

    Raises AicoreError where the reference kernels cannot compute one of the op's own samples.
    """
    try:
        return _expected(case, reference)
    except AicoreError:
        if case.derived:
            return None
        raise


def _expected(case: Case, reference: Reference) -> Expected:
    node = case.node()
    given = case.feeds()
    operands = [None if v is None else given[v.name] if v.constant is None else v.constant.array for v in node.inputs]
    return reference.expected(node.op, operands, [value.dtype for value in node.outputs])


def check_case(case: Case, target: Target, expected: Expected, keep_outputs: bool = False) -> Verdict:
    """How the case ends on the target, over every kernel that the target asks for.

    The op stands twice in a graph, which runs twice: all results must be right, those of the first run untouched by
    the second; operands must keep their bytes; and the device must count every step that it was given.
    """
    attempts = target.attempts(type(case.sample.op))
    verdicts = [_Attempt(case, target, expected, registry, watch).run() for registry, watch in attempts]
    taken = [verdict for verdict in verdicts if verdict.outcome is not Outcome.UNSUPPORTED]  # others need not take it
    verdict = reduce(Verdict.worse, taken or verdicts)
    return verdict if keep_outputs else replace(verdict, outputs=())


@dataclass(frozen=True)
class _Attempt:
    case: Case
    target: Target
    expected: Expected
    registry: PluginRegistry
    watch: Watch

    def run(self) -> Verdict:
        try:
            return self._judge()
        except UnsupportedError as error:
            return self._refused(said_by(error))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001
            # A backend may raise anything, SystemExit and pytest's own ways to skip included, and that is a verdict.
            return self._failed(said_by(error))

    def _judge(self) -> Verdict:
        program = compile(
            self.case.graph(_COPIES), self.target.device, fallback="quiet", optimize=False, registry=self.registry
        )
        feeds = self.case.feeds()
        first = program.run(feeds)
        copies = [array.copy() for array in first.values()]
        before = self.watch.steps_run(self.target.device)
        second = program.run(feeds)
        steps = self.watch.steps_run(self.target.device) - before
        differences = [*self._differences(first.values()), *self._differences(second.values())]
        difference = reduce(Difference.worse, differences, Difference())
        wrong = difference.text or mistyped(program, first, second) or self._overwritten(feeds)
        wrong = wrong or changed(list(first.values()), copies)
        verdict = Verdict(Outcome.PASSED, "", difference, self._kernels(), before + steps, tuple(second.values()))
        if wrong:
            return replace(verdict, outcome=Outcome.FAILED, reason=wrong)
        return self._placed(verdict, program, (before, steps))

    def _differences(self, results: Iterable[Array]) -> Iterable[Difference]:
        """Of the results of both copies; where only the later one is wrong, the first spoilt its operands."""
        count = len(self.expected.arrays)
        for i, got in enumerate(results):
            want, allowed = self.expected.arrays[i % count], self.expected.allowed[i % count]
            difference = measure(got, want, allowed)
            use = "on its second use of the same operands, " if i >= count else ""
            yield difference if difference.is_right else replace(difference, text=f"{use}{difference.text}")

    def _overwritten(self, feeds: Mapping[str, Array]) -> str:
        for name, original in self.case.feeds().items():
            if not same_bytes(feeds[name], original):
                return f"operand {name} was overwritten"
        return ""

    def _placed(self, verdict: Verdict, program: Program, runs: Sequence[int]) -> Verdict:
        """The verdict on right numbers: who computed them? runs: the steps that the device counted in each run."""
        placement = program.placement
        refusals = placement.refusals if placement is not None else {}
        for node, reason in refusals.items():
            if declares(node, self.target, self.registry):
                text = f"a kernel declares that it takes this, and yet it ran elsewhere: {reason}"
                return replace(verdict, outcome=Outcome.FAILED, reason=text)
        if refusals:
            return replace(verdict, outcome=Outcome.FALLBACK, reason=next(iter(refusals.values())))
        if others := self.watch.others(self.target.device):  # the body of a loop or a branch has its own placement
            return replace(verdict, outcome=Outcome.FALLBACK, reason=f"parts of it ran on {', '.join(others)}")
        if text := miscounted(program, self.watch.planned(self.target.device), runs):
            return replace(verdict, outcome=Outcome.FAILED, reason=text)
        if not any(runs):
            return replace(verdict, outcome=Outcome.RENAMED, reason="no kernel had to run")
        return verdict

    def _refused(self, reason: str) -> Verdict:
        if declares(self.case.node(), self.target, self.registry):
            return self._failed(f"a kernel declares that it takes this, and yet: {reason}")
        return Verdict(Outcome.UNSUPPORTED, reason)

    def _kernels(self) -> tuple[str, ...]:
        return self.watch.kernels(self.target.device)

    def _failed(self, reason: str) -> Verdict:
        return Verdict(Outcome.FAILED, reason, kernels=self._kernels())


def declares(node: Node, target: Target, registry: PluginRegistry) -> bool:
    """Whether a kernel of the target takes the node, and the device takes its sizes."""
    if is_control_flow(node.op):
        return False
    device = registry.device(target.device)
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    if device.static_shapes_only and not all(v.type.is_static and v.dtype != "string" for v in values):
        return False
    selector = Selector(KernelTable(registry.kernels), device.kind)
    return selector.reason_against(node.op, *(None if v is None else v.type for v in node.inputs)) is None


def changed(results: Sequence[Array], copies: Sequence[Array]) -> str:
    """What a later run did to results that the caller holds."""
    for i, (array, copy) in enumerate(zip(results, copies, strict=True)):
        if not same_bytes(array, copy):
            return f"result y{i} changed while a later run computed its own"
    return ""


def mistyped(program: Program, *runs: Mapping[str, Array]) -> str:
    """Which result is of another element type than the program says, though its numbers may be right."""
    for outputs in runs:
        for name, tensor in program.outputs.items():
            if (found := dtype_name(outputs[name].dtype)) != tensor.dtype:
                return f"result {name} is of dtype {found}, should be {tensor.dtype}"
    return ""


def miscounted(program: Program, planned: int, runs: Sequence[int]) -> str:
    """How the steps that a device counted in each run contradict those that were planned; empty when they do not.

    Nothing is said of control flow: how often its bodies run is for the data to say.
    """
    wrong = [steps for steps in runs if steps != planned]
    if not wrong or any(is_control_flow(node.op) for node in program.graph.nodes):
        return ""
    return f"the device counts {wrong[0]} steps of a run for which {planned} were planned: did they run?"
