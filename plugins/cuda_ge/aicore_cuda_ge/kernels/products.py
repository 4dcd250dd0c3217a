"""Matrix products with what follows them, by the kernels of graph_executor/kernels/gemm*.cu.

tiled: tiles of many sizes in shared memory, of a that a launch turned first where that pays. rows: at most 8 rows, or
columns, as fast as memory. tensor: float16 and bfloat16 on tensor cores, which add up in float32; tf32: float32 on
tensor cores, where that was asked for. narrow: float16 and bfloat16 as float32. blocked: any type. reference: one
thread for each result. cublas, cublas_tf32: by cuBLASLt, where that library is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.fused_linear import GemmAct, MatMulAdd, MatMulAddAct
from aicore.ops.matmul import Gemm, MatMul
from aicore_cuda_ge.calls import Compiled, compiled
from aicore_cuda_ge.kernels import _blas as blas
from aicore_cuda_ge.kernels import _blas_product as by_library
from aicore_cuda_ge.kernels import _product_times as times
from aicore_cuda_ge.kernels import _tensor_product as on_tensor_cores
from aicore_cuda_ge.kernels import _tensor_tiles as tensor
from aicore_cuda_ge.kernels._activations import refusal
from aicore_cuda_ge.kernels._machine import machine
from aicore_cuda_ge.kernels._memory_bound import run_from_plan
from aicore_cuda_ge.kernels._packing import pack_rows
from aicore_cuda_ge.kernels._product import BATCH_AXES, Product, product_of

Types = Sequence["TensorType | None"]

OPS: tuple[type[Op], ...] = (MatMul, Gemm, GemmAct, MatMulAdd, MatMulAddAct)
_KERNEL_TYPES = {"uint32": "int32", "uint64": "int64"}
"""Sums of these wrap to the same bits as those of the signed type."""
_ALL_TYPES = frozenset({"float32", "float64", "float16", "bfloat16", "int32", "int64", "uint32", "uint64"})
_FLOAT32 = frozenset({"float32"})
_NARROW = frozenset({"float16", "bfloat16"})
_LARGEST = 2**31 - 1
_MOST_ROWS = 8
_ROWS_OF_BOTH = 3
"""As gemm_tile.cuh numbers how operands are read: rows of b, and of a that is turned, 16 bytes at a time."""


def reason_against(op: Op, *types: TensorType | None) -> str | None:
    """What no kernel here takes: open sizes, unknown activations, sizes beyond 31 bits, scaled integers."""
    if not all(t is None or t.is_static for t in types):
        return "takes operands of known sizes"
    unknown = refusal(getattr(op, "activation", None))
    if unknown:
        return unknown
    product, dtype = product_of(op, *types), _dtype(types)
    if len(product.batch) > BATCH_AXES:
        return f"takes at most {BATCH_AXES} batch axes that do not fold, here {len(product.batch)}"
    blocks = product.entries * -(-product.rows // 16) * -(-product.columns // 16)
    if max(product.rows, product.columns, product.inner, blocks) > _LARGEST:
        return "takes sizes and numbers of blocks below 2**31"
    return _scaling_against(product, dtype)


def _scaling_against(product: Product, dtype: str) -> str | None:
    scales = (product.alpha, product.beta)
    if "int" in dtype and scales != (1.0, 1.0):
        return "does not scale integers"
    if "int" in dtype or dtype == "float64":
        if product.activation[0]:
            return f"applies no activation to {dtype}"
        if any(float(np.float32(scale)) != scale for scale in scales):
            return "takes alpha and beta that float32 holds exactly"
    return None


def rows_against(op: Op, *types: TensorType | None) -> str | None:
    """What the kernels for few rows do not take."""
    reason = reason_against(op, *types)
    if reason is not None:
        return reason
    product = product_of(op, *types)
    few = min(product.rows, product.columns)
    return None if few <= _MOST_ROWS else f"takes at most {_MOST_ROWS} rows or columns, here {few}"


def tensor_against(op: Op, *types: TensorType | None) -> str | None:
    return reason_against(op, *types) or on_tensor_cores.reason_against(op, *types)


def library_against(op: Op, *types: TensorType | None) -> str | None:
    return reason_against(op, *types) or by_library.reason_against(op, *types)


def bind_tiled(op: Op, types: Types, constants: Sequence[Any], plan: str) -> Compiled | tuple[Compiled, ...]:
    """One launch; before it one that packs a, and behind it one that adds partial sums where there are no clusters."""
    product = product_of(op, *types)
    name, splits, packed = times.parse(plan)
    if packed and (turned := times.turned(product)):
        return _pack_a(product, turned, len(types) + 1), _of_packed(turned, name, types, constants)
    partial = splits > 1 and not machine().clusters
    constant = constants[1] is not None
    params = product.params(len(types), splits=splits, wide=product.reads, constant=constant, partial=partial)
    call = compiled(f"gemm_{name}", params)
    return (call, compiled("gemm_reduce", params)) if partial else call


def _pack_a(product: Product, turned: Product, workspace: int) -> Compiled:
    sizes = (times.packed_entries(product), product.inner, product.rows, turned.a_inner)
    strides = (product.batch[0].a if product.batch else 0, product.a_inner, product.a_row)
    return pack_rows(sizes, strides, source=0, to=workspace, item=4)


def _of_packed(turned: Product, name: str, types: Types, constants: Sequence[Any]) -> Compiled:
    """Reads a from the workspace."""
    y_at = len(types)
    params = turned.params(y_at, wide=_ROWS_OF_BOTH, constant=constants[1] is not None)
    return compiled(f"gemm_{name}", params, pick=(y_at + 1, *range(1, y_at + 1)))


def tiled_workspace(op: Op, *types: TensorType | None, plan: str) -> int:
    """Bytes of packed a, or of partial sums."""
    _, splits, packed = times.parse(plan)
    product = product_of(op, *types)
    if packed and (turned := times.turned(product)):
        return 4 * times.packed_entries(product) * turned.inner * turned.a_inner
    if splits == 1 or machine().clusters:
        return 0
    return 4 * splits * product.entries * product.rows * product.columns


def estimate_tiled(op: Op, *types: TensorType | None, plan: str) -> float:
    return times.tiled_seconds(product_of(op, *types), plan)


def bind_rows(op: Op, types: Types, constants: Sequence[Any], share: int) -> Compiled:
    """Columns become rows where those are fewer; then a and b change places, too."""
    product = _with_few_rows(product_of(op, *types))
    constant = constants[0 if product.swapped else 1] is not None
    dots = product.b_inner == 1
    if dots:
        params = product.params(len(types), wide=product.inner_is_wide, constant=constant)
        return compiled("gemm_rows_dot", (*params, share))
    params = product.params(len(types), wide=product.b_is_wide, constant=constant)
    return compiled("gemm_rows_sum", (*params, share if machine().clusters else 1))


def estimate_rows(op: Op, *types: TensorType | None, share: int) -> float:
    return times.rows_seconds(_with_few_rows(product_of(op, *types)), share)


def bind_narrow(op: Op, types: Types, constants: Sequence[Any], plan: str) -> Compiled:
    name, *_ = times.parse(plan)
    params = product_of(op, *types).params(len(types), constant=constants[1] is not None)
    return compiled(f"gemm_{name}_{_dtype(types)}", params)


def estimate_narrow(op: Op, *types: TensorType | None, plan: str) -> float:
    return 1.5 * times.tiled_seconds(product_of(op, *types), plan)


def bind_blocked(op: Op, types: Types, constants: Sequence[Any]) -> Compiled:
    return compiled(f"gemm_blocked_{_kernel_type(types)}", product_of(op, *types).params(len(types)))


def estimate_blocked(op: Op, *types: TensorType | None) -> float:
    return times.blocked_seconds(product_of(op, *types))


def bind_naive(op: Op, types: Types, constants: Sequence[Any]) -> Compiled:
    return compiled(f"gemm_naive_{_kernel_type(types)}", product_of(op, *types).params(len(types)))


def _with_few_rows(product: Product) -> Product:
    return product.swap() if product.columns < product.rows else product


def _dtype(types: Types) -> str:
    return next(t.dtype for t in types if t is not None)


def _kernel_type(types: Types) -> str:
    dtype = _dtype(types)
    return _KERNEL_TYPES.get(dtype, dtype)


def _kernels_of(op: type[Op]) -> tuple[Kernel, ...]:
    tiled = kernel(
        op,
        device="cuda",
        variant="tiled",
        dtypes=_FLOAT32,
        supports=reason_against,
        workspace=tiled_workspace,
        bind=bind_tiled,
        estimate=estimate_tiled,
        tune={"plan": times.plans()},
    )
    rows = kernel(
        op,
        device="cuda",
        variant="rows",
        dtypes=_FLOAT32,
        supports=rows_against,
        bind=bind_rows,
        estimate=estimate_rows,
        tune={"share": (1, 2, 4, 8)},
    )
    narrow = kernel(
        op,
        device="cuda",
        variant="narrow",
        dtypes=_NARROW,
        supports=reason_against,
        bind=bind_narrow,
        estimate=estimate_narrow,
        tune={"plan": ("32x64x4/1", "64x128/1")},
    )
    on_cores = (
        kernel(
            op,
            device="cuda",
            variant=variant,
            dtypes=dtypes,
            supports=tensor_against,
            workspace=on_tensor_cores.workspace,
            bind=on_tensor_cores.bind,
            estimate=on_tensor_cores.estimate,
            tune=tensor.settings(),
            precision=precision,
        )
        for variant, dtypes, precision in (("tensor", _NARROW, None), (tensor.TF32, _FLOAT32, tensor.TF32))
    )
    blocked = kernel(
        op,
        device="cuda",
        variant="blocked",
        dtypes=_ALL_TYPES,
        supports=reason_against,
        bind=bind_blocked,
        estimate=estimate_blocked,
    )
    naive = kernel(op, device="cuda", dtypes=_ALL_TYPES, supports=reason_against, bind=bind_naive)
    return tuple(wrap(run_from_plan) for wrap in (tiled, rows, *on_cores, narrow, blocked, naive))


def library_kernels(op: type[Op]) -> tuple[Kernel, ...]:
    """Those that call cuBLASLt."""
    choices = (
        ("cublas", _FLOAT32 | _NARROW, blas.COMPUTE_FLOAT32, None),
        ("cublas_tf32", _FLOAT32, blas.COMPUTE_TF32, tensor.TF32),
    )
    made = (
        kernel(
            op,
            device="cuda",
            variant=variant,
            dtypes=dtypes,
            supports=library_against,
            workspace=by_library.workspace,
            bind=partial(by_library.bind, compute),
            estimate=partial(by_library.estimate, compute),
            precision=precision,
        )
        for variant, dtypes, compute, precision in choices
    )
    return tuple(wrap(run_from_plan) for wrap in made)


KERNELS: tuple[Kernel, ...] = tuple(made for op in OPS for made in (*_kernels_of(op), *library_kernels(op)))
