"""What rounding the weights adds to a result on average, taken off its bias.

    mean of (w_coded - w) @ x = (w_coded - w) @ (mean of x), channel by channel

Inputs are rounded to the nearest code, which adds nothing on average as long as their range is not cut off.
Source: M. Nagel et al., Data-free quantization through weight equalization and bias correction (2019).
"""

from __future__ import annotations

import numpy as np

from aicore.ir import Value
from aicore.ops.convolution import Conv
from aicore_int8_quant.affine import Array
from aicore_int8_quant.job import Job, QuantizedWeight
from aicore_int8_quant.linear_nodes import LinearNode, channel_axis, is_depthwise


class ChannelMeans:
    """Means of a tensor's channels. Sums are in float64: another order of batches may change their last bits.

    axis: of the channels.
    """

    def __init__(self, axis: int) -> None:
        self.axis, self._count, self._sums = axis, 0, np.zeros(1)

    def update(self, array: Array) -> None:
        """See one more batch; NaN and infinity count as 0."""
        rows = np.moveaxis(array, self.axis, 0).reshape(array.shape[self.axis], -1)
        self._sums = self._sums + np.where(np.isfinite(rows), rows, 0).sum(1, dtype=np.float64)
        self._count += rows.shape[1]

    @property
    def means(self) -> Array:
        """float64, one for each channel; 0 where nothing was seen."""
        found: Array = self._sums / max(self._count, 1)
        return found


def averaged(job: Job) -> dict[Value, int]:
    """The first operands whose channels' means are wanted, and the axis of the channels."""
    if not job.options.correct_biases:
        return {}
    biased = [one for one in job.linear if one.bias is not None and one.w.constant is not None]
    biased = [one for one in biased if not is_depthwise(one.node)]  # their inputs may be scaled yet
    return {one.x: 1 if isinstance(one.node.op, Conv) else -1 for one in biased}


def correction(one: LinearNode, weight: QuantizedWeight, job: Job) -> Array:
    """What to add to each number of the bias, float64; zeros where nothing is known."""
    assert one.w.constant is not None  # it has codes
    rounded = weight.params.dequantize(weight.codes).astype(np.float64)
    lost = one.w.constant.array.astype(np.float64) - rounded
    axis = channel_axis(one.node.op, lost.ndim)
    if one.x not in job.means or (lost.ndim > 2 and axis == lost.ndim - 1):
        return np.zeros(lost.shape[axis])
    means = job.means[one.x].means
    if not isinstance(one.node.op, Conv):
        return means @ lost if axis == 1 else lost @ means
    group = one.node.op.group
    offsets = lost.reshape(group, lost.shape[0] // group, lost.shape[1], -1).sum(-1)
    found: Array = np.einsum("gmc,gc->gm", offsets, means.reshape(group, -1)).reshape(-1)
    return found
