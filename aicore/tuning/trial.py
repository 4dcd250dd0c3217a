"""One node with one kernel, run by the device as it would be run in a program, and timed alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicore.errors import TuningError
from aicore.ir import Builder, Node, TensorType, Value, numpy_dtype
from aicore.kernels import Candidate, Selection
from aicore.records import dataclass
from aicore.runtime import Backend, Executable, MemoryOptions, TimesSteps, make_plan
from aicore.tuning.repeats import Repeats

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Trial:
    """An executable in which step `index` is the node; before and after it, copies stand for the rest of a network.

    So the node's operands and results lie in the arena, as they do in the middle of a program.
    """

    backend: Backend
    executable: Executable
    index: int
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
        return cls(backend, backend.launch(plan), index, [backend.device.upload(array) for array in arrays])

    def results(self) -> list[Array]:
        """What the kernel computes."""
        return [self.backend.device.download(array) for array in self.executable.run(self.inputs)]

    def seconds(self) -> float:
        """What the node alone takes: in one run, unless the device has a better way."""
        if isinstance(self.executable, TimesSteps):
            return self.executable.time_step(self.index)
        return self.executable.profile(self.inputs)[1][self.index]

    def prepare(self) -> None:
        """Whatever timing needs is made now. Raises OutOfMemoryError where there is no room for it."""
        if isinstance(self.executable, TimesSteps):
            self.executable.time_step(self.index)


def variables(node: Node) -> list[Value]:
    """Operands whose numbers are not known, each once."""
    return list(dict.fromkeys(v for v in node.inputs if v is not None and v.constant is None))


def made_up(node: Node, repeats: Repeats | None = None) -> list[Array]:
    """Numbers for the operands that have none, the same in each process; of rows that repeat, each once.

    Raises TuningError where nothing that is made up would do.
    """
    rng = np.random.default_rng(0)
    return [_numbers(value.type, rng, repeats.shape_of_few(value) if repeats else None) for value in variables(node)]


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
