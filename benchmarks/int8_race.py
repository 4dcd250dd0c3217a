"""Is int8 taken only where it is faster? Products and convolutions of codes, on 8-bit integers and in floating point.

Run `python -m benchmarks.int8_race [--target cuda] [--parts products others depthwise convolutions] [--tune SECONDS]
[--output FILE]`; options by --help.

A case is what lies between two tensors of codes in a quantised network: the product with bias and ReLU. On integers it
is mostly one step; in floating point its input is dequantised first, its result quantised afterwards. Both ways are
compiled, with kernels by estimate and after tuning, floating point in both orders of axes; the steps of all of them are
timed in turn, on a GPU inside captured graphs. Then: does the selector, untuned and tuned, take the way that is faster?
A wrong pick is one that is slower by more than the noise; the loss is what it costs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import aicore
from aicore.ir import Builder, Graph, Value
from aicore.ops.cast import Cast
from aicore.ops.elementwise import Abs
from aicore.program import Program
from aicore.runtime import TimesSteps
from aicore.tuning import Measure, median_interval
from aicore_int8_quant.ops import Int8Linear

Array = np.ndarray[Any, Any]
WAYS = {"int8": "fuse-int8.race=false", "float": "-fuse-int8"}
_BORDERS = (Abs, Cast)
_NOISE = 0.03
"""A pick that is slower by less, or by less than its 95 % interval shows, is no wrong one."""


@dataclass(frozen=True)
class Case:
    """A product (m, k) @ (k, n), or a convolution of square images. m is 0 for the latter.

    channels: in and out. real: the result stays in floating point, as that of a last layer.
    """

    part: str
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 1
    size: int = 0
    channels: tuple[int, int] = (0, 0)
    kernel: int = 1
    stride: int = 1
    group: int = 1
    real: bool = False

    @property
    def is_product(self) -> bool:
        return self.m > 0

    @property
    def name(self) -> str:
        ends = (f" group {self.group}" if self.group > 1 else "") + (" real" if self.real else "")
        if self.is_product:
            return f"{self.m}x{self.k}x{self.n}{ends}"
        layers = f"{self.size}x{self.size}x{self.channels[0]} to {self.channels[1]}"
        return f"b{self.batch} {layers} {self.kernel}x{self.kernel}/{self.stride}{ends}"


_PRODUCTS = (
    *((1, 1000, 2048), (1, 4096, 4096), (1, 10, 64), (4, 4096, 4096), (8, 256, 256), (16, 1024, 1024)),
    *((32, 1000, 2048), (64, 64, 64), (64, 4096, 1024), (128, 768, 768), (128, 3072, 768), (128, 768, 3072)),
    *((197, 768, 768), (256, 256, 256), (512, 512, 4096), (1024, 1024, 1024), (2048, 32, 2048), (4096, 16, 64)),
    *((4096, 64, 256), (4096, 768, 3072), (4096, 4096, 1024)),
)
"""M, N, K."""
_RESNET50 = (
    *((224, 3, 64, 7, 2), (56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1)),
    *((56, 256, 128, 1, 1), (56, 128, 128, 3, 2), (28, 128, 512, 1, 1), (28, 512, 128, 1, 1), (28, 128, 128, 3, 1)),
    *((28, 512, 256, 1, 1), (28, 256, 256, 3, 2), (14, 256, 1024, 1, 1), (14, 1024, 256, 1, 1), (14, 256, 256, 3, 1)),
    *((14, 1024, 512, 1, 1), (14, 512, 512, 3, 2), (7, 512, 2048, 1, 1), (7, 2048, 512, 1, 1), (7, 512, 512, 3, 1)),
)
"""Size, channels in and out, kernel, stride."""
_MOBILENET = (
    *((112, 32, 3, 1), (112, 96, 3, 2), (56, 144, 3, 1), (56, 144, 3, 2), (28, 192, 3, 1)),
    *((14, 384, 3, 1), (14, 576, 3, 2), (7, 960, 3, 1), (28, 120, 5, 1)),
)
"""Size, channels, kernel, stride of depthwise convolutions."""


_ODD_PRODUCTS = ((1, 1000, 2048), (32, 1000, 2048), (4096, 64, 512), (33, 19, 77), (128, 1, 512), (4096, 3, 17))
"""M, N, K of products whose results stay in floating point."""
_ODD_CONVOLUTIONS = (
    *((56, 128, 128, 3, 1, 32), (14, 512, 512, 3, 1, 32), (28, 96, 96, 3, 1, 3), (112, 3, 16, 3, 2, 1)),
    *((64, 1, 8, 5, 1, 1), (28, 37, 53, 1, 1, 1), (28, 32, 64, 3, 1, 32)),
)
"""Size, channels in and out, kernel, stride, groups."""


def cases(part: str, batches: Sequence[int]) -> Iterator[Case]:
    if part == "products":
        yield from (Case(part, m=m, n=n, k=k) for m, n, k in _PRODUCTS)
    elif part == "others":
        yield from (Case(part, m=m, n=n, k=k, real=True) for m, n, k in _ODD_PRODUCTS)
        for batch in batches:
            for size, inputs, outputs, kernel, stride, group in _ODD_CONVOLUTIONS:
                yield Case(part, 0, 0, 0, batch, size, (inputs, outputs), kernel, stride, group)
    elif part == "convolutions":
        for batch in batches:
            for size, inputs, outputs, kernel, stride in _RESNET50:
                yield Case(part, 0, 0, 0, batch, size, (inputs, outputs), kernel, stride)
    else:
        for batch in batches:
            for size, channels, kernel, stride in _MOBILENET:
                yield Case(part, 0, 0, 0, batch, size, (channels, channels), kernel, stride, channels)


PARTS = ("products", "others", "depthwise", "convolutions")


def graph_of(case: Case, last: bool, inside: bool = False) -> Graph:
    """Codes, DequantizeLinear, product, bias, ReLU, QuantizeLinear, codes; without the last three for a real result.

    last: with the channels of images last.
    inside: Abs and Cast around it keep it off the arrays of the caller, as inside of a network.
    """
    op, rng, last = Builder(), np.random.default_rng(0), last and not case.is_product
    scale, point = op.constant(np.float32(0.05)), op.constant(np.int8(3))
    depth = case.k if case.is_product else case.channels[0] // case.group * case.kernel**2
    outputs = case.n if case.is_product else case.channels[1]
    w_scale = rng.uniform(0.5, 1, outputs).astype(np.float32) / np.float32(60 * depth**0.5)
    sums = op.constant(rng.integers(-2000, 2000, outputs).astype(np.int32))
    bias = op.DequantizeLinear(sums, op.constant(np.float32(0.05) * w_scale), axis=0)
    if case.is_product:
        x = op.input("x", "int8", (case.m, case.k))
        w = op.DequantizeLinear(_weights(op, rng, (case.k, case.n)), op.constant(w_scale), axis=1)
        codes = op.Abs(x) if inside else x
        real = op.Add(op.MatMul(op.DequantizeLinear(codes, scale, point), w), bias)
    else:
        shape = (case.batch, case.channels[0], case.size, case.size)
        x = op.input("x", "int8", tuple(shape[i] for i in (0, 2, 3, 1)) if last else shape)
        weights = _weights(op, rng, (outputs, case.channels[0] // case.group, case.kernel, case.kernel))
        image = op.DequantizeLinear(op.Abs(x) if inside else x, scale, point)
        image = op.Transpose(image, perm=(0, 3, 1, 2)) if last else image
        geometry = {"pads": (case.kernel // 2,) * 4, "strides": (case.stride,) * 2, "group": case.group}
        real = op.Conv(image, op.DequantizeLinear(weights, op.constant(w_scale), axis=0), bias, **geometry)
    y = real if case.real else op.QuantizeLinear(op.Relu(real), scale, point)
    y = op.Transpose(y, perm=(0, 2, 3, 1)) if last else y
    return op.graph([x], {"y": op.Cast(y, to="float64" if case.real else "int32") if inside else y})


def _weights(op: Builder, rng: np.random.Generator, shape: tuple[int, ...]) -> Value:
    return op.constant(rng.integers(-127, 128, shape).astype(np.int8))


class Side:
    """One program of a case."""

    def __init__(self, graph: Graph, target: str, choices: str, tune: Any, threads: int | None) -> None:
        value = graph.inputs[0]
        self.x = np.random.default_rng(1).integers(-128, 128, value.type.static_shape).astype(np.int8)
        self.program: Program = aicore.compile(
            graph, target, fallback="error", choices=choices or None, tune=tune, threads=threads
        )
        self.result: Array = self.program.run({"x": self.x})["y"]
        self._specialised: Any = self.program.explain().specialised

    @property
    def is_int8(self) -> bool:
        nodes = self.program.graph.nodes
        return any(isinstance(getattr(node.op, "inner", node.op), Int8Linear) for node in nodes)

    def seconds(self) -> float:
        """Of all steps."""
        return sum(self._each())

    def steps(self) -> list[dict[str, Any]]:
        """Each step's kernel, with its time and what it was expected to take, in microseconds."""
        steps = [step for executable in self._specialised.executables for step in executable.plan.steps]
        chosen = [step.selection.candidates[0] for step in steps if not isinstance(step.node.op, _BORDERS)]
        return [
            {"kernel": one.name, "us": _micro(taken), "told": None if one.seconds is None else _micro(one.seconds)}
            for one, taken in zip(chosen, self._each(), strict=True)
        ]

    def _each(self) -> list[float]:
        """Seconds of each step, those at the borders aside."""
        (executable,) = self._specialised.executables
        mine = [i for i, step in enumerate(executable.plan.steps) if not isinstance(step.node.op, _BORDERS)]
        if isinstance(executable, TimesSteps):
            return [executable.time_step(i) for i in mine]
        rows = self._specialised.profile([self.x])
        return [rows[i].seconds for i in mine]


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 2)


def race(case: Case, target: str, budget: float, rounds: int, seconds: float, threads: int | None) -> dict[str, Any]:
    """Both ways of a case, untuned and tuned, and what the selector picks."""
    inside = target == "cpu"  # a GPU times each step on arrays of its own
    network = graph_of(case, True, inside)
    plain = None if case.is_product else graph_of(case, False, inside)
    began = time.perf_counter()
    if budget:
        Side(network, target, "", Measure(budget), threads)
    spent = time.perf_counter() - began
    names = {"untuned": "off", "tuned": "cached"} if budget else {"untuned": "off"}
    picks: dict[str, bool] = {}
    sides: dict[tuple[str, str, int], Side] = {}
    for name, tune in names.items():
        picks[name] = Side(network, target, "", tune, threads).is_int8
        for way, choices in WAYS.items():
            sides[name, way, 0] = Side(network, target, choices, tune, threads)
        if plain is not None:
            sides[name, "float", 1] = Side(plain, target, WAYS["float"], tune, threads)
    _check(sides)
    times = _in_turn({key: side.seconds for key, side in sides.items()}, rounds, seconds)
    found: dict[str, Any] = {"case": case.name, "part": case.part, "tuning_s": round(spent, 2)}
    for name in names:
        found[name] = _judged(name, picks[name], sides, times)
    return found


def _judged(
    name: str, is_int8: bool, sides: dict[tuple[str, str, int], Side], times: dict[Any, list[float]]
) -> dict[str, Any]:
    """Of floating point the better order of axes counts; int8 has the one that its networks have."""
    best = {
        way: min((key for key in times if key[:2] == (name, way)), key=lambda key: statistics.median(times[key]))
        for way in WAYS
    }
    ratios = [a / b for a, b in zip(times[best["int8"]], times[best["float"]], strict=True)]
    interval = median_interval(ratios)
    pick = "int8" if is_int8 else "float"
    over = interval.middle if pick == "int8" else 1 / interval.middle
    sure = interval.low > 1 + _NOISE if pick == "int8" else interval.high < 1 / (1 + _NOISE)
    return {
        **{f"{way}_us": round(statistics.median(times[key]) * 1e6, 2) for way, key in best.items()},
        "int8_over_float": [round(x, 3) for x in (interval.middle, interval.low, interval.high)],
        "pick": pick,
        "right": not sure,
        "over_best": round(max(over, 1.0), 3),
        "steps": {way: sides[key].steps() for way, key in best.items()},
    }


def _check(sides: dict[tuple[str, str, int], Side]) -> None:
    """Raise RuntimeError where two programs are more than one code apart, or a thousandth of the largest number."""
    first: dict[int, Array] = {}
    for (_, way, order), side in sides.items():
        want = first.setdefault(order, side.result).astype(np.float64)
        apart = float(np.abs(side.result - want).max())
        if apart > (1 if side.result.dtype.kind == "i" else 1e-3 * np.abs(want).max()):
            raise RuntimeError(f"{way}: results are {apart:g} apart")


def _in_turn(sides: dict[Any, Callable[[], float]], rounds: int, seconds: float) -> dict[Any, list[float]]:
    """Each side once in each round; the first round is not counted. At least seven rounds, then until time is up."""
    times: dict[Any, list[float]] = {key: [] for key in sides}
    end = time.perf_counter() + seconds
    keys = list(sides)
    for number in range(rounds + 1):
        if number > 7 and time.perf_counter() > end:
            break
        start = number % len(keys)
        for key in (*keys[start:], *keys[:start]):
            taken = sides[key]()
            if number:
                times[key].append(taken)
    return times


def total(rows: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """Wrong picks, and what they cost of the time that the best ways would take in all."""
    judged = [row[name] for row in rows if name in row]
    wrong = [row for row in judged if not row["right"]]
    best = sum(min(row["int8_us"], row["float_us"]) for row in judged)
    lost = sum(row[f"{row['pick']}_us"] - min(row["int8_us"], row["float_us"]) for row in wrong)
    return {
        "cases": len(judged),
        "int8_picked": sum(row["pick"] == "int8" for row in judged),
        "wrong": len(wrong),
        "int8_where_float_is_faster": sum(row["pick"] == "int8" for row in wrong),
        "loss_percent": round(100 * lost / best, 2) if best else 0.0,
        "worst": max((row["over_best"] for row in wrong), default=1.0),
    }


def main(options: Sequence[str] | None = None) -> int:
    """0; wrong picks are told, wrong numbers raise."""
    arguments = _parse(options)
    console = Console(width=None if sys.stdout.isatty() else 180)
    figures = _circumstances(arguments)
    rows: list[dict[str, Any]] = figures["cases"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AICORE_CACHE_DIR"] = folder  # nothing that was measured before
        end = time.monotonic() + arguments.limit
        for part in arguments.parts:
            for case in cases(part, arguments.batches):
                if arguments.only and arguments.only not in case.name:
                    continue
                if time.monotonic() > end:
                    figures["left_out"].append(f"{part} {case.name}")
                    continue
                rows.append(_attempt(case, arguments))
                figures["total"] = {name: total(rows, name) for name in ("untuned", "tuned")}
                if arguments.output:
                    arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
    console.print(_table(rows))
    console.print(figures.get("total"))
    return 0


def _attempt(case: Case, arguments: argparse.Namespace) -> dict[str, Any]:
    try:
        return race(case, arguments.target, arguments.tune, arguments.rounds, arguments.seconds, arguments.threads)
    except aicore.AicoreError as error:
        return {"case": case.name, "part": case.part, "error": f"{type(error).__name__}: {error}"[:500]}


def _circumstances(arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {
        "date": date.today().isoformat(),
        "target": arguments.target,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start",
        "versions": f"Python {platform.python_version()}, NumPy {np.__version__}",
        "threads": arguments.threads,
        "tuning_budget_s": arguments.tune,
        "cases": [],
        "left_out": [],
    }
    if arguments.target.startswith("cuda"):
        from aicore_cuda_ge.device import CudaDevice  # the CPU needs none of it
        from benchmarks.gpu.machine import circumstances

        found |= {**circumstances(), "device": CudaDevice(0).fingerprint}
    return found


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table("case", *(f"{name} {what}" for name in ("untuned", "tuned") for what in _COLUMNS))
    for row in rows:
        if "error" in row:
            table.add_row(row["case"], row["error"][:80])
            continue
        cells = [cell for name in ("untuned", "tuned") if name in row for cell in _cells(row[name])]
        table.add_row(row["case"], *cells)
    return table


_COLUMNS = ("int8 us", "float us", "ratio", "pick")


def _cells(judged: dict[str, Any]) -> tuple[str, ...]:
    verdict = judged["pick"] if judged["right"] else f"{judged['pick']} WRONG {judged['over_best']:.2f}"
    return f"{judged['int8_us']:.1f}", f"{judged['float_us']:.1f}", f"{judged['int8_over_float'][0]:.2f}", verdict


def _parse(options: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--only", help="cases whose name holds this")
    parser.add_argument("--tune", type=float, default=10.0, help="seconds to tune a case for; 0 leaves that out")
    parser.add_argument("--rounds", type=int, default=25, help="at most")
    parser.add_argument("--seconds", type=float, default=1.0, help="of the rounds of a case, seven rounds aside")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which no case begins")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--output", type=Path, help="JSON")
    return parser.parse_args(options)


if __name__ == "__main__":
    sys.exit(main())
