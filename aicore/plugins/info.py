"""What a plugin says about itself without being imported. This module imports the standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

API_VERSION = 1
"""Version of the hooks and of the types that pass through them; raised when an old plugin would misbehave."""


@dataclass(frozen=True)
class PluginInfo:
    """The `INFO` of a plugin's info module, which the entry point group `aicore.plugin_info` names.

    The module is executed alone, without its package's `__init__`, so it may import the standard library and
    `aicore.plugins.info` only. Its content is remembered until the module's file or the plugin's version changes.

    kind: a `device` plugin probes and launches devices; a `transform` plugin only adds ops, kernels or passes.
    api_version: the API_VERSION that the plugin was written for.
    devices: kinds of device that it launches, such as `("cpu",)`; empty for a transform.
    priority: the plugin with the highest one launches a device that several can, and is the default target.
    requirements: what it needs beside Python packages, one readable line each.
    fixes: from a text that an error message contains to the command or advice that cures it.
    summary: one line for `aicore plugins list`.
    Raises TypeError for a field of another type, and ValueError when kind and devices disagree.
    """

    kind: Literal["device", "transform"]
    api_version: int = API_VERSION
    devices: tuple[str, ...] = ()
    priority: int = 0
    requirements: tuple[str, ...] = ()
    fixes: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""

    def __post_init__(self) -> None:
        _check_types(self)
        if self.kind not in ("device", "transform"):
            raise ValueError(f"kind is {self.kind!r}; choose from device, transform")
        if (self.kind == "device") != bool(self.devices):
            raise ValueError(f"a {self.kind} plugin cannot have devices={self.devices!r}")

    def fix_for(self, reason: str) -> str:
        """The advice for this reason, or an empty text when the plugin has none."""
        return next((fix for text, fix in self.fixes.items() if text in reason), "")

    def to_json(self) -> dict[str, Any]:
        """Plain data, from which `from_json` makes an equal PluginInfo in another process."""
        return {
            "kind": self.kind,
            "api_version": self.api_version,
            "devices": list(self.devices),
            "priority": self.priority,
            "requirements": list(self.requirements),
            "fixes": dict(self.fixes),
            "summary": self.summary,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PluginInfo:
        """Inverse of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        lists = {name: tuple(data[name]) for name in ("devices", "requirements")}
        return cls(**{**data, **lists})


def _check_types(info: PluginInfo) -> None:
    """Everything goes through JSON, so that a wrong type must show where the plugin is at fault."""
    for name in ("api_version", "priority"):
        if type(value := getattr(info, name)) is not int:
            raise TypeError(f"{name} is {value!r}; give an integer")
    for name in ("devices", "requirements"):
        if not _is_texts(value := getattr(info, name)):
            raise TypeError(f"{name} is {value!r}; give a tuple of texts, such as ('npu',)")
    if not isinstance(info.fixes, Mapping) or not _is_texts((*info.fixes.keys(), *info.fixes.values())):
        raise TypeError(f"fixes is {info.fixes!r}; give a dict from text to text")
    if not isinstance(info.summary, str):
        raise TypeError(f"summary is {info.summary!r}; give a text")


def _is_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
