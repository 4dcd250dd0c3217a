"""All positions of a sliding window as one array, for convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicore.ops.window import Windowed
from aicore.runtime import check_room

Array = np.ndarray[Any, Any]


def windows(x: Array, op: Windowed, dims: Sequence[int], fill: Any) -> Array:
    """(N, C, spatial...) -> (N, C, dims..., kernel...), with `fill` wherever a window reaches beyond `x`.

    dims: positions of the window in each spatial dim.
    """
    count = len(dims)
    margins = [(0, 0), (0, 0)]
    for i, (size, positions) in enumerate(zip(x.shape[2:], dims, strict=True)):
        reach = (positions - 1) * op.strides[i] + (op.kernel_shape[i] - 1) * op.dilations[i] + 1
        margins.append((op.pads[i], max(reach - op.pads[i] - size, 0)))
    padded_dims = (dim + sum(margin) for dim, margin in zip(x.shape, margins, strict=True))
    elements = max(math.prod(padded_dims), math.prod((*x.shape[:2], *dims, *op.kernel_shape)))
    check_room(elements * x.itemsize, f"windows of {op.kernel_shape} over {x.shape[2:]} with pads {op.pads}")
    padded = np.pad(x, margins, constant_values=fill)
    spatial = padded.strides[2:]
    steps = (*(spatial[i] * op.strides[i] for i in range(count)), *(spatial[i] * op.dilations[i] for i in range(count)))
    shape = (*x.shape[:2], *dims, *op.kernel_shape)
    return np.lib.stride_tricks.as_strided(padded, shape, (*padded.strides[:2], *steps), writeable=False)
