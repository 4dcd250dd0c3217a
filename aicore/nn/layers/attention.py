"""Attention over sequences, and the transformer's encoder layer."""

from __future__ import annotations

import math
from typing import Any, Literal

from aicore.ir import Value
from aicore.nn._config import config
from aicore.nn.initializers import Initializer, initializer
from aicore.nn.layer import Layer
from aicore.nn.layers._fields import above_zero, fraction, known_dim, need_floats, need_rank, positive, require
from aicore.nn.layers.activations import ActivationLike, activated, activation
from aicore.nn.layers.dense import Dense, linear
from aicore.nn.layers.normalization import LayerNormalization, RMSNormalization, dropped
from aicore.nn.scope import Scope

BY_POSITION = "blhd"
"""Axes of queries, keys and values as the projections make them: batch, position, head, feature."""


@config
class MultiHeadAttention(Layer):
    """softmax(q k' / sqrt(d) + mask) v for each head, between projections, over (batch, positions, features).

    Inputs: x for self-attention; queries and a memory, whose positions are keys and values, for cross-attention;
    or queries, keys and values. All have the same number of features, which the heads divide. The output has the shape
    of the queries.
    Parameters as in PyTorch: in_proj_weight [3 * features, features] and in_proj_bias [3 * features] (queries, keys,
    values), out_proj.weight [features, features], out_proj.bias [features].

    heads: how many.
    causal: a position sees none after itself.
    dropout: rate with which training drops what a position looks at.
    use_bias: False leaves out both biases. initializer: of the projections.
    masked: the last input is (batch, positions of the keys), and says which keys may be seen: True, or not 0. A query
        that sees none gives NaN.
    Source: Vaswani and others, 2017.
    """

    heads: int
    causal: bool = False
    dropout: float = 0.0
    use_bias: bool = True
    initializer: Initializer | str = "glorot_uniform"
    masked: bool = False
    name: str = ""

    def check(self) -> None:
        positive("heads", self.heads)
        fraction("dropout", self.dropout)
        initializer(self.initializer)

    def build(self, scope: Scope, *inputs: Value) -> Any:
        require(inputs, "no inputs")
        return self._build(scope, inputs[:-1], inputs[-1]) if self.masked else self._build(scope, inputs, None)

    def _build(self, scope: Scope, inputs: tuple[Value, ...], mask: Value | None) -> Any:
        require(len(inputs) in (1, 2, 3), f"{len(inputs)} inputs of features, wants 1 (self-attention), 2 or 3")
        queries, keys, values = inputs[0], inputs[-1] if len(inputs) < 3 else inputs[1], inputs[-1]
        features = self._features(inputs)
        weight = scope.parameter("in_proj_weight", (3 * features, features), initializer(self.initializer))
        bias = scope.parameter("in_proj_bias", (3 * features,), initializer("zeros")) if self.use_bias else None
        q, k, v = _projected(scope, (queries, keys, values), weight, bias, features)
        hidden = self._hidden(scope, q, k, mask)
        seen = self._attended(scope, hidden, *(self._heads_of(scope, part, features) for part in (q, k, v)))
        joined = scope.op.Reshape(seen, shape=(0, 0, features))
        out = Dense(features, use_bias=self.use_bias, initializer=self.initializer, name="out_proj")
        return scope.call(out, joined)

    def _features(self, inputs: tuple[Value, ...]) -> int:
        for x in inputs:
            need_floats(x)
            need_rank(x, 3, "batch, positions, features")
        found = [known_dim(x, 2, "features") for x in inputs]
        require(len(set(found)) == 1, f"queries, keys and values have {found} features, wants equal ones")
        require(found[0] % self.heads == 0, f"{found[0]} features do not divide into {self.heads} heads")
        return found[0]

    def _heads_of(self, scope: Scope, x: Value, features: int) -> Value:
        return scope.op.Reshape(x, shape=(0, 0, self.heads, features // self.heads))  # type: ignore[no-any-return]

    def _hidden(self, scope: Scope, q: Value, k: Value, mask: Value | None) -> Value | None:
        """What is added to the scores: -infinity for keys that may not be seen, 0 for the others."""
        causal = _causal_mask(scope, q, k) if self.causal else None
        if mask is None:
            return causal
        op = scope.op
        need_rank(mask, 2, "batch, positions of the keys")
        seen = mask if mask.dtype == "bool" else op.Cast(mask, to="bool")
        padding = op.Unsqueeze(op.Where(seen, op.scalar(0.0, q), op.scalar(-math.inf, q)), axes=(1, 2))
        return padding if causal is None else op.Add(padding, causal)  # type: ignore[no-any-return]

    def _attended(self, scope: Scope, hidden: Value | None, q: Value, k: Value, v: Value) -> Value:
        """(batch, positions, heads, features of one) of all three -> the same of the result."""
        op = scope.op
        scale = 1 / math.sqrt(known_dim(q, 3, "features"))
        if not (scope.training and self.dropout):
            layouts = dict.fromkeys(("q_layout", "k_layout", "v_layout", "y_layout"), BY_POSITION)
            return op.DotProductAttention(q, k, v, hidden, scale=scale, **layouts)  # type: ignore[no-any-return]
        q, v = op.Transpose(q, perm=(0, 2, 1, 3)), op.Transpose(v, perm=(0, 2, 1, 3))
        scores = op.Mul(op.MatMul(q, op.Transpose(k, perm=(0, 2, 3, 1))), op.scalar(scale, q))
        scores = scores if hidden is None else op.Add(scores, hidden)
        weights = dropped(scope, op.Softmax(scores, axis=-1), self.dropout)
        return op.Transpose(op.MatMul(weights, v), perm=(0, 2, 1, 3))  # type: ignore[no-any-return]


@config
class TransformerEncoderLayer(Layer):
    """Self-attention and a network of two dense layers, each with a residual and a normalisation.

    (batch, positions, features) -> the same. A second input says which positions may be seen, (batch, positions), as
    in MultiHeadAttention with `masked`. Names of parameters: `self_attn`, `linear1`, `linear2`, `norm1`, `norm2`,
    as in PyTorch, followed by those of MultiHeadAttention, Dense and LayerNormalization.

    heads: heads of the attention. hidden: units of the first dense layer.
    dropout: rate with which training drops in the attention, in the hidden layer and before both sums.
    activation: of the first dense layer.
    norm_first: normalise what goes into each part (pre-norm) instead of what comes out of each sum.
    normalization: `layer` or `rms`. epsilon: of the normalisations. causal: as in MultiHeadAttention.
    Source: Vaswani and others, 2017; Xiong and others, 2020, for pre-norm.
    """

    heads: int
    hidden: int
    dropout: float = 0.1
    activation: ActivationLike = "relu"
    norm_first: bool = False
    normalization: Literal["layer", "rms"] = "layer"
    epsilon: float = 1e-5
    causal: bool = False
    name: str = ""

    def check(self) -> None:
        positive("heads", self.heads)
        positive("hidden", self.hidden)
        fraction("dropout", self.dropout)
        activation(self.activation)
        above_zero("epsilon", self.epsilon)
        known = self.normalization in ("layer", "rms")
        require(known, f"normalization is {self.normalization!r}, wants 'layer' or 'rms'")

    def build(self, scope: Scope, x: Value, *mask: Value) -> Any:
        op = scope.op
        if self.norm_first:
            x = op.Add(x, self._attention(scope, self._normalized(scope, x, "norm1"), *mask))
            return op.Add(x, self._network(scope, self._normalized(scope, x, "norm2")))
        x = self._normalized(scope, op.Add(x, self._attention(scope, x, *mask)), "norm1")
        return self._normalized(scope, op.Add(x, self._network(scope, x)), "norm2")

    def _attention(self, scope: Scope, x: Value, *mask: Value) -> Value:
        layer = MultiHeadAttention(
            self.heads, causal=self.causal, dropout=self.dropout, masked=bool(mask), name="self_attn"
        )
        return dropped(scope, scope.call(layer, x, *mask), self.dropout)

    def _network(self, scope: Scope, x: Value) -> Value:
        features = known_dim(x, 2, "features")
        hidden = activated(scope, self.activation, scope.call(Dense(self.hidden, name="linear1"), x))
        y = scope.call(Dense(features, name="linear2"), dropped(scope, hidden, self.dropout))
        return dropped(scope, y, self.dropout)

    def _normalized(self, scope: Scope, x: Value, name: str) -> Value:
        kind = LayerNormalization if self.normalization == "layer" else RMSNormalization
        return scope.call(kind(epsilon=self.epsilon, name=name), x)  # type: ignore[no-any-return]


def _projected(
    scope: Scope, inputs: tuple[Value, Value, Value], weight: Value, bias: Value | None, features: int
) -> tuple[Value, ...]:
    """Queries, keys and values: by one product where all three come from one input."""
    op = scope.op
    if len(set(inputs)) == 1:
        packed = linear(scope, inputs[0], weight, bias)
        return tuple(op.Split(packed, axis=2, split=(features,) * 3))
    weights = op.Split(weight, axis=0, split=(features,) * 3)
    biases = (None,) * 3 if bias is None else op.Split(bias, axis=0, split=(features,) * 3)
    return tuple(linear(scope, x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True))


def _causal_mask(scope: Scope, q: Value, k: Value) -> Value:
    """(positions of q, positions of k): -infinity where the key comes later, 0 elsewhere."""
    op = scope.op
    lengths = op.Concat(*(op.Slice(op.Shape(x), starts=(1,), ends=(2,)) for x in (q, k)), axis=0)
    return op.Trilu(op.Expand(op.scalar(-math.inf, q), lengths), k=1, upper=1)  # type: ignore[no-any-return]
