"""A layer with numbers: it trains, evaluates, predicts, and is saved. The step is one program on one device."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aicore.api import compile as compile_graph
from aicore.autodiff import Recompute
from aicore.errors import ConfigError, InputError, TrainingError
from aicore.frontends.onnx import save_model
from aicore.ir import Graph, TensorType, symbol
from aicore.nn.callbacks import Callback, callbacks_of, matching, with_state
from aicore.nn.checkpoint import Checkpoint, Progress, read_checkpoint, read_tensors, write_checkpoint, write_tensors
from aicore.nn.data import BATCH, Data, Samples, array_of, count_of, fitting, input_types, pair_of, target_type
from aicore.nn.diagnosis import why_not_finite
from aicore.nn.fitting import Batches, Fit, first_batch, run_fit
from aicore.nn.held import HeldView, held_activations
from aicore.nn.history import History
from aicore.nn.initial import first_values
from aicore.nn.layer import Layer
from aicore.nn.losses import Loss, loss_of
from aicore.nn.metrics import Accuracy, Metric, MetricLike, metric_of
from aicore.nn.optimizers import Optimizer
from aicore.nn.optimizers import optimizer as optimizer_of
from aicore.nn.progress_bar import Verbose
from aicore.nn.schedules import Schedule, schedule
from aicore.nn.step import RATE, STEP, TARGET, StepGraph, Task, evaluation_graph, prediction_graph, training_graph
from aicore.nn.trace import trace
from aicore.plugins import plugin_registry
from aicore.program import Program
from aicore.session import DeviceState, Session

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
        self.layer = layer
        self.target = target
        self.seed = int(seed)
        self.dtype = dtype
        self.progress = Progress()
        self.history = History()
        self._options = options
        self._inputs = None if inputs is None else _types_of(inputs, dtype)
        self._values: dict[str, Array] = {}  # of variables, until they are on the device
        self._compiled: _Compiled | None = None
        self._training: _Training | None = None
        self._others: dict[str, Session] = {}
        self._stopped = False
        self._resumed = False

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
    ) -> Model:
        """Say how to train. What was trained stays; what the optimiser kept is given up.

        learning_rate: instead of the optimiser's. recompute: see `aicore.grad`.
        keep_previous: hold the state before each step, too, so that a step whose loss is no number is undone, and the
            op that made it named. Without, parameters and what the optimiser keeps are held once.
        Raises ConfigError for what does not exist.
        """
        chosen = optimizer_of(optimizer)
        if learning_rate is not None:
            chosen = replace(chosen, learning_rate=learning_rate)
        wanted = loss_of(loss)
        found = [_told_of(metric_of(metric), wanted) for metric in metrics]
        names = [metric.name for metric in found]
        if len({*names, "loss"}) <= len(names):
            raise ConfigError(f"two metrics have one name: {', '.join(names)}")
        self._values = self.state_dict() if self._has_values else {}
        self._compiled = _Compiled(chosen, wanted, found, recompute, keep_previous)
        self._training = None
        self._others.clear()
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
        samples = None if data is not None else Samples.of(x, y, self._names)
        validation = None if validation_data is None else self.samples_of(validation_data, "validation_data")
        if validation_split:
            if samples is None or validation is not None:
                raise InputError("validation_split is for arrays, and without validation_data")
            samples, validation = samples.split(validation_split)
        if resume is not None:
            self._stand_ready(first_batch(self, data) if samples is None else samples)
            self.load_checkpoint(resume, followed)
        else:
            self.progress = replace(self.progress, seen=0, sums=None)
        until = epochs if resume is not None else self.progress.epoch + epochs
        self._stopped, self._resumed = False, resume is not None
        wanted = Fit(until, batch_size, shuffle, followed, verbose)
        return run_fit(self, samples if samples is not None else data, validation, wanted)

    def train_on_batch(self, x: Data, y: Any) -> dict[str, float]:
        """One step; returns loss and metrics of the batch. Raises TrainingError as `fit` does."""
        return self.train_step(Samples.of(x, y, self._names))

    def evaluate(self, x: Data, y: Any, *, batch_size: int = 256) -> dict[str, float]:
        """Loss and metrics, without changing anything."""
        return self.evaluate_samples(Samples.of(x, y, self._names), batch_size)

    def predict(self, x: Data, *, batch_size: int = 256) -> Array:
        """The model's outputs for all samples. Raises InputError for a model with several outputs."""
        samples = Samples.of(x, None, self._names)
        session = self._other("predict", samples)
        found = [session.run(self._feeds(batch, session)) for batch in samples.batches(batch_size)]
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
        if inputs is not None:
            types = _types_of(inputs, self.dtype)
            if self._has_values and types != self._inputs:
                raise ConfigError(f"the model is built for {_shown(self._inputs or {})}, got {_shown(types)}")
            self._inputs = types
        if self._inputs is None:
            raise ConfigError("the shape of inputs is not known yet; pass inputs= or some data first")
        if not self._has_values:
            traced = trace(self.layer, self._inputs, training=False, dtype=self.dtype)
            self._values = first_values(traced.scope.variables.values(), self.seed)
        return self

    def state_dict(self) -> dict[str, Array]:
        """Parameters and running statistics by name, as copies."""
        self.build()
        if self._training is not None:
            return self._training.state.read(list(self._training.step.variables))
        return {name: array.copy() for name, array in self._values.items()}

    def load_state_dict(self, values: Mapping[str, Any], *, strict: bool = True) -> None:
        """Set parameters and running statistics.

        strict: every one must be there and nothing else. Raises InputError naming what does not fit.
        """
        held = self.state_dict()
        missing, extra = [n for n in held if n not in values], [n for n in values if n not in held]
        if strict and (missing or extra):
            raise InputError(f"state dict: missing {missing or 'nothing'}, unexpected {extra or 'nothing'}")
        new = {name: array_of(values[name], name) for name in held if name in values}
        for name, array in new.items():
            if array.shape != held[name].shape:
                raise InputError(
                    f"{name!r} is {held[name].dtype}{list(held[name].shape)}, got {array.dtype}{list(array.shape)}"
                )
        cast = {name: array.astype(held[name].dtype) for name, array in new.items()}
        if self._training is not None:
            self._training.state.write(cast)
        else:
            self._values |= cast
            self._others.clear()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model: `.onnx` for a file that other runtimes run, `.safetensors` for the state dict."""
        suffix = os.path.splitext(os.fspath(path))[1].lower()
        if suffix == ".onnx":
            save_model(self.graph(), path)
        elif suffix == ".safetensors":
            write_tensors(path, self.state_dict())
        else:
            raise ConfigError(f"{os.fspath(path)!r}: models are saved as .onnx or .safetensors")

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a state dict that `save` wrote, or one of another library with the same names and shapes."""
        self.load_state_dict(read_tensors(path))

    def graph(self) -> Graph:
        """The model as it is used, with its parameters as constants: for `aicore.compile`, or to quantise it."""
        values = self.state_dict()
        assert self._inputs is not None  # build saw to it
        return prediction_graph(self.layer, self._inputs, self.dtype, values)

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write all that training needs to go on with the same bits. Raises ConfigError before the first step."""
        training = self._trained()
        callbacks = with_state(training.callbacks)
        tensors = training.state.read()
        for i, callback in enumerate(callbacks):
            tensors |= {f"callback.{i}.{name}": array for name, array in callback.tensors().items()}
        told = [(type(callback).__name__, callback.state()) for callback in callbacks]
        write_checkpoint(path, Checkpoint(tensors, self.progress, self.history.history, told, self.seed))

    def load_checkpoint(self, path: str | os.PathLike[str], callbacks: Sequence[Callback] = ()) -> None:
        """Go on from a checkpoint; the layer, the optimiser and the data have to be those that it was made with.

        callbacks: those of the run that is resumed, in the same order; those without a state may be others.
        Raises ModelError for a damaged file, InputError for one of another model.
        """
        training = self._trained()
        found = read_checkpoint(path)
        types = training.state.types
        own = {n: array for n, array in found.tensors.items() if n in types or not n.startswith("callback.")}
        missing = [name for name in types if name not in own]
        if missing:
            raise InputError(f"{os.fspath(path)}: there is no {missing[0]!r}; it belongs to another model or optimiser")
        kinds = [name for name, _ in found.callbacks]
        kept = matching(callbacks, kinds)
        if kept is None:
            got = [type(callback).__name__ for callback in with_state(callbacks)]
            raise InputError(f"{os.fspath(path)}: made with callbacks {kinds}, got {got}")
        training.state.write(own)
        for i, (callback, (_, state)) in enumerate(zip(kept, found.callbacks, strict=True)):
            prefix = f"callback.{i}."
            tensors = {n.removeprefix(prefix): a for n, a in found.tensors.items() if n.startswith(prefix)}
            callback.load_state(state, tensors)
        self.progress, self.seed = found.progress, found.seed
        self.history = History(found.history)

    @property
    def learning_rate(self) -> float:
        """That of the next step. Setting it scales a schedule, from now on."""
        training = self._trained()
        held = training.state.read([RATE, STEP])
        rate = float(held[RATE])
        chosen = self._needs_compiled().optimizer.learning_rate
        return rate * chosen.value(int(held[STEP]) + 1) if isinstance(chosen, Schedule) else rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        if isinstance(rate, Schedule) or schedule(rate).value(1) < 0:
            raise ConfigError(f"learning rate {rate!r} is no number from 0")
        training = self._trained()
        chosen = self._needs_compiled().optimizer.learning_rate
        if isinstance(chosen, Schedule):
            base = chosen.value(int(training.state.read([STEP])[STEP]) + 1)
            if base == 0:
                raise ConfigError("the schedule is at 0 now, which cannot be scaled")
            rate = rate / base
        training.state.write({RATE: np.array(rate, np.float32)})

    @property
    def program(self) -> Program:
        """The training step, once there was data: `program.explain()`, `program.memory()`, `program.profile(...)`."""
        return self._trained().program

    def held(self) -> HeldView:
        """Which activations the training step holds for its backward pass, and what they take; text by `str`."""
        return held_activations(self.program.plan)

    def summary(self) -> str:
        """Parameters by name, with shapes and counts."""
        values = self.state_dict()
        traced = trace(self.layer, self._inputs or {}, training=False, dtype=self.dtype)
        frozen = {name for name, variable in traced.scope.variables.items() if not variable.trainable}
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
        training = self._stand_ready(samples)
        feeds = self._feeds(samples, training.session)
        wanted = ["loss", *(metric.name for metric in self._needs_compiled().metrics)]
        found = training.session.run(feeds, wanted)
        logs = {name: float(found[name]) for name in wanted}
        if not math.isfinite(logs["loss"]):
            raise self._not_finite(training, feeds, logs["loss"])
        self.progress = replace(self.progress, step=self.progress.step + 1)
        return logs

    def evaluate_samples(self, samples: Samples, batch_size: int) -> dict[str, float]:
        session = self._other("evaluate", samples)
        sums: dict[str, float] = {}
        for batch in samples.batches(batch_size):
            for name, value in session.run(self._feeds(batch, session)).items():
                sums[name] = sums.get(name, 0.0) + float(value) * batch.count
        return {name: total / samples.count for name, total in sums.items()}

    def follow(self, callbacks: Sequence[Callback]) -> None:
        """The callbacks whose state checkpoints keep."""
        self._trained().callbacks = tuple(callbacks)

    def samples_of(self, batch: Any, what: str = "a batch") -> Samples:
        """One batch (x, y). Raises InputError for anything else."""
        x, y = pair_of(batch, what)
        return Samples.of(x, y, self._names)

    def get_ready(self, samples: Samples) -> None:
        """Make the programs for such data, unless they are there."""
        self._stand_ready(samples)

    # ----------------------------------------------------------------------------------------------------------------

    @property
    def _names(self) -> tuple[str, ...]:
        return ("input",) if self._inputs is None else tuple(self._inputs)

    @property
    def _has_values(self) -> bool:
        return bool(self._values) or self._training is not None

    def _needs_compiled(self) -> _Compiled:
        if self._compiled is None:
            raise ConfigError("call compile(optimizer, loss) before training or evaluating")
        return self._compiled

    def _trained(self) -> _Training:
        if self._training is None:
            raise ConfigError("nothing was trained yet: there has been no data")
        return self._training

    def _see(self, samples: Samples) -> None:
        if self._inputs is None:
            self._inputs = input_types(samples, self.dtype)
        self.build()

    def _task(self, samples: Samples) -> Task:
        compiled = self._needs_compiled()
        if samples.target is None:
            raise InputError("there is no y to learn")
        assert self._inputs is not None  # _see saw to it
        target = target_type(samples.target, self.dtype)
        metrics = tuple(compiled.metrics)
        return Task(
            self.layer, self._inputs, target, compiled.loss, metrics, compiled.optimizer, self.dtype, compiled.recompute
        )

    def _stand_ready(self, samples: Samples) -> _Training:
        self._see(samples)
        if self._training is None:
            step = training_graph(self._task(samples))
            program = compile_graph(step.graph, self.target, **self._options)
            values = {**step.first_values(self.seed), **self._values}
            state = DeviceState(program.device, values)
            session = program.session(state, keep_previous=self._needs_compiled().keep_previous)
            self._training = _Training(step, program, state, session)
            self._values = {}
            self._others.clear()
        return self._training

    def _other(self, what: str, samples: Samples) -> Session:
        self._see(samples)
        if what not in self._others:
            assert self._inputs is not None  # _see saw to it
            graph = (
                evaluation_graph(self._task(samples))
                if what == "evaluate"
                else prediction_graph(self.layer, self._inputs, self.dtype)
            )
            program = compile_graph(graph, self.target, **self._options)
            self._others[what] = program.session(self._training.state if self._training else self._values)
        return self._others[what]

    def _feeds(self, samples: Samples, session: Session) -> dict[str, Array]:
        arrays = dict(samples.arrays)
        if TARGET in session.fed:
            if samples.target is None:
                raise InputError("there is no y to compare with")
            arrays[TARGET] = samples.target
        return {name: fitting(array, session.fed[name], name) for name, array in arrays.items()}

    def _not_finite(self, training: _Training, feeds: Mapping[str, Array], loss: float) -> TrainingError:
        """What to raise, after the step was undone as far as the state before it is kept."""
        said = f"step {self.progress.step + 1}, epoch {self.progress.epoch + 1}: the loss is {loss}"
        if not self._needs_compiled().keep_previous:
            return TrainingError(f"{said}; the model holds the state after the step, as keep_previous is False")
        training.session.undo()
        held = training.state.read()
        why = why_not_finite(training.step.graph, {**held, **feeds}, loss, plugin_registry())
        return TrainingError(f"{said}: {why}")


class _Compiled:
    def __init__(
        self,
        optimizer: Optimizer,
        loss: Loss,
        metrics: Sequence[Metric],
        recompute: Recompute,
        keep_previous: bool,
    ) -> None:
        self.optimizer, self.loss, self.metrics, self.recompute = optimizer, loss, metrics, recompute
        self.keep_previous = keep_previous


class _Training:
    def __init__(self, step: StepGraph, program: Program, state: DeviceState, session: Session) -> None:
        self.step, self.program, self.state, self.session = step, program, state, session
        self.callbacks: tuple[Callback, ...] = ()


def _types_of(inputs: Any, dtype: str) -> dict[str, TensorType]:
    named = inputs if isinstance(inputs, Mapping) else {"input": inputs}
    if not named:
        raise ConfigError("inputs={} names no input")
    return {str(name): _type_of(given, dtype) for name, given in named.items()}


def _shown(types: Mapping[str, TensorType]) -> str:
    return ", ".join(f"{name!r}: {tensor}" for name, tensor in types.items())


def _type_of(given: Any, dtype: str) -> TensorType:
    if isinstance(given, TensorType):
        return given
    sizes = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise ConfigError(f"{given!r} is no shape of one sample")
    return TensorType(dtype, (symbol(BATCH), *sizes))


def _told_of(metric: Metric, loss: Loss) -> Metric:
    """Accuracy needs to know whether predictions are logits, and on which axis classes are."""
    if not isinstance(metric, Accuracy):
        return metric
    logits = metric.threshold is None and getattr(loss, "from_logits", False)
    axis = getattr(loss, "axis", None) if metric.axis is None else metric.axis
    return replace(metric, threshold=0.0 if logits else metric.threshold, axis=axis)
