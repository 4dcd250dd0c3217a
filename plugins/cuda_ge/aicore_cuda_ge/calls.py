"""What `bind` of a kernel for `cuda` returns: one call, or several that follow each other.

Every call gets the addresses of operands, then of results, then of the workspace if the kernel declares one, then of
the arrays in `extra`; an absent operand is a null pointer. `pick` chooses among them, by position; -1 is a null
pointer.

A call with `reports` gets one pointer more, behind all others: of a 64-bit number that it sets to a value other than 0
when it finds something wrong in the data, and then goes on without harm. The run fails with that text, in which
`{value}` stands for the number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

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
    reports: str = ""
    capturable: ClassVar[bool] = True


@dataclass(frozen=True)
class Generated:
    """A launch of a kernel that was compiled at run time: pointers come first among its parameters, then one struct.

    function: CUfunction as a number. owner: what keeps it loaded. grid, block: in x, y and z.
    shared: bytes of dynamic shared memory.
    early: it may begin while the kernel before it still runs; only for one whose every thread first waits for that
        (`griddepcontrol.wait`), as `codegen.compiler.Function.waits` knows.
    """

    function: int
    owner: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    params: bytes = b""
    shared: int = 0
    extra: tuple[DeviceArray, ...] = ()
    pick: tuple[int, ...] | None = None
    reports: str = ""
    early: bool = False
    capturable: ClassVar[bool] = True


@dataclass(frozen=True)
class Eager:
    """Work that no graph can hold: it splits the graph in two, and is called between them in each run.

    function: `function(stream, *arrays)` queues its work on the stream, an address, and may wait for it. Arrays are
        DeviceArrays where a launch has pointers, None for an absent one, the workspace as bytes. The stream is CuPy's
        current one meanwhile, and the device is current.
    """

    function: Callable[..., None]
    extra: tuple[DeviceArray, ...] = ()
    pick: tuple[int, ...] | None = None
    capturable: ClassVar[bool] = False


Call: TypeAlias = "Compiled | Generated | Eager"
_Given = TypeVar("_Given")


def compiled(
    name: str,
    params: Sequence[int | float] = (),
    extra: Sequence[DeviceArray] = (),
    pick: tuple[int, ...] | None = None,
    reports: str = "",
) -> Compiled:
    """A launch of this plugin's kernel `name`; ints become int64, floats pairs of float32 and padding."""
    return Compiled(_COMPILED[name], pack(params), tuple(extra), pick, reports)


def pack(values: Sequence[int | float]) -> bytes:
    """The bytes of a struct of int64_t and `float, float` fields, as op_structs.cuh has them."""
    return b"".join(struct.pack("<ff", v, 0.0) if isinstance(v, float) else struct.pack("<q", int(v)) for v in values)


def picked(call: Call, given: Sequence[_Given]) -> list[_Given | None]:
    """What the call takes of all that a step gives its calls, `extra` included; None is absent."""
    if call.pick is None:
        return list(given)
    return [None if at < 0 else given[at] for at in call.pick]


def calls_of(bound: Any) -> tuple[Call, ...]:
    """The calls of what `bind` returned.

    Kernels of other plugins need not import this module: anything with `kernel`, a capsule, and `params`, bytes, is a
    launch too; `extra`, `pick` and `reports` are optional. Raises TypeError for anything else.
    """
    return tuple(map(_call, bound)) if isinstance(bound, (tuple, list)) else (_call(bound),)


def _call(one: Any) -> Call:
    if isinstance(one, (Compiled, Generated, Eager)):
        return one
    if not hasattr(one, "kernel") or not isinstance(getattr(one, "params", None), (bytes, bytearray)):
        raise TypeError(f"bind returned {one!r}, which is no launch: it lacks `kernel`, a capsule, or `params`, bytes")
    pick, reports = getattr(one, "pick", None), getattr(one, "reports", "")
    return Compiled(one.kernel, bytes(one.params), tuple(getattr(one, "extra", ())), pick, reports)
