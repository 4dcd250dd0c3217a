"""What the user calls: a compiled graph that takes arrays and gives arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aicore.errors import ExecutionError, InputError
from aicore.ir import Graph, TensorType
from aicore.runtime import HOST, Device, Explanation, Placement, Plan, Profile, Specialised, Specialiser, type_of
from aicore.runtime.explanation import plans_of
from aicore.runtime.feeds import check_shapes, read_feeds, read_shapes

Array = np.ndarray[Any, Any]


class Program:
    """A compiled graph. The first call with new input shapes specialises it for them; later calls reuse that.

    Threads may call one program at once; no lock is held while kernels run. Results are the caller's: no later run
    changes them. `aicore.compile` makes programs.

    graph: the graph after the passes that do not depend on shapes.
    target: why this device was chosen.
    """

    def __init__(
        self, graph: Graph, device: Device, specialiser: Specialiser, target: str, reports: tuple[Any, ...] = ()
    ) -> None:
        self.graph = graph
        self.device = device
        self.target = target
        self._specialiser = specialiser
        self._reports = reports
        self._latest: Specialised | None = None

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Types of the inputs by name, in order; dims may be symbols."""
        return {value.name: value.type for value in self.graph.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Types of the outputs by name, in order; dims may be symbols."""
        return {name: value.type for name, value in self.graph.outputs}

    @property
    def state(self) -> tuple[tuple[str, str], ...]:
        """(output, input) pairs: the caller passes such an output as that input of the next call."""
        return self.graph.state

    def __call__(self, /, **feeds: Any) -> dict[str, Array]:
        """Outputs by name, for inputs by name; `run` takes names that are no identifiers."""
        return self.run(feeds)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """NumPy arrays by output name.

        feeds: for each input an array, anything with `__array__` or DLPack, or nested lists of numbers.
        outputs: names of the outputs wanted; None means all.
        Raises InputError naming the input or output that does not fit, ExecutionError when a kernel fails.
        """
        if outputs is not None:
            self._check_outputs(outputs)
        arrays = read_feeds(self.graph.inputs, feeds)
        try:
            results = self._specialise(arrays).run(self._entering(arrays))
        except MemoryError as error:
            raise ExecutionError(f"no memory is left for the run: {error}") from error
        names = [name for name, _ in self.graph.outputs]
        named = dict(zip(names, self._leaving(results), strict=True))
        return named if outputs is None else {name: named[name] for name in outputs}

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> BoundProgram:
        """A call that reads and writes the caller's arrays each time, without copies where the device allows it.

        inputs, outputs: dense NumPy arrays for all inputs and all outputs, of the right types.
        Raises InputError naming what does not fit.
        """
        return BoundProgram(self, inputs, outputs)

    def specialise(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Compile ahead for inputs of these shapes. Raises InputError when one does not fit."""
        sizes = read_shapes(self.graph.inputs, shapes)
        check_shapes(self.graph.inputs, sizes)
        signature = zip(self.inputs.values(), sizes, strict=True)
        self._latest = self._specialiser.get(tuple(TensorType(tensor.dtype, size) for tensor, size in signature))

    def explain(self) -> Explanation:
        """Passes with matches and times, placement, kernels with every candidate, memory; text by `str`.

        Kernels and memory are those of the latest specialisation.
        """
        latest = self._current()
        reports = self._reports if latest is None else (*self._reports, latest.report)
        return Explanation(
            self.target,
            tuple(r for r in reports if r is not None),
            latest,
            self._specialiser.statistics,
            self._specialiser.tuning,
        )

    def profile(self, feeds: Mapping[str, Any]) -> Profile:
        """Run once and measure each step on the host's clock, the device being idle before and after it."""
        arrays = read_feeds(self.graph.inputs, feeds)
        return self._specialise(arrays).profile(self._entering(arrays))

    @property
    def plan(self) -> tuple[Plan, ...]:
        """The plans of the latest specialisation, one for each stretch on one device; empty before the first call."""
        return tuple(plans_of(self._current()))

    @property
    def placement(self) -> Placement | None:
        """Where the nodes of the latest specialisation run; text by `str`."""
        latest = self._current()
        return None if latest is None else latest.placement

    @property
    def steps_run(self) -> int:
        """Steps that devices ran for this program so far, by specialisations that are still kept."""
        return sum(specialised.steps_run for specialised in self._specialiser.kept())

    def release(self) -> None:
        """Give back memory that no run is using; the next run takes it again."""
        self._specialiser.release()

    def _check_outputs(self, names: Iterable[str]) -> None:
        known = list(self.outputs)
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise InputError(f"outputs must be a list of names, got {names!r}; the program has {known}")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InputError(f"no such output {unknown[0]!r}; the program has {', '.join(map(repr, known))}")

    def _specialise(self, arrays: Sequence[Array]) -> Specialised:
        inputs = self.graph.inputs
        signature = tuple([TensorType(v.dtype, a.shape) for v, a in zip(inputs, arrays, strict=True)])
        specialised = self._specialiser.find(signature)
        if specialised is None:  # shapes that are known are known to fit
            check_shapes(inputs, [array.shape for array in arrays])
            specialised = self._specialiser.get(signature)
        self._latest = specialised
        return specialised

    def _current(self) -> Specialised | None:
        """The latest specialisation; that of the graph's own types, if they leave no choice."""
        if self._latest is None and all(tensor.is_static for tensor in self.inputs.values()):
            self._latest = self._specialiser.get(tuple(self.inputs.values()))
        return self._latest

    def _entering(self, arrays: Sequence[Array]) -> Sequence[Any]:
        return arrays if self._specialiser.home == HOST else [self.device.upload(array) for array in arrays]

    def _leaving(self, results: Sequence[Any]) -> Sequence[Array]:
        return results if self._specialiser.home == HOST else [self.device.download(array) for array in results]


class BoundProgram:
    """A program with arrays fixed; `run` reads the inputs as they are then, and overwrites the outputs."""

    def __init__(self, program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        program._check_outputs(outputs)
        if not isinstance(outputs, Mapping):
            raise InputError(f"outputs must map names to arrays, got {type(outputs).__name__}")
        missing = [name for name in program.outputs if name not in outputs]
        if missing:
            raise InputError(f"no array for output {missing[0]!r}: {program.outputs[missing[0]]}")
        if not isinstance(inputs, Mapping):
            raise InputError(f"inputs must map names to arrays, got {type(inputs).__name__}")
        for name, array in (*inputs.items(), *outputs.items()):
            _check_dense(name, array)
        locked = [name for name, array in outputs.items() if not array.flags.writeable]
        if locked:
            raise InputError(f"the array bound to output {locked[0]!r} is read-only")
        self._program = program
        self._inputs = read_feeds(program.graph.inputs, inputs)
        self._outputs = [np.asarray(outputs[name]) for name in program.outputs]
        self._specialised = program._specialise(self._inputs)
        for (name, value), array in zip(self._specialised.graph.outputs, self._outputs, strict=True):
            given = type_of(array)
            if not given.agrees(value.type):
                raise InputError(f"output {name!r}: expected {value.type}, got {given}")
        _check_apart(inputs, outputs)

    def run(self) -> dict[str, Array]:
        """Compute once; returns the bound outputs by name."""
        results = self._specialised.run(self._program._entering(self._inputs), self._outputs)
        for array, result in zip(self._outputs, self._program._leaving(results), strict=True):
            if result is not array:
                _copy(result, array)
        return dict(zip(self._program.outputs, self._outputs, strict=True))


def _check_dense(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise InputError(f"only NumPy arrays can be bound; {name!r} is {type(array).__name__}")
    if not array.flags.c_contiguous or not array.dtype.isnative:
        raise InputError(f"only dense arrays in C order can be bound; {name!r} has strides {array.strides}")


def _check_apart(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
    """A kernel may write a result while inputs, or other results, are still needed."""
    others = list(inputs.items())
    for name, target in outputs.items():
        for other, array in others:
            if np.may_share_memory(target, array):  # exact, as both are dense
                raise InputError(f"output {name!r} cannot be bound to memory of {other!r}")
        others.append((name, target))


def _copy(result: Array, array: Array) -> None:
    if result.shape != array.shape:
        raise InputError(f"the bound array has shape {array.shape}, but the result has {result.shape}")
    np.copyto(array, result, casting="no")
