"""What a model runs: the training step, evaluation and prediction, and the numbers that they share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aicore.api import compile as compile_graph
from aicore.autodiff import Recompute
from aicore.errors import ConfigError, InputError, TrainingError
from aicore.ir import Graph, TensorType, symbol
from aicore.nn.callbacks import Callback
from aicore.nn.checkpoint import Progress
from aicore.nn.data import BATCH, Samples, array_of, fitting, input_types, target_type
from aicore.nn.diagnosis import why_not_finite
from aicore.nn.initial import first_values
from aicore.nn.layer import Layer
from aicore.nn.losses import Loss
from aicore.nn.metrics import Metric
from aicore.nn.optimizers import Optimizer
from aicore.nn.schedules import Schedule, schedule
from aicore.nn.scope import Rows, Variable
from aicore.nn.step import NORM, RATE, STEP, TARGET, StepGraph, Task, evaluation_graph, prediction_graph, training_graph
from aicore.nn.trace import Traced, trace
from aicore.plugins import PluginRegistry, plugin_registry
from aicore.program import Program
from aicore.records import dataclass
from aicore.session import DeviceState, Session

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Goal:
    """What a model is trained for; see `Model.compile`."""

    optimizer: Optimizer
    loss: Loss
    metrics: tuple[Metric, ...]
    recompute: Recompute = "nothing"
    keep_previous: bool = True
    check_gradients: bool | None = None

    @property
    def reported(self) -> list[str]:
        """Outputs of a step that logs show."""
        return ["loss", *(metric.name for metric in self.metrics)]


class Programs:
    """The numbers of a layer, and the programs that use them: on the host until the first step, then on the device.

    inputs: types of the data by name; None until they are known. goal: None until the model is compiled.
    training: None until the first data. options: of `aicore.compile`.
    """

    def __init__(
        self, layer: Layer, target: str | None, seed: int, dtype: str, options: Mapping[str, Any], inputs: Any
    ) -> None:
        self.layer, self.target, self.seed, self.dtype = layer, target, seed, dtype
        self.options = options
        self.inputs = None if inputs is None else types_of(inputs, dtype)
        self.goal: Goal | None = None
        self.training: Training | None = None
        self._values: dict[str, Array] = {}  # of variables, until they are on the device
        self._rows: Sequence[Rows] = ()
        self._others: dict[str, Session] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return ("input",) if self.inputs is None else tuple(self.inputs)

    @property
    def has_values(self) -> bool:
        return bool(self._values) or self.training is not None

    def aim(self, goal: Goal) -> None:
        """Train for something else from now on, with the numbers that there are."""
        self._values = self.values() if self.has_values else {}
        self.goal, self.training = goal, None
        self._others.clear()

    def needs_goal(self) -> Goal:
        if self.goal is None:
            raise ConfigError("call compile(optimizer, loss) before training or evaluating")
        return self.goal

    def needs_training(self) -> Training:
        if self.training is None:
            raise ConfigError("nothing was trained yet: there has been no data")
        return self.training

    # ---- numbers ---------------------------------------------------------------------------------------------------

    def build(self, inputs: Any = None) -> None:
        """See `Model.build`."""
        if inputs is not None:
            types = types_of(inputs, self.dtype)
            if self.has_values and types != self.inputs:
                raise ConfigError(f"the model is built for {_shown(self.inputs or {})}, got {_shown(types)}")
            self.inputs = types
        if not self.has_values:
            traced = self._traced()
            self._values = first_values(traced.scope.variables.values(), self.seed)
            self._rows = [rows for rows in traced.scope.rows if rows.index in traced.inputs.values()]

    def variables(self) -> Mapping[str, Variable]:
        """What the layers ask for, by name. Raises ConfigError while the shapes of inputs are not known."""
        return self._traced().scope.variables

    def values(self) -> dict[str, Array]:
        """Parameters and running statistics by name, as copies."""
        self.build()
        if self.training is not None:
            return self.training.state.read(list(self.training.step.variables))
        return {name: array.copy() for name, array in self._values.items()}

    def set_values(self, values: Mapping[str, Any], strict: bool) -> None:
        """See `Model.load_state_dict`."""
        held = self.values()
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
        if self.training is not None:
            self.training.state.write(cast)
        else:
            self._values |= cast
            self._others.clear()

    # ---- programs --------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        """See `Model.graph`."""
        values = self.values()
        return prediction_graph(self.layer, self._known_inputs(), self.dtype, values)

    def ready(self, samples: Samples) -> Training:
        """The training step for such data; numbers go to the device when it is made."""
        self._see(samples)
        if self.training is None:
            goal = self.needs_goal()
            step = training_graph(self._task(samples))
            program = compile_graph(step.graph, self.target, **self.options)
            state = DeviceState(program.device, {**step.first_values(self.seed), **self._values})
            session = program.session(state, keep_previous=goal.keep_previous)
            self.training = Training(goal, step, program, state, session, self.options)
            self._values = {}
            self._others.clear()
        return self.training

    def evaluation(self, samples: Samples) -> Session:
        return self._other("evaluate", samples)

    def prediction(self, samples: Samples) -> Session:
        return self._other("predict", samples)

    def feeds(self, samples: Samples, session: Session) -> dict[str, Array]:
        """What a session takes of samples. Raises InputError for numbers that do not fit."""
        arrays = dict(samples.arrays)
        if TARGET in session.fed:
            if samples.target is None:
                raise InputError("there is no y to compare with")
            arrays[TARGET] = samples.target
        found = {name: fitting(array, session.fed[name], name) for name, array in arrays.items()}
        for rows in self._rows:
            if rows.index.name in found:
                _check_rows(rows, found[rows.index.name])
        return found

    def _other(self, what: str, samples: Samples) -> Session:
        self._see(samples)
        if what not in self._others:
            graph = (
                evaluation_graph(self._task(samples))
                if what == "evaluate"
                else prediction_graph(self.layer, self._known_inputs(), self.dtype)
            )
            program = compile_graph(graph, self.target, **self.options)
            self._others[what] = program.session(self.training.state if self.training else self._values)
        return self._others[what]

    def _traced(self) -> Traced:
        return trace(self.layer, self._known_inputs(), training=False, dtype=self.dtype)

    def _known_inputs(self) -> dict[str, TensorType]:
        if self.inputs is None:
            raise ConfigError("the shape of inputs is not known yet; pass inputs= or some data first")
        return self.inputs

    def _see(self, samples: Samples) -> None:
        if self.inputs is None:
            self.inputs = input_types(samples, self.dtype)
        self.build()

    def _task(self, samples: Samples) -> Task:
        goal = self.needs_goal()
        if samples.target is None:
            raise InputError("there is no y to learn")
        return Task(
            self.layer,
            self._known_inputs(),
            target_type(samples.target, self.dtype),
            goal.loss,
            goal.metrics,
            goal.optimizer,
            self.dtype,
            goal.recompute,
            norm=self._checks_gradients(goal),
        )

    def _checks_gradients(self, goal: Goal) -> bool:
        if goal.check_gradients is not None:
            return goal.check_gradients
        registry = registry_of(self.options)
        name = registry.default_target()[0] if self.target is None else registry.device_name(self.target)
        return registry.devices()[name][1].kind == "cpu"


class Training:
    """A training step with its state on the device. callbacks: those whose state checkpoints keep."""

    def __init__(
        self,
        goal: Goal,
        step: StepGraph,
        program: Program,
        state: DeviceState,
        session: Session,
        options: Mapping[str, Any],
    ) -> None:
        self.step, self.program, self.state, self.session = step, program, state, session
        self.callbacks: tuple[Callback, ...] = ()
        self._goal = goal
        self._registry = registry_of(options)
        self._fetched = [name for name in (*goal.reported, NORM) if name in dict(step.graph.outputs)]

    def run(self, feeds: Mapping[str, Array], progress: Progress) -> dict[str, float]:
        """One step; returns loss and metrics.

        Raises TrainingError when the loss, or what is watched of the gradients, is no finite number. The step is undone
        then, as far as the state before it is kept.
        """
        found = self.session.run(feeds, self._fetched)
        for name, said in (("loss", "the loss is"), (NORM, "the norm of the gradients is")):
            if name in found and not math.isfinite(found[name]):
                where = f"step {progress.step + 1}, epoch {progress.epoch + 1}"
                raise self._undone(f"{where}: {said} {float(found[name])}", feeds, float(found[name]))
        return {name: float(found[name]) for name in self._goal.reported}

    def _undone(self, said: str, feeds: Mapping[str, Array], number: float) -> TrainingError:
        if not self._goal.keep_previous:
            return TrainingError(f"{said}; the model holds the state after the step, as keep_previous is False")
        self.session.undo()
        why = why_not_finite(self.step.graph, {**self.state.read(), **feeds}, number, self._registry)
        return TrainingError(f"{said}: {why}")

    @property
    def learning_rate(self) -> float:
        """See `Model.learning_rate`."""
        held = self.state.read([RATE, STEP])
        chosen = self._goal.optimizer.learning_rate
        rate = float(held[RATE])
        return rate * chosen.value(int(held[STEP]) + 1) if isinstance(chosen, Schedule) else rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        if isinstance(rate, Schedule) or schedule(rate).value(1) < 0:
            raise ConfigError(f"learning rate {rate!r} is no number from 0")
        chosen = self._goal.optimizer.learning_rate
        if isinstance(chosen, Schedule):
            base = chosen.value(int(self.state.read([STEP])[STEP]) + 1)
            if base == 0:
                raise ConfigError("the schedule is at 0 now, which cannot be scaled")
            rate = rate / base
        self.state.write({RATE: np.array(rate, np.float32)})


def registry_of(options: Mapping[str, Any]) -> PluginRegistry:
    """The plugins that options of `aicore.compile` name, else the installed ones."""
    given: PluginRegistry | None = options.get("registry")
    return plugin_registry() if given is None else given


def _check_rows(rows: Rows, index: Array) -> None:
    """Raise InputError for integers that are no rows."""
    ends = (int(index.min()), int(index.max())) if index.size else ()
    wrong = [number for number in ends if not 0 <= number < rows.count]
    if wrong:
        layer = f"layer {rows.layer!r}" if rows.layer else "the layer"
        raise InputError(f"{rows.index.name!r} holds {wrong[0]}, and {layer} has rows 0 to {rows.count - 1}")


def types_of(inputs: Any, dtype: str) -> dict[str, TensorType]:
    """Types of a model's inputs: of shapes of a sample, or of types. Raises ConfigError for what is neither."""
    named = inputs if isinstance(inputs, Mapping) else {"input": inputs}
    if not named:
        raise ConfigError("inputs={} names no input")
    return {str(name): _type_of(given, dtype) for name, given in named.items()}


def _type_of(given: Any, dtype: str) -> TensorType:
    if isinstance(given, TensorType):
        return given
    sizes = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise ConfigError(f"{given!r} is no shape of one sample")
    return TensorType(dtype, (symbol(BATCH), *sizes))


def _shown(types: Mapping[str, TensorType]) -> str:
    return ", ".join(f"{name!r}: {tensor}" for name, tensor in types.items())
