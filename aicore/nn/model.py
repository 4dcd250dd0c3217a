"""A layer with numbers: it trains, evaluates, predicts, and is saved. The step is one program on one device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any, Never

import numpy as np

from aicore.api import compile as compile_graph
from aicore.autodiff import Recompute
from aicore.errors import ConfigError, InputError, meant
from aicore.ir import Graph
from aicore.nn import files
from aicore.nn.callbacks import Callback, callbacks_of
from aicore.nn.checkpoint import Progress, read_tensors
from aicore.nn.data import Data, Samples, count_of, pair_of
from aicore.nn.fitting import Batches, Fit, first_batch, run_fit
from aicore.nn.held import HeldView, held_activations
from aicore.nn.history import History
from aicore.nn.layer import Layer
from aicore.nn.losses import Loss, loss_of
from aicore.nn.metrics import MetricLike, metric_of, told_of
from aicore.nn.optimizers import Optimizer
from aicore.nn.optimizers import optimizer as optimizer_of
from aicore.nn.programs import Goal, Programs
from aicore.nn.progress_bar import Verbose
from aicore.nn.schedules import Schedule
from aicore.nn.step import NORM
from aicore.program import Program

Array = np.ndarray[Any, Any]


class Model:
    """A layer, its parameters, and the programs that use them.

    layer: what is computed; it holds no numbers itself.
    inputs: shape of one sample, such as (3, 32, 32); or, by name, several shapes or types. None takes those of the
        first data that the model sees.
    target: device, as in `aicore.compile`.
    seed: of first parameters, of the order of samples, and of random ops; the same seed gives the same numbers.
    dtype: of parameters and of data that are no integers.
    options: others of `aicore.compile`, such as `threads=2` or `tune="measure"`.
    """

    def __init__(
        self,
        layer: Layer,
        inputs: Sequence[int] | Mapping[str, Any] | None = None,
        *,
        target: str | None = None,
        seed: int = 0,
        dtype: str = "float32",
        **options: Any,
    ) -> None:
        if not isinstance(layer, Layer):
            raise ConfigError(f"{layer!r} is no layer")
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ConfigError(f"seed={seed!r} is no whole number from 0")
        _check_options(options)
        self.progress = Progress()
        self.history = History()
        self._programs = Programs(layer, target, int(seed), dtype, options, inputs)
        self._fitting = False
        self._stopped = False
        self._resumed = False

    @property
    def layer(self) -> Layer:
        return self._programs.layer

    @property
    def target(self) -> str | None:
        return self._programs.target

    @property
    def dtype(self) -> str:
        return self._programs.dtype

    @property
    def seed(self) -> int:
        return self._programs.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._programs.seed = seed

    # ---- what is trained -------------------------------------------------------------------------------------------

    def compile(
        self,
        optimizer: Optimizer | str = "adam",
        loss: Loss | str = "mean_squared_error",
        metrics: Iterable[MetricLike] = (),
        *,
        learning_rate: float | Schedule | None = None,
        recompute: Recompute = "nothing",
        keep_previous: bool = True,
        check_gradients: bool | None = None,
        **unknown: Never,
    ) -> Model:
        """Say how to train. What was trained stays; what the optimiser kept is given up.

        learning_rate: instead of the optimiser's. recompute: see `aicore.grad`.
        keep_previous: hold the state before each step, too, so that a step that makes no number is undone, and the op
            that made it named. Without, parameters and what the optimiser keeps are held once.
        check_gradients: stop at the step whose gradients are no finite numbers, though its loss is one; else the next
            step's loss tells, when the parameters are lost. None: on the CPU, where reading the gradients once more
            takes at most a few per cent of a step; a GPU takes two more kernels and another copy for it.
        Raises ConfigError for what does not exist, and while `fit` runs.
        """
        if unknown:
            raise _no_option("Model.compile", next(iter(unknown)), _names(Model.compile))
        if self._fitting:
            raise ConfigError("compile while fit runs would begin training anew: call stop(), and compile after fit")
        chosen = optimizer_of(optimizer)
        if learning_rate is not None:
            chosen = replace(chosen, learning_rate=learning_rate)
        wanted = loss_of(loss)
        found = tuple([told_of(metric_of(metric), wanted) for metric in metrics])
        names = [metric.name for metric in found]
        if len({*names, "loss", NORM}) < len(names) + 2:
            raise ConfigError(f"two metrics have one name, or that of another output: {', '.join(names)}")
        self._programs.aim(Goal(chosen, wanted, found, recompute, keep_previous, check_gradients))
        self.progress, self.history = Progress(), History()
        return self

    def fit(
        self,
        x: Data | Batches,
        y: Any = None,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        validation_data: tuple[Any, Any] | None = None,
        validation_split: float = 0.0,
        shuffle: bool = True,
        callbacks: Sequence[Callback] = (),
        resume: str | os.PathLike[str] | None = None,
        verbose: Verbose = "auto",
    ) -> History:
        """Train until so many epochs are over; returns loss and metrics of each.

        x, y: arrays whose first axis counts samples (x: a tuple or a dict for several inputs); or, as x alone,
            something that gives batches (x, y) anew each time it is iterated.
        validation_split: share of the samples, the last ones, that are kept for validation.
        epochs: how many more; with `resume`, how many in all.
        resume: a checkpoint to go on from, as if nothing had happened.
        Raises TrainingError naming step and op when the loss is no finite number; the model is then as before the step,
        unless `compile` said keep_previous=False.
        """
        epochs, followed = count_of("epochs", epochs), callbacks_of(callbacks)
        data: Any = x if y is None and isinstance(x, Iterable) and not isinstance(x, np.ndarray | Mapping) else None
        samples = None if data is not None else self._samples(x, y)
        validation = None if validation_data is None else self.samples_of(validation_data, "validation_data")
        if validation_split:
            if samples is None or validation is not None:
                raise InputError("validation_split is for arrays, and without validation_data")
            samples, validation = samples.split(validation_split)
        if resume is not None:
            self.get_ready(first_batch(self, data) if samples is None else samples)
            self.load_checkpoint(resume, followed)
        else:
            self.progress = replace(self.progress, seen=0, sums=None)
        until = epochs if resume is not None else self.progress.epoch + epochs
        self._stopped, self._resumed = False, resume is not None
        wanted = Fit(until, batch_size, shuffle, followed, verbose)
        before, self._fitting = self._fitting, True
        try:
            return run_fit(self, samples if samples is not None else data, validation, wanted)
        finally:
            self._fitting = before

    def train_on_batch(self, x: Data, y: Any) -> dict[str, float]:
        """One step; returns loss and metrics of the batch. Raises TrainingError as `fit` does."""
        return self.train_step(self._samples(x, y))

    def evaluate(self, x: Data, y: Any, *, batch_size: int = 256) -> dict[str, float]:
        """Loss and metrics, without changing anything."""
        return self.evaluate_samples(self._samples(x, y), batch_size)

    def predict(self, x: Data, *, batch_size: int = 256) -> Array:
        """The model's outputs for all samples. Raises InputError for a model with several outputs."""
        samples = self._samples(x, None)
        session = self._programs.prediction(samples)
        found = [session.run(self._programs.feeds(batch, session)) for batch in samples.batches(batch_size)]
        if len(found[0]) != 1:
            raise InputError(f"the model has outputs {', '.join(found[0])}; predict is for one")
        return np.concatenate([next(iter(outputs.values())) for outputs in found])

    def stop(self) -> None:
        """End training after the current epoch."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def resumed(self) -> bool:
        """Whether the latest `fit` went on from a checkpoint: callbacks then bring their state along."""
        return self._resumed

    # ---- parameters and files --------------------------------------------------------------------------------------

    def build(self, inputs: Sequence[int] | Mapping[str, Any] | None = None) -> Model:
        """Give the parameters their first values; else the first data do.

        Raises ConfigError without input shapes, and for others than those that the parameters are for.
        """
        self._programs.build(inputs)
        return self

    def state_dict(self) -> dict[str, Array]:
        """Parameters and running statistics by name, as copies."""
        return self._programs.values()

    def load_state_dict(self, values: Mapping[str, Any], *, strict: bool = True) -> None:
        """Set parameters and running statistics.

        strict: every one must be there and nothing else. Raises InputError naming what does not fit.
        """
        self._programs.set_values(values, strict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model: `.onnx` for a file that other runtimes run, `.safetensors` for the state dict."""
        files.save(self, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a state dict that `save` wrote, or one of another library with the same names and shapes."""
        self.load_state_dict(read_tensors(path))

    def graph(self) -> Graph:
        """The model as it is used, with its parameters as constants: for `aicore.compile`, or to quantise it."""
        return self._programs.graph()

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write all that training needs to go on with the same bits. Raises ConfigError before the first step."""
        files.save_checkpoint(self, self._programs.needs_training(), path)

    def load_checkpoint(self, path: str | os.PathLike[str], callbacks: Sequence[Callback] = ()) -> None:
        """Go on from a checkpoint; the layer, the optimiser and the data have to be those that it was made with.

        callbacks: those of the run that is resumed, in the same order; those without a state may be others.
        Raises ModelError for a damaged file, InputError for one of another model.
        """
        files.load_checkpoint(self, self._programs.needs_training(), path, callbacks)

    @property
    def learning_rate(self) -> float:
        """That of the next step. Setting it scales a schedule, from now on."""
        return self._programs.needs_training().learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._programs.needs_training().learning_rate = rate

    @property
    def program(self) -> Program:
        """The training step, once there was data: `program.explain()`, `program.memory()`, `program.profile(...)`."""
        return self._programs.needs_training().program

    def held(self) -> HeldView:
        """Which activations the training step holds for its backward pass, and what they take; text by `str`."""
        return held_activations(self.program.plan)

    def summary(self) -> str:
        """Parameters by name, with shapes and counts."""
        values = self.state_dict()
        frozen = {name for name, variable in self._programs.variables().items() if not variable.trainable}
        rows = [
            (name, str(list(a.shape)), f"{a.size:,}", "kept" if name in frozen else "") for name, a in values.items()
        ]
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
        lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows]
        trained = sum(array.size for name, array in values.items() if name not in frozen)
        return "\n".join([*lines, f"{trained:,} trained, {sum(a.size for a in values.values()) - trained:,} kept"])

    # ---- for the loop ----------------------------------------------------------------------------------------------

    def train_step(self, samples: Samples) -> dict[str, float]:
        """One step on a batch, with progress counted. Raises TrainingError for a loss that is no finite number."""
        training = self._programs.ready(samples)
        logs = training.run(self._programs.feeds(samples, training.session), self.progress)
        self.progress = replace(self.progress, step=self.progress.step + 1)
        return logs

    def evaluate_samples(self, samples: Samples, batch_size: int) -> dict[str, float]:
        session = self._programs.evaluation(samples)
        sums: dict[str, float] = {}
        for batch in samples.batches(batch_size):
            for name, value in session.run(self._programs.feeds(batch, session)).items():
                sums[name] = sums.get(name, 0.0) + float(value) * batch.count
        return {name: total / samples.count for name, total in sums.items()}

    def follow(self, callbacks: Sequence[Callback]) -> None:
        """The callbacks whose state checkpoints keep."""
        self._programs.needs_training().callbacks = tuple(callbacks)

    def samples_of(self, batch: Any, what: str = "a batch") -> Samples:
        """One batch (x, y). Raises InputError for anything else."""
        return self._samples(*pair_of(batch, what))

    def get_ready(self, samples: Samples) -> None:
        """Make the programs for such data, unless they are there."""
        self._programs.ready(samples)

    def _samples(self, x: Any, y: Any) -> Samples:
        return Samples.of(x, y, self._programs.names)


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError, before there is data, for an option that `aicore.compile` would not know."""
    taken = [one.name for one in signature(compile_graph).parameters.values() if one.kind is Parameter.KEYWORD_ONLY]
    for name in options:
        if name not in taken:
            raise _no_option("Model", name, [*_names(Model), *taken])


def _names(function: Callable[..., Any]) -> list[str]:
    """Of its arguments."""
    found = signature(function).parameters.values()
    return [one.name for one in found if one.name != "self" and one.kind is not Parameter.VAR_KEYWORD]


def _no_option(of: str, name: str, known: Sequence[str]) -> ConfigError:
    return ConfigError(f"{of} has no option {name!r}{meant(name, known) or '; there are: ' + ', '.join(known)}")
