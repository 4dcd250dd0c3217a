"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear and Int8Lookup, by csrc/quant_kernels.cu and observers.cu."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aicore.ir import Op, TensorType, Value, moved_bytes, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.quantization import (
    DequantizeLinear,
    DynamicQuantizeLinear,
    Quantization,
    QuantizeLinear,
    quantized_axis,
)
from aicore.ops.quantized_linear import EIGHT_BITS
from aicore_int8_quant.cuda import tiles
from aicore_int8_quant.cuda.launch import Launch, launch
from aicore_int8_quant.cuda.problem import NONE, OUT_TYPES, shape_at
from aicore_int8_quant.cuda.products import result_of, run_from_plan
from aicore_int8_quant.ops.lookup import Int8Lookup

Types = Sequence["TensorType | None"]
RANGE_BLOCKS = 512
"""Blocks that look for a range; each leaves two numbers."""
_LAUNCH_SECONDS, _RANGE_BYTES_EACH_SECOND = 1.0e-6, 2.4e12
"""Of one of these kernels, and what the search for a range reads, as measured on an H200."""
_SCATTERED_EACH_SECOND = 4.5e11
"""Elements whose scales are read one by one."""


def _parameters_reason(op: Quantization, types: Types) -> str | None:
    if not all(t is None or t.is_static for t in types):
        return "takes operands of known sizes"
    if op.block_size:
        return "does not take blocks"
    scale = types[1]
    return None if scale is not None and scale.dtype == "float32" else "takes scales of float32"


def quantize_reason(op: QuantizeLinear, *types: TensorType | None) -> str | None:
    if reason := _parameters_reason(op, types):
        return reason
    if op.precision not in (None, "float32"):
        return f"does not divide in {op.precision}"
    to = result_of(op, types).dtype
    return None if to in EIGHT_BITS else f"does not give {to}"


def dequantize_reason(op: DequantizeLinear, *types: TensorType | None) -> str | None:
    if reason := _parameters_reason(op, types):
        return reason
    if op.output_dtype not in (None, "float32"):
        return f"does not give {op.output_dtype}"
    x, point = types[0], (*types, None, None)[2]
    sums = x is not None and x.dtype == "int32"
    return "takes no zero point of int32" if sums and point is not None else None


def static_reason(op: Op, *types: TensorType | None) -> str | None:
    return None if all(t is None or t.is_static for t in types) else "takes operands of known sizes"


def dynamic_reason(op: DynamicQuantizeLinear, *types: TensorType | None) -> str | None:
    if reason := static_reason(op, *types):
        return reason
    return None if math.prod(shape_at(types, 0)) else "takes at least one element"


def _axis(op: Quantization, types: Types) -> tuple[int, int]:
    """How many scales there are, and elements side by side that have the same; 1 and 1 for one scale."""
    if math.prod(shape_at(types, 1)) == 1:
        return 1, 1
    shape = shape_at(types, 0)
    axis = quantized_axis(op.axis, len(shape))
    return shape[axis], math.prod(shape[axis + 1 :])


def _bind(name: str, op: Quantization, types: Types, constants: Sequence[Any]) -> tuple[Launch, ...]:
    x, out = types[0], result_of(op, types)
    assert x is not None  # inference refuses a node without it
    if not out.size:
        return ()
    along, inner = _axis(op, types)
    point = 2 if len(types) > 2 and types[2] is not None else NONE
    kinds = (OUT_TYPES[x.dtype], OUT_TYPES[out.dtype])
    return (launch(name, (math.prod(x.static_shape), along, inner, *kinds, 0, 1, point, len(types))),)


def bind_quantize(op: QuantizeLinear, types: Types, constants: Sequence[Any]) -> tuple[Launch, ...]:
    return _bind("int8_quantize", op, types, constants)


def bind_dequantize(op: DequantizeLinear, types: Types, constants: Sequence[Any]) -> tuple[Launch, ...]:
    return _bind("int8_dequantize", op, types, constants)


def bind_dynamic(op: DynamicQuantizeLinear, types: Types, constants: Sequence[Any]) -> tuple[Launch, ...]:
    """Range, scale and zero point, codes; the range lies behind those of the blocks."""
    count, (y, scale, point, room) = math.prod(shape_at(types, 0)), (1, 2, 3, 4)
    found = room + 256 * 8 * RANGE_BLOCKS
    codes = (count, 1, 1, OUT_TYPES["float32"], OUT_TYPES["uint8"], 0, scale, point, y)
    return (
        range_launch(count, 0, room, found),
        launch("int8_dynamic_parameters", (found, scale, point)),
        launch("int8_quantize", codes),
    )


def range_launch(count: int, x: int, parts: int, to: int) -> Launch:
    """Smallest and largest element of float32 at the place `to`. parts: room for 8 * RANGE_BLOCKS bytes."""
    return launch("int8_range", (count, x, parts, to, min(RANGE_BLOCKS, -(-count // 256))))


def dynamic_workspace(op: DynamicQuantizeLinear, *types: TensorType | None) -> int:
    return 8 * RANGE_BLOCKS + 64


def bind_lookup(op: Int8Lookup, types: Types, constants: Sequence[Any]) -> tuple[Launch, ...]:
    x, table = types[0], types[1]
    assert x is not None  # inference refuses a node without these
    assert table is not None
    item = int(numpy_dtype(table.dtype).itemsize)
    return (launch("int8_lookup", (math.prod(x.static_shape), int(x.dtype == "int8"), item)),)


def lookup_reason(op: Int8Lookup, *types: TensorType | None) -> str | None:
    table = types[1]
    if table is not None and numpy_dtype(table.dtype).itemsize not in (1, 4):
        return f"takes tables of elements of 1 or 4 bytes, not {table.dtype}"
    return static_reason(op, *types)


def seconds(op: Op, *types: TensorType | None) -> float:
    """An estimate: a launch, x and the result."""
    values = [None if t is None else Value("x", t) for t in types]
    moved = moved_bytes(op.infer(*values), values)
    taken = moved / tiles.BYTES_EACH_SECOND if isinstance(moved, int) else 0.0
    along, inner = _axis(op, types) if isinstance(op, Quantization) else (1, 1)
    if inner < 4 and along > 1 and (inner > 1 or along % 4):
        taken = max(taken, math.prod(shape_at(types, 0)) / _SCATTERED_EACH_SECOND)
    return _LAUNCH_SECONDS + taken


def dynamic_seconds(op: DynamicQuantizeLinear, *types: TensorType | None) -> float:
    """An estimate: the range in two launches, what follows from it, and quantising."""
    read = 4 * math.prod(shape_at(types, 0)) / _RANGE_BYTES_EACH_SECOND
    return 3 * _LAUNCH_SECONDS + read + seconds(op, *types)


def _made(
    op: type[Op], dtypes: frozenset[str], supports: Any, bind: Any, estimate: Any = seconds, room: Any = None
) -> Kernel:
    made = kernel(
        op,
        device="cuda",
        variant="int8",
        dtypes=dtypes,
        supports=supports,
        bind=bind,
        workspace=room,
        estimate=estimate,
    )
    return made(run_from_plan)


_FLOAT32 = frozenset({"float32"})
KERNELS: tuple[Kernel, ...] = (
    _made(QuantizeLinear, _FLOAT32, quantize_reason, bind_quantize),
    _made(DequantizeLinear, EIGHT_BITS | {"int32"}, dequantize_reason, bind_dequantize),
    _made(DynamicQuantizeLinear, _FLOAT32, dynamic_reason, bind_dynamic, dynamic_seconds, dynamic_workspace),
    _made(Int8Lookup, EIGHT_BITS, lookup_reason, bind_lookup),
)
