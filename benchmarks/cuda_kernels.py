"""What single CUDA kernels reach: memory-bound ones beside a copy, GEMM and convolutions beside PyTorch, and launching.

Run `python -m benchmarks.cuda_kernels [--parts memory gemm conv launch] [--output FILE]`; options by --help.

Seconds are those of replays of a captured graph of the one op, between two events around many in a row. Both sides of a
ratio take turns; it is the median of the rounds. A share of the copy rate compares bytes that a perfect kernel would
read and write with those of a device copy of 256 MB. PyTorch computes in strict float32
unless --precision says tf32 for both sides, and is captured too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from aicore.ir import Builder, Graph
from benchmarks.gpu.aicore_side import CudaProgram, relative_error
from benchmarks.gpu.cases import (
    GEMM_SIZES,
    LARGEST_BYTES,
    MEMORY_BOUND,
    Case,
    ConvLayer,
    chain,
    moved_bytes,
    random_feeds,
    resnet50_layers,
)
from benchmarks.gpu.machine import circumstances
from benchmarks.gpu.turns import Timer, medians, ratios_to, take_turns
from benchmarks.versus.statistics import estimate, geometric_mean, paired_ratios

AICORE, COPY, BARE = "aicore", "copy", "bare"
SHARE_BAR, GEMM_BAR = 0.85, 0.92
OWN_KERNELS = ", own kernels"
OWN_PRODUCTS = {"float32": "tiled", "tf32": "tf32"}
"""Variants of MatMul that are aicore's own."""
CHAIN_LENGTH = 100
_HOST_CALLS = 300


def main(options: Sequence[str] | None = None) -> int:
    """0, or 1 when a case failed; slowness is no failure."""
    arguments = _parse(options)
    console = Console(width=None if sys.stdout.isatty() else 180)
    figures: dict[str, Any] = circumstances()
    figures["settings"] = {
        "rounds": arguments.rounds,
        "batches": arguments.batches,
        "tune": arguments.tune,
        "precision": arguments.precision,
    }
    for part in arguments.parts:
        figures[part] = PARTS[part](arguments)
        show(console, part, figures[part])
        if arguments.output:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if any("failure" in row for part in arguments.parts for row in figures[part]) else 0


def _parse(options: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda_kernels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=list(PARTS), help="all")
    parser.add_argument("--rounds", type=int, default=11, help="of all sides in turn (11)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32], help="of the convolutions (1 32)")
    parser.add_argument(
        "--precision", choices=("float32", "tf32"), default="float32", help="of GEMM and conv (float32)"
    )
    parser.add_argument("--tune", choices=("off", "cached", "measure"), default="off", help="of aicore (off)")
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file, after each part")
    return parser.parse_args(options)


def memory_rows(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Bytes a second of each memory-bound kernel, and its share of the copy rate."""
    return [_row(case.name, partial(_memory_row, case, arguments)) for case in MEMORY_BOUND]


def _memory_row(case: Case, arguments: argparse.Namespace) -> dict[str, Any]:
    graph, copy = case.graph(), copy_timer(LARGEST_BYTES)
    ours = _open(graph, arguments.tune)
    samples = take_turns({AICORE: ours.replay, COPY: copy}, arguments.rounds)
    return {"kernels": _kernels(ours), **shares(samples, moved_bytes(graph), 2 * LARGEST_BYTES)}


def shares(samples: Mapping[str, Sequence[float]], moved: int, copied: int) -> dict[str, Any]:
    """Rates in bytes a second, and the median share of the copy rate with its interval."""
    seconds = medians(samples)
    share = estimate(ratio * moved / copied for ratio in paired_ratios(samples[COPY], samples[AICORE]))
    rates = {AICORE: moved / seconds[AICORE], COPY: copied / seconds[COPY]}
    return {"seconds": seconds, "rates": rates, "share": {"median": share.median, "low": share.low, "high": share.high}}


@cache
def copy_timer(nbytes: int) -> Timer:
    """Times copies of so many bytes on the device: as many are read, and written."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    source, target = cupy.zeros(nbytes, np.uint8), cupy.zeros(nbytes, np.uint8)
    cupy.cuda.Device().synchronize()

    def copy() -> None:
        cupy.cuda.runtime.memcpyAsync(
            target.data.ptr, source.data.ptr, nbytes, cupy.cuda.runtime.memcpyDeviceToDevice, stream.ptr
        )

    return _stream_timer(stream, copy)


def _stream_timer(stream: Any, call: Callable[[], None]) -> Timer:
    import cupy

    def seconds(calls: int) -> float:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        for _ in range(calls):
            call()
        end.record(stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3 / calls

    return seconds


def gemm_rows(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Square float32 products, both operands given at run time, beside cuBLAS through PyTorch.

    aicore may take cuBLASLt itself; rows that say so are of its own kernels alone.
    """
    rows = [_row(f"GEMM {size}", partial(_gemm_row, size, arguments)) for size in GEMM_SIZES]
    own = {"MatMul": OWN_PRODUCTS[arguments.precision]}
    return rows + [_row(f"GEMM {size}{OWN_KERNELS}", partial(_gemm_row, size, arguments, own)) for size in GEMM_SIZES]


def _gemm_row(size: int, arguments: argparse.Namespace, kernels: Mapping[str, str] | None = None) -> dict[str, Any]:
    import torch

    from benchmarks.gpu import torch_sides

    torch_sides.use_precision(arguments.precision)
    op = Builder()
    a, b = (op.input(name, "float32", (size, size)) for name in ("a", "b"))
    graph = op.graph([a, b], {"y": op.MatMul(a, b)})
    ours = _open(graph, arguments.tune, arguments.precision, kernels)
    right = torch.from_numpy(ours.feeds["b"]).cuda()
    theirs = torch_sides.Graph(lambda x: x @ right, torch.from_numpy(ours.feeds["a"]).cuda())
    sides = {AICORE: ours.replay, "cuBLAS": torch_sides.timer(theirs.replay)}
    samples = take_turns(sides, arguments.rounds)
    wanted = ours.feeds["a"].astype(np.float64) @ ours.feeds["b"].astype(np.float64)
    error = relative_error(ours.result["y"], wanted)
    return {"kernels": _kernels(ours), "relative_error": error, **_compared(samples, 2 * size**3)}


def conv_rows(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The distinct convolutions of ResNet-50, beside cuDNN through PyTorch in either layout."""
    return [
        _row(f"{layer} b{batch}", partial(_conv_row, layer, batch, arguments), count=count)
        for batch in arguments.batches
        for layer, count in resnet50_layers().items()
    ]


def _conv_row(layer: ConvLayer, batch: int, arguments: argparse.Namespace) -> dict[str, Any]:
    import torch
    from torch.nn.functional import conv2d

    from benchmarks.gpu import torch_sides

    torch_sides.use_precision(arguments.precision)
    ours = _open(layer.graph(batch), arguments.tune, arguments.precision)
    image = torch.from_numpy(ours.feeds["x"]).permute(0, 3, 1, 2)
    weights = torch.from_numpy(layer.weights())
    sides: dict[str, Timer] = {AICORE: ours.replay}
    for name, layout in (("NCHW", torch.contiguous_format), ("NHWC", torch.channels_last)):
        w = weights.cuda().contiguous(memory_format=layout)
        x = image.cuda().contiguous(memory_format=layout)
        graph = torch_sides.Graph(partial(conv2d, weight=w, stride=layer.stride, padding=layer.pad), x, search=True)
        sides[f"cuDNN {name}"] = torch_sides.timer(graph.replay)
    samples = take_turns(sides, arguments.rounds)
    wanted = conv2d(image.cuda().double(), weights.cuda().double(), stride=layer.stride, padding=layer.pad)
    error = relative_error(ours.result["y"], wanted.permute(0, 2, 3, 1).cpu().numpy())
    return {"kernels": _kernels(ours), "relative_error": error, **_compared(samples, 2 * batch * layer.multiplications)}


def _compared(samples: Mapping[str, Sequence[float]], flops: int) -> dict[str, Any]:
    """Seconds by side, FLOP/s, and the ratio to the quickest of the others."""
    seconds = medians(samples)
    best = min((side for side in seconds if side != AICORE), key=lambda side: seconds[side])
    rates = {side: flops / taken for side, taken in seconds.items()}
    return {"seconds": seconds, "flops": rates, "best": best, "ratio": ratios_to(AICORE, samples)[best]}


def launch_rows(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs of many small kernels beside a bare graph of the same, and of trivial ones; the host's time of a call."""
    return [_row(f"{CHAIN_LENGTH} small nodes", lambda: _launch_row(arguments))]


def _launch_row(arguments: argparse.Namespace) -> dict[str, Any]:
    ours, single = _open(chain(CHAIN_LENGTH), arguments.tune), _open(chain(1), arguments.tune)
    sides = {
        AICORE: bound_timer(ours),
        "replay": ours.replay,
        BARE: ours.bare_replay,
        "one": single.replay,
        "trivial": trivial_timer(CHAIN_LENGTH),
    }
    samples = take_turns(sides, arguments.rounds)
    seconds, bare = medians(samples), estimate(paired_ratios(samples[AICORE], samples[BARE])).median
    alone = sum(row.seconds for row in ours.program.profile(ours.feeds).rows if row.device.startswith("cuda"))
    copying_call, numpy_call = host_seconds(single.call()), host_seconds(lambda: single.program.run(single.feeds))
    return {
        "kernels": f"{ours.steps} steps",
        "seconds": seconds,
        "us_per_kernel": seconds[AICORE] / ours.steps * 1e6,
        "us_per_trivial_kernel": seconds["trivial"] / CHAIN_LENGTH * 1e6,
        "replay_to_sum_of_launches_alone": seconds[AICORE] / alone,
        "runs_to_bare_graph": bare,
        "us_of_host_for_bound_call": host_seconds(*single.bound(None)) * 1e6,
        f"us_of_host_for_bound_call_of_{CHAIN_LENGTH}": host_seconds(*ours.bound(None)) * 1e6,
        "us_of_call_that_copies_and_waits": copying_call * 1e6,
        "us_of_call_on_numpy": numpy_call * 1e6,
    }


def trivial_timer(count: int) -> Timer:
    """Times replays of a captured graph of so many kernels that do next to nothing: what launching alone costs."""
    import cupy

    kernel = cupy.RawKernel('extern "C" __global__ void touch(float *x) { x[threadIdx.x] += 1.0f; }', "touch")
    x = cupy.zeros(64, np.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        kernel((1,), (64,), (x,))  # loads it: nothing may be loaded during a capture
        stream.synchronize()
        stream.begin_capture()
        for _ in range(count):
            kernel((1,), (64,), (x,))
        graph = stream.end_capture()
    return _stream_timer(stream, lambda: graph.launch(stream))


def bound_timer(ours: CudaProgram) -> Timer:
    """Times runs between arrays on the device, queued one after the other by Python."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    call, _ = ours.bound(stream)
    return _stream_timer(stream, call)


def host_seconds(call: Callable[[], Any], wait: Callable[[], Any] = lambda: None) -> float:
    """Median seconds of one call by the host's clock. wait: between calls, and not counted."""
    taken = []
    for _ in range(_HOST_CALLS):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
        wait()
    return float(np.median(taken))


def _open(graph: Graph, tune: str, precision: str = "float32", kernels: Mapping[str, str] | None = None) -> CudaProgram:
    """Raises RuntimeError when the GPU does not run all of the graph."""
    ours = CudaProgram(graph, random_feeds(graph), tune, precision, kernels)
    if ours.why_no_replay:
        raise RuntimeError(ours.why_no_replay)
    return ours


def _kernels(ours: CudaProgram) -> str:
    return ", ".join(dict.fromkeys(choice.kernel for choice in ours.program.explain().kernels))


def _row(name: str, make: Callable[[], dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A row of figures, or of the reason why there are none."""
    try:
        return {"case": name, **more, **make()}
    except Exception as error:  # noqa: BLE001  # any failure of a case is a row that says why
        return {"case": name, **more, "failure": f"{type(error).__name__}: {error}"[:2000]}


PARTS: dict[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {
    "memory": memory_rows,
    "gemm": gemm_rows,
    "conv": conv_rows,
    "launch": launch_rows,
}


def show(console: Console, part: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """A table of one part, and what failed."""
    rows = list(rows)
    table = Table("case", "kernels", "figures", title=part, title_justify="left", header_style="bold")
    for row in rows:
        if "failure" not in row:
            table.add_row(row["case"], row["kernels"], figures_text(row))
    console.print(table)
    ratios = [row["ratio"]["median"] for row in rows if "ratio" in row]
    if ratios:
        console.print(f"{part}: geometric mean of ratios {geometric_mean(ratios):.2f}, worst {min(ratios):.2f}")
    for row in rows:
        if "failure" in row:
            console.print(f"{row['case']}: {row['failure']}", style="red", markup=False)


def figures_text(row: Mapping[str, Any]) -> str:
    """The figures of a row in one line; a bar that is missed is told."""
    micros = ", ".join(f"{side} {seconds * 1e6:.1f} us" for side, seconds in row["seconds"].items())
    if "share" in row:
        share = row["share"]["median"]
        missed = f" (below {SHARE_BAR:.0%})" if share < SHARE_BAR else ""
        return f"{micros}; {row['rates'][AICORE] / 1e12:.2f} TB/s, {share:.1%} of the copy rate{missed}"
    if "ratio" in row:
        ratio = row["ratio"]["median"]
        is_barred = row["case"] == f"GEMM {max(GEMM_SIZES)}{OWN_KERNELS}"
        missed = f" (below {GEMM_BAR})" if is_barred and ratio < GEMM_BAR else ""
        tera = row["flops"][AICORE] / 1e12
        return f"{micros}; {tera:.1f} TFLOP/s, {ratio:.2f}x {row['best']}{missed}, error {row['relative_error']:.0e}"
    others = {name: value for name, value in row.items() if isinstance(value, float)}
    return "; ".join([micros, *(f"{name.replace('_', ' ')} {value:.2f}" for name, value in others.items())])


if __name__ == "__main__":
    sys.exit(main())
