"""How much further off a result may be where factors of products are rounded more coarsely than their type says.

With `tf32`, each of the two factors of a term keeps 11 significant bits and so is off by at most u = 2^-11 of itself;
the term is off by 2 u + u^2, and the sum by so much of the sum of the terms' absolute values. Sums are float32, so
that the usual tolerance of the op comes on top.

In a fused op, what follows the product passes the error on: the op is computed part by part, for the exact product
and for the product with the error added and taken away. Activations bend between the two by less than twice the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from aicore.config import Precision
from aicore.errors import AicoreError
from aicore.ir import Builder, Op, is_fused
from aicore.ops.layout import ChannelsLast

Array = np.ndarray[Any, Any]
Evaluate: TypeAlias = Callable[..., "tuple[Array, ...]"]
Bounds: TypeAlias = "tuple[Array, Array, Array] | None"
"""An array, the same with the error added, and with the error taken away; None for an operand that is absent."""

ROUNDOFF: Mapping[Precision, float] = {"tf32": 2.0**-11}
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})


def error_of_lowered_factors(
    evaluate: Evaluate, op: Op, operands: Sequence[Array | None], precision: Precision
) -> tuple[Array, ...]:
    """What comes on top of the tolerance, for each result; 0 for ops without products.

    operands: in float64, so that nothing else is rounded.
    """
    given: list[Bounds] = [None if a is None else (a, a, a) for a in operands]
    with np.errstate(all="ignore"):
        found = _bounds(evaluate, op, given, ROUNDOFF[precision])
        return tuple(2 * _distance(bounds) for bounds in found)


def _bounds(evaluate: Evaluate, op: Op, operands: Sequence[Bounds], unit: float) -> list[tuple[Array, Array, Array]]:
    held = op.inner if isinstance(op, ChannelsLast) else op
    if type(held).__name__ in _PRODUCTS:
        return [_of_product(evaluate, op, operands, unit)]
    if is_fused(op):
        return _of_parts(evaluate, op, operands, unit)
    each = [evaluate(op, *(None if o is None else o[i] for o in operands)) for i in range(3)]
    return list(zip(*each, strict=True))


def _of_product(evaluate: Evaluate, op: Op, operands: Sequence[Bounds], unit: float) -> tuple[Array, Array, Array]:
    exact = [None if o is None else o[0] for o in operands]
    (result,) = evaluate(op, *exact)
    (magnitude,) = evaluate(op, *(a if a is None or a.dtype.kind != "f" else _absolute(a) for a in exact))
    error = unit * (2 + unit) * np.abs(magnitude)
    return result, result + error, result - error


def _of_parts(evaluate: Evaluate, op: Op, operands: Sequence[Bounds], unit: float) -> list[tuple[Array, Array, Array]]:
    builder = Builder()
    values = [None if o is None else builder.constant(o[0]) for o in operands]
    made = op.decompose(builder, *values)
    known: dict[Any, Bounds] = {v: o for v, o in zip(values, operands, strict=True) if v is not None}
    for node in builder.nodes:
        of_node = [_bounds_of(known, value) for value in node.inputs]
        known.update(zip(node.outputs, _bounds(evaluate, node.op, of_node, unit), strict=True))
    results = made if isinstance(made, tuple) else (made,)
    found = [_bounds_of(known, value) for value in results]
    if any(bounds is None for bounds in found):
        raise AicoreError(f"{type(op).__name__} has a result that its parts do not make")
    return [bounds for bounds in found if bounds is not None]


def _bounds_of(known: Mapping[Any, Bounds], value: Any) -> Bounds:
    if value is None or value in known:
        return None if value is None else known[value]
    array = value.constant.array
    return array, array, array


def _distance(bounds: tuple[Array, Array, Array]) -> Array:
    result, above, below = bounds
    if result.dtype.kind != "f":
        return np.zeros(())
    error = np.maximum(np.abs(above - result), np.abs(below - result))
    return np.where(np.isfinite(error), error, 0.0)


def _absolute(array: Array) -> Array:
    return np.where(np.isfinite(array), np.abs(array), 0).astype(array.dtype)
