"""Matrix products on tensor cores, by the kernels of graph_executor/kernels/tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aicore.ir import Op, TensorType
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels import _tensor_tiles as tensor
from aicore_cuda_ge.kernels._packing import aligned, item_bytes, on_device, pack_rows, pack_seconds
from aicore_cuda_ge.kernels._product import BatchAxis, Product, product_of
from aicore_cuda_ge.kernels._product_times import is_rare


@dataclass(frozen=True)
class Operand:
    """One side of a product: `rows` of a, or columns of b, each of `inner` numbers. Strides are in elements."""

    rows: int
    row_stride: int
    inner: int
    inner_stride: int
    batch: tuple[int, ...]
    sizes: tuple[int, ...]

    def is_ready(self, dtype: str) -> bool:
        """Whether rows can be copied 16 bytes at a time."""
        each = tensor.chunk(dtype)
        strides = (self.inner, self.row_stride if self.rows > 1 else 0, *self.batch)
        return (self.inner_stride == 1 or self.inner <= 1) and all(stride % each == 0 for stride in strides)

    @property
    def entries(self) -> int:
        """Different matrices, where one axis of the batch or none has any."""
        return self.sizes[0] if self.batch and self.batch[0] else 1

    def nbytes(self, dtype: str) -> int:
        """Of the packed rows, up to where another array may begin."""
        return aligned(self.entries * self.rows * tensor.padded(self.inner, dtype) * item_bytes(dtype))

    def pack(self, dtype: str, source: int, to: int, to_byte: int) -> Call:
        """The launch that packs it."""
        sizes = (self.entries, self.rows, self.inner, tensor.padded(self.inner, dtype))
        strides = (self.batch[0] if self.batch else 0, self.row_stride, self.inner_stride)
        return pack_rows(sizes, strides, source=source, to=to, to_byte=to_byte, item=item_bytes(dtype))


def operands_of(product: Product) -> tuple[Operand, Operand]:
    sizes = tuple(axis.size for axis in product.batch)
    a = tuple(axis.a for axis in product.batch)
    b = tuple(axis.b for axis in product.batch)
    return (
        Operand(product.rows, product.a_row, product.inner, product.a_inner, a, sizes),
        Operand(product.columns, product.b_column, product.inner, product.b_inner, b, sizes),
    )


def reason_against(op: Op, *types: TensorType | None) -> str | None:
    """What needs packing, and has batches that packing does not go through."""
    if reason := tensor.reason_against_machine():
        return reason
    product, dtype = product_of(op, *types), _dtype(types)
    for operand in operands_of(product):
        if not operand.is_ready(dtype) and len(operand.batch) > 1:
            return "takes batches of more than one axis only of operands that are aligned to 16 bytes"
    return None


def bind(
    op: Op, types: Sequence[TensorType | None], constants: Sequence[Any], tile: str, split: int
) -> tuple[Call, ...]:
    """Launches that pack operands, where they must, and the product.

    The workspace holds packed a, then packed b; packed b that is constant comes behind it.
    """
    product, dtype = product_of(op, *types), _dtype(types)
    a, b = operands_of(product)
    workspace, inner = len(types) + 1, tensor.padded(product.inner, dtype)
    calls: list[Call] = []
    a_at, a_byte, b_at, b_byte = 0, 0, 1, 0
    extra: tuple[DeviceArray, ...] = ()
    if not a.is_ready(dtype):
        a_at = workspace
        calls.append(a.pack(dtype, 0, workspace, 0))
        product = replace(product, a_row=inner, a_inner=1, batch=_packed_batch(product, "a", a.rows * inner))
    if not b.is_ready(dtype):
        b_at, b_byte = workspace, 0 if a.is_ready(dtype) else a.nbytes(dtype)
        product = replace(product, b_column=inner, b_inner=1, batch=_packed_batch(product, "b", b.rows * inner))
        if constants[1] is None:
            calls.append(b.pack(dtype, 1, workspace, b_byte))
        else:
            b_at, b_byte = workspace + 1, 0
            extra = (on_device(constants[1], partial(packed, operand=b, dtype=dtype)),)
    params = product.params(len(types), splits=split, constant=constants[1] is not None)
    tail = (tensor.TILES[tile].index, a_at, a_byte, b_at, b_byte, inner)
    return (*calls, compiled(f"gemm_tensor_{tensor.kernel_name(dtype)}", (*params, *tail), extra))


def _packed_batch(product: Product, side: str, stride: int) -> tuple[BatchAxis, ...]:
    """Strides of the one axis, if there is one, of packed matrices that follow each other."""
    return tuple(replace(axis, **{side: stride if getattr(axis, side) else 0}) for axis in product.batch)


def packed(array_module: Any, array: Any, operand: Operand, dtype: str) -> Any:
    """The same as the kernel pack_rows makes. array_module: NumPy or CuPy."""
    xp, flat = array_module, array.reshape(-1)
    outer = xp.arange(operand.entries)[:, None, None] * (operand.batch[0] if operand.batch else 0)
    rows = xp.arange(operand.rows)[None, :, None] * operand.row_stride
    at = outer + rows + xp.arange(operand.inner)[None, None, :] * operand.inner_stride
    full = xp.zeros((operand.entries, operand.rows, tensor.padded(operand.inner, dtype)), flat.dtype)
    full[:, :, : operand.inner] = flat[at]
    return full


def workspace(op: Op, *types: TensorType | None, **settings: Any) -> int:
    """Bytes of packed operands; b may turn out to be constant, and then needs none."""
    dtype = _dtype(types)
    return sum(o.nbytes(dtype) for o in operands_of(product_of(op, *types)) if not o.is_ready(dtype))


def estimate(op: Op, *types: TensorType | None, tile: str = "64x64", split: int = 1) -> float:
    """Taking b for constant, as it is as a rule."""
    product, dtype = product_of(op, *types), _dtype(types)
    a, b = operands_of(product)
    results = product.entries * product.rows * product.columns * item_bytes(dtype)
    work = tensor.Work(
        *(dtype, product.entries, product.rows, product.columns, product.inner),
        a.nbytes(dtype) + b.nbytes(dtype) + results,
        is_rare(product),
    )
    packing = 0.0 if a.is_ready(dtype) else pack_seconds(a.nbytes(dtype))
    return packing + tensor.seconds(work, tile, split)


def _dtype(types: Sequence[TensorType | None]) -> str:
    return next(t.dtype for t in types if t is not None)
