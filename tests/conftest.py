"""What tests of several parts share."""

from __future__ import annotations

import pytest

import aicore_cpu_numpy.plugin
import aicore_fake_gpu.plugin
from aicore.config import Config
from aicore.plugins import PluginRegistry


@pytest.fixture(scope="session")
def registry() -> PluginRegistry:
    """The CPU and the fake GPU, whatever else is installed."""
    plugins = {"cpu_numpy": aicore_cpu_numpy.plugin, "fake_gpu": aicore_fake_gpu.plugin}
    return PluginRegistry.from_modules(plugins, config=Config())
