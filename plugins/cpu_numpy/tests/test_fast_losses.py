"""The loss of classes by rows gives the reference's numbers: on threads, in place, and refuses what is no class."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.errors import ExecutionError
from aicore.ops.losses import SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad
from aicore.runtime import type_of, using_threads
from aicore_cpu_numpy.fast import losses
from aicore_cpu_numpy.fast.losses import KERNELS

Array = np.ndarray[Any, Any]
LOSS, GRADIENT = KERNELS
CASES: list[tuple[dict[str, Any], tuple[int, ...], int]] = [
    ({}, (700, 97), 1),
    ({"label_smoothing": 0.1, "ignore_index": -100}, (700, 97), 1),
    ({}, (3, 40001), 1),
    ({"axis": 1, "ignore_index": 255}, (4, 21, 40, 41), 1),
    ({"axis": 0, "label_smoothing": 0.5}, (5, 333), 0),
]


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"], autouse=True)
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(losses, "parts_of", lambda seconds: request.param)
    with using_threads(request.param):
        yield


def operands(fields: dict[str, Any], shape: tuple[int, ...], axis: int, sparse: bool) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(2)
    logits = rng.normal(size=shape).astype(np.float32) * 3
    rows = tuple(np.delete(shape, axis).tolist())
    g = rng.normal(size=rows).astype(np.float32)
    if not sparse:
        return logits, rng.dirichlet(np.ones(shape[axis]), rows).astype(np.float32).swapaxes(-1, axis).copy(), g
    target = rng.integers(0, shape[axis], rows)
    if (ignored := fields.get("ignore_index")) is not None:
        target[rng.random(rows) < 0.3] = ignored
    return logits, target, g


def cases() -> Iterator[Any]:
    for fields, shape, axis in CASES:
        yield pytest.param(fields, shape, axis, True, id=f"indices {fields} {shape}")
        kept = {name: value for name, value in fields.items() if name != "ignore_index"}
        if len(shape) == 2:
            yield pytest.param(kept, shape, axis, False, id=f"probabilities {kept} {shape}")


@pytest.mark.parametrize(("fields", "shape", "axis", "sparse"), list(cases()))
def test_the_reference(
    fields: dict[str, Any],
    shape: tuple[int, ...],
    axis: int,
    sparse: bool,
    run_kernel: Callable[..., Any],
    reference: Callable[..., Any],
) -> None:
    logits, target, g = operands(fields, shape, axis, sparse)
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in (logits, target, g)]
    (found,) = run_kernel(LOSS, SoftmaxCrossEntropy(**fields), [logits, target])
    (want,) = reference(SoftmaxCrossEntropy(**fields), wide[:2])
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    (found,) = run_kernel(GRADIENT, SoftmaxCrossEntropyGrad(**fields), [logits, target, g])
    (want,) = reference(SoftmaxCrossEntropyGrad(**fields), wide)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


def test_in_place(run_kernel: Callable[..., Any]) -> None:
    fields: dict[str, Any] = {"label_smoothing": 0.1, "ignore_index": -1}
    given = [*operands(fields, (300, 130), 1, True)]
    op = SoftmaxCrossEntropyGrad(**fields)
    (apart,) = run_kernel(GRADIENT, op, given)
    types = [type_of(a) for a in given]
    assert GRADIENT.bind is not None
    assert GRADIENT.workspace is not None
    room = np.full(GRADIENT.workspace(op, *types), 255, np.uint8)
    GRADIENT.bind(op, types, [None] * 3)(*given, out=given[0], workspace=room)
    np.testing.assert_array_equal(given[0], apart)


@pytest.mark.parametrize("wrong", [-1, 5])
def test_what_is_no_class(wrong: int, run_kernel: Callable[..., Any]) -> None:
    logits, target, g = np.zeros((2, 5), np.float32), np.array([3, wrong]), np.ones(2, np.float32)
    with pytest.raises(ExecutionError, match=f"the target has class {wrong}, and there are 5 classes"):
        run_kernel(LOSS, SoftmaxCrossEntropy(ignore_index=-100), [logits, target])
    with pytest.raises(ExecutionError, match=f"the target has class {wrong}, and there are 5 classes"):
        run_kernel(GRADIENT, SoftmaxCrossEntropyGrad(), [logits, target, g])


def test_nothing_is_left_to_the_reference(run_kernel: Callable[..., Any]) -> None:
    given = [np.zeros((0, 5), np.float32), np.zeros(0, np.int64)]
    assert run_kernel(LOSS, SoftmaxCrossEntropy(), given) == "has nothing to compute"


def test_temporaries_come_from_the_workspace() -> None:
    given = [*operands({}, (40, 100_000), 1, True)]
    types = [type_of(a) for a in given]
    op = SoftmaxCrossEntropyGrad(axis=1)
    assert GRADIENT.bind is not None
    assert GRADIENT.workspace is not None
    room = np.empty(GRADIENT.workspace(op, *types), np.uint8)
    assert room.nbytes < 1 << 20
    call = GRADIENT.bind(op, types, [None] * 3).place(*given, out=np.empty_like(given[0]), workspace=room)
    call()
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 18  # a row takes 400 kB
