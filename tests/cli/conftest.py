"""Runs the command line in a fresh process, so that what it imports can be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import aicore

# The fake distributions alone are installed; the process tells which modules it imported.
_DRIVER = """
import sys
import importlib_metadata
folder = sys.argv.pop(1)
found = importlib_metadata.distributions(path=[folder])
entries = importlib_metadata.EntryPoints(entry for dist in found for entry in dist.entry_points)
importlib_metadata.entry_points = lambda: entries
sys.path.insert(0, folder)
import aicore.plugins.distributions
aicore.plugins.distributions.search_path = lambda: [folder]
from aicore.cli import main
status = main()
sys.stdout.flush()
print("MODULES", *sorted(sys.modules), file=sys.stderr)
sys.exit(status)
"""

CommandLine = Callable[..., "Result"]


class Result:
    """What a run of the command line left."""

    def __init__(self, finished: subprocess.CompletedProcess[str]) -> None:
        self.status = finished.returncode
        self.out = finished.stdout
        self.err, _, modules = finished.stderr.partition("MODULES")
        self.modules = set(modules.split())


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    """Call `aicore` with arguments, and variables as keywords; `tmp_path` holds the installed distributions."""

    def run(*arguments: str, **variables: str) -> Result:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AICORE_")}
        root = Path(aicore.__file__).parent.parent
        search = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
        plain = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "AICORE_CACHE_DIR": str(tmp_path / "cache")}
        environment = {**clean, **plain, **variables, "PYTHONPATH": search}
        command = [sys.executable, "-c", _DRIVER, str(tmp_path), *arguments]
        return Result(subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False))

    return run


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., None]:
    """Install a plugin into `tmp_path`: its module's source, and the arguments of its PluginInfo."""

    def write(name: str, source: str, info: str, groups: str = "", **modules: str) -> None:
        package = tmp_path / f"{name}_package"
        dist_info = tmp_path / f"dist_{name}-1.5.dist-info"
        for folder in (package, dist_info):
            folder.mkdir()
        information = f"from aicore.plugins.info import PluginInfo\nINFO = PluginInfo({info})\n"
        for module, text in {"__init__": "", "plugin": source, "info": information, **modules}.items():
            (package / f"{module}.py").write_text(text)
        (dist_info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dist-{name}\nVersion: 1.5\n")
        (dist_info / "entry_points.txt").write_text(
            f"[aicore.plugins]\n{name} = {name}_package.plugin\n"
            f"[aicore.plugin_info]\n{name} = {name}_package.info:INFO\n{groups}\n"
        )

    return write
