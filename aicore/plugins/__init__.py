"""Plugins: what a backend or an extension implements, how it is found, and the registry of those in use.

Importing this package finds and imports nothing; its names load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicore.plugins.hookspecs import Probe, hookimpl
    from aicore.plugins.info import API_VERSION, PluginInfo
    from aicore.plugins.registry import PluginRegistry, TargetChoice, plugin_registry
    from aicore.plugins.states import PluginRecord, State

_HOMES = {
    "API_VERSION": "aicore.plugins.info",
    "PluginInfo": "aicore.plugins.info",
    "Probe": "aicore.plugins.hookspecs",
    "hookimpl": "aicore.plugins.hookspecs",
    "PluginRecord": "aicore.plugins.states",
    "State": "aicore.plugins.states",
    "PluginRegistry": "aicore.plugins.registry",
    "TargetChoice": "aicore.plugins.registry",
    "plugin_registry": "aicore.plugins.registry",
}

__all__ = [
    "API_VERSION",
    "PluginInfo",
    "PluginRecord",
    "PluginRegistry",
    "Probe",
    "State",
    "TargetChoice",
    "hookimpl",
    "plugin_registry",
]


def __getattr__(name: str) -> object:
    # A plugin's info module imports PluginInfo from here, and must not pay for the registry.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
