"""Plugins: what a backend or an extension implements, how it is found, and the registry of those in use.

Importing this package finds and imports nothing; its names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicore.lazy import lazy_names

if TYPE_CHECKING:
    from aicore.plugins.hookspecs import Probe, hookimpl
    from aicore.plugins.info import API_VERSION, PluginInfo
    from aicore.plugins.registry import PluginRegistry, TargetChoice, plugin_registry
    from aicore.plugins.states import PluginRecord, State

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

__getattr__ = lazy_names(  # a plugin's info module imports PluginInfo from here, and must not pay for the registry
    __name__,
    {
        "API_VERSION": "aicore.plugins.info",
        "PluginInfo": "aicore.plugins.info",
        "Probe": "aicore.plugins.hookspecs",
        "hookimpl": "aicore.plugins.hookspecs",
        "PluginRecord": "aicore.plugins.states",
        "State": "aicore.plugins.states",
        "PluginRegistry": "aicore.plugins.registry",
        "TargetChoice": "aicore.plugins.registry",
        "plugin_registry": "aicore.plugins.registry",
    },
)
