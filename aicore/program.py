"""What the user calls: a compiled graph that takes arrays and gives arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aicore.bound import Bindable, BoundProgram, bind
from aicore.errors import InputError, OutOfMemoryError
from aicore.ir import Graph, TensorType
from aicore.runtime import HOST, Device, Explanation, Placement, Plan, Profile, Specialised, Specialiser
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
        self._on_device = specialiser.at_home(device.name)  # for arrays that are there before and after a run
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
            raise OutOfMemoryError(f"no memory is left for the run: {error}") from error
        names = [name for name, _ in self.graph.outputs]
        named = dict(zip(names, self._leaving(results), strict=True))
        return named if outputs is None else {name: named[name] for name in outputs}

    def bind(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None, *, stream: Any = None
    ) -> BoundProgram:
        """A call that reads and writes the caller's arrays each time, without copies where the device allows it.

        inputs, outputs: dense arrays in C order for all inputs and all outputs, of the right types: NumPy's, or arrays
            of the program's device with DLPack or `__cuda_array_interface__`, such as those of CuPy and PyTorch.
            outputs=None makes them, where the inputs are.
        stream: for arrays of a device, where runs are queued: a stream of CuPy, PyTorch or Numba, or its address. None
            is the one that libraries use when told nothing: CUDA's legacy default stream. A run returns at once, and
            what is queued there later sees its results.
        Raises InputError naming what does not fit.
        """
        if outputs is not None:
            self._check_outputs(outputs)
            if not isinstance(outputs, Mapping):
                raise InputError(f"outputs must map names to arrays, got {type(outputs).__name__}")
        program = Bindable(self.graph, self.device, self._specialise, self._specialise_on_device, self._run_into)
        return bind(program, inputs, outputs, stream)

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
        return sum(specialised.steps_run for specialised in self._kept())

    def release(self) -> None:
        """Give back memory that no run is using; the next run takes it again."""
        self._specialiser.release()
        self._on_device.release()

    def _kept(self) -> list[Specialised]:
        return [*self._specialiser.kept(), *self._on_device.kept()]

    def _check_outputs(self, names: Iterable[str]) -> None:
        known = list(self.outputs)
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise InputError(f"outputs must be a list of names, got {names!r}; the program has {known}")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InputError(f"no such output {unknown[0]!r}; the program has {', '.join(map(repr, known))}")

    def _run_into(self, specialised: Specialised, inputs: Sequence[Array], into: Sequence[Array]) -> Sequence[Array]:
        return self._leaving(specialised.run(self._entering(inputs), into))

    def _specialise(self, arrays: Sequence[Any]) -> Specialised:
        return self._specialised_by(self._specialiser, arrays)

    def _specialise_on_device(self, arrays: Sequence[Any]) -> Specialised:
        return self._specialised_by(self._on_device, arrays)

    def _specialised_by(self, specialiser: Specialiser, arrays: Sequence[Any]) -> Specialised:
        inputs = self.graph.inputs
        signature = tuple([TensorType(v.dtype, a.shape) for v, a in zip(inputs, arrays, strict=True)])
        specialised = specialiser.find(signature)
        if specialised is None:  # shapes that are known are known to fit
            check_shapes(inputs, [array.shape for array in arrays])
            specialised = specialiser.get(signature)
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
