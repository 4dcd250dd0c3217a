"""What the user calls: a compiled graph that takes arrays and gives arrays."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aicore.bound import Bindable, BoundProgram, bind
from aicore.errors import AicoreError, ConfigError, InputError, OutOfMemoryError
from aicore.ir import Graph, TensorType
from aicore.runtime import HOST, Device, Explanation, Placement, Plan, Specialised, Specialiser
from aicore.runtime.explanation import plans_of
from aicore.runtime.feeds import check_shapes, read_feeds, read_shapes

if TYPE_CHECKING:
    from aicore.passes import PassTrace, Recorder
    from aicore.runtime import Ceilings, MemoryView, Profile, RunTimes
    from aicore.session import DeviceState, Session

Array = np.ndarray[Any, Any]


class Program:
    """A compiled graph. The first call with new input shapes specialises it for them; later calls reuse that.

    Threads may call one program at once; no lock is held while kernels run. Results are the caller's: no later run
    changes them. `aicore.compile` makes programs.

    graph: the graph after the passes that do not depend on shapes.
    target: why this device was chosen.
    choices: what its passes do otherwise than by default, in words; empty for the default.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device,
        specialiser: Specialiser,
        target: str,
        reports: tuple[Any, ...] = (),
        *,
        choices: str = "",
        recorder: Recorder | None = None,
    ) -> None:
        self.graph = graph
        self.device = device
        self.target = target
        self.choices = choices
        self._recorder = recorder
        self._specialiser = specialiser
        self._on_device = specialiser.at_home(device.name)  # for arrays that are there before and after a run
        self._reports = reports
        self._latest: Specialised | None = None
        self._seen: tuple[Specialiser, list[tuple[int, ...]], Specialised] | None = None  # of the latest run

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
            outputs=None makes them, where the inputs are. They are apart; but an output of `state` may be the array of
            its input where a kernel computes it in place and nothing reads the input afterwards.
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

    def session(self, state: DeviceState | Mapping[str, Array], *, keep_previous: bool = True) -> Session:
        """Runs that keep inputs on the device from one to the next, and let outputs of `state` take their place.

        state: the first values of the inputs that are kept, each as in `inputs` and of known size: all that the
            program's state pairs name, and others that stay as they are, such as weights. Or that of another session,
            to share it.
        keep_previous: hold the state before the latest run, too, which `undo` goes back to. Without, what a kernel can
            compute in place of its input is held once; the rest, such as running statistics, stays double.
        Raises InputError for what does not fit.
        """
        from aicore.session import DeviceState, Session  # few programs are trained

        held = state if isinstance(state, DeviceState) else DeviceState(self.device, state)
        where = self._specialise if self._specialiser.home != HOST else self._specialise_on_device
        return Session(self, held, where, keep_previous)

    def specialise(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Compile ahead for inputs of these shapes. Raises InputError when one does not fit."""
        sizes = read_shapes(self.graph.inputs, shapes)
        check_shapes(self.graph.inputs, sizes)
        signature = zip(self.inputs.values(), sizes, strict=True)
        self._seen = None  # what the latest run used may be pushed out
        self._latest = self._specialiser.get(tuple(TensorType(tensor.dtype, size) for tensor, size in signature))

    def explain(self) -> Explanation:
        """Passes with matches and times, placement, kernels with every candidate, memory; text by `str`.

        Kernels and memory are those of the latest specialisation.
        """
        latest = self._current()
        version = None if latest is None else latest.version
        whole = self._reports if version is None else (version.report,)
        reports = whole if latest is None else (*whole, latest.report)
        return Explanation(
            self.target,
            tuple(r for r in reports if r is not None),
            latest,
            self._specialiser.statistics,
            self._specialiser.tuning,
            self.choices if version is None else version.note,
        )

    @property
    def trace(self) -> PassTrace:
        """Each pass that ran, with the graph before and after it as text.

        Raises AicoreError for a program that was compiled without `trace=True`.
        """
        if self._recorder is None:
            raise AicoreError("nothing was recorded while the passes ran; compile with trace=True")
        if all(step.stage == "whole" for step in self._recorder.steps):
            self._current()  # a graph of known sizes needs no call to be optimised for them
        return self._recorder.trace

    def memory(self) -> MemoryView:
        """The memory plan of the latest specialisation: lifetimes over offsets, the peak and what holds it.

        Bodies of loops and branches have arenas of their own, which are shown once they have run.
        """
        from aicore.runtime import MemoryView  # views load when they are asked for

        latest = self._current()
        return MemoryView.of([] if latest is None else latest.plans)

    def profile(self, feeds: Mapping[str, Any], runs: int = 5, *, ceilings: bool = True) -> Profile:
        """Run, and measure each step on its device, and the host beside.

        runs: how often, each with an ordinary run before it, after one of both that is not counted.
        ceilings: compare steps with what their device can do at best. Unless the device declares it, that is measured,
            which takes about a second, by the first few processes on a machine.
        """
        from aicore.runtime import Profile  # views load when they are asked for

        if not isinstance(runs, int) or runs < 1:
            raise ConfigError(f"runs={runs!r} is no number of runs; choose 1 or more")
        arrays = read_feeds(self.graph.inputs, feeds)
        pairs = list(self._profiled(arrays, runs + 1))[1:]
        measured = [run for _, run in pairs]
        known, reasons = self._ceilings() if ceilings else ({}, {})
        return Profile(tuple(measured), tuple(seconds for seconds, _ in pairs), known, reasons)

    def _profiled(self, arrays: Sequence[Array], count: int) -> Iterator[tuple[float, RunTimes]]:
        """(seconds of an ordinary run, a profiled one), again and again."""
        from aicore.runtime import RunTimes

        specialised = self._specialise(arrays)
        for _ in range(count):
            start = time.perf_counter()
            self._leaving(specialised.run(self._entering(arrays)))
            began = time.perf_counter()
            rows = specialised.profile(self._entering(arrays))
            yield began - start, RunTimes(began, time.perf_counter() - began, tuple(rows))

    def _ceilings(self) -> tuple[dict[str, Ceilings], dict[str, str]]:
        """Those of the device; or the reason why there are none."""
        from aicore.runtime import ceilings_of

        try:
            return {self.device.name: ceilings_of(self.device, self._specialiser)}, {}
        except AicoreError as error:
            return {}, {self.device.name: str(error)}

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
        shapes = [array.shape for array in arrays]
        seen = self._seen
        if seen is not None and seen[0] is specialiser and seen[1] == shapes:
            specialiser.count_hit()
            self._latest = seen[2]
            return seen[2]
        inputs = self.graph.inputs
        signature = tuple([TensorType(v.dtype, shape) for v, shape in zip(inputs, shapes, strict=True)])
        specialised = specialiser.find(signature)
        if specialised is None:  # shapes that are known are known to fit
            check_shapes(inputs, shapes)
            specialised = specialiser.get(signature)
        self._latest = specialised
        self._seen = (specialiser, shapes, specialised)
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
