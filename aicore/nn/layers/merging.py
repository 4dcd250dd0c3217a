"""Layers of several inputs, and layers made of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aicore.ir import Value
from aicore.nn._config import config
from aicore.nn.layer import Layer
from aicore.nn.layers._fields import is_int, require
from aicore.nn.layers.activations import ActivationLike, activated, activation
from aicore.nn.scope import Scope


@config
class Add(Layer):
    """The sum of its inputs, which broadcast."""

    name: str = ""

    def build(self, scope: Scope, *values: Value) -> Any:
        _need_several(self, values)
        total = values[0]
        for value in values[1:]:
            total = scope.op.Add(total, value)
        return total


@config
class Multiply(Layer):
    """The product of its inputs, which broadcast."""

    name: str = ""

    def build(self, scope: Scope, *values: Value) -> Any:
        _need_several(self, values)
        product = values[0]
        for value in values[1:]:
            product = scope.op.Mul(product, value)
        return product


@config
class Concatenate(Layer):
    """Its inputs one after another along `axis`; their other dims are equal."""

    axis: int = -1
    name: str = ""

    def check(self) -> None:
        fits = is_int(self.axis) and self.axis != 0
        require(fits, f"axis is {self.axis!r}, wants an integer other than 0, the batch")

    def build(self, scope: Scope, *values: Value) -> Any:
        _need_several(self, values)
        return scope.op.Concat(*values, axis=self.axis)


@config
class Residual(Layer):
    """activation(layer(x) + shortcut(x)): a layer that learns what to add. Source: He and others, 2015.

    layer: what is added, such as a Sequential.
    shortcut: what x goes through, where the layer changes its shape; None for x itself.
    activation: after the sum.
    """

    layer: Layer
    shortcut: Layer | None = None
    activation: ActivationLike = None
    name: str = ""

    def check(self) -> None:
        require(isinstance(self.layer, Layer), f"layer is {self.layer!r}, wants a layer")
        fits = self.shortcut is None or isinstance(self.shortcut, Layer)
        require(fits, f"shortcut is {self.shortcut!r}, wants a layer or None")
        activation(self.activation)

    def build(self, scope: Scope, x: Value) -> Any:
        y = scope.call(self.layer, x)
        kept = x if self.shortcut is None else scope.call(self.shortcut, x)
        require(y.type.agrees(kept.type), f"the layer gives {y.type} and the shortcut {kept.type}; they must be equal")
        return activated(scope, self.activation, scope.op.Add(y, kept))


@config
class Apply(Layer):
    """A function of your own, called with the builder and the inputs: `function(op, x)` returns `op.Exp(x)`, say.

    function: defined at the top of a module, so that layers with it compare, print and travel by its name.
    Raises ConfigError for a lambda or a function inside another.
    """

    function: Callable[..., Any]
    name: str = ""

    def check(self) -> None:
        called = getattr(self.function, "__qualname__", "")
        fits = callable(self.function) and called and "<" not in called
        require(fits, f"function is {self.function!r}, wants a function defined at the top of a module")

    def __repr__(self) -> str:
        named = f", name={self.name!r}" if self.name else ""
        return f"Apply({self.function.__module__}.{self.function.__qualname__}{named})"

    def build(self, scope: Scope, *values: Value) -> Any:
        return self.function(scope.op, *values)


def _need_several(layer: Layer, values: tuple[Value, ...]) -> None:
    require(len(values) >= 2, f"{type(layer).__name__} has {len(values)} input, wants 2 or more")
