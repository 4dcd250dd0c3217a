"""A backend as an installed distribution, for processes of their own: what is on the search path is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import aicore

ROOT = Path(aicore.__file__).resolve().parent.parent

MODULE = """
import numpy as np
import aicore.ops as ops
from aicore.kernels import kernel
from aicore.plugins import PluginInfo, Probe, hookimpl
from aicore.testing.fake_gpu import FakeDevice, FakeExecutable

INFO = PluginInfo(kind="device", devices=("npu",), priority=-50)

class Npu(FakeDevice):
    kind = "npu"

DEVICE = Npu("npu")

@kernel(ops.Relu, device="npu", variant="plain", dtypes={"float32", "float64", "float16", "bfloat16", "int32"})
def relu(op, x):
    return np.maximum(x, 0)

@kernel(ops.Relu, device="npu", variant="wrong", estimate=lambda op, x: 0.0)
def relu_wrong(op, x):
    result = np.maximum(x, 0)
    if result.size > 10:
        result.flat[7] += 1
    return result

@hookimpl
def probe():
    return Probe(devices=(DEVICE,))

@hookimpl
def register_kernels():
    return KERNELS

@hookimpl
def launch(plan):
    return FakeExecutable(plan, DEVICE)
"""


def install(folder: Path, kernels: str) -> None:
    """Install a backend of the device `npu` below a folder that will be on the search path.

    kernels: the names that it registers, such as `relu`.
    """
    (folder / "npu_backend.py").write_text(f"{MODULE}\nKERNELS = [{kernels}]\n", encoding="utf-8")
    about = folder / "npu_backend-1.0.dist-info"
    about.mkdir(exist_ok=True)
    requires = f"Requires-Dist: aicore>={aicore.__version__}"
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: npu-backend\nVersion: 1.0\n{requires}\n")
    (about / "entry_points.txt").write_text("[aicore.plugins]\nnpu = npu_backend\n")


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the folder on its search path, and nothing of this process's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AICORE_", "PYTEST_"))}
    path = os.pathsep.join([str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**kept, "PYTHONPATH": path, "NO_COLOR": "1", "COLUMNS": "200", "AICORE_CACHE_DIR": str(folder)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
