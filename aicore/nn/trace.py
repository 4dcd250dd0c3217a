"""From layers to a graph: inputs are the data, then the parameters and the state that the layers asked for."""

from __future__ import annotations

from collections.abc import Mapping

from aicore.errors import ConfigError
from aicore.ir import Builder, TensorType, Value, as_tuple
from aicore.nn.layer import Layer
from aicore.nn.scope import Scope, need_values
from aicore.records import dataclass


@dataclass(frozen=True)
class Traced:
    """A model as nodes, not yet closed to a graph.

    scope: holds the builder, the variables with their values, and the updates of state.
    inputs: the data's values by name. outputs: what the model gives, by name.
    """

    scope: Scope
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]

    @property
    def builder(self) -> Builder:
        return self.scope.op


def trace(layer: Layer, inputs: Mapping[str, TensorType], *, training: bool, dtype: str = "float32") -> Traced:
    """Build a layer on inputs of these types. Outputs are called `output`, or `output0`, `output1`... if several.

    The outermost layer's name is no part of its parameters' names.
    Raises ConfigError where a layer does not fit its input.
    """
    if not isinstance(layer, Layer):
        raise ConfigError(f"{layer!r} is no layer")
    builder = Builder()
    scope = Scope(builder, training=training, dtype=dtype)
    values = {name: Value(name, tensor) for name, tensor in inputs.items()}
    found = as_tuple(layer.build(scope, *values.values()))
    need_values(found, "output")
    names = ["output"] if len(found) == 1 else [f"output{i}" for i in range(len(found))]
    return Traced(scope, values, dict(zip(names, found, strict=True)))
