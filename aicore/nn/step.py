"""The graphs of a model: the training step as a whole, evaluation, and prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aicore.autodiff import Recompute, gradients
from aicore.errors import ConfigError
from aicore.ir import Builder, Graph, TensorType, Value, numpy_dtype
from aicore.nn.initial import first_values
from aicore.nn.layer import Layer
from aicore.nn.losses import Loss
from aicore.nn.metrics import Metric
from aicore.nn.optimizers import Optimizer
from aicore.nn.scope import KEY, Variable
from aicore.nn.trace import Traced, trace
from aicore.records import dataclass

Array = np.ndarray[Any, Any]

TARGET = "target"
NORM = "gradient_norm"
"""The norm of all gradients together, as the update sees them: no finite number if one of them is none."""
STEP = "optimizer.step"
"""Updates so far, int64."""
RATE = "optimizer.learning_rate"
"""The learning rate, float32; where that is a schedule, a factor for it. No step changes it."""


@dataclass(frozen=True)
class Task:
    """What a model is trained for.

    inputs, target: types of the data, with a symbol for the batch.
    gradients: also give the gradients as outputs `grad.NAME`.
    norm: also give NORM.
    """

    layer: Layer
    inputs: Mapping[str, TensorType]
    target: TensorType
    loss: Loss
    metrics: Sequence[Metric]
    optimizer: Optimizer
    dtype: str = "float32"
    recompute: Recompute = "nothing"
    gradients: bool = False
    norm: bool = False


@dataclass(frozen=True)
class StepGraph:
    """The training step.

    variables: parameters and state of layers, by name, in the order of the graph's inputs.
    kept: first values of what the optimiser keeps, by name of the input.
    """

    graph: Graph
    variables: Mapping[str, Variable]
    kept: Mapping[str, Array]

    def first_values(self, seed: int) -> dict[str, Array]:
        """Of all state, by name of the input."""
        found = {**first_values(self.variables.values(), seed), **self.kept}
        if any(value.name == KEY for value in self.graph.inputs):
            found[KEY] = np.array([seed & 0xFFFFFFFF, 0], np.uint32)
        return found


def training_graph(task: Task) -> StepGraph:
    """Forward pass, loss, metrics, backward pass and update as one graph.

    Inputs are the data, `target`, and the state; `Graph.state` pairs each next value, `next.NAME`, with its input NAME.
    Running statistics, parameters and slots have the names of the state dict, and `optimizer.SLOT.PARAMETER`.
    Other outputs are `loss`, a scalar, the metrics by name, and what the task asks for.
    Raises ConfigError for parts that do not fit, UnsupportedError for an op without gradient.
    """
    traced = trace(task.layer, task.inputs, training=True, dtype=task.dtype)
    op, scope = traced.builder, traced.scope
    target = op.input(TARGET, task.target.dtype, task.target.shape)
    outputs = _judged(op, traced, target, task)
    loss = outputs["loss"]
    for penalty in scope.penalties:
        loss = op.Add(loss, penalty if penalty.dtype == loss.dtype else op.Cast(penalty, to=loss.dtype))
    trainable = [variable.name for variable in scope.variables.values() if variable.trainable]
    if not trainable:
        raise ConfigError("the model has no parameter to train")
    parameters = [scope.values[name] for name in trainable]
    found = gradients(op, loss, parameters, recompute=task.recompute)
    update = _updated(op, task.optimizer, dict(zip(trainable, parameters, strict=True)), found)
    state = {**scope.updates, **update.new}
    if KEY in scope.values:
        state[KEY] = op.Add(scope.values[KEY], op.constant(np.array([0, 1], np.uint32), "one_step"))
    if task.gradients:
        outputs |= {f"grad.{name}": value for name, value in zip(trainable, found, strict=True)}
    if task.norm:
        outputs[NORM] = op.GlobalNorm(*update.gradients)
    outputs |= {"loss": loss} | {f"next.{name}": value for name, value in state.items()}
    inputs = [*traced.inputs.values(), target, *scope.values.values(), *update.held]
    graph = op.graph(inputs, outputs, [(f"next.{name}", name) for name in state])
    return StepGraph(graph, scope.variables, update.first)


@dataclass(frozen=True)
class _Updated:
    """gradients: after clipping. held: inputs for what the optimiser keeps. new: next values by name. first: first
    values by name.
    """

    gradients: Sequence[Value]
    held: Sequence[Value]
    new: Mapping[str, Value]
    first: Mapping[str, Array]


def _updated(op: Builder, optimizer: Optimizer, parameters: Mapping[str, Value], found: Sequence[Value]) -> _Updated:
    step, rate = op.input(STEP, "int64", ()), op.input(RATE, "float32", ())
    following = op.Add(step, op.scalar(1, step))
    scheduled = optimizer.rate(op, following)
    slots: list[dict[str, Value]] = []
    first: dict[str, Array] = {
        STEP: np.array(0, np.int64),
        RATE: np.array(optimizer.initial_rate if scheduled is None else 1.0, np.float32),
    }
    for name, parameter in parameters.items():
        initial = optimizer.slots(parameter.type)
        slots.append({slot: Value(f"optimizer.{slot}.{name}", parameter.type) for slot in initial})
        for slot, number in initial.items():
            shape = parameter.type.static_shape
            first[f"optimizer.{slot}.{name}"] = np.full(shape, number, numpy_dtype(parameter.dtype))
    learning_rate = rate if scheduled is None else op.Mul(scheduled, rate)
    clipped = optimizer.clipped(op, found, None)
    new, kept = optimizer.updated(op, learning_rate, following, list(parameters.values()), clipped, slots)
    held = [step, rate, *(value for own in slots for value in own.values())]
    state = {STEP: following, **dict(zip(parameters, new, strict=True))}
    for own, results in zip(slots, kept, strict=True):
        state |= {value.name: results[slot] for slot, value in own.items()}
    return _Updated(clipped[0], held, state, first)


def evaluation_graph(task: Task) -> Graph:
    """Loss and metrics of the model as it is used: inputs are the data, `target`, and the variables."""
    traced = trace(task.layer, task.inputs, training=False, dtype=task.dtype)
    op = traced.builder
    target = op.input(TARGET, task.target.dtype, task.target.shape)
    outputs = _judged(op, traced, target, task)
    return op.graph([*traced.inputs.values(), target, *traced.scope.values.values()], outputs)


def prediction_graph(
    layer: Layer, inputs: Mapping[str, TensorType], dtype: str = "float32", values: Mapping[str, Array] | None = None
) -> Graph:
    """The model as it is used.

    values: of all variables, which become constants; without them they are inputs.
    """
    traced = trace(layer, inputs, training=False, dtype=dtype)
    held = traced.scope.values
    graph = traced.builder.graph([*traced.inputs.values(), *held.values()], traced.outputs)
    if values is None:
        return graph
    builder = Builder()
    known: dict[Value | None, Value] = {v: builder.constant(values[name], name) for name, v in held.items()}
    for node in graph.nodes:
        names = tuple(value.name for value in node.outputs)
        made = builder.apply(node.op, *(known.get(v, v) for v in node.inputs), names=names, origin=node.origin)
        known.update(zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=True))
    return builder.graph(traced.inputs.values(), {name: known.get(v, v) for name, v in graph.outputs})


def _judged(op: Builder, traced: Traced, target: Value, task: Task) -> dict[str, Value]:
    """The loss and the metrics, averaged over the batch."""
    if len(traced.outputs) != 1:
        raise ConfigError(f"the model has {len(traced.outputs)} outputs; one is trained")
    (prediction,) = traced.outputs.values()
    terms = {"loss": task.loss.build(op, prediction, target)}
    terms |= {metric.name: metric.build(op, prediction, target) for metric in task.metrics}
    return {name: op.ReduceMean(value, keepdims=0) for name, value in terms.items()}
