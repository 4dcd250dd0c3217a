"""How fast aicore's CUDA backend is beside PyTorch on seven networks, in strict float32, or with tf32 on both sides.

Run `python -m benchmarks.cuda_vs_torch [--networks mlp resnet50] [--batches 1,32] [--output FILE]`; options by --help.

Each network has a process of its own with a time limit, where all sides run in turn on inputs that lie on the GPU:
PyTorch eager, as a CUDA Graph (with cuDNN's own choice of convolutions, and with those that it measured), through
torch.compile, and aicore. Seconds are those of the device between two events around many calls in a row; of aicore
they are those of replays of its captured graph. A ratio is PyTorch's time over aicore's in one round, the figure is the
median of the rounds, to whichever variant of PyTorch is quickest. Outputs are compared with PyTorch in float64 on the
CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.gpu.machine import circumstances
from benchmarks.versus.statistics import geometric_mean

NETWORKS = ("mlp", "small_cnn", "resnet18", "resnet50", "mobilenet_v2", "lstm", "encoder")
AICORE, TUNED = "aicore", "aicore, tuned"
UNTUNED_BAR = 1.2
"""Of untuned over tuned time: how much the estimates may cost."""
ERROR_BOUNDS = {"float32": 1e-4, "tf32": 1e-2}
"""Relative error against float64: the bound of the tests of real networks; for tf32, whose factors have 13 binary
digits less, what is beyond PyTorch's own error."""
GEOMETRIC_MEAN_BARS = {"float32": {1: 2.0, 32: 1.1}, "tf32": {1: 1.2, 32: 0.9}}
RESNET_BAR, WORST_BAR = 3.0, 0.9
"""Of single networks, in float32."""


def main(options: Sequence[str] | None = None) -> int:
    """0, or 1 when aicore failed on a network or its outputs are wrong; slowness is no failure."""
    arguments = _parse(options)
    console = Console(width=None if sys.stdout.isatty() else 200)
    modes = [] if arguments.no_compile else ["reduce-overhead"]
    modes += ["max-autotune"] if arguments.max_autotune else []
    settings = {
        "rounds": arguments.rounds,
        "modes": modes,
        "tune": arguments.tune,
        "tuned": arguments.tuned,
        "profile": arguments.profile,
        "precision": arguments.precision,
    }
    figures: dict[str, Any] = {**circumstances(), "settings": settings, "rows": []}
    for name in arguments.networks:
        request = {"network": name, "batches": arguments.batches, **settings}
        gpu, rows = measure(request, arguments.limit)
        figures["gpu"] = gpu or figures.get("gpu")
        figures["rows"] += rows
        figures["summary"] = summary(figures["rows"], arguments.precision)
        if arguments.output:  # after each network, so that a later hang costs nothing
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.write_text(json.dumps(figures, indent=2) + "\n")
        show(console, rows)
    for line in figures["summary"]["text"]:
        console.print(line)
    found = faults(figures["rows"], ERROR_BOUNDS[arguments.precision])
    for fault in found:
        console.print(fault, style="red", markup=False)
    return 1 if found else 0


def _parse(options: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda_vs_torch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NAME", help="all")
    parser.add_argument("--batches", type=_numbers, default=(1, 32), help="separated by commas (1,32)")
    parser.add_argument("--rounds", type=_positive, default=15, help="of all sides in turn (15)")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile (reduce-overhead)")
    parser.add_argument("--max-autotune", action="store_true", help="also torch.compile(mode='max-autotune'): slow")
    parser.add_argument("--tune", choices=("off", "cached", "measure"), default="off", help="of aicore (off)")
    parser.add_argument(
        "--tuned", action="store_true", help="also aicore with every choice measured, and how long it took"
    )
    parser.add_argument("--precision", choices=tuple(ERROR_BOUNDS), default="float32", help="of both sides (float32)")
    parser.add_argument("--profile", action="store_true", help="show the ten slowest steps of aicore's programs")
    parser.add_argument("--limit", type=_positive, default=240, help="seconds for one network (240)")
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file, after each network")
    return parser.parse_args(options)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def measure(request: Mapping[str, Any], limit: float, module: str = "benchmarks.gpu.worker") -> tuple[str, list[Any]]:
    """The GPU's name and the rows of one network, one a batch; what went wrong is in the rows.

    module: what to run as the worker.
    """
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder, "rows"), Path(folder, "log")
        file.touch()
        command = [sys.executable, "-m", module, json.dumps(dict(request)), str(file)]
        with log.open("w") as output:
            # A session of its own: torch.compile starts workers, which must end with it.
            worker = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            end = _wait(worker, limit)
        last = "\n".join(log.read_text(errors="replace").strip().splitlines()[-5:])
        return rows_of(request, file.read_text().splitlines(), f"{end}: {last}" if end and last else end)


def _wait(worker: subprocess.Popen[bytes], limit: float) -> str:
    """How it ended; empty for a good end."""
    try:
        code = worker.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        return f"stopped after {limit:.0f} s"
    return f"its process ended with {code}" if code else ""


def rows_of(request: Mapping[str, Any], lines: Iterable[str], end: str) -> tuple[str, list[Any]]:
    """The last row of each batch among a worker's lines; `end` says why some are missing or incomplete."""
    gpu, rows = "", {}
    for line in lines:
        told = json.loads(line)
        gpu = told.get("gpu", gpu)
        if "batch" in told:
            rows[told["batch"]] = told
    found = []
    for batch in request["batches"]:
        row = rows.get(batch, {"network": request["network"], "batch": batch, "error": end or "it told nothing"})
        missing = [mode for mode in request["modes"] if mode not in row.get("seconds", {})]
        if "error" not in row and end:
            row["failures"] = {**dict.fromkeys(missing, end), **row["failures"]}
        found.append(row)
    return gpu, found


def summary(rows: Sequence[Mapping[str, Any]], precision: str = "float32") -> dict[str, Any]:
    """By batch the geometric mean of the ratios, the worst, how many ran; and as text, with the bars."""
    found: dict[str, Any] = {"batches": {}, "text": []}
    for batch in sorted({row["batch"] for row in rows}):
        alike = [row for row in rows if row["batch"] == batch]
        ran = {row["network"]: row["ratio"]["median"] for row in alike if row.get("ratio")}
        if not ran:
            found["text"].append(f"batch {batch}: no ratio of {len(alike)} networks")
            continue
        worst = min(ran, key=lambda name: ran[name])
        mean = geometric_mean(ran.values())
        missed = _missed(batch, ran, mean, precision)
        found["batches"][str(batch)] = {
            "geometric_mean": mean,
            "worst": ran[worst],
            "worst_network": worst,
            "ran": len(ran),
            "of": len(alike),
            "missed": missed,
        }
        found["text"].append(
            f"batch {batch}: geometric mean {mean:.2f} of PyTorch's best over {len(ran)} of {len(alike)} networks, "
            f"worst {ran[worst]:.2f} ({worst}); " + (f"missed: {'; '.join(missed)}" if missed else "all bars held")
        )
    return found


def _missed(batch: int, ratios: Mapping[str, float], mean: float, precision: str) -> list[str]:
    missed = []
    bar = GEOMETRIC_MEAN_BARS[precision].get(batch)
    if bar is not None and mean < bar:
        missed.append(f"geometric mean {mean:.2f} below {bar}")
    for name, ratio in ratios.items() if precision == "float32" else ():
        wanted = RESNET_BAR if batch == 1 and name.startswith("resnet") else WORST_BAR
        if ratio < wanted:
            missed.append(f"{name} {ratio:.2f} below {wanted}")
    return missed


def faults(rows: Iterable[Mapping[str, Any]], bound: float = ERROR_BOUNDS["float32"]) -> list[str]:
    """What makes the run a failure, slowness and PyTorch's own failures aside."""
    found = []
    for row in rows:
        where = f"{row['network']} b{row['batch']}"
        if "error" in row:
            found.append(f"{where}: {row['error']}")
            continue
        for side, told in ((AICORE, where), (TUNED, f"{where}, tuned")):
            if side in row["failures"]:
                found.append(f"{told}: {row['failures'][side]}")
            error = row.get("relative_error", {}).get(side, 0.0)
            if error > bound:
                found.append(f"{told}: outputs are {error:.1e} of their norm away from float64")
    return found


def show(console: Console, rows: Iterable[Mapping[str, Any]]) -> None:
    """A table of one network, and what failed or is slow."""
    table = Table("network", "side", header_style="bold")
    for title in ("device ms", "ratio", "95% interval", "call ms", "with NumPy ms", "error"):
        table.add_column(title, justify="right")
    remarks: list[str] = []
    for row in rows:
        where = f"{row['network']} b{row['batch']}"
        if "seconds" not in row:
            table.add_row(where, "failed")
            continue
        for side in sorted({*row["seconds"], *row.get("relative_error", ())}):
            table.add_row(where, f"{side} *" if side == row["best"] else side, *_cells(row, side))
        remarks.append(f"{where}: nodes {row.get('nodes')}, steps {row.get('steps')}, {row.get('placement')}")
        if "untuned_over_tuned" in row:
            remarks.append(f"{where}: {tuning_text(row)}")
        remarks += [f"{where}: {side}: {reason}" for side, reason in row["failures"].items() if side != AICORE]
        remarks += [
            f"    {step['seconds'] * 1e6:9.1f} us  {step['kernel']}  {step['node']} on {step['device']}"
            for step in row.get("slowest", ())
        ]
    console.print(table)
    for remark in remarks:
        console.print(remark, markup=False, highlight=False)


def tuning_text(row: Mapping[str, Any]) -> str:
    """What tuning took and gave."""
    gain, done = row["untuned_over_tuned"], row["tuning"]
    missed = f" (above {UNTUNED_BAR})" if gain["median"] > UNTUNED_BAR else ""
    return (
        f"untuned takes {gain['median']:.3f} ({gain['low']:.3f} .. {gain['high']:.3f}) times as long as tuned{missed}; "
        f"tuned in {done['seconds']:.1f} s: {done['problems']} problems, {done['timed']} candidates timed, "
        f"{done['changed']} choices changed, {done['refused']} refused"
    )


def _cells(row: Mapping[str, Any], side: str) -> list[str]:
    ratio = row["ratios"].get(side)

    def milliseconds(figure: str) -> str:
        value = row.get(figure, {}).get(side)
        return "" if value is None else f"{value * 1e3:.4f}"

    error = row.get("relative_error", {}).get(side)
    return [
        milliseconds("seconds"),
        f"{ratio['median']:.2f}" if ratio else "",
        f"{ratio['low']:.2f} .. {ratio['high']:.2f}" if ratio else "",
        milliseconds("latency_s"),
        milliseconds("numpy_s"),
        "" if error is None else f"{error:.1e}",
    ]


if __name__ == "__main__":
    sys.exit(main())
