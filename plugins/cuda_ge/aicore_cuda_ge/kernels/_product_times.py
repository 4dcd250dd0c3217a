"""How long the kernels for matrix products should take: waves of blocks, their arithmetic, and memory.

The rates are what kernels of these shapes reach on an H200, relative to its arithmetic; tuning replaces them.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, FLOPS_EACH_MULTIPROCESSOR, LAUNCH_SECONDS, machine
from aicore_cuda_ge.kernels._product import Product

L2_BYTES_EACH_SECOND = 5.5e12
LARGE_CLUSTER = 4
"""Of clusters of so many blocks a multiprocessor was seen to run one block at a time."""
_BLOCK_SECONDS = 1.2e-6
"""Of a block beside its arithmetic: first numbers from memory, results to memory."""
_TAIL_FLOPS, _RARE_TAIL_FLOPS, _LAST_CHEAP = 20, 120, 3
"""Of a result beside its products: with activations up to this number, and with exponentials and their like."""
_CLUSTER_SECONDS = 0.8e-6
"""To meet, and to read each other's sums."""


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
    "128x256": Tile(128, 256, 16, 1, 0.75, 0.75, 75_264),
    "128x128": Tile(128, 128, 16, 2, 0.68, 0.43, 50_688),
    "64x128": Tile(64, 128, 16, 3, 0.66, 0.34, 38_400),
    "64x128x2": Tile(64, 128, 32, 1, 0.56, 0.56, 76_800),
    "64x64": Tile(64, 64, 16, 4, 0.58, 0.24, 34_816),
    "64x64x4": Tile(64, 64, 32, 2, 0.60, 0.46, 52_224),
    "32x64x4": Tile(32, 64, 32, 2, 0.48, 0.34, 39_936),
    "32x32x4": Tile(32, 32, 32, 2, 0.32, 0.22, 27_648),
}
"""By rows x columns and, if there are several, slices."""

_SPLITS = {
    "128x256": (1,),
    "128x128": (1, 2, 4),
    "64x128": (1, 2),
    "64x128x2": (1, 2, 4),
    "64x64": (1, 2),
    "64x64x4": (1, 2, 4, 8),
    "32x64x4": (1, 2, 4, 8),
    "32x32x4": (1, 2, 4, 8),
}


def plans() -> tuple[str, ...]:
    """Settings of the tiled kernel that this machine can run, such as 64x64/4: a tile, and parts of the inner axis."""
    fitting = [name for name, tile in TILES.items() if tile.shared_bytes <= machine().shared_bytes]
    return tuple(f"{name}/{splits}" for name in reversed(fitting) for splits in _SPLITS[name])


def parse(plan: str) -> tuple[str, int]:
    """(tile, splits)"""
    name, _, splits = plan.partition("/")
    return name, int(splits)


def tiled_seconds(product: Product, plan: str) -> float:
    """Of the tiled kernel for float32."""
    name, splits = parse(plan)
    tile, sms = TILES[name], machine().multiprocessors
    blocks = tile.blocks(product) * splits
    if not blocks:
        return 0.0
    length = -(-product.inner // (splits * tile.step)) * tile.step
    tail = (_RARE_TAIL_FLOPS if product.activation[0] > _LAST_CHEAP else _TAIL_FLOPS) / splits
    one = tile.rows * tile.columns * (2 * length + tail) / FLOPS_EACH_MULTIPROCESSOR
    busiest = -(-blocks // sms)
    resident, full = (1, tile.alone) if splits >= LARGE_CLUSTER else (tile.resident, tile.full)
    waves, rest = divmod(busiest, resident)
    seconds = waves * resident * one / full
    if rest:
        seconds += rest * one / min(full, tile.alone * rest)
    read = blocks * (tile.rows + tile.columns) * length * 4
    seconds = max(seconds, read / L2_BYTES_EACH_SECOND, _moved(product) / BYTES_EACH_SECOND)
    overheads = (waves + bool(rest)) * _BLOCK_SECONDS + (splits > 1) * _split_seconds(product, splits)
    return LAUNCH_SECONDS + seconds + overheads


def _split_seconds(product: Product, splits: int) -> float:
    results = product.entries * product.rows * product.columns
    if machine().clusters:
        return _CLUSTER_SECONDS + 4 * splits * results / L2_BYTES_EACH_SECOND
    return LAUNCH_SECONDS + 8 * splits * results / L2_BYTES_EACH_SECOND


def rows_seconds(product: Product, share: int) -> float:
    """Of the kernels for few rows: b is read once, at the rate that the threads at work can ask for it."""
    dots = product.b_inner == 1
    groups = -(-product.columns * share // 8) if dots else -(-product.columns // 32) * share
    blocks = groups * product.entries
    if not blocks:
        return 0.0
    busy = min(1.0, blocks / (2 * machine().multiprocessors))
    rate = 0.85 * BYTES_EACH_SECOND * max(busy, 1e-3)
    taken = 1 if product.rows == 1 else 1.3 if product.rows <= 4 else 2.0
    latency = _BLOCK_SECONDS + (0.6e-6 if share > 1 and not dots else 0.0)
    wide = product.inner_is_wide if dots else product.b_is_wide
    each = -(-product.inner // (share * 128 * 4)) if dots else -(-product.inner // (share * 32 * 4))
    reads = each * 0.7e-6 / (1 if blocks < machine().multiprocessors else 2)
    return LAUNCH_SECONDS + latency + max(reads, _moved(product) * taken * (1 if wide else 2) / rate)


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
