"""Recurrent layers: RNN, LSTM and GRU over whole sequences, with every ONNX attribute."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import ensure, merge_dim, need_rank, same_dim, same_dtype
from aicore.records import dataclass

REQUIRED = math.nan
"""A parameter that the ONNX text gives no default."""

ACTIVATION_DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "Relu": (None, None),
    "Tanh": (None, None),
    "Sigmoid": (None, None),
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01, None),
    "ThresholdedRelu": (1.0, None),
    "ScaledTanh": (REQUIRED, REQUIRED),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0, None),
    "Softsign": (None, None),
    "Softplus": (None, None),
}
"""Each activation's alpha and beta when the layer gives none; None where the activation has no such parameter."""

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}

R = TypeVar("R", bound="Recurrent")


@dataclass(frozen=True)
class Activated:
    """An activation of a gate with its parameters settled."""

    name: str
    alpha: float | None
    beta: float | None


class Recurrent(Op):
    """(x, w, r, b?, sequence_lens?, initial_h?, ...) -> (y, y_h, ...).

    With T steps, N sequences, I features, H hidden units, D directions and G gates:
    x (T, N, I), w (D, G*H, I), r (D, G*H, H), b (D, 2*G*H), sequence_lens (N,) int32, initial_h (D, N, H);
    y (T, D, N, H), y_h (D, N, H). With `layout` 1, x (N, T, I), initial_h (N, D, H), y (N, T, D, H), y_h (N, D, H).

    A sequence shorter than T gives zeros in y after its end, and y_h is the state at its last step; one of length 0
    keeps its initial state. `clip` bounds what goes into every activation, so that of an LSTM's cell state into its
    last activation, but not the cell state itself.
    `activation_alpha` and `activation_beta` are consumed in order by those activations that have such a parameter.

    residuals: also give what the gradient reads, for each row of x, with A and B the first two dims of x:
        gates (D, A, B, G*H), what goes into the activations before it is clipped; hidden (D, A, B, H), the state before
        the step; and what the layer names. Beyond a sequence's end they are what the step would make of the last state.
    """

    gates: ClassVar[int]
    default_activations: ClassVar[tuple[str, ...]]
    states: ClassVar[int] = 1
    """How many states are carried from step to step, and are outputs beside y."""
    kept: ClassVar[int] = 2
    """How many residuals there are."""

    activation_alpha: tuple[float, ...]
    activation_beta: tuple[float, ...]
    activations: tuple[str, ...]
    clip: float | None
    direction: str
    hidden_size: int
    layout: int
    residuals: bool

    def n_outputs(self) -> int:
        return 1 + self.states + (self.kept if self.residuals else 0)

    @property
    def directions(self) -> int:
        return DIRECTIONS[self.direction]

    def settled_activations(self) -> tuple[Activated, ...]:
        """The activations of all gates, direction after direction, with their parameters."""
        alphas, betas = list(self.activation_alpha), list(self.activation_beta)
        found = []
        for name in self.activations:
            alpha, beta = ACTIVATION_DEFAULTS[name]
            if alpha is not None and alphas:
                alpha = alphas.pop(0)
            if beta is not None and betas:
                beta = betas.pop(0)
            missing = alpha != alpha or beta != beta
            ensure(not missing, f"activation {name} has no default alpha and beta: give activation_alpha and _beta")
            found.append(Activated(name, alpha, beta))
        unused = (*alphas, *betas)
        ensure(not unused, f"activation_alpha and activation_beta have {len(unused)} entries that no activation takes")
        return tuple(found)

    def checked(self: R, r: Value | None = None) -> R:
        """This op with activations and hidden size filled in. Raises InferenceError for fields out of range."""
        ensure(self.direction in DIRECTIONS, f"direction {self.direction!r} is none of {', '.join(DIRECTIONS)}")
        ensure(self.layout in (0, 1), f"layout {self.layout} is neither 0 nor 1")
        ensure(self.clip is None or self.clip >= 0, f"clip {self.clip} is negative")
        wanted = len(self.default_activations) * self.directions
        names = tuple(map(_canonical_name, self.activations)) or self.default_activations * self.directions
        ensure(len(names) == wanted, f"activations {names} has {len(names)} entries, wants {wanted}")
        hidden = _dim(r, 2)
        ensure(
            not self.hidden_size or hidden is None or same_dim(self.hidden_size, hidden),
            f"hidden_size {self.hidden_size} is not that of the recurrence weight, {hidden}",
        )
        size = hidden if isinstance(hidden, int) else self.hidden_size
        op: R = replace(self, activations=names, hidden_size=size)  # type: ignore[type-var]
        op.settled_activations()
        return op

    def infer_states(self, states: Sequence[Value | None], *operands: Value | None) -> Types:
        """Types of y and of the states; `operands` are (x, w, r, b, sequence_lens), `states` the initial ones."""
        x, w, r, b, lengths = operands
        ensure(x is not None and w is not None and r is not None, "x, w and r are required")
        op = self.checked(r)
        same_dtype(x, w, r, b, *states)
        for value in (x, w, r, *states):
            _need_optional_rank(value, 3)
        _need_optional_rank(b, 2)
        _need_optional_rank(lengths, 1)
        ensure(x.dtype in FLOATS, f"takes floating point, not {x.dtype}")  # type: ignore[union-attr]
        ensure(lengths is None or lengths.dtype == "int32", "sequence_lens must be int32")
        return op._types(states, *operands)

    def _types(self, states: Sequence[Value | None], *operands: Value | None) -> Types:
        x, w, r, b, lengths = operands
        steps, batch = _dim(x, self.layout), _dim(x, 1 - self.layout)
        hidden = self.hidden_size or _dim(r, 2)
        dtype = x.dtype  # type: ignore[union-attr]
        if steps is None or batch is None or hidden is None:
            return tuple(TensorType(dtype, None) for _ in range(self.n_outputs()))
        count, weights = self.directions, self.gates * hidden
        features = _dim(x, 2)
        _agree("w", w, (count, weights, features))
        _agree("r", r, (count, weights, hidden))
        _agree("b", b, (count, 2 * weights))
        _agree("sequence_lens", lengths, (batch,))
        if lengths is not None and lengths.shape is not None:
            batch = merge_dim(batch, lengths.shape[0])
        state = (batch, count, hidden) if self.layout else (count, batch, hidden)
        for value in states:
            _agree("an initial state", value, state)
        y = (batch, steps, count, hidden) if self.layout else (steps, count, batch, hidden)
        rows = (batch, steps) if self.layout else (steps, batch)
        kept = [(count, *rows, width) for width in (self.gates * hidden, *[hidden] * (self.kept - 1))]
        shapes = (y, *[state] * self.states, *(kept if self.residuals else ()))
        return tuple(TensorType(dtype, shape) for shape in shapes)

    def with_residuals(self: R, *inputs: Value | None) -> R:
        return replace(self, residuals=True)  # type: ignore[type-var]

    def grad(
        self, op: Builder, inputs: Sequence[Value | None], outputs: Sequence[Value], grads: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        from aicore.ops.recurrent_grad import gradients_of_layer  # which knows the layers

        return gradients_of_layer(op, self, inputs, outputs, grads)

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        types = self.infer(*inputs)
        x, w, r = inputs[:3]
        steps_and_batch = math.prod(x.shape[:2]) if x is not None and x.shape is not None else 0
        products = sum((v.type.size for v in (w, r) if v is not None), start=0)
        return 2 * steps_and_batch * products, moved_bytes(types, inputs)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        """Cases that all three layers share; each gives every operand and attribute a say."""
        for direction, layout in (("forward", 0), ("reverse", 0), ("bidirectional", 0), ("bidirectional", 1)):
            fields: dict[str, Any] = {"direction": direction, "layout": layout}
            yield _sample(cls, rng, f"{direction}, layout {layout}", fields)
            yield _sample(cls, rng, f"{direction}, layout {layout}, all operands", fields, full=True)
        yield _sample(cls, rng, "clip", {"clip": 0.3}, full=True)
        count = len(cls.default_activations)
        names, alphas = ("LeakyRelu", "HardSigmoid", "ScaledTanh")[:count], (0.1, 0.3, 0.9)[:count]
        betas = (0.4, 1.2)[: count - 1]
        yield _sample(
            cls,
            rng,
            "activations with alpha and beta",
            {"activations": names, "activation_alpha": alphas, "activation_beta": betas},
            full=True,
        )
        others = ("Affine", "ThresholdedRelu", "Elu", "Softsign", "Softplus", "Relu")[: 2 * count]
        yield _sample(cls, rng, "other activations", {"activations": others, "direction": "bidirectional"}, full=True)
        for direction, layout in (("forward", 0), ("reverse", 1), ("bidirectional", 0)):
            fields = {"direction": direction, "layout": layout, "residuals": True}
            yield _sample(cls, rng, f"{direction}, layout {layout}, residuals", fields, full=direction != "forward")


@op_class
class RNN(Recurrent):
    """The simple recurrent layer: h = f(x w' + h r' + b). Source: ONNX RNN-22; see Recurrent for operands."""

    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    activations: tuple[str, ...] = ()
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int = 0
    layout: int = 0
    residuals: bool = False

    gates = 1
    default_activations = ("Tanh",)

    def resolve(self, *operands: Value | None) -> RNN:
        return self.checked(*operands[2:3])

    def infer(
        self,
        x: Value,
        w: Value,
        r: Value,
        b: Value | None = None,
        sequence_lens: Value | None = None,
        initial_h: Value | None = None,
    ) -> Types:
        return self.infer_states((initial_h,), x, w, r, b, sequence_lens)


@op_class
class GRU(Recurrent):
    """The gated recurrent unit, gates in the order update, reset, hidden.

    `linear_before_reset` applies the reset gate to h r' + b instead of to h. The last residual, (D, A, B, H), is what
    the product for the hidden gate is made of: h r' + b then, or else h scaled by the reset gate.
    Source: ONNX GRU-22; see Recurrent.
    """

    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    activations: tuple[str, ...] = ()
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int = 0
    layout: int = 0
    linear_before_reset: int = 0
    residuals: bool = False

    gates = 3
    default_activations = ("Sigmoid", "Tanh")
    kept = 3

    def resolve(self, *operands: Value | None) -> GRU:
        return self.checked(*operands[2:3])

    def infer(
        self,
        x: Value,
        w: Value,
        r: Value,
        b: Value | None = None,
        sequence_lens: Value | None = None,
        initial_h: Value | None = None,
    ) -> Types:
        return self.infer_states((initial_h,), x, w, r, b, sequence_lens)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from super().samples(rng)
        fields = {"linear_before_reset": 1, "direction": "bidirectional"}
        yield _sample(cls, rng, "linear_before_reset", fields)
        yield _sample(cls, rng, "linear_before_reset, all operands", fields, full=True)
        yield _sample(cls, rng, "linear_before_reset, residuals", {**fields, "residuals": True}, full=True)


@op_class
class LSTM(Recurrent):
    """The long short-term memory layer, gates in the order input, output, forget, cell.

    More operands: initial_c, like initial_h, and the peepholes p (D, 3*H) of input, output and forget gate. More
    outputs: y_c, like y_h. `input_forget` makes the forget gate 1 - input gate. The last residual, (D, A, B, H), is the
    cell state before the step, and gates include what peepholes add. Source: ONNX LSTM-22; see Recurrent.
    """

    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    activations: tuple[str, ...] = ()
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int = 0
    input_forget: int = 0
    layout: int = 0
    residuals: bool = False

    gates = 4
    default_activations = ("Sigmoid", "Tanh", "Tanh")
    states = 2
    kept = 3

    def resolve(self, *operands: Value | None) -> LSTM:
        return self.checked(*operands[2:3])

    def infer(
        self,
        x: Value,
        w: Value,
        r: Value,
        b: Value | None = None,
        sequence_lens: Value | None = None,
        initial_h: Value | None = None,
        initial_c: Value | None = None,
        p: Value | None = None,
    ) -> Types:
        types = self.infer_states((initial_h, initial_c), x, w, r, b, sequence_lens)
        same_dtype(x, p)
        _need_optional_rank(p, 2)
        hidden = _dim(r, 2)
        _agree("the peephole weight", p, (self.directions, None if hidden is None else 3 * hidden))
        return types

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from super().samples(rng)
        yield _sample(cls, rng, "input_forget", {"input_forget": 1})
        yield _sample(cls, rng, "input_forget, all operands", {"input_forget": 1, "clip": 0.5}, full=True)
        yield _sample(
            cls, rng, "input_forget, residuals", {"input_forget": 1, "clip": 0.5, "residuals": True}, full=True
        )


def _canonical_name(name: str) -> str:
    """ONNX writes `LeakyRelu`; exporters also write `leakyrelu`."""
    found = {known.lower(): known for known in ACTIVATION_DEFAULTS}.get(name.lower())
    ensure(found is not None, f"activation {name!r} is none of {', '.join(ACTIVATION_DEFAULTS)}")
    return str(found)


def _dim(value: Value | None, axis: int) -> Dim | None:
    if value is None or value.shape is None or axis >= len(value.shape):
        return None
    return value.shape[axis]


def _need_optional_rank(value: Value | None, rank: int) -> None:
    if value is not None:
        need_rank(value, rank)


def _agree(what: str, value: Value | None, wanted: Sequence[Dim | None]) -> None:
    if value is None or value.shape is None:
        return
    fits = all(b is None or same_dim(a, b) for a, b in zip(value.shape, wanted, strict=True))
    shown = tuple("?" if d is None else str(d) for d in wanted)
    ensure(fits, f"{what} %{value.name} has shape {value.shape}, wants ({', '.join(shown)})")


def _sample(
    cls: type[Recurrent], rng: np.random.Generator, note: str, fields: dict[str, Any], full: bool = False
) -> Sample:
    """4 steps, 3 sequences, 2 features, 3 hidden units; with `full`, every optional operand is there."""
    op = cls(**fields)
    steps, batch, features, hidden, count = 4, 3, 2, 3, op.directions
    rows = op.gates * hidden

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return (rng.standard_normal(shape) / 2).astype(np.float32)  # small: some activations have no bound

    x = normal(batch, steps, features) if op.layout else normal(steps, batch, features)
    weights = normal(count, rows, features), normal(count, rows, hidden)
    if not full:
        return Sample(op, (x, *weights), constant=(1, 2), note=note)
    lengths = np.array([4, 2, 0], np.int32)
    states = [normal(batch, count, hidden) if op.layout else normal(count, batch, hidden) for _ in range(op.states)]
    peepholes = (normal(count, 3 * hidden),) if issubclass(cls, LSTM) else ()
    operands = (x, *weights, normal(count, 2 * rows), lengths, *states, *peepholes)
    return Sample(op, operands, constant=(1, 2, 3), note=note)
