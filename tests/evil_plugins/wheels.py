"""Real wheels of the broken plugins, built and installed without a network."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from tests.evil_plugins.catalogue import Evil

VERSION = "1.0"


def build_wheel(evil: Evil, folder: Path) -> Path:
    """Write the plugin's wheel into the folder, as a build backend would, and return its path."""
    dist_info = f"{evil.name}-{VERSION}.dist-info"
    files = {**_package_files(evil), **{f"{dist_info}/{name}": text for name, text in _metadata(evil).items()}}
    record = "".join(f"{name},sha256={_digest(text)},{len(text.encode())}\n" for name, text in files.items())
    files[f"{dist_info}/RECORD"] = f"{record}{dist_info}/RECORD,,\n"
    path = folder / f"{evil.name}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return path


def install(evils: Iterable[Evil], site: Path) -> Path:
    """Install wheels into a folder for PYTHONPATH; a pure wheel is installed by being unpacked. Returns the folder."""
    site.mkdir(parents=True, exist_ok=True)
    for evil in evils:
        with zipfile.ZipFile(build_wheel(evil, site)) as wheel:
            wheel.extractall(site)
    return site


def pip_install(evils: Iterable[Evil], site: Path) -> Path:
    """As `install`, by pip, which checks the wheels."""
    site.mkdir(parents=True, exist_ok=True)
    wheels = [str(build_wheel(evil, site)) for evil in evils]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site)]
    subprocess.run([*command, *wheels], check=True, timeout=300)
    return site


def load_module(evil: Evil) -> ModuleType:
    """The plugin as a module, for `PluginRegistry.from_modules`. Only for those that this process survives."""
    module = ModuleType(evil.package)
    exec(compile(evil.source, f"{evil.package}/plugin.py", "exec"), module.__dict__)
    exec(compile(evil.info_source, f"{evil.package}/info.py", "exec"), module.__dict__)
    return module


def _package_files(evil: Evil) -> dict[str, str]:
    return {
        f"{evil.package}/__init__.py": "",
        f"{evil.package}/info.py": evil.info_source,
        f"{evil.package}/plugin.py": evil.source,
    }


def _metadata(evil: Evil) -> dict[str, str]:
    requires = "".join(f"Requires-Dist: {requirement}\n" for requirement in evil.requires)
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: {evil.distribution}\nVersion: {VERSION}\n{requires}",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[aicore.plugins]\n{evil.entry_name} = {evil.package}.plugin\n\n"
        f"[aicore.plugin_info]\n{evil.entry_name} = {evil.package}.info:INFO\n",
    }


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
