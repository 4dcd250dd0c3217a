"""Everything through dispatch: all ops on the reference kernels, on each fast one, and on the fake GPU.

The fake GPU computes with the CPU's kernels, but only what was discovered, selected, planned, copied and launched as on
a GPU arrives there; so a case that passes proves the way, and the step counts prove that it was gone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, as_tuple
from aicore.kernels import REFERENCE, Kernel
from aicore.ops import CORE
from aicore.plugins import PluginRegistry
from aicore.testing import Case, Outcome, Reference, Target, Verdict, check_case, conformance_cases, expected_of
from aicore_cpu_numpy.kernels import all_kernels
from tests.testing import backends

TARGETS = ("cpu:reference", "cpu:fast", "fake")
REFUSALS = ("no kernel for", "depends on data", "holds strings")
"""Why a case may be on no kernel of the target: it declares none, or refuses sizes, element types or attributes."""


def run(cases: Iterable[Case], name: str, registry: PluginRegistry) -> dict[Outcome, list[tuple[Case, Verdict]]]:
    reference, target = Reference(registry), Target.find(name, registry)
    found: dict[Outcome, list[tuple[Case, Verdict]]] = defaultdict(list)
    for case in cases:
        expected = expected_of(case, reference)
        if expected is not None:
            verdict = check_case(case, target, expected)
            found[verdict.outcome].append((case, verdict))
    return found


def check(found: dict[Outcome, list[tuple[Case, Verdict]]]) -> None:
    assert [f"{case.id}: {verdict.reason}" for case, verdict in found[Outcome.FAILED]] == []
    elsewhere = [*found[Outcome.FALLBACK], *found[Outcome.UNSUPPORTED]]
    assert [v.reason for _, v in elsewhere if not any(text in v.reason for text in REFUSALS)] == []
    assert all(verdict.steps > 0 for _, verdict in found[Outcome.PASSED])


def one_of_each(cases: Iterable[Case]) -> list[Case]:
    """For each op one case of each kind, in the type in which the op gives it."""
    wanted = (case for case in cases if case.dtype not in ("float64", "bfloat16"))
    return list({(case.name, case.kind): case for case in wanted}.values())


@pytest.mark.parametrize("target", TARGETS[1:])
def test_one_case_of_each_kind(target: str, registry: PluginRegistry) -> None:
    found = run(one_of_each(conformance_cases(CORE)), target, registry)
    check(found)
    assert len(found[Outcome.PASSED]) > {"cpu:fast": 200, "fake": 400}[target]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_all_cases(target: str, registry: PluginRegistry) -> None:
    found = run(conformance_cases(CORE), target, registry)
    check(found)
    counts = Counter({outcome: len(cases) for outcome, cases in found.items()})
    least = {"cpu:reference": 0.99, "cpu:fast": 0.5, "fake": 0.94}[target]
    assert counts[Outcome.PASSED] / (counts.total() - counts[Outcome.RENAMED]) > least


def test_what_the_cpu_and_the_fake_gpu_compute_is_equal(registry: PluginRegistry) -> None:
    """Bit for bit, where the same kernels run."""
    reference = Reference(registry)
    targets = [Target.find(name, registry) for name in ("cpu", "fake")]
    names = ("Conv", "Gemm", "Softmax", "LayerNormalization", "LSTM", "Resize", "Region", "ScatterND")
    for name in names:
        case = next(conformance_cases({name: CORE[name]}))
        expected = expected_of(case, reference)
        assert expected is not None
        first, second = (check_case(case, target, expected, keep_outputs=True) for target in targets)
        assert first.kernels == second.kernels
        assert [a.tobytes() for a in first.outputs] == [b.tobytes() for b in second.outputs], name


def _spoilt(kernel: Kernel) -> Kernel:
    """The kernel with one element of each result changed: by a thousandth, or by 1 if it is an integer.

    It is the one in the middle, or where that is 0, of which a thousandth is nothing, the first other one.
    """

    def function(op: Op, *operands: Any, **options: Any) -> Any:
        results = tuple(np.array(result) for result in as_tuple(kernel.function(op, *operands, **options)))
        for result in results:
            middle = result.size // 2
            if result.dtype.kind == "f" and result.any() and not result.flat[middle]:
                middle = int(np.flatnonzero(result)[0])
            if result.dtype.kind == "b" and result.size:
                result.flat[middle] = not result.flat[middle]
            elif result.dtype.kind in "fiu" and result.size and np.isfinite(result.flat[middle]):
                result.flat[middle] += result.flat[middle] * 1e-3 if result.dtype.kind == "f" else 1
        return results[0] if len(results) == 1 else results

    return replace(kernel, function=function, device=backends.DEVICE)


@pytest.mark.slow
def test_a_thousandth_is_found_in_every_op() -> None:
    """Tolerances are worth something: an error of 1e-3 in one element of each op's results is found by some case."""
    kernels = [k for k in all_kernels() if k.variant == REFERENCE and k.returns and k.bind is None]
    registry = backends.backend([_spoilt(kernel) for kernel in kernels])
    dtypes = ("float32", "int64", "int32", "uint8", "bool")
    cases = [case for case in conformance_cases(CORE, dtypes=dtypes) if case.layout == "dense"]
    found = run(cases, backends.DEVICE, registry)
    failed = {case.name for case, _ in found[Outcome.FAILED]}
    ran = failed | {case.name for case, _ in found[Outcome.PASSED]}
    assert ran - failed == set()
    assert len(ran) > 140
