"""Updates and norms as the GPU computes them, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import Value, as_tuple
from aicore.kernels import REFERENCE, Kernel, KernelTable
from aicore.numerics import expect
from aicore.ops.optimizers import (
    SCALARS,
    AdagradUpdate,
    AdamUpdate,
    GlobalNorm,
    LambUpdate,
    LionUpdate,
    RMSpropUpdate,
    SGDUpdate,
)
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import optimizers

Array = np.ndarray[Any, Any]
BY_OP = {kernel.op: kernel for kernel in optimizers.KERNELS}
VARIANTS: list[Any] = [
    SGDUpdate(),
    SGDUpdate(momentum=0.9, nesterov=True),
    RMSpropUpdate(),
    RMSpropUpdate(momentum=0.5),
    RMSpropUpdate(centered=True),
    RMSpropUpdate(momentum=0.5, centered=True),
    AdagradUpdate(lr_decay=0.1),
    AdamUpdate(),
    AdamUpdate(amsgrad=True),
    AdamUpdate(decoupled=True),
    LambUpdate(),
    LionUpdate(),
]
"""One for each compiled kernel and more, to be given more tensors."""


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build("optimizer/update.cu", "optimizer/lamb.cu", "optimizer/norm.cu")


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(optimizers, "compiled", recorded)


@pytest.fixture(scope="module")
def evaluate() -> ReferenceEvaluator:
    return ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


def agrees(host: Any, evaluate: ReferenceEvaluator, op: Any, operands: tuple[Array | None, ...]) -> None:
    types = [None if a is None else type_of(a) for a in operands]
    assert BY_OP[type(op)].reason_against(op, *types) is None
    outputs = as_tuple(op.infer(*(None if t is None else Value("x", t) for t in types)))
    found = host.run(BY_OP[type(op)], op, operands)
    fault = expect(evaluate, op, operands, [t.dtype for t in outputs]).fault(found)
    assert not fault, f"{op} on {types}: {fault}"


def operands(op: Any, shapes: list[tuple[int, ...]], scale: float | None = None) -> tuple[Array | None, ...]:
    rng = np.random.default_rng(5)
    tensors = [rng.normal(size=shape) for shape in (*shapes, *shapes)]
    for name in op.slots:
        is_square = "sq" in name or name == "sum"
        tensors += [rng.uniform(1, 2, shape) if is_square else rng.uniform(-0.9, 0.9, shape) for shape in shapes]
    given = [np.array(0.1, np.float32), np.array(7), None if scale is None else np.array(scale, np.float32)]
    return (*given, *(np.asarray(tensor, np.float32) for tensor in tensors))


def with_tensors(op: Any, count: int, **fields: Any) -> Any:
    return type(op)(**{**vars(op), "count": count, **fields})


@pytest.mark.parametrize("kernel", optimizers.KERNELS, ids=lambda kernel: str(kernel.name))
def test_samples(kernel: Kernel, host: Any, evaluate: ReferenceEvaluator) -> None:
    for sample in taken(kernel):
        agrees(host, evaluate, sample.op, sample.inputs)


def taken(kernel: Kernel) -> Iterator[Any]:
    samples = [s for s in kernel.op.samples(np.random.default_rng(0)) if max(np.size(a) for a in s.inputs) < 9999]
    assert samples
    yield from samples


@pytest.mark.parametrize("op", VARIANTS, ids=repr)
def test_parts_tails_and_tensors_without_elements(op: Any, host: Any, evaluate: ReferenceEvaluator) -> None:
    """Two blocks and a tail; the first and the last tensor have no elements."""
    shapes = [(0, 3), (2051,), (), (1024,), (5,), (0,)]
    op = with_tensors(op, 6, weight_decay=0.1, decays=(True, True, False, False, True, True))
    agrees(host, evaluate, op, operands(op, shapes, 0.5))


@pytest.mark.parametrize("op", [AdamUpdate(amsgrad=True), LambUpdate()], ids=repr)
def test_more_tensors_than_one_launch_takes(op: Any, host: Any, evaluate: ReferenceEvaluator) -> None:
    """Weight decay of tensor 63, whose bit is the sign, and of some in the second launch."""
    count = optimizers.MOST_TENSORS + 7
    op = with_tensors(op, count, weight_decay=0.1, decays=tuple(i % 5 == 3 or i == 66 for i in range(count)))
    agrees(host, evaluate, op, operands(op, [(i % 4 + 1,) for i in range(count)]))
    assert len(optimizers._bind(op, types_of(op, [(3,)] * count), ())) == 2


def types_of(op: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    return [None if a is None else type_of(a) for a in operands(op, shapes)]


def zero_norms() -> tuple[Array | None, ...]:
    """A parameter of zeros, and one whose direction is zeros: both trust ratios are 1."""
    zero, one = np.zeros(3, np.float32), np.ones(3, np.float32)
    return (np.array(0.5, np.float32), np.array(1), None, zero, one, one, zero, *[zero] * 4)


def test_norms_of_zero(host: Any, evaluate: ReferenceEvaluator) -> None:
    agrees(host, evaluate, LambUpdate(2), zero_norms())
    first, second, *_ = host.run(BY_OP[LambUpdate], LambUpdate(2), zero_norms())
    np.testing.assert_allclose(first, [-0.5] * 3, rtol=1e-5)
    np.testing.assert_array_equal(second, [1] * 3)


def test_in_place(host: Any, recorded: Any) -> None:
    op = AdamUpdate(2, amsgrad=True, weight_decay=0.1)
    given = operands(op, [(1500,), (3,)])
    apart = host.run(BY_OP[AdamUpdate], op, given)
    own = [None if a is None else a.copy() for a in given]
    results: list[Any] = [None] * len(apart)
    for result, operand in op.inplace:
        results[result] = own[operand]
    for launch in optimizers._bind(op, types_of(op, [(1500,), (3,)]), ()):
        host.launch(launch, [*own, *results])
    for got, want in zip(results, apart, strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_first_steps_keep_the_digits_of_the_correction(host: Any) -> None:
    """1 - 0.999 in float32 would be off by 3e-5."""
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    op = AdamUpdate(eps=0.0)
    for step in (1, 2, 10):
        given = (np.array(1, np.float32), np.array(step), None, zero, one, zero, zero)
        new, *_ = host.run(BY_OP[AdamUpdate], op, given)
        want = -(0.1 / (1 - 0.9**step)) / np.sqrt(0.001 / (1 - 0.999**step))
        np.testing.assert_allclose(new, [want], rtol=1e-6)


def test_norm_of_many(host: Any, evaluate: ReferenceEvaluator) -> None:
    rng = np.random.default_rng(1)
    tensors = [rng.normal(size=(i * 37 % 1500,)).astype(np.float32) for i in range(70)]
    agrees(host, evaluate, GlobalNorm(), tuple(tensors))
    (found,) = host.run(BY_OP[GlobalNorm], GlobalNorm(), [np.full(4, 1e30, np.float32)])
    np.testing.assert_allclose(found, 2e30, rtol=1e-6)
    (found,) = host.run(BY_OP[GlobalNorm], GlobalNorm(), [np.zeros(0, np.float32)])
    assert found == 0


def test_blocks_of_large_models_are_larger() -> None:
    assert optimizers.chunk_of([]) == optimizers.chunk_of([1 << 20]) == 1024
    assert optimizers.chunk_of([25_000_000]) % 1024 == 0
    assert 1000 < 25_000_000 / optimizers.chunk_of([25_000_000]) <= 4096


def test_nothing_is_launched_for_nothing() -> None:
    op = SGDUpdate()
    assert optimizers._bind(op, types_of(op, [(0, 3)]), ()) == ()


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_what_is_refused(dtype: str) -> None:
    given = [type_of(np.array(0.1, np.float32)), type_of(np.array(1)), None, *[type_of(np.ones(2, dtype))] * 2]
    assert BY_OP[SGDUpdate].reason_against(SGDUpdate(), *given) == f"does not take {dtype}"
    assert BY_OP[GlobalNorm].reason_against(GlobalNorm(), given[-1]) == f"does not take {dtype}"
    assert SCALARS == 3
