"""Launches of compiled kernels, as a CUDA backend takes them, and the GPU that they are chosen for."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from aicore_int8_quant import _int8_kernels as native

_CAPSULES: dict[str, Any] = native.kernels()


@dataclass(frozen=True)
class Launch:
    """kernel: a capsule. params: its struct. extra: arrays that it needs beside operands, such as packed weights."""

    kernel: Any
    params: bytes
    extra: tuple[Any, ...] = ()


def launch(name: str, params: Iterable[int | float], extra: Sequence[Any] = ()) -> Launch:
    """A launch of the kernel `name`; ints become int64, floats pairs of float32 and padding."""
    return Launch(_CAPSULES[name], pack(params), tuple(extra))


def pack(values: Iterable[int | float]) -> bytes:
    """The bytes of a struct of csrc."""
    return b"".join(struct.pack("<ff", v, 0.0) if isinstance(v, float) else struct.pack("<q", int(v)) for v in values)


@dataclass(frozen=True)
class Machine:
    """multiprocessors: how many there are. capability: 90 for 9.0. shared_bytes: that one block may have."""

    multiprocessors: int = 132
    capability: int = 90
    shared_bytes: int = 227 << 10

    @property
    def clusters(self) -> bool:
        """Whether blocks can read each other's shared memory."""
        return self.capability >= 90


@cache
def machine() -> Machine:
    """The first GPU, or an H200 where there is none; others of the process are taken to be like it."""
    found = native.facts()
    return Machine() if found is None else Machine(*found)
