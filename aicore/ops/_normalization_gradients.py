"""Gradients of normalisations. What is made of several ops is computed in float32 at least, as the ops are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aicore.errors import UnsupportedError
from aicore.ir.builder import Builder
from aicore.ir.dims import Shape
from aicore.ir.value import Value
from aicore.ops.gradients import Given, Gradients, numbers, reshape_like, sum_to

if TYPE_CHECKING:
    from aicore.ops.normalization import (
        LRN,
        BatchNormalization,
        LayerNormalization,
        LpNormalization,
        MeanVarianceNormalization,
        RMSNormalization,
    )


def of_inference(op: Builder, bn: BatchNormalization, inputs: Given, dy: Value) -> Gradients:
    """Of BatchNormalization by statistics that are operands."""
    x, scale, _, mean, variance = inputs
    wide = _widest(inputs)
    g, moved = _cast(op, dy, wide), _cast(op, variance, wide)
    inverse = op.Reciprocal(op.Sqrt(op.Add(moved, op.scalar(bn.epsilon, moved))))
    factor = op.Mul(_cast(op, scale, wide), inverse)
    centered = op.Sub(_cast(op, x, wide), _per_channel(op, _cast(op, mean, wide), x))
    total, weighted = _sum_of_channels(op, g), _sum_of_channels(op, op.Mul(g, centered))
    slope = op.Mul(op.Mul(factor, op.scalar(-0.5, factor)), op.Mul(inverse, inverse))
    found = (
        op.Mul(g, _per_channel(op, factor, x)),
        op.Mul(weighted, inverse),
        total,
        op.Neg(op.Mul(total, factor)),
        op.Mul(weighted, slope),
    )
    return tuple(_cast(op, gradient, like.dtype) for gradient, like in zip(found, inputs, strict=True))


def of_training(op: Builder, bn: BatchNormalization, inputs: Given, outputs: Given, grads: Given) -> Gradients:
    """Of BatchNormalization by the statistics of the batch, which outputs 3 and 4 are."""
    x, scale, _, mean, variance = inputs
    batch_mean, inverse = outputs[3:]
    found: list[Value | None] = [None] * 5
    if grads[0] is not None:
        found[:3] = op.BatchNormalizationGrad(x, scale, batch_mean, inverse, grads[0])
    of_mean, of_variance = grads[3], _of_variance(op, inverse, grads[4])
    if grads[1] is not None:
        found[3] = op.Mul(grads[1], op.scalar(bn.momentum, mean))
        of_mean = _added(op, of_mean, _scaled(op, grads[1], 1 - bn.momentum, batch_mean))
    if grads[2] is not None:
        found[4] = op.Mul(grads[2], op.scalar(bn.momentum, variance))
        of_variance = _added(op, of_variance, _scaled(op, grads[2], 1 - bn.momentum, batch_mean))
    found[0] = _through_moments(
        op,
        x,
        _others(x),
        _per_channel(op, batch_mean, x),
        None if of_mean is None else _per_channel(op, of_mean, x),
        None if of_variance is None else _per_channel(op, of_variance, x),
        found[0],
    )
    return found


def of_layer(op: Builder, ln: LayerNormalization, inputs: Given, outputs: Given, grads: Given) -> Gradients:
    """Of LayerNormalization by its statistics, outputs 1 and 2; scale and bias may be of any shape that broadcasts."""
    x, scale, bias = (*inputs, None)[:3]
    mean, inverse = outputs[1:]
    wide = _widest([x])
    if mean.dtype != wide:  # rounded too much for the gradient
        _, mean, inverse = op.LayerNormalization(
            x, scale, axis=ln.axis, epsilon=ln.epsilon, stash_type=wide, statistics=True
        )
    dx = dscale = dbias = None
    if grads[0] is not None and scale.shape == _shape(x)[ln.axis :]:
        dx, dscale, dbias = op.LayerNormalizationGrad(x, scale, mean, inverse, grads[0], axis=ln.axis)
        dbias = dbias if bias is None or bias.shape == scale.shape else sum_to(op, grads[0], bias)
    elif grads[0] is not None:
        g, ones = op.Mul(grads[0], scale), _ones_from(op, x, ln.axis)
        dx, _, _ = op.LayerNormalizationGrad(x, ones, mean, inverse, g, axis=ln.axis)
        normal = op.Mul(op.Sub(_cast(op, x, wide), mean), inverse)
        dscale = _cast(op, sum_to(op, op.Mul(_cast(op, grads[0], wide), normal), scale), scale.dtype)
        dbias = None if bias is None else sum_to(op, grads[0], bias)
    axes = tuple(range(ln.axis, x.rank))
    of_mean = None if grads[1] is None else _cast(op, grads[1], wide)
    of_variance = None if grads[2] is None else _of_variance(op, inverse, _cast(op, grads[2], wide))
    dx = _through_moments(op, x, axes, mean, of_mean, of_variance, dx)
    return [dx, dscale, None if bias is None else dbias]


def of_root_mean_square(op: Builder, rms: RMSNormalization, inputs: Given, dy: Value) -> Gradients:
    """Of RMSNormalization; its scale may be of any shape that broadcasts."""
    x, scale = inputs
    fields = {"axis": rms.axis, "epsilon": rms.epsilon}
    if scale.shape == _shape(x)[rms.axis :]:
        return op.RMSNormalizationGrad(x, scale, dy, **fields)  # type: ignore[no-any-return]
    ones = _cast(op, _ones_from(op, x, rms.axis), scale.dtype)
    dx, _ = op.RMSNormalizationGrad(x, ones, op.Mul(dy, scale), **fields)
    normal = op.RMSNormalization(x, ones, **fields)
    wide = _widest([scale])
    products = op.Mul(_cast(op, dy, wide), _cast(op, normal, wide))
    return [dx, _cast(op, sum_to(op, products, scale), scale.dtype)]


def of_groups(op: Builder, groups: int, epsilon: float, inputs: Given, dy: Value) -> Gradients:
    """Of GroupNormalization, and of InstanceNormalization, where groups is 0: layers of an instance's parts."""
    x, scale, _ = inputs
    parts = numbers(op, 0, groups, -1)
    flat, g = op.Reshape(x, parts), op.Reshape(op.Mul(dy, _per_channel(op, scale, x)), parts)
    ones, wide = _ones_from(op, flat, 2), _widest([x])
    normal, mean, inverse = op.LayerNormalization(flat, ones, axis=2, epsilon=epsilon, stash_type=wide, statistics=True)
    dx, _, _ = op.LayerNormalizationGrad(flat, ones, mean, inverse, g, axis=2)
    products = op.Mul(_cast(op, dy, wide), _cast(op, reshape_like(op, normal, x), wide))
    dscale = _cast(op, _sum_of_channels(op, products), scale.dtype)
    return [reshape_like(op, dx, x), dscale, _sum_of_channels(op, dy)]


def of_norm(op: Builder, lp: LpNormalization, x: Value, dy: Value) -> Value:
    """0 where the norm is 0."""
    wide = _widest([x])
    numbers_, g = _cast(op, x, wide), _cast(op, dy, wide)
    zero = op.scalar(0.0, numbers_)
    reduce = op.ReduceL1 if lp.p == 1 else op.ReduceL2
    norm = reduce(numbers_, axes=(lp.axis,), keepdims=1)
    y = op.Div(numbers_, norm)
    slope = op.Sign(numbers_) if lp.p == 1 else y
    shared = op.ReduceSum(op.Mul(g, y), axes=(lp.axis,), keepdims=1)
    dx = op.Div(op.Sub(g, op.Mul(slope, shared)), norm)
    return _cast(op, op.Where(op.Equal(norm, zero), zero, dx), x.dtype)


def of_local_response(op: Builder, lrn: LRN, x: Value, dy: Value) -> Value:
    """With s = bias + alpha / size * square_sum: dy s^-beta - 2 alpha beta / size * x * sum(dy x s^(-beta - 1)).

    That sum is over the channels in whose windows x is: the mirror image of its own window.
    """
    wide = _widest([x])
    numbers_, g = _cast(op, x, wide), _cast(op, dy, wide)
    before, behind = (lrn.size - 1) // 2, lrn.size // 2
    mean = _channel_means(op, op.Mul(numbers_, numbers_), lrn.size, before, behind)
    s = op.Add(op.Mul(mean, op.scalar(lrn.alpha, mean)), op.scalar(lrn.bias, mean))
    share = op.Mul(g, op.Pow(s, op.scalar(-lrn.beta, s)))
    products = op.Div(op.Mul(share, numbers_), s)
    back = _channel_means(op, products, lrn.size, behind, before)
    dx = op.Sub(share, op.Mul(op.Mul(numbers_, back), op.scalar(2 * lrn.alpha * lrn.beta, s)))
    return _cast(op, dx, x.dtype)


def _channel_means(op: Builder, x: Value, size: int, before: int, behind: int) -> Value:
    """Sums over `size` neighbouring channels, divided by `size` at the edges, too."""
    image = op.Unsqueeze(x, axes=(1,))
    rest = (1,) * ((x.rank or 0) - 2)
    none = (0,) * len(rest)
    pads = (before, *none, behind, *none)
    pooled = op.AveragePool(image, kernel_shape=(size, *rest), pads=pads, count_include_pad=1)
    return op.Squeeze(pooled, axes=(1,))  # type: ignore[no-any-return]


def of_mean_variance(op: Builder, mvn: MeanVarianceNormalization, x: Value, dy: Value) -> Value:
    """With d the deviation: (dy - mean(dy)) / (d + 1e-9) - c * mean(dy * c) / (d (d + 1e-9)^2), c = x - mean(x).

    The second term is 0 where d is.
    """
    wide = _widest([x])
    numbers_, g = _cast(op, x, wide), _cast(op, dy, wide)

    def mean(value: Value) -> Value:
        return op.ReduceMean(value, axes=mvn.axes, keepdims=1)  # type: ignore[no-any-return]

    centered = op.Sub(numbers_, mean(numbers_))
    deviation = op.Sqrt(mean(op.Mul(centered, centered)))
    moved, zero = op.Add(deviation, op.scalar(1e-9, deviation)), op.scalar(0.0, deviation)
    share = op.Div(mean(op.Mul(g, centered)), op.Mul(deviation, op.Mul(moved, moved)))
    share = op.Where(op.Equal(deviation, zero), zero, share)
    dx = op.Sub(op.Div(op.Sub(g, mean(g)), moved), op.Mul(centered, share))
    return _cast(op, dx, x.dtype)


def _through_moments(
    op: Builder,
    x: Value,
    axes: Sequence[int],
    mean: Value,
    of_mean: Value | None,
    of_variance: Value | None,
    dx: Value | None,
) -> Value | None:
    """dx with what comes back through mean and variance as results, which broadcast to x."""
    terms = []
    if of_mean is not None:
        terms.append(of_mean)
    if of_variance is not None:
        twice = op.Mul(of_variance, op.scalar(2.0, of_variance))
        terms.append(op.Mul(twice, op.Sub(_cast(op, x, mean.dtype), mean)))
    for term in terms:
        share = op.Div(term, _count(op, x, axes, term))
        whole = _cast(op, op.Expand(share, op.Shape(x)), x.dtype)
        dx = _added(op, dx, whole)
    return dx


def _of_variance(op: Builder, inverse: Value, of_inverse: Value | None) -> Value | None:
    """inverse = (variance + epsilon)^-1/2."""
    if of_inverse is None:
        return None
    cube = op.Mul(op.Mul(inverse, inverse), op.Mul(inverse, op.scalar(-0.5, inverse)))
    return op.Mul(of_inverse, cube)  # type: ignore[no-any-return]


def _count(op: Builder, x: Value, axes: Sequence[int], like: Value) -> Value:
    """How many elements these axes have, as a number of `like`'s type."""
    dims = [_shape(x)[axis] for axis in axes]
    known = [d for d in dims if isinstance(d, int)]
    if len(known) == len(dims):
        return op.scalar(float(math.prod(known)), like)
    taken = op.Gather(op.Shape(x), numbers(op, *axes))
    return op.CastLike(op.ReduceProd(taken, keepdims=0), like)  # type: ignore[no-any-return]


def _others(x: Value) -> tuple[int, ...]:
    """The axes that are not the channels'; a vector is one channel."""
    rank = len(_shape(x))
    return (0, *range(2, rank))


def _sum_of_channels(op: Builder, value: Value) -> Value:
    return op.ReduceSum(value, axes=_others(value), keepdims=int(value.rank == 1))  # type: ignore[no-any-return]


def _per_channel(op: Builder, parameter: Value, x: Value) -> Value:
    """A vector of one number for each channel, shaped to broadcast to x."""
    rank = len(_shape(x))
    return op.Unsqueeze(parameter, axes=tuple(range(1, rank - 1))) if rank > 2 else parameter


def _ones_from(op: Builder, x: Value, axis: int) -> Value:
    return op.Expand(op.scalar(1.0, x), op.Shape(x, start=axis))  # type: ignore[no-any-return]


def _scaled(op: Builder, value: Value, factor: float, like: Value) -> Value:
    wide = _cast(op, value, like.dtype)
    return op.Mul(wide, op.scalar(factor, wide))  # type: ignore[no-any-return]


def _added(op: Builder, a: Value | None, b: Value) -> Value:
    return b if a is None else op.Add(a, b)


def _cast(op: Builder, value: Value, dtype: str) -> Value:
    return value if value.dtype == dtype else op.Cast(value, to=dtype)


def _widest(values: Given) -> str:
    """What the ops compute in: float32, or float64 where an operand is."""
    return "float64" if any(value.dtype == "float64" for value in values) else "float32"


def _shape(x: Value) -> Shape:
    if x.shape is None:
        raise UnsupportedError(f"the gradient needs the rank of %{x.name}")
    return x.shape
