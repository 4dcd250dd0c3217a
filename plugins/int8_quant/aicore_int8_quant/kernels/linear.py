"""Int8MatMul and Int8Conv on float32 BLAS: exact sums by chunks, and the epilogue while a block is in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.quantized_linear import EIGHT_BITS, ConvInteger
from aicore_cpu_numpy.integer_sums import (
    Convolution,
    Product,
    convolution_seconds,
    convolution_workspace,
    product_seconds,
    product_workspace,
    supports_convolution,
    supports_product,
)
from aicore_int8_quant.kernels.epilogue import Finish, reason_against
from aicore_int8_quant.ops.linear import Int8Conv, Int8Linear, Int8MatMul

Array = np.ndarray[Any, Any]
Types = Sequence[TensorType | None]
Constants = Sequence[Array | None]

OPERANDS = 11


class _Bound:
    """One step of a plan: the sums, made ready for their weight, and the epilogue of each call."""

    def __init__(self, op: Int8Linear, types: Types, constants: Constants) -> None:
        given = [*constants, *[None] * OPERANDS][:OPERANDS]
        kinds = [*types, *[None] * OPERANDS][:OPERANDS]
        fixed = kinds[4] is None or given[4] is not None
        self._activation = op.activation
        self._shape = self._prepare(op, _given(kinds[0]), _given(kinds[1]), given[1] if fixed else None, given[4])

    def __call__(self, *operands: Array | None, out: Array, workspace: Array) -> None:
        x, w, scale, x_zero_point, w_zero_point, bias, addend, *rest = [*operands, *[None] * OPERANDS][:OPERANDS]
        addend_scale, addend_zero_point, y_scale, y_zero_point = rest
        assert x is not None  # inference refuses a node without these
        assert w is not None
        assert scale is not None
        result = Finish(
            scale=self._by_channel(scale),
            bias=None if bias is None else self._by_channel(bias),
            addend=None if addend is None else self._spread(addend, out),
            addend_scale=addend_scale,
            addend_zero_point=addend_zero_point,
            activation=self._activation,
            y_scale=y_scale,
            y_zero_point=y_zero_point,
        )
        self._sums.run(x, x_zero_point, w, w_zero_point, result, out, workspace)

    def _prepare(
        self, op: Any, x: TensorType, w: TensorType, weight: Array | None, zero_point: Array | None
    ) -> tuple[int, ...]:
        raise NotImplementedError

    def _by_channel(self, parameter: Array) -> Array:
        raise NotImplementedError

    def _spread(self, addend: Array, out: Array) -> Array:
        raise NotImplementedError

    _sums: Product | Convolution


class _MatMul(_Bound):
    def _prepare(
        self, op: Any, x: TensorType, w: TensorType, weight: Array | None, zero_point: Array | None
    ) -> tuple[int, ...]:
        self._sums = Product(x, w, weight, zero_point)
        rows, columns = x.static_shape, w.static_shape
        shared = len(columns) == 2
        lead = (1, int(np.prod(rows[:-1]))) if shared else (int(np.prod(rows[:-2])), rows[-2])
        return (*lead, columns[-1])

    def _by_channel(self, parameter: Array) -> Array:
        return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(1, 1, -1)

    def _spread(self, addend: Array, out: Array) -> Array:
        return addend.reshape(self._shape) if addend.shape == out.shape else addend.reshape(1, 1, -1)


class _Conv(_Bound):
    def _prepare(
        self, op: Any, x: TensorType, w: TensorType, weight: Array | None, zero_point: Array | None
    ) -> tuple[int, ...]:
        self._sums = Convolution(op.integer_part(None, None, None)[0], x, w, weight, zero_point)
        group = op.conv.group
        return (x.static_shape[0], group, w.static_shape[0] // group)

    def _by_channel(self, parameter: Array) -> Array:
        return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(*self._shape[1:], 1)

    def _spread(self, addend: Array, out: Array) -> Array:
        if addend.shape == out.shape:
            return addend.reshape(*self._shape, int(np.prod(out.shape[2:])))
        return addend.reshape(*self._shape[1:], 1)


def _given(found: TensorType | None) -> TensorType:
    assert found is not None  # inference refuses a node without it
    return found


def _reason(op: Int8Linear, types: Types, check: Callable[..., str | None]) -> str | None:
    x, w, scale, *others = [*types, *[None] * OPERANDS][:OPERANDS]
    if (reason := check(x, w, scale, *others) or reason_against(op.activation)) is not None:
        return reason
    addend = others[3]
    if addend is None or addend.shape is None:
        return None
    (result,) = [op.infer(*_values(types))]
    assert isinstance(result, TensorType)
    by_channel = _channel_shape(op, result)
    if addend.shape in (result.shape, by_channel):
        return None
    return f"adds a tensor of the shape of the result or {by_channel} only, not {addend}"


def _values(types: Types) -> list[Any]:
    from aicore.ir import Value

    return [None if found is None else Value("operand", found) for found in types]


def _channel_shape(op: Int8Linear, result: TensorType) -> tuple[Any, ...]:
    shape = result.static_shape
    return (shape[1], *(1,) * (len(shape) - 2)) if op.channel_axis() == 1 else (shape[-1],)


def _run(bind: Any, op: Int8Linear, operands: Constants, out: Array, workspace: Array) -> None:
    """One call without preparation."""
    types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
    bind(op, types, [None] * len(types))(*operands, out=out, workspace=workspace)


def _integer(op: Int8Conv) -> ConvInteger:
    found = op.integer_part(None, None, None)[0]
    assert isinstance(found, ConvInteger)
    return found


@kernel(
    Int8MatMul,
    device="cpu",
    variant="blas",
    dtypes=EIGHT_BITS,
    supports=lambda op, *types: _reason(op, types, supports_product),
    workspace=lambda op, x, w, *others: product_workspace(x, w, sums=2),
    bind=_MatMul,
    estimate=lambda op, x, w, *others: product_seconds(x, w),
)
def int8_matmul_blas(op: Int8MatMul, *operands: Array | None, out: Array, workspace: Array) -> None:
    _run(_MatMul, op, operands, out, workspace)


@kernel(
    Int8Conv,
    device="cpu",
    variant="im2col",
    dtypes=EIGHT_BITS,
    supports=lambda op, *types: _reason(op, types, supports_convolution),
    workspace=lambda op, x, w, *others: convolution_workspace(_integer(op), x, w, sums=2),
    bind=_Conv,
    estimate=lambda op, x, w, *others: convolution_seconds(_integer(op), x, w),
)
def int8_conv_im2col(op: Int8Conv, *operands: Array | None, out: Array, workspace: Array) -> None:
    _run(_Conv, op, operands, out, workspace)


KERNELS: tuple[Kernel, ...] = (int8_matmul_blas, int8_conv_im2col)
