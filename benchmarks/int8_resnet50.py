"""ResNet-50 in int8 on a GPU, end to end: beside our strict float32 and float16, and PyTorch's float16 as a CUDA Graph.

Run `python -m benchmarks.int8_resnet50 [--batch 32] [--tune measure] [--steps] [--output FILE]`; options by --help.

One process, all sides in turn on an input that lies on the GPU; a ratio is the median of the rounds. PyTorch computes
with channels last, cuDNN's own choice of convolutions and those that it measured. The int8 program must give the bits
of the int8 program on the CPU: of the features before the mean, which floating point adds up in another order there,
and as codes ahead of the last layer within one unit. `--steps` tells each step's time inside of a graph beside the time
that memory or tensor cores need at least.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import aicore
from aicore.ir import Builder, Graph, Value, as_tuple
from aicore.ops.pooling import GlobalAveragePool
from aicore_cuda_ge.device import CudaDevice
from aicore_int8_quant import quantize
from aicore_int8_quant.passes.fuse import EVERYWHERE
from benchmarks.gpu import torch_sides
from benchmarks.gpu.aicore_side import CudaProgram, relative_error
from benchmarks.gpu.machine import circumstances
from benchmarks.gpu.networks import build, export, inputs
from benchmarks.gpu.step_times import StepTime, step_times
from benchmarks.gpu.turns import Timer, medians, ratios_to, take_turns

Array = np.ndarray[Any, Any]

INT8, FLOAT32, FLOAT16 = "aicore int8", "aicore float32", "aicore float16"
GRAPH, SEARCHED = "PyTorch float16 graph", "PyTorch float16 graph, cuDNN searched"
BARS = {FLOAT32: 2.0, GRAPH: 1.0, SEARCHED: 1.0}
"""Times as fast as these sides int8 should be."""
TENSOR_OPERATIONS = 1.2e15
"""A second, of mma.sync on 8-bit integers on an H200: `python -m benchmarks.int8_gemm --parts rates` measures it."""
_CALIBRATION = (2, 4)
"""Batches, and images of each."""
_COMPARED = 2
"""Images whose bits are compared: the CPU takes long for one."""


def retyped(graph: Graph, dtype: str, batch: int | str) -> Graph:
    """The graph with float32 replaced by another type, for a batch of another size."""
    op = Builder()

    def constant(value: Value) -> Value:
        array = value.constant.array if value.constant is not None else np.empty(0)
        return op.constant(array.astype(dtype) if array.dtype == np.float32 else array, value.name)

    found: dict[Value, Value] = {
        v: op.input(v.name, dtype if v.dtype == "float32" else v.dtype, (batch, *(v.shape or ())[1:]))
        for v in graph.inputs
    }
    for node in graph.nodes:
        operands = [None if v is None else found[v] if v.constant is None else constant(v) for v in node.inputs]
        results = as_tuple(op.apply(node.op, *operands, names=[v.name for v in node.outputs]))
        found.update(zip(node.outputs, results, strict=True))
    return op.graph([found[v] for v in graph.inputs], {name: found[v] for name, v in graph.outputs})


def features(graph: Graph) -> Graph:
    """Up to what the mean of each channel is taken of: exact integers and products of two numbers until there."""
    pool = next(node for node in graph.nodes if isinstance(node.op, GlobalAveragePool))
    assert pool.inputs[0] is not None
    return replace(graph, outputs=(("features", pool.inputs[0]),))


class Comparison:
    """All sides of one batch."""

    def __init__(self, batch: int, tune: str) -> None:
        network, x = build("resnet50"), inputs("resnet50", batch)
        self.feeds = {"x": x.numpy()}
        self.figures: dict[str, Any] = {"batch": batch, "tune": tune, "failures": {}}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "network.onnx")
            export(network, x[:1], path)
            source = aicore.load(path)
        self.float32 = retyped(source, "float32", "n")
        started = time.perf_counter()
        images = inputs("resnet50", _CALIBRATION[0] * _CALIBRATION[1], seed=2).numpy()
        self.int8 = quantize(self.float32, np.split(images, _CALIBRATION[0])).graph
        self.figures["quantize_s"] = time.perf_counter() - started
        self.sides: dict[str, Timer] = {}
        self.programs: dict[str, CudaProgram] = {}
        self._attempt(INT8, lambda: self._aicore(self.int8, tune))
        self._attempt(FLOAT32, lambda: self._aicore(self.float32, "off"))
        self._attempt(FLOAT16, lambda: self._aicore(retyped(source, "float16", batch), "off"))
        half = network.half().cuda().to(memory_format=torch.channels_last)
        on_device = x.half().cuda().to(memory_format=torch.channels_last)
        self._attempt(GRAPH, lambda: self._torch(half, on_device, search=False))
        self._attempt(SEARCHED, lambda: self._torch(half, on_device, search=True))

    def _attempt(self, name: str, make: Callable[[], tuple[Any, Timer]]) -> None:
        try:
            owner, self.sides[name] = make()
        except Exception as error:  # noqa: BLE001  # any failure of a side is a row that says why
            self.figures["failures"][name] = f"{type(error).__name__}: {error}"[:2000]
            return
        if isinstance(owner, CudaProgram):
            self.programs[name] = owner
            self.figures.setdefault("nodes", {})[name] = owner.devices
            self.figures.setdefault("steps", {})[name] = owner.steps

    def _aicore(self, graph: Graph, tune: str) -> tuple[CudaProgram, Timer]:
        kinds = {value.name: value.dtype for value in graph.inputs}
        program = CudaProgram(graph, {"x": self.feeds["x"].astype(kinds["x"])}, tune)
        if program.why_no_replay:
            raise RuntimeError(program.why_no_replay)
        return program, program.replay

    def _torch(self, network: torch.nn.Module, x: torch.Tensor, search: bool) -> tuple[Any, Timer]:
        graph = torch_sides.Graph(network, x, search)
        graph.replay()
        torch.cuda.synchronize()
        return graph, torch_sides.timer(graph.replay)

    def race(self, rounds: int) -> None:
        """Seconds by side, and how many times as fast int8 is."""
        samples = take_turns(self.sides, rounds)
        self.figures |= {"rounds": rounds, "seconds": medians(samples), "bars": BARS}
        if INT8 in samples:
            self.figures["ratios"] = ratios_to(INT8, samples)

    def compare(self) -> None:
        """With the CPU's int8 program, all layers being int8 in both; and with float32."""
        few, cut = {"x": self.feeds["x"][:_COMPARED]}, features(self.int8)
        wanted = aicore.compile(cut, "cpu", choices=EVERYWHERE).run(few)["features"]
        found = self._on_gpu(cut)["features"][:_COMPARED]
        (scores,) = aicore.compile(self.int8, "cpu", choices=EVERYWHERE).run(few).values()
        (got,) = self._on_gpu(self.int8).values()
        (exact,) = self.programs[FLOAT32].result.values()
        self.figures["agreement"] = {
            "features": int(found.size),
            "features_that_differ": int((found.view(np.int32) != wanted.view(np.int32)).sum()),
            "scores": int(scores.size),
            "scores_that_differ": int((scores.view(np.int32) != got[:_COMPARED].view(np.int32)).sum()),
            "scores_relative_difference": relative_error(got[:_COMPARED], scores.astype(np.float64)),
            "relative_to_float32": relative_error(got, exact.astype(np.float64)),
            "same_class_as_float32": float((got.argmax(1) == exact.argmax(1)).mean()),
        }

    def _on_gpu(self, graph: Graph) -> dict[str, Array]:
        program = aicore.compile(graph, "cuda", fallback="quiet", choices=EVERYWHERE)
        return program.run(self.feeds)

    def steps(self, name: str = INT8) -> list[StepTime]:
        executable: Any = self.programs[name].program.explain().specialised.executables[0]
        return step_times(executable, CudaDevice(0), TENSOR_OPERATIONS)


def main(options: Sequence[str] | None = None) -> int:
    """0, or 1 when the bits are wrong; slowness is no failure."""
    arguments = _parse(options)
    console = Console(width=None if sys.stdout.isatty() else 200)
    torch_sides.strict()
    comparison = Comparison(arguments.batch, arguments.tune)
    figures = comparison.figures
    figures |= {**circumstances(), "gpu": torch.cuda.get_device_name()}
    comparison.race(arguments.rounds)
    console.print(_race_table(figures))
    if INT8 in comparison.programs and arguments.steps:
        rows = comparison.steps()
        figures["step_times"] = [asdict(row) for row in rows]
        console.print(_step_table(rows))
    if INT8 in comparison.programs and FLOAT32 in comparison.programs:
        comparison.compare()
        console.print(figures["agreement"])
    for side, reason in figures["failures"].items():
        console.print(f"{side}: {reason}", markup=False)
    if arguments.output:
        arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if figures.get("agreement", {}).get("features_that_differ", 1) else 0


def _race_table(figures: Mapping[str, Any]) -> Table:
    table = Table("side", "ms", "int8 is so many times as fast", "bar")
    for side, seconds in figures["seconds"].items():
        ratio = figures.get("ratios", {}).get(side)
        told = "" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f} .. {ratio['high']:.2f})"
        table.add_row(side, f"{seconds * 1e3:.4f}", told, str(BARS.get(side, "")))
    return table


def _step_table(rows: Sequence[StepTime]) -> Table:
    table = Table("us", "floor", "op", "kernel", "operands and results")
    for row in rows:
        table.add_row(f"{row.seconds * 1e6:.1f}", f"{row.floor * 1e6:.1f}", row.op, row.kernel, row.shape)
    table.add_row(f"{sum(r.seconds for r in rows) * 1e6:.1f}", f"{sum(r.floor for r in rows) * 1e6:.1f}", "all", "", "")
    return table


def _parse(options: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tune", choices=("off", "cached", "measure"), default="off", help="of int8 (off)")
    parser.add_argument("--steps", action="store_true", help="show each step of the int8 program")
    parser.add_argument("--output", type=Path, help="JSON")
    return parser.parse_args(options)


if __name__ == "__main__":
    sys.exit(main())
