"""Exact int8 products on the CPU beside NumPy's integer matmul and float32, requantisation included.

Run `python -m benchmarks.int8_cpu [--output benchmarks/results/int8_cpu.json]`. The sides take turns, so that drift of
the machine hits all alike; ratios are medians over the rounds. One thread, so that NumPy's loop is not at a
disadvantage.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import aicore
from aicore.ir import Builder, Graph

Array = np.ndarray[Any, Any]
SHAPES = ((512, 4096, 512), (64, 1024, 1024), (1, 4096, 4096))
"""Rows, terms, columns. The first one is the bar: 20 times as fast as NumPy's integer matmul."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    text = json.dumps(measure(arguments.rounds), indent=2)
    print(text)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")


def measure(rounds: int) -> dict[str, Any]:
    """Milliseconds of each side and ratios, by shape."""
    return {
        "date": date.today().isoformat(),
        "machine": platform.machine(),
        "versions": f"Python {platform.python_version()}, NumPy {np.__version__}",
        "threads": 1,
        "products": {"x".join(map(str, shape)): product(*shape, rounds) for shape in SHAPES},
    }


def product(m: int, k: int, n: int, rounds: int) -> dict[str, float]:
    """s8 by s8 with an odd zero point, a bias, a scale for each column, and a ReLU."""
    rng = np.random.default_rng(0)
    a = rng.integers(-128, 128, (m, k)).astype(np.int8)
    b = rng.integers(-127, 128, (k, n)).astype(np.int8)
    bias = rng.integers(-9999, 9999, n).astype(np.int32)
    scale = rng.uniform(1e-5, 1e-4, n).astype(np.float32)
    program = aicore.compile(int8_graph(a, b, bias, scale), "cpu", fallback="error", threads=1)
    floats = aicore.compile(float_graph(a, b), "cpu", fallback="error", threads=1)
    left = a.astype(np.float32)
    sides: Mapping[str, Callable[[], Array]] = {
        "int8": lambda: program.run({"a": a})["y"],
        "numpy": lambda: requantized((a.astype(np.int32) + 11) @ b.astype(np.int32) + bias, scale),
        "float32": lambda: floats.run({"a": left})["y"],
    }
    if not np.array_equal(sides["int8"](), sides["numpy"]()):
        raise SystemExit(f"{m}x{k}x{n}: the kernel differs from NumPy's integers")
    sides["float32"]()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    ratios = {
        other: statistics.median(t / s for t, s in zip(seconds[other], seconds["int8"], strict=True))
        for other in ("numpy", "float32")
    }
    return {
        **{f"{name}_ms": round(1e3 * statistics.median(times), 3) for name, times in seconds.items()},
        "times_numpy": round(ratios["numpy"], 1),
        "times_float32": round(ratios["float32"], 2),
    }


def int8_graph(a: Array, b: Array, bias: Array, scale: Array) -> Graph:
    from aicore.ops.activation import Relu
    from aicore_int8_quant.ops import Int8MatMul

    op = Builder()
    x = op.input("a", "int8", a.shape)
    one, point = op.constant(np.float32(1)[()]), op.constant(np.int8(3)[()])
    operands = [op.constant(b), op.constant(scale), op.constant(np.int8(-11)[()]), None, op.constant(bias)]
    return op.graph([x], {"y": op.apply(Int8MatMul(Relu()), x, *operands, None, None, None, one, point)})


def float_graph(a: Array, b: Array) -> Graph:
    op = Builder()
    x = op.input("a", "float32", a.shape)
    return op.graph([x], {"y": op.Relu(op.MatMul(x, op.constant(b.astype(np.float32))))})


def requantized(sums: Array, scale: Array) -> Array:
    real = np.maximum(sums.astype(np.float32) * scale, 0)
    return np.clip(np.rint(real) + 3, -128, 127).astype(np.int8)


if __name__ == "__main__":
    main()
