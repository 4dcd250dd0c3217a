"""What tells one CPU from another, for times that were measured on it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aicore_cpu_numpy import device
from aicore_cpu_numpy.device import CpuDevice


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    device._processor.cache_clear()
    yield
    device._processor.cache_clear()


@pytest.mark.parametrize(
    ("text", "name"),
    [("processor\t: 0\nmodel name\t: Some CPU 9000 @ 2 GHz\n", "Some CPU 9000 @ 2 GHz"), ("processor\t: 0\n", "")],
)
def test_the_fingerprint_names_the_processor(
    text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(text)
    monkeypatch.setattr(device, "_INFO", info)
    monkeypatch.setattr(platform, "processor", lambda: pytest.fail("it runs a process"))
    assert CpuDevice().fingerprint == f"{platform.machine()} {name} numpy {np.__version__}"


def test_elsewhere_python_names_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_INFO", tmp_path / "absent")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert CpuDevice().fingerprint == f"{platform.machine()} arm numpy {np.__version__}"
