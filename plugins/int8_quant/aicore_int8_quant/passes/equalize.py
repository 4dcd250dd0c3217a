"""Channels of a depthwise convolution's input brought to like sizes, by powers of two: no bit of a result changes.

A depthwise convolution reads each channel by weights that no other channel has, with a scale of their own. So a
channel may be made larger where it is made, if its weights are made smaller: in codes, weights lose nothing, and the
channel gains steps. Source: M. Nagel et al., Data-free quantization through weight equalization and bias correction
(2019), which does it for any two layers, and with any factor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from aicore.ir import Graph, Node, Value, constant_value
from aicore.ops.activation import Relu
from aicore.ops.arithmetic import Add, Mul
from aicore.ops.convolution import Conv
from aicore.rewrite import Context
from aicore_int8_quant.job import Job
from aicore_int8_quant.linear_nodes import is_depthwise
from aicore_int8_quant.passes.annotate import Annotate
from aicore_int8_quant.passes.base import JobPass
from aicore_int8_quant.specs import Plain, Shared

Array = np.ndarray[Any, Any]
MOST_STEPS = 8
"""A channel grows by at most 2 to this power; what is smaller still is noise beside the others."""


@dataclass(frozen=True)
class Chain:
    """A tensor that depthwise convolutions alone read, and what makes it.

    readers: the convolutions. makers: nodes whose constants take the factors in: Adds and a Mul, or a Conv behind them.
    """

    value: Value
    readers: tuple[Node, ...]
    makers: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Equalize(JobPass):
    """Scales channels of the tensors of `equalizable`, which must have been observed channel by channel.

    The graph computes what it did, bit for bit, as long as nothing overflows or becomes subnormal. Of the ranges that
    channels may grow into, the one is taken whose codes give the convolution's results the least noise; the range
    as it is being among them, no tensor gets worse by that measure.
    """

    name: ClassVar[str] = "equalize-int8"

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        job, edits = self.job, dict[tuple[Node, int], tuple[int, Array]]()
        for chain in equalizable(graph, job).values():
            observer = job.observers[chain.value]
            exponents = growth(*observer.extremes(), _weight_powers(chain))
            job.observers[chain.value] = observer.joined(exponents)
            if not exponents.any() or not ctx.change(self.name):
                continue
            for key, axis, steps in _edits(chain, exponents):
                old = edits.get(key, (axis, np.zeros(1, np.int64)))
                edits[key] = axis, old[1] + steps if old[0] == axis else steps
        return _rewritten(graph, edits, job) if edits else graph


def equalizable(graph: Graph, job: Job) -> dict[Value, Chain]:
    """The tensors that Equalize may scale: what makes them and all that reads them can take a factor in."""
    if not job.options.per_channel:
        return {}
    users: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                users.setdefault(value, []).append(node)
    bound = {value for _, value in graph.outputs} | {
        value for spec in job.specs.values() if isinstance(spec, Shared) for value in spec.others
    }
    quantized = {one.node for one in job.linear}
    producer = {value: node for node in graph.nodes for value in node.outputs}
    found = {}
    for value, spec in job.specs.items():
        readers = tuple(users.get(value, ()))
        if not isinstance(spec, Plain) or value in bound or not readers:
            continue
        if not all(node in quantized and is_depthwise(node) and node.inputs[0] is value for node in readers):
            continue
        makers = _makers(value, producer, Counter({v: len(nodes) for v, nodes in users.items()}), job, bound)
        if makers:
            found[value] = Chain(value, readers, makers)
    return found


def growth(low: Array, high: Array, weights: Array) -> Array:
    """By which power of two each channel may grow, int64.

    low, high: range of each channel. weights: sum of the squares of the weights that read it.
    """
    least, most = min(float(low.min()), 0.0), max(float(high.max()), 0.0)
    best, found = np.inf, np.zeros(low.size, np.int64)
    for steps in range(MOST_STEPS + 1):  # the shorter side of the range may grow as far as the longer one
        ends = max(least * 2.0**steps, -max(most, -least)), min(most * 2.0**steps, max(most, -least))
        ends = (ends[0], most) if -least < most else (least, ends[1])
        exponents = _room(low, high, *ends)
        grown = np.minimum(np.ldexp(low, exponents).min(), 0), np.maximum(np.ldexp(high, exponents).max(), 0)
        noise = (grown[1] - grown[0]) ** 2 * float((weights * np.ldexp(1.0, -2 * exponents)).sum())
        if noise < best * (1 - 1e-9):
            best, found = noise, exponents
    return found


def _room(low: Array, high: Array, least: float, most: float) -> Array:
    """How often each channel can be doubled within a range."""
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.where(high > 0, most / high, np.inf)
        below = np.where(low < 0, least / low, np.inf)
    ratio = np.minimum(above, below)
    steps = np.where(np.isfinite(ratio), np.floor(np.log2(np.maximum(np.where(np.isfinite(ratio), ratio, 1), 1))), 0)
    found: Array = np.minimum(steps, MOST_STEPS).astype(np.int64)
    return found


def _makers(
    value: Value, producer: Mapping[Value, Node], uses: Mapping[Value, int], job: Job, bound: set[Value]
) -> tuple[Node, ...]:
    """From the tensor back to the Mul or Conv that takes the factors in; empty where something else is met first."""
    found: list[Node] = []
    node = producer.get(value)
    while node is not None:
        if isinstance(node.op, Conv):
            bias = node.inputs[2] if len(node.inputs) > 2 else None
            constants = (node.inputs[1], *([] if bias is None else [bias]))
            return (*found, node) if all(v is not None and v.constant is not None for v in constants) else ()
        if isinstance(node.op, Add | Mul) and (index := _vector_operand(node)) is not None:
            found.append(node)
            if isinstance(node.op, Mul):
                return tuple(found)
            source = node.inputs[1 - index]
        elif isinstance(node.op, Relu):
            source = node.inputs[0]
        else:
            return ()
        if source is None or uses[source] != 1 or source in job.specs or source in bound:
            return ()
        node = producer.get(source)
    return ()


def _vector_operand(node: Node) -> int | None:
    """Which operand is a constant with one number, or one for each channel, beside a float32 tensor of rank 4."""
    if node.outputs[0].rank != 4 or node.outputs[0].dtype != "float32":
        return None
    for index, value in enumerate(node.inputs):
        if value is None or value.constant is None:
            continue
        shape = (1,) * (4 - value.constant.array.ndim) + value.constant.array.shape
        other = node.inputs[1 - index]
        if len(shape) == 4 and shape[0] == shape[2] == shape[3] == 1 and other is not None and other.constant is None:
            return index
    return None


def _weight_powers(chain: Chain) -> Array:
    """The squares of the weights that read each channel, summed."""
    total = np.zeros(1)
    for node in chain.readers:
        assert isinstance(node.op, Conv)  # is_depthwise saw to it
        assert node.inputs[1] is not None
        assert node.inputs[1].constant is not None
        squares = node.inputs[1].constant.array.astype(np.float64) ** 2
        total = total + squares.reshape(node.op.group, -1).sum(1)
    return total


def _edits(chain: Chain, exponents: Array) -> Iterator[tuple[tuple[Node, int], int, Array]]:
    """(node, operand), the axis of the channels, and the power of two for each."""
    for node in chain.readers:
        weight = node.inputs[1]
        assert weight is not None
        assert weight.constant is not None
        yield (node, 1), 0, -np.repeat(exponents, weight.constant.array.shape[0] // exponents.size)
    for node in chain.makers:
        if isinstance(node.op, Conv):
            yield from (((node, index), 0, exponents) for index, v in enumerate(node.inputs) if index and v is not None)
        else:
            index = _vector_operand(node)
            assert index is not None  # _makers saw to it
            yield (node, index), 1, exponents


def _rewritten(graph: Graph, edits: Mapping[tuple[Node, int], tuple[int, Array]], job: Job) -> Graph:
    """The graph with the same values and other constants; the job's nodes are found anew."""
    touched = {node for node, _ in edits}
    nodes = []
    for node in graph.nodes:
        inputs = list(node.inputs)
        for index, value in enumerate(node.inputs):
            if node in touched and (node, index) in edits and value is not None:
                inputs[index] = _scaled(node, value, *edits[node, index])
        nodes.append(Node(node.op, tuple(inputs), node.outputs, node.origin) if node in touched else node)
    result = replace(graph, nodes=tuple(nodes))
    observers, job.notes[:] = job.observers, []
    Annotate(job).apply(result, Context())
    job.observers = observers
    return result


def _scaled(node: Node, value: Value, axis: int, exponents: Array) -> Value:
    assert value.constant is not None  # edits are of constants
    array = value.constant.array
    if not isinstance(node.op, Conv):
        array = np.broadcast_to(array.reshape((1,) * (4 - array.ndim) + array.shape), (1, exponents.size, 1, 1))
    shape = [1] * array.ndim
    shape[axis] = -1
    return constant_value(np.ldexp(array, exponents.reshape(shape)).astype(np.float32), value.name)
