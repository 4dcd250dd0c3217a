"""Functions of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aicore.ir import Op
from aicore.kernels import Kernel, kernel
from aicore.ops import elementwise as ops
from aicore_cpu_numpy.erf import erf
from aicore_cpu_numpy.reference._precision import Array, widen

FUNCTIONS: dict[type[Op], Callable[[Array], Any]] = {
    ops.Abs: np.abs,
    ops.Sign: np.sign,
    ops.Neg: np.negative,
    ops.Reciprocal: np.reciprocal,
    ops.Sqrt: np.sqrt,
    ops.Exp: np.exp,
    ops.Log: np.log,
    ops.Erf: erf,
    ops.Sin: np.sin,
    ops.Cos: np.cos,
    ops.Tan: np.tan,
    ops.Asin: np.arcsin,
    ops.Acos: np.arccos,
    ops.Atan: np.arctan,
    ops.Sinh: np.sinh,
    ops.Cosh: np.cosh,
    ops.Asinh: np.arcsinh,
    ops.Acosh: np.arccosh,
    ops.Atanh: np.arctanh,
    ops.Ceil: np.ceil,
    ops.Floor: np.floor,
    ops.Round: np.rint,
}


def elementwise(op: type[Op], function: Callable[[Array], Any]) -> Kernel:
    """The reference kernel that applies the function to every element."""

    def compute(op: Op, x: Array) -> Array:
        result: Array = function(widen(x)).astype(x.dtype, copy=False)
        return result

    return kernel(op, device="cpu")(compute)


KERNELS: tuple[Kernel, ...] = tuple(elementwise(op, function) for op, function in FUNCTIONS.items())
