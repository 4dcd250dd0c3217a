"""How long the kernels for matrix products should take: waves of blocks, their arithmetic, and memory.

The rates are what kernels of these shapes reach on an H200, relative to its arithmetic; tuning replaces them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, FLOPS_EACH_MULTIPROCESSOR, LAUNCH_SECONDS, machine
from aicore_cuda_ge.kernels._packing import pack_seconds
from aicore_cuda_ge.kernels._product import Product

L2_BYTES_EACH_SECOND = 5.5e12
LARGE_CLUSTER = 4
"""Of clusters of so many blocks a multiprocessor was seen to run one block at a time."""
LARGE_CLUSTER_SHARE = 0.9
"""Of the multiprocessors: large clusters are placed less evenly, since all their blocks must be neighbours."""
_BLOCK_SECONDS = 1.0e-6
"""Of a wave of blocks, before the first numbers come from memory."""
_TAIL_FLOPS, _RARE_TAIL_FLOPS, _LAST_CHEAP = 90, 225, 3
"""Of a result, to store it: with activations up to this number, and with exponentials and their like."""
_TURNED = 17
"""An operand that lies along the inner axis is stored turned: as dear as so many more products of each number."""
_CLUSTER_SECONDS = 0.3e-6
"""To meet."""
_JOIN_BYTES_EACH_SECOND = 16e9
"""Of sums that the blocks of one multiprocessor read from each other's shared memory."""

_ROWS_SECONDS, _SHARE_SECONDS = 0.3e-6, 0.37e-6
"""Of the kernel that sums rows of b: to begin, and for each doubling of the blocks that share the inner axis."""
_TURN_SECONDS, _TURN_SECONDS_EACH_ROW, _ROW_BLOCKS = 0.64e-6, 0.5e-6, 2
"""Of 128 rows of b: for one row of a, and for each further one; blocks of a multiprocessor that do not wait."""
_NOT_HIDDEN = 0.6
"""Of the time that memory needs for b, beside the turns."""


@dataclass(frozen=True)
class Tile:
    """rows, columns, step: of a block. resident: blocks that an SM holds at once.

    full: share of the arithmetic that an SM reaches when it holds them all; alone: when it holds one.
    shared_bytes: of a block.
    """

    rows: int
    columns: int
    step: int
    resident: int
    full: float
    alone: float
    shared_bytes: int

    def blocks(self, product: Product) -> int:
        """Of the whole batch, without splits."""
        return product.entries * -(-product.rows // self.rows) * -(-product.columns // self.columns)


TILES = {
    "128x256": Tile(128, 256, 16, 1, 0.80, 0.80, 75_264),
    "64x128": Tile(64, 128, 16, 3, 0.78, 0.63, 38_400),
    "64x128x2": Tile(64, 128, 32, 1, 0.71, 0.71, 76_800),
    "32x64x4": Tile(32, 64, 32, 2, 0.65, 0.65, 39_936),
    "32x32x4": Tile(32, 32, 32, 2, 0.56, 0.56, 27_648),
}
"""By rows x columns and, if there are several, slices."""

_SPLITS = {
    "128x256": (1,),
    "64x128": (1,),
    "64x128x2": (1, 2),
    "32x64x4": (1, 2, 4, 8),
    "32x32x4": (1, 2, 4, 8),
}
_PACKED = "128x256"
"""The tile for which a that lies along the inner axis may be turned by a launch of its own, in large products."""


def plans() -> tuple[str, ...]:
    """Settings of the tiled kernel that this machine can run.

    Such as 32x64x4/2: a tile, and parts of the inner axis; 128x256/1/packed turns a first.
    """
    fitting = [name for name, tile in TILES.items() if tile.shared_bytes <= machine().shared_bytes]
    packed = (f"{_PACKED}/1/packed",) if _PACKED in fitting else ()
    return (*(f"{name}/{splits}" for name in reversed(fitting) for splits in _SPLITS[name]), *packed)


def parse(plan: str) -> tuple[str, int, bool]:
    """(tile, splits, whether a is packed where it can be)"""
    name, splits, *packed = plan.split("/")
    return name, int(splits), bool(packed)


def turned(product: Product) -> Product | None:
    """The same with an a whose rows lie side by side, which pack_rows makes; None where that does not help.

    Rows of b must be read 16 bytes at a time, and rows of packed a are filled up for that.
    """
    if product.reads != 1 or len(product.batch) > 1:
        return None
    rows = -(-product.rows // 4) * 4
    batch = tuple(replace(axis, a=rows * product.inner if axis.a else 0) for axis in product.batch)
    return replace(product, a_row=1, a_inner=rows, batch=batch)


def packed_entries(product: Product) -> int:
    """Matrices a of the batch."""
    return _entries(product, "a")


def tiled_seconds(product: Product, plan: str) -> float:
    """Of the tiled kernel for float32."""
    name, splits, packed = parse(plan)
    if packed and (other := turned(product)):
        nbytes = 4 * other.inner * other.a_inner * packed_entries(product)
        return pack_seconds(nbytes) + tiled_seconds(other, f"{name}/{splits}")
    tile = TILES[name]
    blocks = tile.blocks(product) * splits
    if not blocks:
        return 0.0
    length = -(-product.inner // (splits * tile.step)) * tile.step
    large = splits >= LARGE_CLUSTER and machine().clusters
    busiest = math.ceil(blocks / (machine().multiprocessors * (LARGE_CLUSTER_SHARE if large else 1.0)))
    resident, full = (1, tile.alone) if large else (tile.resident, tile.full)
    one = _flops(product, tile, length, splits) / FLOPS_EACH_MULTIPROCESSOR
    waves, rest = divmod(busiest, resident)
    seconds = waves * resident * one / full
    if rest:
        seconds += rest * one / min(full, tile.alone * rest)
    read = blocks * (tile.rows + tile.columns) * length * 4
    seconds = max(seconds, read / L2_BYTES_EACH_SECOND, _moved(product) / BYTES_EACH_SECOND)
    overheads = (waves + bool(rest)) * _BLOCK_SECONDS
    if splits > 1:
        overheads += _split_seconds(product, splits, 4 * busiest * tile.rows * tile.columns)
    return LAUNCH_SECONDS + seconds + overheads


def _flops(product: Product, tile: Tile, length: int, splits: int) -> float:
    """Of one block, with what takes as long as so many."""
    tail = (_RARE_TAIL_FLOPS if is_rare(product) else _TAIL_FLOPS) / splits
    results = tile.rows * tile.columns
    stored = tile.rows * (product.reads in (1, 2)) + tile.columns * (product.reads == 2)
    return 2.0 * length * (results + _TURNED * stored) + tail * results


def is_rare(product: Product) -> bool:
    """Whether the activation takes exponentials or their like."""
    return product.activation[0] > _LAST_CHEAP


def _split_seconds(product: Product, splits: int, joined: int) -> float:
    """joined: bytes of sums that one multiprocessor collects."""
    if machine().clusters:
        return _CLUSTER_SECONDS + joined / _JOIN_BYTES_EACH_SECOND
    results = product.entries * product.rows * product.columns
    return LAUNCH_SECONDS + 8 * splits * results / L2_BYTES_EACH_SECOND


def rows_seconds(product: Product, share: int) -> float:
    """Of the kernels for few rows: b is read once, by dot products along its rows or by sums of them."""
    if product.b_inner == 1:
        return _dot_seconds(product, share)
    blocks = product.entries * -(-product.columns // 32) * share
    if not blocks:
        return 0.0
    passes = -(-product.inner // (share * 128)) if product.inner > 128 else product.inner / 128
    each = passes * (_TURN_SECONDS + (product.rows - 1) * _TURN_SECONDS_EACH_ROW)
    turns = each * max(1.0, blocks / (_ROW_BLOCKS * machine().multiprocessors))
    joins = _SHARE_SECONDS * math.log2(share) if machine().clusters else 0.0
    read = (1 if product.b_is_wide else 2) * _moved(product) / (0.85 * BYTES_EACH_SECOND)
    return LAUNCH_SECONDS + _ROWS_SECONDS + joins + max(read, turns + _NOT_HIDDEN * read)


def _dot_seconds(product: Product, share: int) -> float:
    """At the rate that the threads at work can ask for b."""
    blocks = -(-product.columns * share // 8) * product.entries
    if not blocks:
        return 0.0
    busy = min(1.0, blocks / (2 * machine().multiprocessors))
    rate = 0.85 * BYTES_EACH_SECOND * max(busy, 1e-3)
    taken = 1 if product.rows == 1 else 1.3 if product.rows <= 4 else 2.0
    each = -(-product.inner // (share * 128 * 4))
    reads = each * 0.7e-6 / (1 if blocks < machine().multiprocessors else 2)
    wide = 1 if product.inner_is_wide else 2
    return LAUNCH_SECONDS + _BLOCK_SECONDS + max(reads, _moved(product) * taken * wide / rate)


def blocked_seconds(product: Product) -> float:
    """Of the 16 x 16 blocks, for any element type."""
    blocks = product.entries * -(-product.rows // 16) * -(-product.columns // 16)
    waves = -(-blocks // (8 * machine().multiprocessors))
    one = 8 * 2 * 256 * product.inner / (0.08 * FLOPS_EACH_MULTIPROCESSOR)
    return LAUNCH_SECONDS + _BLOCK_SECONDS + waves * one


def _moved(product: Product) -> int:
    """Bytes of float32 operands and result, each once."""
    a = product.rows * product.inner * _entries(product, "a")
    b = product.columns * product.inner * _entries(product, "b")
    return 4 * (a + b + product.rows * product.columns * product.entries)


def _entries(product: Product, operand: str) -> int:
    count = 1
    for axis in product.batch:
        count *= axis.size if getattr(axis, operand) else 1
    return count
