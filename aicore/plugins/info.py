"""What a plugin says about itself without being imported. This module imports the standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

API_VERSION = 1
"""Version of the hooks and of the types that pass through them; raised when an old plugin would misbehave."""


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """The `INFO` of a plugin's info module, which the entry point group `aicore.plugin_info` names.

    The module is executed alone, without its package's `__init__`, so it may import the standard library and
    `aicore.plugins.info` only.

    kind: a `device` plugin probes and launches devices; a `transform` plugin only adds ops, kernels or passes.
    api_version: the API_VERSION that the plugin was written for.
    devices: kinds of device that it launches, such as `("cpu",)`; empty for a transform.
    priority: the plugin with the highest one launches a device that several can, and is the default target.
    requirements: what it needs beside Python packages, one readable line each.
    fixes: from a text that an error message contains to the command or advice that cures it.
    summary: one line for `aicore plugins list`.
    """

    kind: Literal["device", "transform"]
    api_version: int = API_VERSION
    devices: tuple[str, ...] = ()
    priority: int = 0
    requirements: tuple[str, ...] = ()
    fixes: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("device", "transform"):
            raise ValueError(f"kind is {self.kind!r}; choose from device, transform")
        if (self.kind == "device") != bool(self.devices):
            raise ValueError(f"a {self.kind} plugin cannot have devices={self.devices!r}")

    def fix_for(self, reason: str) -> str:
        """The advice for this reason, or an empty text when the plugin has none."""
        return next((fix for text, fix in self.fixes.items() if text in reason), "")
