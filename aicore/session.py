"""Runs whose state stays on the device: each reads it, and writes the next into a second set of arrays, or over it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aicore.errors import InputError
from aicore.ir import TensorType, Value, numpy_dtype
from aicore.records import dataclass
from aicore.runtime import Device, SharesMemory, Specialised, bytes_of, type_of
from aicore.runtime.feeds import check_names, check_shapes, read_feeds, wrong_dtype

if TYPE_CHECKING:
    from aicore.bound import BoundProgram
    from aicore.program import Program

Array = np.ndarray[Any, Any]
Key: TypeAlias = tuple[Any, ...]
_Ran: TypeAlias = tuple[Mapping[str, Any], frozenset[str]]
"""Results of a run, and the state whose other arrays it made."""

KEPT = 64
"""Bindings that a session keeps: both turns of as many sets of shapes as programs keep compiled."""


class DeviceState:
    """Named arrays on one device, each up to twice: the current one, and the one before or after it.

    Several sessions may share it, such as one that trains and one that evaluates with the same parameters.
    """

    def __init__(self, device: Device, values: Mapping[str, Array]) -> None:
        self.device = device
        self._types = {name: type_of(np.asarray(value)) for name, value in values.items()}
        self._arrays = {name: [self._placed(np.asarray(value)), None] for name, value in values.items()}
        self._groups = [_Group(frozenset(values))]
        self._cut: dict[frozenset[str], list[_Group]] = {}

    @property
    def types(self) -> Mapping[str, TensorType]:
        return self._types

    @property
    def nbytes(self) -> int:
        """Of all arrays that it holds now: twice those of the state at most."""
        held = [name for name, sides in self._arrays.items() for array in sides if array is not None]
        return bytes_of([self._types[name] for name in held])

    @property
    def turn(self) -> tuple[int, ...]:
        """Tells which arrays are current: equal turns, equal arrays."""
        return tuple([group.side for group in self._groups])

    def current(self, name: str) -> Any:
        """The device's array. Raises InputError for a name that is not there."""
        self._check([name])
        return self._arrays[name][self._group_of(name).side]

    def other(self, name: str) -> Any:
        """The array that a run may write to while the current one is read."""
        side = 1 - self._group_of(name).side
        if self._arrays[name][side] is None:
            self._arrays[name][side] = self.device.empty(self._types[name])
        return self._arrays[name][side]

    def replace_other(self, name: str, array: Any) -> None:
        """Another array of the device in its place."""
        self._arrays[name][1 - self._group_of(name).side] = array

    def swap(self, names: frozenset[str]) -> None:
        """Make the other arrays of these names current."""
        for group in self.together(names):
            group.side = 1 - group.side

    def together(self, names: frozenset[str]) -> list[_Group]:
        """Groups that hold exactly these names; those that hold others too are cut in two, once."""
        if names not in self._cut:
            for group in list(self._groups):
                inside, outside = group.names & names, group.names - names
                if inside and outside:
                    self._groups.remove(group)
                    self._groups += [_Group(inside, group.side), _Group(outside, group.side)]
            known = (*self._cut, names)
            self._cut = {one: [group for group in self._groups if group.names <= one] for one in known}
        return self._cut[names]

    def read(self, names: Collection[str] | None = None) -> dict[str, Array]:
        """Copies on the host; of all, or of these names. Raises InputError for a name that is not there."""
        wanted = list(self._types) if names is None else list(names)
        self._check(wanted)
        return {name: np.array(self.device.download(self.current(name))) for name in wanted}

    def write(self, values: Mapping[str, Array]) -> None:
        """Set some of the arrays. Raises InputError for an unknown name, or another shape or element type."""
        self._check(values)
        arrays = {name: np.asarray(value) for name, value in values.items()}
        for name, array in arrays.items():
            if type_of(array) != self._types[name]:
                raise InputError(f"state {name!r} is {self._types[name]}, got {type_of(array)}")
        for name, array in arrays.items():
            side = self._group_of(name).side
            self._arrays[name][side] = copied_into(self.device, self._arrays[name][side], array)

    def _group_of(self, name: str) -> _Group:
        return next(group for group in self._groups if name in group.names)

    def _check(self, names: Collection[str]) -> None:
        unknown = [name for name in names if name not in self._types]
        if unknown:
            raise InputError(f"no state {unknown[0]!r}; there is {', '.join(map(repr, self._types))}")

    def _placed(self, array: Array) -> Any:
        return self.device.upload(np.array(array, numpy_dtype(type_of(array).dtype), order="C"))


class _Group:
    """Names whose arrays take turns together: a step then turns one number, however many parameters there are."""

    def __init__(self, names: frozenset[str], side: int = 0) -> None:
        self.names, self.side = names, side


class Session:
    """Runs of a program between fixed arrays: state is read and written where it is, feeds are copied in.

    On CUDA a run is the replay of one graph; only feeds, and the outputs that are wanted, cross to and from the host.
    Not for several threads at once. `Program.session` makes one.

    specialise: of the program, for arrays that are where the state is.
    keep_previous: whether the state before a run outlives it; see `Program.session`.
    """

    def __init__(
        self,
        program: Program,
        state: DeviceState,
        specialise: Callable[[Sequence[Any]], Specialised],
        keep_previous: bool = True,
    ) -> None:
        self.state = state
        self._program = program
        self._specialise = specialise
        self._inputs = program.graph.inputs
        self._outputs = [name for name, _ in program.graph.outputs]
        self._pairs = dict(program.state)
        self._fed = [value for value in self._inputs if value.name not in state.types]
        self._results = [name for name in self._outputs if name not in self._pairs]
        self._bindings: dict[tuple[Key, Key], _Binding] = {}
        self._keeps_previous = keep_previous
        self._may_undo = False
        self._check()
        self._updated = frozenset(self._pairs.values())

    @property
    def fed(self) -> dict[str, TensorType]:
        """Types of the inputs that are no state, by name."""
        return {value.name: value.type for value in self._fed}

    def run(self, feeds: Mapping[str, Any], fetch: Collection[str] | None = None) -> dict[str, Array]:
        """One step: the state moves on, and the outputs that are no state come back as NumPy arrays.

        feeds: for each input that is no state an array, of the host or of the program's device.
        fetch: outputs to copy to the host; None means all. With none of them, a run is queued and not waited for.
        Raises InputError for feeds that do not fit, ExecutionError when a kernel fails; the state stays as it is then,
        but for what was written over with `keep_previous=False`.
        """
        wanted = self._results if fetch is None else list(fetch)
        unknown = [name for name in wanted if name not in self._results]
        if unknown:
            raise InputError(f"no such output {unknown[0]!r}; there is {', '.join(map(repr, self._results))}")
        arrays = self._read(feeds)
        found, moved = self._run_bound(arrays, wanted) if self._binds else self._run_apart(arrays)
        self.state.swap(moved)
        self._may_undo = True
        return {name: np.array(self.state.device.download(found[name])) for name in wanted}

    def undo(self) -> None:
        """Go back to the state before the latest run; once for each run. Raises InputError where there is none."""
        if not self._keeps_previous:
            raise InputError("the state before the latest run is not kept: the session has keep_previous=False")
        if not self._may_undo:
            raise InputError("there is no run to undo")
        self.state.swap(self._updated)
        self._may_undo = False

    @property
    def _binds(self) -> bool:
        return self._on_host or isinstance(self.state.device, SharesMemory)

    @property
    def _on_host(self) -> bool:
        return self.state.device.kind == "cpu"

    def _check(self) -> None:
        names = {value.name: value for value in self._inputs if value.name in self.state.types}
        loose = [name for name in self._pairs.values() if name not in names]
        if loose:
            raise InputError(f"there is no state for {loose[0]!r}, which the program updates")
        for name, value in names.items():
            held = self.state.types[name]
            if not held.agrees(value.type):
                raise InputError(f"state {name!r} is {held}, the program takes {value.type}")

    def _read(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        check_names(self._fed, feeds, "feeds")
        found = {value.name: self._read_one(value, feeds[value.name]) for value in self._fed}
        check_shapes(self._fed, [array.shape for array in found.values()])
        return found

    def _read_one(self, value: Value, given: Any) -> Any:
        """An array of the device as it is, anything else as a NumPy array."""
        if not self._on_host and not isinstance(given, np.ndarray) and hasattr(given, "shape"):
            device = self.state.device
            found = device.adopt(given, device.stream_of(None)) if isinstance(device, SharesMemory) else given
            if type_of(found).dtype != value.dtype:
                raise wrong_dtype(value, type_of(found))
            return found
        return read_feeds([value], {value.name: given})[0]

    def _run_bound(self, arrays: Mapping[str, Any], wanted: Sequence[str]) -> _Ran:
        shapes = _shapes(arrays)
        binding = self._bindings.pop((shapes, self.state.turn), None) or self._bind(arrays)
        # The turn is asked once more, as binding may cut it. At the end: the first was not used for longest.
        self._bindings[shapes, self.state.turn] = binding
        if len(self._bindings) > KEPT:
            self._bindings.pop(next(iter(self._bindings))).program.wait()
        for name, array in arrays.items():
            copied_into(self.state.device, binding.feeds[name], array)
        binding.program.run()
        if wanted:
            binding.program.wait()
        return binding.results, binding.moved

    def _bind(self, arrays: Mapping[str, Any]) -> _Binding:
        device, state = self.state.device, self.state
        feeds = self._feeds_for(arrays)
        given = [feeds[v.name] if v.name in feeds else state.current(v.name) for v in self._inputs]
        specialised = self._specialise(given)
        types = {name: value.type for name, value in specialised.graph.outputs}
        open_ = [name for name in self._results if not types[name].is_static]
        if open_:
            raise InputError(f"output {open_[0]!r} is {types[open_[0]]}: its size depends on data")
        results = {name: device.empty(types[name]) for name in self._results}
        over = {} if self._keeps_previous else specialised.in_place(self._pairs.items())
        moved = self._updated.difference(over.values())
        state.together(moved)
        following = {n: state.current(name) if n in over else state.other(name) for n, name in self._pairs.items()}
        inputs = dict(zip((value.name for value in self._inputs), given, strict=True))
        return _Binding(self._program.bind(inputs, {**results, **following}), feeds, results, moved)

    def _feeds_for(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Bindings of the same shapes share them: they run one after the other, each after its feeds were copied."""
        shapes = _shapes(arrays)
        for (known, _), binding in self._bindings.items():
            if known == shapes:
                return binding.feeds
        return {name: self.state.device.empty(type_of(array)) for name, array in arrays.items()}

    def _run_apart(self, arrays: Mapping[str, Any]) -> _Ran:
        """On a device without memory that can be bound: results are new arrays each time."""
        device, state = self.state.device, self.state
        placed = {n: device.upload(a) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
        given = [placed[v.name] if v.name in placed else state.current(v.name) for v in self._inputs]
        made = dict(zip(self._outputs, self._specialise(given).run(given), strict=True))
        for output, name in self._pairs.items():
            state.replace_other(name, made[output])
        return made, self._updated


@dataclass(frozen=True)
class _Binding:
    """A program between fixed arrays: where feeds go, and where results come. moved: state that changes its array."""

    program: BoundProgram
    feeds: Mapping[str, Any]
    results: Mapping[str, Any]
    moved: frozenset[str]


def _shapes(arrays: Mapping[str, Any]) -> Key:
    return tuple([array.shape for array in arrays.values()])


def copied_into(device: Device, target: Any, source: Any) -> Any:
    """The target with the numbers of an array of the host or of the device; a new array where it cannot be written."""
    if isinstance(target, np.ndarray):
        np.copyto(target, source)
        return target
    if not isinstance(device, SharesMemory):
        return device.upload(source) if isinstance(source, np.ndarray) else device.copy(source)
    if isinstance(source, np.ndarray):
        device.write(target, source)
    else:
        device.overwrite(target, source, device.stream_of(None))
    return target
