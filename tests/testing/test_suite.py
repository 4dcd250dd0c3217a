"""What the authors of a backend declare, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from _pytest.outcomes import Failed, Skipped, XFailed

from aicore.plugins import PluginRegistry
from aicore.testing import Case, ConformanceSuite, Outcome, Score, Verdict
from aicore.testing.pytest_plugin import PROPERTY
from aicore.testing.suite import settle
from tests.testing import backends
from tests.testing.backends import DEVICE, backend

NOTHING = backend()
RIGHT = backend([backends.relu])
WRONG = backend([backends.relu_wrong])


def suite(registry: PluginRegistry, **attributes: Any) -> type[ConformanceSuite]:
    return type(
        "Suite",
        (ConformanceSuite,),
        {"target": DEVICE, "ops": "Relu", "registry": classmethod(lambda cls: registry), **attributes},
    )


def first(of: type[ConformanceSuite]) -> Case:
    return next(of.all_cases())


def run(of: type[ConformanceSuite], case: Case) -> list[Any]:
    recorded: list[Any] = []
    of().test_case(case, lambda name, value: recorded.append((name, value)))
    return recorded


def test_passing_records_the_proof() -> None:
    one = suite(RIGHT)
    assert run(one, first(one)) == [(PROPERTY, [DEVICE, "passed", 4])]


def test_wrong_numbers_fail() -> None:
    one = suite(WRONG)
    with pytest.raises(Failed, match=r"1 of 30 elements are wrong(.|\n)*kernels: relu_off_by_one_place"):
        run(one, first(one))


def test_falling_back_is_skipped_but_not_where_it_must_run() -> None:
    one = suite(NOTHING)
    with pytest.raises(Skipped, match=r"passed by fallback: .*no kernel for Relu on npu"):
        run(one, first(one))
    must = suite(NOTHING, must_run=("Relu-float32-*",))
    with pytest.raises(Failed, match=r"npu must run it itself, but: .*no kernel for Relu on npu"):
        run(must, first(must))


def test_skipping_needs_no_run_and_leaves_a_trace() -> None:
    one = suite(WRONG, skip={"Relu-*": "issue 12"})
    recorded: list[Any] = []
    with pytest.raises(Skipped, match="issue 12"):
        one().test_case(first(one), lambda name, value: recorded.append(value))
    assert recorded == [[DEVICE, "skipped", 0]]
    assert str(Score.from_names({"skipped": 3}, 0)) == "score 0.0%: 3 skipped"
    assert Score.from_names({"passed": 1, "skipped": 3}, 2).value == 0.25


def test_a_suite_that_skips_everything_ran_nothing() -> None:
    with pytest.raises(Failed, match="npu ran not one case by itself: its score is 0"):
        suite(RIGHT, skip={"*": "later"})().test_the_device_runs_something()


def test_expected_failures_are_strict() -> None:
    wrong = suite(WRONG, expected_failures={"Relu-float32-0": "rounds up; issue 12"})
    with pytest.raises(XFailed, match=r"rounds up; issue 12 \(1 of 30 elements"):
        run(wrong, first(wrong))
    right = suite(RIGHT, expected_failures={"Relu-float32-0": "rounds up; issue 12"})
    with pytest.raises(Failed, match="it passes, but is expected to fail: rounds up; issue 12"):
        run(right, first(right))


def test_exceptions_must_match_something_and_say_why() -> None:
    suite(RIGHT, skip={"Relu-*": "why not"})().test_every_exception_is_needed()
    with pytest.raises(AssertionError, match="patterns that match no case"):
        suite(RIGHT, must_run=("Rleu-*",))().test_every_exception_is_needed()
    with pytest.raises(AssertionError, match="patterns without a reason"):
        suite(RIGHT, expected_failures={"Relu-*": " "})().test_every_exception_is_needed()


def test_a_backend_must_run_something() -> None:
    suite(RIGHT)().test_the_device_runs_something()
    with pytest.raises(Failed, match="npu ran not one case by itself: its score is 0"):
        suite(NOTHING)().test_the_device_runs_something()


def test_what_means_nothing_is_skipped() -> None:
    one = suite(RIGHT, ops="Compress")
    refused = next(case for case in one.all_cases() if case.derived)
    with pytest.raises(Skipped, match="the op means nothing for these operands"):
        run(one, refused)


@pytest.mark.parametrize(
    ("outcome", "exception"),
    [(Outcome.UNSUPPORTED, Skipped), (Outcome.RENAMED, Skipped), (Outcome.EXPECTED, XFailed)],
)
def test_other_ends(outcome: Outcome, exception: type[BaseException]) -> None:
    with pytest.raises(exception, match="why"):
        settle(Verdict(outcome, "why"))


def test_scores() -> None:
    verdicts = [Verdict(Outcome.PASSED, steps=2), Verdict(Outcome.PASSED, steps=3), Verdict(Outcome.RENAMED)]
    assert str(Score.of(verdicts)) == "score 100.0%: 2 passed (5 steps), 1 renamed"
    fallen = Score.of([*verdicts, Verdict(Outcome.FALLBACK), Verdict(Outcome.FAILED)])
    assert fallen.value == 0.5
    assert Score.of([Verdict(Outcome.FALLBACK)]).value == 0
    assert str(Score.of([])) == "score 0.0%: no case"


def test_the_worse_of_two_verdicts() -> None:
    right, wrong = Verdict(Outcome.PASSED, steps=2, kernels=("a",)), Verdict(Outcome.FAILED, "no", kernels=("b",))
    for both in (right.worse(wrong), wrong.worse(right)):
        assert (both.outcome, both.reason, both.steps, set(both.kernels)) == (Outcome.FAILED, "no", 2, {"a", "b"})
    assert not Outcome.FAILED.is_right
    assert Outcome.EXPECTED.is_right
