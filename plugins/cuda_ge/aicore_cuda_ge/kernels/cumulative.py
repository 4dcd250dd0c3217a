"""CumSum and CumProd: graph_executor/kernels/scan.cu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.cumulative import CumProd, CumSum
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._memory_bound import along, dtype_of, need_axes, run_from_plan, seconds_of, shape_of
from aicore_cuda_ge.kernels._windows import ELEMENTS

seconds = seconds_of(bytes_per_second=0.5e12, launch_seconds=2e-6)


def supports(op: Any, *types: TensorType | None) -> str | None:
    if any(t is not None for t in types[1:]) or op.axis is None:
        return "needs an axis that is known before the run"
    return need_axes(op, *types)


def bind(op: Any, types: Sequence[TensorType | None], constants: Sequence[Any]) -> Call:
    sizes = along(shape_of(types[0]), op.axis)
    flags = (int(isinstance(op, CumProd)), op.exclusive, op.reverse)
    return compiled("scan", (ELEMENTS[dtype_of(types)], *sizes, *flags), pick=(0, len(types)))


def _made(op: type[Op]) -> Kernel:
    dtypes = frozenset(ELEMENTS)
    made = kernel(op, device="cuda", variant="lines", dtypes=dtypes, supports=supports, bind=bind, estimate=seconds)
    return made(run_from_plan)


KERNELS: tuple[Kernel, ...] = (_made(CumSum), _made(CumProd))
