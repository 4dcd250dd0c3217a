"""Attention as the GPU computes it, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType, Value, numpy_dtype, symbol
from aicore.kernels import REFERENCE, KernelTable
from aicore.numerics import expect
from aicore.ops.attention import DotProductAttention
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import attention
from aicore_cuda_ge.kernels._machine import Machine

Array = np.ndarray[Any, Any]
Shape = tuple[int, int, int, int, int]
(KERNEL,) = attention.KERNELS
PLANS = ("64/1", "16/1", "8/1", "8/4", "8/16", "64/2", "16/3")


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build(*(f"kernels/attention_{dtype}.cu" for dtype in ("float32", "float16", "bfloat16")))


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(attention, "compiled", recorded)


@pytest.fixture(scope="module")
def evaluate() -> ReferenceEvaluator:
    return ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


def agrees(host: Any, evaluate: Any, op: DotProductAttention, operands: Any, plans: Any = PLANS) -> None:
    types = [None if a is None else type_of(a) for a in operands]
    assert KERNEL.reason_against(op, *types) is None
    wanted = op.infer(*(None if t is None else Value("x", t) for t in types))
    assert not isinstance(wanted, tuple)
    expected = expect(evaluate, op, operands, [wanted.dtype])
    for plan in plans:
        fault = expected.fault(host.run(KERNEL, op, operands, plan=plan))
        assert not fault, f"{op} by {plan} on {types}: {fault}"


def test_samples(host: Any, evaluate: ReferenceEvaluator) -> None:
    for sample in DotProductAttention.samples(np.random.default_rng(0)):
        agrees(host, evaluate, sample.op, sample.inputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types(dtype: str, host: Any, evaluate: ReferenceEvaluator) -> None:
    for sample in list(DotProductAttention.samples(np.random.default_rng(0)))[:5]:
        operands = [None if a is None else a.astype(numpy_dtype(dtype)) for a in sample.inputs]
        agrees(host, evaluate, sample.op, operands, ("64/1", "16/1", "8/4"))


@pytest.mark.parametrize(("size", "width"), [(16, 16), (32, 32), (64, 48), (96, 128), (5, 7), (128, 128)])
@pytest.mark.parametrize("keys", [1, 31, 100])
def test_sizes(size: int, width: int, keys: int, host: Any, evaluate: ReferenceEvaluator) -> None:
    rng = np.random.default_rng(keys)
    shapes = ((1, 2, 19, size), (1, 2, keys, size), (1, 2, keys, width))
    operands = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    agrees(host, evaluate, DotProductAttention(size**-0.5), operands, ("64/1", "16/1", "8/1", "8/2"))


def test_results_do_not_depend_on_the_order_of_threads(host: Any) -> None:
    """Twice the same bits; each run of fibers has an order of its own."""
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal((1, 1, 40, 32)).astype(np.float32) for _ in range(3)]
    for plan in PLANS:
        one, other = (host.run(KERNEL, DotProductAttention(0.2), operands, plan=plan)[0] for _ in range(2))
        np.testing.assert_array_equal(one, other)


def test_views_that_are_read_16_bytes_at_a_time() -> None:
    assert attention.View.of("blphd", (2, 128, 3, 8, 32), 2).is_wide
    assert attention.View.of("blphd", (2, 128, 3, 8, 32), 2).params == (512, 98304, 32, 768, 1)
    assert not attention.View.of("bhdl", (2, 8, 32, 128)).is_wide
    assert not attention.View.of("bhld", (2, 8, 128, 30)).is_wide


def test_small_problems_get_small_tiles() -> None:
    def best(*shape: int) -> str:
        tensor = TensorType("float32", shape)
        op = DotProductAttention()
        return min(attention.PLANS, key=lambda plan: attention.estimate(op, tensor, tensor, tensor, plan=plan))

    assert best(32, 8, 512, 64) == "64/1"
    assert best(1, 8, 128, 32) in ("16/1", "8/1")


def test_long_keys_are_cut_for_few_queries() -> None:
    q, k = TensorType("float32", (1, 8, 1, 64)), TensorType("float32", (1, 8, 8192, 64))
    op = DotProductAttention()
    plan = min(attention.PLANS, key=lambda plan: attention.estimate(op, q, k, k, plan=plan))
    rows, splits = attention.parse(plan)
    assert rows == 8
    assert splits > 1
    assert attention.workspace(op, q, k, k, plan=plan) == 4 * splits * 8 * 66


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        (((1, 2, 3, 200), (1, 2, 4, 200), (1, 2, 4, 200)), "heads up to 128, here 200"),
        (((1, 2, 3, 8), (1, 1, 4, 8), (1, 1, 4, 8)), "as many heads"),
        (((1, 2, 3, 8), (1, 2, 0, 8), (1, 2, 0, 8)), "at least one key"),
        (((1, 2, 3, 8), (1, 2, 4, 8), (1, 2, 4, 8), (5, 2, 3, 4)), "makes the scores no larger"),
        ((("n", 2, 3, 8), (1, 2, 4, 8), (1, 2, 4, 8)), "known in numbers"),
    ],
)
def test_what_is_refused(shapes: Any, reason: str) -> None:
    types = [TensorType("float32", tuple(symbol(d) if isinstance(d, str) else d for d in shape)) for shape in shapes]
    assert reason in str(KERNEL.reason_against(DotProductAttention(), *types))


TIMES: dict[Shape, dict[str, float]] = {
    (1, 8, 128, 128, 32): {"64/1": 14.65, "16/1": 4.1, "8/1": 3.94, "8/2": 8.94},
    (2, 8, 128, 128, 32): {"64/1": 14.76, "16/1": 4.42, "8/1": 5.21, "8/2": 10.57},
    (4, 8, 128, 128, 32): {"64/1": 15.02, "16/1": 5.95, "8/1": 9.1, "8/2": 13.01},
    (8, 8, 128, 128, 32): {"64/1": 15.14, "16/1": 9.67, "8/1": 14.67, "8/2": 19.19},
    (32, 8, 128, 128, 32): {"64/1": 31.31, "16/1": 30.67, "8/1": 39.29, "8/2": 60.83},
    (1, 12, 512, 512, 64): {"64/1": 77.6, "16/1": 51.9, "8/1": 60.6, "8/4": 83.6, "8/16": 124.4},
    (8, 12, 512, 512, 64): {"64/1": 225.4, "16/1": 288.4, "8/1": 413.5, "8/4": 567.3, "8/16": 1009.8},
    (4, 16, 2048, 2048, 64): {"64/1": 2155.2, "16/1": 2613.3, "8/1": 3823.5, "8/4": 4382.5, "8/16": 5652.9},
    (4, 16, 1024, 1024, 128): {"64/1": 1054.9, "16/1": 1584.4, "8/1": 2402.7, "8/4": 3440.0, "8/16": 4132.4},
    (1, 32, 1, 4096, 128): {"64/1": 622.8, "16/1": 198.1, "8/1": 151.8, "8/4": 57.3, "8/16": 71.6},
}
"""Microseconds on an H200 by batch, heads, queries, keys and size of head."""


@pytest.mark.parametrize("shape", TIMES, ids=str)
def test_the_plan_that_is_chosen_is_fast(
    shape: tuple[int, int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the plans that were measured, the chosen one takes at most 5% more than the best; estimates are near."""
    monkeypatch.setattr(attention, "machine", Machine)
    batch, heads, queries, keys, size = shape
    q, k = (TensorType("float32", (batch, heads, length, size)) for length in (queries, keys))
    times = TIMES[shape]
    estimates = {plan: attention.estimate(DotProductAttention(), q, k, k, plan=plan) * 1e6 for plan in times}
    chosen = min(times, key=lambda plan: estimates[plan])
    assert times[chosen] <= 1.05 * min(times.values())
    assert all(1 / 1.35 < estimates[plan] / times[plan] < 1.35 for plan in times)
