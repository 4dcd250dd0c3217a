"""Rules and passes with known effects: slow, good and wrong ones, and models for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

import aicore_cpu_numpy.plugin
from aicore import ops
from aicore.config import Config
from aicore.ir import Builder, Graph, Value
from aicore.kernels import Kernel
from aicore.passes import Pass, RulePass
from aicore.plugins import PluginRegistry, hookimpl
from aicore.rewrite import Rule, rule

LAYERS = 500


def registry_with(*passes: Pass, kernels: tuple[Kernel, ...] = ()) -> PluginRegistry:
    """The CPU plugin, and one that registers these passes and kernels."""
    module = ModuleType("planted")
    for hook, found in (("register_passes", list(passes)), ("register_kernels", list(kernels))):
        function = _returning(found)
        function.__name__ = hook
        setattr(module, hook, hookimpl(function))
    return PluginRegistry.from_modules({"cpu_numpy": aicore_cpu_numpy.plugin, "planted": module}, config=Config())


def _returning(found: list[Any]) -> Callable[[], list[Any]]:
    def hook() -> list[Any]:
        return found

    return hook


def pass_of(title: str, *listed: Rule, in_phase: str = "simplify") -> Pass:
    @dataclass(frozen=True)
    class Planted(RulePass):
        name: ClassVar[str] = title
        phase: ClassVar[str] = in_phase
        rules: ClassVar[tuple[Rule, ...]] = listed

    return Planted()


def tower(layers: int = LAYERS, width: int = 6) -> Graph:
    """h = relu(h + c), again and again; the i-th sum is called `a<i>`, so that a rule can know where it is."""
    op = Builder()
    x = h = op.input("x", "float32", (2, width))
    rng = np.random.default_rng(5)
    for i in range(layers):
        c = op.constant(rng.uniform(-0.02, 0.03, width).astype(np.float32))
        total = op.apply(ops.Add(), h, c, names=(f"a{i}",))
        h = op.apply(ops.Relu(), total, names=(f"r{i}",))
    return op.graph([x], {"y": h})


def place_of(value: Value) -> int:
    """The number of the layer that a sum of `tower` belongs to."""
    return int(value.name.removeprefix("a"))


def relu_to_max(wrong_at: tuple[int, ...] = ()) -> Rule:
    """relu(x) -> max(x, 0), which is right; in some layers max(x, 100), which is not."""

    @rule(lambda op, x: op.Relu(x))
    def relu_as_max(op: Any, x: Value) -> Any:
        return op.Max(x, op.scalar(100.0 if place_of(x) in wrong_at else 0.0, x))

    return relu_as_max
