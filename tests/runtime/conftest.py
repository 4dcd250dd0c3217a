"""Random graphs over a few ops, and kernels for them that use every liberty that a plan gives."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import aicore.ops as ops
from aicore.config import Config
from aicore.ir import Builder, Graph, TensorType, Value
from aicore.kernels import Kernel, kernel
from aicore.plugins import PluginRegistry, hookimpl
from aicore_cpu_numpy import plugin as cpu_plugin

Array = np.ndarray[Any, Any]
SIDE = 4


@kernel(ops.Add, device="cpu", variant="inplace", inplace=True)
def add_inplace(op: ops.Add, a: Array, b: Array, *, out: Array) -> None:
    np.add(a, b, out=out)


@kernel(ops.Neg, device="cpu", variant="inplace", inplace=True)
def neg_inplace(op: ops.Neg, x: Array, *, out: Array) -> None:
    np.negative(x, out=out)


def _copies(op: ops.MatMul, a: TensorType, b: TensorType) -> int:
    return 2 * SIDE * SIDE * 4


@kernel(ops.MatMul, device="cpu", variant="workspace", workspace=_copies)
def matmul_workspace(op: ops.MatMul, a: Array, b: Array, *, out: Array, workspace: Array) -> None:
    both = workspace.view(np.float32).reshape(2, SIDE, SIDE)
    both[0], both[1] = a, b
    np.matmul(both[0], both[1], out=out)


@kernel(ops.Mul, device="cpu", variant="reference")
def mul_reference(op: ops.Mul, a: Array, b: Array) -> Array:
    return a * b


@kernel(ops.Transpose, device="cpu", variant="reference")
def transpose_view(op: ops.Transpose, x: Array) -> Array:
    return x.T  # a view of its operand, which the plan must not take for memory of its own


@kernel(ops.NonZero, device="cpu", variant="reference")
def nonzero(op: ops.NonZero, x: Array) -> Array:
    return np.array(np.nonzero(x), np.int64)


KERNELS = [add_inplace, neg_inplace, matmul_workspace, mul_reference, transpose_view, nonzero]


def plugin(kernels: list[Kernel]) -> ModuleType:
    """The CPU's device and launcher with these kernels alone."""
    module = ModuleType("tiny")
    module.probe = cpu_plugin.probe  # type: ignore[attr-defined]
    module.launch = cpu_plugin.launch  # type: ignore[attr-defined]
    module.register_kernels = hookimpl(_named("register_kernels", kernels))  # type: ignore[attr-defined]
    return module


def _named(name: str, result: object) -> Any:
    def hook() -> object:
        return result

    hook.__name__ = name
    return hook


@pytest.fixture(scope="session")
def tiny() -> PluginRegistry:
    """The CPU with the kernels of this file."""
    return PluginRegistry.from_modules({"tiny": plugin(KERNELS)}, config=Config())


@st.composite
def graphs(draw: Any) -> Graph:
    """Graphs with two inputs and a constant, aliases, dead nodes, repeated operands and results, and shared results."""
    b = Builder()
    x, y = b.input("x", "float32", (SIDE, SIDE)), b.input("y", "float32", (SIDE, SIDE))
    weights = np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE) / SIDE - 1
    values = [x, y, b.constant(weights)]
    for _ in range(draw(st.integers(1, 14))):
        values.append(_node(draw, b, values))
    picked = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
    return b.graph((x, y), {f"out{i}": v for i, v in enumerate(picked)})


def _node(draw: Any, b: Builder, values: list[Value]) -> Value:
    first = draw(st.sampled_from(values))
    second = draw(st.sampled_from(values[-4:]))
    kind = draw(st.sampled_from(["Add", "Mul", "Neg", "MatMul", "Transpose", "Rename"]))
    if kind in ("Neg", "Transpose"):
        return getattr(b, kind)(first)  # type: ignore[no-any-return]
    if kind == "Rename":
        flat = b.Reshape(first, b.constant(np.array([-1])))
        return b.Reshape(flat, b.constant(np.array([SIDE, SIDE])))  # type: ignore[no-any-return]
    return getattr(b, kind)(first, second)  # type: ignore[no-any-return]
