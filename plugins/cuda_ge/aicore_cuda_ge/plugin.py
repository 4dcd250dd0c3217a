"""The hooks of the CUDA backend."""

from __future__ import annotations

import importlib.util
from functools import cache

from aicore.kernels import Kernel
from aicore.plugins import Probe, hookimpl
from aicore.runtime import Executable, Plan
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.device import CudaDevice
from aicore_cuda_ge.executable import CudaExecutable
from aicore_cuda_ge.info import INFO

__all__ = ["INFO", "launch", "probe", "register_kernels"]


@hookimpl
def probe() -> Probe:
    """The GPUs; or why there are none, for a machine without one is nothing unusual."""
    count, reason = native.device_count()
    if not count:
        return Probe(reason=reason, fix=INFO.fix_for(reason))
    if importlib.util.find_spec("cupy") is None:
        reason = "No module named 'cupy'"
        return Probe(reason=reason, fix=INFO.fix_for(reason))
    return Probe(devices=tuple(_device(index) for index in range(count)), notes=_notes())


def _notes() -> tuple[str, ...]:
    """Of libraries that would make programs faster."""
    from aicore_cuda_ge.kernels import _blas, _dnn

    missing = [library.MISSING for library in (_dnn, _blas) if not library.library_path()]
    return tuple(f"programs may be slower: a kernel {reason}" for reason in missing)


@hookimpl
def register_kernels() -> list[Kernel]:
    from aicore_cuda_ge.kernels import all_kernels

    return all_kernels()


@hookimpl
def launch(plan: Plan) -> Executable:
    return CudaExecutable(plan, _device(int(plan.device.partition(":")[2])))


@cache
def _device(index: int) -> CudaDevice:
    return CudaDevice(index)
