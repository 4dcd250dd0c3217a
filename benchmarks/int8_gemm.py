"""What products of 8-bit integers reach on a GPU, requantisation included: beside the ceilings of dp4a, mma and wgmma
that are measured along, beside float32 of cuBLAS, and beside torch._int_mm, which leaves sums in int32.

Run `python -m benchmarks.int8_gemm [--parts rates dp4a float tensor] [--output FILE]`; options by --help.

Both sides of a ratio take turns; it is the median of the rounds. Every candidate's result is compared with that of
torch._int_mm, requantised by PyTorch, before it is timed; settings are chosen by a short measurement. A kernel is
captured several times in one graph, so that launching costs what it costs inside a network.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from aicore.ir import TensorType
from aicore.kernels import Kernel
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.device import CudaDevice
from aicore_int8_quant.cuda import library_products, products
from aicore_int8_quant.cuda.launch import launch, machine
from aicore_int8_quant.cuda.library import library_path
from aicore_int8_quant.ops.linear import Int8MatMul
from benchmarks.gpu.machine import circumstances
from benchmarks.gpu.torch_sides import strict, timer
from benchmarks.gpu.turns import Timer, medians, ratios_to, take_turns

PARTS = ("rates", "dp4a", "float", "tensor")
DP4A_BARS = {1024: 0.72, 2048: 0.87, 4096: 0.90, 8192: 0.92}
"""Shares of the dp4a ceiling."""
FLOAT_BAR, MMA_BAR, BEST_BAR = 2.2, 0.9, 1.15
"""Times as fast as cuBLAS in float32 at 4096; mma.sync and the best candidate against torch._int_mm."""
_RATE_LOOPS = {"dp4a": 8192, "mma": 4096, "wgmma": 2048}
_LIST_SECONDS, _TRIAL_SECONDS = 0.002, 0.0003
"""A graph has as many copies of a kernel as fill this; and that of a setting which is tried."""


class Listed:
    """A launch list of several copies of the same calls, as a Timer."""

    def __init__(self, calls: Sequence[Any], pointers: Sequence[int], copies: int) -> None:
        self._copies, self._list = copies, native.LaunchList(0)
        for _ in range(copies):
            for call in calls:
                extra = [array.data.ptr for array in call.extra]
                self._list.add_kernel(call.kernel, [*pointers, *extra], call.params, "int8")
        self._list.capture()

    def __call__(self, calls: int) -> float:
        return float(self._list.time_replay(-(-calls // self._copies))) * 1e-6 / self._copies

    def run(self) -> None:
        self._list.run([], [])


@dataclass(frozen=True)
class Rate:
    """A ceiling: operations of one launch, and its timer."""

    operations: float
    seconds: Timer


def rates(names: Sequence[str] = tuple(_RATE_LOOPS)) -> dict[str, Rate]:
    """By instruction; of mma and wgmma where the GPU has them."""
    known = {"dp4a": 61, "mma": 80, "wgmma": 90}
    return {name: _rate(name) for name in names if machine().capability >= known[name]}


def _rate(name: str) -> Rate:
    sms, loops = machine().multiprocessors, _RATE_LOOPS[name]
    blocks, threads = {"dp4a": (8 * sms, 256), "mma": (4 * sms, 256), "wgmma": (sms, 256)}[name]
    each = {"dp4a": threads * 16 * 8, "mma": threads // 32 * 8 * 2 * 16 * 8 * 32, "wgmma": 2 * 4 * 2 * 64 * 256 * 32}[
        name
    ]
    out = torch.empty(blocks * threads, dtype=torch.int32, device="cuda")
    listed = Listed((launch(f"int8_rate_{name}", (blocks, threads, loops, 0)),), (out.data_ptr(),), 1)
    torch.cuda.synchronize()
    return Rate(float(blocks) * loops * each, _keeping(listed, out))


def _keeping(listed: Listed, *owned: Any) -> Timer:
    """The timer, and what must live as long as it."""

    def seconds(calls: int) -> float:
        return listed(calls) if owned else 0.0

    return seconds


class Problem:
    """x and w of int8, square, requantised with a scale and a bias for each column; and what is right."""

    def __init__(self, n: int, device: CudaDevice) -> None:
        rng, self.n, self.device = np.random.default_rng(n), n, device
        self.x = torch.randint(-128, 128, (n, n), dtype=torch.int8, device="cuda")
        self.w = torch.randint(-127, 128, (n, n), dtype=torch.int8, device="cuda")
        scale = (rng.uniform(0.5, 2, n) / (200 * n**0.5)).astype(np.float32)
        bias = rng.integers(-9999, 9999, n).astype(np.int32)
        self._small = [device.upload(a) for a in (scale, bias, np.array(1, np.float32), np.array(3, np.int8))]
        self.out = torch.empty((n, n), dtype=torch.int8, device="cuda")
        self._column_major = self.w.t().contiguous().t()
        self.sums = torch._int_mm(self.x, self._column_major)
        real = (self.sums + torch.from_numpy(bias).cuda()).float() * torch.from_numpy(scale).cuda()
        self._right = (torch.round(real).clamp_(-131, 124) + 3).to(torch.int8)
        torch.cuda.synchronize()

    def int_mm(self) -> None:
        torch._int_mm(self.x, self._column_major, out=self.sums)

    def candidate(self, kernel: Kernel, settings: Mapping[str, Any], copies: int = 1) -> Listed:
        """The kernel bound to this problem."""
        n, op = self.n, Int8MatMul()
        square, one = TensorType("int8", (n, n)), TensorType("float32", ())
        by_column = TensorType("float32", (n,)), TensorType("int32", (n,))
        types = [square, square, by_column[0], None, None, by_column[1], None, None, None, one, TensorType("int8", ())]
        scale, bias, y_scale, y_point = self._small
        constants = [None, self.w, scale, None, None, bias, None, None, None, y_scale, y_point]
        assert kernel.bind is not None
        assert kernel.workspace is not None
        calls: Any = kernel.bind(op, types, constants, **settings)
        room = torch.empty(kernel.workspace(op, *types, **settings) + 64, dtype=torch.uint8, device="cuda")
        operands = (self.x.data_ptr(), self.w.data_ptr(), scale.address, 0, 0, bias.address, 0, 0, 0)
        results = (y_scale.address, y_point.address, self.out.data_ptr(), room.data_ptr())
        listed = Listed(calls, (*operands, *results), copies)
        listed.owned = (room, calls)  # type: ignore[attr-defined]  # they live as long as the list
        return listed

    def fault(self, listed: Listed) -> str:
        """Empty if it gives the right bits."""
        self.out.fill_(77)
        torch.cuda.synchronize()
        listed.run()
        torch.cuda.synchronize()
        wrong = int((self.out != self._right).sum())
        return f"{wrong} of {self.out.numel()} results are wrong" if wrong else ""


@dataclass(frozen=True)
class Best:
    """side: of the fastest setting, called `name`. tried: microseconds of each setting."""

    side: Timer
    name: str
    tried: dict[str, float]


def best(problem: Problem, variant: str) -> Best:
    """The fastest setting of a variant. Raises RuntimeError for one that gives wrong bits."""
    kernels = (*products.KERNELS, *library_products.KERNELS)
    kernel = next(k for k in kernels if k.op is Int8MatMul and k.variant == variant)
    taken: dict[str, tuple[float, dict[str, Any]]] = {}
    for settings in kernel.settings:
        name = f"{variant} {settings['tile']}/{settings['split']}" if settings else variant
        if settings.get("split", 1) > 1 and problem.n > 2048:
            continue  # there are tiles enough
        trial = problem.candidate(kernel, settings)
        if fault := problem.fault(trial):
            raise RuntimeError(f"{name} at {problem.n}: {fault}")
        trial(2)
        trial = problem.candidate(kernel, settings, _copies(_TRIAL_SECONDS, trial(2)))
        trial(1)
        taken[name] = min(trial(1) for _ in range(5)), dict(settings)
    name = min(taken, key=lambda one: taken[one][0])
    seconds, settings = taken[name]
    side = problem.candidate(kernel, settings, _copies(_LIST_SECONDS, seconds))
    return Best(side, name, {tried: round(found[0] * 1e6, 2) for tried, found in taken.items()})


def _copies(wanted: float, each: float) -> int:
    return max(1, min(50, math.ceil(wanted / each)))


def race_dp4a(problem: Problem, rounds: int) -> dict[str, Any]:
    """The share of the ceiling measured beside it."""
    ceiling = rates(("dp4a",))["dp4a"]
    found = best(problem, "dp4a")
    samples = take_turns({"ceiling": ceiling.seconds, "dp4a": found.side}, rounds)
    work = 2.0 * problem.n**3
    shares = [work / b / (ceiling.operations / a) for a, b in zip(samples["ceiling"], samples["dp4a"], strict=True)]
    share = float(np.median(shares))
    tops = work / medians(samples)["dp4a"] / 1e12
    return {
        "chosen": found.name,
        "tops": tops,
        "share": share,
        "bar": DP4A_BARS[problem.n],
        "seconds": medians(samples),
        "tried": found.tried,
    }


def race_float(problem: Problem, rounds: int) -> dict[str, Any]:
    """dp4a against cuBLAS in strict float32."""
    strict()
    a, b = (torch.randn(problem.n, problem.n, device="cuda") for _ in range(2))
    c = torch.empty_like(a)
    found = best(problem, "dp4a")
    samples = take_turns({"cuBLAS float32": timer(lambda: torch.mm(a, b, out=c)), "dp4a": found.side}, rounds)
    return {"chosen": found.name, "bar": FLOAT_BAR, "seconds": medians(samples), "ratios": ratios_to("dp4a", samples)}


def race_tensor(problem: Problem, rounds: int) -> dict[str, Any]:
    """mma.sync, wgmma and cuBLASLt with a requantising kernel behind it, against torch._int_mm, which has none."""
    variants = ["mma", *(["wgmma"] if machine().capability == 90 else []), *(["cublas"] if library_path() else [])]
    chosen = [best(problem, variant) for variant in variants]
    sides: dict[str, Timer] = {"torch._int_mm": timer(problem.int_mm)}
    sides.update({found.name: found.side for found in chosen})
    samples = take_turns(sides, rounds)
    ratios = {
        found.name: ratios_to(found.name, {one: samples[one] for one in ("torch._int_mm", found.name)})["torch._int_mm"]
        for found in chosen
    }
    bars = {"mma": MMA_BAR, "best": BEST_BAR}
    tried = {name: taken for found in chosen for name, taken in found.tried.items()}
    return {"seconds": medians(samples), "ratios": ratios, "bars": bars, "tried": tried}


RACES: dict[str, tuple[Callable[[Problem, int], dict[str, Any]], tuple[int, ...]]] = {
    "dp4a": (race_dp4a, (1024, 2048, 4096, 8192)),
    "float": (race_float, (4096,)),
    "tensor": (race_tensor, (2048, 4096, 8192)),
}


def main(options: Sequence[str] | None = None) -> int:
    """0; slowness is no failure, but wrong bits raise."""
    arguments = _parse(options)
    console, device = Console(width=None if sys.stdout.isatty() else 160), CudaDevice(0)
    figures: dict[str, Any] = circumstances()
    figures["device"], figures["rounds"] = torch.cuda.get_device_name(), arguments.rounds
    for part in arguments.parts:
        if part == "rates":
            figures[part] = {name: _tops(rate) for name, rate in rates().items()}
        else:
            race, sizes = RACES[part]
            chosen = [n for n in arguments.sizes or sizes if n in sizes]
            figures[part] = {str(n): race(Problem(n, device), arguments.rounds) for n in chosen}
        console.print(_table(part, figures[part]))
        if arguments.output:
            arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _tops(rate: Rate) -> float:
    rate.seconds(2)
    return rate.operations / float(np.median([rate.seconds(3) for _ in range(5)])) / 1e12


def _table(part: str, figures: Mapping[str, Any]) -> Table:
    table = Table("size" if part != "rates" else "instruction", "figures", title=part)
    for name, found in figures.items():
        table.add_row(name, f"{found:.1f} TOPS" if isinstance(found, float) else json.dumps(found, default=str))
    return table


def _parse(options: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sizes", nargs="+", type=int, help="instead of all")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--output", type=Path, help="JSON")
    return parser.parse_args(options)


if __name__ == "__main__":
    sys.exit(main())
