"""One node with one kernel, or a small graph, run by the device as in a program, and timed alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicore.errors import TuningError
from aicore.ir import Builder, Graph, Node, TensorType, Value, numpy_dtype
from aicore.kernels import Candidate, Selection
from aicore.records import dataclass
from aicore.runtime import Backend, Executable, MemoryOptions, TimesSteps, make_plan, only_renames
from aicore.tuning.repeats import Repeats

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Trial:
    """An executable some of whose steps are timed; before and after these, copies stand for the rest of a network.

    So operands and results of what is timed lie in the arena, as they do in the middle of a program.
    """

    backend: Backend
    executable: Executable
    steps: Sequence[int]
    inputs: Sequence[Any]

    @classmethod
    def of(cls, node: Node, candidate: Candidate, arrays: Sequence[Array], backend: Backend) -> Trial:
        """arrays: for the operands that are no constants, in order. Raises AicoreError where it cannot be launched."""
        builder = Builder()
        inputs = [
            builder.input(f"x{i}", value.dtype, value.type.static_shape) for i, value in enumerate(variables(node))
        ]
        copies = dict(zip(variables(node), [_copied(builder, value) for value in inputs], strict=True))
        index = len(builder.nodes)
        operands = tuple(v if v is None or v.constant is not None else copies[v] for v in node.inputs)
        tried = Node(node.op, operands, tuple(Value(v.name, v.type) for v in node.outputs), node.origin)
        builder.nodes.append(tried)
        outputs = [_copied(builder, value) for value in tried.outputs]
        selections = {one: backend.select(one) for one in builder.nodes if one is not tried}
        selections[tried] = Selection(candidate.kernel, (candidate,))
        plan = make_plan(backend.name, builder.nodes, inputs, outputs, selections, MemoryOptions(), backend.constants)
        return cls(backend, backend.launch(plan), (index,), [backend.device.upload(array) for array in arrays])

    @classmethod
    def of_graph(cls, graph: Graph, arrays: Sequence[Array], backend: Backend) -> Trial:
        """All nodes of a graph of known sizes, on the kernels that would be chosen for it.

        arrays: for its inputs. Raises AicoreError where the device lacks a kernel, or it cannot be launched.
        """
        builder = Builder()
        inputs = [builder.input(v.name, v.dtype, v.type.static_shape) for v in graph.inputs]
        known = dict(zip(graph.inputs, [_copied(builder, value) for value in inputs], strict=True))
        mine = []
        for node in graph.nodes:
            operands = tuple(None if v is None else known.get(v, v) for v in node.inputs)
            mine.append(Node(node.op, operands, node.outputs, node.origin))
        builder.nodes.extend(mine)
        outputs = [_copied(builder, known.get(value, value)) for _, value in graph.outputs]
        selections = {node: backend.select(node) for node in builder.nodes if not only_renames(node)}
        plan = make_plan(backend.name, builder.nodes, inputs, outputs, selections, MemoryOptions(), backend.constants)
        steps = [i for i, step in enumerate(plan.steps) if step.node in mine]
        return cls(backend, backend.launch(plan), steps, [backend.device.upload(array) for array in arrays])

    def results(self) -> list[Array]:
        """What the kernel computes."""
        return [self.backend.device.download(array) for array in self.executable.run(self.inputs)]

    def seconds(self) -> float:
        """What the steps take: in one run, unless the device has a better way."""
        if isinstance(self.executable, TimesSteps):
            return sum(self.executable.time_step(i) for i in self.steps)
        taken = self.executable.profile(self.inputs)[1]
        return sum(taken[i] for i in self.steps)

    def prepare(self) -> None:
        """Whatever timing needs is made now. Raises OutOfMemoryError where there is no room for it."""
        if isinstance(self.executable, TimesSteps):
            for i in self.steps:
                self.executable.time_step(i)


def variables(node: Node) -> list[Value]:
    """Operands whose numbers are not known, each once."""
    return list(dict.fromkeys(v for v in node.inputs if v is not None and v.constant is None))


def made_up(node: Node, repeats: Repeats | None = None) -> list[Array]:
    """Numbers for the operands that have none, the same in each process; of rows that repeat, each once.

    Raises TuningError where nothing that is made up would do.
    """
    rng = np.random.default_rng(0)
    return [_numbers(value.type, rng, repeats.shape_of_few(value) if repeats else None) for value in variables(node)]


def made_up_of(values: Sequence[Value]) -> list[Array]:
    """Numbers for the inputs of a graph; those of 8-bit integers are of their whole range."""
    rng = np.random.default_rng(0)
    return [_codes(v.type, rng) if v.dtype in ("int8", "uint8") else _numbers(v.type, rng, None) for v in values]


def _codes(tensor: TensorType, rng: np.random.Generator) -> Array:
    limits = np.iinfo(numpy_dtype(tensor.dtype))
    return rng.integers(limits.min, limits.max, tensor.static_shape, endpoint=True).astype(limits.dtype)


def _numbers(tensor: TensorType, rng: np.random.Generator, shape: tuple[int, ...] | None) -> Array:
    dtype = numpy_dtype(tensor.dtype)
    if not tensor.is_static or tensor.dtype == "string":
        raise TuningError(f"operands of type {tensor} cannot be made up")
    shape = tensor.static_shape if shape is None else shape
    if dtype.kind in "biu":
        return rng.integers(0, 2, shape).astype(dtype)  # small enough to be indices
    return rng.standard_normal(shape).astype(dtype)


def _copied(builder: Builder, value: Value) -> Value:
    copied: Value = builder.Expand(value, shape=value.type.static_shape)
    return copied
