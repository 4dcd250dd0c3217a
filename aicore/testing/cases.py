"""Conformance cases: each op's samples, in every element type that it takes, in odd layouts, and at the edges."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aicore.errors import AicoreError, ConfigError
from aicore.ir import DTYPES, FLOATS, INTEGERS, Builder, Graph, Node, Op, Sample, Value, as_tuple, dtype_name
from aicore.numerics.recast import Recast
from aicore.testing.layouts import LAYOUTS, lay_out

Array = np.ndarray[Any, Any]

CASE_FLOATS = ("float32", "float64", "float16", "bfloat16")
CASE_INTEGERS = ("int64", "int32", "int8", "uint8")
KINDS = ("plain", "scalar", "empty", "odd", "broadcast", "special", "strided")
"""Shape classes: what is particular about the operands of a case, as `kind_of` says."""

_KEPT = frozenset({"stash_type"})
"""Fields that name a type of their own: that of statistics."""

_LAID_OUT = 2
"""Samples of each op that are tried in every layout."""


@dataclass(frozen=True)
class Case:
    """One op on given operands.

    name: of the op. number: of the sample, in the order in which the op gives them; edge cases follow.
    dtype: that of the first operand of floating point, else of the first operand, else of the result.
    kind: one of KINDS.
    layout: how operands that are no constants lie in memory.
    derived: made here out of a sample, so that the op may mean nothing for it.
    """

    name: str
    number: int
    sample: Sample
    dtype: str
    kind: str
    layout: str = "dense"
    derived: bool = False

    @property
    def id(self) -> str:
        """`Add-float16-3` or `Add-float32-0-reversed`: the same on every machine."""
        return "-".join((self.name, self.dtype, str(self.number), *([] if self.layout == "dense" else [self.layout])))

    @property
    def digest(self) -> str:
        """Tells whether another machine has the same numbers in this case."""
        state = hashlib.blake2b(repr(self.sample.op).encode(), digest_size=8)
        for array in self.sample.inputs:
            state.update(b"absent" if array is None else f"{array.dtype}{array.shape}".encode())
            if array is not None:
                state.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
        return state.hexdigest()

    def node(self) -> Node:
        """The op on its operands, with defaults filled in and constant operands absorbed."""
        return self.graph(1).nodes[-1]

    def graph(self, copies: int = 1) -> Graph:
        """The op as a graph, with outputs y0, y1...

        copies: how often the op occurs, on the same operands, with as many outputs. A kernel that writes into its
            operands gives itself away by the results of the next one.
        Raises InferenceError when the op does not take these operands.
        """
        builder = Builder()
        operands = [self._operand(builder, i, array) for i, array in enumerate(self.sample.inputs)]
        outputs: dict[str, Value] = {}
        for _ in range(copies):
            for value in as_tuple(builder.apply(self.sample.op, *operands)):
                outputs[f"y{len(outputs)}"] = value
        return builder.graph([v for v in operands if v is not None and v.constant is None], outputs)

    def feeds(self) -> dict[str, Array]:
        """Arrays for the graph's inputs, fresh and in this case's layout."""
        arrays = enumerate(self.sample.inputs)
        return {f"x{i}": lay_out(a, self.layout) for i, a in arrays if a is not None and i not in self.sample.constant}

    def _operand(self, builder: Builder, index: int, array: Array | None) -> Value | None:
        if array is None:
            return None
        if index in self.sample.constant:
            return builder.constant(array, f"c{index}")
        return builder.input(f"x{index}", dtype_name(array.dtype), array.shape)


def conformance_cases(
    ops: Mapping[str, type[Op]],
    pattern: str = "*",
    dtypes: Iterable[str] | None = None,
    *,
    seed: int = 0,
) -> Iterator[Case]:
    """The cases of the ops whose names match, op by op; the same seed gives the same cases.

    pattern: as in a shell, `Reduce*`; several are separated by commas.
    dtypes: element types to keep; None means all.
    """
    wanted = None if dtypes is None else frozenset(dtypes)
    patterns = [one.strip() for one in pattern.split(",")]
    for name, cls in ops.items():
        if any(fnmatch.fnmatchcase(name, one) for one in patterns):
            found = _cases_of(name, cls, np.random.default_rng(seed))
            yield from (case for case in found if wanted is None or case.dtype in wanted)


def check_choice(ops: Mapping[str, type[Op]], pattern: str, dtypes: Iterable[str] | None) -> None:
    """Raise ConfigError for a part of the pattern that no op matches, and for an unknown element type.

    What such a part meant to select would go untested in silence.
    """
    for one in pattern.split(","):
        if not fnmatch.filter(ops, one.strip()):
            raise ConfigError(f"no op matches {one.strip()!r}; docs/ops.md lists those of aicore itself")
    unknown = sorted(set(dtypes or ()) - DTYPES)
    if unknown:
        raise ConfigError(f"no element type is called {unknown[0]!r}; there are {', '.join(sorted(DTYPES))}")


def dtype_of(sample: Sample) -> str:
    """The element type of the first operand of floating point, else of the first operand, else of the result."""
    dtypes = [dtype_name(array.dtype) for array in sample.inputs if array is not None]
    if not dtypes:
        return Case("", 0, sample, "", "").node().outputs[0].dtype
    return next((dtype for dtype in dtypes if dtype in FLOATS), dtypes[0])


def kind_of(op: Op, inputs: Iterable[Array | None]) -> str:
    """The shape class of operands: the first that fits of empty, special, scalar, broadcast, odd, plain."""
    arrays = [a for a in inputs if a is not None]
    if any(a.size == 0 for a in arrays):
        return "empty"
    if any(_has_special(a) for a in arrays):
        return "special"
    if arrays and all(a.ndim == 0 for a in arrays):
        return "scalar"
    from aicore.ops.base import Pointwise

    if isinstance(op, Pointwise) and len({a.shape for a in arrays}) > 1:
        return "broadcast"
    return "odd" if max((a.size for a in arrays), default=0) % 2 else "plain"


def _cases_of(name: str, cls: type[Op], rng: np.random.Generator) -> Iterator[Case]:
    samples = list(cls.samples(rng))
    own = len(samples)
    samples += _edges(samples)
    laid_out = 0
    for number, sample in enumerate(samples):
        kind = kind_of(sample.op, sample.inputs)
        native = Case(name, number, sample, dtype_of(sample), kind, derived=number >= own)
        yield native
        yield from _other_dtypes(native)
        if laid_out < _LAID_OUT and _can_be_laid_out(sample):
            laid_out += 1
            yield from (replace(native, layout=layout, kind="strided") for layout in LAYOUTS)


def _other_dtypes(case: Case) -> Iterator[Case]:
    """The case in the types beside its own that the op takes, where they hold its numbers."""
    for dtype in CASE_FLOATS if case.dtype in FLOATS else CASE_INTEGERS if case.dtype in INTEGERS else ():
        if dtype == case.dtype:
            continue
        recast = Recast({case.dtype: dtype}, _KEPT)
        inputs = tuple(a if a is None else recast.array(a) for a in case.sample.inputs)
        if case.dtype in INTEGERS and not _same_numbers(inputs, case.sample.inputs):
            continue
        try:
            other = replace(case, sample=replace(case.sample, op=recast.op(case.sample.op), inputs=inputs), dtype=dtype)
            other.graph()
        except AicoreError:
            continue  # the op takes no such type
        yield other


def _edges(samples: list[Sample]) -> Iterator[Sample]:
    """No elements, and NaN with infinities, where the op has no such sample of its own."""
    first = next((s for s in samples if _data(s) is not None), None)
    if first is None:
        return
    if not any(a is not None and a.size == 0 for sample in samples for a in sample.inputs):
        yield from _if_valid(_emptied(first))
    if not any(a is not None and _has_special(a) for sample in samples for a in sample.inputs):
        yield from _if_valid(_with_specials(first))


def _data(sample: Sample) -> int | None:
    """The first operand that is no constant and has a few floats along an axis."""
    for i, array in enumerate(sample.inputs):
        if array is not None and i not in sample.constant and array.ndim and array.size > 3 and array.dtype.kind == "f":
            return i
    return None


def _emptied(sample: Sample) -> Sample:
    """Nothing along the first axis of the data, and of every other operand of that length that is no constant."""
    data = sample.inputs[_data(sample) or 0]
    length = 0 if data is None else data.shape[0]
    inputs = tuple(
        a[:0] if a is not None and i not in sample.constant and a.ndim and a.shape[0] == length else a
        for i, a in enumerate(sample.inputs)
    )
    return replace(sample, inputs=inputs, note="zero size")


def _with_specials(sample: Sample) -> Sample:
    index = _data(sample) or 0
    inputs = list(sample.inputs)
    given = inputs[index]
    if given is not None:
        array = given.copy()
        flat = array.reshape(-1)
        flat[0], flat[flat.size // 2], flat[-1] = np.nan, np.inf, -np.inf
        inputs[index] = array
    return replace(sample, inputs=tuple(inputs), note="NaN, infinities")


def _if_valid(sample: Sample) -> Iterator[Sample]:
    try:
        Case("", 0, sample, "", "").graph()
    except AicoreError:
        return  # the op means nothing for such operands
    yield sample


def _can_be_laid_out(sample: Sample) -> bool:
    return any(
        a is not None and i not in sample.constant and a.ndim and a.size > 1 and not a.dtype.hasobject
        for i, a in enumerate(sample.inputs)
    )


def _has_special(array: Array) -> bool:
    return array.dtype.kind == "f" and not bool(np.isfinite(array).all())


def _same_numbers(new: Iterable[Array | None], old: Iterable[Array | None]) -> bool:
    return all(
        a is None or b is None or np.array_equal(a.astype(object), b.astype(object))
        for a, b in zip(new, old, strict=True)
    )
