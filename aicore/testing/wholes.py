"""Whole graphs: what they should give, whether a target gives it, and which node goes wrong first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from aicore.api import compile  # noqa: A004  # aicore.compile
from aicore.errors import AicoreError, ConfigError, UnsupportedError
from aicore.ir import FLOATS, Graph, Node, Op, Sample, Value, numpy_dtype, retype
from aicore.kernels import KernelTable, Selector
from aicore.numerics.difference import Difference, measure, precision
from aicore.numerics.recast import WIDE
from aicore.passes import Pass, default_passes, specialise_passes
from aicore.plugins import PluginRegistry
from aicore.rewrite import Context
from aicore.runtime import is_control_flow, type_of
from aicore.testing.cases import Case, dtype_of, kind_of
from aicore.testing.check import miscounted, mistyped
from aicore.testing.outcomes import Outcome, Verdict, said_by
from aicore.testing.reference import Reference
from aicore.testing.targets import Target

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Progress = Callable[[int, int], None]

_NOISE = 16
"""How much worse than the references in the graph's own types a target may be: they are one sample of rounding, in one
order of the sums; another order gives other errors, of the same size."""


@dataclass(frozen=True)
class Whole:
    """A graph on given inputs, and what should come out of it.

    want: by output, floats in float64 as far as the ops allow it.
    allowed: the largest error of each output: 16 times what rounding does to the references in the graph's own types,
        and at least 8 units of the output's largest element.
    """

    graph: Graph
    feeds: Feeds
    want: Mapping[str, Array]
    allowed: Mapping[str, Array]

    @classmethod
    def of(cls, graph: Graph, feeds: Feeds, reference: Reference, progress: Progress | None = None) -> Whole:
        """Evaluate the graph node by node, in float64 and in its own types.

        Raises AicoreError where a node has no reference kernel.
        """
        want = wide_outputs(graph, feeds, reference, progress)
        own = values_of_outputs(graph, own_values(graph, feeds, reference))
        allowed = {name: allowed_error(value.dtype, want[name], own[name]) for name, value in graph.outputs}
        return cls(graph, feeds, want, allowed)

    def compare(self, outputs: Mapping[str, Array]) -> Difference:
        """Outputs beside what they should be, all together."""
        differences = [measure(outputs[name], want, self.allowed[name]) for name, want in self.want.items()]
        return reduce(Difference.worse, differences, Difference())


def check_whole(whole: Whole, target: Target, *, reuse_memory: bool = True, keep_outputs: bool = False) -> Verdict:
    """How the whole graph ends on the target, with all passes and run twice."""
    registry, watch = target.attempts()[0]
    device = target.device
    try:
        program = compile(whole.graph, device, fallback="quiet", reuse_memory=reuse_memory, registry=registry)
        first, before = program.run(whole.feeds), watch.steps_run(device)
        second, after = program.run(whole.feeds), watch.steps_run(device)
        difference = whole.compare(first).worse(whole.compare(second))
        broken = mistyped(program, first, second)
        idle = miscounted(program, watch.planned(device), (before, after - before))
    except UnsupportedError as error:
        return Verdict(Outcome.UNSUPPORTED, said_by(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # a backend may raise anything, SystemExit too: that is a verdict
        return Verdict(Outcome.FAILED, said_by(error))
    outputs = tuple(second.values()) if keep_outputs else ()
    verdict = Verdict(Outcome.PASSED, "", difference, watch.kernels(device), after, outputs)
    if wrong := difference.text or broken or idle:
        return replace(verdict, outcome=Outcome.FAILED, reason=wrong)
    placement = program.placement
    if placement is not None and placement.refusals:
        return replace(verdict, outcome=Outcome.FALLBACK, reason=str(placement))
    if not verdict.steps:
        return replace(verdict, outcome=Outcome.RENAMED, reason="no kernel had to run")
    return verdict


def node_cases(graph: Graph, feeds: Feeds, reference: Reference) -> Iterator[tuple[Node, Case]]:
    """Each node of the graph as a case, on the operands that the references compute, rounded to the graph's own types.

    So an error is charged to the node that makes it, and to none after it.
    """
    known = {
        value: array.astype(numpy_dtype(value.dtype), copy=False)
        for value, array in wide_values(graph, feeds, reference).items()
    }
    for number, node in enumerate(graph.nodes):
        operands = tuple(_operand(value, known) for value in node.inputs)
        constant = tuple(i for i, v in enumerate(node.inputs) if v is not None and v.constant is not None)
        sample = Sample(node.op, operands, constant, node.outputs[0].name)
        yield node, Case(type(node.op).__name__, number, sample, dtype_of(sample), kind_of(node.op, operands))


def specialised(graph: Graph, feeds: Feeds) -> Graph:
    """The graph inferred again for the sizes of these inputs."""
    return retype(graph, [type_of(np.asarray(feeds[value.name])) for value in graph.inputs])


def wide_outputs(
    graph: Graph, feeds: Feeds, reference: Reference, progress: Progress | None = None
) -> dict[str, Array]:
    """The graph's outputs by reference kernels, floats in float64 as far as the ops allow it."""
    return values_of_outputs(graph, wide_values(graph, feeds, reference, progress))


def wide_values(
    graph: Graph, feeds: Feeds, reference: Reference, progress: Progress | None = None
) -> dict[Value, Array]:
    """The array of every input and of every node's outputs, floats in float64 as far as the ops allow it."""
    wide = {name: WIDE.array(np.asarray(array)) for name, array in feeds.items()}
    return _values(graph, wide, reference.wide, progress)


def own_values(graph: Graph, feeds: Feeds, reference: Reference) -> dict[Value, Array]:
    """The array of every input and of every node's outputs, in the graph's own types."""
    return _values(graph, feeds, reference.evaluate)


def pass_context(target: Target, reference: Reference) -> Context:
    """What a compilation for the target gives to passes."""
    selector = Selector(KernelTable(target.attempts()[0][0].kernels), target.kind)

    def supports(op: Op, *types: Any) -> str | None:
        return None if is_control_flow(op) else selector.reason_against(op, *types)

    return Context(supports=supports, evaluate=reference.evaluate)


def all_passes(registry: PluginRegistry) -> dict[str, Pass]:
    """Every pass that a compilation may run, by name."""
    return {one.name: one for one in (*default_passes(registry.passes), *specialise_passes())}


def pass_named(name: str, target: Target) -> Pass:
    """The pass of this name. Raises ConfigError, listing those that there are."""
    known = all_passes(target.registry)
    if name not in known:
        raise ConfigError(f"no pass is called {name!r}; there are: {', '.join(known)}")
    return known[name]


def _values(
    graph: Graph, feeds: Feeds, evaluate: Callable[..., tuple[Array, ...]], progress: Progress | None = None
) -> dict[Value, Array]:
    known = {value: np.asarray(feeds[value.name]) for value in graph.inputs}
    for done, node in enumerate(graph.nodes):
        operands = [_operand(value, known) for value in node.inputs]
        try:
            results = evaluate(node.op, *operands)
        except AicoreError:
            # An op that takes no float64, between others that do.
            native = [
                a if a is None or v is None else a.astype(numpy_dtype(v.dtype), copy=False)
                for v, a in zip(node.inputs, operands, strict=True)
            ]
            results = evaluate(node.op, *native)
        known.update(zip(node.outputs, results, strict=True))
        if progress is not None:
            progress(done + 1, len(graph.nodes))
    return known


def values_of_outputs(graph: Graph, known: Mapping[Value, Array]) -> dict[str, Array]:
    """By output, of the arrays of all values."""
    return {name: known[v] if v.constant is None else v.constant.array for name, v in graph.outputs}


def _operand(value: Value | None, known: Mapping[Value, Array]) -> Array | None:
    if value is None:
        return None
    return known[value] if value.constant is None else value.constant.array


def allowed_error(dtype: str, want: Array, own: Array) -> Array:
    """See `Whole.allowed`; 0 for what is no floating point.

    dtype: of the graph. want, own: what references give in float64, and in the graph's own types.
    """
    if dtype not in FLOATS or want.shape != own.shape:
        return np.zeros(())
    with np.errstate(all="ignore"):
        gap = np.abs(own.astype(np.float64) - want)
        noise = float(gap[np.isfinite(gap)].max(initial=0.0))
        largest = float(np.abs(want[np.isfinite(want)]).max(initial=0.0))
    kind = precision(dtype)
    return np.asarray(_NOISE * noise + 8 * kind.roundoff * largest + kind.smallest)
