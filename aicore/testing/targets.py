"""A target of the tests: a device, or only some of its kernels; usable here, or the reason why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aicore.errors import ConfigError, PluginError
from aicore.ir import Op
from aicore.kernels import REFERENCE, Kernel
from aicore.plugins import PluginRegistry
from aicore.testing.registries import Watch, restricted

FAST = "fast"
"""As a variant: every kernel but the reference, each in turn."""


@dataclass(frozen=True)
class Target:
    """What cases run on.

    name: as it was given, such as `cuda:0`, `cpu:reference` or `cpu:fast`.
    device: the full name of the device.
    variant: None for the selector's choice; `fast` for every kernel but the reference in turn; else a variant's name.
    """

    name: str
    device: str
    variant: str | None
    registry: PluginRegistry

    @classmethod
    def find(cls, name: str, registry: PluginRegistry) -> Target:
        """The target of this name. Raises PluginError, with reason and fix, when its device cannot be used."""
        device, variant = split_target(name)
        device = registry.device_name(device)
        if variant is not None and variant != FAST:
            kind = registry.device(device).kind
            known = sorted({k.variant for k in registry.kernels if k.device == kind})
            if variant not in known:
                raise PluginError(f"no kernel on {kind} is called {variant!r}; there are: {', '.join((FAST, *known))}")
        return cls(name, device, variant, registry)

    @property
    def kind(self) -> str:
        return self.registry.device(self.device).kind

    @property
    def fingerprint(self) -> str:
        """Model, driver and library versions of the device."""
        return self.registry.device(self.device).fingerprint

    def kernels(self, op: type[Op]) -> list[Kernel]:
        """Kernels of the op on the device that this target may use."""
        return [k for k in self.registry.kernels if k.op is op and k.device == self.kind and self._keeps(k)]

    def attempts(self, op: type[Op]) -> Iterator[tuple[PluginRegistry, Watch]]:
        """A registry for each way to run the op; more than one where each variant takes its turn."""
        if self.variant == FAST:
            variants = list(dict.fromkeys(k.variant for k in self.kernels(op)))
            for variant in variants or [None]:
                yield self._attempt(op, variant)
        else:
            yield self._attempt(op, None)

    def _attempt(self, op: type[Op], variant: str | None) -> tuple[PluginRegistry, Watch]:
        watch = Watch()

        def keep(kernel: Kernel) -> bool:
            if kernel.device != self.kind:
                return True
            wanted = variant is None or kernel.op is not op or kernel.variant == variant
            return wanted and self._keeps(kernel)

        devices: Sequence[str] | None = None if self.variant is None else (self.device,)
        return restricted(self.registry, kernels=keep, devices=devices, watch=watch), watch

    def _keeps(self, kernel: Kernel) -> bool:
        match self.variant:
            case None:
                return True
            case "fast":
                return kernel.variant != REFERENCE
        return kernel.variant == self.variant


def split_target(name: str) -> tuple[str, str | None]:
    """`cuda:0` is a device, `cpu:blocked` and `cuda:0:wmma` name a variant of its kernels.

    Raises ConfigError for a name without a device.
    """
    head, colon, tail = name.partition(":")
    number, more, variant = tail.partition(":")
    if not head or (colon and not tail) or (more and not variant):
        raise ConfigError(f"target {name!r} is none; write a device such as cpu or cuda:0, or add a variant: cpu:reference")
    if not colon:
        return name, None
    if number.isdigit():
        return f"{head}:{number}", variant or None
    return head, tail
