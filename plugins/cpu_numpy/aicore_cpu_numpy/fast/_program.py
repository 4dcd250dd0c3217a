"""Instructions with their outputs placed, run over blocks that stay in the cache.

Temporaries of one block live in the workspace; an output's own block serves as one where it can. Broadcasting is done
by the ufuncs: neighbouring dims that every operand has, or that an operand broadcasts as one, are merged first, so that
a block is a dense piece of the output.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from aicore.records import dataclass
from aicore_cpu_numpy.fast._bounds import merge_bounds
from aicore_cpu_numpy.fast._parallel import MOVED, PASS, Call, parts_of, spans
from aicore_cpu_numpy.fast._rows import view_as
from aicore_cpu_numpy.fast._trace import Array, Function, Instruction, Symbol, Tape, convert

BLOCK_BYTES = 128 * 1024
"""Of the widest output: a few of these fit in a second-level cache."""
SHARED_BLOCK_BYTES = 512 * 1024
"""The same for work that threads share. Calls on smaller blocks are so short that threads wait for each other at the
interpreter's lock: two of them take half the time for formulas on 800 thousand elements with these blocks.
"""
_ALIGNMENT = 64

Dims: TypeAlias = "tuple[int, ...]"
Index: TypeAlias = "tuple[slice, ...]"
Step: TypeAlias = "tuple[Function, tuple[int | Array, ...], int]"
"""A function, its operands (memory by number, or arrays that never change), and the memory it writes."""
_Place: TypeAlias = "tuple[int, int, np.dtype[Any], Dims]"
"""First byte and end in the workspace, element type and dims."""


@dataclass(frozen=True)
class Register:
    """Memory for variables of one type, one after another; dims are those of the whole tensor, 1 to broadcast."""

    dtype: np.dtype[Any]
    dims: Dims


class Program:
    """A traced formula for operands of known shapes, ready to run; an output may be the memory of an input like it.

    tape: what to compute; its inputs are the arrays that `run` gets.
    inputs, outputs: numbers of variables.
    apart: the last axis stays apart from the others, for arrays whose rows have a pitch.
    """

    def __init__(self, tape: Tape, inputs: Sequence[Symbol], outputs: Sequence[Symbol], apart: bool = False) -> None:
        shape = np.broadcast_shapes(*(symbol.shape for symbol in outputs))
        shapes = {variable.shape for variable in tape.variables}
        literals = [x for step in tape.instructions for x in step.operands if isinstance(x, np.ndarray)]
        self._merge = _Merge(shape, shapes | {x.shape for x in literals}, apart)
        finished = _owned(tape, inputs, outputs)
        steps = merge_bounds(tape, {symbol.number for symbol in finished})
        placement = _Placement(tape, steps, self._merge, [s.number for s in inputs], [s.number for s in finished])
        self._steps = placement.steps
        self._registers = placement.registers
        self._input_dims = [self._merge.dims(symbol.shape) for symbol in inputs]
        self._output_dims = [self._merge.dims(symbol.shape) for symbol in finished]
        itemsize = max(symbol.dtype.itemsize for symbol in finished)
        elements = math.prod(self._merge.whole)
        read = sum(math.prod(symbol.shape) * symbol.dtype.itemsize for symbol in inputs)
        written = sum(math.prod(symbol.shape) * symbol.dtype.itemsize for symbol in finished)
        self.seconds = elements * PASS * sum(map(_passes, self._steps)) + (read + written) * MOVED
        whole = len(self._steps) == 1
        limit = math.inf if whole else _block_elements(elements, itemsize, parts_of(self.seconds))
        self._blocks = list(_blocks(self._merge.whole, limit))
        self._first_places, self.workspace_bytes = self._lay_out()

    @property
    def single(self) -> tuple[Function, tuple[int | Array, ...]] | None:
        """Function and operands, if one instruction is all there is; it broadcasts by itself."""
        if len(self._steps) != 1 or self._registers:
            return None
        function, operands, _ = self._steps[0]
        return function, operands

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array | None) -> None:
        """Compute the outputs."""
        for call in self._calls(self._blocks, *self._shaped(inputs, outputs), workspace):
            call()

    def place(
        self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array | None, parts: int
    ) -> list[list[Call]]:
        """The calls of each of so many workers, with the views of all blocks made.

        workspace: `workspace_bytes` for each worker.
        """
        arrays, results = self._shaped(inputs, outputs)
        shares = self._shares(parts)
        size = self.workspace_bytes
        return [
            list(self._calls(share, arrays, results, None if not size or workspace is None else workspace[size * i :]))
            for i, share in enumerate(shares)
        ]

    def _shares(self, parts: int) -> list[list[Index]]:
        """The blocks of each worker; a single one is cut into as many pieces as there are workers."""
        blocks = self._blocks
        if len(blocks) < parts:
            blocks = list(_blocks(self._merge.whole, max(-(-math.prod(self._merge.whole) // parts), 1)))
        return [blocks[start:stop] for start, stop in spans(len(blocks), parts)]

    def _shaped(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        arrays = [view_as(array, dims) for array, dims in zip(inputs, self._input_dims, strict=True)]
        results = [view_as(array, dims) for array, dims in zip(outputs, self._output_dims, strict=True)]
        return arrays, results

    def _calls(
        self, blocks: Sequence[Index], arrays: list[Array], results: list[Array], workspace: Array | None
    ) -> Iterator[Call]:
        if len(blocks) == 1 and blocks[0] is self._blocks[0] and len(self._blocks) == 1:
            yield from self._block_calls(blocks[0], [*arrays, *results], workspace, self._steps)
            return
        for block in blocks:
            steps = [
                (f, tuple(x if isinstance(x, int) else _part(x, block) for x in xs), y) for f, xs, y in self._steps
            ]
            memory = [_part(array, block) for array in (*arrays, *results)]
            yield from self._block_calls(block, memory, workspace, steps)

    def _block_calls(
        self, block: Index, memory: list[Array], workspace: Array | None, steps: Sequence[Step]
    ) -> Iterator[Call]:
        if workspace is not None:
            for start, stop, dtype, dims in self._places(block):
                memory.append(workspace[start:stop].view(dtype).reshape(dims))
        for function, operands, result in steps:
            yield partial(function, *[memory[x] if isinstance(x, int) else x for x in operands], out=memory[result])

    def _places(self, block: Index) -> list[_Place]:
        """Where the registers lie: as in the first block, which is the largest."""
        if block is self._blocks[0]:
            return self._first_places
        places = []
        for register, (start, *_) in zip(self._registers, self._first_places, strict=True):
            dims = _extent(register.dims, block)
            places.append((start, start + math.prod(dims) * register.dtype.itemsize, register.dtype, dims))
        return places

    def _lay_out(self) -> tuple[list[_Place], int]:
        """Where each register lies in the workspace during the first block, and the bytes of all."""
        places: list[_Place] = []
        end = 0
        for register in self._registers if self._blocks else ():
            dims = _extent(register.dims, self._blocks[0])
            size = math.prod(dims) * register.dtype.itemsize
            places.append((end, end + size, register.dtype, dims))
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        return places, end


class _Merge:
    """Neighbouring dims that no operand needs apart, as one.

    whole: the merged dims of the largest shape.
    """

    def __init__(self, shape: Dims, shapes: set[Dims], apart: bool) -> None:
        self._rank = len(shape)
        padded = [self._pad(s) for s in shapes]
        patterns = [tuple(s[axis] == 1 for s in padded) for axis in range(self._rank)]
        kept = [axis for axis in range(self._rank) if shape[axis] != 1]
        last = self._rank - 1 if apart else self._rank
        groups = [list(axes) for _, axes in itertools.groupby(kept, key=lambda axis: (patterns[axis], axis == last))]
        self._groups = groups
        self.whole = tuple(math.prod(shape[axis] for axis in group) for group in groups)

    def dims(self, shape: Dims) -> Dims:
        """The merged dims of an operand."""
        padded = self._pad(shape)
        return tuple(math.prod(padded[axis] for axis in group) for group in self._groups)

    def _pad(self, shape: Dims) -> Dims:
        return (1,) * (self._rank - len(shape)) + shape


class _Placement:
    """Which memory each instruction writes: an output, or a register that is free by then.

    Memory is numbered: the inputs, the outputs, then the registers.
    """

    def __init__(
        self,
        tape: Tape,
        steps: list[Instruction],
        merge: _Merge,
        inputs: list[int],
        outputs: list[int],
    ) -> None:
        self._tape, self._instructions, self._merge = tape, steps, merge
        self._inputs, self._outputs = inputs, outputs
        self._first = len(inputs) + len(outputs)
        self.registers: list[Register] = []
        self._last_use = {x: i for i, step in enumerate(steps) for x in step.operands if isinstance(x, int)}
        self._made = {step.result: i for i, step in enumerate(steps)}
        self._readings = self._last_readings()
        self._place = {number: i for i, number in enumerate(inputs)}
        self._held: dict[int, int] = {}
        self._late: list[tuple[int, int]] = []
        self.steps = [self._step(i, step) for i, step in enumerate(steps)]
        self.steps += [(convert, (self._place[number],), place) for number, place in self._late]

    def _step(self, i: int, step: Instruction) -> Step:
        operands = tuple(self._place[x] if isinstance(x, int) else self._literal(x) for x in step.operands)
        place = self._choose(i, step)
        self._place[step.result] = place
        self._held[place] = step.result
        return step.function, operands, place

    def _literal(self, array: Array) -> Array:
        return array.reshape(self._merge.dims(array.shape)) if array.size != 1 else array.reshape(())

    def _choose(self, i: int, step: Instruction) -> int:
        if step.result in self._outputs:
            place = len(self._inputs) + self._outputs.index(step.result)
            if self._is_safe(i, step, step.result):
                return place
            self._late.append((step.result, place))
            return self._register(i, step)
        for k, output in enumerate(self._outputs):
            place = len(self._inputs) + k
            if self._lends(i, step, output) and self._is_free(i, step, place):
                return place
        return self._register(i, step)

    def _register(self, i: int, step: Instruction) -> int:
        wanted = self._type(step.result)
        for k, register in enumerate(self.registers):
            if register == wanted and self._is_free(i, step, self._first + k):
                return self._first + k
        self.registers.append(wanted)
        return self._first + len(self.registers) - 1

    def _is_free(self, i: int, step: Instruction, place: int) -> bool:
        """Whether nothing reads what the memory holds after this instruction, and it may overwrite it."""
        held = self._held.get(place)
        if held is None:
            return True
        if held in self._outputs:
            return False
        last = self._last_use.get(held, -1)
        return last < i or (last == i and step.may_overwrite(held))

    def _lends(self, i: int, step: Instruction, output: int) -> bool:
        """Whether the output's memory may hold this instruction's result until the output itself is written."""
        made, last = self._made[output], self._last_use.get(step.result, -1)
        fits = self._type(step.result) == self._type(output) and i < made
        in_time = last < made or (last == made and self._instructions[made].may_overwrite(step.result))
        return fits and in_time and self._is_safe(i, step, output)

    def _is_safe(self, i: int, step: Instruction, output: int) -> bool:
        """Whether writing the output's memory now spoils no input that may be the same memory."""
        for last, twin in self._readings.get(self._type(output), ()):  # the latest first
            if last > i or (last == i and not step.may_overwrite(twin)):
                return False
            if last < i:
                break
        return True

    def _last_readings(self) -> dict[Register, list[tuple[int, int]]]:
        """(last instruction that reads it, input) by type, the latest first: a sum may have thousands of inputs."""
        found: dict[Register, list[tuple[int, int]]] = {}
        for x in dict.fromkeys(self._inputs):
            found.setdefault(self._type(x), []).append((self._last_use.get(x, -1), x))
        return {kind: sorted(readings, reverse=True) for kind, readings in found.items()}

    def _type(self, number: int) -> Register:
        variable = self._tape.variables[number]
        return Register(variable.dtype, self._merge.dims(variable.shape))


def _passes(step: Step) -> float:
    """What one step costs, an addition being 1."""
    return _COSTS.get(getattr(step[0], "__name__", ""), 1.0)


_COSTS = {
    **dict.fromkeys(("exp", "log", "tanh", "sin", "cos", "expm1", "log1p"), 8.0),
    **dict.fromkeys(("divide", "sqrt", "reciprocal", "select"), 3.0),
    "spread": 2.0,
    **dict.fromkeys(("power", "float_power", "arctan2", "remainder", "fmod"), 40.0),
}
"""For estimates, by name of a function."""


def _owned(tape: Tape, inputs: Sequence[Symbol], outputs: Sequence[Symbol]) -> list[Symbol]:
    """The outputs, with a copy in place of each that is an input, or that was an output before."""
    taken = {symbol.number for symbol in inputs}
    owned = []
    for symbol in outputs:
        owned.append(tape.convert(symbol, symbol.dtype) if symbol.number in taken else symbol)
        taken.add(symbol.number)
    return owned


def _block_elements(elements: int, itemsize: int, parts: int) -> int:
    """Elements of a block, of which each of several workers has as many."""
    if parts == 1:
        return BLOCK_BYTES // itemsize
    rounds = max(-(-elements * itemsize // (parts * SHARED_BLOCK_BYTES)), 1)
    return max(-(-elements // (parts * rounds)), 1)


def _blocks(dims: Dims, limit: float) -> Iterator[Index]:
    """Dense pieces of at most `limit` elements (or of one row), the largest first; none of an empty tensor."""
    if 0 in dims:
        return
    axis = next((a for a in range(len(dims)) if math.prod(dims[a + 1 :]) <= limit), len(dims) - 1)
    if not dims or math.prod(dims) <= limit:
        yield tuple(slice(0, d) for d in dims)
        return
    inner = math.prod(dims[axis + 1 :])
    step = max(1, min(dims[axis], int(limit // max(inner, 1))))
    rest = tuple(slice(0, d) for d in dims[axis + 1 :])
    for outer in itertools.product(*map(range, dims[:axis])):
        before = tuple(slice(o, o + 1) for o in outer)
        for start in range(0, dims[axis], step):
            yield (*before, slice(start, min(start + step, dims[axis])), *rest)


def _extent(dims: Dims, block: Index) -> Dims:
    """Dims of the piece that meets a block."""
    return tuple(1 if d == 1 else s.stop - s.start for d, s in zip(dims, block, strict=True))


def _part(array: Array, block: Index) -> Array:
    """The piece of an operand that meets a block of the output."""
    if array.ndim == 0:
        return array
    return array[tuple(slice(0, 1) if d == 1 else s for d, s in zip(array.shape, block, strict=True))]
