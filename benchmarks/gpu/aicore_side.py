"""aicore's way to run a graph on the GPU, down to the captured graph of its one executable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import aicore
from aicore.ir import Graph
from aicore.tuning import Measure

Array = np.ndarray[Any, Any]


class CudaProgram:
    """A program for the GPU and fixed inputs, which lie on the device.

    tune: a policy, or how to measure. kernels: variants by op that are asked for.
    Raises what aicore raises when it cannot compile or run the model.
    """

    def __init__(
        self,
        model: Graph | Path,
        feeds: Mapping[str, Array],
        tune: str | Measure = "off",
        precision: str = "float32",
        kernels: Mapping[str, str] | None = None,
    ) -> None:
        self.feeds = dict(feeds)
        options: Any = {"tune": tune, "precision": precision, "kernels": kernels}  # argparse checked them
        self.program: Any = aicore.compile(model, target="cuda", fallback="quiet", **options)
        self.result: dict[str, Array] = self.program.run(self.feeds)
        specialised: Any = self.program.explain().specialised
        self.devices = device_counts(specialised.placement.devices.values())
        self.placement = str(specialised.placement)
        self._executables: list[Any] = [e for e in specialised.executables if e.plan.device.startswith("cuda")]
        self._whole = len(specialised.executables) == len(self._executables) == 1

    @property
    def why_no_replay(self) -> str:
        """Empty if one captured graph is all of the program, so that its replay may be timed."""
        if self._whole:
            return ""
        return f"the program is not one captured graph: {self.placement}"

    @property
    def steps(self) -> int:
        """Kernels' steps on the GPU."""
        return sum(len(executable.plan.steps) for executable in self._executables)

    def replay(self, calls: int) -> float:
        """Seconds of one replay on the device."""
        return float(self._executables[0].time_replay(calls))

    def call(self) -> Any:
        """A call with arrays of the caller on the device: copies in, replay, copies out, waits."""
        device, plan = self.program.device, self._executables[0].plan
        given = [device.upload(self.feeds[name]) for name in self.program.inputs]
        results = [device.empty(plan.buffers[output.buffer].type) for output in plan.outputs]
        run = self._executables[0].run
        return lambda: run(given, results)

    def bare_replay(self, calls: int) -> float:
        """The same of another graph of these kernels, made and launched by C++ with nothing of aicore around it."""
        return float(self._executables[0].time_replay(calls, bare=True))

    def bound(self, stream: Any) -> Any:
        """A call that queues a run between arrays on the device, and the wait for all of them."""
        given = {name: self.program.device.upload(array) for name, array in self.feeds.items()}
        bound = self.program.bind(given, stream=stream)
        return bound, bound.wait

    def slowest(self, most: int) -> list[dict[str, Any]]:
        """The steps that take longest when launched alone, heaviest first; seconds."""
        rows = sorted(self.program.profile(self.feeds).rows, key=lambda row: -row.seconds)
        return [
            {"node": row.name, "kernel": row.kernel, "device": row.device, "seconds": row.seconds}
            for row in rows[:most]
        ]


def device_counts(devices: Any) -> dict[str, int]:
    """Nodes by kind of device."""
    return dict(Counter(device.partition(":")[0] for device in devices))


def relative_error(got: Array, wanted: Array) -> float:
    """Norm of the difference over the norm of what is wanted.

    Raises ValueError for another shape, or when a number is not finite.
    """
    if got.shape != wanted.shape:
        raise ValueError(f"the output has shape {got.shape}, not {wanted.shape}")
    if not (np.isfinite(got).all() and np.isfinite(wanted).all()):
        raise ValueError("an output is not finite, so that nothing can be compared")
    off = got.astype(np.float64) - wanted
    return float(np.linalg.norm(off.ravel()) / max(np.linalg.norm(wanted.ravel()), np.finfo(np.float64).tiny))
