"""The earlier version's entry points, on records and on arrays by name.

Each call builds one graph and runs it as one program; programs are kept for later calls with the same records and
shapes. Nothing is changed in place: results are new arrays. What trains for long is better off with a Model, or with
`training_graph` and a session, whose parameters stay on the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from aicore.api import compile as compile_graph
from aicore.autodiff import grad, gradients
from aicore.errors import InputError, ModelError
from aicore.frontends.records import Record, graph_of, parameters_of, read_records
from aicore.ir import Builder, Graph, TensorType, Value, dtype_name, numpy_dtype
from aicore.nn.optimizers import Optimizer
from aicore.nn.optimizers import optimizer as optimizer_of
from aicore.nn.schedules import schedule
from aicore.program import Program

Array: TypeAlias = np.ndarray[Any, Any]
Arrays: TypeAlias = "Mapping[str, Any]"

OpStruct = Record
"""A record of the earlier version: OpStruct(op_type, inputs, params, output_id, extra_params)."""

STEP = "optimizer.step"
_NEXT = "next."


class OpExtraParams(SimpleNamespace):
    """Extra parameters of a record, as keywords or set afterwards: `p = OpExtraParams(); p.kernel_h = 3`."""


@dataclass(frozen=True)
class Trained:
    """What a step of training gives.

    loss: of the batch, before the update. parameters: new ones by name. state: what the optimiser keeps, by name.
    """

    loss: float
    parameters: Mapping[str, Array]
    state: Mapping[str, Array]


def run_graph_forward(
    records: Sequence[Any], tensors: Arrays, outputs: str | Sequence[str] | None = None, *, target: str | None = None
) -> dict[str, Array]:
    """Outputs by name. LOSS records are left out, unless one is asked for.

    tensors: arrays by name, all that no record computes. outputs: None for all that no record reads.
    target: device, as in `aicore.compile`. Raises what `graph_of` raises.
    """
    names = [outputs] if isinstance(outputs, str) else outputs
    wanted = set(names or ())
    kept = [raw for raw, read in zip(records, read_records(records), strict=True) if _counts(read, wanted)]
    return _run(graph_of(kept, tensors, names), tensors, target)


def run_graph_with_loss(
    records: Sequence[Any],
    tensors: Arrays,
    loss: str | None = None,
    label: str | None = None,
    *,
    outputs: str | Sequence[str] | None = None,
    target: str | None = None,
) -> tuple[float, dict[str, Array]]:
    """The loss, and the outputs by name: those asked for, or what the loss is computed from.

    loss, label: `mse`, `bce` or `cce`, and the target's name, for records without a LOSS; the prediction is the last
        record's output.
    """
    whole = _with_loss(records, loss, label)
    prediction = whole.prediction if outputs is None else outputs
    names = [prediction] if isinstance(prediction, str) else list(prediction)
    found = _run(graph_of(whole.records, tensors, [*names, whole.name]), tensors, target)
    return float(found[whole.name]), {name: found[name] for name in names}


def run_graph_backward(
    records: Sequence[Any],
    tensors: Arrays,
    loss: str | None = None,
    label: str | None = None,
    *,
    wrt: Sequence[str] | None = None,
    target: str | None = None,
) -> dict[str, Array]:
    """Gradients of the loss by name: of `wrt`, or of all that records name in `params`. See run_graph_with_loss."""
    whole = _with_loss(records, loss, label)
    names = list(parameters_of(records)) if wrt is None else list(wrt)
    graph = grad(graph_of(whole.records, tensors, [whole.name]), whole.name, names)
    found = _run(graph, tensors, target)
    return {name: found[f"grad.{name}"] for name in names}


def train_step(
    records: Sequence[Any],
    tensors: Arrays,
    optimizer: Optimizer | str = "sgd",
    state: Arrays | None = None,
    loss: str | None = None,
    label: str | None = None,
    *,
    target: str | None = None,
) -> Trained:
    """Forward pass, loss, backward pass and update of all that records name in `params`, as one program.

    state: what the step before gave; None begins.

        for x, y in batches:
            trained = train_step(records, {**weights, "x": x, "y": y}, Adam(1e-3), state, "bce", "y")
            weights, state = trained.parameters, trained.state
    """
    chosen = optimizer_of(optimizer)
    names = parameters_of(records)
    graph = training_graph(records, tensors, chosen, loss, label)
    kept = first_state(chosen, {name: tensors[name] for name in names}) if state is None else state
    found = _run(graph, {**tensors, **kept}, target)
    parameters = {name: found[_NEXT + name] for name in names}
    return Trained(float(found["loss"]), parameters, {name: found[_NEXT + name] for name in kept})


def optimizer_update(
    parameters: Arrays,
    gradients: Arrays,
    optimizer: Optimizer | str = "sgd",
    state: Arrays | None = None,
    *,
    target: str | None = None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """New parameters and state of the optimiser, for gradients by the parameters' names.

    state: what the update before gave; None begins. Raises InputError when a gradient is missing.
    """
    chosen = optimizer_of(optimizer)
    missing = [name for name in parameters if name not in gradients]
    if missing:
        raise InputError(f"there is no gradient for the parameter {missing[0]!r}")
    op = Builder()
    values = {name: _input(op, name, array) for name, array in parameters.items()}
    slopes = [_input(op, f"grad.{name}", gradients[name]) for name in parameters]
    new, held = _updated(op, chosen, values, slopes)
    graph = op.graph([*values.values(), *slopes, *held], {_NEXT + name: value for name, value in new.items()})
    kept = first_state(chosen, parameters) if state is None else state
    feeds = {**parameters, **{f"grad.{name}": gradients[name] for name in parameters}, **kept}
    found = _run(graph, feeds, target)
    return {name: found[_NEXT + name] for name in parameters}, {name: found[_NEXT + name] for name in kept}


def training_graph(
    records: Sequence[Any],
    tensors: Arrays,
    optimizer: Optimizer | str = "sgd",
    loss: str | None = None,
    label: str | None = None,
) -> Graph:
    """The step of `train_step` as a graph: outputs `loss` and `next.NAME`, which `Graph.state` pairs with inputs."""
    whole = _with_loss(records, loss, label)
    names = parameters_of(records)
    graph = graph_of(whole.records, tensors, [whole.name])
    inputs = {value.name: value for value in graph.inputs}
    unread = [name for name in names if name not in inputs]
    if unread:
        raise ModelError(f"the parameter {unread[0]!r} is no tensor that is given; a record computes it")
    op = Builder()
    op.nodes.extend(graph.nodes)
    ((_, value),) = graph.outputs
    parameters = {name: inputs[name] for name in names}
    found = gradients(op, value, list(parameters.values()))
    new, held = _updated(op, optimizer_of(optimizer), parameters, found)
    outputs = {"loss": value, **{_NEXT + name: each for name, each in new.items()}}
    return op.graph([*graph.inputs, *held], outputs, [(_NEXT + name, name) for name in new])


def first_state(optimizer: Optimizer | str, parameters: Arrays) -> dict[str, Array]:
    """What an optimiser keeps, before the first update: its step, and its slots for each parameter."""
    chosen = optimizer_of(optimizer)
    state: dict[str, Array] = {STEP: np.array(0, np.int64)}
    for name, array in parameters.items():
        tensor = _type_of(array)
        for slot, number in chosen.slots(tensor).items():
            state[f"optimizer.{slot}.{name}"] = np.full(tensor.static_shape, number, numpy_dtype(tensor.dtype))
    return state


def _updated(
    op: Builder, optimizer: Optimizer, parameters: Mapping[str, Value], found: Sequence[Value]
) -> tuple[dict[str, Value], list[Value]]:
    """Next values of parameters and state by name, and the inputs for the state."""
    step = op.input(STEP, "int64", ())
    following = op.Add(step, op.scalar(1, step))
    slots = [
        {slot: Value(f"optimizer.{slot}.{name}", value.type) for slot in optimizer.slots(value.type)}
        for name, value in parameters.items()
    ]
    rate = schedule(optimizer.learning_rate).build(op, following)
    new, kept = optimizer.build(op, rate, following, None, list(parameters.values()), found, slots)
    state = dict(zip(parameters, new, strict=True)) | {STEP: following}
    for own, results in zip(slots, kept, strict=True):
        state |= {value.name: results[slot] for slot, value in own.items()}
    return state, [step, *(value for own in slots for value in own.values())]


@dataclass(frozen=True)
class _Whole:
    """Records with a loss: its name, and that of what it is computed from."""

    records: Sequence[Any]
    name: str
    prediction: str


def _with_loss(records: Sequence[Any], loss: str | None, label: str | None) -> _Whole:
    read = read_records(records)
    losses = [record for record in read if record.kind == "LOSS"]
    if len(losses) > 1:
        raise ModelError(f"there are {len(losses)} LOSS records, wants one: {', '.join(r.place for r in losses)}")
    if losses:
        if loss is not None or label is not None:
            raise ModelError(f"{losses[0].place} is the loss, so that loss={loss!r}, label={label!r} have no use")
        return _Whole(records, losses[0].output, losses[0].inputs[0] if losses[0].inputs else "")
    if loss is None or label is None:
        raise ModelError("the records have no LOSS: name the loss (mse, bce, cce) and the label's tensor")
    written = [record.place for record in read if record.output == label]
    if written:
        raise ModelError(f"the label's name {label!r} is that of what {written[0]} computes; rename one of them")
    prediction = read[-1].output if read else ""
    added = Record("LOSS", (prediction, label), (), "loss", {"loss_type": loss})
    return _Whole([*records, added], "loss", prediction)


def _counts(record: Any, wanted: set[str]) -> bool:
    return record.kind != "LOSS" or record.output in wanted


def _run(graph: Graph, tensors: Arrays, target: str | None) -> dict[str, Array]:
    missing = [value.name for value in graph.inputs if value.name not in tensors]
    if missing:
        raise InputError(f"there is no array for the tensor {missing[0]!r}")
    program = _program(_Written(str(graph), graph), target)
    return program.run({value.name: tensors[value.name] for value in graph.inputs})


@dataclass(frozen=True)
class _Written:
    """A graph that equals others with the same text, which has the names and the numbers of all constants."""

    text: str
    graph: Graph = field(compare=False)


@lru_cache(maxsize=32)
def _program(written: _Written, target: str | None) -> Program:
    return compile_graph(written.graph, target)


def _type_of(array: Any) -> TensorType:
    found = np.asarray(array)
    return TensorType(dtype_name(found.dtype), found.shape)


def _input(op: Builder, name: str, array: Any) -> Value:
    tensor = _type_of(array)
    return op.input(name, tensor.dtype, tensor.shape)
