"""Layers of several inputs, of layers, and of functions; branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import ConfigError
from aicore.nn import Sequential
from aicore.nn.layers import (
    Add,
    Apply,
    BatchNormalization,
    Concatenate,
    Conditional,
    Dense,
    Dropout,
    LeakyReLU,
    Multiply,
    ReLU,
    Residual,
)
from tests.nn.built import built

RNG = np.random.default_rng(0)
A, B, C = (RNG.standard_normal((3, 4)) for _ in range(3))


def squared_exponential(op: Any, x: Any) -> Any:
    return op.Exp(op.Neg(op.Mul(x, x)))


@pytest.mark.parametrize(
    ("layer", "inputs", "expected"),
    [
        (Add(), (A, B), A + B),
        (Add(), (A, B, C), A + B + C),
        (Multiply(), (A, B, C), A * B * C),
        (Concatenate(), (A, B), np.concatenate([A, B], 1)),
        (Concatenate(1), (A, B, C), np.concatenate([A, B, C], 1)),
        (Apply(squared_exponential), (A,), np.exp(-A * A)),
    ],
)
def test_values(layer: Any, inputs: tuple[Any, ...], expected: Any) -> None:
    np.testing.assert_allclose(built(layer, *inputs, dtype="float64").run()["output"], expected, rtol=1e-12)


def test_residual() -> None:
    layer = built(Residual(Dense(4), activation="relu"), A, dtype="float64")
    assert layer.shapes == {"dense.weight": (4, 4), "dense.bias": (4,)}
    weights = {name: RNG.standard_normal(shape) for name, shape in layer.shapes.items()}
    inner = A @ weights["dense.weight"].T + weights["dense.bias"]
    np.testing.assert_allclose(layer.run(weights)["output"], np.maximum(inner + A, 0), rtol=1e-10)


def test_residual_with_shortcut() -> None:
    layer = built(Residual(Sequential(Dense(5), ReLU()), Dense(5, use_bias=False, name="short")), A, dtype="float64")
    assert list(layer.shapes) == ["sequential.dense.weight", "sequential.dense.bias", "short.weight"]
    w = {name: RNG.standard_normal(shape) for name, shape in layer.shapes.items()}
    inner = np.maximum(A @ w["sequential.dense.weight"].T + w["sequential.dense.bias"], 0)
    np.testing.assert_allclose(layer.run(w)["output"], inner + A @ w["short.weight"].T, rtol=1e-10)


def test_apply_compares_and_prints() -> None:
    assert Apply(squared_exponential) == Apply(squared_exponential)
    assert repr(Apply(squared_exponential)) == f"Apply({__name__}.squared_exponential)"
    assert repr(Apply(squared_exponential, name="bell")) == f"Apply({__name__}.squared_exponential, name='bell')"


class TestConditional:
    layer = Conditional(Dense(4, name="first"), Sequential(Dense(4), ReLU()))

    @pytest.mark.parametrize("condition", [np.array(True), np.array([False]), np.array(2.5), np.array(0, np.int64)])
    @pytest.mark.parametrize("training", [False, True])
    def test_the_condition_decides(self, condition: Any, training: bool) -> None:
        found = _built_with_condition(self.layer, condition, training)
        assert list(found.shapes) == ["first.weight", "first.bias", "sequential.dense.weight", "sequential.dense.bias"]
        w = {name: RNG.standard_normal(shape) for name, shape in found.shapes.items()}
        first = A @ w["first.weight"].T + w["first.bias"]
        other = np.maximum(A @ w["sequential.dense.weight"].T + w["sequential.dense.bias"], 0)
        expected = first if condition.any() else other
        np.testing.assert_allclose(found.run(w)["output"], expected, rtol=1e-10)

    @pytest.mark.parametrize("condition", [np.array(True), np.array(False)])
    def test_gradients_reach_the_branch_that_ran(self, condition: Any) -> None:
        found = _built_with_condition(self.layer, condition, True)
        w = {name: RNG.standard_normal(shape) for name, shape in found.shapes.items()}
        gradients = found.gradients(w)
        for name, gradient in gradients.items():
            assert (np.abs(gradient).max() > 0) == (name.startswith("first") == bool(condition))
        if condition:
            g = np.cos(A @ w["first.weight"].T + w["first.bias"])
            np.testing.assert_allclose(gradients["first.weight"], g.T @ A, rtol=1e-9)

    def test_random_layers_inside(self) -> None:
        layer = Conditional(Dropout(0.5), LeakyReLU())
        y = _built_with_condition(layer, np.array(True), True).run()["output"]
        assert set(np.unique(np.round(y / A, 6))) == {0, 2}


def _built_with_condition(layer: Any, condition: Any, training: bool) -> Any:
    from aicore.ir import TensorType, dtype_name
    from aicore.nn.trace import trace
    from tests.nn.built import Built

    types = {
        "condition": TensorType(dtype_name(condition.dtype), condition.shape),
        "x": TensorType("float64", A.shape),
    }
    return Built(trace(layer, types, training=training, dtype="float64"), (condition, A))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: built(Add(), A), "Add has 1 input, wants 2 or more"),
        (lambda: built(Multiply(), A), "Multiply has 1 input"),
        (lambda: built(Concatenate(), A), "Concatenate has 1 input"),
        (lambda: Concatenate(0), "axis is 0, wants an integer other than 0"),
        (lambda: Residual("relu"), "layer is 'relu', wants a layer"),  # type: ignore[arg-type]
        (lambda: Residual(ReLU(), "relu"), "shortcut is 'relu'"),  # type: ignore[arg-type]
        (lambda: Residual(ReLU(), activation="relo"), "'relo' is none of"),
        (lambda: built(Residual(Dense(5)), A), r"the layer gives .*,5\] and the shortcut .*,4\]"),
        (lambda: Apply(lambda op, x: x), "wants a function defined at the top of a module"),
        (lambda: Apply("relu"), "wants a function"),  # type: ignore[arg-type]
        (lambda: Conditional(ReLU(), "relu"), "otherwise is 'relu', wants a layer"),  # type: ignore[arg-type]
        (lambda: Conditional(None, ReLU()), "then is None"),  # type: ignore[arg-type]
        (
            lambda: _built_with_condition(Conditional(Dense(4), Dense(5)), np.array(True), False),
            "they must be equal",
        ),
        (
            lambda: _built_with_condition(Conditional(BatchNormalization(), ReLU()), np.array(True), True),
            "BatchNormalization updates state, which a branch cannot",
        ),
        (
            lambda: _built_with_condition(Conditional(ReLU(), ReLU()), np.array([True, False]), True),
            "wants one element",
        ),
    ],
)
def test_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()
