"""The gradient of every op against finite differences, over its samples; ops without one are listed, with reasons."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import FLOATS, Builder, Op, Sample, as_tuple
from aicore.ops import CORE
from aicore.plugins import PluginRegistry
from aicore.testing import Outcome, Reference, check_gradient

_UNUSED = "no layer computes it; its gradient waits for one that does"
_TWICE = "a step of a backward pass: gradients of gradients are asked of compositions of simpler ops"
_NO_NUMBER = "its results are bits, indices or counts"

NOT_DIFFERENTIABLE: dict[str, str] = {
    "*Grad": _TWICE,
    "ChannelsLast: *Grad*": _TWICE,
    "RNN: *residuals": _TWICE,
    "GRU: *residuals": _TWICE,
    "LSTM: *residuals": _TWICE,
    "BitCast": _NO_NUMBER,
    "Loop": "how often it runs is known at the run alone, so what to keep is; recurrent layers have ops of their own",
    "Scan": "recurrent layers have ops of their own",
    "DequantizeLinear": "integers go in, and scales are found by calibration",
    "CumProd": _UNUSED,
    "DeformConv": _UNUSED,
    "Det": _UNUSED,
    "DFT": _UNUSED,
    "STFT": _UNUSED,
    "GridSample": _UNUSED,
    "AffineGrid": _UNUSED,
    "RoiAlign": _UNUSED,
    "MelWeightMatrix": "its floats are the bounds of a filter bank",
    "TensorScatter": "it fills a cache of keys and values, which inference has alone",
    "Col2Im": _UNUSED,
    "Unique": "which elements are distinct jumps with each of them",
    "ScatterElements: mul*": _UNUSED,
    "ScatterElements: max*": _UNUSED,
    "ScatterElements: min*": _UNUSED,
    "ScatterND: mul*": _UNUSED,
    "ScatterND: max*": _UNUSED,
    "ScatterND: min*": _UNUSED,
    "Resize: not_*": "the sizes of all axes make up the scale of each",
}
"""Patterns of names of ops, and after a colon of the notes of samples, that have no gradient, and why."""

NO_DERIVATIVE = {
    "LambUpdate: norms of 0": "the ratio of norms jumps there; nothing takes the gradient of an optimiser's step",
}
"""Samples at a place where the op has no derivative in any direction."""


def samples() -> Iterator[tuple[str, Sample]]:
    for name, cls in CORE.items():
        for number, sample in enumerate(cls.samples(np.random.default_rng(0))):
            yield f"{name}-{number}", sample


def listed(sample: Sample, table: dict[str, str]) -> str | None:
    """The first pattern that fits the sample."""
    name = type(sample.op).__name__
    for pattern in table:
        op, _, note = pattern.partition(": ")
        if fnmatch.fnmatchcase(name, op) and fnmatch.fnmatchcase(sample.note, note or "*"):
            return pattern
    return None


@pytest.fixture(scope="module")
def reference(registry: PluginRegistry) -> Reference:
    return Reference(registry)


@pytest.mark.parametrize("sample", [pytest.param(sample, id=name) for name, sample in samples()])
def test_gradient_is_that_of_finite_differences(sample: Sample, reference: Reference) -> None:
    pattern = listed(sample, NO_DERIVATIVE)
    if pattern is not None:
        pytest.skip(NO_DERIVATIVE[pattern])
    verdict = check_gradient(sample, reference)
    if verdict.outcome is Outcome.SKIPPED:
        pytest.skip(verdict.reason)
    pattern = listed(sample, NOT_DIFFERENTIABLE)
    if verdict.outcome is Outcome.UNSUPPORTED and pattern is not None:
        pytest.skip(NOT_DIFFERENTIABLE[pattern])
    assert verdict.outcome is Outcome.PASSED, verdict.reason


@pytest.mark.parametrize("pattern", NOT_DIFFERENTIABLE)
def test_what_is_listed_has_no_gradient(pattern: str, reference: Reference) -> None:
    fitting = [sample for _, sample in samples() if listed(sample, {pattern: ""})]
    outcomes = (check_gradient(sample, reference).outcome for sample in fitting)
    if pattern == "BitCast":  # it does not take float64 for what it takes
        assert set(outcomes) == {Outcome.SKIPPED}
    else:
        assert Outcome.UNSUPPORTED in outcomes


@pytest.mark.parametrize("cls", [pytest.param(cls, id=name) for name, cls in CORE.items()])
def test_every_op_of_floats_is_compared_or_listed(cls: type[Op], reference: Reference) -> None:
    own = list(cls.samples(np.random.default_rng(0)))
    if not any(map(_takes_and_gives_floats, own)):
        pytest.skip("it takes or gives no floating point")
    verdicts = (check_gradient(s, reference) for s in own if not listed(s, NO_DERIVATIVE | NOT_DIFFERENTIABLE))
    is_compared = any(v.outcome is Outcome.PASSED and v.compared for v in verdicts)
    is_listed = any(fnmatch.fnmatchcase(cls.__name__, p) for p in NOT_DIFFERENTIABLE)
    assert is_compared or is_listed, "neither compared with finite differences nor in NOT_DIFFERENTIABLE"


def _takes_and_gives_floats(sample: Sample) -> bool:
    builder = Builder()
    values: list[Any] = [None if a is None else builder.constant(a) for a in sample.inputs]
    results = as_tuple(builder.apply(sample.op, *values))
    return any(v is not None and v.dtype in FLOATS for v in values) and any(v.dtype in FLOATS for v in results)
