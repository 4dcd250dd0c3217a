"""What happens between steps and epochs: stopping early, checkpoints, other learning rates."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from aicore.errors import ConfigError

if TYPE_CHECKING:
    from aicore.nn.model import Model

Array = np.ndarray[Any, Any]
Logs = Mapping[str, float]
Mode = Literal["auto", "min", "max"]


class Callback:
    """Override what you need. `model.stop()` ends training after the epoch.

    logs: loss and metrics, those on validation data with `val_` before their name.
    """

    def on_train_begin(self, model: Model) -> None:
        """Before the first step of `fit`."""

    def on_step_end(self, model: Model, step: int, logs: Logs) -> None:
        """After each step; steps count from 1 over all epochs."""

    def on_epoch_end(self, model: Model, epoch: int, logs: Logs) -> None:
        """After each epoch; epochs count from 1."""

    def on_train_end(self, model: Model) -> None:
        """After the last step of `fit`, also when an error or Ctrl-C ended it."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it, as JSON."""
        return {}

    def tensors(self) -> dict[str, Array]:
        """Arrays that a checkpoint keeps of it, by names of its own."""
        return {}

    def load_state(self, state: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
        """Go on from what `state` and `tensors` gave."""


class _Watching(Callback):
    """Follows one number, and knows its best value."""

    def __init__(self, monitor: str, mode: Mode, min_delta: float) -> None:
        if mode not in ("auto", "min", "max"):
            raise ConfigError(f"mode={mode!r} is none of auto, min, max")
        self.monitor = monitor
        self.min_delta = abs(min_delta)
        rising = mode == "max" or (mode == "auto" and monitor.endswith("accuracy"))
        self._sign = -1.0 if rising else 1.0
        self.forget()

    def forget(self) -> None:
        """Begin anew: no value was seen yet."""
        self.best = math.inf * self._sign
        self.waited = 0

    def improves(self, logs: Logs) -> bool:
        """Raises ConfigError when the number is not there."""
        if self.monitor not in logs:
            raise ConfigError(f"{type(self).__name__} watches {self.monitor!r}; there is {', '.join(logs)}")
        value = logs[self.monitor]
        better = self._sign * value < self._sign * self.best - self.min_delta
        if better:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return better

    def state(self) -> dict[str, Any]:
        best = self.best if math.isfinite(self.best) else None
        return {"best": best, "waited": self.waited}

    def load_state(self, state: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
        best = state.get("best")
        self.best = math.inf * self._sign if best is None else float(best)
        self.waited = int(state.get("waited", 0))


class EarlyStopping(_Watching):
    """Stops when a number has not improved for `patience` epochs. Each `fit` that does not resume begins anew.

    monitor: name in the logs. min_delta: what counts as better. mode: whether less or more is better; `auto` takes
    more for names that end in `accuracy`. restore_best: go back to the state dict of the best epoch.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        *,
        patience: int = 0,
        min_delta: float = 0.0,
        mode: Mode = "auto",
        restore_best: bool = False,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience = patience
        self.restore_best = restore_best
        self.stopped_epoch = 0
        self._kept: dict[str, Array] = {}

    def on_train_begin(self, model: Model) -> None:
        if not model.resumed:
            self.forget()
            self.stopped_epoch, self._kept = 0, {}

    def on_epoch_end(self, model: Model, epoch: int, logs: Logs) -> None:
        if self.improves(logs):
            self._kept = model.state_dict() if self.restore_best else {}
        elif self.waited >= self.patience:
            self.stopped_epoch = epoch
            model.stop()

    def on_train_end(self, model: Model) -> None:
        if self._kept:
            model.load_state_dict(self._kept)

    def tensors(self) -> dict[str, Array]:
        return self._kept

    def load_state(self, state: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
        super().load_state(state, tensors)
        self._kept = dict(tensors)


class ModelCheckpoint(_Watching):
    """Writes a checkpoint after each epoch, or each `every` steps, from which `fit(resume=...)` goes on.

    It comes after all other callbacks, so that what they change is in the file.

    path: may hold `{epoch}` and `{step}`. save_best: only when the number is better than all that this callback saw
        before; then at the end of epochs.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        every: int | None = None,
        save_best: bool = False,
        monitor: str = "val_loss",
        mode: Mode = "auto",
    ) -> None:
        super().__init__(monitor, mode, 0.0)
        if every is not None and every < 1:
            raise ConfigError(f"every={every!r} is no number of steps")
        if every is not None and save_best:
            raise ConfigError("save_best looks at epochs, every= at steps; choose one")
        try:
            str(path).format(epoch=0, step=0)
        except (LookupError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"path={str(path)!r} may hold {{epoch}} and {{step}}, no other braces: {error}"
            ) from error
        self.path = str(path)
        self.every = every
        self.save_best = save_best

    def state(self) -> dict[str, Any]:
        return super().state() if self.save_best else {}

    def on_step_end(self, model: Model, step: int, logs: Logs) -> None:
        if self.every is not None and step % self.every == 0:
            self._save(model, model.progress.epoch, step)

    def on_epoch_end(self, model: Model, epoch: int, logs: Logs) -> None:
        if self.every is None and (not self.save_best or self.improves(logs)):
            self._save(model, epoch, model.progress.step)

    def _save(self, model: Model, epoch: int, step: int) -> None:
        path = Path(self.path.format(epoch=epoch, step=step))
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save_checkpoint(path)


class LearningRateScheduler(Callback):
    """Sets the learning rate before each epoch to what a function says of (epoch, current rate); epochs count from 1.

    Schedules of the optimiser change it from step to step, inside the graph.
    """

    def __init__(self, schedule: Callable[[int, float], float]) -> None:
        self.schedule = schedule
        self._set: tuple[Model, int] | None = None

    def on_train_begin(self, model: Model) -> None:
        epoch = model.progress.epoch + 1
        if not model.resumed and self._set != (model, epoch):  # a run that is resumed brings its rate along
            self._set_rate(model, epoch)

    def on_epoch_end(self, model: Model, epoch: int, logs: Logs) -> None:
        self._set_rate(model, epoch + 1)

    def _set_rate(self, model: Model, epoch: int) -> None:
        model.learning_rate = self.schedule(epoch, model.learning_rate)
        self._set = model, epoch


class ReduceLROnPlateau(_Watching):
    """Multiplies the learning rate by `factor` when a number has not improved for `patience` epochs.

    Each `fit` that does not resume begins anew.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        *,
        factor: float = 0.1,
        patience: int = 10,
        min_delta: float = 1e-4,
        min_lr: float = 0.0,
        mode: Mode = "auto",
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        if not 0 < factor < 1:
            raise ConfigError(f"factor={factor!r} is not between 0 and 1")
        self.factor, self.patience, self.min_lr = factor, patience, min_lr

    def on_train_begin(self, model: Model) -> None:
        if not model.resumed:
            self.forget()

    def on_epoch_end(self, model: Model, epoch: int, logs: Logs) -> None:
        if not self.improves(logs) and self.waited >= self.patience:
            self.waited = 0
            model.learning_rate = max(model.learning_rate * self.factor, self.min_lr)


class CSVLogger(Callback):
    """Writes loss and metrics of each epoch as a line of a CSV file, anew in each `fit` that does not resume."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_train_begin(self, model: Model) -> None:
        if not model.resumed:
            self.path.write_text("")

    def on_epoch_end(self, model: Model, epoch: int, logs: Logs) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            if file.tell() == 0:
                file.write(",".join(("epoch", *logs)) + "\n")
            file.write(",".join((str(epoch), *(json.dumps(float(v)) for v in logs.values()))) + "\n")


def callbacks_of(given: Any) -> tuple[Callback, ...]:
    """Raises ConfigError for anything but several instances of Callback."""
    found = tuple(given) if isinstance(given, Sequence) else (given,)
    wrong = [one for one in found if not isinstance(one, Callback)]
    if wrong or not isinstance(given, Sequence):
        raise ConfigError(f"callbacks={given!r} is no list of callbacks")
    return found


def with_state(callbacks: Sequence[Callback]) -> list[Callback]:
    """Those that a checkpoint keeps something of."""
    return [callback for callback in callbacks if callback.state() or callback.tensors()]


def matching(callbacks: Sequence[Callback], kinds: Sequence[str]) -> list[Callback] | None:
    """The callbacks of these classes, in this order; None where they differ from those that have a state.

    One may have no state before training, so that it is found by its class.
    """
    waiting, found = list(kinds), []
    for callback in callbacks:
        if waiting and type(callback).__name__ == waiting[0]:
            found.append(callback)
            del waiting[0]
        elif with_state([callback]):
            return None
    return None if waiting else found
