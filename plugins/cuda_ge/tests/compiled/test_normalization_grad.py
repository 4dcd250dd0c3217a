"""Gradients of layer and RMS normalisation as the GPU computes them, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType, Value, as_tuple, numpy_dtype
from aicore.kernels import REFERENCE, KernelTable
from aicore.numerics import expect
from aicore.ops.normalization_grad import LayerNormalizationGrad, RMSNormalizationGrad
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import normalization_grad

Array = np.ndarray[Any, Any]
LAYER, RMS = normalization_grad.KERNELS


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build("kernels/norm_gradient.cu")


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(normalization_grad, "compiled", recorded)


@pytest.fixture(scope="module")
def evaluate() -> ReferenceEvaluator:
    return ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


def numbers(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(numpy_dtype(dtype))


def agrees(host: Any, evaluate: ReferenceEvaluator, op: Any, operands: list[Array]) -> None:
    types = [type_of(a) for a in operands]
    values = [Value("x", t) for t in types]
    kernel, op = LAYER if isinstance(op, LayerNormalizationGrad) else RMS, op.resolve(*values)
    assert kernel.reason_against(op, *types) is None
    found = host.run(kernel, op, operands)
    dtypes = [t.dtype for t in as_tuple(op.infer(*values))]
    fault = expect(evaluate, op, operands, dtypes).fault(found)
    assert not fault, f"{op} on {types}: {fault}"


@pytest.mark.parametrize("held", [LayerNormalizationGrad, RMSNormalizationGrad])
def test_samples(held: Any, host: Any, evaluate: ReferenceEvaluator) -> None:
    for sample in held.samples(np.random.default_rng(0)):
        agrees(host, evaluate, sample.op, list(sample.inputs))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("rows", "length"), [(1, 1), (300, 33), (70, 256), (3, 2049)])
def test_rows(rows: int, length: int, dtype: str, host: Any, evaluate: ReferenceEvaluator) -> None:
    """One and several splits of the rows, warps and blocks."""
    x, scale = numbers(rows, length, dtype=dtype), numbers(length, dtype=dtype)
    dy = numbers(rows, length + 1, dtype=dtype)[:, 1:].copy()
    wide = x.astype(np.float32)
    mean = wide.mean(1, keepdims=True)
    inverse = 1 / np.sqrt(wide.var(1, keepdims=True) + np.float32(0.01))
    agrees(host, evaluate, LayerNormalizationGrad(), [x, scale, mean, inverse, dy])
    agrees(host, evaluate, RMSNormalizationGrad(epsilon=0.01), [x, scale, dy])


def test_reasons() -> None:
    x, scale, half = (TensorType(t, s) for t, s in (("float32", (2, 4)), ("float32", (4,)), ("float16", (2, 4))))
    assert "known in numbers" in str(RMS.reason_against(RMSNormalizationGrad(), TensorType("float32", None), scale, x))
    assert "of one type" in str(RMS.reason_against(RMSNormalizationGrad(), half, scale, x))
