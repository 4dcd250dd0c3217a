"""Gradients of RNN, GRU and LSTM: one op walks back over the steps, and products over all steps do the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim
from aicore.ir.op import Op, Sample, Types, as_tuple, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import ensure, need_rank, same_dim, same_dtype
from aicore.ops.recurrent import GRU, LSTM, RNN, Recurrent


@op_class
class RecurrentGrad(Op):
    """What goes back through the steps of a recurrent layer: the sequential part of its gradient.

    (r, gates, hidden, last, sequence_lens?, p?, y_grad?, h_grad?, c_grad?) -> (gates_grad, initial_h_grad, ...): r,
    sequence_lens and p are operands of `layer`, the next its residuals (see Recurrent; None where they are not read:
    hidden is by a GRU, last by an LSTM and by a GRU with linear_before_reset), and the last the gradients of its
    outputs, None for zero. gates_grad is like gates: the gradient of what goes into the activations, 0 beyond a
    sequence's end. Then the gradients of the initial states, and of
    an LSTM with `peepholes`: that of p for each sequence, (D, N, 3*H);
    a GRU with linear_before_reset: that of h r' + b of the hidden gate, like last.

    With a the gates before their activation, f the activation, and primes for derivatives, a step of an LSTM is
        do = dh last(c) f'(a_o);  dc += dh o last'(c) + do p_o;  di = dc g f'(a_i);  df = dc c_before f'(a_f);
        dg = dc i g'(a_g);  dc_before = dc f + di p_i + df p_f;  dh_before = (di, do, df, dg) r
    and so on for the others. What `clip` changed has no derivative; on its bounds there is one. On a kink, Relu,
    ThresholdedRelu and HardSigmoid have 0, LeakyRelu and Elu alpha. Source: Hochreiter and Schmidhuber, 1997; the
    formulas of ONNX.
    """

    layer: Recurrent
    peepholes: bool = False

    @property
    def is_linear_gru(self) -> bool:
        return isinstance(self.layer, GRU) and bool(self.layer.linear_before_reset)

    def n_outputs(self) -> int:
        return 1 + self.layer.states + int(self.peepholes) + int(self.is_linear_gru)

    def infer(
        self,
        r: Value,
        gates: Value,
        hidden: Value | None = None,
        last: Value | None = None,
        sequence_lens: Value | None = None,
        p: Value | None = None,
        y_grad: Value | None = None,
        h_grad: Value | None = None,
        c_grad: Value | None = None,
    ) -> Types:
        layer = self.layer
        layer.checked(r)
        ensure(layer.activations, f"the layer's activations are not settled: {layer!r}")
        same_dtype(r, gates, hidden, last, p, y_grad, h_grad, c_grad)
        need_rank(r, 3)
        need_rank(gates, 4)
        ensure(self.peepholes == (p is not None), "peepholes tells whether there is p")
        ensure(not self.peepholes or isinstance(layer, LSTM), "peepholes are those of an LSTM")
        ensure(hidden is not None or not isinstance(layer, GRU), "the gradient of a GRU reads hidden")
        needs_last = isinstance(layer, LSTM) or self.is_linear_gru
        ensure(last is not None or not needs_last, "this layer's gradient reads its last residual")
        ensure(c_grad is None or layer.states > 1, "the layer has no cell state")
        ensure(any(g is not None for g in (y_grad, h_grad, c_grad)), "there is no gradient to take back")
        if r.shape is None or gates.shape is None:
            return tuple(TensorType(r.dtype, None) for _ in range(self.n_outputs()))
        return self._types(gates.shape, r.shape[2], (r, hidden, last, p, y_grad, h_grad, c_grad))

    def _types(self, gates: Sequence[Dim], hidden: Dim, operands: Sequence[Value | None]) -> Types:
        layer = self.layer
        count, first, second, width = gates
        ensure(same_dim(width, layer.gates * hidden), f"gates have {width} numbers, wants {layer.gates * hidden}")
        ensure(same_dim(count, layer.directions), f"gates have {count} directions, wants {layer.directions}")
        batch, steps = (first, second) if layer.layout else (second, first)
        state = (batch, count, hidden) if layer.layout else (count, batch, hidden)
        like_y = (batch, steps, count, hidden) if layer.layout else (steps, count, batch, hidden)
        row = (count, first, second, hidden)
        wanted = ((count, width, hidden), row, row, (count, 3 * hidden), like_y, state, state)
        names = ("r", "hidden", "last", "p", "y_grad", "h_grad", "c_grad")
        for name, value, shape in zip(names, operands, wanted, strict=True):
            _need_shape(name, value, shape)
        shapes: list[tuple[Dim, ...]] = [tuple(gates), *[state] * layer.states]
        if self.peepholes:
            shapes.append((count, batch, 3 * hidden))
        if self.is_linear_gru:
            shapes.append(row)
        return tuple(TensorType(operands[0].dtype, shape) for shape in shapes)  # type: ignore[union-attr]

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        types = as_tuple(self.infer(*inputs))  # type: ignore[arg-type]  # r and gates are always there
        r = inputs[0]
        hidden = r.shape[2] if r is not None and r.shape is not None else 0
        return 2 * types[0].size * hidden, moved_bytes(types, inputs)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        """Residuals need not be those of a forward pass: any numbers have a gradient."""
        for layer in _layers():
            yield _sample(rng, layer, f"{type(layer).__name__}, {layer.direction}, layout {layer.layout}")
            yield _sample(rng, layer, f"{type(layer).__name__}, all operands", full=True)
        for kind in (RNN, GRU, LSTM):
            count = len(kind.default_activations)
            for name in (
                "Relu",
                "Affine",
                "LeakyRelu",
                "ThresholdedRelu",
                "Elu",
                "HardSigmoid",
                "Softsign",
                "Softplus",
            ):
                layer = kind(activations=(name,) * count, clip=1.5).checked()
                yield _sample(rng, layer, f"{kind.__name__} of {name}, clipped", full=True)
            alpha, beta = (0.8,) * count, (1.3,) * count
            layer = kind(activations=("ScaledTanh",) * count, activation_alpha=alpha, activation_beta=beta).checked()
            yield _sample(rng, layer, f"{kind.__name__} of ScaledTanh")


def gradients_of_layer(
    op: Builder,
    layer: Recurrent,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value],
    grads: Sequence[Value | None],
) -> Sequence[Value | None]:
    """Gradients of a layer's operands; `outputs` has the residuals.

    Raises UnsupportedError where the number of hidden units is not known, and for gradients of residuals.
    """
    count = 1 + layer.states
    if any(gradient is not None for gradient in grads[count:]):
        raise UnsupportedError(f"{type(layer).__name__} has no gradient of its residuals")
    hidden_size = layer.hidden_size
    if not hidden_size:
        raise UnsupportedError(f"the gradient of {type(layer).__name__} wants a number of hidden units that is known")
    padded: list[Any] = [*inputs, *[None] * (8 - len(inputs))]
    x, w, r, b, lengths, initial_h, initial_c, p = padded
    gates, hidden, *others = outputs[count:]
    is_gru = isinstance(layer, GRU)
    plain: Recurrent = replace(layer, residuals=False)  # type: ignore[type-var]
    walk = RecurrentGrad(plain, peepholes=p is not None)
    last = others[-1] if isinstance(layer, LSTM) or walk.is_linear_gru else None
    found = op.apply(walk, r, gates, hidden if is_gru else None, last, lengths, p, *grads[:count])
    states, further = found[1:count], found[count:]

    rows = _Rows(op, layer.directions)
    of_gates = rows.flat(found[0], layer.gates * hidden_size)
    into_r = of_gates
    if walk.is_linear_gru:
        into_r = op.Concat(rows.columns(of_gates, 0, 2 * hidden_size), rows.flat(further[0], hidden_size), axis=-1)
    states_of_rows = rows.flat(hidden, hidden_size)
    if is_gru and not walk.is_linear_gru:
        squashed = rows.weights(rows.columns(of_gates, 0, 2 * hidden_size), states_of_rows)
        scaled = rows.flat(others[-1], hidden_size)
        r_grad = op.Concat(squashed, rows.weights(rows.columns(of_gates, 2 * hidden_size, None), scaled), axis=1)
    else:
        r_grad = rows.weights(into_r, states_of_rows)
    return (
        rows.back(of_gates, w, x),
        rows.weights(of_gates, op.Flatten(x, axis=2)),
        r_grad,
        None if b is None else op.Concat(rows.sums(of_gates), rows.sums(into_r), axis=1),
        None,
        None if initial_h is None else states[0],
        None if initial_c is None else states[1],
        None if p is None else op.ReduceSum(further[0], axes=(1,), keepdims=0),
    )


class _Rows:
    """Products over all steps and sequences, whose rows are those of x. One direction spares the batch of products."""

    def __init__(self, op: Builder, directions: int) -> None:
        self._op, self._directions = op, directions

    def flat(self, value: Value, width: int) -> Value:
        """(D, A, B, width) as (A * B, width), or for two directions as (2, A * B, width)."""
        shape = (-1, width) if self._directions == 1 else (self._directions, -1, width)
        return self._op.Reshape(value, shape=shape)  # type: ignore[no-any-return]

    def columns(self, rows: Value, start: int, end: int | None) -> Value:
        ends = (sys.maxsize if end is None else end,)
        return self._op.Slice(rows, starts=(start,), ends=ends, axes=(-1,))  # type: ignore[no-any-return]

    def weights(self, gradient: Value, operand: Value) -> Value:
        """(D, width, I): what the weights get that made rows of `width` out of the operand's rows of I."""
        op = self._op
        if self._directions == 1:
            return op.Unsqueeze(op.Gemm(gradient, operand, transA=1), axes=(0,))  # type: ignore[no-any-return]
        return op.MatMul(op.Transpose(gradient, perm=(0, 2, 1)), operand)  # type: ignore[no-any-return]

    def sums(self, gradient: Value) -> Value:
        """(D, width): what biases get."""
        if self._directions == 1:
            return self._op.ReduceSum(gradient, axes=(0,), keepdims=1)  # type: ignore[no-any-return]
        return self._op.ReduceSum(gradient, axes=(1,), keepdims=0)  # type: ignore[no-any-return]

    def back(self, gradient: Value, w: Value, x: Value) -> Value:
        """Like x: what its rows get through the weights w."""
        op = self._op
        if self._directions == 1:
            product = op.Gemm(gradient, op.Squeeze(w, axes=(0,)))
        else:
            product = op.ReduceSum(op.MatMul(gradient, w), axes=(0,), keepdims=0)
        return op.Reshape(product, op.Shape(x))  # type: ignore[no-any-return]


def _need_shape(name: str, value: Value | None, wanted: Sequence[Dim]) -> None:
    if value is None or value.shape is None:
        return
    need_rank(value, len(wanted))
    fits = all(same_dim(a, b) for a, b in zip(value.shape, wanted, strict=True))
    ensure(fits, f"{name} %{value.name} has shape {value.shape}, wants {tuple(wanted)}")


def _layers() -> Iterable[Recurrent]:
    yield RNN().checked()
    yield LSTM().checked()
    yield GRU().checked()
    yield GRU(linear_before_reset=1).checked()
    yield RNN(direction="bidirectional", layout=1, activations=("Sigmoid", "Tanh")).checked()
    yield LSTM(direction="bidirectional").checked()
    yield LSTM(direction="reverse", layout=1, input_forget=1).checked()
    yield GRU(direction="bidirectional", layout=1).checked()
    yield GRU(direction="reverse", linear_before_reset=1, layout=1).checked()


def _sample(rng: np.random.Generator, layer: Recurrent, note: str, full: bool = False) -> Sample:
    """4 steps, 3 sequences, 3 hidden units; with `full`, every optional operand is there."""
    steps, batch, hidden, count = 4, 3, 3, layer.directions
    rows = (count, batch, steps) if layer.layout else (count, steps, batch)
    state = (batch, count, hidden) if layer.layout else (count, batch, hidden)
    like_y = (batch, steps, count, hidden) if layer.layout else (steps, count, batch, hidden)
    is_lstm, is_gru = isinstance(layer, LSTM), isinstance(layer, GRU)
    peepholes = full and is_lstm

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape).astype(np.float32)

    op = RecurrentGrad(layer, peepholes)
    has_last = is_lstm or op.is_linear_gru
    operands = (
        normal(count, layer.gates * hidden, hidden) / 2,
        normal(*rows, layer.gates * hidden),
        normal(*rows, hidden) if is_gru else None,
        normal(*rows, hidden) if has_last else None,
        np.array([4, 2, 0], np.int32) if full else None,
        normal(count, 3 * hidden) if peepholes else None,
        normal(*like_y),
        normal(*state) if full else None,
        normal(*state) if full and is_lstm else None,
    )
    return Sample(op, operands, note=note)
