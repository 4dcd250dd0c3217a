"""The hooks of this plugin: ops, kernels for `cpu` and, where built, `cuda`, and passes that put models on them."""

from __future__ import annotations

from aicore.ir import Op
from aicore.kernels import Kernel
from aicore.passes import Pass
from aicore.plugins import hookimpl
from aicore_int8_quant import cuda
from aicore_int8_quant.info import INFO
from aicore_int8_quant.kernels import KERNELS
from aicore_int8_quant.ops import OPS
from aicore_int8_quant.passes.fuse import FuseInt8

__all__ = ["INFO", "register_kernels", "register_ops", "register_passes"]


@hookimpl
def register_ops() -> list[type[Op]]:
    return list(OPS)


@hookimpl
def register_kernels() -> list[Kernel]:
    return [*KERNELS, *cuda.kernels()]


@hookimpl
def register_passes() -> list[Pass]:
    return [FuseInt8()]
