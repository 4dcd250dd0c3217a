"""Activations that compiled kernels apply to their results: the params of graph_executor/activation/activation.cuh."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aicore.ops import activation as ops
from aicore.ops.recurrent import Activated

Params = tuple[int | float, ...]
"""The struct Activation: kind, alpha, beta."""

IDENTITY: Params = (0, 0.0, 0.0)

_KINDS: dict[type[Any], Callable[[Any], tuple[float, ...]]] = {
    ops.Relu: lambda f: (1,),
    ops.Clip: lambda f: (2, -math.inf if f.min is None else f.min, math.inf if f.max is None else f.max),
    ops.LeakyRelu: lambda f: (3, f.alpha),
    ops.Elu: lambda f: (4, f.alpha),
    ops.Selu: lambda f: (5, f.alpha, f.gamma),
    ops.Celu: lambda f: (6, f.alpha),
    ops.Gelu: lambda f: (8 if f.approximate == "tanh" else 7,),
    ops.Sigmoid: lambda f: (9,),
    ops.HardSigmoid: lambda f: (10, f.alpha, f.beta),
    ops.HardSwish: lambda f: (11,),
    ops.Swish: lambda f: (12, f.alpha),
    ops.Mish: lambda f: (13,),
    ops.Softplus: lambda f: (14,),
    ops.Softsign: lambda f: (15,),
    ops.Tanh: lambda f: (16,),
    ops.ThresholdedRelu: lambda f: (17, f.alpha),
    ops.Shrink: lambda f: (18, f.lambd, f.bias),
}

_RECURRENT_KINDS = {
    "Relu": 1,
    "LeakyRelu": 3,
    "Elu": 4,
    "Sigmoid": 9,
    "HardSigmoid": 10,
    "Softplus": 14,
    "Softsign": 15,
    "Tanh": 16,
    "Affine": 19,
    "ScaledTanh": 20,
    "ThresholdedRelu": 21,
}


def activation_params(activation: ops.Activation | None) -> Params:
    """The struct of an activation; of none, the identity. Raises KeyError for one that refusal() refuses."""
    if activation is None:
        return IDENTITY
    return _params(*_KINDS[type(activation)](activation))


def refusal(activation: ops.Activation | None) -> str:
    """Why compiled kernels cannot apply this activation; empty if they can."""
    if activation is None or type(activation) in _KINDS:
        return ""
    return f"compiled kernels have no {type(activation).__name__}"


def recurrent_params(activated: Activated) -> Params:
    """The struct of a gate's activation."""
    alpha, beta = activated.alpha, activated.beta
    return _params(_RECURRENT_KINDS[activated.name], 0.0 if alpha is None else alpha, 0.0 if beta is None else beta)


def _params(kind: float, alpha: float = 0.0, beta: float = 0.0) -> Params:
    return int(kind), float(alpha), float(beta)
