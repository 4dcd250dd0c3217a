"""A target of the tests: a device, or only some of its kernels; usable here, or the reason why not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from aicore.errors import AicoreError, ConfigError, PluginError
from aicore.ir import Op
from aicore.kernels import REFERENCE, Kernel
from aicore.ops.control import If, Loop, Scan
from aicore.plugins import PluginRegistry
from aicore.plugins.device_names import parse_device
from aicore.testing.registries import RestrictedRegistry, Watch

_WALKED = (If, Loop, Scan)

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
    def key(self) -> tuple[str, str | None]:
        """The same for two names of one target, such as `cpu`, `CPU` and `cpu:0`."""
        return self.device, self.variant

    @cached_property
    def kind(self) -> str:
        return self.registry.device(self.device).kind

    @property
    def fingerprint(self) -> str:
        """Model, driver and library versions of the device."""
        return self.registry.device(self.device).fingerprint

    def attempts(self, op: type[Op] | None = None) -> list[tuple[PluginRegistry, Watch]]:
        """A registry for each way to run the op; more than one where each variant takes its turn.

        op: None for a whole graph, for which the selector chooses among all kernels of the target.
        """
        turns = self.variant == FAST and op is not None
        variants = dict.fromkeys(kernel.variant for kernel in self._own if kernel.op is op) if turns else {}
        return [self._attempt(op, variant) for variant in variants or (None,)]

    def _attempt(self, op: type[Op] | None, variant: str | None) -> tuple[PluginRegistry, Watch]:
        watch = Watch()
        # Kernels of other ops may serve the parts of a fused op, and the nodes of a body.
        composite = op is None or op.decompose is not Op.decompose or op in _WALKED
        kernels = [
            kernel
            for kernel in (*self._own, *self._others)
            if (composite or kernel.op is op) and (variant is None or kernel.op is not op or kernel.variant == variant)
        ]
        devices = None if self.variant is None else (self.device,)
        return RestrictedRegistry(self.registry, kernels=kernels, devices=devices, watch=watch), watch

    @cached_property
    def _own(self) -> list[Kernel]:
        return [k for k in self.registry.kernels if k.device == self.kind and self._keeps(k)]

    @cached_property
    def _others(self) -> list[Kernel]:
        return [k for k in self.registry.kernels if k.device != self.kind]

    def _keeps(self, kernel: Kernel) -> bool:
        if self.variant == FAST:
            return kernel.variant != REFERENCE
        return self.variant is None or kernel.variant == self.variant


def is_known(name: str, registry: PluginRegistry) -> bool:
    """Whether an installed plugin has such a device or says that it would, so that its absence is no misspelling."""
    try:
        kind = parse_device(split_target(name)[0]).kind
    except AicoreError:
        return False
    kinds = {parse_device(device).kind for device in registry.devices()}
    return kind in kinds or any(kind in record.devices for record in registry.activate().records)


def split_target(name: str) -> tuple[str, str | None]:
    """`cuda:0` is a device, `cpu:blocked` and `cuda:0:wmma` name a variant of its kernels.

    Raises ConfigError for a name without a device.
    """
    head, colon, tail = name.partition(":")
    number, more, variant = tail.partition(":")
    if not head or (colon and not tail) or (more and not variant):
        raise ConfigError(
            f"target {name!r} is none; write a device such as cpu or cuda:0, or add a variant: cpu:reference"
        )
    if not colon:
        return name, None
    if number.isdigit():
        return f"{head}:{number}", variant or None
    return head, tail
