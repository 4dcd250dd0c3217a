"""How long one step takes in the middle of a program: it is launched many times by a graph of its own.

A launch alone costs more than most kernels take, and in a loop over the same memory weights would lie in the L2 cache,
which they seldom do in a program: others were read since the run before. So the launches follow each other as in a
program, and each has its own copy of the weights, as many as the cache cannot hold together. What the step before has
made lies in the cache, in a program as here, unless it is too large for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.builder import Builder, add_launch
from aicore_cuda_ge.calls import Call, Compiled, Generated, picked
from aicore_cuda_ge.failures import told

if TYPE_CHECKING:
    from aicore_cuda_ge.device import CudaDevice

_REPLAY_SECONDS = 400e-6
"""Of one timing: long beside the microseconds that launching a graph costs."""
_LEAST_SECONDS = 1e-6
"""Of a launch."""
_LEAST_LAUNCHES, _MOST_LAUNCHES = 2, 64
_OF_THE_CACHE = 1.25
"""Copies of weights together."""


class StepTimer:
    """Times one step of a plan on the memory of a capture, with the numbers that are there.

    alone: seconds of the step launched alone, which say how many launches are worth it.
    Raises OutOfMemoryError, and ExecutionError naming the node for a launch that fails.
    """

    def __init__(self, built: Builder, device: CudaDevice, number: int, alone: float) -> None:
        step, calls = built.plan.steps[number], built.calls[number]
        arrays = built.arrays_of(step)
        kept = _read_only(built, number, calls)
        copies = copies_of_weights(sum(array.nbytes for array in kept), device.l2_bytes)
        sets = [{array.address: device.copy(array) for array in kept} for _ in range(copies - 1)]
        self._launches = math.ceil(launches_for(alone) / copies) * copies
        self._replays = max(1, round(_REPLAY_SECONDS / (max(alone, _LEAST_SECONDS) * self._launches)))
        self._list = native.LaunchList(device.index)
        self._list.keep((built, sets))
        label = built.label_of(step)
        with device.current(), told(f"timing {label}"):
            for turn in range(self._launches):
                place = turn % copies
                self._add(calls, arrays, sets[place - 1] if place else {}, label)
            self._list.capture()

    def __call__(self) -> float:
        """Seconds of the step, the mean of many."""
        return self._list.time_replay(self._replays) * 1e-6 / self._launches

    def _add(
        self,
        calls: Sequence[Call],
        arrays: Sequence[DeviceArray | None],
        instead: dict[int, DeviceArray],
        label: str,
    ) -> None:
        for call in calls:
            assert isinstance(call, Compiled | Generated)  # others are timed elsewhere, see Capture.timer
            chosen = picked(call, [*arrays, *call.extra])
            add_launch(self._list, call, [a if a is None else instead.get(a.address, a) for a in chosen], label)


def launches_for(alone: float) -> int:
    """How often a step that takes so many seconds alone is launched by one graph."""
    return min(max(math.ceil(_REPLAY_SECONDS / max(alone, _LEAST_SECONDS)), _LEAST_LAUNCHES), _MOST_LAUNCHES)


def copies_of_weights(nbytes: int, cache: int) -> int:
    """Of so many bytes, so that they do not stay in the cache; one where all copies of a graph would fit in it."""
    if nbytes * _MOST_LAUNCHES < cache:
        return 1
    return max(1, min(math.ceil(_OF_THE_CACHE * cache / nbytes), _MOST_LAUNCHES))


def _read_only(built: Builder, number: int, calls: Sequence[Call]) -> list[DeviceArray]:
    """What nothing writes while a program runs: packed weights, or else the constants themselves."""
    packed = [array for call in calls for array in call.extra]
    constants = built.constants_of(built.plan.steps[number])
    return [array for array in packed or constants if array.nbytes]
