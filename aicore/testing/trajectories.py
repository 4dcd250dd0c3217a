"""Many training steps in a row on several targets: losses and final state beside those of float64."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from aicore.api import compile  # noqa: A004  # aicore.compile
from aicore.errors import UnsupportedError
from aicore.ir import Graph
from aicore.numerics.difference import Difference, measure
from aicore.testing.outcomes import Outcome, Verdict, said_by
from aicore.testing.parity import Column, Entry, Matrix, Progress, with_versus
from aicore.testing.reference import Reference
from aicore.testing.targets import Target
from aicore.testing.wholes import allowed_error, own_values, specialised, values_of_outputs, wide_values

Array = np.ndarray[Any, Any]
STEPS = "steps"
"""The kind of the entry of a trajectory."""

_NEIGHBOURS = 3
"""Courses that are followed beside the references' own, each from first values that are off by one rounding. One course
is one sample of rounding, and a ReLU or a pool that takes the other branch somewhere leads far from it."""


@dataclass(frozen=True)
class Trajectory:
    """A training step, and what goes in from step to step.

    graph: pairs of `state` lead from step to step; other outputs are followed, such as the loss.
    state: first values of the inputs that are kept. batches: the other inputs of each step.
    """

    name: str
    graph: Graph
    state: Mapping[str, Array]
    batches: Sequence[Mapping[str, Array]]


@dataclass(frozen=True)
class _Course:
    """What should come out: each followed output as one array over the steps, then the state at the end.

    allowed: the largest error of each, as for whole graphs: 16 times what rounding does to the references, in the worst
        of a few courses.
    """

    want: Mapping[str, Array]
    allowed: Mapping[str, Array]


def compare_trajectories(
    trajectories: Sequence[Trajectory],
    columns: Sequence[Column],
    targets: Sequence[Target],
    reference: Reference,
    title: str,
    progress: Progress | None = None,
) -> Matrix:
    """All steps of each trajectory on every target.

    Rounding errors grow from step to step, and how much depends on the network: so what is allowed at the end is
    measured, by the references in the graph's own types beside float64.
    """
    entries: list[Entry] = []
    for done, one in enumerate(trajectories):
        if progress is not None:
            progress(done, len(trajectories), one.name)
        course = _course(one, reference)
        verdicts = {target.name: _check(one, course, target) for target in targets}
        note = f"{len(one.batches)} steps: losses, parameters, state of the optimiser"
        entry = Entry(one.name, one.name, "float32", STEPS, note, _digest(one), verdicts)
        entries.append(with_versus(entry, columns))
    return Matrix(title, tuple(columns), tuple(entries))


def _course(one: Trajectory, reference: Reference) -> _Course:
    graph = specialised(one.graph, {**one.state, **one.batches[0]})
    wide = _followed(one, graph, lambda feeds: values_of_outputs(graph, wide_values(graph, feeds, reference)))
    types = {name: value.dtype for name, value in graph.outputs}
    types |= {name: types[output] for output, name in graph.state}
    allowed: dict[str, Array] = {}
    for start in (one, *_neighbours(one)):
        own = _followed(start, graph, lambda feeds: values_of_outputs(graph, own_values(graph, feeds, reference)))
        for name, want in wide.items():
            error = allowed_error(types[name], want, own[name])
            allowed[name] = np.maximum(allowed[name], error) if name in allowed else error
    return _Course(wide, allowed)


def _neighbours(one: Trajectory) -> Iterator[Trajectory]:
    for seed in range(_NEIGHBOURS):
        rng = np.random.default_rng(seed)
        yield replace(one, state={name: _off_by_one(array, rng) for name, array in one.state.items()})


def _off_by_one(array: Array, rng: np.random.Generator) -> Array:
    """The next number above or below, for each element; zeros and integers stay."""
    if array.dtype.kind != "f":
        return array
    towards = np.where(rng.integers(0, 2, array.shape) == 1, np.inf, -np.inf).astype(array.dtype)
    return np.where(array == 0, array, np.nextafter(array, towards))


def _followed(one: Trajectory, graph: Graph, run: Any) -> dict[str, Array]:
    state = dict(one.state)
    pairs = dict(graph.state)
    rows: list[dict[str, Array]] = []
    for batch in one.batches:
        outputs = run({**state, **batch})
        rows.append({name: array for name, array in outputs.items() if name not in pairs})
        state |= {name: outputs[output] for output, name in pairs.items()}
    return _gathered(rows) | {name: state[name] for name in pairs.values()}


def _check(one: Trajectory, course: _Course, target: Target) -> Verdict:
    registry, watch = target.attempts()[0]
    try:
        program = compile(one.graph, target.device, fallback="quiet", registry=registry)
        session = program.session(one.state)
        found = _gathered([session.run(batch) for batch in one.batches])
        found |= session.state.read(list(dict(one.graph.state).values()))
        steps = watch.steps_run(target.device)
    except UnsupportedError as error:
        return Verdict(Outcome.UNSUPPORTED, said_by(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # a backend may raise anything, SystemExit too: that is a verdict
        return Verdict(Outcome.FAILED, said_by(error))
    differences = [measure(found[name], want, course.allowed[name]) for name, want in course.want.items()]
    difference = reduce(Difference.worse, differences, Difference())
    verdict = Verdict(Outcome.PASSED, "", difference, watch.kernels(target.device), steps, tuple(found.values()))
    if difference.text:
        worst = next(n for n, d in zip(course.want, differences, strict=True) if d.text)
        return replace(verdict, outcome=Outcome.FAILED, reason=f"{worst}: {difference.text}")
    placement = program.placement
    if placement is not None and placement.refusals:
        return replace(verdict, outcome=Outcome.FALLBACK, reason=str(placement))
    if not steps:
        return replace(verdict, outcome=Outcome.FAILED, reason="the device counted no step")
    return verdict


def _gathered(rows: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}


def _digest(one: Trajectory) -> str:
    state = hashlib.blake2b(f"{one.name}{len(one.batches)}".encode(), digest_size=8)
    for name, array in (*one.state.items(), *one.batches[0].items(), *one.batches[-1].items()):
        state.update(f"{name}{array.dtype}{array.shape}".encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()
