"""What the figures are true of: GPU, driver, versions."""

from __future__ import annotations

import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("aicore", "aicore-cuda-ge", "torch", "triton", "onnx", "numpy", "cupy-cuda13x", "cupy-cuda12x")


def circumstances() -> dict[str, Any]:
    """Date, driver and versions of the installed packages; the GPU's name is told by who talks to it."""
    found = {name: installed(name) for name in PACKAGES}
    return {
        "date": date.today().isoformat(),
        "driver": driver_version(),
        "versions": {"python": platform.python_version(), **{k: v for k, v in found.items() if v is not None}},
    }


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def driver_version(told: Path = Path("/proc/driver/nvidia/version")) -> str:
    """As the kernel module tells it, such as 580.95.05; `unknown` where it tells nothing."""
    if not told.is_file():
        return "unknown"
    words = told.read_text().partition("\n")[0].split()
    return next((word for word in words if word[0].isdigit() and "." in word), "unknown")
