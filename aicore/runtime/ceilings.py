"""What a device can do at best, as its own kernels show: bytes and floating-point operations a second.

A roofline (Williams, Waterman and Patterson, 2009) compares each step with these two.
"""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import tempfile
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from aicore.config import cache_folder, from_environment
from aicore.errors import AicoreError
from aicore.ir import Builder, Graph
from aicore.records import dataclass
from aicore.runtime.device import Device
from aicore.runtime.specialise import Specialiser

_log = logging.getLogger("aicore.runtime")
_ELEMENTS = 1 << 25
"""Of the array that is streamed, 128 MiB: more than caches hold."""
_PRODUCTS = (512, 1024, 2048, 4096)
"""Sizes of square products; larger ones are not tried once one takes long."""
_LONG = 0.03
_REPEATS = 5
_PROCESSES = 3
"""That measure before the best is taken for good."""
_measured_here: set[tuple[Path, str]] = set()


@dataclass(frozen=True)
class Ceilings:
    """Of one device.

    flops: operations a second in float32, of the best of a few square products.
    bytes: bytes a second, read and written, of an elementwise op on arrays that no cache holds.
    source: `measured`, or `declared` by the device.
    """

    flops: float
    bytes: float
    source: str = "measured"

    def __str__(self) -> str:
        return f"{self.flops / 1e9:,.0f} GFLOP/s in float32, {self.bytes / 1e9:,.1f} GB/s, {self.source}"

    def least_seconds(self, flops: float, nbytes: float) -> float:
        """What no step that computes and moves so much can be faster than."""
        return max(flops / self.flops, nbytes / self.bytes)


@runtime_checkable
class DeclaresCeilings(Protocol):
    """What a device offers beside, if its maker knows better than a measurement."""

    @property
    def ceilings(self) -> Ceilings: ...


def ceilings_of(device: Device, specialiser: Specialiser) -> Ceilings:
    """Those that the device declares, else those measured before on this machine, else measured now (about a second).

    The first few processes that ask measure, and the best stands: a machine that is busy once is not slow for ever.
    specialiser: whose target the device is. Raises AicoreError when the device lacks a kernel for the measurement.
    """
    if isinstance(device, DeclaresCeilings):
        return device.ceilings
    file = cache_folder(from_environment()) / "ceilings.json"
    key = (
        f"{platform.node()}, {os.cpu_count()} cores: {device.name}, {device.fingerprint}, {specialiser.threads} threads"
    )
    kept = _kept(_read(file).get(key))
    if kept is not None and (kept["processes"] >= _PROCESSES or (file, key) in _measured_here):
        return Ceilings(kept["flops"], kept["bytes"])
    best = Ceilings(_best_product(specialiser), _best_stream(specialiser))
    _measured_here.add((file, key))
    if kept is not None:
        best = Ceilings(max(best.flops, kept["flops"]), max(best.bytes, kept["bytes"]))
    processes = 1 if kept is None else int(kept["processes"]) + 1
    _write(file, {**_read(file), key: {"flops": best.flops, "bytes": best.bytes, "processes": processes}})
    return best


def _kept(entry: Any) -> dict[str, float] | None:
    """The entry, if it is whole and possible."""
    names = ("flops", "bytes", "processes")
    return entry if isinstance(entry, dict) and all(_is_amount(entry.get(name)) for name in names) else None


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _best_product(specialiser: Specialiser) -> float:
    best = 0.0
    for size in _PRODUCTS:
        b = Builder()
        operands = [b.input(name, "float32", (size, size)) for name in ("a", "b")]
        graph = b.graph(operands, {"y": b.ReduceMax(b.MatMul(*operands))})
        seconds = _seconds(specialiser, graph, "MatMul")
        best = max(best, 2.0 * size**3 / seconds)
        if seconds > _LONG:
            break
    return best


def _best_stream(specialiser: Specialiser) -> float:
    b = Builder()
    x = b.input("x", "float32", (_ELEMENTS,))
    graph = b.graph((x,), {"y": b.ReduceMax(b.Neg(x))})
    return 8.0 * _ELEMENTS / _seconds(specialiser, graph, "Neg")


def _seconds(specialiser: Specialiser, graph: Graph, op: str) -> float:
    """The shortest of a few times of the step with this op, on the target.

    Its result is no output of the graph: those are fresh in each run, and touching fresh memory costs time of its own.
    """
    specialised = specialiser.beside(graph).get(tuple(value.type for value in graph.inputs))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(value.type.static_shape, dtype=np.float32) for value in graph.inputs]
    times = []
    for _ in range(_REPEATS):
        rows = specialised.profile(arrays)
        times += [row.seconds for row in rows if row.op == op and row.device == specialiser.target]
    if not times:
        raise AicoreError(f"{specialiser.target} has no kernel for {op}, by which ceilings are measured")
    return max(min(times), 1e-9)


def _read(file: Path) -> dict[str, Any]:
    """What was measured before; nothing where that is missing or damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # anybody may have written there
        return {}
    return found if isinstance(found, dict) else {}


def _write(file: Path, known: dict[str, Any]) -> None:
    """Whole or not at all; a folder that cannot be written to only means that the next process measures again."""
    made: Path | None = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as stream:
            made = Path(stream.name)
            json.dump(known, stream)
        os.replace(made, file)
    except OSError as error:
        _log.info("ceilings are not kept: %s", error)
        if made is not None:
            made.unlink(missing_ok=True)
