"""Every pointwise op, and Regions of them, by kernels that are generated and compiled when a plan is bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicore.ir import Op, TensorType, Value, as_tuple
from aicore.kernels import Kernel, kernel
from aicore.ops.fused_pointwise import Region
from aicore_cuda_ge.calls import Generated, pack
from aicore_cuda_ge.codegen.chain import chain_of, reason_against
from aicore_cuda_ge.codegen.compiler import load
from aicore_cuda_ge.codegen.formulas import FORMULAS
from aicore_cuda_ge.codegen.source import THREADS, prelude, source_of
from aicore_cuda_ge.kernels._memory_bound import run_from_plan, seconds_of

seconds = seconds_of(bytes_per_second=3.4e12, launch_seconds=1.1e-6)
"""One more kernel in a graph that is replayed, and its traffic."""


def supports(op: Op, *types: TensorType | None) -> str | None:
    """Why no kernel can be generated, or None."""
    return reason_against(op, types)


def bind_pointwise(op: Op, types: Sequence[TensorType | None], constants: Sequence[Any]) -> tuple[Generated, ...]:
    """One launch, or none when there are no elements."""
    values = [None if t is None else Value("x", t) for t in types]
    if not all(t.size for t in as_tuple(op.infer(*values))):
        return ()
    source = source_of(chain_of(op, types))
    function = load(prelude() + source.text, source.name)
    grid, block, params = (source.blocks, 1, 1), (THREADS, 1, 1), pack((source.count,))
    return (Generated(function.address, function.module, grid, block, params, early=function.waits),)


def pointwise(op: type[Op]) -> Kernel:
    """The kernel of a pointwise op."""
    decorate = kernel(
        op,
        device="cuda",
        variant="generated",
        supports=supports,
        bind=bind_pointwise,
        estimate=seconds,
        inplace=True,
    )
    return decorate(run_from_plan)


KERNELS: tuple[Kernel, ...] = (*map(pointwise, FORMULAS), pointwise(Region))
