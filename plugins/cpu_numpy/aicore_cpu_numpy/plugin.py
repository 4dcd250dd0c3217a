"""The hooks of the CPU backend."""

from __future__ import annotations

from aicore.kernels import KernelFamily
from aicore.plugins import Probe, hookimpl
from aicore.runtime import Executable, Plan
from aicore_cpu_numpy.device import CpuDevice
from aicore_cpu_numpy.info import INFO
from aicore_cpu_numpy.kernels import families
from aicore_cpu_numpy.launcher import CpuExecutable

__all__ = ["INFO", "launch", "probe", "register_kernels"]


@hookimpl
def probe() -> Probe:
    return Probe(devices=(CpuDevice(),))


@hookimpl
def register_kernels() -> list[KernelFamily]:
    return families()


@hookimpl
def launch(plan: Plan) -> Executable:
    return CpuExecutable(plan)
