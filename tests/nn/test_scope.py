"""Layers of users that use their scope wrongly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from aicore import nn
from aicore.errors import AicoreError
from aicore.ir import TensorType
from aicore.nn.initializers import Ones, Zeros

X = np.ones((4, 3), np.float32)
Y = np.zeros((4, 1), np.float32)


@dataclass(frozen=True)
class Built(nn.Layer):
    how: Callable[[nn.Scope, Any], Any]
    name: str = "mine"

    def build(self, scope: nn.Scope, x: Any) -> Any:
        return self.how(scope, x)


def stepped(how: Callable[[nn.Scope, Any], Any], count: int = 1) -> dict[str, Any]:
    model = nn.Model(nn.Sequential(Built(how), nn.Dense(1)), target="cpu").compile(nn.SGD(0.1), "mean_squared_error")
    for _ in range(count):
        model.train_on_batch(X, Y)
    return model.state_dict()


def updates_a_parameter(scope: nn.Scope, x: Any) -> Any:
    weight = scope.parameter("weight", (3,), Ones())
    scope.update(weight, scope.op.Add(weight, weight))
    return scope.op.Mul(x, weight)


def updates_twice(scope: nn.Scope, x: Any) -> Any:
    count = scope.state("count", (), Zeros())
    scope.update(count, scope.op.scalar(1.0, count))
    scope.update(count, scope.op.scalar(2.0, count))
    return x


def adds_an_integer(scope: nn.Scope, x: Any) -> Any:
    scope.add_loss(scope.op.scalar(1, scope.op.Cast(x, to="int64")))
    return x


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (updates_a_parameter, "%mine.weight is a parameter, which the optimiser changes"),
        (updates_twice, "%mine.count has a next value already"),
        (adds_an_integer, "a penalty is a scalar of floating point"),
        (lambda scope, x: None, "output is NoneType"),
        (lambda scope, x: np.zeros(3), "output is ndarray"),
        (lambda scope, x: (), "there is no output"),
        (lambda scope, x: (x, x), "layer 'dense': input is tuple"),
        (lambda scope, x: scope.call("relu", x), "'relu' is no layer"),
        (lambda scope, x: scope.call(nn.Dense(2, name=3), x), "or its name is no text"),  # type: ignore[arg-type]
        (lambda scope, x: scope.call(nn.ReLU(), X), "input is ndarray"),
    ],
)
def test_wrong_use_of_a_scope_names_the_layer(how: Callable[[nn.Scope, Any], Any], message: str) -> None:
    with pytest.raises(AicoreError, match=message) as told:
        stepped(how)
    assert str(told.value).startswith(("layer 'mine", "layer 'dense'"))


def test_the_outermost_layer_gives_values_too() -> None:
    with pytest.raises(AicoreError, match="output is NoneType"):
        nn.Model(Built(lambda scope, x: None), (3,)).build()


def test_states_may_change_places() -> None:
    def swaps(scope: nn.Scope, x: Any) -> Any:
        a, b = scope.state("a", (), Zeros()), scope.state("b", (), Ones())
        scope.update(a, b)
        scope.update(b, a)
        return x

    assert [stepped(swaps, count)["mine.a"] for count in (1, 2, 3)] == [1, 0, 1]


def test_states_may_share_a_next_value_stay_and_be_constant() -> None:
    def several(scope: nn.Scope, x: Any) -> Any:
        a, b = scope.state("a", (), Zeros()), scope.state("b", (), Ones())
        stays, fixed = scope.state("stays", (), Ones()), scope.state("fixed", (), Zeros())
        total = scope.op.Add(a, b)
        scope.update(a, total)
        scope.update(b, total)
        scope.update(stays, stays)
        scope.update(fixed, scope.op.scalar(7.0, fixed))
        return x

    found = stepped(several, 3)
    assert [found[f"mine.{name}"] for name in ("a", "b", "stays", "fixed")] == [4, 4, 1, 7]


def test_penalties_add_up_and_may_have_another_type() -> None:
    """w + 0.1 (-2 w - 1) for w = 1, besides the gradient of the loss, which is 0: what follows is multiplied by 0."""

    def penalised(scope: nn.Scope, x: Any) -> Any:
        op, weight = scope.op, scope.parameter("weight", (3,), Ones())
        scope.add_loss(op.ReduceSum(op.Mul(weight, weight), keepdims=0))
        scope.add_loss(op.Cast(op.ReduceSum(op.Abs(weight), keepdims=0), to="float64"))
        return x

    np.testing.assert_allclose(stepped(penalised)["mine.weight"], [0.7] * 3, rtol=1e-6)


def test_a_branch_cannot_add_to_the_loss() -> None:
    def penalised(scope: nn.Scope, x: Any) -> Any:
        scope.add_loss(scope.op.ReduceSum(x, keepdims=0))
        return scope.call(nn.Dense(1), x)

    model = nn.Model(
        nn.Conditional(nn.Dense(1), Built(penalised)), {"choice": TensorType("bool", (1,)), "x": (3,)}, target="cpu"
    )
    with pytest.raises(AicoreError, match="Built adds to the loss, which a branch cannot"):
        model.build()
