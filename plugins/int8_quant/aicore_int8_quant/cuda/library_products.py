"""MatMulInteger, QLinearMatMul and Int8MatMul by cuBLASLt, whose sums int8_epilogue turns into results.

Only measuring chooses it, for tuning compares the results of a candidate before it may win: nothing else would notice
a library that multiplies wrongly. So it is estimated to take a little longer than a kernel of our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicore.errors import ExecutionError
from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.quantized_linear import EIGHT_BITS
from aicore_int8_quant.cuda import library, products
from aicore_int8_quant.cuda.launch import Launch, launch, machine
from aicore_int8_quant.cuda.problem import NONE, Places, params_of, place
from aicore_int8_quant.cuda.products import OPS, product_of, rooms, run_from_plan, x_bytes

Types = Sequence["TensorType | None"]
_ROOM_ALIGNMENT = 256
_LONGER = 1 + 1e-6


def reason_against(op: Op, *types: TensorType | None) -> str | None:
    if not library.library_path():
        return "takes cuBLASLt, which is not installed"
    if machine().capability < 80:
        return "takes GPUs of compute capability 8.0 and above"
    if reason := products.reason_against(op, *types):
        return reason
    product = product_of(op, types)
    if product.unsigned:
        return "takes a signed x"
    if product.groups > 1:
        return "takes one product, not a batch of them"
    return None if product.rows and product.columns % 4 == 0 else "takes columns in fours, and at least one row"


def bind(op: Op, types: Types, constants: Sequence[Any]) -> tuple[Launch, ...]:
    import cupy

    product = product_of(op, types)
    if not products.result_of(op, types).size:
        return ()
    sizes, at = product.sizes, len(types) + 1
    device = cupy.cuda.runtime.getDevice()
    found = library.prepared(sizes.rows, sizes.columns, sizes.depth, sizes.a_row, sizes.b_row, device)
    if found is None:
        raise ExecutionError(f"cuBLASLt has no way to multiply {sizes.rows} x {sizes.depth} by {sizes.columns}")
    calls, a, ready, room = products.operands(product, op, types, constants, partial=True)
    row_sums = place(at, room.row_sums) if ready.row_sums else NONE
    where = Places(a, ready.b, ready.sums, row_sums, place(at, room.partial))
    params = params_of(op, types, products.result_of(op, types), sizes, where, product.full)
    told = (found.matmul, *found.objects, *found.algorithm, found.workspace)
    own = (a, ready.b, place(at, room.partial), place(at, room.size))
    return (
        *calls,
        *ready.calls,
        *((launch("int8_row_sums", params, ready.extra),) if ready.row_sums else ()),
        launch("int8_gemm_library", (*told, *own), ready.extra),
        launch("int8_epilogue", params, ready.extra),
    )


def workspace(op: Op, *types: TensorType | None) -> int:
    """Packed operands, sums, and what the library uses."""
    product = product_of(op, types)
    return rooms(product.sizes, product.weights, x_bytes(product), True).size + library.WORKSPACE + _ROOM_ALIGNMENT


def estimate(op: Op, *types: TensorType | None) -> float:
    own = (
        kernel.estimate(op, *types, **settings)
        for kernel in products.KERNELS
        if kernel.op is type(op) and kernel.estimate is not None and kernel.reason_against(op, *types) is None
        for settings in kernel.settings
    )
    return _LONGER * min(own)


def _kernel(op: type[Op]) -> Kernel:
    made = kernel(
        op,
        device="cuda",
        variant="cublas",
        dtypes=EIGHT_BITS,
        supports=reason_against,
        workspace=workspace,
        bind=bind,
        estimate=estimate,
    )
    return made(run_from_plan)


KERNELS: tuple[Kernel, ...] = tuple(_kernel(op) for op in OPS)
