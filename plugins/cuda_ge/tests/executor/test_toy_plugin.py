"""A plugin that copied the launch header and was compiled apart: its kernel inside of a graph of this plugin.

`pip install plugins/cuda_ge/tests/toy_plugin` brings it; `make cuda` and `make test-cuda` do.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import Builder, Graph


@pytest.fixture
def toy() -> Any:
    """The module with its hooks; skips where it is not installed."""
    return pytest.importorskip("aicore_toy_cuda.plugin", reason="the toy plugin is not installed")


def chain(toy: Any) -> Graph:
    b = Builder()
    x, y = (b.input(name, "float32", (1000,)) for name in "xy")
    return b.graph([x, y], {"z": b.Neg(b.apply(toy.ToyAxpy(alpha=2.0), b.Mul(x, x), y))})


def test_capsules_of_its_kernels(toy: Any) -> None:
    (kernel,) = toy.register_kernels()
    assert (kernel.device, kernel.op) == ("cuda", toy.ToyAxpy)
    capsules = importlib.import_module("aicore_toy_cuda._kernels").kernels()
    assert list(capsules) == ["toy_axpy"]
    assert "aicore_cuda_kernel_v1" in repr(capsules["toy_axpy"])


def test_elsewhere_it_runs_as_its_decomposition(toy: Any) -> None:
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    assert aicore.compile(chain(toy), "cpu").run({"x": x, "y": y})["z"].tolist() == (-(2 * x * x + 1)).tolist()


@pytest.mark.gpu
def test_its_kernel_runs_in_the_captured_graph(toy: Any) -> None:
    program = aicore.compile(chain(toy), "cuda:0", fallback="error", tune="off")
    for seed in range(3):
        x, y = np.random.default_rng(seed).integers(-99, 99, (2, 1000)).astype(np.float32)
        np.testing.assert_array_equal(program.run({"x": x, "y": y})["z"], -(2 * x * x + y))
    (plan,) = program.plan
    assert "toyaxpy_toy" in [step.kernel.name for step in plan.steps]
    assert program.steps_run == 3 * len(plan.steps)
