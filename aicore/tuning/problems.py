"""What a measured time holds for: the problem, the device, and the code of the kernel."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

from aicore import __version__
from aicore.config import Precision
from aicore.errors import GraphError
from aicore.ir import Op, TensorType, op_text
from aicore.kernels import Kernel
from aicore.runtime import Device, thread_count


def problem_text(
    op: Op, types: Sequence[TensorType | None], constant: Collection[int] = (), precision: Precision = "float32"
) -> str | None:
    """`Conv{strides=[2, 2]}(float32[1,3,224,224], const float32[64,3,7,7])`; None for an op that text cannot hold.

    A precision that is lower than float32 stands in front.
    Arrays are dense and in C order on every device, so shapes say all about strides.
    """
    try:
        attributes = op_text(op)
    except GraphError:
        return None
    operands = ", ".join(
        ("const " if i in constant else "") + ("_" if t is None else str(t)) for i, t in enumerate(types)
    )
    lowered = "" if precision == "float32" else f"{precision} "
    return f"{lowered}{attributes}({operands})"


def device_text(device: Device) -> str:
    """All facts about the device that times depend on, as JSON: model, driver, libraries, threads."""
    facts = {"kind": device.kind, "device": device.fingerprint, "threads": thread_count(), "aicore": __version__}
    return json.dumps(facts, sort_keys=True)


def source_digest(kernel: Kernel) -> str:
    """Digest of the code of the kernel: of all files of the package that holds its function."""
    return package_digest(kernel.function.__module__.partition(".")[0])


@cache
def package_digest(package: str) -> str:
    """Digest of all files of code of an imported package."""
    module = sys.modules.get(package)
    file = getattr(module, "__file__", None)
    files = [Path(file)] if file else []
    for folder in getattr(module, "__path__", ()):
        files += [path for path in Path(folder).rglob("*") if path.suffix in (".py", ".so", ".pyd", ".cu", ".cuh")]
    digest = hashlib.sha256()
    for path in sorted(set(files)):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
