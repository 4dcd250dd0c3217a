"""Gradients of ops against finite differences in float64: reference kernels on both sides.

A sample is recast to float64. With fixed random weights, its results of floating point are summed up to one number; the
gradient of that, as a graph that runs on the reference kernels, is compared with finite differences of the forward op
(aicore/testing/slopes.py): along some elements of each operand, and along two random directions, which every element
takes part in, so that a single wrong element shows. They may differ by 1e-6 of the derivative and of the operand's
largest one, which is what a long sum in float64 loses in the worst case, and by what the differences may be off by.

An op has derivatives almost everywhere. Points on a kink are left out, and counted; where they are more than a tenth,
operands are moved a little and tried again, for samples such as halves that are to be rounded are on kinks throughout.

Where all sizes are open until the run, the graph of the gradient has to give the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np

from aicore.autodiff import backward
from aicore.autodiff.forward import path, ready_for_gradient
from aicore.errors import AicoreError, InferenceError, InputError, UnsupportedError
from aicore.ir import (
    FLOATS,
    Builder,
    Graph,
    Node,
    Op,
    Sample,
    TensorType,
    Value,
    as_tuple,
    dtype_name,
    needed_nodes,
    retype,
    symbol,
)
from aicore.numerics.recast import WIDE, Recast
from aicore.plugins import plugin_registry
from aicore.records import dataclass
from aicore.testing.outcomes import Outcome
from aicore.testing.reference import Reference
from aicore.testing.slopes import Slope, slope

Array = np.ndarray[Any, Any]

_RELATIVE = 1e-6
_POINTS = 24
"""Elements that are moved one at a time, by equal shares of each operand, but not fewer than _FEWEST of each."""
_FEWEST = 4
_OPERANDS = 12
"""Operands that are moved, of an op with very many."""
_LARGEST = 1 << 18
"""Elements of an operand; what an op does with more than these it does with fewer, too."""
_DIRECTIONS = 2
_MOST_LEFT_OUT = 0.1
_ATTEMPTS = 3
_MOSTLY = 0.75
_ROUNDING = 2.0**-47
"""64 roundings of float64: what the gradient may lose of the gradients of the results that it sums up."""
_KEPT = Recast(WIDE.dtypes, kept=frozenset({"stash_type"}))


@dataclass(frozen=True)
class GradientVerdict:
    """How the gradient of one sample compares.

    outcome: PASSED, FAILED, UNSUPPORTED for an op without gradient, or SKIPPED for a sample that has none to compare.
    reason: why it is not PASSED.
    compared: derivatives that were compared. left_out: points on kinks, which were not.
    """

    outcome: Outcome
    reason: str = ""
    compared: int = 0
    left_out: int = 0


def check_gradient(sample: Sample, reference: Reference | None = None, *, seed: int = 0) -> GradientVerdict:
    """How the op's gradient on this sample compares with finite differences.

    Operands of floating point are those that it is taken by, constants included unless the op reads them as a field.
    Where several results are of floating point, gradients are compared of all, and of the first and the last alone.
    Raises AicoreError where the forward op does not run on the sample.
    """
    reference = reference or Reference(plugin_registry())
    try:
        problem = _problem(sample)
    except (InferenceError, UnsupportedError) as error:
        return GradientVerdict(Outcome.SKIPPED, f"it does not take float64: {error}")
    skipped = problem.reason_to_skip()
    if skipped:
        return GradientVerdict(Outcome.SKIPPED, skipped)
    rng = np.random.default_rng(seed)
    problem = problem.finite(rng)
    verdict = GradientVerdict(Outcome.SKIPPED)
    for attempt in range(_ATTEMPTS):
        moved = problem.moved(rng) if attempt else problem
        try:
            with np.errstate(all="ignore"):
                verdict = _Comparison(moved, reference, rng).verdict()
        except UnsupportedError as error:
            return GradientVerdict(Outcome.UNSUPPORTED, str(error))
        total = verdict.compared + verdict.left_out
        if verdict.outcome is Outcome.FAILED or verdict.left_out <= _MOST_LEFT_OUT * total:
            return verdict
    reason = f"{verdict.left_out} of {verdict.compared + verdict.left_out} points seem to be on kinks"
    return replace(verdict, outcome=Outcome.FAILED, reason=reason)


@dataclass(frozen=True)
class _Problem:
    """An op on operands in float64. fixed: which are no inputs of the graph but constants."""

    op: Op
    operands: tuple[Array | None, ...]
    fixed: tuple[int, ...]

    @cached_property
    def graph(self) -> Graph:
        builder = Builder()
        values = [self._value(builder, i, array) for i, array in enumerate(self.operands)]
        results = as_tuple(builder.apply(self.op, *values))
        inputs = [v for i, v in enumerate(values) if v is not None and i not in self.fixed]
        return builder.graph(inputs, {f"y{i}": value for i, value in enumerate(results)})

    @property
    def node(self) -> Node:
        return self.graph.nodes[-1]

    @property
    def feeds(self) -> dict[str, Array]:
        return {f"x{i}": a for i, a in enumerate(self.operands) if a is not None and i not in self.fixed}

    @property
    def variables(self) -> list[Value]:
        return [value for value in self.graph.inputs if value.dtype in FLOATS]

    @property
    def results(self) -> list[int]:
        """Which outputs have a gradient."""
        return [i for i, value in enumerate(self.node.outputs) if value.dtype in FLOATS]

    def _value(self, builder: Builder, index: int, array: Array | None) -> Value | None:
        if array is None:
            return None
        if index in self.fixed:
            return builder.constant(array, f"c{index}")
        return builder.input(f"x{index}", dtype_name(array.dtype), array.shape)

    def reason_to_skip(self) -> str:
        if not self.variables:
            return "no operand of floating point"
        if not self.results:
            return "no result of floating point"
        if any(np.isfinite(self.feeds[value.name]).mean() < _MOSTLY for value in self.variables if value.type.size):
            return "NaN and infinities, where no difference means anything"
        if max(self.feeds[value.name].size for value in self.variables) > _LARGEST:
            return "too many elements to try"
        return ""

    def finite(self, rng: np.random.Generator) -> _Problem:
        """With numbers in place of the few that are none."""
        operands = (
            np.where(np.isfinite(a), a, rng.normal(size=a.shape)) if _is_variable(a) else a for a in self.operands
        )
        return _Problem(self.op, tuple(operands), self.fixed)

    def moved(self, rng: np.random.Generator) -> _Problem:
        """With each number of floating point moved a little, so that none is where its author wanted it."""
        operands = (
            a + rng.uniform(-0.25, 0.25, a.shape) if _is_variable(a) and i not in self.fixed else a
            for i, a in enumerate(self.operands)
        )
        return _Problem(self.op, tuple(operands), self.fixed)


def _is_variable(array: Array | None) -> TypeGuard[Array]:
    return array is not None and dtype_name(array.dtype) in FLOATS


def _backward(graph: Graph, results: Sequence[int]) -> Graph:
    """The graph (operands, a gradient w of each chosen result) -> a gradient of each operand of floating point."""
    variables = [value for value in graph.inputs if value.dtype in FLOATS]
    outputs = [graph.outputs[i][1] for i in results]
    builder = Builder()
    builder.nodes.extend(ready_for_gradient(graph.nodes, path(graph.nodes, variables, outputs)))
    given = [Value(f"w{i}", value.type) for i, value in zip(results, outputs, strict=True)]
    found = backward(builder, list(builder.nodes), dict(zip(outputs, given, strict=True)), variables)
    named = {v.name: g for v, g in zip(variables, found, strict=True) if g is not None}
    whole = builder.graph((*graph.inputs, *given), named)
    return replace(whole, nodes=needed_nodes(whole.nodes, [value for _, value in whole.outputs]))


def _open(graph: Graph) -> Graph | None:
    """The graph for operands of which only ranks are known; None where the op wants to know more."""
    types = [TensorType(v.dtype, tuple(symbol(f"{v.name}_{i}") for i in range(v.rank or 0))) for v in graph.inputs]
    try:
        return retype(graph, types)
    except (InferenceError, UnsupportedError):
        return None


def _problem(sample: Sample) -> _Problem:
    """The sample in float64, statistics too where the op allows that."""
    error: AicoreError | None = None
    for recast in (WIDE, _KEPT):
        op = recast.op(sample.op)
        operands = tuple(None if a is None else recast.array(a) for a in sample.inputs)
        fixed = tuple(i for i in sample.constant if i in op.operand_fields or not _is_variable(operands[i]))
        problem = _Problem(op, operands, fixed)
        try:
            problem.graph  # noqa: B018  # infers
        except (InferenceError, UnsupportedError) as found:
            error = error or found
            continue
        return problem
    raise error or InferenceError("the sample does not infer")


class _Comparison:
    """Of one problem, with weights of the results from `rng`."""

    def __init__(self, problem: _Problem, reference: Reference, rng: np.random.Generator) -> None:
        self._problem, self._reference, self._rng = problem, reference, rng
        self._forward = reference.program(problem.graph)
        self._weights = [rng.uniform(0.5, 1.5, y.shape) * rng.choice([-1.0, 1.0], y.shape) for y in self._results({})]
        given = zip(problem.results, self._weights, strict=True)
        self._feeds = {**problem.feeds, **{f"w{i}": weight for i, weight in given}}

    def verdict(self) -> GradientVerdict:
        every = self._problem.results
        chosen = [every, *([i] for i in sorted({every[0], every[-1]}) if len(every) > 1)]
        gradients = [self._gradients(self._problem.graph, results) for results in chosen]
        fault = self._fault_of_open_sizes(gradients[0])
        if fault:
            return GradientVerdict(Outcome.FAILED, fault)
        compared = left_out = 0
        tried = self._tried()
        for value in tried:
            points = list(self._points(value, max(_POINTS // len(tried), _FEWEST)))
            for results, found in zip(chosen, gradients, strict=True):
                verdict = self._judge(value, points, results, found[value.name])
                if verdict.outcome is Outcome.FAILED:
                    among = "" if len(chosen) == 1 else f", of the results {results}"
                    return replace(verdict, reason=verdict.reason + among)
                compared, left_out = compared + verdict.compared, left_out + verdict.left_out
        return GradientVerdict(Outcome.PASSED, "", compared, left_out)

    def _results(self, changes: Mapping[str, Array]) -> list[Array]:
        found = self._forward.run({**self._problem.feeds, **changes})
        return [np.asarray(found[f"y{i}"], np.float64) for i in self._problem.results]

    def _gradients(self, graph: Graph, results: Sequence[int]) -> dict[str, Array]:
        """Of the sum over the chosen results, by each operand; zeros where there is none."""
        whole = _backward(graph, results)
        given = {value.name: self._feeds[value.name] for value in whole.inputs}
        found = self._reference.run(whole, given) if whole.outputs else {}
        return {v.name: found.get(v.name, np.zeros_like(self._feeds[v.name])) for v in self._problem.variables}

    def _fault_of_open_sizes(self, wanted: Mapping[str, Array]) -> str:
        """What is wrong with the gradients by all results where sizes are open; empty when nothing is."""
        graph = _open(self._problem.graph)
        if graph is None:
            return ""
        try:
            found = self._gradients(graph, self._problem.results)
        except (UnsupportedError, InputError):  # it needs to know sizes; or, what was inferred is not exact
            return ""
        for name, want in wanted.items():
            got = found[name]
            if got.shape != want.shape or not np.allclose(got, want, rtol=_RELATIVE, atol=_ROUNDING, equal_nan=True):
                return f"by {name}, with sizes that are open until the run: {got.tolist()} instead of {want.tolist()}"
        return ""

    def _tried(self) -> list[Value]:
        variables = self._problem.variables
        chosen = self._rng.permutation(len(variables))[:_OPERANDS]
        return [variables[i] for i in sorted(chosen)]

    def _points(self, value: Value, count: int) -> Iterator[_Point]:
        x = self._problem.feeds[value.name]

        def function(moved: Array) -> list[Array]:
            return self._results({value.name: moved})

        for flat in self._rng.permutation(x.size)[:count]:
            direction = np.zeros(x.shape)
            element = tuple(int(i) for i in np.unravel_index(flat, x.shape))
            direction[element] = 1.0
            yield _Point(direction, slope(function, x, direction, self._weights), element)
        for _ in range(_DIRECTIONS if x.size else 0):
            direction = self._rng.choice([-1.0, 1.0], x.shape)
            yield _Point(direction, slope(function, x, direction, self._weights), None)

    def _judge(
        self, value: Value, points: Sequence[_Point], results: Sequence[int], gradient: Array
    ) -> GradientVerdict:
        if gradient.shape != value.shape or dtype_name(gradient.dtype) != value.dtype:
            got_type = f"{dtype_name(gradient.dtype)}{list(gradient.shape)}"
            return GradientVerdict(Outcome.FAILED, f"the gradient of {value.name} is {got_type}, wants {value.type}")
        places = [self._problem.results.index(i) for i in results]
        floor = _ROUNDING * sum(float(np.abs(self._weights[i]).sum()) for i in places)
        slopes = [(point, point.slope.of(places)) for point in points]
        found = [(point, one) for point, one in slopes if one is not None]
        left_out = sum(one is None and point.element is not None for point, one in slopes)
        largest = max((abs(want) for point, (want, _) in found if point.element is not None), default=0.0)
        for point, (want, error) in found:
            got = float((gradient * point.direction).sum())
            size = 1.0 if point.element is not None else float(np.sqrt(gradient.size))
            if not abs(got - want) <= _RELATIVE * (abs(want) + largest * size) + error + floor:
                where = f"[{', '.join(map(str, point.element))}]" if point.element is not None else " along a direction"
                reason = f"by {value.name}{where}: {got:.9g}, finite differences say {want:.9g}"
                return GradientVerdict(Outcome.FAILED, reason, len(found), left_out)
        return GradientVerdict(Outcome.PASSED, "", len(found), left_out)


@dataclass(frozen=True)
class _Point:
    """A place to compare at: along one element, or a direction."""

    direction: Array
    slope: Slope
    element: tuple[int, ...] | None
