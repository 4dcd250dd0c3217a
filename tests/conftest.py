"""What tests of several parts share."""

from __future__ import annotations

import pytest

import aicore_cpu_numpy.plugin
import aicore_fake_gpu.plugin
from aicore.config import Config
from aicore.plugins import PluginRegistry


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine's user has measured must not choose the kernels of tests."""
    monkeypatch.setenv("AICORE_TUNE", "off")


@pytest.fixture(scope="session")
def registry() -> PluginRegistry:
    """The CPU and the fake GPU, whatever else is installed."""
    plugins = {"cpu_numpy": aicore_cpu_numpy.plugin, "fake_gpu": aicore_fake_gpu.plugin}
    return PluginRegistry.from_modules(plugins, config=Config())
