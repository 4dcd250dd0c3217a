"""MaxPool of bytes with channels last, by csrc/pool.cu: codes are compared as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import MaxPool, settle_pool
from aicore.ops.quantized_linear import EIGHT_BITS
from aicore.ops.window import numbers, output_dims
from aicore_int8_quant.cuda import tiles
from aicore_int8_quant.cuda.launch import Launch, launch
from aicore_int8_quant.cuda.problem import inner_of, shape_at
from aicore_int8_quant.cuda.products import LARGEST, run_from_plan

Types = Sequence["TensorType | None"]
AXES = 2
_RATE = 0.5 * tiles.BYTES_EACH_SECOND


def reason_against(op: Op, x: TensorType) -> str | None:
    pool: Any = inner_of(op)
    if not x.is_static:
        return "takes an operand of known sizes"
    if pool.indices:
        return "finds no indices"
    shape = x.static_shape
    if len(shape) - 2 > AXES or len(shape) < 3:
        return f"takes images of one or two spatial axes, here {len(shape) - 2}"
    if shape[-1] % 4:
        return f"takes channels in fours, here {shape[-1]}"
    reach = sum(k * d for k, d in zip(*_window(op, x)[:2], strict=True))
    margin = reach * (shape[-2] + reach) * shape[-1]
    return "takes fewer than 2**31 elements" if math.prod(shape) + margin > LARGEST else None


def _window(op: Op, x: TensorType) -> tuple[tuple[int, ...], ...]:
    """(kernel, dilation, stride, padding before, places), a number for each spatial axis."""
    size = x.static_shape[1:-1]
    pool: Any = settle_pool(inner_of(op), size)  # type: ignore[type-var]  # the kernel is for MaxPool alone
    out = numbers(output_dims(pool, size, pool.kernel_shape, bool(pool.ceil_mode)))
    return pool.kernel_shape, pool.dilations, pool.strides, pool.pads[: len(size)], out


def bind(op: Op, types: Types, constants: Sequence[Any]) -> tuple[Launch, ...]:
    x = types[0]
    assert x is not None  # infer() refused the op otherwise
    kernel_shape, dilation, stride, begin, out = _window(op, x)
    images, *size, channels = shape_at(types, 0)
    spatial = (_pair(size), _pair(out), _pair(kernel_shape), _pair(stride), _pair(dilation), _pair(begin, 0))
    numbers_ = (n for pair in spatial for n in pair)
    return (launch("int8_max_pool", (images, channels, *numbers_, int(x.dtype == "uint8"))),)


def _pair(dims: Sequence[int], fill: int = 1) -> tuple[int, int]:
    first, second = (*(fill,) * (AXES - len(dims)), *dims)
    return first, second


def estimate(op: Op, x: TensorType) -> float:
    shape, out = x.static_shape, _window(op, x)[-1]
    moved = math.prod(shape) + shape[0] * math.prod(out) * shape[-1]
    return 2 * tiles.LAUNCH_SECONDS + moved / _RATE


KERNELS: tuple[Kernel, ...] = (
    kernel(
        ChannelsLast,
        device="cuda",
        variant="bytes",
        dtypes=EIGHT_BITS,
        supports=reason_against,
        estimate=estimate,
        bind=bind,
        wraps=MaxPool,
    )(run_from_plan),
)
