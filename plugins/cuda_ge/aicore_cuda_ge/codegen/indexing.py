"""Where the elements of broadcast operands lie: as few dims as possible, and the stride of each operand along them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """The elements of a result and those of dense operands that broadcast to it, after merging dims.

    dims: sizes, outermost first, at least one of them; none is 1 but the only one.
    strides: of each operand along each dim, in elements; 0 repeats it.
    """

    dims: Dims
    strides: tuple[Dims, ...]

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def is_flat(self) -> bool:
        """Whether every operand is as large as the result, or one number."""
        return len(self.dims) <= 1

    def is_whole(self, operand: int) -> bool:
        """Whether the operand's elements lie as those of the result."""
        return self.strides[operand] == dense_strides(self.dims)

    def is_single(self, operand: int) -> bool:
        """Whether the operand is one number for all elements."""
        return not any(self.strides[operand])


def collapse(shape: Dims, operands: Sequence[Dims]) -> Space:
    """The fewest dims that tell where the operands' elements are; they broadcast to `shape` from the right."""
    strides = [_broadcast_strides(shape, operand) for operand in operands]
    dims: list[int] = []
    kept: list[list[int]] = [[] for _ in operands]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [along[axis] for along in strides]
        if dims and all(old[-1] == new * size for old, new in zip(kept, here, strict=True)):
            dims[-1] *= size
            for old, new in zip(kept, here, strict=True):
                old[-1] = new
            continue
        dims.append(size)
        for old, new in zip(kept, here, strict=True):
            old.append(new)
    if not dims:
        return Space((1,), ((0,),) * len(operands))
    return Space(tuple(dims), tuple(map(tuple, kept)))


def dense_strides(shape: Dims) -> Dims:
    """Elements from one index to the next along each dim of a dense tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _broadcast_strides(shape: Dims, operand: Dims) -> Dims:
    own = dense_strides(operand)
    missing = len(shape) - len(operand)
    return (0,) * missing + tuple(0 if size == 1 else stride for size, stride in zip(operand, own, strict=True))
