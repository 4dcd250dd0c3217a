"""What csrc/problem.cuh calls Params: a product of bytes in numbers, and what becomes of its sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from aicore.ir import Op, TensorType
from aicore.ops import activation as ops
from aicore.ops.layout import ChannelsLast
from aicore.ops.quantized_linear import ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul
from aicore_int8_quant.ops.linear import Int8Conv, Int8Linear, Int8MatMul

Types = Sequence["TensorType | None"]

NONE = -1
"""The place of what is absent."""
OUT_TYPES = {"int32": 0, "float32": 1, "int8": 2, "uint8": 3}
_ABSENT_TYPE = 4
_INFINITY = float("inf")


def place(position: int, byte: int = 0) -> int:
    """A position among the pointers of a launch, and bytes from there."""
    return NONE if position < 0 else position + 256 * byte


@dataclass(frozen=True)
class Operands:
    """Positions of an op's operands; NONE for those that it has not."""

    x: int
    w: int
    x_point: int
    w_point: int
    scale: int = NONE
    x_scale: int = NONE
    y_scale: int = NONE
    y_point: int = NONE
    bias: int = NONE
    addend: int = NONE
    addend_scale: int = NONE
    addend_point: int = NONE

    def given(self, types: Types) -> Operands:
        """Without those that this node leaves out."""
        absent = [f.name for f in fields(self) if not _has(types, getattr(self, f.name))]
        return replace(self, **dict.fromkeys(absent, NONE))


_INTEGER = Operands(0, 1, 2, 3)
_QUANTIZED = Operands(0, 3, 2, 5, scale=4, x_scale=1, y_scale=6, y_point=7, bias=8)
_FUSED = Operands(*(0, 1, 3, 4), scale=2, bias=5, addend=6, addend_scale=7, addend_point=8, y_scale=9, y_point=10)
_OPERANDS: dict[type[Op], Operands] = {
    MatMulInteger: _INTEGER,
    ConvInteger: _INTEGER,
    QLinearMatMul: _QUANTIZED,
    QLinearConv: _QUANTIZED,
    Int8MatMul: _FUSED,
    Int8Conv: _FUSED,
}


def operands_of(op: Op, types: Types) -> Operands:
    """Of one of the ops that this module knows."""
    return _OPERANDS[type(inner_of(op))].given(types)


def inner_of(op: Op) -> Op:
    """The op that ChannelsLast holds, or the op itself."""
    return op.inner if isinstance(op, ChannelsLast) else op


def _has(types: Types, at: int) -> bool:
    return 0 <= at < len(types) and types[at] is not None


def shape_at(types: Types, at: int) -> tuple[int, ...]:
    """The sizes of an operand that is there."""
    found = types[at]
    assert found is not None  # the caller knows
    return found.static_shape


def dtype_at(types: Types, at: int) -> str:
    found = types[at] if at >= 0 else None
    return "" if found is None else found.dtype


_ACTIVATIONS: dict[type[ops.Activation], int] = {
    ops.Relu: 1,
    ops.Clip: 2,
    ops.LeakyRelu: 3,
    ops.HardSigmoid: 4,
    ops.HardSwish: 5,
}
"""Those whose float32 arithmetic is the same everywhere, bit for bit."""


def activation_params(activation: ops.Activation | None) -> tuple[int, float, float]:
    """Kind, alpha, beta."""
    match activation:
        case None:
            return 0, 0.0, 0.0
        case ops.Clip(min=low, max=high):
            return 2, -_INFINITY if low is None else float(low), _INFINITY if high is None else float(high)
        case ops.LeakyRelu(alpha=alpha):
            return 3, float(alpha), 0.0
        case ops.HardSigmoid(alpha=alpha, beta=beta):
            return 4, float(alpha), float(beta)
    return _ACTIVATIONS[type(activation)], 0.0, 0.0


def activation_reason(activation: ops.Activation | None) -> str | None:
    """Why the epilogue cannot apply it, or None."""
    known = activation is None or type(activation) in _ACTIVATIONS
    return None if known else f"has no {type(activation).__name__}, whose bits differ among devices"


@dataclass(frozen=True)
class Sizes:
    """The struct Sizes; lengths in elements, which are bytes."""

    rows: int
    columns: int
    depth: int
    groups: int
    a_row: int
    a_group: int
    b_row: int
    positions: int
    y_image: int
    y_row: int
    y_column: int
    y_group: int
    column_group: int
    taps: int = 0
    kernel_width: int = 1
    channels: int = 1
    filled: int = 1
    height: int = 1
    width: int = 1
    out_width: int = 1
    pixel: int = 1
    stride_y: int = 1
    stride_x: int = 1
    dilation_y: int = 1
    dilation_x: int = 1
    pad_y: int = 0
    pad_x: int = 0
    a_unsigned: int = 0

    @property
    def products(self) -> int:
        return self.groups * self.rows * self.columns * self.depth

    def params(self) -> tuple[int, ...]:
        return tuple(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True)
class Places:
    """Where the launch finds what is not an operand of the op."""

    a: int
    b: int
    sums: int
    row_sums: int = NONE
    partial: int = NONE


def epilogue_params(op: Op, types: Types, out: TensorType, places: Places, full: bool) -> tuple[int | float, ...]:
    """The struct EpilogueParams. full: the addend has the shape of the result, not one number for each channel."""
    at, op = operands_of(op, types), inner_of(op)
    folds = isinstance(op, QLinearMatMul | QLinearConv)
    scales = types[at.scale] if at.scale >= 0 else None
    points = types[at.w_point] if at.w_point >= 0 else None
    addend = dtype_at(types, at.addend)
    activation = op.activation if isinstance(op, Int8Linear) else None
    return (
        *(len(types), OUT_TYPES[out.dtype]),
        *(at.scale, int(scales is not None and scales.size != 1)),
        *(at.x_scale, at.y_scale, int(folds)),
        *(at.bias, places.sums, places.row_sums),
        *(at.x_point, int(dtype_at(types, at.x) == "uint8")),
        *(at.w_point, int(points is not None and points.size != 1), int(dtype_at(types, at.w) == "uint8")),
        *(at.addend, OUT_TYPES.get(addend, _ABSENT_TYPE), int(full), at.addend_scale, at.addend_point),
        at.y_point,
        *activation_params(activation),
    )


def params_of(
    op: Op, types: Types, out: TensorType, sizes: Sizes, places: Places, full: bool, tile: int = 0, split: int = 1
) -> tuple[int | float, ...]:
    """The struct Params."""
    epilogue = epilogue_params(op, types, out, places, full)
    return (*sizes.params(), *epilogue, places.a, places.b, tile, split, places.partial)
