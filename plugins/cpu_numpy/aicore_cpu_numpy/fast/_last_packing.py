"""Weights of channels-last convolutions that are no constants, as in training, brought into order in each run.

That is a pass over the weights, where windows in the order of weights as they come would cost one over the windows.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from aicore_cpu_numpy.fast._last_epilogue import Array, Call


@runtime_checkable
class Packs(Protocol):
    """A method that takes packed weights: (group, kernel..., channels, maps), seen in the shape of `form`."""

    @property
    def form(self) -> tuple[int, ...]: ...


def packing(method: Packs, w: Array, room: Array) -> tuple[Array, Call]:
    """The packed weights, and the call that makes them.

    w: (group, maps, channels, kernel...), strided as it likes. room: as many elements.
    """
    view = w.transpose(0, *range(3, w.ndim), 2, 1)
    return room.reshape(method.form), partial(np.copyto, room.reshape(view.shape), view)
