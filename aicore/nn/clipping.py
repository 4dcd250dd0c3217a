"""Keeping gradients small: by value, by the norm of each, and by the norm of all together."""

from __future__ import annotations

from collections.abc import Sequence

from aicore.ir import Builder, Value

EPSILON = 1e-6
"""What PyTorch's clip_grad_norm_ adds to the norm of all."""


def clip_by_value(op: Builder, gradients: Sequence[Value], limit: float) -> list[Value]:
    """Each element between -limit and limit: `clipvalue` of Keras, clip_grad_value_ of PyTorch. NaN stays."""
    return [op.Clip(g, op.scalar(-limit, g), op.scalar(limit, g)) for g in gradients]


def clip_by_norm(op: Builder, gradients: Sequence[Value], limit: float) -> list[Value]:
    """Each gradient g times limit / max(|g|, limit): `clipnorm` of Keras."""
    return [op.Mul(g, _share(op, g, limit)) for g in gradients]


def scale_by_global_norm(op: Builder, gradients: Sequence[Value], limit: float, scale: Value | None = None) -> Value:
    """The factor for all gradients that keeps the norm of all together below the limit; a scalar of float32.

    min(1, limit / (norm + 1e-6)) as in PyTorch's clip_grad_norm_, so that a NaN or an infinity makes all of them NaN.
    scale: what gradients are multiplied by first, taken over in the result.
    """
    norm = op.GlobalNorm(*gradients)
    if scale is not None:
        scale = op.CastLike(scale, norm)
        norm = op.Mul(norm, op.Abs(scale))
    share = op.Div(op.scalar(limit, norm), op.Add(norm, op.scalar(EPSILON, norm)))
    factor = op.Min(share, op.scalar(1.0, norm))
    return factor if scale is None else op.Mul(factor, scale)  # type: ignore[no-any-return]


def _share(op: Builder, g: Value, limit: float) -> Value:
    bound = op.scalar(limit, g)
    return op.Div(bound, op.Max(op.CastLike(op.GlobalNorm(g), g), bound))  # type: ignore[no-any-return]
