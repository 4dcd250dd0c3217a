"""Installed plugins with less to choose from, and with an eye on what their launchers run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aicore.config import Config
from aicore.kernels import Kernel
from aicore.plugins import PluginRegistry
from aicore.runtime import Executable, Plan

Keep = Callable[[Kernel], bool]


@dataclass
class Watch:
    """The executables that were launched, in order. What they ran is the proof that a device did the work."""

    executables: list[Executable] = field(default_factory=list)

    def steps_run(self, device: str) -> int:
        """Steps that the device ran, bodies of loops and branches included."""
        return sum(executable.steps_run for executable in self.executables if executable.plan.device == device)

    def kernels(self, device: str) -> tuple[str, ...]:
        """Names of the kernels in the device's plans, each once."""
        plans = [executable.plan for executable in self.executables if executable.plan.device == device]
        return tuple(dict.fromkeys(step.kernel.name for plan in plans for step in plan.steps))


def restricted(
    registry: PluginRegistry, *, kernels: Keep | None = None, devices: Sequence[str] | None = None, watch: Watch | None = None
) -> PluginRegistry:
    """A registry that has only some of the kernels and devices of another.

    kernels: which kernels to keep. devices: names of those to keep; None means all. watch: learns of every launch.
    """
    return _Restricted(registry, kernels, devices, watch)


class _Restricted(PluginRegistry):
    def __init__(
        self, base: PluginRegistry, keep: Keep | None, devices: Sequence[str] | None, watch: Watch | None
    ) -> None:
        super().__init__((), Config())
        activated = base.activate()
        owned = {name: own for name, own in activated.devices.items() if devices is None or name in devices}
        self._seen = replace(
            activated,
            kernels=tuple(k for k in activated.kernels if keep is None or keep(k)),
            devices={name: replace(own, launch=_watched(own.launch, watch)) for name, own in owned.items()},
        )

    def activate(self) -> Any:
        return self._seen

    @property
    def records(self) -> Any:
        return self._seen.records


def _watched(launch: Callable[[Plan], Executable], watch: Watch | None) -> Callable[[Plan], Executable]:
    if watch is None:
        return launch

    def watched(plan: Plan) -> Executable:
        executable = launch(plan)
        watch.executables.append(executable)
        return executable

    return watched
