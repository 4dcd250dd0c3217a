"""The tiles of graph_executor/kernels/tensor, and how long products and convolutions take with each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, LAUNCH_SECONDS, machine
from aicore_cuda_ge.kernels._packing import item_bytes
from aicore_cuda_ge.kernels._product_times import LARGE_CLUSTER

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
"""Before the first product: the first stages arrive. And the sums are stored."""
_JOIN_SECONDS = 0.7e-6
"""Two barriers of a cluster, and reading each other's sums."""
_NEXT_SECONDS, _NEXT_JOIN_SECONDS = 0.25e-6, 0.35e-6
"""The same, for each further block of a multiprocessor: in part others compute meanwhile."""
_JOIN_BYTES_EACH_SECOND = 40e9
"""Of sums that blocks of one multiprocessor read from each other's shared memory."""
_BUSY_WARPS = 8
"""Of a multiprocessor, that keep its tensor cores busy."""


@dataclass(frozen=True)
class Tile:
    """index: in the list of graph_executor/kernels/tensor/launch.cuh. rows, columns: of y.

    warps, shared_bytes: of a block. rate: share of a multiprocessor's arithmetic that it reaches when that is full.
    """

    index: int
    rows: int
    columns: int
    warps: int
    shared_bytes: int
    rate: float


TILES = {
    "128x128": Tile(0, 128, 128, 4, 110_592, 0.75),
    "128x64": Tile(1, 128, 64, 4, 82_944, 0.62),
    "64x64": Tile(2, 64, 64, 4, 73_728, 0.5),
    "64x64x2": Tile(3, 64, 64, 8, 73_728, 0.5),
    "32x64x2": Tile(4, 32, 64, 4, 55_296, 0.38),
    "32x32x4": Tile(5, 32, 32, 4, 36_864, 0.25),
    "128x256": Tile(6, 128, 256, 8, 165_888, 0.75),
}
"""By rows x columns and, if there are several, slices."""


@dataclass(frozen=True)
class Work:
    """A batch of products. moved: bytes that are read and written at least."""

    dtype: str
    batch: int
    rows: int
    columns: int
    inner: int
    moved: int


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
    split = min(split, stages) if facts.clusters else 1
    tiles_of_all = work.batch * -(-work.rows // tile.rows) * -(-work.columns // tile.columns)
    each = -(-stages // max(split, 1)) * depth
    most = -(-tiles_of_all * split // facts.multiprocessors)
    together = 1 if split >= LARGE_CLUSTER else most
    busy = min(1.0, 0.3 + 0.7 * together * tile.warps / _BUSY_WARPS)
    rate = _FLOPS_EACH_MULTIPROCESSOR[work.dtype] * tile.rate * busy
    read = tiles_of_all * (tile.rows + tile.columns) * work.inner * item_bytes(work.dtype)
    arithmetic = most * 2.0 * tile.rows * tile.columns * each / rate
    taken = max(arithmetic, read / L2_BYTES_EACH_SECOND, work.moved / BYTES_EACH_SECOND)
    join = 4 * tile.rows * tile.columns / _JOIN_BYTES_EACH_SECOND if split > 1 else 0.0
    next_block = _NEXT_SECONDS + join + (_NEXT_JOIN_SECONDS if split > 1 else 0.0)
    overheads = _FILL_SECONDS + join + (_JOIN_SECONDS if split > 1 else 0.0) + max(most - 1, 0) * next_block
    return LAUNCH_SECONDS + overheads + taken
