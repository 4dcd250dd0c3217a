"""Backends that do one thing wrong, each as a registry beside the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

import aicore.ops as ops
import aicore_cpu_numpy.plugin
from aicore.config import Config
from aicore.errors import UnsupportedError
from aicore.kernels import Kernel, kernel
from aicore.passes import Pass
from aicore.plugins import PluginRegistry, Probe, hookimpl
from aicore.runtime import Executable, Plan
from aicore.testing.fake_gpu import FakeDevice, FakeExecutable

Array = np.ndarray[Any, Any]
DEVICE = "npu"
"""The device of every backend here."""


class Npu(FakeDevice):
    kind = DEVICE


def backend(
    kernels: Iterable[Kernel] = (),
    passes: Iterable[Pass] = (),
    launch: Callable[[Plan, FakeDevice], Executable] = FakeExecutable,
) -> PluginRegistry:
    """The CPU, and the device `npu` with these kernels alone."""
    device = Npu(DEVICE)
    module = ModuleType("npu_backend")

    def probe() -> Probe:
        return Probe(devices=(device,))

    def register_kernels() -> list[Kernel]:
        return list(kernels)

    def register_passes() -> list[Pass]:
        return list(passes)

    def launch_plan(plan: Plan) -> Executable:
        return launch(plan, device)

    launch_plan.__name__ = "launch"
    for hook in (probe, register_kernels, register_passes, launch_plan):
        setattr(module, hook.__name__, hookimpl(hook))
    plugins = {"cpu_numpy": aicore_cpu_numpy.plugin, "npu_backend": module}
    return PluginRegistry.from_modules(plugins, config=Config())


@kernel(ops.Relu, device=DEVICE, variant="plain")
def relu(op: ops.Relu, x: Array) -> Array:
    return np.maximum(x, 0)


@kernel(ops.Relu, device=DEVICE, variant="off_by_one_place")
def relu_wrong(op: ops.Relu, x: Array) -> Array:
    result = np.maximum(x, 0)
    if result.size > 3 and result.dtype.kind == "f":
        result.flat[3] = np.nextafter(result.flat[3], result.dtype.type(9))
    return result


@kernel(ops.Relu, device=DEVICE, variant="in_its_operand")
def relu_overwriting(op: ops.Relu, x: Array, *, out: Array) -> None:
    x[...] = np.maximum(x, 0) + 1  # as a kernel that uses its operand as scratch memory
    np.subtract(x, 1, out=out)


@kernel(ops.Relu, device=DEVICE, variant="raising")
def relu_raising(op: ops.Relu, x: Array) -> Array:
    raise ZeroDivisionError("no")


def _only_vectors(op: ops.Relu, x: Any) -> str | None:
    return None if x.rank == 1 else "only vectors"


@kernel(ops.Relu, device=DEVICE, variant="vectors", supports=_only_vectors, dtypes={"float32"})
def relu_of_vectors(op: ops.Relu, x: Array) -> Array:
    return np.maximum(x, 0)


class CountingNothing(FakeExecutable):
    """Does the work and does not say so: as good as not doing it."""

    @property
    def steps_run(self) -> int:
        return 0


def refusing(plan: Plan, device: FakeDevice) -> Executable:
    raise UnsupportedError("out of registers")
