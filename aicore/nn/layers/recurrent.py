"""Recurrent layers over (batch, steps, features).

Parameters are packed as in ONNX. With G gates, H units and D directions (2 if bidirectional): weight
[D, G*H, features], recurrent_weight [D, G*H, H], bias [D, 2*G*H], the bias of the input and then that of the state.
Gates are in ONNX's order: LSTM input, output, forget, cell; GRU update, reset, hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from aicore.ir import Value
from aicore.nn._config import config
from aicore.nn.initializers import Array, Initializer, Stacked, initializer
from aicore.nn.layer import Layer
from aicore.nn.layers._fields import known_dim, need_floats, need_rank, one_of, positive, require
from aicore.nn.scope import Scope


@config
class _Recurrent(Layer):
    """What the three have in common.

    (batch, steps, features) -> (batch, H): the state after the last step; with `return_sequences` (batch, steps, H),
    all states. With `bidirectional`, a second layer reads backwards, and its states come after those of the first: 2*H.

    More inputs: the initial states, each (batch, H), or (batch, 2*H) if bidirectional; zeros when absent. With
    `return_state` the last states follow as further outputs of that shape.

    units: H. return_sequences, return_state, bidirectional: see above. use_bias: False leaves out the bias.
    initializer: of each gate's part of weight. recurrent_initializer: of each gate's part of recurrent_weight.
    """

    units: int
    return_sequences: bool = False
    return_state: bool = False
    bidirectional: bool = False
    use_bias: bool = True
    initializer: Initializer | str = "glorot_uniform"
    recurrent_initializer: Initializer | str = "orthogonal"
    name: str = ""

    kind: ClassVar[str]
    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def check(self) -> None:
        positive("units", self.units)
        initializer(self.initializer)
        initializer(self.recurrent_initializer)

    def build(self, scope: Scope, x: Value, *initial: Value) -> Any:
        need_floats(x)
        need_rank(x, 3, "batch, steps, features")
        op, directions, rows = scope.op, 1 + self.bidirectional, self.gates * self.units
        fits = len(initial) in (0, self.states)
        require(fits, f"{len(initial)} initial states, wants {self.states} or none")
        weight = scope.parameter(
            "weight",
            (directions, rows, known_dim(x, 2, "features")),
            Stacked(initializer(self.initializer), self.gates),
        )
        recurrent = scope.parameter(
            "recurrent_weight",
            (directions, rows, self.units),
            Stacked(initializer(self.recurrent_initializer), self.gates),
        )
        bias = scope.parameter("bias", (directions, 2 * rows), self._bias()) if self.use_bias else None
        steps_first = op.Transpose(x, perm=(1, 0, 2))  # as ONNX has it by default, and other runtimes only
        y, *last = getattr(op, self.kind)(
            steps_first,
            weight,
            recurrent,
            bias,
            None,
            *(self._initial(scope, state) for state in initial),
            hidden_size=self.units,
            direction="bidirectional" if self.bidirectional else "forward",
            **self._attributes(),
        )
        found = self._sequences(scope, y) if self.return_sequences else self._last(scope, last[0])
        states = [self._last(scope, state) for state in last] if self.return_state else []
        return (found, *states) if self.return_state else found

    def _bias(self) -> Initializer:
        return initializer("zeros")

    def _attributes(self) -> dict[str, Any]:
        return {}

    def _initial(self, scope: Scope, state: Value) -> Value:
        """(batch, directions * H) -> (directions, batch, H)."""
        op, width = scope.op, self.units * (1 + self.bidirectional)
        need_rank(state, 2, "batch, units")
        fits = known_dim(state, 1, "units") == width
        require(fits, f"an initial state is {state.type}, wants (batch, {width})")
        if not self.bidirectional:
            return op.Unsqueeze(state, axes=(0,))  # type: ignore[no-any-return]
        return op.Transpose(op.Reshape(state, shape=(0, 2, self.units)), perm=(1, 0, 2))  # type: ignore[no-any-return]

    def _sequences(self, scope: Scope, y: Value) -> Value:
        """(steps, directions, batch, H) -> (batch, steps, directions * H)."""
        op = scope.op
        if not self.bidirectional:
            return op.Transpose(op.Squeeze(y, axes=(1,)), perm=(1, 0, 2))  # type: ignore[no-any-return]
        batch_first = op.Transpose(y, perm=(2, 0, 1, 3))
        return op.Reshape(batch_first, shape=(0, 0, 2 * self.units))  # type: ignore[no-any-return]

    def _last(self, scope: Scope, state: Value) -> Value:
        """(directions, batch, H) -> (batch, directions * H)."""
        op = scope.op
        if not self.bidirectional:
            return op.Squeeze(state, axes=(0,))  # type: ignore[no-any-return]
        batch_first = op.Transpose(state, perm=(1, 0, 2))
        return op.Reshape(batch_first, shape=(0, 2 * self.units))  # type: ignore[no-any-return]


@config
class RNN(_Recurrent):
    """The simple recurrent layer: h = activation(W x + R h + b), G = 1.

    (batch, steps, features) -> (batch, units), the state after the last step, or (batch, steps, units), all of them.
    Parameters: weight [D, units, features], recurrent_weight [D, units, units], bias [D, 2 * units], with D directions.

    units: size of the state. return_sequences: give all states. return_state: give the last one too, (batch, units).
    bidirectional: a second layer reads backwards; its states come after those of the first, which makes 2 * units.
    use_bias: False leaves out the bias. initializer, recurrent_initializer: where the weights start.
    activation: `tanh`, `relu` or `sigmoid`. A second input, (batch, units), is the initial state.
    """

    activation: str = "tanh"

    kind = "RNN"
    gates = 1

    def check(self) -> None:
        super().check()
        one_of("activation", self.activation, tuple(_ACTIVATIONS))

    def _attributes(self) -> dict[str, Any]:
        return {"activations": (_ACTIVATIONS[self.activation],) * (1 + self.bidirectional)}


@config
class LSTM(_Recurrent):
    """The long short-term memory layer, G = 4, gates input, output, forget, cell. Fields and inputs are those of RNN.

    It has two states, h and c: both or none are given as inputs, and `return_state` gives both.
    forget_bias: where the bias of the forget gate starts; the others are 0. Source: Hochreiter and Schmidhuber, 1997;
    Jozefowicz and others, 2015, for the bias.
    """

    forget_bias: float = 1.0

    kind = "LSTM"
    gates = 4
    states = 2

    def _bias(self) -> Initializer:
        return GateBias(gates=4, gate=2, value=self.forget_bias)


@config
class GRU(_Recurrent):
    """The gated recurrent unit, G = 3, gates update, reset, hidden. Fields and inputs are those of RNN.

    reset_after: apply the reset gate to the state's product, as PyTorch, cuDNN and Keras do, instead of to the state.
    Source: Cho and others, 2014.
    """

    reset_after: bool = True

    kind = "GRU"
    gates = 3

    def _attributes(self) -> dict[str, Any]:
        return {"linear_before_reset": int(self.reset_after)}


@config
class GateBias(Initializer):
    """Bias [directions, 2 * gates * units]: `value` for one gate's bias of the input, 0 elsewhere."""

    gates: int
    gate: int
    value: float

    def __call__(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        bias = np.zeros((shape[0], 2, self.gates, shape[1] // (2 * self.gates)), np.float32)
        bias[:, 0, self.gate] = self.value
        return bias.reshape(tuple(shape))


_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}

SimpleRNN = RNN
"""Keras's name of it."""
