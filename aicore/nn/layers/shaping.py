"""Layers that move elements and compute nothing."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from aicore.ir import Value
from aicore.nn._config import config
from aicore.nn.layer import Layer
from aicore.nn.layers._fields import Size, channels_of, is_int, known_dim, require, sizes
from aicore.nn.scope import Scope

Sides: TypeAlias = "int | tuple[int, int] | tuple[tuple[int, int], tuple[int, int]]"
"""Zeros at each side: one number, (above and below, left and right), or ((above, below), (left, right))."""


@config
class Flatten(Layer):
    """All dims but the batch in one: (batch, a, b, ...) -> (batch, a * b * ...)."""

    name: str = ""

    def build(self, scope: Scope, x: Value) -> Any:
        require(x.rank is not None and x.rank >= 1, f"the input is {x.type}, wants (batch, ...)")
        return scope.op.Flatten(x, axis=1)


@config
class Reshape(Layer):
    """Another shape for each sample. The layer for what the earlier version's successors call View.

    target_shape: without the batch; one dim may be -1, which is what is left.
    """

    target_shape: tuple[int, ...]
    name: str = ""

    def check(self) -> None:
        fits = isinstance(self.target_shape, tuple) and all(is_int(n) and n >= -1 and n for n in self.target_shape)
        require(fits, f"target_shape is {self.target_shape!r}, wants a tuple of positive integers, or -1")
        require(self.target_shape.count(-1) <= 1, f"target_shape {self.target_shape} has more than one -1")

    def build(self, scope: Scope, x: Value) -> Any:
        rank = x.rank or 0
        require(rank >= 1, f"the input is {x.type}, wants (batch, ...)")
        count = math.prod(known_dim(x, axis, "elements of a sample") for axis in range(1, rank))
        given = math.prod(n for n in self.target_shape if n != -1)
        fits = count % given == 0 if -1 in self.target_shape else count == given
        require(fits, f"{count} elements of a sample do not fit target_shape {self.target_shape}")
        shape = tuple(count // given if n == -1 else n for n in self.target_shape)
        return scope.op.Reshape(x, shape=(0, *shape))


@config
class Permute(Layer):
    """The axes of each sample in another order.

    dims: numbers of the axes, counted from 1 since the batch is 0 and stays: `Permute((2, 1))` swaps two, as in Keras.
    """

    dims: tuple[int, ...]
    name: str = ""

    def check(self) -> None:
        fits = isinstance(self.dims, tuple) and sorted(self.dims) == list(range(1, len(self.dims) + 1))
        require(fits, f"dims is {self.dims!r}, wants each of 1, 2, ... once")

    def build(self, scope: Scope, x: Value) -> Any:
        require(
            x.rank == len(self.dims) + 1, f"the input is {x.type}, and dims {self.dims} are of {len(self.dims)} axes"
        )
        return scope.op.Transpose(x, perm=(0, *self.dims))


@config
class ZeroPad2D(Layer):
    """Zeros around images (batch, channels, height, width).

    padding: one number for all sides, (above and below, left and right), or ((above, below), (left, right)).
    """

    padding: Sides = 1
    name: str = ""

    def check(self) -> None:
        _sides(self.padding)

    def build(self, scope: Scope, x: Value) -> Any:
        channels_of(x, 2)
        (top, bottom), (left, right) = _sides(self.padding)
        return scope.op.Pad(x, pads=(top, left, bottom, right), axes=(2, 3))


@config
class UpSample2D(Layer):
    """Each pixel of (batch, channels, height, width) repeated `size` times along both axes.

    size: an integer, or (height, width).
    """

    size: Size = 2
    name: str = ""

    def check(self) -> None:
        sizes("size", self.size, 2)

    def build(self, scope: Scope, x: Value) -> Any:
        op = scope.op
        channels_of(x, 2)
        height, width = (known_dim(x, axis, "pixels") for axis in (2, 3))
        down, across = sizes("size", self.size, 2)
        repeated = op.Expand(op.Unsqueeze(x, axes=(3, 5)), shape=(1, 1, 1, down, 1, across))
        return op.Reshape(repeated, shape=(0, 0, height * down, width * across))


def _sides(padding: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    both = sizes("padding", padding, 2, 0) if is_int(padding) else padding
    fits = isinstance(both, tuple) and len(both) == 2
    require(fits, f"padding is {padding!r}, wants a number, a pair of numbers, or a pair of pairs")
    first, second = (sizes("padding", side, 2, 0) for side in both)
    return (first[0], first[1]), (second[0], second[1])
