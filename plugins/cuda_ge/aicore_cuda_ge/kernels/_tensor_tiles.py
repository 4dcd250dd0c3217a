"""The tiles of graph_executor/kernels/tensor, and how long products and convolutions take with each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, LAUNCH_SECONDS, machine
from aicore_cuda_ge.kernels._packing import item_bytes
from aicore_cuda_ge.kernels._product_times import LARGE_CLUSTER, LARGE_CLUSTER_SHARE

SPLITS = (1, 2, 4, 8)
"""Blocks that may share the inner axis of a tile; a cluster of more is not portable."""
L2_BYTES_EACH_SECOND = 3.7e12
"""As measured with tiles of 128 x 128 in tf32."""
STAGE_BYTES = 128
"""Of a row of a or b, in a stage."""
TF32 = "tf32"
_FLOPS_EACH_MULTIPROCESSOR = {"float32": 225e12 / 132, "float16": 620e12 / 132, "bfloat16": 620e12 / 132}
"""What mma.sync reaches on an H200; float32 in tf32."""
_NAMES = {"float32": TF32}
_FILL_SECONDS = 1.3e-6
"""Of a wave of blocks, before the first product: the first stages arrive."""
_TAIL_FLOPS, _RARE_TAIL_FLOPS = 300, 600
"""Of a result, beside its products: to store it; the second with exponentials and their like."""
_LARGE_WARPS = 8
"""Large clusters of so large blocks run one block at a time."""
_JOIN_SECONDS = 0.7e-6
"""Two barriers of a cluster."""
_JOIN_BYTES_EACH_SECOND = 40e9
"""Of sums that blocks of one multiprocessor read from each other's shared memory."""


@dataclass(frozen=True)
class Tile:
    """index: in the list of graph_executor/kernels/tensor/launch.cuh. rows, columns: of y.

    warps, shared_bytes, resident: of a block, and blocks that a multiprocessor holds at once. rate: share of its
    arithmetic that it reaches when it holds them all; alone: when it holds one.
    """

    index: int
    rows: int
    columns: int
    warps: int
    shared_bytes: int
    resident: int
    rate: float
    alone: float


TILES = {
    "128x128": Tile(0, 128, 128, 4, 110_592, 2, 0.75, 0.5),
    "128x64": Tile(1, 128, 64, 4, 82_944, 2, 0.62, 0.4),
    "64x64": Tile(2, 64, 64, 4, 73_728, 3, 0.5, 0.25),
    "64x64x2": Tile(3, 64, 64, 8, 73_728, 2, 0.5, 0.3),
    "32x64x2": Tile(4, 32, 64, 4, 55_296, 3, 0.38, 0.2),
    "32x32x4": Tile(5, 32, 32, 4, 36_864, 4, 0.25, 0.12),
    "128x256": Tile(6, 128, 256, 8, 165_888, 1, 0.75, 0.75),
}
"""By rows x columns and, if there are several, slices."""


@dataclass(frozen=True)
class Work:
    """A batch of products. moved: bytes that are read and written at least. rare: an activation of exponentials follows."""

    dtype: str
    batch: int
    rows: int
    columns: int
    inner: int
    moved: int
    rare: bool = False


def kernel_name(dtype: str) -> str:
    """What the compiled kernels of an element type end in."""
    return _NAMES.get(dtype, dtype)


def chunk(dtype: str) -> int:
    """Elements that are copied at once: 16 bytes."""
    return 16 // item_bytes(dtype)


def padded(count: int, dtype: str) -> int:
    """Up to a multiple of 16 bytes."""
    each = chunk(dtype)
    return -(-count // each) * each


def tiles() -> tuple[str, ...]:
    """Those that a block of this machine has room for."""
    return tuple(name for name, tile in TILES.items() if tile.shared_bytes <= machine().shared_bytes)


def settings() -> dict[str, tuple[Any, ...]]:
    """What the kernels on tensor cores are tuned over."""
    return {"tile": tiles(), "split": SPLITS}


def reason_against_machine() -> str | None:
    """Tensor cores multiply these types from compute capability 8.0 on."""
    return None if machine().capability >= 80 else "takes GPUs of compute capability 8.0 and above"


def seconds(work: Work, name: str, split: int) -> float:
    """The work of the busiest multiprocessor, or of memory if that takes longer."""
    tile, facts = TILES[name], machine()
    depth = STAGE_BYTES // item_bytes(work.dtype)
    stages = -(-work.inner // depth)
    split = max(min(split, stages), 1) if facts.clusters else 1
    blocks = split * work.batch * -(-work.rows // tile.rows) * -(-work.columns // tile.columns)
    length = -(-stages // split) * depth
    results = tile.rows * tile.columns
    tail = (_RARE_TAIL_FLOPS if work.rare else _TAIL_FLOPS) / split
    one = results * (2.0 * length + tail) / _FLOPS_EACH_MULTIPROCESSOR[work.dtype]
    large = split >= LARGE_CLUSTER
    busiest = math.ceil(blocks / (facts.multiprocessors * (LARGE_CLUSTER_SHARE if large else 1.0)))
    resident, rate = (1, tile.alone) if large and tile.warps >= _LARGE_WARPS else (tile.resident, tile.rate)
    waves, rest = divmod(busiest, resident)
    taken = waves * resident * one / rate
    if rest:
        taken += rest * one / min(rate, tile.alone * rest)
    read = blocks * (tile.rows + tile.columns) * length * item_bytes(work.dtype)
    taken = max(taken, read / L2_BYTES_EACH_SECOND, work.moved / BYTES_EACH_SECOND)
    join = _JOIN_SECONDS + 4 * busiest * results / _JOIN_BYTES_EACH_SECOND if split > 1 else 0.0
    return LAUNCH_SECONDS + (waves + bool(rest)) * _FILL_SECONDS + taken + join
