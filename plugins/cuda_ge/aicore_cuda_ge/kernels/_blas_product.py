"""Matrix products by cuBLASLt, and their activations by a kernel behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicore.errors import ExecutionError
from aicore.ir import Op, TensorType
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels import _blas as blas
from aicore_cuda_ge.kernels._activations import IDENTITY
from aicore_cuda_ge.kernels._blas import Description, Matrix
from aicore_cuda_ge.kernels._machine import (
    BYTES_EACH_SECOND,
    FLOPS_EACH_MULTIPROCESSOR,
    LAUNCH_SECONDS,
    machine,
)
from aicore_cuda_ge.kernels._packing import item_bytes
from aicore_cuda_ge.kernels._product import Product, product_of
from aicore_cuda_ge.kernels._windows import ELEMENTS

_MOST_WORKSPACE = 32 << 20
_WORKSPACE_ALIGNMENT = 256
_OVERHEAD_SECONDS = 3e-6
"""Of one call beside its arithmetic: these kernels do not begin before the previous one has ended."""
_RATES = {"float32": 0.84 * 62.8e12, "tf32": 385e12, "float16": 690e12, "bfloat16": 690e12}
"""Products and sums each second on an H200, of large products."""
_TILES = {"float32": (128, 64), "tf32": (128, 128), "float16": (128, 128), "bfloat16": (128, 128)}


def reason_against(op: Op, *types: TensorType | None) -> str | None:
    """What the library is not given: it takes dense matrices, one batch axis, and c as a row or as large as y."""
    if not blas.library_path():
        return blas.MISSING
    if machine().capability < 80:
        return "takes GPUs of compute capability 8.0 and above"
    product, dtype = product_of(op, *types), _dtype(types)
    if min(product.rows, product.columns, product.inner, product.entries) < 1:
        return "takes sizes of at least 1"
    if len(product.batch) > 1:
        return f"takes one batch axis, here {len(product.batch)}"
    if dtype != "float32" and product.activation[0]:
        return f"applies no activation to {dtype}, which would be rounded twice"
    if _left(product) is None or _right(product) is None:
        return "takes matrices whose rows or columns lie side by side"
    return None if not product.has_c or _is_row(product) or _is_whole(product) else "takes c as a row or as large as y"


def describe(product: Product, dtype: str, compute: int) -> Description:
    """By columns, as the library sees it: y' = b' @ a'."""
    left, right = _left(product), _right(product)
    assert left is not None  # reason_against had nothing against it
    assert right is not None
    rows, columns = product.columns, product.rows
    return Description(
        dtype=dtype,
        compute=compute,
        left=left[0],
        right=right[0],
        y=Matrix(rows, columns, rows, rows * columns),
        turn_left=left[1],
        turn_right=right[1],
        batch=product.entries,
        bias=product.has_c and _is_row(product),
        workspace=_room(product, dtype),
    )


def bind(compute: int, op: Op, types: Sequence[TensorType | None], constants: Sequence[Any]) -> tuple[Call, ...]:
    """The call of the library, and the activation."""
    import cupy

    product, dtype, y_at = product_of(op, *types), _dtype(types), len(types)
    what = describe(product, dtype, compute)
    found = blas.prepared(what, cupy.cuda.runtime.getDevice())
    if found is None:
        raise ExecutionError(f"cuBLASLt has no way to multiply {product.rows} x {product.inner} by {product.columns}")
    whole = product.has_c and not what.bias
    places = (2 if what.bias else -1, 2 if whole else -1, y_at)
    scales = (float(product.alpha), float(product.beta) if whole else 0.0)
    call = compiled(
        "gemm_blas", (*found.functions, *found.objects, *found.algorithm, found.workspace, *places, *scales)
    )
    if product.activation == IDENTITY:
        return (call,)
    count = product.entries * product.rows * product.columns
    return call, compiled("activate_in_place", (count, ELEMENTS[dtype], y_at, *product.activation))


def workspace(op: Op, *types: TensorType | None, **settings: Any) -> int:
    """Bytes that the library may use, and to align them."""
    return _room(product_of(op, *types), _dtype(types)) + _WORKSPACE_ALIGNMENT


def estimate(compute: int, op: Op, *types: TensorType | None) -> float:
    """Waves of its tiles, and what follows them."""
    product, dtype = product_of(op, *types), _dtype(types)
    kind = "tf32" if compute == blas.COMPUTE_TF32 else dtype
    rows, columns = _TILES[kind]
    tiles = product.entries * -(-product.rows // rows) * -(-product.columns // columns)
    waves = -(-tiles // machine().multiprocessors)
    share = _RATES[kind] / (132 * FLOPS_EACH_MULTIPROCESSOR)
    arithmetic = 2.0 * waves * rows * columns * product.inner / (FLOPS_EACH_MULTIPROCESSOR * share)
    results = product.entries * product.rows * product.columns * item_bytes(dtype)
    inner = product.entries * (product.rows + product.columns) * product.inner * item_bytes(dtype)
    seconds = LAUNCH_SECONDS + _OVERHEAD_SECONDS + max(arithmetic, (results + inner) / BYTES_EACH_SECOND)
    if product.activation == IDENTITY:
        return seconds
    return seconds + LAUNCH_SECONDS + 1e-6 + 2 * results / BYTES_EACH_SECOND


def _room(product: Product, dtype: str) -> int:
    results = product.entries * product.rows * product.columns * 4
    return min(_MOST_WORKSPACE, 16 * results + (64 << 10))


def _left(product: Product) -> tuple[Matrix, bool] | None:
    """b as the library stores it, and whether that is its transpose."""
    batch = product.batch[0].b if product.batch else 0
    return _stored(product.columns, product.inner, product.b_column, product.b_inner, batch)


def _right(product: Product) -> tuple[Matrix, bool] | None:
    batch = product.batch[0].a if product.batch else 0
    return _stored(product.inner, product.rows, product.a_inner, product.a_row, batch)


def _stored(rows: int, columns: int, down: int, across: int, batch: int) -> tuple[Matrix, bool] | None:
    """A matrix of distances `down` between rows and `across` between columns; None if neither are neighbours."""
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return Matrix(rows, columns, max(across, rows), batch), False
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return Matrix(columns, rows, max(down, columns), batch), True
    return None


def _is_row(product: Product) -> bool:
    """c is one number for each column of y, added as it is."""
    across = product.c_column == 1 or product.columns == 1
    return across and product.c_row == 0 and product.beta == 1.0 and not any(axis.c for axis in product.batch)


def _is_whole(product: Product) -> bool:
    """c lies as y does."""
    rows = product.c_row == product.columns or product.rows == 1
    columns = product.c_column == 1 or product.columns == 1
    return rows and columns and all(axis.c == product.rows * product.columns for axis in product.batch)


def _dtype(types: Sequence[TensorType | None]) -> str:
    return next(t.dtype for t in types if t is not None)
