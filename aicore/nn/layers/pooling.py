"""Pooling: one number for each window of each channel, or for each whole channel. Images are NCHW."""

from __future__ import annotations

from typing import Any, ClassVar

from aicore.ir import Value
from aicore.nn._config import config
from aicore.nn.layer import Layer
from aicore.nn.layers._fields import Padding, Size, channels_of, sizes, window_padding
from aicore.nn.scope import Scope


class _Pool(Layer):
    """What pools of windows have in common: fields, and how they become an op. kind: name of the op."""

    pool_size: Size
    strides: Size | None
    padding: Padding

    kind: ClassVar[str]
    spatial: ClassVar[int]

    def check(self) -> None:
        sizes("pool_size", self.pool_size, self.spatial)
        if self.strides is not None:
            sizes("strides", self.strides, self.spatial)
        window_padding(self.padding, self.spatial)

    def build(self, scope: Scope, x: Value) -> Any:
        channels_of(x, self.spatial)
        window = sizes("pool_size", self.pool_size, self.spatial)
        strides = window if self.strides is None else sizes("strides", self.strides, self.spatial)
        attributes = {**self._attributes(), **window_padding(self.padding, self.spatial)}
        return getattr(scope.op, self.kind)(x, kernel_shape=window, strides=strides, **attributes)

    def _attributes(self) -> dict[str, Any]:
        """Those that the other op does not have."""
        return {}


@config
class _MaxPool(_Pool):
    pool_size: Size = 2
    strides: Size | None = None
    padding: Padding = "valid"
    name: str = ""

    kind = "MaxPool"


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
class _AveragePool(_Pool):
    pool_size: Size = 2
    strides: Size | None = None
    padding: Padding = "valid"
    count_include_pad: bool = False
    name: str = ""

    kind = "AveragePool"

    def _attributes(self) -> dict[str, Any]:
        return {"count_include_pad": int(self.count_include_pad)}


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
