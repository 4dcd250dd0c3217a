"""Programs with arrays fixed: each run reads and writes the caller's memory, on the host or on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from aicore.errors import InputError
from aicore.ir import Graph, TensorType, numpy_dtype
from aicore.records import dataclass
from aicore.runtime import BindsArrays, BoundRun, Device, SharesMemory, Specialised, type_of
from aicore.runtime.feeds import check_names, read_feeds, wrong_dtype

Array = np.ndarray[Any, Any]
Specialise: TypeAlias = Callable[[Sequence[Any]], Specialised]


@dataclass(frozen=True)
class Bindable:
    """What is asked of a program.

    on_host, on_device: the specialisation for arrays of the host, and for those of its device.
    run: of a specialisation between arrays of the host; what it returns need not be `into`.
    """

    graph: Graph
    device: Device
    on_host: Specialise
    on_device: Specialise
    run: Callable[[Specialised, Sequence[Array], Sequence[Array]], Sequence[Array]]

    @property
    def inputs(self) -> list[str]:
        return [value.name for value in self.graph.inputs]

    @property
    def outputs(self) -> list[str]:
        return [name for name, _ in self.graph.outputs]


class BoundProgram:
    """A program with arrays fixed; `run`, or a call, reads the inputs as they are then, and overwrites the outputs.

    On arrays of a device the work is queued on a stream, and `wait` waits for it. `Program.bind` makes these.
    outputs: the arrays that are overwritten, by name.
    """

    def __init__(self, run: BoundRun, outputs: Mapping[str, Any], stream: Any = None) -> None:
        self._run = run
        self._stream = stream  # which must exist as long as runs are queued there
        self._outputs = dict(outputs)

    @property
    def outputs(self) -> dict[str, Any]:
        return self._outputs.copy()

    def run(self) -> dict[str, Any]:
        """Compute once; returns the outputs by name. Raises ExecutionError as `Program.run` does."""
        self._run()
        return self._outputs.copy()

    __call__ = run

    def wait(self) -> None:
        """Wait for the runs that are queued. Raises ExecutionError for what went wrong in them."""
        self._run.wait()


def bind(program: Bindable, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None, stream: Any) -> BoundProgram:
    """See `Program.bind`."""
    check_names(program.graph.inputs, inputs, "inputs")
    missing = [] if outputs is None else [pair for pair in program.graph.outputs if pair[0] not in outputs]
    if missing:
        raise InputError(f"no array for output {missing[0][0]!r}: {missing[0][1].type}")
    named = [*inputs.items(), *(outputs or {}).items()]
    strangers = [(name, array) for name, array in named if not isinstance(array, np.ndarray)]
    if not strangers:
        if stream is not None:
            raise InputError("stream= is for arrays of a device; runs on NumPy arrays are over when they return")
        return _bind_host(program, inputs, outputs)
    device, (name, array) = program.device, strangers[0]
    if not isinstance(device, SharesMemory):
        raise InputError(f"only NumPy arrays can be bound; {name!r} is {type(array).__name__}")
    if len(strangers) != len(named):
        ours = next(name for name, array in named if isinstance(array, np.ndarray))
        raise InputError(f"{ours!r} is a NumPy array and {name!r} is {type(array).__name__}; bind one kind of arrays")
    return _bind_device(program, device, inputs, outputs, stream)


def _bind_host(program: Bindable, inputs: Mapping[str, Array], outputs: Mapping[str, Array] | None) -> BoundProgram:
    for name, array in (*inputs.items(), *(outputs or {}).items()):
        if not array.flags.c_contiguous or not array.dtype.isnative:
            raise InputError(f"only dense arrays in C order can be bound; {name!r} has strides {array.strides}")
    locked = [name for name, array in (outputs or {}).items() if not array.flags.writeable]
    if locked:
        raise InputError(f"the array bound to output {locked[0]!r} is read-only")
    given = read_feeds(program.graph.inputs, inputs)
    specialised = program.on_host(given)
    if outputs is None:
        outputs = _made(specialised, lambda tensor: np.empty(tensor.static_shape, numpy_dtype(tensor.dtype)))
    results = [np.asarray(outputs[name]) for name in program.outputs]
    _check_types(specialised, results)
    _check_apart(inputs, outputs, _span, specialised.in_place(program.graph.state))
    run = _HostRun(program, specialised, given, results)
    return BoundProgram(run, dict(zip(program.outputs, results, strict=True)))


class _HostRun:
    def __init__(
        self, program: Bindable, specialised: Specialised, inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> None:
        self._program = program
        self._specialised = specialised
        self._inputs = inputs
        self._outputs = outputs

    def __call__(self) -> None:
        results = self._program.run(self._specialised, self._inputs, self._outputs)
        for array, result in zip(self._outputs, results, strict=True):
            if result is not array:
                _copy(result, array)

    def wait(self) -> None:
        """A run is over when it returns."""


def _bind_device(
    program: Bindable, device: SharesMemory, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None, where: Any
) -> BoundProgram:
    stream = device.stream_of(where)
    given = [_adopted(device, value.name, inputs[value.name], stream) for value in program.graph.inputs]
    for value, array in zip(program.graph.inputs, given, strict=True):
        if type_of(array).dtype != value.dtype:
            raise wrong_dtype(value, type_of(array))
    specialised = program.on_device(given)
    shown = _made(specialised, lambda tensor: device.queued(tensor, stream)) if outputs is None else dict(outputs)
    results = [_adopted(device, name, shown[name], stream, writable=True) for name in program.outputs]
    _check_types(specialised, results)
    adopted = dict(zip(program.inputs, given, strict=True)), dict(zip(program.outputs, results, strict=True))
    _check_apart(*adopted, device.span, specialised.in_place(program.graph.state))
    executable: Any  # what it offers beside Executable is asked of it
    executable, taken = specialised.alone or (None, ())
    if isinstance(executable, BindsArrays):
        run: BoundRun = executable.bind([given[number] for number in taken], results, stream)
    else:
        run = _StepwiseRun(device, specialised, given, results, stream)
    return BoundProgram(run, {name: shown[name] for name in program.outputs}, where)


class _StepwiseRun:
    """Where the graph is not one plan on the device: the core walks it between arrays of the device, and waits."""

    def __init__(
        self,
        device: SharesMemory,
        specialised: Specialised,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        stream: int,
    ) -> None:
        self._device = device
        self._specialised = specialised
        self._inputs = inputs
        self._outputs = outputs
        self._stream = stream

    def __call__(self) -> None:
        self._device.finish(self._stream)
        results = self._specialised.run(self._inputs)
        for target, result in zip(self._outputs, results, strict=True):
            self._device.overwrite(target, result, self._stream)
        self._device.finish(self._stream)

    def wait(self) -> None:
        """A run is over when it returns."""


def _adopted(device: SharesMemory, name: str, array: Any, stream: int, writable: bool = False) -> Any:
    try:
        return device.adopt(array, stream, writable)
    except InputError as error:
        raise InputError(f"{name!r} cannot be bound: {error}") from error
    except Exception as error:  # the array protocols run code of any library, which raises what it likes
        raise InputError(f"{name!r} cannot be bound: {type(array).__name__}: {error}") from error


def _made(specialised: Specialised, make: Callable[[TensorType], Any]) -> dict[str, Any]:
    """An array for each output. Raises InputError where the size depends on data."""
    loose = [(name, value.type) for name, value in specialised.graph.outputs if not value.type.is_static]
    if loose:
        raise InputError(f"output {loose[0][0]!r} is {loose[0][1]}, whose size depends on data; bind an array to it")
    return {name: make(value.type) for name, value in specialised.graph.outputs}


def _check_types(specialised: Specialised, arrays: Sequence[Any]) -> None:
    for (name, value), array in zip(specialised.graph.outputs, arrays, strict=True):
        given = type_of(array)
        if not given.agrees(value.type):
            raise InputError(f"output {name!r}: expected {value.type}, got {given}")


def _check_apart(
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    span: Callable[[Any], tuple[int, int]],
    in_place: Mapping[str, str],
) -> None:
    """A kernel may write a result while inputs, or other results, are still needed.

    In order of addresses, so that a training step of thousands of arrays is checked in no time.
    in_place: by output, the input whose memory it may have, the very same: the output then stands for both.
    """
    read = {name: span(array) for name, array in inputs.items()}
    written = {name: span(array) for name, array in outputs.items()}
    shared = {given for output, given in in_place.items() if written[output] == read[given]}
    named = [
        *((n, at, False) for n, at in read.items() if n not in shared),
        *((n, at, True) for n, at in written.items()),
    ]
    spans = [(*at, place) for place, (_, at, _) in enumerate(named)]
    all_end, outputs_end = (0, -1), (0, -1)  # where the arrays so far end at most, and which of them does
    for start, end, place in sorted(one for one in spans if one[0] < one[1]):
        is_output = named[place][2]
        reached, other = all_end if is_output else outputs_end
        if start < reached:
            first, last = sorted((place, other))  # outputs come last
            raise InputError(f"output {named[last][0]!r} cannot be bound to memory of {named[first][0]!r}")
        all_end = max(all_end, (end, place))
        outputs_end = max(outputs_end, (end, place)) if is_output else outputs_end


def _span(array: Array) -> tuple[int, int]:
    """Addresses of the first byte of a dense array, and of what comes after the last."""
    start: int = array.__array_interface__["data"][0]
    return start, start + array.nbytes


def _copy(result: Array, array: Array) -> None:
    if result.shape != array.shape:
        raise InputError(f"the bound array has shape {array.shape}, but the result has {result.shape}")
    np.copyto(array, result, casting="no")
