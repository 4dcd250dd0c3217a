"""Every way in which a case can end."""

from __future__ import annotations

import numpy as np
import pytest

import aicore.ops as ops
from aicore.ir import Sample
from aicore.kernels import kernel
from aicore.plugins import PluginRegistry
from aicore.testing import Case, Outcome, Reference, Target, Verdict, check, check_case, conformance_cases, expected_of
from tests.testing import backends
from tests.testing.backends import DEVICE, Array, backend


def case_of(op: ops.Relu | ops.Identity, *inputs: Array, constant: tuple[int, ...] = ()) -> Case:
    return Case(type(op).__name__, 0, Sample(op, inputs, constant), str(inputs[0].dtype), "plain")


X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
RELU = case_of(ops.Relu(), X)


def verdict(registry: PluginRegistry, case: Case = RELU, target: str = DEVICE) -> Verdict:
    expected = expected_of(case, Reference(registry))
    assert expected is not None
    return check_case(case, Target.find(target, registry), expected)


def test_passed_with_proof() -> None:
    found = verdict(backend([backends.relu]))
    assert (found.outcome, found.kernels) == (Outcome.PASSED, ("relu_plain",))
    assert found.steps == 4  # twice in the graph, which ran twice


def test_a_backend_that_implements_nothing_falls_back() -> None:
    found = verdict(backend())
    assert found.outcome is Outcome.FALLBACK
    assert "no kernel for Relu on npu" in found.reason
    assert found.steps == 0


def test_what_needs_no_kernel_is_nobody_s_credit() -> None:
    case = case_of(ops.Identity(), X)
    assert verdict(backend(), case).outcome is Outcome.RENAMED


def test_a_declared_refusal() -> None:
    found = verdict(backend([backends.relu_of_vectors]))
    assert found.outcome is Outcome.FALLBACK
    assert "only vectors" in found.reason
    assert verdict(backend([backends.relu_of_vectors]), case_of(ops.Relu(), X[0])).outcome is Outcome.PASSED


def test_unsupported_where_nothing_else_may_run_it() -> None:
    found = verdict(backend([backends.relu_of_vectors]), target=f"{DEVICE}:vectors")
    assert found.outcome is Outcome.UNSUPPORTED
    assert "only vectors" in found.reason


def test_wrong_in_the_last_place() -> None:
    found = verdict(backend([backends.relu_wrong]))
    assert found.outcome is Outcome.FAILED
    assert "1 of 6 elements are wrong; [1, 0] is" in found.reason


def test_an_operand_that_is_overwritten() -> None:
    found = verdict(backend([backends.relu_overwriting]))
    assert found.outcome is Outcome.FAILED
    assert "on its second use of the same operands" in found.reason


def test_an_operand_of_the_caller_that_is_overwritten() -> None:
    def cpu(op: ops.Relu, x: Array, *, out: Array) -> None:
        np.maximum(x, 0, out=out)
        x[0] = 0

    overwriting = kernel(ops.Relu, device="cpu", variant="overwriting")(cpu)
    registry = backend([overwriting])
    case = case_of(ops.Relu(), np.float32([[-1, 2], [3, 4]]))  # the first row does not show it, so it is the bytes
    assert verdict(registry, case, "cpu:overwriting").outcome is Outcome.FAILED
    negative = case_of(ops.Relu(), np.float32([[-1, -2], [3, 4]]))
    assert verdict(registry, negative, "cpu:overwriting").reason == "operand x0 was overwritten"


def test_a_constant_that_is_overwritten() -> None:
    constant = case_of(ops.Relu(), X, constant=(0,))
    found = verdict(backend([backends.relu_overwriting]), constant)
    assert found.outcome is Outcome.FAILED
    assert "read-only" in found.reason


def test_an_exception_is_a_verdict() -> None:
    found = verdict(backend([backends.relu_raising]))
    assert found.outcome is Outcome.FAILED
    assert "relu_raising failed" in found.reason
    assert "ZeroDivisionError: no" in found.reason


def test_steps_that_nobody_counted() -> None:
    found = verdict(backend([backends.relu], launch=backends.CountingNothing))
    assert found.outcome is Outcome.FAILED
    assert found.reason == "the device counts 0 steps of a run for which 2 were planned: did they run?"


def test_declared_and_yet_refused() -> None:
    found = verdict(backend([backends.relu], launch=backends.refusing))
    assert found.outcome is Outcome.FAILED
    assert found.reason == "a kernel declares that it takes this, and yet: out of registers"


def test_every_variant_takes_its_turn() -> None:
    found = verdict(backend([backends.relu, backends.relu_wrong]), target=f"{DEVICE}:fast")
    assert found.outcome is Outcome.FAILED
    assert found.kernels == ("relu_plain", "relu_off_by_one_place")
    assert found.steps == 8


def test_one_variant_is_enough_where_the_others_refuse() -> None:
    found = verdict(backend([backends.relu_of_vectors, backends.relu]), target=f"{DEVICE}:fast")
    assert (found.outcome, found.kernels) == (Outcome.PASSED, ("relu_plain",))


def test_a_fused_op_runs_by_its_parts(registry: PluginRegistry) -> None:
    case = next(conformance_cases({"GemmAct": ops.GemmAct}))
    found = verdict(registry, case, "cpu:reference")
    assert found.outcome is Outcome.PASSED
    assert found.kernels == ("gemm_reference", "relu_reference")


@pytest.mark.parametrize("name", ["If", "Loop", "Scan"])
def test_control_flow_counts_the_steps_of_its_bodies(name: str, registry: PluginRegistry) -> None:
    case = next(conformance_cases({name: ops.CORE[name]}))
    found = verdict(registry, case, "fake")
    assert found.outcome is Outcome.PASSED
    assert found.steps > 0


def test_a_body_that_runs_elsewhere_is_a_fallback() -> None:
    case = next(conformance_cases({"Scan": ops.Scan}))
    found = verdict(backend([backends.relu]), case)
    assert found.outcome is Outcome.FALLBACK
    assert found.reason == "parts of it ran on cpu"


def test_an_edge_case_that_the_op_refuses_is_none(registry: PluginRegistry) -> None:
    reference = Reference(registry)
    refused = [c.id for c in conformance_cases({"Compress": ops.Compress}) if expected_of(c, reference) is None]
    assert refused == [f"Compress-{dtype}-4" for dtype in ("float32", "float64", "float16", "bfloat16")]


def test_a_result_that_a_later_run_changes() -> None:
    changed = check.changed([np.ones(2), np.zeros(2)], [np.ones(2), np.ones(2)])
    assert changed == "result y1 changed while a later run computed its own"
