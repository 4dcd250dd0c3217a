"""Casts between NumPy's own element types, written to `out` block by block."""

from __future__ import annotations

import numpy as np

from aicore.ir import INTEGERS, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.cast import Cast
from aicore_cpu_numpy.fast._rows import BLOCK_ELEMENTS, Array

WIDE_FLOATS = frozenset({"float32", "float64"})
PLAIN = INTEGERS | WIDE_FLOATS | {"float16", "bool"}


def _supports(op: Cast, x: TensorType) -> str | None:
    if op.to not in PLAIN:
        return f"does not give {op.to}"
    if x.dtype == "float16" and op.to in INTEGERS:
        return "does not make integers of float16"
    return None


def _mask_bytes(op: Cast, x: TensorType) -> int:
    """Workspace for one boolean for each element of a block."""
    return BLOCK_ELEMENTS if x.dtype in WIDE_FLOATS and op.to in INTEGERS else 0


@kernel(Cast, device="cpu", variant="copy", dtypes=PLAIN, supports=_supports, workspace=_mask_bytes)
def cast_copy(op: Cast, x: Array, *, out: Array, workspace: Array) -> None:
    if op.to == "bool":
        np.not_equal(x, 0, out=out)
    elif x.dtype.kind == "f" and out.dtype.kind in "iu":
        source, target = x.reshape(-1), out.reshape(-1)
        for start in range(0, x.size, BLOCK_ELEMENTS):
            block = slice(start, start + BLOCK_ELEMENTS)
            _saturate(source[block], target[block], workspace.view(bool))
    else:
        np.copyto(out, x, casting="unsafe")


def _saturate(x: Array, out: Array, mask: Array) -> None:
    """Drop fractions; what no integer of out's type stands for becomes the nearest one, and NaN 0."""
    limits = np.iinfo(out.dtype)
    low, end = float(limits.min), float(limits.max + 1)  # powers of two, or 0: exact in every float
    np.copyto(out, x, casting="unsafe")
    if np.min(x) > low - 1 and np.max(x) < end:  # false for NaN
        return
    mask = mask[: x.size]
    np.copyto(out, limits.max, where=np.greater_equal(x, end, out=mask))
    np.copyto(out, limits.min, where=np.less(x, low, out=mask))
    np.copyto(out, 0, where=np.not_equal(x, x, out=mask))


KERNELS: tuple[Kernel, ...] = (cast_copy,)
