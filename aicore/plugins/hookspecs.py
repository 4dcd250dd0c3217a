"""The hooks of a plugin. Each returns values and changes nothing; aicore registers what they return.

A plugin is a module, named in the entry point group `aicore.plugins`, that implements any of these hooks as functions
marked with `@hookimpl`. A device plugin implements `probe` and `launch`; a transform plugin implements neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from aicore.ir import Op
    from aicore.kernels import Kernel, KernelFamily
    from aicore.passes import Pass
    from aicore.runtime import Device, Executable, Plan

PROJECT = "aicore"
HOOKS = ("probe", "register_ops", "register_kernels", "register_passes", "launch")

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of the hook of its name."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What `probe` found: the devices that can be used now, or why there are none and what would cure it.

    notes: what `aicore plugins doctor` says of devices that can be used, such as a library that would speed them up.
    Raises TypeError unless devices and notes are tuples or lists, and reason, fix and notes are texts; ValueError for
    neither devices nor a reason.
    """

    devices: tuple[Device, ...] = ()
    reason: str = ""
    fix: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.devices, (tuple, list)):
            raise TypeError(f"devices of a Probe is a {type(self.devices).__name__}; give a tuple")
        for name in ("reason", "fix"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name} of a Probe is a {type(value).__name__}; give a text")
        if not isinstance(self.notes, (tuple, list)) or not all(isinstance(note, str) for note in self.notes):
            raise TypeError(f"notes of a Probe is {self.notes!r}; give a tuple of texts")
        if not self.devices and not self.reason:
            raise ValueError("a Probe without devices needs a reason")


@hookspec(firstresult=True)
def probe() -> Probe:  # type: ignore[empty-body]
    """The devices that this plugin can launch on this machine. A missing device is a reason, not an exception."""


@hookspec(firstresult=True)
def register_ops() -> list[type[Op]]:  # type: ignore[empty-body]
    """Op classes that the plugin adds, each of a name that no other op has."""


@hookspec(firstresult=True)
def register_kernels() -> list[Kernel | KernelFamily]:  # type: ignore[empty-body]
    """Kernels for its own or for any other device; op, device and variant together are unique.

    A KernelFamily stands for those of a module that is imported when they are needed.
    """


@hookspec(firstresult=True)
def register_passes() -> list[Pass]:  # type: ignore[empty-body]
    """Passes, each of a name that no other pass has, ordered by their own `phase`, `before` and `after`."""


@hookspec(firstresult=True)
def launch(plan: Plan) -> Executable:  # type: ignore[empty-body]
    """Make a plan for one of this plugin's devices ready to run; called once for each plan, never for each kernel."""
