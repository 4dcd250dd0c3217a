"""How fast a training step of aicore is beside PyTorch's: forward pass, loss, backward pass, Adam; strict float32.

Run `python -m benchmarks.cuda_training [--target cpu] [--networks mlp resnet18] [--output FILE]`; options by --help.

Each network has a process of its own with a time limit, where all sides run in turn on one batch that lies on the
device: PyTorch eager, as a CUDA Graph with a fused Adam (with cuDNN's own choice of convolutions, and with those that
it measured), through torch.compile, compiled and captured as a CUDA Graph, and aicore, whose step is one such graph.
Seconds are those of the device between two events around many steps in a row. A ratio is PyTorch's time over aicore's
in one round, the figure is the median of the rounds, to whichever variant of PyTorch is quickest. All sides begin with
the same weights, and their losses are compared over ten steps. aicore's step on resnet18 keeps its state once
(`keep_previous=False`, as in the row), as PyTorch does, in time and memory; elsewhere a step can be undone. On the CPU,
PyTorch eager runs beside aicore, with as many threads.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cuda_vs_torch import measure
from benchmarks.gpu.machine import circumstances

AICORE, EAGER = "aicore", "eager"
BATCHES = {"mlp": 64, "small_cnn": 64, "lstm": 64, "resnet18": 32}
CPU_NETWORKS = ("mlp", "small_cnn", "lstm")
MODES = ("reduce-overhead", "compiled, graph")
EAGER_MS = {"mlp": 1.44, "small_cnn": 2.72, "lstm": 4.89}
"""As it was measured on an H200 when the bars were set, with batches of 64."""
EAGER_BAR, BEST_BAR, RESNET_BAR = 5.0, 1.2, 1.0
CPU_BARS = {"mlp": 0.7, "small_cnn": 0.7}
MEMORY_BAR = 1.1
"""Of PyTorch's peak, for resnet18."""
LOSS_BOUND = 1e-3
"""Relative difference of losses over ten steps from the same weights: roundings grow from step to step."""


def main(options: Sequence[str] | None = None) -> int:
    """0, or 1 when aicore failed on a network or its losses are others; slowness is no failure."""
    arguments = _parse(options)
    on_cpu = arguments.target == "cpu"
    console = Console(width=None if sys.stdout.isatty() else 200)
    settings = {
        "target": arguments.target,
        "rounds": arguments.rounds,
        "threads": arguments.threads,
        "tune": arguments.tune,
        "modes": [] if on_cpu or arguments.no_compile else list(MODES),
        "profile": arguments.profile,
    }
    figures: dict[str, Any] = {**circumstances(), "settings": settings, "rows": []}
    for name in arguments.networks or (CPU_NETWORKS if on_cpu else BATCHES):
        request = {"network": name, "batches": [BATCHES[name]], **settings}
        gpu, rows = measure(request, arguments.limit, "benchmarks.training.worker")
        figures["gpu"] = gpu or figures.get("gpu")
        figures["rows"] += [{**row, "missed": missed(row, on_cpu)} for row in rows]
        if arguments.output:  # after each network, so that a later hang costs nothing
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.write_text(json.dumps(figures, indent=2) + "\n")
        show(console, figures["rows"][-len(rows) :])
    found = [fault for row in figures["rows"] for fault in faults(row)]
    for fault in found:
        console.print(fault, style="red", markup=False)
    return 1 if found else 0


def _parse(options: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda_training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", choices=("cuda", "cpu"), default="cuda", help="of aicore (cuda)")
    parser.add_argument("--networks", nargs="+", choices=tuple(BATCHES), metavar="NAME", help="all")
    parser.add_argument("--rounds", type=int, default=15, help="of all sides in turn (15)")
    parser.add_argument("--threads", type=int, default=2, help="of both sides on the CPU (2)")
    parser.add_argument("--tune", choices=("off", "cached", "measure"), default="off", help="of aicore (off)")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument("--profile", type=int, default=0, metavar="COUNT", help="show so many of the slowest steps (0)")
    parser.add_argument("--limit", type=int, default=240, help="seconds for one network (240)")
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file, after each network")
    return parser.parse_args(options)


def missed(row: Mapping[str, Any], on_cpu: bool = False) -> list[str]:
    """The bars that a row misses; those for which it has no figure aside."""
    name, found = row["network"], []
    ratio, ratios = row.get("ratio"), row.get("ratios", {})
    if on_cpu:
        bar = CPU_BARS.get(name, 0.0)
        return [f"{ratio['median']:.2f} of PyTorch's speed, wants {bar}"] if ratio and ratio["median"] < bar else []
    best = RESNET_BAR if name == "resnet18" else BEST_BAR
    if ratio and ratio["median"] < best:
        found.append(f"{ratio['median']:.2f} times PyTorch's best, wants {best}")
    if name in EAGER_MS and EAGER in ratios and ratios[EAGER]["median"] < EAGER_BAR:
        found.append(f"{ratios[EAGER]['median']:.2f} times eager, wants {EAGER_BAR}")
    share = memory_share(row)
    if name == "resnet18" and share is not None and share > MEMORY_BAR:
        found.append(f"{share:.2f} of PyTorch's memory, wants at most {MEMORY_BAR}")
    return found


def memory_share(row: Mapping[str, Any]) -> float | None:
    """The bytes of a step over those of PyTorch's eager one; None without figures."""
    nbytes = row.get("nbytes", {})
    if not {AICORE, EAGER} <= set(nbytes):
        return None
    return float(sum(nbytes[AICORE][part] for part in ("state", "feeds", "graphs")) / nbytes[EAGER])


def faults(row: Mapping[str, Any]) -> list[str]:
    """What makes the run a failure, slowness and PyTorch's own failures aside."""
    where = f"{row['network']} b{row['batch']}"
    if "error" in row:
        return [f"{where}: {row['error']}"]
    found = [f"{where}: {row['failures'][AICORE]}"] if AICORE in row["failures"] else []
    difference = row.get("loss_difference", 0.0)
    if not difference <= LOSS_BOUND:
        found.append(f"{where}: losses are {difference:.1e} away from PyTorch's")
    return found


def show(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table of one network, and what it misses."""
    table = Table("network", "side", header_style="bold")
    for title in ("step ms", "ratio", "95% interval", "with the host ms"):
        table.add_column(title, justify="right")
    for row in rows:
        where = f"{row['network']} b{row['batch']}"
        for side, seconds in row.get("seconds", {}).items():
            ratio = row["ratios"].get(side)
            host = row.get("step_with_host_s", {}).get(side)
            table.add_row(
                where,
                f"{side} *" if side == row["best"] else side,
                f"{seconds * 1e3:.4f}",
                f"{ratio['median']:.2f}" if ratio else "",
                f"{ratio['low']:.2f} .. {ratio['high']:.2f}" if ratio else "",
                "" if host is None else f"{host * 1e3:.4f}",
            )
    console.print(table)
    for row in rows:
        for remark in remarks(row):
            console.print(remark, markup=False, highlight=False)


def remarks(row: Mapping[str, Any]) -> list[str]:
    """What stands under the table."""
    where = f"{row['network']} b{row['batch']}"
    found = [f"{where}: missed: {bar}" for bar in row["missed"]]
    found.append(f"{where}: {row.get('steps')} steps, {row.get('placement')}, bytes {row.get('nbytes')}")
    if not row.get("keep_previous", True):
        found.append(f"{where}: aicore's state is kept once")
    share = memory_share(row)
    if share is not None:
        found.append(f"{where}: {share:.2f} of PyTorch's memory")
    if "loss_difference" in row:
        found.append(f"{where}: losses differ by {row['loss_difference']:.1e}")
    found += [f"{where}: {side}: {reason}" for side, reason in row.get("failures", {}).items()]
    found += [
        f"    {step['seconds'] * 1e6:9.1f} us  {step['kernel']}  {step['node']} on {step['device']}"
        for step in row.get("slowest", ())
    ]
    return found


if __name__ == "__main__":
    sys.exit(main())
