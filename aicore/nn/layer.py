"""The base of layers, and how they are put one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aicore.errors import ConfigError
from aicore.ir import Value
from aicore.nn.scope import Scope
from aicore.records import dataclass


class Layer:
    """A part of a model: a frozen dataclass whose fields say what it is, and which holds no numbers.

    The same layer may occur twice in a model: each occurrence has parameters of its own. Equal fields make equal
    layers. Compose by calling: inside `build`, `scope.call(layer, x)` builds a layer on values.
    """

    name: str = ""

    def build(self, scope: Scope, *values: Any) -> Any:
        """Make the layer's nodes on its inputs; returns its output, or a tuple of them.

        Raises ConfigError for fields or inputs that do not fit.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it is built")


@dataclass(frozen=True)
class Sequential(Layer):
    """Layers one after the other: the output of each is the input of the next.

    `Sequential(a, b)` and `Sequential([a, b])` are the same. See `aicore.nn.Model` for training it.
    """

    layers: tuple[Layer, ...]
    name: str

    def __init__(self, *layers: Layer | Iterable[Layer], name: str = "") -> None:
        given: list[Any] = []
        for layer in layers:
            given.extend([layer] if isinstance(layer, Layer) else _listed(layer))
        wrong = [layer for layer in given if not isinstance(layer, Layer)]
        if wrong:
            raise ConfigError(f"{wrong[0]!r} is no layer")
        self.__dict__.update(layers=tuple(given), name=name)

    def add(self, layer: Layer) -> Sequential:
        """The same with one more layer at the end. This one stays as it is."""
        return Sequential(*self.layers, layer, name=self.name)

    def build(self, scope: Scope, x: Value) -> Any:
        for layer in self.layers:
            x = scope.call(layer, x)
        return x


def _listed(layers: Any) -> list[Any]:
    if isinstance(layers, str) or not isinstance(layers, Iterable):
        raise ConfigError(f"{layers!r} is no layer")
    return list(layers)
