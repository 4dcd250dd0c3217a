"""Arithmetic of two or more tensors with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from aicore.ir import Op
from aicore.kernels import Kernel, kernel
from aicore.ops.arithmetic import Add, Div, Max, Mean, Min, Mod, Mul, Pow, Sub, Sum
from aicore_cpu_numpy.reference._precision import Array, widen
from aicore_cpu_numpy.reference.cast import convert

FUNCTIONS: dict[type[Op], Callable[[Array, Array], Any]] = {Add: np.add, Sub: np.subtract, Mul: np.multiply}


def binary(op: type[Op], function: Callable[[Array, Array], Any]) -> Kernel:
    """The reference kernel that applies the function to every pair of elements."""

    def compute(op: Op, a: Array, b: Array) -> Array:
        result: Array = function(widen(a), widen(b)).astype(a.dtype, copy=False)
        return result

    return kernel(op, device="cpu")(compute)


def variadic(op: type[Op], function: Callable[[Array, Array], Any]) -> Kernel:
    """The reference kernel that folds the function over the operands from left to right."""

    def compute(op: Op, *operands: Array) -> Array:
        first, *rest = map(widen, operands)
        result: Array = reduce(function, rest, first).astype(operands[0].dtype)
        return result

    return kernel(op, device="cpu")(compute)


@kernel(Div, device="cpu")
def div(op: Div, a: Array, b: Array) -> Any:
    if a.dtype.kind in "iu":
        return np.floor_divide(a - np.fmod(a, b), b)  # exact once the remainder is gone, so floor rounds nothing
    return np.divide(widen(a), widen(b)).astype(a.dtype, copy=False)


@kernel(Mod, device="cpu")
def mod(op: Mod, a: Array, b: Array) -> Any:
    function = np.fmod if op.fmod else np.remainder
    return function(widen(a), widen(b)).astype(a.dtype, copy=False)


@kernel(Pow, device="cpu")
def pow_(op: Pow, x: Array, y: Array) -> Any:
    if x.dtype.kind not in "iu":
        return np.power(widen(x), widen(y)).astype(x.dtype, copy=False)
    if y.dtype.kind not in "iu":
        return convert(np.power(x.astype(np.float64), widen(y)), x.dtype.name)
    exponent = y.astype(np.int64)  # beside int64, uint64 would turn both into float64
    power = np.power(x.astype(np.int64), np.maximum(exponent, 0))
    odd_sign = np.where(exponent % 2 == 0, 1, x)
    reciprocal = np.where(np.abs(x) == 1, odd_sign, 0)
    return np.where(exponent < 0, reciprocal, power).astype(x.dtype)


@kernel(Mean, device="cpu")
def mean(op: Mean, *operands: Array) -> Any:
    first, *rest = map(widen, operands)
    return (reduce(np.add, rest, first) / len(operands)).astype(operands[0].dtype)


KERNELS: tuple[Kernel, ...] = (
    *(binary(op, function) for op, function in FUNCTIONS.items()),
    div,
    mod,
    pow_,
    variadic(Max, np.maximum),
    variadic(Min, np.minimum),
    variadic(Sum, np.add),
    mean,
)
