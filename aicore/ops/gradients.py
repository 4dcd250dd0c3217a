"""What the gradients of several op families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from aicore.ir.builder import Builder
from aicore.ir.dims import Shape
from aicore.ir.value import Value

Given: TypeAlias = Sequence[Any]
"""Operands, results or gradients, of which an op knows which are there."""
Gradients: TypeAlias = Sequence[Value | None]
Gradient: TypeAlias = Callable[[Any, Builder, Given, Given, Given], Gradients]
"""What `grad` of an op is."""


def by_derivative(derivative: Callable[[Any, Builder, Any, Any], Any]) -> Gradient:
    """`grad` of an op y = f(x), element by element, from its derivative: `(self, op, x, y) -> value`."""

    def grad(self: Any, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (op.Mul(grads[0], derivative(self, op, inputs[0], outputs[0])),)

    return grad


def by_masking(mask: Callable[[Any, Builder, Any, Any, Any], Any]) -> Gradient:
    """`grad` of an op y = f(x), element by element, from `(self, op, x, y, g) -> gradient`.

    For functions in pieces: choosing among gradients keeps an infinite one out of the pieces that it is not for.
    """

    def grad(self: Any, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (mask(self, op, inputs[0], outputs[0], grads[0]),)

    return grad


def no_gradient(self: Any, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
    """`grad` of an op that is constant in pieces: 0 almost everywhere, and where it jumps, too."""
    return ()


def reshape_like(op: Builder, gradient: Value, operand: Value) -> Value:
    """The elements of the gradient in the operand's shape."""
    if operand.shape is not None and gradient.shape == operand.shape:
        return gradient
    return op.Reshape(gradient, op.Shape(operand), allowzero=1)  # type: ignore[no-any-return]


def dim_of(op: Builder, value: Value, axis: int) -> Value:
    """One dim as an int64 vector of one number; the axis counts from the front."""
    return op.Shape(value, start=axis, end=axis + 1)  # type: ignore[no-any-return]


def numbers(op: Builder, *values: int) -> Value:
    """An int64 vector of constants."""
    return op.constant(np.array(values, np.int64), "numbers")


def places(op: Builder, value: Value) -> Value:
    """int64 of the value's shape: each element's place in row-major order."""
    count = op.Size(value)
    zero, one = op.constant(np.array(0, np.int64), "zero"), op.constant(np.array(1, np.int64), "one")
    return op.Reshape(op.Range(zero, count, one), op.Shape(value), allowzero=1)  # type: ignore[no-any-return]


def put_back(op: Builder, operand: Value, found: Value, gradient: Value) -> Value:
    """The gradient of an operand of which each result is a copy of one element.

    found: `places` of the operand, moved as the op moves its elements. Where several results are one element's, their
    gradients add up.
    """
    everything = numbers(op, -1)
    flat = op.Reshape(zeros_like(op, operand), everything)
    summed = op.ScatterElements(flat, op.Reshape(found, everything), op.Reshape(gradient, everything), reduction="add")
    return op.Reshape(summed, op.Shape(operand), allowzero=1)  # type: ignore[no-any-return]


def sum_to(op: Builder, gradient: Value, operand: Value) -> Value:
    """The gradient of an operand that was broadcast: summed over the dims that broadcasting enlarged.

    Where symbols leave open which dims these are, SumTo finds out when sizes are known.
    """
    if operand.shape is None or gradient.shape is None:
        return op.SumTo(gradient, op.Shape(operand))  # type: ignore[no-any-return]
    axes = _enlarged(operand.shape, gradient.shape)
    if axes is None:
        return op.SumTo(gradient, op.Shape(operand))  # type: ignore[no-any-return]
    if not axes:
        return gradient
    leading = len(gradient.shape) - len(operand.shape)
    if len(axes) == leading:
        return op.ReduceSum(gradient, axes=axes, keepdims=0)  # type: ignore[no-any-return]
    kept = op.ReduceSum(gradient, axes=axes, keepdims=1)
    return kept if not leading else op.Squeeze(kept, axes=tuple(range(leading)))  # type: ignore[no-any-return]


def _enlarged(operand: Shape, result: Shape) -> tuple[int, ...] | None:
    """Axes of the result that the operand lacks or has as 1; None where that is not known."""
    leading = len(result) - len(operand)
    axes = list(range(leading))
    for axis, (dim, wide) in enumerate(zip(operand, result[leading:], strict=True), leading):
        if dim == wide:
            continue
        if dim != 1:
            return None  # a symbol beside another dim may be 1 or equal it
        axes.append(axis)
    return tuple(axes)


def zeros_like(op: Builder, value: Value) -> Value:
    """Zeros of the value's type, whatever its numbers are."""
    return op.Expand(op.scalar(0.0, value), op.Shape(value))  # type: ignore[no-any-return]
