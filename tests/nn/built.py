"""Layers built and run on the CPU, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import aicore
from aicore.autodiff import gradients
from aicore.ir import TensorType, dtype_name, numpy_dtype, symbol
from aicore.nn.layer import Layer
from aicore.nn.scope import KEY
from aicore.nn.trace import Traced, trace

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Built:
    """A layer traced for inputs like `arrays`, whose first dim is a symbol in the graph."""

    traced: Traced
    arrays: tuple[Array, ...]

    @property
    def shapes(self) -> dict[str, tuple[Any, ...]]:
        """Shapes of parameters and state by name, in order."""
        return {name: variable.type.static_shape for name, variable in self.traced.scope.variables.items()}

    @property
    def count(self) -> int:
        """Numbers in all trainable parameters."""
        return sum(int(np.prod(v.type.static_shape)) for v in self.traced.scope.variables.values() if v.trainable)

    def initial(self, seed: int = 0) -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        found = self.traced.scope.variables.items()
        return {name: v.initializer(v.type.static_shape, rng).astype(numpy_dtype(v.type.dtype)) for name, v in found}

    def run(self, parameters: Mapping[str, Array] | None = None, key: tuple[int, int] = (1, 2)) -> dict[str, Array]:
        """Outputs by name, and next values of updated state as `next.NAME`."""
        scope = self.traced.scope
        updates = {f"next.{name}": value for name, value in scope.updates.items()}
        return self._run({**self.traced.outputs, **updates}, parameters, key)

    def gradients(self, parameters: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Of sum(sin(y)) over all outputs, by name of trainable parameters; run it last, since it adds nodes."""
        op, scope = self.traced.builder, self.traced.scope
        losses = [op.ReduceSum(op.Sin(y), keepdims=0) for y in self.traced.outputs.values()]
        loss = losses[0] if len(losses) == 1 else op.Sum(*losses)
        names = [name for name, variable in scope.variables.items() if variable.trainable]
        found = gradients(op, loss, [scope.values[name] for name in names])
        return self._run(dict(zip(names, found, strict=True)), parameters, (1, 2))

    def _run(
        self, outputs: Mapping[str, Any], parameters: Mapping[str, Array] | None, key: tuple[int, int]
    ) -> dict[str, Array]:
        scope = self.traced.scope
        values = {**self.traced.inputs, **scope.values}
        graph = self.traced.builder.graph(values.values(), outputs)
        feeds = dict(zip(self.traced.inputs, self.arrays, strict=True))
        feeds.update(self.initial() if parameters is None else parameters)
        if KEY in scope.values:
            feeds[KEY] = np.array(key, np.uint32)
        return aicore.compile(graph, "cpu").run(feeds)


def built(layer: Layer, *arrays: Any, training: bool = False, dtype: str = "float32") -> Built:
    """The layer traced for inputs like these; floats become of `dtype`."""
    found = tuple(a.astype(dtype) if a.dtype.kind == "f" else a for a in map(np.asarray, arrays))
    batch = symbol("batch")
    types = {
        f"x{i}": TensorType(dtype_name(a.dtype), (batch, *a.shape[1:]) if a.ndim else ()) for i, a in enumerate(found)
    }
    return Built(trace(layer, types, training=training, dtype=dtype), found)
