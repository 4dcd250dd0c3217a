"""Room for what a run needs, asked for before it is taken: a refusal names the tensor, the system's killer nothing.

Memory that is reserved but not yet written costs nothing, so on most systems a request of any size succeeds, and the
process ends when it writes. Models come from strangers: a few bytes of a file may ask for a tensor of any size.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from aicore.errors import ExecutionError
from aicore.ir import TensorType, numpy_dtype

_SMALL = 1 << 26
"""Bytes below which looking at what the system has left costs more than it saves."""
_MEMORY = Path("/proc/meminfo")
_PAGES = Path("/proc/self/statm")
_CGROUP = Path("/sys/fs/cgroup")


def check_room(nbytes: int, what: str, limit: int | None = None) -> None:
    """Raise ExecutionError, which begins with `what`, unless so many bytes can be had.

    limit: bytes that may be taken at once, however many there are.
    """
    if limit is not None and nbytes > limit:
        raise ExecutionError(f"{what} needs {size_text(nbytes)}, over the limit of {size_text(limit)}")
    if nbytes <= _SMALL:
        return
    room = available_memory()
    if nbytes > room:
        raise ExecutionError(f"{what} needs {size_text(nbytes)}, but only {size_text(int(room))} of memory can be had")


def bytes_of(types: Sequence[TensorType]) -> int:
    """Bytes of the tensors whose sizes are known."""
    return sum(_bytes(tensor) for tensor in types if tensor.is_static)


def size_text(nbytes: int) -> str:
    """`12.5 GiB`."""
    for exponent, unit in ((6, "EiB"), (5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if nbytes >= 1024**exponent:
            return f"{nbytes / 1024**exponent:.1f} {unit}"
    return f"{nbytes} B"


def available_memory() -> float:
    """Bytes that this process can still take, by system, control group and its own limit; infinity if unknown."""
    sources: tuple[Callable[[], float], ...] = (_of_system, _of_group, _of_process)
    return min(source() for source in sources)


def _bytes(tensor: TensorType) -> int:
    return math.prod(tensor.static_shape) * numpy_dtype(tensor.dtype).itemsize


def _of_system() -> float:
    """What the kernel would give without swapping; where it does not say, all that the machine has."""
    for line in _read(_MEMORY).splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return float(rest.split()[0]) * 1024
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return math.inf
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _of_group() -> float:
    """What is left to the control group, such as a container; file pages that nobody uses count as left."""
    limit, used = _read(_CGROUP / "memory.max").strip(), _read(_CGROUP / "memory.current").strip()
    if not (limit.isdigit() and used.isdigit()):
        return math.inf
    rows = (line.split() for line in _read(_CGROUP / "memory.stat").splitlines())
    unused = next((int(row[1]) for row in rows if row[0] == "inactive_file"), 0)
    return float(max(int(limit) - int(used) + unused, 0))


def _of_process() -> float:
    """What the limit on the address space leaves."""
    if sys.platform == "win32":
        return math.inf
    import resource  # POSIX only

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = _read(_PAGES).split()
    if limit == resource.RLIM_INFINITY or not pages:
        return math.inf
    return float(max(limit - int(pages[0]) * os.sysconf("SC_PAGE_SIZE"), 0))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
