"""Types of RNN, GRU and LSTM: attributes resolved, dims known and symbolic, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder, Op, TensorType, Value, symbol
from aicore.ops.recurrent import GRU, LSTM, RNN, Activated

LAYERS = [RNN, GRU, LSTM]


def build(op: Op, *shapes: tuple[Any, ...] | None, lengths_dtype: str = "int32") -> tuple[Op, tuple[Value, ...]]:
    builder = Builder()
    values = [
        None if shape is None else builder.input(f"x{i}", lengths_dtype if i == 4 else "float32", shape)
        for i, shape in enumerate(shapes)
    ]
    results = builder.apply(op, *values)
    return builder.nodes[-1].op, results


def weights(cls: type[Any], count: int = 1, features: int = 2, hidden: int = 3) -> tuple[tuple[int, ...], ...]:
    return (count, cls.gates * hidden, features), (count, cls.gates * hidden, hidden)


@pytest.mark.parametrize("cls", LAYERS)
def test_dims(cls: type[Any]) -> None:
    op, outputs = build(cls(), (5, 4, 2), *weights(cls))
    assert op == cls(hidden_size=3, activations=cls.default_activations)
    assert [v.shape for v in outputs] == [(5, 1, 4, 3)] + [(1, 4, 3)] * cls.states


@pytest.mark.parametrize("cls", LAYERS)
def test_dims_of_both_directions_batch_first_and_symbolic(cls: type[Any]) -> None:
    op, outputs = build(cls(direction="bidirectional", layout=1), ("N", "T", 2), *weights(cls, count=2))
    assert isinstance(op, cls)
    assert op.activations == cls.default_activations * 2
    n, t = symbol("N"), symbol("T")
    assert [v.shape for v in outputs] == [(n, t, 2, 3)] + [(n, 2, 3)] * cls.states


def test_unknown_rank() -> None:
    builder = Builder()
    x = Value("x", TensorType("float32", None))
    w, r = (builder.input(name, "float32", shape) for name, shape in zip("wr", weights(LSTM), strict=True))
    assert [v.shape for v in builder.apply(LSTM(), x, w, r)] == [None] * 3


def test_alpha_and_beta_go_in_order_to_those_that_take_them() -> None:
    op = LSTM(
        activations=("Tanh", "leakyrelu", "HardSigmoid"), activation_alpha=(0.5, 0.25), activation_beta=(0.75,)
    ).checked()
    assert op.settled_activations() == (
        Activated("Tanh", None, None),
        Activated("LeakyRelu", 0.5, None),
        Activated("HardSigmoid", 0.25, 0.75),
    )
    defaults = RNN(activations=("HardSigmoid",)).checked()
    assert defaults.settled_activations() == (Activated("HardSigmoid", 0.2, 0.5),)


def test_cost_counts_both_products_of_every_step() -> None:
    builder = Builder()
    shapes = {"x": (5, 4, 2), "w": (1, 9, 2), "r": (1, 9, 3)}
    values = [builder.input(name, "float32", shape) for name, shape in shapes.items()]
    assert GRU().cost(*values)[0] == 2 * 5 * 4 * (9 * 2 + 9 * 3)


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (RNN(direction="backward"), ((5, 4, 2), *weights(RNN)), "direction 'backward' is none of forward, reverse"),
        (RNN(layout=2), ((5, 4, 2), *weights(RNN)), "layout 2 is neither 0 nor 1"),
        (RNN(clip=-1.0), ((5, 4, 2), *weights(RNN)), "clip -1.0 is negative"),
        (RNN(hidden_size=4), ((5, 4, 2), *weights(RNN)), "hidden_size 4 is not that of the recurrence weight, 3"),
        (RNN(activations=("Tanh", "Relu")), ((5, 4, 2), *weights(RNN)), "has 2 entries, wants 1"),
        (RNN(activations=("Sine",)), ((5, 4, 2), *weights(RNN)), "activation 'Sine' is none of Relu"),
        (RNN(activation_alpha=(0.5,)), ((5, 4, 2), *weights(RNN)), "1 entries that no activation takes"),
        (RNN(activations=("ScaledTanh",)), ((5, 4, 2), *weights(RNN)), "ScaledTanh has no default alpha and beta"),
        (RNN(), ((5, 4, 2), (1, 3, 2), None, (1, 6)), "x, w and r are required"),
        (RNN(), ((5, 4), *weights(RNN)), "has rank 2, wants 3"),
        (RNN(), ((5, 4, 3), *weights(RNN)), "w %x1 has shape (1, 3, 2), wants (1, 3, 3)"),
        (RNN(), ((5, 4, 2), *weights(RNN, count=2)), "wants (1, 3, 2)"),
        (RNN(), ((5, 4, 2), *weights(RNN), (1, 5)), "b %x3 has shape (1, 5), wants (1, 6)"),
        (RNN(), ((5, 4, 2), *weights(RNN), None, (3,)), "sequence_lens %x4 has shape (3,), wants (4)"),
        (RNN(), ((5, 4, 2), *weights(RNN), None, None, (4, 1, 3)), "an initial state %x5"),
        (LSTM(), ((5, 4, 2), *weights(LSTM), None, None, None, (1, 4, 9)), "an initial state %x6"),
        (LSTM(), ((5, 4, 2), *weights(LSTM), None, None, None, None, (1, 6)), "the peephole weight %x7"),
    ],
)
def test_refusals(op: Op, shapes: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InferenceError) as caught:
        build(op, *shapes)
    assert message in str(caught.value)


def test_dtypes() -> None:
    with pytest.raises(InferenceError, match="sequence_lens must be int32"):
        build(RNN(), (5, 4, 2), *weights(RNN), None, (4,), lengths_dtype="int64")
    builder = Builder()
    operands = [
        builder.input(name, "int32", shape) for name, shape in zip("xwr", ((5, 4, 2), *weights(RNN)), strict=True)
    ]
    with pytest.raises(InferenceError, match="takes floating point, not int32"):
        builder.apply(RNN(), *operands)


@pytest.mark.parametrize("cls", LAYERS)
def test_samples_infer(cls: type[Op]) -> None:
    for sample in cls.samples(np.random.default_rng(0)):
        _, outputs = build(sample.op, *(None if a is None else a.shape for a in sample.inputs))
        assert all(v.type.is_static for v in outputs)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("cls", LAYERS)
def test_residuals_have_the_rows_of_x(cls: Any, layout: int) -> None:
    rows = (4, 5) if layout else (5, 4)
    _, outputs = build(
        cls(layout=layout, residuals=True, direction="bidirectional"), (*rows, 2), *weights(cls, count=2)
    )
    gates, hidden, *others = (v.shape for v in outputs[1 + cls.states :])
    assert gates == (2, *rows, cls.gates * 3)
    assert hidden == (2, *rows, 3)
    assert others == ([] if cls is RNN else [(2, *rows, 3)])


@pytest.mark.parametrize("cls", LAYERS)
def test_residuals_of_unknown_rank(cls: Any) -> None:
    builder = Builder()
    operands = [builder.input(n, "float32", s) for n, s in zip("xwr", (None, *weights(cls)), strict=True)]
    outputs = builder.apply(cls(residuals=True), *operands)
    assert [v.shape for v in outputs] == [None] * cls(residuals=True).n_outputs()
