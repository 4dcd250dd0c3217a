"""Fake distributions: a folder on sys.path with modules and .dist-info folders, and nothing else installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import importlib_metadata
import pytest

from aicore.config import Config
from aicore.plugins import discovery, registry
from aicore.plugins.registry import PluginRegistry

DEVICE_PLUGIN = """
from aicore.plugins import Probe, hookimpl

class Device:
    fingerprint = "fake"
    static_shapes_only = False

    def __init__(self, name):
        self.name, self.kind = name, name.partition(":")[0]

    def nothing(self, *arguments):
        raise NotImplementedError

    allocate = empty = upload = download = copy = synchronize = nothing

@hookimpl
def probe():
    return Probe((Device("{device}"),))

@hookimpl
def launch(plan):
    return ("{device}", plan)
"""


TRANSFORM_PLUGIN = """
from aicore.plugins import hookimpl

@hookimpl
def register_ops():
    return []
"""


class Environment:
    """What is installed in a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "site"
        self.cache = folder / "cache"
        self.scans = 0
        self.folder.mkdir()

    def install(
        self,
        name: str,
        source: str,
        *,
        info: str | None = None,
        distribution: str | None = None,
        requires: str = "aicore>=0.1",
        init: str = "",
        commands: Mapping[str, str] | None = None,
    ) -> None:
        """Install a plugin: `source` is its module, `info` the arguments of its PluginInfo."""
        distribution = distribution or f"dist-{name}"
        package = self.folder / f"{distribution.replace('-', '_')}_package"
        package.mkdir()
        (package / "__init__.py").write_text(init)
        (package / "plugin.py").write_text(source)
        entries = ["[aicore.plugins]", f"{name} = {package.name}.plugin"]
        if info is not None:
            (package / "info.py").write_text(f"from aicore.plugins.info import PluginInfo\nINFO = PluginInfo({info})\n")
            entries += ["[aicore.plugin_info]", f"{name} = {package.name}.info:INFO"]
        for command, code in (commands or {}).items():
            (package / f"{command}_command.py").write_text(code)
            entries += ["[aicore.commands]", f"{command} = {package.name}.{command}_command:app"]
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\nRequires-Dist: {requires}\n"
        self.add_dist_info(distribution, metadata, "\n".join(entries))

    def install_device(self, name: str, device: str, priority: int = 0, **rest: str) -> None:
        """Install a healthy device plugin."""
        info = f"kind='device', devices=({device.partition(':')[0]!r},), priority={priority}, summary='A {device}.'"
        self.install(name, DEVICE_PLUGIN.format(device=device), info=info, **rest)

    def add_dist_info(self, distribution: str, metadata: str | None, entry_points: str) -> None:
        dist_info = self.folder / f"{distribution.replace('-', '_')}-1.5.dist-info"
        dist_info.mkdir()
        (dist_info / "entry_points.txt").write_text(entry_points)
        if metadata is not None:
            (dist_info / "METADATA").write_text(metadata)

    def registry(self, config: Config | None = None) -> PluginRegistry:
        """The installed plugins; without rehearsal unless the configuration asks for it."""
        return PluginRegistry.discover(config or Config(plugin_timeout=0))

    def rehearsing(self, timeout: float = 60, **settings: Any) -> Config:
        """A configuration with rehearsal, whose verdicts are kept for this test alone."""
        return Config(plugin_timeout=timeout, cache_dir=self.cache, **settings)

    def imported(self) -> set[str]:
        """Modules of fake distributions that are imported."""
        return {name for name in sys.modules if name.partition(".")[0].endswith("_package")}


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """An environment in which only what the test installs is installed."""
    fake = Environment(tmp_path)

    def search_path() -> list[str]:
        fake.scans += 1
        return [str(fake.folder)]

    def scan() -> importlib_metadata.EntryPoints:
        found = importlib_metadata.distributions(path=[str(fake.folder)])
        return importlib_metadata.EntryPoints(entry for dist in found for entry in dist.entry_points)

    monkeypatch.syspath_prepend(fake.folder)
    monkeypatch.setenv("AICORE_CACHE_DIR", str(fake.cache))
    monkeypatch.setattr(discovery, "search_path", search_path)
    monkeypatch.setattr(importlib_metadata, "entry_points", scan)  # for what needs a closer look
    forget: list[Callable[[], None]] = [discovery._scan.cache_clear, registry._discovered.cache_clear]
    for clear in forget:
        clear()
    yield fake
    for clear in forget:
        clear()
    for name in fake.imported():
        del sys.modules[name]
