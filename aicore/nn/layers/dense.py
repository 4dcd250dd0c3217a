"""Dense and embedding layers: what a weight matrix does to features."""

from __future__ import annotations

from typing import Any

from aicore.ir import Value
from aicore.nn._config import config
from aicore.nn.initializers import Initializer, initializer
from aicore.nn.layer import Layer
from aicore.nn.layers._fields import known_dim, need_floats, positive, require
from aicore.nn.layers.activations import ActivationLike, activated, activation
from aicore.nn.scope import Scope


@config
class Dense(Layer):
    """activation(x @ transpose(weight) + bias) over the last axis: (batch, ..., features) -> (batch, ..., units).

    Parameters: weight [units, features], as PyTorch's Linear; bias [units].

    units: size of the output.
    activation: a name of `ACTIVATIONS`, a layer, or None.
    initializer, bias_initializer: where weight and bias start.
    use_bias: False leaves out the bias.
    """

    units: int
    activation: ActivationLike = None
    use_bias: bool = True
    initializer: Initializer | str = "he_normal"
    bias_initializer: Initializer | str = "zeros"
    name: str = ""

    def check(self) -> None:
        positive("units", self.units)
        activation(self.activation)
        initializer(self.initializer)
        initializer(self.bias_initializer)

    def build(self, scope: Scope, x: Value) -> Any:
        need_floats(x)
        require(x.rank is not None and x.rank >= 2, f"the input is {x.type}, wants (batch, ..., features)")
        features = known_dim(x, -1, "features")
        weight = scope.parameter("weight", (self.units, features), initializer(self.initializer))
        bias = scope.parameter("bias", (self.units,), initializer(self.bias_initializer)) if self.use_bias else None
        return activated(scope, self.activation, linear(scope, x, weight, bias))


@config
class Embedding(Layer):
    """Rows of a table: integers (batch, ...) -> (batch, ..., output_dim).

    Parameter: weight [input_dim, output_dim], as PyTorch's Embedding.

    input_dim: how many different integers there are: 0 to input_dim - 1. A model refuses others in its data, as PyTorch
        does. In a file of the model, and for integers that layers compute, ONNX's Gather decides: -1 is the last row.
    output_dim: length of a row.
    initializer: where the table starts.
    """

    input_dim: int
    output_dim: int
    initializer: Initializer | str = "uniform"
    name: str = ""

    def check(self) -> None:
        positive("input_dim", self.input_dim)
        positive("output_dim", self.output_dim)
        initializer(self.initializer)

    def build(self, scope: Scope, x: Value) -> Any:
        require(x.dtype in ("int32", "int64"), f"the input is {x.type}, wants int32 or int64: rows of the table")
        scope.select_rows(x, self.input_dim)
        weight = scope.parameter("weight", (self.input_dim, self.output_dim), initializer(self.initializer))
        return scope.op.Gather(weight, x, axis=0)


def linear(scope: Scope, x: Value, weight: Value, bias: Value | None) -> Value:
    """x @ transpose(weight) + bias, over the last axis of x."""
    op = scope.op
    if x.rank == 2:
        return op.Gemm(x, weight, bias, transB=1)  # type: ignore[no-any-return]
    product = op.MatMul(x, op.Transpose(weight, perm=(1, 0)))
    return product if bias is None else op.Add(product, bias)  # type: ignore[no-any-return]
