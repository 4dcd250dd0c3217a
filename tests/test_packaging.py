"""What the distributions hold, built as a user would build them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import aicore

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = {"aicore": ROOT, "aicore_cpu_numpy": ROOT / "plugins" / "cpu_numpy"}
_SKIPPED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")


def test_the_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert aicore.__version__ == project["version"]


@pytest.mark.slow
@pytest.mark.parametrize("package", PROJECTS)
def test_a_wheel_holds_its_package_and_nothing_else(package: str, tmp_path: Path) -> None:
    # Built from a copy: setuptools leaves its build folder beside the sources.
    source = shutil.copytree(PROJECTS[package], tmp_path / "source", ignore=_SKIPPED)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    files = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in files if ".dist-info/" not in name} == {package}
    assert f"{package}/py.typed" in files
    in_tree = {p.relative_to(source).as_posix() for p in (source / package).rglob("*") if p.is_file()}
    assert in_tree - files == set()
