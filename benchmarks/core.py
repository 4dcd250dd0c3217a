"""What the core costs: growth of compile time, passes of a real network, the import, and dispatch of a step.

Run `python -m benchmarks.core [--output benchmarks/results/core.json]`; with `--store` also what looking up measured
times adds to compile time, which first measures for half a minute a network.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import aicore
from aicore.config import TunePolicy
from aicore.ir import Builder
from aicore.tuning import Measure
from benchmarks.graphs import SHAPES
from benchmarks.versus.networks import NETWORKS, write_network
from benchmarks.versus.sides import read_feeds
from tools.zoo import network

SMALL, LARGE = 1_000, 10_000
STORE_NETWORKS = ("light_squeezenet", "light_shufflenet", "light_resnet50", "ppocr_rec")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file")
    names = parser.add_argument("--store", nargs="*", choices=NETWORKS, metavar="NETWORK", help="cost of a warm store")
    names.default = None
    arguments = parser.parse_args()
    figures = measure()
    if arguments.store is not None:
        figures["warm_store"] = {name: store_cost(name) for name in arguments.store or STORE_NETWORKS}
    text = json.dumps(figures, indent=2)
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


def store_cost(name: str, budget: float = 30.0, rounds: int = 15) -> dict[str, float]:
    """Milliseconds from the file of a network to a program for its shapes, with a warm store and without any.

    Both are compiled in turn and the ratio is the median of the rounds; 1.1 is the bar. The store is a new one, filled
    by measuring for `budget` seconds. hits, misses: of the last look-up.
    """
    with tempfile.TemporaryDirectory() as folder, _cache_in(folder):
        model, feeds_path = write_network(name, Path(folder))
        feeds = read_feeds(feeds_path)
        aicore.compile(model, target="cpu", threads=2, tune=Measure(budget=budget)).run(feeds)
        shapes = {name: array.shape for name, array in feeds.items()}
        _specialised(model, shapes, "cached")
        cold: list[float] = []
        warm: list[float] = []
        for _ in range(rounds):
            cold.append(_specialised(model, shapes, "off")[0])
            seconds, program = _specialised(model, shapes, "cached")
            warm.append(seconds)
        looked_up = program.explain().tuning
        assert looked_up is not None
    return {
        "ratio": round(statistics.median(b / a for a, b in zip(cold, warm, strict=True)), 3),
        "without_ms": round(statistics.median(cold) * 1e3, 1),
        "warm_ms": round(statistics.median(warm) * 1e3, 1),
        "hits": looked_up.hits,
        "misses": sum(looked_up.misses.values()),
    }


@contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    """A store of its own: what is measured here is nobody else's."""
    before = os.environ.get("AICORE_CACHE_DIR")
    os.environ["AICORE_CACHE_DIR"] = folder
    try:
        yield
    finally:
        os.environ.pop("AICORE_CACHE_DIR")
        if before is not None:
            os.environ["AICORE_CACHE_DIR"] = before


def _specialised(model: Path, shapes: Any, tune: TunePolicy) -> tuple[float, aicore.Program]:
    started = time.perf_counter()
    program = aicore.compile(model, target="cpu", threads=2, tune=tune)
    program.specialise(shapes)
    return time.perf_counter() - started, program


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
    call: Callable[..., Any] = step.kernel.bind(step.node.op, types, [None] * len(types))
    return call


def _loop_seconds(call: Callable[..., Any], steps: int) -> float:
    x, one, out = np.ones(4, np.float32), np.ones(4, np.float32), np.empty(4, np.float32)
    started = time.perf_counter()
    for _ in range(steps):
        call(x, one, out=out)
    return time.perf_counter() - started


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()
