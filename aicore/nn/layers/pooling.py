"""Pooling: one number for each window of each channel, or for each whole channel. Images are NCHW."""

from __future__ import annotations

from typing import Any, ClassVar

from aicore.ir import Value
from aicore.nn._config import config
from aicore.nn.layer import Layer
from aicore.nn.layers._fields import Padding, Size, channels_of, sizes, window_padding
from aicore.nn.scope import Scope


@config
class _MaxPool(Layer):
    pool_size: Size = 2
    strides: Size | None = None
    padding: Padding = "valid"
    name: str = ""

    spatial: ClassVar[int]

    def check(self) -> None:
        _check(self.pool_size, self.strides, self.padding, self.spatial)

    def build(self, scope: Scope, x: Value) -> Any:
        channels_of(x, self.spatial)
        window = sizes("pool_size", self.pool_size, self.spatial)
        strides = window if self.strides is None else sizes("strides", self.strides, self.spatial)
        padding = window_padding(self.padding, self.spatial)
        return scope.op.MaxPool(x, kernel_shape=window, strides=strides, **padding)


@config
class MaxPool1D(_MaxPool):
    """The largest element of each window of (batch, channels, length); see MaxPool2D."""

    spatial = 1


@config
class MaxPool2D(_MaxPool):
    """The largest element of each window of (batch, channels, height, width).

    pool_size: the window, an integer or one for each spatial dim.
    strides: steps from window to window; None for windows that do not overlap.
    padding: `valid`, `same`, or numbers at both ends; padding never is the largest.
    """

    spatial = 2


@config
class _AveragePool(Layer):
    pool_size: Size = 2
    strides: Size | None = None
    padding: Padding = "valid"
    count_include_pad: bool = False
    name: str = ""

    spatial: ClassVar[int]

    def check(self) -> None:
        _check(self.pool_size, self.strides, self.padding, self.spatial)

    def build(self, scope: Scope, x: Value) -> Any:
        channels_of(x, self.spatial)
        window = sizes("pool_size", self.pool_size, self.spatial)
        strides = window if self.strides is None else sizes("strides", self.strides, self.spatial)
        padding = window_padding(self.padding, self.spatial)
        counted = int(self.count_include_pad)
        return scope.op.AveragePool(x, kernel_shape=window, strides=strides, count_include_pad=counted, **padding)


@config
class AveragePool1D(_AveragePool):
    """The mean of each window of (batch, channels, length); see AveragePool2D."""

    spatial = 1


@config
class AveragePool2D(_AveragePool):
    """The mean of each window of (batch, channels, height, width).

    count_include_pad: whether padding counts, as zeros, as in PyTorch by default; Keras counts none.
    The other fields are those of MaxPool2D.
    """

    spatial = 2


AvgPool2D = AveragePool2D
"""The earlier version's name of it."""


@config
class _GlobalPool(Layer):
    keepdims: bool = False
    name: str = ""

    spatial: ClassVar[int]
    kind: ClassVar[str]

    def build(self, scope: Scope, x: Value) -> Any:
        channels_of(x, self.spatial)
        pooled: Value = getattr(scope.op, self.kind)(x)
        if self.keepdims:
            return pooled
        return scope.op.Squeeze(pooled, axes=tuple(range(2, 2 + self.spatial)))


@config
class GlobalAveragePool1D(_GlobalPool):
    """The mean of each channel: (batch, channels, length) -> (batch, channels); see GlobalAveragePool2D."""

    spatial = 1
    kind = "GlobalAveragePool"


@config
class GlobalAveragePool2D(_GlobalPool):
    """The mean of each channel: (batch, channels, height, width) -> (batch, channels).

    keepdims: keep the spatial dims, as 1.
    """

    spatial = 2
    kind = "GlobalAveragePool"


@config
class GlobalMaxPool1D(_GlobalPool):
    """The largest of each channel: (batch, channels, length) -> (batch, channels); see GlobalAveragePool2D."""

    spatial = 1
    kind = "GlobalMaxPool"


@config
class GlobalMaxPool2D(_GlobalPool):
    """The largest of each channel: (batch, channels, height, width) -> (batch, channels); see GlobalAveragePool2D."""

    spatial = 2
    kind = "GlobalMaxPool"


def _check(pool_size: Size, strides: Size | None, padding: Padding, spatial: int) -> None:
    sizes("pool_size", pool_size, spatial)
    if strides is not None:
        sizes("strides", strides, spatial)
    window_padding(padding, spatial)
