"""Convolutions and their transposes, of one and two spatial dims. Images are NCHW: (batch, channels, height, width)."""

from __future__ import annotations

from typing import Any, ClassVar

from aicore.ir import Value
from aicore.nn._config import config
from aicore.nn.initializers import Initializer, initializer
from aicore.nn.layer import Layer
from aicore.nn.layers._fields import Padding, Size, channels_of, positive, require, sizes, window_padding
from aicore.nn.layers.activations import ActivationLike, activated, activation
from aicore.nn.scope import Scope


class _Filters(Layer):
    """What a convolution and its transpose have in common: fields, and how they become an op. kind: name of the op."""

    filters: int
    kernel_size: Size
    strides: Size
    padding: Padding
    dilation: Size
    groups: int
    activation: ActivationLike
    use_bias: bool
    initializer: Initializer | str
    bias_initializer: Initializer | str

    kind: ClassVar[str]
    spatial: ClassVar[int]

    def check(self) -> None:
        positive("filters", self.filters)
        positive("groups", self.groups)
        even = self.filters % self.groups == 0
        require(even, f"{self.filters} filters do not divide into {self.groups} groups")
        for what in ("kernel_size", "strides", "dilation"):
            sizes(what, getattr(self, what), self.spatial)
        window_padding(self.padding, self.spatial)
        activation(self.activation)
        initializer(self.initializer)
        initializer(self.bias_initializer)

    def build(self, scope: Scope, x: Value) -> Any:
        channels = channels_of(x, self.spatial)
        require(channels % self.groups == 0, f"{channels} channels do not divide into {self.groups} groups")
        kernel = sizes("kernel_size", self.kernel_size, self.spatial)
        weight = scope.parameter("weight", (*self._channels(channels), *kernel), initializer(self.initializer))
        bias = scope.parameter("bias", (self.filters,), initializer(self.bias_initializer)) if self.use_bias else None
        y = getattr(scope.op, self.kind)(
            x,
            weight,
            bias,
            kernel_shape=kernel,
            strides=sizes("strides", self.strides, self.spatial),
            dilations=sizes("dilation", self.dilation, self.spatial),
            group=self.groups,
            **self._attributes(),
            **window_padding(self.padding, self.spatial),
        )
        return activated(scope, self.activation, y)

    def _channels(self, channels: int) -> tuple[int, int]:
        """The first two dims of the weight, for so many channels of the input."""
        return self.filters, channels // self.groups

    def _attributes(self) -> dict[str, Any]:
        """Those that the other op does not have."""
        return {}


@config
class _Convolution(_Filters):
    filters: int
    kernel_size: Size
    strides: Size = 1
    padding: Padding = "valid"
    dilation: Size = 1
    groups: int = 1
    activation: ActivationLike = None
    use_bias: bool = True
    initializer: Initializer | str = "he_normal"
    bias_initializer: Initializer | str = "zeros"
    name: str = ""

    kind = "Conv"


@config
class Conv1D(_Convolution):
    """A convolution along one axis: (batch, channels, length) -> (batch, filters, length). See Conv2D."""

    spatial = 1


@config
class Conv2D(_Convolution):
    """A convolution of images: (batch, channels, height, width) -> (batch, filters, height, width).

    Parameters: weight [filters, channels / groups, kernel height, kernel width], as in PyTorch; bias [filters].

    filters: channels of the output.
    kernel_size, strides, dilation: an integer, or one for each spatial dim.
    padding: `valid`, `same`, or numbers of zeros at both ends of each spatial dim.
    groups: parts of the channels that do not see each other; as many as channels for a depthwise convolution.
    activation: a name of `ACTIVATIONS`, a layer, or None.
    use_bias: False leaves out the bias.
    initializer, bias_initializer: where weight and bias start.
    """

    spatial = 2


@config
class _TransposedConvolution(_Filters):
    filters: int
    kernel_size: Size
    strides: Size = 1
    padding: Padding = "valid"
    output_padding: Size = 0
    dilation: Size = 1
    groups: int = 1
    activation: ActivationLike = None
    use_bias: bool = True
    initializer: Initializer | str = "he_normal"
    bias_initializer: Initializer | str = "zeros"
    name: str = ""

    kind = "ConvTranspose"

    def check(self) -> None:
        super().check()
        extra = sizes("output_padding", self.output_padding, self.spatial, 0)
        fits = self.padding != "same" or not any(extra)
        require(fits, "padding 'same' settles the size of the output, which leaves no output_padding")

    def _channels(self, channels: int) -> tuple[int, int]:
        return channels, self.filters // self.groups

    def _attributes(self) -> dict[str, Any]:
        return {"output_padding": sizes("output_padding", self.output_padding, self.spatial, 0)}


@config
class ConvTranspose1D(_TransposedConvolution):
    """The transpose of a convolution along one axis; see ConvTranspose2D."""

    spatial = 1


@config
class ConvTranspose2D(_TransposedConvolution):
    """The transpose of a convolution of images, which enlarges them by its strides.

    A dim of n becomes (n - 1) * stride + dilation * (kernel - 1) + 1 + output_padding - 2 * padding; n * stride with
    padding `same`. Parameters: weight [channels, filters / groups, kernel height, kernel width], as in PyTorch; bias
    [filters]. output_padding: elements more at the end of each spatial dim. The other fields are those of Conv2D.
    """

    spatial = 2
