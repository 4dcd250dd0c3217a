"""From records to a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from aicore.errors import AicoreError, InferenceError, ModelError, UnsupportedError
from aicore.frontends.records.operations import OPERATIONS
from aicore.frontends.records.record import BRANCHES, CONDITIONALS, Read, placed, read_records
from aicore.ir import Builder, Graph, Origin, TensorType, Value, dtype_name

Parameters: TypeAlias = Literal["inputs", "constants"]


def graph_of(
    records: Iterable[Any],
    tensors: Mapping[str, Any],
    outputs: str | Sequence[str] | None = None,
    *,
    parameters: Parameters = "inputs",
) -> Graph:
    """The graph that records of the earlier version describe.

    records: objects or mappings with op_type (in any case), inputs, params, output_id and extra_params, in the order in
        which they run. An output may have the name of an earlier tensor, which it replaces for later records.
    tensors: an array or a shape by name, for all that no record computes; a dim of a shape may be a text, which is a
        symbol, and its element type is float32. What is given for a tensor that a record computes is checked.
    outputs: names of results; None for all that no record reads. A LOSS record's output is the loss, and what
        `aicore.grad` takes.
    parameters: `inputs`, or `constants` for the arrays that records name in `params`, which passes then fold.
    Inputs of the graph are the tensors that are read, in the order of `tensors`.

    Raises ModelError for a malformed record, UnsupportedError for an op_type that there is not, InferenceError for
    operands that do not fit; all name the record by its number and op_type.
    """
    if parameters not in ("inputs", "constants"):
        raise ModelError(f"parameters={parameters!r} is neither 'inputs' nor 'constants'")
    read = read_records(records)
    if not read:
        raise ModelError("there are no records")
    converter = Converter(tensors, constants=parameters == "constants")
    converter.run(read)
    names = [outputs] if isinstance(outputs, str) else outputs
    found = converter.results(_unread(read) if names is None else names)
    return converter.builder.graph(converter.inputs(), found)


def parameters_of(records: Iterable[Any]) -> tuple[str, ...]:
    """The names in `params` of all records, each once, in order of first use; those inside branches too."""
    return tuple(dict.fromkeys(_parameters(read_records(records))))


def _parameters(records: Sequence[Read]) -> Iterable[str]:
    for record in records:
        yield from record.params
        for names in BRANCHES if record.kind in CONDITIONALS else ():
            yield from _parameters(record.branch(names))


class Converter:
    """Makes nodes of records. One for a branch looks up in the outer one what it does not have, and captures it."""

    def __init__(self, tensors: Mapping[str, Any], constants: bool, outer: Converter | None = None) -> None:
        self.builder = Builder()
        self.captured: dict[str, tuple[Value, Value]] = {}
        self.tensors = tensors
        self._constants = constants
        self._outer = outer
        self._computed: dict[str, Value] = {}
        self._given: dict[str, Value] = {}

    def run(self, records: Sequence[Read]) -> None:
        for i, record in enumerate(records):
            self.builder.origin = Origin(name=record.place)
            try:
                self._computed[record.output] = self._result(record)
            except AicoreError as error:
                later = [r.place for r in records[i + 1 :] if f"{r.output!r} is neither" in str(error)]
                note = f" (it is the output of {later[0]}, which comes later)" if later else ""
                raise placed(type(error)(f"{error}{note}"), record.place) from error

    def results(self, names: Iterable[str]) -> dict[str, Value]:
        missing = [name for name in names if name not in self._computed]
        if missing:
            known = ", ".join(map(repr, self._computed))
            raise ModelError(f"no record has the output {missing[0]!r}; there are {known}")
        return {name: self._computed[name] for name in names}

    def inputs(self) -> list[Value]:
        return [self._given[name] for name in self.tensors if name in self._given and not self._given[name].fixed]

    def value(self, name: str, record: Read) -> Value:
        """A tensor by name. Raises ModelError when there is none."""
        if name in self._computed:
            return self._computed[name]
        if self._outer is not None:
            return self._captured(name, record)
        if name not in self._given:
            self._given[name] = self._input(name, record)
        return self._given[name]

    def branch(self, records: Sequence[Read]) -> tuple[Converter, Value]:
        """The records as a branch of its own, and the output of the last one."""
        inner = Converter(self.tensors, self._constants, self)
        inner.run(records)
        return inner, inner._computed[records[-1].output]

    def closed(self, outside: Mapping[str, Value], outputs: Mapping[str, Value]) -> Graph:
        """This branch as a graph with an input for each name of `outside`, whether it reads that or not."""
        inputs = [
            self.captured[name][1] if name in self.captured else Value(name, value.type)
            for name, value in outside.items()
        ]
        return self.builder.graph(inputs, outputs)

    def _captured(self, name: str, record: Read) -> Value:
        if name not in self.captured:
            assert self._outer is not None
            outside = self._outer.value(name, record)
            if outside.constant is not None:
                return outside
            self.captured[name] = outside, Value(outside.name, outside.type)
        return self.captured[name][1]

    def _input(self, name: str, record: Read) -> Value:
        if name not in self.tensors:
            raise ModelError(f"{name!r} is neither a tensor that is given nor the output of an earlier record")
        given = self.tensors[name]
        if not (self._constants and name in record.params):
            return Value(name, type_of(name, given))
        if not hasattr(given, "dtype"):
            raise ModelError(f"{name!r} is to be a constant, and no array is given for it: {given!r}")
        return self.builder.constant(np.asarray(given), name)

    def _result(self, record: Read) -> Value:
        convert = OPERATIONS.get(record.kind)
        if convert is None:
            raise UnsupportedError(f"there is no op_type {record.kind!r}; known are {', '.join(OPERATIONS)}")
        found = self._named(convert(self, record), record.output)
        record.extra.check_all_read()
        if record.output in self.tensors:
            wanted = type_of(record.output, self.tensors[record.output])
            if not _fits(found.type, wanted):
                raise InferenceError(f"the output {record.output!r} is {found.type}, and {wanted} is given for it")
        return found

    def _named(self, value: Value, name: str) -> Value:
        """The result of the latest node under the record's name."""
        last = self.builder.nodes[-1]
        renamed = replace(value, name=name)
        outputs = tuple(renamed if output is value else output for output in last.outputs)
        self.builder.nodes[-1] = replace(last, outputs=outputs)
        return renamed


def type_of(name: str, given: Any) -> TensorType:
    """The type of an array, or that of a shape: float32. Raises ModelError for what is neither."""
    if isinstance(given, TensorType):
        return given
    if hasattr(given, "dtype") and hasattr(given, "shape"):
        return TensorType(dtype_name(given.dtype), tuple(given.shape))
    is_shape = isinstance(given, list | tuple) and all(
        isinstance(dim, str) or hasattr(dim, "__index__") for dim in given
    )
    if not is_shape:
        raise ModelError(f"tensor {name!r} is {given!r}, wants an array or a shape")
    dims = [dim if isinstance(dim, str) else int(dim) for dim in given]
    return Builder().input(name, "float32", dims).type


def _fits(found: TensorType, wanted: TensorType) -> bool:
    """Whether element types and ranks are equal, and dims wherever both are numbers."""
    if found.dtype != wanted.dtype or found.rank != wanted.rank:
        return False
    pairs = zip(found.shape or (), wanted.shape or (), strict=True)
    return all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)


def _unread(records: Sequence[Read]) -> list[str]:
    """Outputs that no later record reads, each once."""
    found: dict[str, None] = {}
    for record in records:
        for name in (*record.inputs, *record.params):
            found.pop(name, None)
        found[record.output] = None
    return list(found)
