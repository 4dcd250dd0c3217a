"""What the core costs: growth of compile time, passes of a real network, the import, and dispatch of a step.

Run `python -m benchmarks.core [--output benchmarks/results/core.json]`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import aicore
from aicore.ir import Builder
from benchmarks.graphs import SHAPES
from tools.zoo import network

SMALL, LARGE = 1_000, 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file")
    arguments = parser.parse_args()
    text = json.dumps(measure(), indent=2)
    print(text)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")


def measure() -> dict[str, Any]:
    """All figures of the core, with the machine that they are true of."""
    return {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {_cores()} cores",
        "versions": f"Python {platform.python_version()}, NumPy {np.__version__}",
        "dispatch_us_per_step": dispatch_us(),
        "compile_growth_1k_to_10k": {name: compile_growth(build) for name, build in SHAPES.items()},
        "densenet121_passes_ms": densenet_passes_ms(),
        "import_ms_over_numpy": import_ms(),
    }


def compile_growth(build: Callable[[int], Any]) -> dict[str, float]:
    """Seconds to compile and specialise SMALL and LARGE nodes, and their ratio; 15 is the bar. Medians of 3."""
    small = statistics.median(_compile_seconds(build(SMALL)) for _ in range(3))
    large = statistics.median(_compile_seconds(build(LARGE)) for _ in range(3))
    return {"small_s": round(small, 3), "large_s": round(large, 3), "ratio": round(large / small, 1)}


def _compile_seconds(graph: Any) -> float:
    started = time.perf_counter()
    program = aicore.compile(graph, target="cpu")
    compiled = time.perf_counter() - started
    feeds = {"x": np.ones((2, 8), np.float32)}
    started = time.perf_counter()
    program.run(feeds)
    first = time.perf_counter() - started
    started = time.perf_counter()
    program.run(feeds)
    return compiled + first - (time.perf_counter() - started)


def densenet_passes_ms() -> float:
    """Milliseconds that the passes of compile() take on densenet121, median of 5; the bar is 1,000."""
    graph = aicore.load(network("light_densenet121").model)
    return round(statistics.median(_passes_ms(graph) for _ in range(5)), 1)


def _passes_ms(graph: Any) -> float:
    return float(aicore.compile(graph, target="cpu").explain().passes[0].ms)


def import_ms() -> float:
    """Milliseconds that `import aicore` adds after `import numpy`, median of 9 processes; the bar is 150."""
    code = "import numpy, time; t = time.perf_counter(); import aicore; print((time.perf_counter() - t) * 1e3)"
    runs = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(9)]
    return round(statistics.median(runs), 1)


def dispatch_us() -> dict[str, float]:
    """Microseconds a step that the executor adds to the kernels: a chain of tiny additions as a program, and the same
    kernel called in a loop on the same arrays, interleaved. The bar is 2; medians, and minima for a busy machine.
    """
    steps = 400
    program = _addition_chain(steps)
    feeds = {"x": np.ones(4, np.float32)}
    program.run(feeds)
    call = _bound_kernel(program)
    bare: list[float] = []
    ours: list[float] = []
    for _ in range(101):
        bare.append(_loop_seconds(call, steps))
        started = time.perf_counter()
        program.run(feeds)
        ours.append(time.perf_counter() - started)
    differences = [(a - b) / steps * 1e6 for a, b in zip(ours, bare, strict=True)]
    return {
        "added_median": round(statistics.median(differences), 3),
        "added_of_minima": round((min(ours) - min(bare)) / steps * 1e6, 3),
        "kernel_alone": round(statistics.median(bare) / steps * 1e6, 3),
    }


def _addition_chain(steps: int) -> aicore.Program:
    op = Builder()
    x = y = op.input("x", "float32", (4,))
    one = op.constant(np.ones(4, np.float32))
    for _ in range(steps):
        y = op.Add(y, one)
    return aicore.compile(op.graph([x], {"y": y}), target="cpu", optimize=False)


def _bound_kernel(program: aicore.Program) -> Callable[..., Any]:
    """The kernel of a step, bound as the launcher binds it."""
    step = program.plan[0].steps[1]
    assert step.kernel.bind is not None
    types = [value and value.type for value in step.node.inputs]
    return step.kernel.bind(step.node.op, types, [None] * len(types))


def _loop_seconds(call: Callable[..., Any], steps: int) -> float:
    x, one, out = np.ones(4, np.float32), np.ones(4, np.float32), np.empty(4, np.float32)
    started = time.perf_counter()
    for _ in range(steps):
        call(x, one, out=out)
    return time.perf_counter() - started


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()
