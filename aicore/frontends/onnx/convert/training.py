"""Optimisers of the preview training domain, written out as the arithmetic that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from aicore.errors import ModelError
from aicore.frontends.onnx.convert.source import Results, SourceNode, converts
from aicore.ir import Value

DOMAIN = "ai.onnx.preview.training"


@converts("Adagrad", domain=DOMAIN)
def adagrad(node: SourceNode) -> Results:
    """The rate shrinks with the step, and for each element with the sum of its squared gradients."""
    op, decay, epsilon = node.op, node.read("decay_factor"), node.read("epsilon")
    rate, step = node.operand(0), node.operand(1)
    rate = op.Div(rate, _plus(node, _times(node, op.CastLike(step, rate), decay), 1.0))
    gradient_of = _regularized(node)

    def update(x: Value, gradient: Value, squares: Value) -> tuple[Value, Value]:
        gradient = gradient_of(x, gradient)
        squares = op.Add(squares, op.Mul(gradient, gradient))
        divisor = _plus(node, op.Sqrt(squares), epsilon)
        return op.Sub(x, op.Div(op.Mul(rate, gradient), divisor)), squares

    return _each(node, 2, update)


@converts("Momentum", domain=DOMAIN)
def momentum(node: SourceNode) -> Results:
    """`beta` weighs the gradient except in the first step, which is number 0."""
    op, alpha, mode = node.op, node.read("alpha"), node.read("mode")
    if mode not in ("standard", "nesterov"):
        raise ModelError(f"{node.where}: mode {mode!r} is neither 'standard' nor 'nesterov'")
    rate = node.operand(0)
    beta = op.Where(_has_begun(node), op.scalar(node.read("beta"), rate), op.scalar(1.0, rate))
    gradient_of = _regularized(node)

    def update(x: Value, gradient: Value, velocity: Value) -> tuple[Value, Value]:
        gradient = gradient_of(x, gradient)
        velocity = op.Add(_times(node, velocity, alpha), op.Mul(beta, gradient))
        step = velocity if mode == "standard" else op.Add(gradient, _times(node, velocity, alpha))
        return op.Sub(x, op.Mul(rate, step)), velocity

    return _each(node, 2, update)


@converts("Adam", domain=DOMAIN)
def adam(node: SourceNode) -> Results:
    """Means of gradients and of their squares, corrected for their start at zero from step 1 on."""
    op, alpha, beta = node.op, node.read("alpha"), node.read("beta")
    epsilon, norm_after = node.read("epsilon"), node.read("norm_coefficient_post")
    rate = _corrected_rate(node, alpha, beta)
    gradient_of = _regularized(node)

    def update(x: Value, gradient: Value, mean: Value, square: Value) -> tuple[Value, Value, Value]:
        gradient = gradient_of(x, gradient)
        mean = op.Add(_times(node, mean, alpha), _times(node, gradient, 1 - alpha))
        square = op.Add(_times(node, square, beta), _times(node, op.Mul(gradient, gradient), 1 - beta))
        moved = op.Sub(x, op.Div(op.Mul(rate, mean), _plus(node, op.Sqrt(square), epsilon)))
        return _times(node, moved, 1 - norm_after), mean, square

    return _each(node, 3, update)


def _corrected_rate(node: SourceNode, alpha: float, beta: float) -> Value:
    op, rate = node.op, node.operand(0)
    step = op.CastLike(node.operand(1), rate)
    left = [op.Sub(op.scalar(1.0, rate), op.Pow(op.scalar(base, rate), step)) for base in (beta, alpha)]
    corrected = op.Div(op.Mul(rate, op.Sqrt(left[0])), left[1])
    chosen: Value = op.Where(_has_begun(node), corrected, rate)
    return chosen


def _has_begun(node: SourceNode) -> Value:
    step = node.operand(1)
    begun: Value = node.op.Greater(step, node.op.scalar(0, step))
    return begun


def _regularized(node: SourceNode) -> Callable[[Value, Value], Value]:
    """The gradient with that of `norm_coefficient / 2 * |x|^2` added."""
    norm = node.read("norm_coefficient")

    def gradient_of(x: Value, gradient: Value) -> Value:
        regularized: Value = node.op.Add(_times(node, x, norm), gradient)
        return regularized

    return gradient_of


def _each(node: SourceNode, results: int, update: Callable[..., tuple[Value, ...]]) -> Results:
    """Update every tensor: operands and results are grouped by role, not by tensor."""
    operands = node.inputs[2:]
    count, rest = divmod(len(operands), results + 1)
    if rest or not count:
        raise ModelError(f"{node.where}: {len(operands)} operands are no multiple of {results + 1}")
    updated = [update(*group) for group in _groups(operands, count)]
    return tuple(values[role] for role in range(results) for values in updated)


def _groups(operands: tuple[Value | None, ...], count: int) -> Iterator[tuple[Any, ...]]:
    for index in range(count):
        yield operands[index::count]


def _times(node: SourceNode, x: Value, factor: float) -> Value:
    product: Value = node.op.Mul(x, node.op.scalar(factor, x))
    return product


def _plus(node: SourceNode, x: Value, term: float) -> Value:
    total: Value = node.op.Add(x, node.op.scalar(term, x))
    return total
