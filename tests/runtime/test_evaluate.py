"""Numbers for single ops, as constant folding asks for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicore.ops as ops
from aicore.errors import ExecutionError, UnsupportedError
from aicore.ir import Builder
from aicore.kernels import Kernel, KernelTable, kernel
from aicore.plugins import PluginRegistry
from aicore.runtime import ReferenceEvaluator

Array = np.ndarray[Any, Any]
X = np.array([[1, -2], [3, 0]], np.float32)


def evaluator(*kernels: Kernel) -> ReferenceEvaluator:
    return ReferenceEvaluator(KernelTable(kernels))


@kernel(ops.Neg, device="cpu")
def neg_reference(op: ops.Neg, x: Array) -> Array:
    return -x


@kernel(ops.Neg, device="cpu", variant="fast")
def neg_fast(op: ops.Neg, x: Array, *, out: Array) -> None:
    raise NotImplementedError


def test_the_reference_is_preferred() -> None:
    (result,) = evaluator(neg_fast, neg_reference)(ops.Neg(), X)
    np.testing.assert_array_equal(result, -X)


def test_another_kernel_will_do_with_out_workspace_and_bind() -> None:
    def bind(op: ops.Add, types: Any, constants: Any) -> Any:
        return lambda a, b, *, out, workspace: np.add(a, b + workspace[0], out=out)

    def unbound(op: ops.Add, a: Array, b: Array, *, out: Array, workspace: Array) -> None:
        raise NotImplementedError

    some = kernel(ops.Add, device="cpu", variant="odd", bind=bind, workspace=lambda op, *types: 1)(unbound)
    zeros = np.zeros_like(X)
    result = evaluator(some)(ops.Add(), X, zeros)[0]
    assert result.shape == X.shape
    assert result.dtype == X.dtype


def test_a_fused_op_is_computed_by_its_parts(registry: PluginRegistry) -> None:
    parts = {"Gemm", "MatMul", "Add", "Relu"}
    some = evaluator(*(k for k in registry.kernels if k.op.__name__ in parts))
    op = ops.GemmAct(ops.Gemm(), ops.Relu())
    (result,) = some(op, X, X, np.float32([1, 1]))
    np.testing.assert_array_equal(result, np.maximum(X @ X + 1, 0))


def test_sizes_that_depend_on_data(registry: PluginRegistry) -> None:
    (result,) = evaluator(*registry.kernels)(ops.NonZero(), X)
    assert result.tolist() == [[0, 0, 1], [0, 1, 0]]


def test_a_graph(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", (2, 2))
    graph = b.graph((x,), {"y": b.Neg(b.Add(x, b.constant(X))), "x": x})
    first, second = evaluator(*registry.kernels).graph(graph, [X])
    np.testing.assert_array_equal(first, -2 * X)
    assert second is X


def test_what_has_no_kernel_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="no kernel for Abs on cpu"):
        evaluator(neg_reference)(ops.Abs(), X)


def test_what_a_kernel_raises_names_it() -> None:
    with pytest.raises(ExecutionError, match=r"kernel neg_fast failed on .*NotImplementedError"):
        evaluator(neg_fast)(ops.Neg(), X)


def test_a_wrong_result_is_not_taken() -> None:
    @kernel(ops.Neg, device="cpu")
    def wide(op: ops.Neg, x: Array) -> Array:
        return x.astype(np.float64)

    with pytest.raises(ExecutionError, match=r"neg_reference returned float64\[2,2\], expected float32\[2,2\]"):
        evaluator(wide)(ops.Neg(), X)
