"""The list of kernels: complete, without doubles, and imported when it is needed."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections import Counter

import pytest

from aicore.ir import Op
from aicore.kernels import REFERENCE
from aicore.ops import CORE
from aicore.ops.base import Pointwise
from aicore_cpu_numpy import fast, reference
from aicore_cpu_numpy.kernels import OPS, all_kernels


def test_names_are_unique() -> None:
    counts = Counter((kernel.op, kernel.wraps, kernel.device, kernel.variant) for kernel in all_kernels())
    assert [key for key, count in counts.items() if count > 1] == []


def test_every_kernel_is_for_the_cpu() -> None:
    assert {kernel.device for kernel in all_kernels()} == {"cpu"}


@pytest.mark.parametrize("cls", [cls for cls in CORE.values() if issubclass(cls, Pointwise)])
def test_pointwise_ops_have_a_reference_and_a_fast_kernel(cls: type[Op]) -> None:
    variants = {kernel.variant for kernel in all_kernels() if kernel.op is cls}
    assert REFERENCE in variants
    assert len(variants) >= 2


def test_the_table_names_the_ops_of_every_module() -> None:
    found = {}
    for package in (reference, fast):
        for one in pkgutil.iter_modules(package.__path__):
            if not one.name.startswith("_"):
                module = importlib.import_module(f"{package.__name__}.{one.name}")
                names = sorted({kernel.computes for kernel in module.KERNELS})
                found[module.__name__.partition(".")[2]] = " ".join(names)
    assert dict(OPS) == found
    assert list(OPS) == sorted(OPS, key=lambda module: (module.startswith("fast"), module))


def test_a_process_imports_the_kernels_that_it_runs() -> None:
    code = """
import sys
import numpy as np
import aicore
from aicore.ir import Builder
b = Builder()
x = b.input("x", "float32", (3,))
aicore.compile(b.graph((x,), {"y": b.Relu(x)}), "cpu").run({"x": np.ones(3, np.float32)})
print(*sorted(name for name in sys.modules if name.startswith("aicore_cpu_numpy.")))
"""
    environment = {**os.environ, "AICORE_PLUGINS": "cpu_numpy"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert "aicore_cpu_numpy.fast.pointwise" in done.stdout
    assert "aicore_cpu_numpy.fast.recurrent" not in done.stdout
