"""aicore's training step, down to the bound programs that its session runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aicore import nn
from benchmarks.training.networks import NETWORKS

Array = np.ndarray[Any, Any]


def data(name: str, batch: int, seed: int = 0) -> tuple[Array, Array]:
    """Seeded normal samples, and classes."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, *NETWORKS[name].shape), np.float32)
    return x, rng.integers(0, NETWORKS[name].classes, batch)


class TrainedModel:
    """A model in training on one batch. Raises what aicore raises when it cannot train it.

    options: of the model, such as `tune` or `threads`.
    """

    def __init__(self, name: str, batch: int, target: str, **options: Any) -> None:
        network = NETWORKS[name]
        self.model = nn.Model(network.layer(), network.shape, target=target, seed=1, **options)
        self.keeps_previous = network.keep_previous
        self.model.compile(nn.Adam(1e-3), "sparse_categorical_crossentropy", keep_previous=network.keep_previous)
        self.model.build()
        self.first = {name: np.array(array) for name, array in self.model.state_dict().items()}
        self.x, self.y = data(name, batch)
        self._samples = self.model.samples_of((self.x, self.y))

    def step(self) -> float:
        """One step with samples of the host; the loss before it."""
        return float(self.model.train_step(self._samples)["loss"])

    @property
    def _session(self) -> Any:
        return self.model._programs.needs_training().session

    def queue(self) -> Any:
        """A call that queues one step between arrays that lie on the device, and waits for nothing.

        A session has two bound programs, one for each way between the two sets of arrays of its state; one, where all
        of the state is written over.
        """
        self.step()
        self.step()
        programs = [binding.program for binding in self._session._bindings.values()]
        if len(programs) not in (1, 2):
            raise RuntimeError(f"the session has {len(programs)} bound programs, not one for each set of arrays")
        number = 0

        def call() -> None:
            nonlocal number
            programs[number % len(programs)].run()
            number += 1

        return call

    def nbytes(self) -> Mapping[str, int]:
        """What a step takes, each block of memory once.

        state: parameters, slots and statistics, as often as they are held. feeds: the samples, where graphs read them.
        graphs: what all captured graphs hold, arenas included. arena: of one.
        """
        bindings = self._session._bindings.values()
        feeds = {id(array): array for binding in bindings for array in binding.feeds.values()}
        captures = [getattr(binding.program._run, "_capture", None) for binding in bindings]
        held = {at: size for capture in captures if capture is not None for at, size in capture.memory.items()}
        arenas = [executable.plan.memory.arena for executable in self._executables]
        return {
            "state": self._session.state.nbytes,
            "feeds": sum(int(array.nbytes) for array in feeds.values()),
            "graphs": sum(held.values()),
            "arena": sum(arenas),
        }

    @property
    def _executables(self) -> list[Any]:
        explained: Any = self.model.program.explain()
        return list(explained.specialised.executables)

    def placement(self) -> str:
        explained: Any = self.model.program.explain()
        return str(explained.specialised.placement)

    def kernels(self) -> int:
        """Steps of the plans."""
        return sum(len(executable.plan.steps) for executable in self._executables)

    def slowest(self, most: int) -> list[dict[str, Any]]:
        """The steps that take longest when launched alone, heaviest first; seconds."""
        held = self._session.state.read()
        feeds = {**held, **self.model._programs.feeds(self._samples, self._session)}
        rows = sorted(self.model.program.profile(feeds).rows, key=lambda row: -row.seconds)
        return [
            {"node": row.name, "kernel": row.kernel, "device": row.device, "seconds": row.seconds}
            for row in rows[:most]
        ]
