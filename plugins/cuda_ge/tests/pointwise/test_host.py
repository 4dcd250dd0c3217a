"""Every generated kernel, compiled for the CPU, against the reference kernels on the samples of its op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.errors import AicoreError
from aicore.numerics import expect
from aicore.ops import CORE
from aicore.ops.base import Pointwise
from aicore.ops.bits import BitCast
from aicore.ops.cast import Cast, CastLike
from aicore.ops.fused_pointwise import Region
from aicore.runtime import ReferenceEvaluator, type_of
from aicore.testing.cases import Case, conformance_cases
from aicore_cuda_ge.codegen.chain import reason_against
from aicore_cuda_ge.codegen.formulas import FORMULAS

Array = np.ndarray[Any, Any]
OPS = {op.__name__: op for op in (*FORMULAS, Region)}


def test_every_pointwise_op_has_a_formula() -> None:
    pointwise = {op for op in CORE.values() if issubclass(op, Pointwise)}
    assert pointwise | {Cast, CastLike, BitCast} == set(FORMULAS)


@pytest.mark.parametrize("name", OPS)
def test_samples(
    name: str, task: Callable[..., Any], host_kernels: Callable[..., Any], evaluate: ReferenceEvaluator
) -> None:
    cases = [case for case in _cases(name) if _refusal(case) is None]
    assert len(cases) >= 2, "the op's samples are not covered"
    tasks = {case.id: task(case.node().op, _operands(case)) for case in cases}
    kernels = host_kernels(list(tasks.values()))
    wrong = []
    for case in cases:
        try:
            want = expect(evaluate, case.node().op, _operands(case), [v.dtype for v in case.node().outputs])
        except AicoreError:
            assert case.derived, f"the reference refuses {case.id}"
            continue
        got = kernels.run(tasks[case.id])
        wrong += [f"{case.id}: {fault}" for fault in (want.fault(got),) if fault]
        again = kernels.run(tasks[case.id], blocks=1)
        wrong += [
            f"{case.id}: one block differs" for a, b in zip(got, again, strict=True) if a.tobytes() != b.tobytes()
        ]
    assert not wrong, "\n".join(wrong)


def _cases(name: str) -> Iterator[Case]:
    return (case for case in conformance_cases({name: OPS[name]}) if case.layout == "dense")


def _operands(case: Case) -> list[Array | None]:
    node, feeds = case.node(), case.feeds()
    return [None if v is None else feeds[v.name] if v.constant is None else v.constant.array for v in node.inputs]


def _refusal(case: Case) -> str | None:
    operands = _operands(case)
    return reason_against(case.node().op, [None if a is None else type_of(a) for a in operands])
