"""What a Winograd convolution is expected to take, on the scale of `_last_rates`.

Fitted to 35 layers of 7 to 160 positions a side and 16 to 512 channels, in both forms; see there.
"""

from __future__ import annotations

from aicore_cpu_numpy.fast._last_rates import CALL, packing_seconds, shared
from aicore_cpu_numpy.fast._winograd_tiles import Grid, Split

_COPIED, _COMBINED, _FINISHED, _WEIGHT = 1.3e-9, 0.2e-9, 0.6e-9, 0.55e-9
"""Seconds for an element that is copied with its padding, is combined with another one, has its turn in one pass over
the output (of which one is to find numbers that are not finite), or is a transformed weight that a block uses."""
_PRODUCT = 1.4
"""How much longer many small products take than one large one."""
_RUN, _STRIP_CALL = 28e-9, 7.5e-6
"""Seconds for the channels of one position, which lie apart from the next ones, and for a call on few tiles."""


def seconds(grid: Grid) -> float:
    """Expected time with as many workers as there are shares."""
    shares = grid.shares()
    if not shares:
        return CALL
    parts = len(shares)
    if grid.split is Split.MAPS:  # every worker reads all of the input
        read = _read(grid)
        alike = read + grid.form.products * packing_seconds(grid.total, grid.problem.channels)
        return shared(read + _multiply(grid, parts) + _write(grid), parts, alike=alike) * (1.0 if parts > 1 else 1.01)
    largest = max(share.rows[1] - share.rows[0] for share in shares)
    uneven = parts * largest / (grid.problem.images * grid.rows)
    return shared((_read(grid) + _multiply(grid, parts) + _write(grid)) * uneven, parts)


def _read(grid: Grid) -> float:
    m, n = grid.form.outputs, grid.form.inputs
    each = m * m * _COPIED + (m + n) * grid.form.reads * _COMBINED
    calls = grid.strips * (2 * grid.form.reads + m * m)
    return grid.total * (grid.problem.channels * each + m * m * _RUN) + calls * _STRIP_CALL


def _multiply(grid: Grid, parts: int) -> float:
    """Products, and for each block of each worker all of the weights that it uses."""
    p, products = grid.problem, grid.form.products
    by_rows = parts if grid.split is Split.ROWS else 1
    blocks = max(by_rows, -(-grid.total // grid.tiles))
    return _PRODUCT * grid.multiplying + blocks * products * p.channels * p.maps * _WEIGHT


def _write(grid: Grid) -> float:
    p = grid.problem
    m, n = grid.form.outputs, grid.form.inputs
    each = m * m * (1 + p.passes) * _FINISHED + (m + n) * grid.form.writes * _COMBINED
    calls = grid.strips * (2 * grid.form.writes + p.passes)
    return grid.total * (p.maps * each + m * m * _RUN) + calls * _STRIP_CALL
