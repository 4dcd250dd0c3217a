"""The estimators keep scikit-learn's rules."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from aicore import nn
from aicore.errors import ConfigError
from aicore.nn.sklearn import NetworkClassifier, NetworkRegressor


def small_data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = np.random.default_rng(0).normal(size=(40, 3))
    return x, (x[:, 0] > x[:, 1]).astype(int)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [NetworkClassifier(), NetworkRegressor()], ids=lambda one: type(one).__name__)
def test_all_checks_pass_without_exceptions(estimator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks that need pandas, say, warn that they are left out
        results = check_estimator(estimator, on_fail=None)
    failed = {row["check_name"]: row["exception"] for row in results if row["status"] not in ("passed", "skipped")}
    assert not failed
    assert sum(row["status"] == "passed" for row in results) >= 50


def test_a_fitted_estimator_comes_back_from_its_bytes_with_the_same_predictions() -> None:
    x, y = small_data()
    fitted = NetworkClassifier((8,), epochs=5, random_state=0).fit(x, y)
    content = pickle.dumps(fitted)
    assert b"safetensors" not in content  # no code of that library either
    again = pickle.loads(content)  # noqa: S301  # made in the line above
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))


def test_an_estimator_with_callbacks_says_that_it_cannot_be_copied_to_another_process() -> None:
    x, y = small_data()
    fitted = NetworkClassifier((8,), epochs=2, callbacks=[nn.EarlyStopping("loss")], random_state=0).fit(x, y)
    with pytest.raises(ConfigError, match="callbacks"):
        pickle.dumps(fitted)


def test_the_same_seed_gives_the_same_predictions() -> None:
    x, y = small_data()
    one = NetworkRegressor((8,), epochs=3, random_state=4).fit(x, y)
    two = clone(one).fit(x, y)
    np.testing.assert_array_equal(one.predict(x), two.predict(x))


def test_a_body_of_other_layers() -> None:
    x, y = small_data()
    body = nn.Sequential(nn.Dense(8), nn.LayerNormalization(), nn.Tanh())
    fitted = NetworkClassifier(body=body, epochs=40, random_state=0).fit(x, y)
    assert fitted.score(x, y) > 0.9
    assert fitted.decision_function(x).shape == (40,)


def test_several_targets() -> None:
    x = np.random.default_rng(1).normal(size=(60, 2))
    y = np.stack([x[:, 0] + 1, x[:, 1] * 2], axis=1)
    fitted = NetworkRegressor((16,), epochs=100, random_state=0).fit(x, y)
    assert fitted.predict(x).shape == (60, 2)
    assert fitted.score(x, y) > 0.95


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="only one class"):
        NetworkClassifier().fit(np.zeros((4, 2)), np.zeros(4))


def test_settings_may_change_between_fitting_and_copying() -> None:
    x, y = small_data()
    fitted = NetworkClassifier((8,), epochs=2, random_state=0).fit(x, y).set_params(hidden=(4, 4), dtype="float64")
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301  # made here
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))


def test_networks_of_bfloat16_come_back_from_their_bytes() -> None:
    x, y = small_data()
    fitted = NetworkClassifier((8,), epochs=2, dtype="bfloat16", random_state=0).fit(x, y)
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301  # made here
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))


def test_fitting_again_with_early_stopping_gives_the_same() -> None:
    x, y = small_data()
    stopping = nn.EarlyStopping("loss", patience=1, min_delta=0.05, restore_best=True)
    network = NetworkClassifier((8,), epochs=30, callbacks=[stopping], random_state=0)
    first, count = network.fit(x, y).predict_proba(x), network.n_iter_
    np.testing.assert_array_equal(network.fit(x, y).predict_proba(x), first)
    assert network.n_iter_ == count < 30


def test_searches_may_hand_over_numbers_of_numpy() -> None:
    x, y = small_data()
    settings = {
        "epochs": np.arange(1, 3),
        "learning_rate": np.array([0.01, 0.1], np.float32),
        "batch_size": np.array([16]),
    }
    found = GridSearchCV(NetworkClassifier((4,), random_state=0), settings, cv=2, error_score="raise").fit(x, y)
    assert len(found.cv_results_["params"]) == 4
