"""Installed plugins with fewer kernels and devices, and with an eye on what their launchers run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aicore.config import Config
from aicore.kernels import Kernel
from aicore.plugins import PluginRecord, PluginRegistry
from aicore.runtime import Executable, Plan

if TYPE_CHECKING:
    from aicore.plugins.activation import Activated


@dataclass
class Watch:
    """The plans that were launched, in order, with what runs them. What it ran is the proof that a device did the work.

    The plans are those that launchers were given, whatever their executables say of themselves.
    """

    launched: list[tuple[Plan, Executable]] = field(default_factory=list)

    def on(self, device: str) -> list[tuple[Plan, Executable]]:
        """Those of one device, bodies of loops and branches included."""
        return [pair for pair in self.launched if pair[0].device == device]

    def others(self, device: str) -> list[str]:
        """Names of the other devices that ran something, sorted."""
        return sorted({plan.device for plan, one in self.launched if plan.device != device and one.steps_run})

    def steps_run(self, device: str) -> int:
        """Steps that the device counted."""
        return sum(executable.steps_run for _, executable in self.on(device))

    def planned(self, device: str) -> int:
        """Steps that one run of every plan of the device takes."""
        return sum(len(plan.steps) for plan, _ in self.on(device))

    def kernels(self, device: str) -> tuple[str, ...]:
        """Names of the kernels in the device's plans, each once."""
        return tuple(dict.fromkeys(step.kernel.name for plan, _ in self.on(device) for step in plan.steps))


class RestrictedRegistry(PluginRegistry):
    """A registry that has only some of the kernels and devices of another.

    kernels: those to keep, in order; None means all. devices: names of those to keep; None means all.
    watch: learns of every launch.
    """

    def __init__(
        self,
        base: PluginRegistry,
        *,
        kernels: Iterable[Kernel] | None = None,
        devices: Collection[str] | None = None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__((), Config())
        whole = base.activate()
        owned = {name: own for name, own in whole.devices.items() if devices is None or name in devices}
        self._shown = replace(
            whole,
            kernels=whole.kernels if kernels is None else tuple(kernels),
            devices={name: replace(own, launch=_watched(own.launch, watch)) for name, own in owned.items()},
        )

    def activate(self) -> Activated:
        return self._shown

    @property
    def records(self) -> tuple[PluginRecord, ...]:
        return self._shown.records


def _watched(launch: Callable[[Plan], Executable], watch: Watch | None) -> Callable[[Plan], Executable]:
    if watch is None:
        return launch

    def watched(plan: Plan) -> Executable:
        executable = launch(plan)
        watch.launched.append((plan, executable))
        return executable

    return watched
