"""Winograd's minimal filtering F(m x m, 3 x 3): m x m outputs from n x n inputs, n = m + 2, with n x n products.

y = A^T [(G g G^T) * (B^T d B)] A for a tile d of one channel and a kernel g. The products are summed over channels, so
they are n x n matrix products over all tiles. F(4 x 4) multiplies 4 times less often than the plain sum, F(2 x 2) 2.25
times less often.

Rounding: B^T and A^T cancel what they first enlarge, so an error is relative to the largest numbers of a whole tile,
not to those that one output is made of. How much they enlarge depends on the points of interpolation. The usual ones of
F(4 x 4) are 0, 1, -1, 2, -2 and infinity; 5/8 and 3/2 instead of 1 and 2 take 38 additions and products instead of 30,
and leave less than a third of the largest error (1.3e-6 instead of 4.5e-6 of the largest output, for 64 channels).

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015, sections 4.1 and 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from aicore.records import dataclass
from aicore.runtime import thread_count
from aicore_cpu_numpy.fast._last_problem import even_spans
from aicore_cpu_numpy.fast._parallel import spans
from aicore_cpu_numpy.workers import run_tasks, single_threaded_blas

Array = np.ndarray[Any, Any]
Call: TypeAlias = Callable[[], Any]
View: TypeAlias = Callable[[Array], Array]
Stage: TypeAlias = Callable[[Sequence[Array], Sequence[Array], Sequence[Array], View], list[Call]]
"""(sources, targets, three temporaries, view) -> calls that combine the sources along one axis.

Sources and temporaries are of one shape, of which `view` gives the part that the targets get, in their shape.
"""

KERNEL = 3
TEMPORARIES = 3
_SLICE_BYTES, _SHARED = 1 << 20, 1 << 16
"""Of results in float64 at a time, and weights that are worth sharing among workers."""

_NEAR, _FAR = np.float32(0.625), np.float32(1.5)
_NEAR_SQUARED, _FAR_SQUARED = _NEAR * _NEAR, _FAR * _FAR
"""The points of F(4 x 4); both squares are exact."""


@dataclass(frozen=True, eq=False)
class Form:
    """One F(m x m, 3 x 3).

    outputs: m.
    kernel: G, (n, 3).
    read: B^T along one axis: n sources to n targets, each written once.
    write: A^T along one axis: n sources to m targets, each written once.
    reads, writes: how many calls these are.
    """

    outputs: int
    kernel: Array
    read: Stage
    write: Stage
    reads: int
    writes: int

    @property
    def inputs(self) -> int:
        """n, length of a tile."""
        return self.outputs + KERNEL - 1

    @property
    def products(self) -> int:
        """Matrix products: one for each element of a tile."""
        return self.inputs**2


def transform_weights(form: Form, w: Array, out: Array | None = None) -> Array:
    """G g G^T in float64, rounded once: (maps, channels, 3, 3) -> (n * n, channels, maps), in the type of `w`."""
    maps, channels = w.shape[:2]
    found = np.empty((form.products, channels, maps), w.dtype) if out is None else out
    parts = spans(channels, 1 if w.size <= _SHARED else thread_count())
    with single_threaded_blas():  # waking BLAS's own threads for so small a product takes up to 20 ms
        run_tasks([partial(_transform_slice, form, w, found, *part) for part in parts])
    return found


def _transform_slice(form: Form, w: Array, found: Array, start: int, stop: int) -> None:
    """Some channels, a few at a time: in float64 the results are 8 times as large as the weights."""
    maps, both = w.shape[0], np.kron(form.kernel, form.kernel)
    step = max(1, _SLICE_BYTES // (8 * form.products * max(maps, 1)))
    for low, high in even_spans(start, stop, step):
        part = w[:, low:high].transpose(2, 3, 1, 0).astype(np.float64, order="C")
        with np.errstate(all="ignore"):  # results that are not finite are computed again without these weights
            found[:, low:high] = (both @ part.reshape(KERNEL**2, -1)).reshape(form.products, -1, maps)


def _read_2(d: Sequence[Array], t: Sequence[Array], temporaries: Sequence[Array], view: View) -> list[Call]:
    return [
        partial(np.subtract, view(d[0]), view(d[2]), t[0]),
        partial(np.add, view(d[1]), view(d[2]), t[1]),
        partial(np.subtract, view(d[2]), view(d[1]), t[2]),
        partial(np.subtract, view(d[1]), view(d[3]), t[3]),
    ]


def _write_2(m: Sequence[Array], y: Sequence[Array], temporaries: Sequence[Array], view: View) -> list[Call]:
    u, v, _ = temporaries
    return [
        partial(np.add, m[1], m[2], u),
        partial(np.subtract, m[1], m[2], v),
        partial(np.add, view(m[0]), view(u), y[0]),
        partial(np.subtract, view(v), view(m[3]), y[1]),
    ]


def _read_4(d: Sequence[Array], t: Sequence[Array], temporaries: Sequence[Array], view: View) -> list[Call]:
    """Products of all (x - p) but one, with d[i] for the power i of x; those of p and -p share their u and v."""
    u, v, w = temporaries
    return [
        partial(np.multiply, d[2], _FAR_SQUARED, u),
        partial(np.subtract, d[4], u, u),
        partial(np.multiply, d[1], _FAR_SQUARED, v),
        partial(np.subtract, d[3], v, v),
        partial(np.multiply, v, _NEAR, v),
        partial(np.add, view(u), view(v), t[1]),
        partial(np.subtract, view(u), view(v), t[2]),
        partial(np.multiply, d[0], _FAR_SQUARED, w),
        partial(np.subtract, d[2], w, w),
        partial(np.multiply, w, _NEAR_SQUARED, w),
        partial(np.subtract, view(u), view(w), t[0]),
        partial(np.multiply, v, _NEAR, v),
        partial(np.multiply, d[3], _FAR_SQUARED, w),
        partial(np.subtract, d[5], w, w),
        partial(np.subtract, view(w), view(v), t[5]),
        partial(np.multiply, d[2], _NEAR_SQUARED, u),
        partial(np.subtract, d[4], u, u),
        partial(np.multiply, d[1], _NEAR_SQUARED, v),
        partial(np.subtract, d[3], v, v),
        partial(np.multiply, v, _FAR, v),
        partial(np.add, view(u), view(v), t[3]),
        partial(np.subtract, view(u), view(v), t[4]),
    ]


def _write_4(m: Sequence[Array], y: Sequence[Array], temporaries: Sequence[Array], view: View) -> list[Call]:
    """Powers of the points; infinity counts for the highest only."""
    u, v, w = temporaries
    return [
        partial(np.add, m[1], m[2], u),
        partial(np.add, m[3], m[4], v),
        partial(np.add, m[0], u, w),
        partial(np.add, view(w), view(v), y[0]),
        partial(np.multiply, u, _NEAR_SQUARED, u),
        partial(np.multiply, v, _FAR_SQUARED, v),
        partial(np.add, view(u), view(v), y[2]),
        partial(np.subtract, m[1], m[2], u),
        partial(np.subtract, m[3], m[4], v),
        partial(np.multiply, u, _NEAR, u),
        partial(np.multiply, v, _FAR, v),
        partial(np.add, view(u), view(v), y[1]),
        partial(np.multiply, u, _NEAR_SQUARED, u),
        partial(np.multiply, v, _FAR_SQUARED, v),
        partial(np.add, u, v, u),
        partial(np.add, view(u), view(m[5]), y[3]),
    ]


def _kernel_4(near: float, far: float) -> Array:
    """G: powers of each point over the product of its distances to the others."""
    points = (0.0, near, -near, far, -far)
    rows = [[p**i / math.prod(p - q for q in points if q != p) for i in range(KERNEL)] for p in points]
    return np.array([*rows, [0.0, 0.0, 1.0]])


_G2 = np.array([[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]])

FORM_2 = Form(2, _G2, _read_2, _write_2, reads=4, writes=4)
FORM_4 = Form(4, _kernel_4(float(_NEAR), float(_FAR)), _read_4, _write_4, reads=22, writes=16)
