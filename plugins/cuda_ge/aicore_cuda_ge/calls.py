"""What `bind` of a kernel for `cuda` returns: one launch, or several that follow each other.

Every launch gets the addresses of operands, then of results, then of the workspace if the kernel declares one, then of
the arrays in `extra`; an absent operand is a null pointer. `pick` chooses among them, by position; -1 is a null
pointer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.arrays import DeviceArray

_COMPILED: dict[str, Any] = native.kernels()


@dataclass(frozen=True)
class Compiled:
    """A launch of a kernel behind `aicore_cuda_launch.h`, of this plugin or of another.

    kernel: the capsule. params: its struct. extra: arrays that it needs beside operands, such as packed weights.
    """

    kernel: Any
    params: bytes = b""
    extra: tuple[DeviceArray, ...] = ()
    pick: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Generated:
    """A launch of a kernel that was compiled at run time: pointers come first among its parameters, then one struct.

    function: CUfunction as a number. owner: what keeps it loaded. grid, block: in x, y and z.
    shared: bytes of dynamic shared memory.
    """

    function: int
    owner: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    params: bytes = b""
    shared: int = 0
    extra: tuple[DeviceArray, ...] = ()
    pick: tuple[int, ...] | None = None


Call: TypeAlias = "Compiled | Generated"


def compiled(
    name: str,
    params: Sequence[int | float] = (),
    extra: Sequence[DeviceArray] = (),
    pick: tuple[int, ...] | None = None,
) -> Compiled:
    """A launch of this plugin's kernel `name`; ints become int64, floats pairs of float32 and padding."""
    return Compiled(_COMPILED[name], pack(params), tuple(extra), pick)


def pack(values: Sequence[int | float]) -> bytes:
    """The bytes of a struct of int64_t and `float, float` fields, as op_structs.cuh has them."""
    return b"".join(struct.pack("<ff", v, 0.0) if isinstance(v, float) else struct.pack("<q", int(v)) for v in values)


def calls_of(bound: Any) -> tuple[Call, ...]:
    """The launches of what `bind` returned."""
    return bound if isinstance(bound, tuple) else (bound,)
