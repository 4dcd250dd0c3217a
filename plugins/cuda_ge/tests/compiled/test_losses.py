"""The loss of classes as the GPU computes it, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import Value, as_tuple, numpy_dtype
from aicore.kernels import REFERENCE, Kernel, KernelTable
from aicore.numerics import expect
from aicore.ops.losses import SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import losses

Array = np.ndarray[Any, Any]
BY_OP = {kernel.op: kernel for kernel in losses.KERNELS}
CLASSES = (1, 2, 3, 5, 8, 10, 33, 64, 127, 128, 1000, 1025, 3000, 9000)
"""Lanes of a warp, a warp, a block, a larger block; ends of what a thread reads ahead."""


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build("loss/cross_entropy.cu")


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(losses, "compiled", recorded)


@pytest.fixture(scope="module")
def evaluate() -> ReferenceEvaluator:
    return ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


def agrees(host: Any, evaluate: ReferenceEvaluator, op: Any, *operands: Array) -> None:
    types = [type_of(a) for a in operands]
    values = [Value("x", t) for t in types]
    op = op.resolve(*values)
    assert BY_OP[type(op)].reason_against(op, *types) is None
    outputs = as_tuple(op.infer(*values))
    host.fault[:] = 0
    found = host.run(BY_OP[type(op)], op, operands)
    assert not host.fault.any()
    fault = expect(evaluate, op, operands, [t.dtype for t in outputs]).fault(found)
    assert not fault, f"{op} on {types}: {fault}"


def both(host: Any, evaluate: ReferenceEvaluator, logits: Array, target: Array, **fields: Any) -> None:
    agrees(host, evaluate, SoftmaxCrossEntropy(**fields), logits, target)
    rows = np.delete(logits.shape, fields.get("axis", -1))
    g = np.random.default_rng(1).normal(size=tuple(rows.tolist())).astype(logits.dtype)
    agrees(host, evaluate, SoftmaxCrossEntropyGrad(**fields), logits, target, g)


def numbers(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("kernel", losses.KERNELS, ids=lambda kernel: str(kernel.name))
def test_samples(kernel: Kernel, host: Any, evaluate: ReferenceEvaluator) -> None:
    for sample in kernel.op.samples(np.random.default_rng(0)):
        operands = [a for a in sample.inputs if a is not None]
        agrees(host, evaluate, sample.op, *operands)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_element_types(dtype: str, host: Any, evaluate: ReferenceEvaluator) -> None:
    logits, target = numbers(7, 13, dtype=dtype), np.arange(7) % 13
    both(host, evaluate, logits, target)
    both(host, evaluate, logits, target.astype(np.int32), label_smoothing=0.1, ignore_index=3)
    q = np.abs(numbers(7, 13)) + 0.1
    both(host, evaluate, logits, (q / q.sum(1, keepdims=True)).astype(logits.dtype), label_smoothing=0.1)


@pytest.mark.parametrize("classes", CLASSES)
def test_classes(classes: int, host: Any, evaluate: ReferenceEvaluator) -> None:
    rows = 5 if classes > 100 else 70
    logits, target = numbers(rows, classes), np.random.default_rng(classes).integers(0, classes, rows)
    both(host, evaluate, logits, target)
    both(host, evaluate, logits, target, label_smoothing=0.2, ignore_index=int(target[0]))
    q = np.abs(numbers(rows, classes)) + np.float32(0.1)
    both(host, evaluate, logits, q / q.sum(1, keepdims=True))


@pytest.mark.parametrize("shape", [(2, 3, 5), (3, 21, 40), (2, 40, 2), (1, 300, 33)], ids=str)
def test_columns(shape: tuple[int, ...], host: Any, evaluate: ReferenceEvaluator) -> None:
    logits, target = numbers(*shape), np.random.default_rng(0).integers(0, shape[1], (shape[0], shape[2]))
    both(host, evaluate, logits, target, axis=1)
    both(host, evaluate, logits, target, axis=1, ignore_index=1, label_smoothing=0.5)
    q = np.abs(numbers(*shape)) + np.float32(0.1)
    both(host, evaluate, logits, q / q.sum(1, keepdims=True), axis=1)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("wrong", [-1, 5])
def test_what_is_no_class_is_told_and_left_out(wrong: int, dtype: str, host: Any) -> None:
    logits, target = np.zeros((2, 5), np.float32), np.array([3, wrong], dtype)
    host.fault[:] = 0
    (loss,) = host.run(BY_OP[SoftmaxCrossEntropy], SoftmaxCrossEntropy(ignore_index=-100), [logits, target])
    assert host.fault[0] == wrong
    np.testing.assert_allclose(loss, [np.log(5), 0], rtol=1e-6)
    host.fault[:] = 0
    g = np.ones(2, np.float32)
    (found,) = host.run(BY_OP[SoftmaxCrossEntropyGrad], SoftmaxCrossEntropyGrad(), [logits, target, g])
    assert host.fault[0] == wrong
    np.testing.assert_allclose(found, [[0.2, 0.2, 0.2, -0.8, 0.2], [0] * 5], rtol=1e-6)


def test_in_place(host: Any) -> None:
    for shape, axis in (((9, 37), 1), ((3, 2000), 1), ((2, 7, 30), 1)):
        logits, rows = numbers(*shape), tuple(np.delete(shape, axis).tolist())
        target, g = np.zeros(rows, np.int64), numbers(*rows)
        op = SoftmaxCrossEntropyGrad(axis=axis)
        (apart,) = host.run(BY_OP[SoftmaxCrossEntropyGrad], op, [logits, target, g])
        own = logits.copy()
        for launch in losses._bind(op, [type_of(a) for a in (logits, target, g)], ()):
            host.launch(launch, [own, target, g, own])
        np.testing.assert_array_equal(own, apart)


def test_what_is_refused() -> None:
    given = [type_of(np.zeros((2, 0), np.float32)), type_of(np.zeros(2, np.int64))]
    kernel = BY_OP[SoftmaxCrossEntropy]
    assert kernel.reason_against(SoftmaxCrossEntropy(), *given) == "rows have no classes"
    assert (
        kernel.reason_against(SoftmaxCrossEntropy(), type_of(np.zeros((2, 3), np.int32)), given[1])
        == "does not take int32"
    )
