"""Every pointwise op, and Regions of them, as instructions that write to `out` and run block by block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from aicore.ir import INTEGERS, Op, TensorType, as_tuple, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.activation import Shrink
from aicore.ops.arithmetic import Pow
from aicore.ops.fused_pointwise import Region
from aicore.records import dataclass
from aicore.runtime import thread_count
from aicore_cpu_numpy.fast._formulas import REFERENCES, apply
from aicore_cpu_numpy.fast._parallel import Call, parts_of, side_by_side
from aicore_cpu_numpy.fast._program import Program
from aicore_cpu_numpy.fast._trace import Array, Symbol, Tape

TRACED = INTEGERS | {"float32", "float64", "bool"}
"""Element types whose formulas need no detour; float16 and bfloat16 are left to the reference."""


def compile_pointwise(
    op: Op, types: Sequence[TensorType | None], constants: Sequence[Array | None] = (), apart: bool = False
) -> Program:
    """The op's formula as a program for operands of these types, which have sizes.

    constants: operands that are known, as far as they are; the exponent of a power is looked at.
    apart: for arrays of which some have rows that lie apart.
    """
    if isinstance(op, Pow) and len(constants) > 1 and constants[1] is not None:
        return _compile(op, types, apart, constants[1])
    return _compile_cached(op, tuple(types), apart, thread_count())


@lru_cache(maxsize=256)
def _compile_cached(op: Op, types: tuple[TensorType | None, ...], apart: bool, threads: int) -> Program:
    """Planning asks for the workspace first and for the kernel later, and models repeat their layers.

    threads: those of the ambient count, which blocks depend on.
    """
    return _compile(op, types, apart)


def _compile(op: Op, types: Sequence[TensorType | None], apart: bool, exponent: Array | None = None) -> Program:
    tape = Tape()
    operands: list[Any] = [None if t is None else tape.input(numpy_dtype(t.dtype), t.static_shape) for t in types]
    symbols = [operand for operand in operands if operand is not None]
    if isinstance(op, Region):
        results = _trace_region(op, operands, tape)
    else:
        if exponent is not None:
            operands[1] = exponent
        results = (apply(op, operands),)
    return Program(tape, symbols, results, apart)


def _trace_region(op: Region, operands: Sequence[Symbol], tape: Tape) -> tuple[Symbol, ...]:
    values: dict[Any, Any] = dict(zip(op.body.inputs, operands, strict=True))
    for node in op.body.nodes:
        found = [value.constant.array if value and value.constant else values[value] for value in node.inputs]
        values[node.outputs[0]] = apply(node.op, found)
    results = (values[value] for _, value in op.body.outputs)
    return tuple(x if isinstance(x, Symbol) else tape.convert(x, x.dtype) for x in results)


def run_pointwise(op: Op, *operands: Array | None, out: Any, workspace: Array | None = None) -> None:
    """Compile for these operands, and run; a plan binds the kernel instead, once."""
    types = [None if x is None else TensorType(x.dtype.name, x.shape) for x in operands]
    bind_pointwise(op, types, ())(*operands, out=out, workspace=workspace)


@dataclass(frozen=True, eq=False)
class BoundPointwise:
    """A program with its constants; `parts` workers share it where its arrays stay the same.

    apart: makes the program for arrays of which some have rows that lie apart.
    tiles: arrays to use in place of constant operands, by index, where all are dense.
    """

    program: Program
    parts: int
    apart: Callable[[], Program]
    tiles: Mapping[int, Array] = field(default_factory=dict)

    def __call__(self, *operands: Array | None, out: Any, workspace: Array | None = None) -> None:
        if self.parts > 1 or not _are_dense((*operands, *as_tuple(out))):
            self.place(*operands, out=out, workspace=workspace)()
            return
        self.program.run(self._inputs(operands), as_tuple(out), workspace)

    def place(self, *operands: Array | None, out: Any, workspace: Array | None = None) -> Call:
        outputs = as_tuple(out)
        if _are_dense((*operands, *outputs)):
            return side_by_side(self.program.place(self._inputs(operands), outputs, workspace, self.parts))
        given = [x for x in operands if x is not None]
        return side_by_side(self.apart().place(given, outputs, workspace, self.parts))

    def _inputs(self, operands: Sequence[Array | None]) -> list[Array]:
        return [self.tiles.get(i, x) for i, x in enumerate(operands) if x is not None]


def _are_dense(arrays: Sequence[Array | None]) -> bool:
    return all(array is None or array.flags.c_contiguous for array in arrays)


def bind_pointwise(
    op: Op, types: Sequence[TensorType | None], constants: Sequence[Array | None]
) -> Callable[..., None]:
    program = compile_pointwise(op, types, constants)
    parts = parts_of(program.seconds)
    apart = partial(compile_pointwise, op, tuple(types), constants, apart=True)
    tiled = _with_tiles(op, types, constants, program)
    if tiled is not None:
        return BoundPointwise(tiled[0], parts, apart, tiled[1])
    single = program.single
    if parts > 1 or single is None or None in types:
        return BoundPointwise(program, parts, apart)
    function, places = single
    if places == tuple(range(len(types))):  # the usual case: one ufunc of all operands in order
        return lambda *operands, out, workspace=None: function(*operands, out=out)
    return lambda *operands, out, workspace=None: function(
        *[operands[x] if isinstance(x, int) else x for x in places], out=out
    )


def _with_tiles(
    op: Op, types: Sequence[TensorType | None], constants: Sequence[Array | None], program: Program
) -> tuple[Program, dict[int, Array]] | None:
    """The program with constants of the last axis repeated for neighbouring rows, and these; None where it is no help.

    A loop over 32 channels spends its time on starting, so a few rows become one.
    """
    shapes = [() if t is None else t.static_shape for t in types]
    whole = max(shapes, key=math.prod, default=())
    vectors = [i for i, shape in enumerate(shapes) if shape != whole and math.prod(shape) == math.prod(shape[-1:]) > 1]
    others = [shape for i, shape in enumerate(shapes) if i not in vectors]
    if isinstance(op, Pow) or not vectors or any(shape != whole and math.prod(shape) != 1 for shape in others):
        return None
    if any(constants[i] is None or shapes[i][-1] != whole[-1] for i in vectors):
        return None
    rows, columns = math.prod(whole[:-1]), whole[-1]
    times = next((k for k in range(min(_TILE // columns, rows // 2), 1, -1) if rows % k == 0), 1)
    if times == 1:
        return None
    row = (times * columns,)
    dims = [row if i in vectors else (rows // times, *row) if shape == whole else () for i, shape in enumerate(shapes)]
    tiled = compile_pointwise(
        op, [t and TensorType(t.dtype, shape) for t, shape in zip(types, dims, strict=True)], constants
    )
    if tiled.workspace_bytes > program.workspace_bytes:
        return None
    return tiled, {i: np.tile(np.asarray(constants[i]).reshape(-1), times) for i in vectors}


_TILE = 4096
"""Elements of a row that is made of several."""


def workspace_bytes(op: Op, *types: TensorType | None, pitched: bool = False) -> int:
    """Enough for rows that lie apart too: their blocks are no larger than those of dense arrays."""
    program = compile_pointwise(op, types)
    return program.workspace_bytes * parts_of(program.seconds)


def supports(op: Op, *types: TensorType | None) -> str | None:
    """Why the op cannot be traced for these operands, or None."""
    wrong = sorted({t.dtype for t in types if t is not None} - TRACED)
    if wrong:
        return f"does not take {', '.join(wrong)}"
    if isinstance(op, Pow | Shrink) and types[0] is not None and types[0].dtype in INTEGERS:
        return "does not take integers"
    return None


def supports_region(op: Region, *types: TensorType | None) -> str | None:
    """Why a node of the body cannot be traced, or None."""
    for node in op.body.nodes:
        if type(node.op) not in REFERENCES:
            return f"has no formula of {type(node.op).__name__}"
        if None in node.inputs:
            return f"{type(node.op).__name__} lacks an operand"
        inner = [value.type for value in (*node.inputs, *node.outputs) if value is not None]
        reason = supports(node.op, *inner)
        if reason is not None:
            return f"{type(node.op).__name__} in it {reason}"
    return supports(op, *types)


def pointwise(op: type[Op]) -> Kernel:
    """The kernel of a pointwise op."""
    return kernel(
        op,
        device="cpu",
        variant="blocked",
        supports=supports_region if op is Region else supports,
        workspace=workspace_bytes,
        bind=bind_pointwise,
        inplace=True,
        pitched=True,
    )(run_pointwise)


KERNELS: tuple[Kernel, ...] = (*map(pointwise, REFERENCES), pointwise(Region))
