"""Activation layers, and the names under which other layers take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Literal, TypeAlias

from aicore.ir import Value
from aicore.nn._config import config
from aicore.nn.initializers import Constant, Initializer, initializer
from aicore.nn.layer import Layer
from aicore.nn.layers._fields import known_dim, need_floats, one_of, require
from aicore.nn.scope import Scope

ActivationLike: TypeAlias = "str | Layer | None"
"""A name of `ACTIVATIONS`, a layer, or None for none."""


class _OneOp(Layer):
    """An activation that is one op, whose attributes are the layer's fields. kind: name of the op."""

    kind: ClassVar[str]

    def build(self, scope: Scope, x: Value) -> Any:
        attributes = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "name"}  # type: ignore[arg-type]
        return getattr(scope.op, self.kind)(x, **attributes)


@config
class ReLU(_OneOp):
    """max(x, 0), with derivative 0 at 0."""

    name: str = ""

    kind = "Relu"


@config
class ReLU6(Layer):
    """min(max(x, 0), 6)."""

    name: str = ""

    def build(self, scope: Scope, x: Value) -> Any:
        return scope.op.Clip(x, min=0.0, max=6.0)


@config
class LeakyReLU(_OneOp):
    """x where x >= 0, else alpha * x."""

    alpha: float = 0.01
    name: str = ""

    kind = "LeakyRelu"


@config
class PReLU(Layer):
    """x where x >= 0, else weight * x: `weight` [channels] is learnt, one number for each channel (axis 1).

    initializer: where it starts. shared: one number for all channels, weight [1].
    """

    initializer: Initializer | str = Constant(0.25)  # frozen
    shared: bool = False
    name: str = ""

    def check(self) -> None:
        initializer(self.initializer)

    def build(self, scope: Scope, x: Value) -> Any:
        need_floats(x)
        require(x.rank is not None and x.rank >= 2, f"the input is {x.type}, wants (batch, channels, ...)")
        count = 1 if self.shared else known_dim(x, 1, "channels")
        weight = scope.parameter("weight", (count,), initializer(self.initializer))
        spatial = tuple(range(1, (x.rank or 2) - 1))
        slope = scope.op.Unsqueeze(weight, axes=spatial) if spatial else weight
        return scope.op.PRelu(x, slope)


@config
class ELU(_OneOp):
    """x where x >= 0, else alpha * (exp(x) - 1)."""

    alpha: float = 1.0
    name: str = ""

    kind = "Elu"


@config
class SELU(_OneOp):
    """ELU with the constants that keep mean 0 and variance 1. Source: Klambauer and others, 2017."""

    name: str = ""

    kind = "Selu"


@config
class CELU(_OneOp):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    alpha: float = 1.0
    name: str = ""

    kind = "Celu"

    def check(self) -> None:
        require(self.alpha != 0, "alpha is 0, and x is divided by it")


@config
class GELU(_OneOp):
    """x times the normal distribution's mass below x; `approximate` is `none` (by erf) or `tanh`."""

    approximate: Literal["none", "tanh"] = "none"
    name: str = ""

    kind = "Gelu"

    def check(self) -> None:
        one_of("approximate", self.approximate, ("none", "tanh"))


@config
class SiLU(Layer):
    """x * sigmoid(alpha * x), also called swish."""

    alpha: float = 1.0
    name: str = ""

    def build(self, scope: Scope, x: Value) -> Any:
        op = scope.op  # not Swish, which ONNX has since opset 24 only
        return op.Mul(x, op.Sigmoid(x if self.alpha == 1 else op.Mul(x, op.scalar(self.alpha, x))))


@config
class Mish(_OneOp):
    """x * tanh(softplus(x))."""

    name: str = ""

    kind = "Mish"


@config
class Softplus(_OneOp):
    """log(1 + exp(x))."""

    name: str = ""

    kind = "Softplus"


@config
class Softsign(_OneOp):
    """x / (1 + |x|)."""

    name: str = ""

    kind = "Softsign"


@config
class Sigmoid(_OneOp):
    """1 / (1 + exp(-x)). Losses that take logits want the layer before it instead."""

    name: str = ""

    kind = "Sigmoid"


@config
class HardSigmoid(Layer):
    """min(max(x / 6 + 1/2, 0), 1), as in PyTorch and Keras 3."""

    name: str = ""

    def build(self, scope: Scope, x: Value) -> Any:
        return scope.op.HardSigmoid(x, alpha=1 / 6, beta=0.5)


@config
class HardSwish(_OneOp):
    """x * hard_sigmoid(x)."""

    name: str = ""

    kind = "HardSwish"


@config
class Tanh(_OneOp):
    """The hyperbolic tangent."""

    name: str = ""

    kind = "Tanh"


@config
class Softmax(_OneOp):
    """exp(x) / sum(exp(x)) along `axis`. Losses that take logits want the layer before it instead."""

    axis: int = -1
    name: str = ""

    kind = "Softmax"


@config
class LogSoftmax(_OneOp):
    """x - log(sum(exp(x))) along `axis`."""

    axis: int = -1
    name: str = ""

    kind = "LogSoftmax"


@config
class Identity(Layer):
    """x itself: the activation called `linear`."""

    name: str = ""

    def build(self, scope: Scope, x: Value) -> Any:
        return x


@config
class Activation(Layer):
    """The activation of a name of `ACTIVATIONS`, `function`.

    alpha: that of `leaky_relu`, `elu`, `celu` or `silu`, instead of its default.
    """

    function: str
    alpha: float | None = None
    name: str = ""

    def check(self) -> None:
        self.chosen()

    def chosen(self) -> Layer:
        """The layer that it stands for. Raises ConfigError for an unknown name, or an alpha that it does not take."""
        found = activation(self.function)
        if self.alpha is None:
            return found
        takes = {field.name for field in fields(found)}  # type: ignore[arg-type]
        require("alpha" in takes, f"activation {self.function!r} takes no alpha")
        return replace(found, alpha=self.alpha)  # type: ignore[type-var]

    def build(self, scope: Scope, x: Value) -> Any:
        return self.chosen().build(scope, x)


ACTIVATIONS: Mapping[str, Layer] = {
    "linear": Identity(),
    "relu": ReLU(),
    "relu6": ReLU6(),
    "leaky_relu": LeakyReLU(),
    "elu": ELU(),
    "selu": SELU(),
    "celu": CELU(),
    "gelu": GELU(),
    "gelu_tanh": GELU("tanh"),
    "silu": SiLU(),
    "swish": SiLU(),
    "mish": Mish(),
    "softplus": Softplus(),
    "softsign": Softsign(),
    "sigmoid": Sigmoid(),
    "hard_sigmoid": HardSigmoid(),
    "hard_swish": HardSwish(),
    "tanh": Tanh(),
    "softmax": Softmax(),
    "log_softmax": LogSoftmax(),
}
"""What a layer's `activation` may be called."""


def activation(found: ActivationLike) -> Layer:
    """The layer of a name, or itself. Raises ConfigError for a name that there is not."""
    if found is None:
        return ACTIVATIONS["linear"]
    if isinstance(found, Layer):
        return found
    known = isinstance(found, str) and found in ACTIVATIONS
    require(known, f"activation {found!r} is none of {', '.join(ACTIVATIONS)}, and no layer")
    return ACTIVATIONS[found]


def activated(scope: Scope, found: ActivationLike, x: Value) -> Value:
    """x under an activation, built inside the layer that has it."""
    if isinstance(found, Layer):
        return scope.call(found, x)  # type: ignore[no-any-return]  # it may have parameters, which need its name
    return activation(found).build(scope, x)  # type: ignore[no-any-return]
