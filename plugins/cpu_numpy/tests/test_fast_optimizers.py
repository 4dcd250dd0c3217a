"""Updates by blocks give what their decomposition gives in float64: over several blocks, threads, and in place."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, as_tuple
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
from aicore.runtime import type_of, using_threads
from aicore_cpu_numpy.fast import optimizers
from aicore_cpu_numpy.fast.optimizers import BLOCK, KERNELS

Array = np.ndarray[Any, Any]
BY_OP = {kernel.op: kernel for kernel in KERNELS}
SHAPES = ((3, BLOCK), (7,), (), (0, 2), (BLOCK + 1,), (5, 11))
OPS: list[Any] = [
    SGDUpdate(6),
    SGDUpdate(6, momentum=0.9, weight_decay=0.1),
    SGDUpdate(6, momentum=0.9, nesterov=True),
    RMSpropUpdate(6),
    RMSpropUpdate(6, momentum=0.5, centered=True, weight_decay=0.1, decays=(True, False, True, True, False, True)),
    AdagradUpdate(6, lr_decay=0.1),
    AdamUpdate(6, weight_decay=0.1),
    AdamUpdate(6, amsgrad=True),
    AdamUpdate(6, decoupled=True, weight_decay=0.1, decays=(False, True, True, True, True, False)),
    LambUpdate(6, weight_decay=0.1, decays=(True, True, False, True, False, True)),
    LionUpdate(6, weight_decay=0.1),
]


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"], autouse=True)
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(optimizers, "parts_of", lambda seconds: request.param)
    with using_threads(request.param):
        yield


def operands(op: Any, scale: float | None, dtype: str = "float32") -> list[Any]:
    rng = np.random.default_rng(5)
    tensors = [rng.normal(size=shape) for shape in (*SHAPES, *SHAPES)]
    for name in op.slots:
        is_square = "sq" in name or name == "sum"
        tensors += [rng.uniform(1, 2, shape) if is_square else rng.uniform(-0.9, 0.9, shape) for shape in SHAPES]
    given = [np.array(0.1, np.float32), np.array(3), None if scale is None else np.array(scale, np.float32)]
    return [*given, *(np.asarray(tensor, dtype) for tensor in tensors)]


def expected(op: Any, given: list[Any], reference: Callable[..., Any]) -> Any:
    wide = [None if a is None else a.astype(np.float64) if a.dtype.kind == "f" else a for a in given]
    return reference(op, wide)


@pytest.mark.parametrize("scale", [None, 0.25])
@pytest.mark.parametrize("op", OPS, ids=repr)
def test_several_blocks(
    op: Any, scale: float | None, run_kernel: Callable[..., Any], reference: Callable[..., Any]
) -> None:
    given = operands(op, scale)
    found = run_kernel(BY_OP[type(op)], op, given)
    for got, want in zip(found, expected(op, given, reference), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_in_place(op: Any, run_kernel: Callable[..., Any]) -> None:
    """Results over the operands that the op allows are those beside them, bit for bit."""
    given = operands(op, 0.25)
    apart = as_tuple(run_kernel(BY_OP[type(op)], op, given))
    kernel = BY_OP[type(op)]
    types = [None if a is None else type_of(a) for a in given]
    assert kernel.bind is not None
    assert kernel.workspace is not None
    own = [None if a is None else a.copy() for a in given]
    out: list[Any] = [None] * len(apart)
    for result, operand in op.inplace:
        out[result] = own[operand]
    assert all(array is not None for array in out)
    call = kernel.bind(op, types, [None] * len(types))
    call(*own, out=tuple(out), workspace=np.full(kernel.workspace(op, *types), 255, np.uint8))
    for got, want in zip(out, apart, strict=True):
        np.testing.assert_array_equal(got, want)
    for i in range(op.count):
        np.testing.assert_array_equal(own[SCALARS + op.count + i], given[SCALARS + op.count + i])


def test_the_number_of_threads_changes_no_bit(run_kernel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    op = LambUpdate(6, weight_decay=0.1)
    given, tensors = operands(op, None), operands(op, None)[SCALARS:9]
    found = [*run_kernel(BY_OP[LambUpdate], op, given), *run_kernel(BY_OP[GlobalNorm], GlobalNorm(), tensors)]
    monkeypatch.setattr(optimizers, "parts_of", lambda seconds: 2)
    again = [*run_kernel(BY_OP[LambUpdate], op, given), *run_kernel(BY_OP[GlobalNorm], GlobalNorm(), tensors)]
    for got, want in zip(found, again, strict=True):
        np.testing.assert_array_equal(got, want)


def test_norms_of_zero(run_kernel: Callable[..., Any], reference: Callable[..., Any]) -> None:
    """A parameter of zeros, and one whose direction is zeros: both trust ratios are 1."""
    zero, one = np.zeros(3, np.float32), np.ones(3, np.float32)
    given = [np.array(0.5, np.float32), np.array(1), None, zero, one, one, zero, *[zero] * 4]
    for found in (run_kernel(BY_OP[LambUpdate], LambUpdate(2), given), reference(LambUpdate(2), given)):
        np.testing.assert_allclose(found[0], [-0.5] * 3, rtol=1e-5)
        np.testing.assert_array_equal(found[1], one)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_norm(dtype: str, run_kernel: Callable[..., Any]) -> None:
    tensors = [np.asarray(a, dtype) for a in operands(SGDUpdate(6), None)[SCALARS:]]
    (found,) = run_kernel(BY_OP[GlobalNorm], GlobalNorm(), tensors)
    want = np.sqrt(sum((a.astype(np.float64) ** 2).sum() for a in tensors))
    np.testing.assert_allclose(found, want, rtol=1e-6 if dtype == "float32" else 1e-12)


def test_a_norm_whose_squares_overflow(run_kernel: Callable[..., Any]) -> None:
    (found,) = run_kernel(BY_OP[GlobalNorm], GlobalNorm(), [np.full(4, 1e30, np.float32)])
    np.testing.assert_allclose(found, 2e30, rtol=1e-6)


def test_a_norm_of_nothing(run_kernel: Callable[..., Any]) -> None:
    (found,) = run_kernel(BY_OP[GlobalNorm], GlobalNorm(), [np.zeros((0, 3), np.float32)])
    assert found == 0


def test_temporaries_come_from_the_workspace() -> None:
    op = AdamUpdate(1, weight_decay=0.1)
    given = [np.array(0.1, np.float32), np.array(3), np.array(0.5, np.float32), *[np.ones(1 << 20, np.float32)] * 4]
    kernel = BY_OP[AdamUpdate]
    types = [type_of(a) for a in given]
    assert kernel.bind is not None
    assert kernel.workspace is not None
    room = np.empty(kernel.workspace(op, *types), np.uint8)
    assert room.nbytes <= 3 * 3 * 4 * BLOCK  # three rooms of each thread
    out = tuple(np.empty(1 << 20, np.float32) for _ in range(3))
    call = kernel.bind(op, types, [None] * len(types)).place(*given, out=out, workspace=room)
    call()
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 16


def test_types_that_are_refused() -> None:
    half = [type_of(np.ones(3, np.float16))] * 2
    scalars = [type_of(np.array(0.1, np.float32)), type_of(np.array(1)), None]
    reason = BY_OP[SGDUpdate].reason_against(SGDUpdate(), *scalars, *half)
    assert reason == "does not take float16"


def test_each_op_has_a_kernel() -> None:
    classes: set[type[Op]] = {type(op) for op in OPS}
    assert set(BY_OP) == classes | {GlobalNorm}
