"""Estimators of scikit-learn: networks that work in its pipelines, searches, validation and metrics.

Both standardise nothing: put a StandardScaler before them. They take no `sample_weight`. An estimator is picklable, as
scikit-learn asks: its state holds settings and the bytes of a safetensors file, no code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from aicore.errors import ConfigError
from aicore.nn.callbacks import Callback
from aicore.nn.layer import Layer, Sequential
from aicore.nn.layers import Dense
from aicore.nn.model import Model
from aicore.nn.optimizers import Optimizer

Array = np.ndarray[Any, Any]

ROWS = 64
"""Samples that are predicted at once, with zeros where there are fewer: sums of other sizes may round otherwise, and a
sample's prediction must not depend on its company."""


class _Network(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What both estimators share.

    hidden: units of the dense layers before the last one. body: a layer that takes their place.
    activation: of the hidden layers. optimizer, learning_rate, epochs, batch_size, callbacks: see `Model.fit`.
    dtype, device: see `Model`. random_state: seed, generator, or None for another one each time.
    """

    def __init__(
        self,
        hidden: Sequence[int] = (64,),
        *,
        body: Layer | None = None,
        activation: str = "relu",
        optimizer: Optimizer | str = "adam",
        learning_rate: float | None = 1e-2,
        epochs: int = 100,
        batch_size: int = 32,
        validation_split: float = 0.0,
        callbacks: Sequence[Callback] = (),
        dtype: str = "float32",
        device: str | None = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.hidden = hidden
        self.body = body
        self.activation = activation
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.validation_split = validation_split
        self.callbacks = callbacks
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _train(self, x: Array, y: Array, outputs: int, loss: str) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.seed_, self.outputs_ = seed, outputs
        self.model_ = self._made().compile(self.optimizer, loss, learning_rate=self.learning_rate)
        settings: dict[str, Any] = {"epochs": self.epochs, "batch_size": self.batch_size, "verbose": self.verbose}
        settings |= {"validation_split": self.validation_split, "callbacks": tuple(self.callbacks)}
        self.history_ = self.model_.fit(x, y, **settings).history
        self.n_iter_ = len(self.history_["loss"])

    def _made(self) -> Model:
        body = self.body or Sequential(Dense(units, activation=self.activation) for units in self.hidden)
        layers = Sequential(body, Dense(self.outputs_, name="last"))
        return Model(layers, (self.n_features_in_,), target=self.device, seed=self.seed_, dtype=self.dtype)

    def _outputs(self, x: Any) -> Array:
        check_is_fitted(self, "model_")
        found = validate_data(self, x, reset=False, dtype="numeric")
        missing = -len(found) % ROWS
        padded = np.concatenate([found, np.zeros((missing, found.shape[1]), found.dtype)])
        return self.model_.predict(padded, batch_size=ROWS)[: len(found)].astype(np.float64)

    def __getstate__(self) -> dict[str, Any]:
        """Settings and numbers. Raises ConfigError for settings that only this process knows, such as callbacks."""
        from safetensors.numpy import save

        if self.callbacks:
            raise ConfigError("an estimator with callbacks cannot be copied to another process")
        state: dict[str, Any] = dict(super().__getstate__())
        model = state.pop("model_", None)
        if model is not None:
            state["weights_"] = save({name: _plain(array) for name, array in model.state_dict().items()})
            state["made_"] = {"layer": model.layer, "target": model.target, "seed": model.seed, "dtype": model.dtype}
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        from safetensors.numpy import load

        rest = dict(state)
        weights, made = rest.pop("weights_", None), rest.pop("made_", {})
        super().__setstate__(rest)
        if weights is not None:  # settings may be others since then
            self.model_ = Model(inputs=(rest["n_features_in_"],), **made)
            self.model_.load_state_dict(load(weights))


class NetworkClassifier(ClassifierMixin, _Network):  # type: ignore[misc]  # scikit-learn has no types
    """Classes by the largest of as many outputs, trained with cross-entropy."""

    def fit(self, X: Any, y: Any) -> NetworkClassifier:
        """Train from the beginning."""
        x, labels = validate_data(self, X, y, dtype="numeric")
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {self.classes_[0]!r}")
        self._train(x, codes.astype(np.int64), len(self.classes_), "sparse_categorical_crossentropy")
        return self

    def decision_function(self, X: Any) -> Array:
        """Logits, (samples, classes); of two classes, how much the second one is ahead, (samples,)."""
        logits = self._outputs(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> Array:
        """Probabilities, (samples, classes)."""
        logits = self._outputs(X)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        found: Array = powers / powers.sum(axis=1, keepdims=True)
        return found

    def predict(self, X: Any) -> Array:
        """Classes, (samples,)."""
        logits = self._outputs(X)
        chosen: Array = self.classes_[np.argmax(logits, axis=1)]
        return chosen


class NetworkRegressor(RegressorMixin, _Network):  # type: ignore[misc]  # scikit-learn has no types
    """Numbers, trained with the mean squared error; y may have several columns."""

    def fit(self, X: Any, y: Any) -> NetworkRegressor:
        """Train from the beginning."""
        x, wanted = validate_data(self, X, y, dtype="numeric", multi_output=True, y_numeric=True)
        self.is_vector_ = wanted.ndim == 1
        rows = wanted.reshape(len(wanted), -1)
        self._train(x, rows, rows.shape[1], "mean_squared_error")
        return self

    def predict(self, X: Any) -> Array:
        """Numbers, of y's shape."""
        found = self._outputs(X)
        return found[:, 0] if self.is_vector_ else found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _plain(array: Array) -> Array:
    """In C order and of a type that NumPy has: bfloat16 as float32, which loses nothing."""
    return np.ascontiguousarray(array.astype(np.float32) if array.dtype.kind == "V" else array)
