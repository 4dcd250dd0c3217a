"""Int8 convolutions on the CPU beside the same in float32, with channels last, requantisation and ReLU included.

Run `python -m benchmarks.int8_cpu_convolutions [--output benchmarks/results/int8_cpu_convolutions.json]`. The sides
take turns, so that drift of the machine hits both alike; ratios are medians over the rounds. Floats are computed twice:
by the kernel that is chosen and, if that is one of Winograd's, which are not exact for integers, by windows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import aicore
from aicore.ir import Builder, Graph
from aicore.ops.activation import Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct
from aicore.ops.layout import ChannelsLast
from aicore.program import Program
from aicore_int8_quant.ops import Int8Conv

Array = np.ndarray[Any, Any]
CASES = (
    *((56, 64, 64, 1, 1, 1), (56, 64, 64, 3, 1, 1), (56, 256, 64, 1, 1, 1), (28, 128, 128, 3, 1, 1)),
    *((28, 512, 128, 1, 1, 1), (14, 256, 256, 3, 1, 1), (14, 1024, 256, 1, 1, 1), (7, 512, 512, 3, 1, 1)),
    *((7, 512, 2048, 1, 1, 1), (56, 128, 128, 3, 2, 1), (224, 3, 64, 7, 2, 1)),
    *((112, 32, 32, 3, 1, 32), (56, 128, 128, 3, 1, 128), (28, 256, 256, 5, 2, 256)),
)
"""Height and width, channels, output channels, kernel, stride, groups: those of ResNet-50, and three depthwise ones."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    text = json.dumps(measure(arguments.rounds, arguments.threads), indent=2)
    print(text)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")


def measure(rounds: int, threads: list[int]) -> dict[str, Any]:
    """Milliseconds of each side and ratios, by threads and shape."""
    found: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start",
        "versions": f"Python {platform.python_version()}, NumPy {np.__version__}",
    }
    for count in threads:
        shapes = {"x".join(map(str, case)): convolution(*case, rounds=rounds, threads=count) for case in CASES}
        found[f"threads {count}"] = {**summary(list(shapes.values())), **shapes}
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all shapes, beside float32 by windows: time taken in all over the same, and the mean of the ratios."""
    int8, direct = (sum(row[f"{side}_ms"] for row in rows) for side in ("int8", "direct"))
    mean = statistics.geometric_mean([row["times_direct"] for row in rows])
    return {"in_all": round(int8 / direct, 2), "geometric_mean": round(mean, 2)}


def convolution(
    size: int, channels: int, maps: int, kernel: int, stride: int, group: int, *, rounds: int, threads: int
) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    conv = Conv(pads=(kernel // 2,) * 4, strides=(stride,) * 2, group=group, kernel_shape=(kernel,) * 2)
    x = rng.integers(-128, 128, (1, size, size, channels)).astype(np.int8)
    w = np.clip(rng.normal(size=(maps, channels // group, kernel, kernel)) * 35, -127, 127).astype(np.int8)
    quantized = aicore.compile(int8_graph(conv, x, w), "cpu", fallback="error", threads=threads)
    floats = float_graph(conv, x, w)
    chosen = aicore.compile(floats, "cpu", fallback="error", threads=threads)
    direct = chosen if not _is_winograd(chosen, x) else _direct(floats, x, threads)
    numbers = x.astype(np.float32)
    sides: dict[str, Callable[[], float]] = {
        "int8": lambda: _seconds(quantized, x),
        "float32": lambda: _seconds(chosen, numbers),
        "direct": lambda: _seconds(direct, numbers),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            taken = side()
            if number:  # the first one makes ready
                seconds[name].append(taken)
    ratio = {
        other: statistics.median(t / s for t, s in zip(seconds["int8"], seconds[other], strict=True))
        for other in ("float32", "direct")
    }
    return {
        **{f"{name}_ms": round(1e3 * statistics.median(times), 3) for name, times in seconds.items()},
        **{f"times_{name}": round(value, 2) for name, value in ratio.items()},
    }


def int8_graph(conv: Conv, image: Array, w: Array) -> Graph:
    rng, op = np.random.default_rng(1), Builder()
    x = op.input("x", "int8", image.shape)
    scale = op.constant(rng.uniform(1e-5, 1e-4, len(w)).astype(np.float32))
    bias = op.constant(rng.integers(-999, 999, len(w)).astype(np.int32))
    operands = [op.constant(w), scale, op.constant(np.int8(-11)[()]), None, bias]
    one, point = op.constant(np.float32(1)[()]), op.constant(np.int8(3)[()])
    y = op.apply(ChannelsLast(Int8Conv(Relu(), conv), 4), op.Abs(x), *operands, None, None, None, one, point)
    return op.graph([x], {"y": op.Cast(y, to="int32")})


def float_graph(conv: Conv, image: Array, w: Array) -> Graph:
    op = Builder()
    x = op.input("x", "float32", image.shape)
    bias = op.constant(np.ones(len(w), np.float32))
    y = op.apply(ChannelsLast(ConvAct(conv, Relu()), 4), op.Abs(x), op.constant(w.astype(np.float32)), bias)
    return op.graph([x], {"y": op.Cast(y, to="float64")})


def _seconds(program: Program, x: Array) -> float:
    """Of the convolution alone; Abs and Cast around it keep it off the arrays of the caller, as inside a network."""
    rows = program.profile({"x": x}).rows
    kernels = [step.kernel for plan in program.plan for step in plan.steps]
    return sum(row.seconds for row, kernel in zip(rows, kernels, strict=True) if kernel.op is ChannelsLast)


def _is_winograd(program: Program, x: Array) -> bool:
    program.run({"x": x.astype(np.float32)})
    return any("winograd" in step.kernel.variant for plan in program.plan for step in plan.steps)


def _direct(graph: Graph, x: Array, threads: int) -> Program:
    """By windows."""
    return aicore.compile(graph, "cpu", fallback="error", threads=threads, kernels={"ChannelsLast": "im2col"})


if __name__ == "__main__":
    main()
