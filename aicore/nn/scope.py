"""Where a layer builds its nodes: the parameters and the state that it asks for get names, and become graph inputs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aicore.errors import ConfigError, GraphError
from aicore.ir import FLOATS, Builder, Origin, TensorType, Value
from aicore.records import dataclass

if TYPE_CHECKING:
    from aicore.nn.layer import Layer

Initializer: TypeAlias = Callable[[tuple[int, ...], np.random.Generator], np.ndarray[Any, Any]]
"""(shape, generator) -> numbers of that shape."""

KEY = "random.key"
"""The state that random ops draw from: uint32[2], seed and step."""


@dataclass(frozen=True)
class Variable:
    """A tensor that a model keeps from step to step.

    trainable: the optimiser changes it; else the layer does, through `Scope.update`, or nobody.
    """

    name: str
    type: TensorType
    initializer: Initializer
    trainable: bool


@dataclass(frozen=True)
class Rows:
    """Integers of the graph that choose among `count` rows of a layer."""

    index: Value
    count: int
    layer: str


class Scope:
    """Handed to `Layer.build`. Everything that is built goes to one graph, whatever the depth of layers.

    op: makes nodes, as in `scope.op.Relu(x)`.
    training: whether the graph is one for training; a layer may build something else for inference.
    """

    def __init__(self, op: Builder, *, training: bool, dtype: str = "float32") -> None:
        if dtype not in FLOATS:
            raise ConfigError(f"dtype={dtype!r} is no floating-point type")
        self.op = op
        self.training = training
        self.dtype = dtype
        self._path: tuple[str, ...] = ()
        self._counts: Counter[str] = Counter()
        self._shared = _Shared({}, {}, {}, [])

    @property
    def variables(self) -> Mapping[str, Variable]:
        """What layers asked for, by full name, in the order in which they asked."""
        return self._shared.variables

    @property
    def values(self) -> Mapping[str, Value]:
        """The graph input of each variable, and that of the random key under `KEY` if a layer asked for one."""
        return self._shared.values

    @property
    def updates(self) -> Mapping[str, Value]:
        """Next values by full name of state that layers update."""
        return self._shared.updates

    @property
    def penalties(self) -> Sequence[Value]:
        """What layers add to the loss."""
        return self._shared.penalties

    def add_loss(self, penalty: Value) -> None:
        """Add a scalar to the loss that training minimises, such as a weight's norm. Evaluation leaves it out."""
        if penalty.shape != () or penalty.dtype not in FLOATS:
            raise GraphError(f"a penalty is a scalar of floating point, got {penalty.type}")
        self._shared.penalties.append(penalty)

    def parameter(
        self,
        name: str,
        shape: Sequence[int],
        initializer: Initializer,
        *,
        trainable: bool = True,
        dtype: str | None = None,
    ) -> Value:
        """A tensor that training changes, as an input of the graph.

        name: within the layer, such as `weight`.
        Raises ConfigError for a size that is no number, or for a second parameter of one name.
        """
        return self._variable(name, shape, initializer, trainable, dtype)

    def state(self, name: str, shape: Sequence[int], initializer: Initializer, *, dtype: str | None = None) -> Value:
        """A tensor that the layer itself changes, such as a running mean; see `update`."""
        return self._variable(name, shape, initializer, False, dtype)

    def update(self, state: Value, new: Value) -> None:
        """Let `new` be the state's value in the next step.

        Raises GraphError for a value that is no state, such as a parameter, or that has a next value already.
        """
        names = [name for name, value in self._shared.values.items() if value is state and name != KEY]
        if not names:
            raise GraphError(f"%{state.name} is no state of this model")
        if self._shared.variables[names[0]].trainable:
            raise GraphError(f"%{state.name} is a parameter, which the optimiser changes; ask for it with `state`")
        if names[0] in self._shared.updates:
            raise GraphError(f"%{state.name} has a next value already")
        if not new.type.agrees(state.type):
            raise GraphError(f"the next value of %{state.name} is {new.type}, wants {state.type}")
        self._shared.updates[names[0]] = new

    @property
    def rows(self) -> list[Rows]:
        """What `select_rows` was told, in order."""
        return self._shared.rows

    def select_rows(self, index: Value, count: int) -> None:
        """Say that integers choose among so many rows, 0 to count - 1.

        A model refuses others in its data. Where they are computed, ops decide: -1 is the last row for Gather.
        """
        self._shared.rows.append(Rows(index, count, ".".join(self._path)))

    def key(self) -> Value:
        """The key for ops that draw random numbers, uint32[2]: another one in each step."""
        found = self._shared.values.get(KEY)
        if found is None:
            found = self._shared.values[KEY] = self.op.input(KEY, "uint32", (2,))
        return found

    def stream(self) -> int:
        """A number for the `stream` of a random op, which sets it apart from the others of the model."""
        self._shared.streams += 1
        return self._shared.streams - 1

    def call(self, layer: Layer, *values: Value) -> Any:
        """Build a layer inside this one, under its own name, or that of its class with a number from the second on.

        Raises ConfigError for what is no layer, and for inputs or outputs of it that are no values of the graph.
        """
        if not hasattr(layer, "build") or not isinstance(layer.name, str):
            raise ConfigError(f"{layer!r} is no layer, or its name is no text")
        name = layer.name or snake_case(type(layer).__name__)
        count = self._counts[name]
        self._counts[name] += 1
        path, counts, origin = self._path, self._counts, self.op.origin
        self._path = (*path, f"{name}_{count}" if count else name)
        self._counts = Counter()
        self.op.origin = Origin(name=".".join(self._path))
        try:
            need_values(values, "input")
            found = layer.build(self, *values)
            need_values(found if isinstance(found, tuple) else (found,), "output")
            return found
        except (GraphError, ConfigError) as error:
            if getattr(error, "in_layer", False):
                raise
            told = type(error)(f"layer {'.'.join(self._path)!r}: {error}")
            told.in_layer = True  # type: ignore[union-attr]  # so that outer layers do not say it again
            raise told from error
        finally:
            self._path, self._counts, self.op.origin = path, counts, origin

    def _variable(
        self, name: str, shape: Sequence[int], initializer: Initializer, trainable: bool, dtype: str | None
    ) -> Value:
        sizes = tuple(shape)
        wrong = [size for size in sizes if not isinstance(size, int) or size < 0]
        if wrong:
            raise ConfigError(f"parameter {name!r} of shape {sizes}: {wrong[0]!r} is no size; only batches may vary")
        full = ".".join((*self._path, name))
        if full in self._shared.values:
            raise ConfigError(f"there are two parameters {full!r}; a layer is built twice under one name")
        tensor = TensorType(dtype or self.dtype, sizes)
        self._shared.variables[full] = Variable(full, tensor, initializer, trainable)
        value = self._shared.values[full] = Value(full, tensor)
        return value


@dataclass
class _Shared:
    """What all scopes of one graph have in common."""

    variables: dict[str, Variable]
    values: dict[str, Value]
    updates: dict[str, Value]
    penalties: list[Value]
    rows: list[Rows] = field(default_factory=list)
    streams: int = 0


def need_values(values: tuple[Any, ...], what: str) -> None:
    """Raise ConfigError unless all are values of a graph, and there are some."""
    wrong = [value for value in values if not isinstance(value, Value)]
    if wrong or not values:
        told = f"{what} is {type(wrong[0]).__name__}" if wrong else f"there is no {what}"
        raise ConfigError(f"{told}, wants values of the graph; a layer of several outputs gives a tuple")


def snake_case(name: str) -> str:
    """`Conv2D` -> `conv2d`, `BatchNormalization` -> `batch_normalization`, `LSTM` -> `lstm`, `ReLU` -> `relu`."""
    name = re.sub(r"(?<=[a-z])LU\b", "lu", name)  # ReLU is one word
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z]{2,})", "_", name)
    return parts.lower()
