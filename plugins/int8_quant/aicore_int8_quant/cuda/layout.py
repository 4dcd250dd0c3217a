"""Transpose of bytes that puts two to four channels last, as those of a picture, by csrc/channels.cu."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.layout import channels_last
from aicore.ops.movement import Transpose
from aicore.ops.quantized_linear import EIGHT_BITS
from aicore_int8_quant.cuda import tiles
from aicore_int8_quant.cuda.launch import Launch, launch
from aicore_int8_quant.cuda.problem import shape_at
from aicore_int8_quant.cuda.products import LARGEST, run_from_plan

Types = Sequence["TensorType | None"]
_FEW = (2, 3, 4)


def reason_against(op: Transpose, x: TensorType) -> str | None:
    if not x.is_static:
        return "takes an operand of known sizes"
    shape = x.static_shape
    if len(shape) < 3 or op.perm != channels_last(len(shape)):
        return "puts the second axis last"
    if shape[1] not in _FEW or math.prod(shape[2:]) % 4:
        return f"takes two to four channels of pixels in fours, here {shape[1]} of {math.prod(shape[2:])}"
    return "takes fewer than 2**31 elements" if math.prod(shape) > LARGEST else None


def bind(op: Transpose, types: Types, constants: Sequence[Any]) -> tuple[Launch, ...]:
    images, channels, *size = shape_at(types, 0)
    return (launch("int8_channels_last", (images, channels, math.prod(size))),)


def estimate(op: Transpose, x: TensorType) -> float:
    return 2 * tiles.LAUNCH_SECONDS + 2 * math.prod(x.static_shape) / tiles.BYTES_EACH_SECOND


KERNELS: tuple[Kernel, ...] = (
    kernel(
        Transpose,
        device="cuda",
        variant="few_channels",
        dtypes=EIGHT_BITS,
        supports=reason_against,
        estimate=estimate,
        bind=bind,
    )(run_from_plan),
)
