"""Kernels that lower the precision of float32 are there for programs that ask for them, and for no others."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import aicore
import aicore_cpu_numpy.plugin
from aicore.errors import AicoreError, ConfigError
from aicore.ir import Builder, Graph, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.matmul import MatMul
from aicore.plugins import PluginRegistry, hookimpl
from aicore.tuning.problems import problem_text


def coarse(op: MatMul, a: Any, b: Any, *, out: Any) -> None:
    np.matmul(np.round(a), np.round(b), out=out)


@pytest.fixture
def registry() -> PluginRegistry:
    lowered = kernel(
        MatMul, device="cpu", variant="coarse", dtypes={"float32"}, precision="tf32", estimate=lambda op, *types: 1e-12
    )(coarse)

    @hookimpl
    def register_kernels() -> list[Kernel]:
        return [lowered]

    extra = types.SimpleNamespace(register_kernels=register_kernels)
    return PluginRegistry.from_modules({"cpu_numpy": aicore_cpu_numpy.plugin, "extra": extra})


def graph() -> Graph:
    op = Builder()
    a, b = op.input("a", "float32", (2, 2)), op.input("b", "float32", (2, 2))
    return op.graph([a, b], {"y": op.MatMul(a, b)})


def variant_of(**options: Any) -> str:
    program = aicore.compile(graph(), "cpu", tune="off", **options)
    program(a=np.eye(2, dtype=np.float32), b=np.eye(2, dtype=np.float32))
    return program.explain().kernels[0].kernel


def test_only_who_asks_gets_lowered_kernels(registry: PluginRegistry) -> None:
    assert variant_of(registry=registry, precision="tf32") == "matmul_coarse"
    assert variant_of(registry=registry) == variant_of(registry=registry, precision="float32") != "matmul_coarse"


def test_a_kernel_by_name_is_no_way_around(registry: PluginRegistry) -> None:
    with pytest.raises(AicoreError, match="no kernel 'coarse' for MatMul"):
        variant_of(registry=registry, kernels={"MatMul": "coarse"}, fallback="error")


def test_unknown_precision() -> None:
    with pytest.raises(ConfigError, match=r"precision='fp8' is not known; choose from float32, tf32"):
        aicore.compile(graph(), "cpu", precision="fp8")  # type: ignore[arg-type]


def test_times_are_kept_by_precision() -> None:
    types = [TensorType("float32", (2, 2))] * 2
    strict, lowered = (problem_text(MatMul(), types, (), p) for p in ("float32", "tf32"))
    assert lowered == f"tf32 {strict}"
