"""Data that users bring: of other types, shapes and counts than the model has seen, or none at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore import nn
from aicore.errors import AicoreError, ConfigError, InputError

X = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
Y = X[:, :1] - X[:, 1:2]


def small_model(**options: Any) -> nn.Model:
    return nn.Model(nn.Dense(1), target="cpu", **options).compile("sgd", "mean_squared_error")


def weights_after(x: Any, y: Any, **options: Any) -> Any:
    model = small_model(inputs=(3,))
    model.fit(x, y, verbose=False, **options)
    return model.state_dict()["weight"]


@pytest.mark.parametrize(
    "x",
    [
        X.astype(np.float64),
        X.astype(">f4"),
        np.asfortranarray(X),
        X[::-1][::-1],
        np.repeat(X, 2, axis=0)[::2],
        X.tolist(),
    ],
    ids=["float64", "big-endian", "Fortran", "reversed", "strided", "list"],
)
def test_other_layouts_of_the_same_numbers_train_the_same(x: Any) -> None:
    np.testing.assert_array_equal(weights_after(x, Y), weights_after(X, Y))


def test_a_vector_of_targets_is_a_column() -> None:
    np.testing.assert_array_equal(weights_after(X, Y[:, 0]), weights_after(X, Y))


def test_integers_and_truth_values_are_numbers_where_inputs_are_told() -> None:
    x = np.arange(30).reshape(10, 3) % 2
    np.testing.assert_array_equal(weights_after(x, Y), weights_after(x.astype(np.float32), Y))
    np.testing.assert_array_equal(weights_after(x == 1, Y), weights_after(x.astype(np.float32), Y))


def test_counts_of_numpy_are_counts() -> None:
    found = weights_after(X, Y, epochs=np.int64(2), batch_size=np.int32(4))
    np.testing.assert_array_equal(found, weights_after(X, Y, epochs=2, batch_size=4))
    seed: Any = np.int64(3)
    seeded = nn.Model(nn.Dense(1), (3,), seed=seed).state_dict()
    np.testing.assert_array_equal(seeded["weight"], nn.Model(nn.Dense(1), (3,), seed=3).state_dict()["weight"])


def test_targets_that_were_integers_do_not_round_those_that_are_not() -> None:
    model = small_model()
    model.train_on_batch(X, (Y > 0).astype(np.int64))
    model.train_on_batch(X, np.ones((10, 1)))  # whole numbers are integers, whatever their type
    for y in (np.full((10, 1), 0.5), np.full((10, 1), np.nan), np.full((10, 1), 2.0**70)):
        with pytest.raises(InputError, match="'target' has float64 numbers that int64 does not have"):
            model.train_on_batch(X, y)


def test_rows_of_a_table_are_not_rounded() -> None:
    rows = np.array([[0, 1], [2, 3]])
    model = nn.Model(nn.Sequential(nn.Embedding(5, 2), nn.Flatten()), target="cpu")
    model.predict(rows)
    with pytest.raises(InputError, match="'input' has float64 numbers that int64 does not have"):
        model.predict(rows + 0.25)


EMPTY = (X[:0], Y[:0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda m: m.fit(*EMPTY, verbose=False), "there are no samples"),
        (lambda m: m.train_on_batch(*EMPTY), "there are no samples"),
        (lambda m: m.evaluate(*EMPTY), "there are no samples"),
        (lambda m: m.predict(EMPTY[0]), "there are no samples"),
        (lambda m: m.fit(X, Y, validation_data=EMPTY, verbose=False), "there are no samples"),
        (
            lambda m: m.fit(X, Y, validation_data=(X, Y, Y), verbose=False),
            "validation_data is a tuple of 3, wants a pair",
        ),
        (lambda m: m.fit(X, Y, validation_data=X[:2], verbose=False), "validation_data is a ndarray, wants a pair"),
        (lambda m: m.fit([X, X], verbose=False), "a batch is a ndarray, wants a pair"),
        (lambda m: m.fit([(X, Y), (X,)], verbose=False), "a batch is a tuple of 1, wants a pair"),
        (lambda m: m.fit([], verbose=False, resume="nowhere.safetensors"), "there is no batch"),
        (lambda m: m.fit([[1, 2], [3]], Y[:2], verbose=False), "'input' is no array"),
        (lambda m: m.predict(X, batch_size=0), "batch_size=0 is no whole number from 1"),
        (lambda m: m.predict(X, batch_size=-1), "batch_size=-1 is no whole number from 1"),
        (lambda m: m.evaluate(X, Y, batch_size=2.0), "batch_size=2.0 is no whole number from 1"),
        (lambda m: m.fit(X, Y, epochs=True), "epochs=True is no whole number from 1"),
    ],
)
def test_what_is_no_data_is_told(wrong: Callable[[nn.Model], Any], message: str) -> None:
    with pytest.raises((InputError, ConfigError), match=message):
        wrong(small_model())


def test_a_generator_which_would_lose_its_first_batch_is_refused() -> None:
    with pytest.raises(InputError, match="a generator gives its batches once"):
        small_model().fit(((X, Y) for _ in range(3)), verbose=False)


def test_batches_that_are_not_uniform_count_by_their_samples() -> None:
    model = small_model(inputs=(3,)).compile("sgd", "mean_squared_error", ["mae"])
    whole, parts = model.evaluate(X, Y, batch_size=10), model.evaluate(X, Y, batch_size=7)
    for name in whole:
        assert parts[name] == pytest.approx(whole[name], rel=1e-6)


@pytest.mark.parametrize("inputs", [3.5, "3", (2.0,), (-1,)])
def test_shapes_of_inputs_are_whole_numbers(inputs: Any) -> None:
    with pytest.raises(ConfigError, match="is no shape of one sample"):
        nn.Model(nn.Dense(1), inputs)


@pytest.mark.parametrize(
    "value", [[[1, 2], [3]], np.zeros((1, 3), complex), np.zeros((1, 3), [("a", "f4")]), "weights", np.zeros(3)]
)
def test_a_state_dict_of_no_such_numbers_changes_nothing(value: Any) -> None:
    model = small_model(inputs=(3,))
    before = model.state_dict()
    with pytest.raises(AicoreError, match="'weight'"):
        model.load_state_dict({"bias": [5.0], "weight": value})
    np.testing.assert_array_equal(model.state_dict()["bias"], before["bias"])


def test_a_model_is_built_once_for_one_shape() -> None:
    model = small_model(inputs=(3,)).build().build((3,))
    with pytest.raises(ConfigError, match=r"the model is built for 'input'.*got 'input'"):
        model.build((4,))
    with pytest.raises(ConfigError, match="names no input"):
        nn.Model(nn.Dense(1), {})


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf"), 1e39, "0.1", None, nn.schedules.Constant(0.1)])
def test_a_rate_that_is_none_is_told_and_changes_nothing(rate: Any) -> None:
    model = small_model()
    model.fit(X, Y, verbose=False)
    before = model.learning_rate
    with pytest.raises(ConfigError, match="learning rate"):
        model.learning_rate = rate
    assert model.learning_rate == before
