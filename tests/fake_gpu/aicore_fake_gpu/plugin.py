"""The hooks of the fake GPU. Its kernels are those of the CPU, so results are equal bit for bit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from aicore.kernels import Kernel
from aicore.plugins import Probe, hookimpl
from aicore.runtime import Executable, Plan
from aicore.testing.fake_gpu import FakeDevice, FakeExecutable
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cpu_numpy.workers import single_threaded_blas
from aicore_fake_gpu.info import INFO

__all__ = ["INFO", "launch", "probe", "register_kernels"]


@cache
def device() -> FakeDevice:
    """The one device: an address means nothing on another one."""
    return FakeDevice()


@hookimpl
def probe() -> Probe:
    return Probe(devices=(device(),))


@hookimpl
def register_kernels() -> list[Kernel]:
    return [replace(kernel, device=FakeDevice.kind) for kernel in all_kernels()]


@hookimpl
def launch(plan: Plan) -> Executable:
    return FakeExecutable(plan, device(), single_threaded_blas)
