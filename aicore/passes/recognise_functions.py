"""Functions that exporters write out in small steps become the one op that computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from aicore.ir import Value
from aicore.ops.activation import Gelu, HardSigmoid, HardSwish, Mish, Swish
from aicore.ops.normalization import LayerNormalization
from aicore.passes.base import RulePass
from aicore.records import dataclass
from aicore.rewrite import Rule, require, rule

Pattern = Callable[..., Any]


def _halved_products(factor: Callable[[Any, Any], Any]) -> Iterable[Pattern]:
    """x * factor(x) / 2, in the three orders in which the two multiplications are written."""
    yield lambda op, x: op.Mul(op.Mul(x, factor(op, x)), op.scalar(0.5, x))
    yield lambda op, x: op.Mul(x, op.Mul(factor(op, x), op.scalar(0.5, x)))
    yield lambda op, x: op.Mul(op.Mul(x, op.scalar(0.5, x)), factor(op, x))


def _one_plus(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda op, x: op.Add(function(op, x), op.scalar(1.0, x))


def _erf_patterns() -> Iterable[Pattern]:
    yield from _halved_products(_one_plus(lambda op, x: op.Erf(op.Div(x, op.scalar(math.sqrt(2), x)))))
    yield from _halved_products(_one_plus(lambda op, x: op.Erf(op.Mul(x, op.scalar(math.sqrt(0.5), x)))))


def _tanh_patterns() -> Iterable[Pattern]:
    def tanh_of(cubic: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda op, x: op.Tanh(op.Mul(op.Add(x, cubic(op, x)), op.scalar(math.sqrt(2 / math.pi), x)))

    def scaled(op: Any, x: Any) -> Any:
        return op.Mul(x, op.scalar(0.044715, x))

    for cubic in (
        lambda op, x: scaled(op, op.Pow(x, op.scalar(3.0, x))),
        lambda op, x: scaled(op, op.Mul(op.Mul(x, x), x)),
        lambda op, x: op.Mul(op.Mul(scaled(op, x), x), x),
    ):
        yield from _halved_products(_one_plus(tanh_of(cubic)))


def _replaced(op: Any, activation: Any, x: Value) -> Value:
    reason = op.supports(activation, x)
    require(reason is None, f"no kernel for {type(activation).__name__}: {reason}")
    found: Value = op.apply(activation, x)
    return found


@rule(*_erf_patterns())
def gelu_of_erf(op: Any, x: Value) -> Value:
    """x * (erf(x / sqrt(2)) + 1) / 2 -> Gelu(x)"""
    return _replaced(op, Gelu(), x)


@rule(*_tanh_patterns())
def gelu_of_tanh(op: Any, x: Value) -> Value:
    """x * (tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)) + 1) / 2 -> Gelu(x) with approximate="tanh" """
    return _replaced(op, Gelu(approximate="tanh"), x)


@rule(lambda op, x: op.Mul(x, op.Sigmoid(x)))
def swish_of_sigmoid(op: Any, x: Value) -> Value:
    """x * sigmoid(x) -> Swish(x)"""
    return _replaced(op, Swish(), x)


@rule(
    lambda op, x: op.Mul(x, op.HardSigmoid(x, alpha=1 / 6, beta=0.5)),
    lambda op, x: op.Div(op.Mul(x, op.Clip(op.Add(x, op.scalar(3.0, x)), min=0.0, max=6.0)), op.scalar(6.0, x)),
    lambda op, x: op.Mul(x, op.Div(op.Clip(op.Add(x, op.scalar(3.0, x)), min=0.0, max=6.0), op.scalar(6.0, x))),
)
def hard_swish(op: Any, x: Value) -> Value:
    """x * max(0, min(1, x / 6 + 0.5)) -> HardSwish(x)"""
    return _replaced(op, HardSwish(), x)


@rule(lambda op, x: op.Div(op.Clip(op.Add(x, op.scalar(3.0, x)), min=0.0, max=6.0), op.scalar(6.0, x)))
def hard_sigmoid(op: Any, x: Value) -> Value:
    """clip(x + 3, 0, 6) / 6 -> HardSigmoid(x) with alpha 1/6 and beta 1/2"""
    return _replaced(op, HardSigmoid(alpha=1 / 6, beta=0.5), x)


@rule(lambda op, x: op.Mul(x, op.Tanh(op.Softplus(x))))
def mish_of_softplus(op: Any, x: Value) -> Value:
    """x * tanh(softplus(x)) -> Mish(x)"""
    return _replaced(op, Mish(), x)


def _normalised(square: Callable[[Any, Any], Any]) -> Pattern:
    def pattern(op: Any, x: Any, axes: Any, epsilon: Any, scale: Any, bias: Any = None) -> Any:
        centred = op.Sub(x, op.ReduceMean(x, axes=axes))
        variance = op.ReduceMean(square(op, centred), axes=axes)
        result = op.Mul(op.Div(centred, op.Sqrt(op.Add(variance, epsilon))), scale)
        return result if bias is None else op.Add(result, bias)

    return pattern


@rule(
    _normalised(lambda op, x: op.Pow(x, op.scalar(2.0, x))),
    _normalised(lambda op, x: op.Mul(x, x)),
)
def layer_normalization(
    op: Any, x: Value, axes: tuple[int, ...] | None, epsilon: Value, scale: Value, bias: Value | None
) -> Value:
    """(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon) * scale + bias -> LayerNormalization(x, scale, bias)"""
    require(x.shape is not None and axes, "the rank is unknown", x)
    shape, axes = x.shape or (), axes or ()
    require(axes == tuple(range(axes[0], len(shape))), f"axes {axes} are not the last ones", x)
    number = epsilon.known
    require(number is not None and number.size == 1, "epsilon is not a constant number", epsilon)
    for parameter in (scale, bias):
        fits = parameter is None or parameter.shape == shape[axes[0] :]
        require(fits, "a parameter has not the shape of the normalised axes", parameter)
    found = LayerNormalization(axis=axes[0], epsilon=float(number.ravel()[0]) if number is not None else 0.0)
    reason = op.supports(found, x, scale, bias)
    require(reason is None, f"no kernel for LayerNormalization: {reason}")
    result: Value = op.apply(found, x, scale, bias)
    return result


@dataclass(frozen=True)
class RecogniseFunctions(RulePass):
    """Finds Gelu, Swish, HardSwish, HardSigmoid, Mish and LayerNormalization behind their formulas."""

    name: ClassVar[str] = "recognise-functions"
    phase: ClassVar[str] = "fuse"
    after: ClassVar[tuple[str, ...]] = ("fold-batchnorm",)
    rules: ClassVar[tuple[Rule, ...]] = (
        layer_normalization,
        gelu_of_erf,
        gelu_of_tanh,
        hard_swish,
        hard_sigmoid,
        mish_of_softplus,
        swish_of_sigmoid,
    )
