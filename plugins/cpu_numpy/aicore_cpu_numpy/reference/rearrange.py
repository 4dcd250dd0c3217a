"""Space and depth, reversed sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.kernels import Kernel, kernel
from aicore.ops.rearrange import DepthToSpace, ReverseSequence, SpaceToDepth

Array = np.ndarray[Any, Any]


@kernel(DepthToSpace, device="cpu")
def depth_to_space(op: DepthToSpace, x: Array) -> Array:
    n, c, h, w = x.shape
    b = op.blocksize
    depth = c // (b * b)
    if op.mode == "DCR":
        blocks = x.reshape(n, b, b, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, depth, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, depth, h * b, w * b)


@kernel(SpaceToDepth, device="cpu")
def space_to_depth(op: SpaceToDepth, x: Array) -> Array:
    n, c, h, w = x.shape
    b = op.blocksize
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if op.mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return blocks.transpose(order).reshape(n, c * b * b, h // b, w // b)


@kernel(ReverseSequence, device="cpu")
def reverse_sequence(op: ReverseSequence, x: Array, sequence_lens: Array) -> Array:
    y = x.copy()
    source, target = (np.moveaxis(a, (op.batch_axis, op.time_axis), (0, 1)) for a in (x, y))
    for batch, length in enumerate(sequence_lens.tolist()):
        if not 0 <= length <= source.shape[1]:
            raise ExecutionError(f"sequence_lens[{batch}] is {length}, wants 0 to {source.shape[1]}")
        target[batch, :length] = source[batch, :length][::-1]
    return y


KERNELS: tuple[Kernel, ...] = (depth_to_space, space_to_depth, reverse_sequence)
