"""The comparison of gradients with finite differences tells right ones from wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Namespace, Op, Sample, Value
from aicore.ops.elementwise import Exp, Floor, Round
from aicore.ops.matmul import Det
from aicore.ops.ordering import ArgMax
from aicore.plugins import PluginRegistry
from aicore.testing import Outcome, Reference, check_gradient
from aicore.testing.slopes import slope

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
MATRIX = RNG.uniform(0.5, 2.0, (5, 7)).astype("float32")


@pytest.fixture(scope="module")
def reference(registry: PluginRegistry) -> Reference:
    return Reference(registry)


@dataclass(frozen=True)
class Cube(Op):
    """x ** 3, and in `fault` what is wrong with its gradient."""

    fault: str = ""

    def decompose(self, op: Namespace, x: Any) -> Any:
        return op.Mul(op.Mul(x, x), x)

    def grad(
        self, op: Builder, inputs: Sequence[Any], outputs: Sequence[Value], grads: Sequence[Any]
    ) -> Sequence[Value | None]:
        (x,), (g,) = inputs, grads
        right = op.Mul(g, op.Mul(op.Mul(x, x), op.scalar(3.0, x)))
        match self.fault:
            case "one element":
                wrong = np.ones((5, 7))
                wrong[3, 4] += 1e-3
                return (op.Mul(right, op.constant(wrong)),)
            case "a factor":
                return (op.Mul(right, op.scalar(1 + 1e-5, x)),)
            case "missing":
                return (None,)
            case "open sizes":
                return (op.Mul(right, op.scalar(1.0 if x.type.is_static else 1.1, x)),)
        return (right,)


@dataclass(frozen=True)
class Both(Op):
    """(x, x): two results, of which a gradient may forget one when it is alone."""

    forgets: bool = False

    def n_outputs(self) -> int:
        return 2

    def decompose(self, op: Namespace, x: Any) -> Any:
        return op.Identity(x), op.Identity(x)

    def grad(
        self, op: Builder, inputs: Sequence[Any], outputs: Sequence[Value], grads: Sequence[Any]
    ) -> Sequence[Value | None]:
        first, second = grads
        if first is None or second is None:
            return (first if self.forgets else first or second,)
        return (op.Add(first, second),)


def test_a_right_gradient_passes(reference: Reference) -> None:
    verdict = check_gradient(Sample(Cube(), (MATRIX,)), reference)
    assert (verdict.outcome, verdict.left_out) == (Outcome.PASSED, 0)
    assert verdict.compared > 20


@pytest.mark.parametrize("fault", ["one element", "a factor", "missing"])
def test_a_wrong_gradient_fails(fault: str, reference: Reference) -> None:
    verdict = check_gradient(Sample(Cube(fault), (MATRIX,)), reference)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reason.startswith("by x0")
    assert "finite differences say" in verdict.reason


def test_a_gradient_that_is_wrong_for_open_sizes_fails(reference: Reference) -> None:
    verdict = check_gradient(Sample(Cube("open sizes"), (MATRIX[:2, :2],)), reference)
    assert verdict.outcome is Outcome.FAILED
    assert "sizes that are open until the run" in verdict.reason


def test_each_result_is_tried_alone(reference: Reference) -> None:
    assert check_gradient(Sample(Both(), (MATRIX,)), reference).outcome is Outcome.PASSED
    verdict = check_gradient(Sample(Both(forgets=True), (MATRIX,)), reference)
    assert (verdict.outcome, verdict.reason[-20:]) == (Outcome.FAILED, ", of the results [1]")


def test_a_sample_on_kinks_is_moved_off_them(reference: Reference) -> None:
    verdict = check_gradient(Sample(Round(), (np.arange(-4.5, 5.0, 0.5, dtype="float32"),)), reference)
    assert verdict.outcome is Outcome.PASSED
    assert verdict.left_out <= verdict.compared / 10


@dataclass(frozen=True)
class Stairs(Op):
    """floor(1024 * x): half of all points have a jump within reach of the differences."""

    def decompose(self, op: Any, x: Any) -> Any:
        return op.apply(Floor(), op.Mul(x, op.scalar(1024.0, x)))


def test_an_op_that_is_all_kinks_fails(reference: Reference) -> None:
    verdict = check_gradient(Sample(Stairs(), (MATRIX,)), reference)
    assert verdict.outcome is Outcome.FAILED
    assert "seem to be on kinks" in verdict.reason


def test_what_cannot_be_compared_says_why(reference: Reference) -> None:
    specials = np.array([np.nan, np.inf, 1.0], "float32")
    for sample, outcome, reason in (
        (Sample(Exp(), (specials,)), Outcome.SKIPPED, "NaN and infinities"),
        (Sample(ArgMax(), (MATRIX,)), Outcome.SKIPPED, "no result of floating point"),
        (Sample(Exp(), (np.zeros((0, 3), "float32"),)), Outcome.PASSED, ""),
        (Sample(Exp(), (np.zeros(1 << 19, "float32"),)), Outcome.SKIPPED, "too many elements"),
        (Sample(Det(), (MATRIX[:3, :3],)), Outcome.UNSUPPORTED, "Det 'det': Det has no gradient"),
    ):
        verdict = check_gradient(sample, reference)
        assert verdict.outcome is outcome
        assert verdict.reason.startswith(reason)


def test_slopes_are_those_of_calculus() -> None:
    x = np.array([0.5, -2.0])
    weights = [np.array([1.0, -3.0])]
    for function, derivative in (
        (np.sin, np.cos),
        (np.exp, np.exp),
        (lambda v: v**5, lambda v: 5 * v**4),
        (lambda v: 1 / v, lambda v: -1 / v**2),
    ):
        found = slope(lambda v, f=function: [f(v)], x, np.array([1.0, 0.0]), weights).of([0])
        assert found is not None
        value, error = found
        assert abs(value - derivative(0.5)) <= max(error, 1e-10)
        assert error < 1e-5


@pytest.mark.parametrize("kink", [0.0, 1e-5, 2.0**-12 / 3, -(2.0**-12) / 2, 2.0**-12 * 0.9])
def test_kinks_and_jumps_near_a_point_are_noticed(kink: float) -> None:
    x, one = np.array([1.0]), np.array([1.0])
    for function in (np.abs, np.sign, lambda v: np.maximum(v, 0.0) * 1e-2):
        assert slope(lambda v, f=function: [f(v - 1.0 - kink)], x, one, [one]).of([0]) is None


def test_values_that_are_no_numbers_or_change_their_count_are_no_slopes() -> None:
    x, one = np.array([0.0]), np.array([1.0])
    with np.errstate(all="ignore"):
        assert slope(lambda v: [np.sqrt(v)], x, one, [one]).of([0]) is None
    assert slope(lambda v: [v[v > 0]], x, one, [one]).of([0]) is None
