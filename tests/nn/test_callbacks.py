"""Callbacks over several calls of `fit`, callbacks that raise, and what checkpoints keep of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore import nn
from aicore.errors import ConfigError, InputError, ModelError

X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
Y = X[:, :1] * 2


def small_model(rate: float = 0.1) -> nn.Model:
    return nn.Model(nn.Dense(1), target="cpu").compile(nn.SGD(rate), "mean_squared_error")


class Rates(nn.Callback):
    """Notes the rate of each epoch."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def on_step_end(self, model: nn.Model, step: int, logs: object) -> None:
        self.found.append(round(model.learning_rate, 6))


class Raising(nn.Callback):
    def __init__(self, where: str) -> None:
        self.where, self.ended = where, 0

    def on_train_begin(self, model: nn.Model) -> None:
        self._raise("begin")

    def on_step_end(self, model: nn.Model, step: int, logs: object) -> None:
        self._raise("step")

    def on_epoch_end(self, model: nn.Model, epoch: int, logs: object) -> None:
        self._raise("epoch")

    def on_train_end(self, model: nn.Model) -> None:
        self.ended += 1
        self._raise("end")

    def _raise(self, where: str) -> None:
        if where == self.where:
            raise RuntimeError(where)


@pytest.mark.parametrize("where", ["begin", "step", "epoch", "end"])
def test_all_callbacks_hear_of_the_end_when_one_raises(where: str) -> None:
    model, raising, other = small_model(), Raising(where), Raising("nowhere")
    with pytest.raises(RuntimeError, match=where):
        model.fit(X, Y, callbacks=[raising, other], verbose=False)
    assert (raising.ended, other.ended) == (1, 1)
    model.fit(X, Y, callbacks=[other], verbose=False)
    assert other.ended == 2


def test_early_stopping_begins_anew_with_each_fit() -> None:
    stopping = nn.EarlyStopping("loss", patience=2, restore_best=True)
    first = small_model(0.0).fit(X, Y, epochs=9, callbacks=[stopping], verbose=False)
    wider = nn.Model(nn.Sequential(nn.Dense(4), nn.Dense(1)), target="cpu").compile(nn.SGD(0.0), "mean_squared_error")
    second = wider.fit(X * 10, Y, epochs=9, callbacks=[stopping], verbose=False)
    assert (first.epochs, second.epochs) == (3, 3)


def test_plateaus_begin_anew_with_each_fit() -> None:
    plateau, model = nn.ReduceLROnPlateau("loss", factor=0.5, patience=2), small_model(0.0)
    model.fit(X, Y, epochs=2, callbacks=[plateau], verbose=False)
    model.fit(X, Y, epochs=2, callbacks=[plateau], verbose=False)
    assert plateau.waited == 1


def test_a_scheduler_sets_the_rate_of_the_first_epoch_of_each_fit_once() -> None:
    model, rates = small_model(), Rates()
    halving = nn.LearningRateScheduler(lambda epoch, rate: rate / 2)
    model.fit(X, Y, epochs=2, callbacks=[halving, rates], verbose=False)
    model.fit(X, Y, epochs=1, callbacks=[halving, rates], verbose=False)
    assert rates.found == [0.05, 0.025, 0.0125]
    fixed = nn.LearningRateScheduler(lambda epoch, rate: epoch / 100)
    model.fit(X, Y, epochs=2, callbacks=[fixed, rates], verbose=False)
    assert rates.found[3:] == [0.04, 0.05]


def test_a_log_is_written_anew_unless_training_resumes(tmp_path: Path) -> None:
    model, log, path = small_model(), nn.CSVLogger(tmp_path / "log.csv"), tmp_path / "training.safetensors"
    model.fit(X, Y, epochs=1, callbacks=[log], verbose=False)
    model.fit(X, Y, epochs=2, callbacks=[log, nn.ModelCheckpoint(path)], verbose=False)
    small_model().fit(X, Y, epochs=4, callbacks=[log], resume=path, verbose=False)
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["epoch", "2", "3", "4"]


def test_a_history_says_which_epochs_had_no_validation() -> None:
    model = small_model()
    model.fit(X, Y, epochs=2, verbose=False)
    history = model.fit(X, Y, validation_split=0.5, verbose=False)
    assert [math.isnan(value) for value in history["val_loss"]] == [True, True, False]
    model.fit(X, Y, verbose=False)
    assert math.isnan(history["val_loss"][3])
    assert len(history["loss"]) == 4


class Counting(nn.Callback):
    """Has no state until there was a step."""

    def __init__(self) -> None:
        self.count = 0

    def on_step_end(self, model: nn.Model, step: int, logs: object) -> None:
        self.count += 1

    def state(self) -> dict[str, Any]:
        return {"count": self.count} if self.count else {}

    def load_state(self, state: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        self.count = state["count"]


def test_a_callback_without_state_before_training_resumes(tmp_path: Path) -> None:
    path, again = tmp_path / "training.safetensors", Counting()
    small_model().fit(X, Y, callbacks=[Counting(), nn.ModelCheckpoint(path)], batch_size=10, verbose=False)
    small_model().fit(X, Y, epochs=2, callbacks=[again], resume=path, batch_size=10, verbose=False)
    assert again.count == 4


def test_resuming_needs_the_callbacks_that_had_a_state(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    stopping = nn.EarlyStopping("loss", patience=5)
    small_model().fit(X, Y, callbacks=[stopping, nn.ModelCheckpoint(path)], verbose=False)
    for callbacks in ([], [nn.ReduceLROnPlateau("loss")], [stopping, nn.EarlyStopping("loss")]):
        with pytest.raises(InputError, match="made with callbacks"):
            small_model().fit(X, Y, epochs=2, callbacks=callbacks, resume=path, verbose=False)
    small_model().fit(X, Y, epochs=2, callbacks=[nn.EarlyStopping("loss")], resume=path, verbose=False)


def test_a_layer_may_be_called_callback(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    layers = nn.Sequential(nn.Dense(2, name="callback"), nn.Dense(1))
    model = nn.Model(layers, target="cpu").compile("adam", "mean_squared_error")
    model.fit(X, Y, callbacks=[nn.EarlyStopping("loss", restore_best=True)], verbose=False)
    model.save_checkpoint(path)
    before = model.state_dict()
    model.load_state_dict({name: array * 0 for name, array in before.items()})
    model.load_checkpoint(path, [nn.EarlyStopping("loss")])
    np.testing.assert_array_equal(model.state_dict()["callback.weight"], before["callback.weight"])


def test_data_shorter_than_what_was_seen_are_told(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"

    class Break(nn.Callback):
        def on_step_end(self, model: nn.Model, step: int, logs: object) -> None:
            if step == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_model().fit(X, Y, batch_size=4, callbacks=[nn.ModelCheckpoint(path, every=1), Break()], verbose=False)
    with pytest.raises(InputError, match="more samples of the epoch were seen than there are now"):
        small_model().fit(X[:8], Y[:8], batch_size=4, resume=path, verbose=False)
    with pytest.raises(InputError, match="batches differ now"):
        small_model().fit(X, Y, batch_size=5, resume=path, verbose=False)


@pytest.mark.parametrize("callbacks", [nn.EarlyStopping("loss"), [nn.EarlyStopping], ["early"], None])
def test_what_are_no_callbacks_is_told(callbacks: Any) -> None:
    with pytest.raises(ConfigError, match="is no list of callbacks"):
        small_model().fit(X, Y, callbacks=callbacks, verbose=False)


@pytest.mark.parametrize("path", ["{val_loss}.safetensors", "{.safetensors", "{0}", "{epoch.x}"])
def test_a_path_with_other_braces_is_told_before_training(path: str) -> None:
    with pytest.raises(ConfigError, match="no other braces"):
        nn.ModelCheckpoint(path)


def test_a_state_that_is_no_json_is_told_and_leaves_the_file(tmp_path: Path) -> None:
    class Odd(nn.Callback):
        def state(self) -> dict[str, Any]:
            return {"x": np.float32(1)}

    path = tmp_path / "training.safetensors"
    model = small_model()
    model.fit(X, Y, callbacks=[nn.ModelCheckpoint(path)], verbose=False)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="is no JSON"):
        model.fit(X, Y, callbacks=[Odd(), nn.ModelCheckpoint(path)], verbose=False)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["training.safetensors"]


def test_a_missing_folder_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    model = small_model()
    model.fit(X, Y, verbose=False)
    for save in (model.save, model.save_checkpoint):
        with pytest.raises(FileNotFoundError):
            save(tmp_path / "nowhere" / "x.safetensors")


@pytest.mark.parametrize("told", ['{"seed": 1e999}', "[" * 100_000])
def test_hostile_metadata_are_refused(tmp_path: Path, told: str) -> None:
    from safetensors.numpy import save_file

    model = small_model()
    model.fit(X, Y, verbose=False)
    path = tmp_path / "hostile.safetensors"
    good = '{"format": "aicore.training.1", "progress": {"epoch": 0, "step": 0, "seen": 0, "sums": null}, "history": {}'
    text = good + ', "callbacks": [], "seed": 1e999}' if told.startswith("{") else told
    save_file({"x": np.zeros(1, np.float32)}, str(path), metadata={"aicore": text})
    with pytest.raises(ModelError, match="no checkpoint of training"):
        model.load_checkpoint(path)


def test_element_types_that_numpy_lacks_are_refused(tmp_path: Path) -> None:
    header = b'{"weight":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]}}'
    path = tmp_path / "eight.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(3))
    with pytest.raises(ModelError, match="no safetensors file that can be read"):
        nn.Model(nn.Dense(1), (3,)).load(path)
