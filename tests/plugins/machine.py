"""An environment with broken plugins, and the command line in fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import aicore

TIMEOUT = 8
"""Seconds for each plugin: time enough for a healthy one on a busy machine, and all that a hanging one gets."""


@dataclass(frozen=True)
class Machine:
    """Plugins below `site`, verdicts on them in `cache`."""

    site: Path
    cache: Path

    def python(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Call Python. It may take the limits of two hanging plugins, one after the other, and little more."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AICORE_")}
        search = [str(self.site), str(Path(aicore.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        settings = {
            "PYTHONPATH": os.pathsep.join(filter(None, search)),
            "AICORE_CACHE_DIR": str(self.cache),
            "AICORE_PLUGIN_TIMEOUT": str(TIMEOUT),
            "COLUMNS": "300",
        }
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=self.site, env={**clean, **settings}, capture_output=True, text=True, timeout=20 * TIMEOUT,
            check=False,
        )  # fmt: skip

    def aicore(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Call `aicore`."""
        return self.python("-m", "aicore", *arguments)

    def save(self, name: str, *ops: str) -> Path:
        """A model of these ops of one operand, one after the other."""
        path = self.site / f"{name}.onnx"
        path.write_bytes(chain(name, *ops).SerializeToString())
        return path

    def run_model(self) -> dict[str, Any]:
        """A model on the CPU; fails unless its numbers are right."""
        np.save(self.site / "x.npy", np.array([[-1, 2, -3]], np.float32))
        done = self.aicore("run", self.save("relu", "Relu"), "-i", f"x={self.site}/x.npy", "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        assert (answer["target"], answer["placement"]) == ("cpu", "cpu_numpy 1/1 nodes")
        assert answer["outputs"]["y"]["values"] == [0, 2, 0]
        return {**answer, "stderr": done.stderr}

    def plugins(self, *arguments: str, status: int) -> list[dict[str, Any]]:
        """The plugins as `aicore plugins ... --json` shows them."""
        done = self.aicore("plugins", *arguments, "--json")
        assert done.returncode == status, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)["plugins"]
        return found


def chain(name: str, *ops: str) -> Any:
    """An ONNX model that applies these ops of one operand to its input `x`; the result is `y`."""
    names = ["x", *(f"h{i}" for i in range(1, len(ops))), "y"]
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]], name=f"{op.lower()}{i}") for i, op in enumerate(ops)]
    x, y = (helper.make_tensor_value_info(one, TensorProto.FLOAT, [1, 3]) for one in "xy")
    graph = helper.make_graph(nodes, name, [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
