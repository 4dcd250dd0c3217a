"""How fast aicore's CPU backend is beside onnxruntime: speed, start-up, peak memory, and the layers that lose.

Run `python -m benchmarks.cpu_vs_onnxruntime [--networks magika ppocr_det] [--output FILE]`; options by `--help`.

Each network has a process of its own, where both sides run in turn on the same inputs with the same number of threads;
their outputs are compared there. A ratio is onnxruntime's time over aicore's in one round, the figure is the median of
the rounds, with an interval.
Workers of onnxruntime, and of BLAS, spin for a while after their last work and would take cores from the other side,
so before each sample the process waits until it burns no CPU time. On a quiet machine onnxruntime is at its best with
spinning, its default; on a busy one its spinning workers are in each other's way. Both forms take turns with aicore,
both ratios are shown, and the one that counts is to whichever is faster on the network.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.versus.networks import NETWORKS
from benchmarks.versus.sides import Settings
from benchmarks.versus.statistics import geometric_mean
from benchmarks.versus.tables import show, summary_text
from benchmarks.versus.worker import Request

DIFFERENCE_BOUND = 1e-4
"""Norm of the difference of outputs over their norm, the bound of the tests of real networks."""
EVALUATOR_BAR = 50
"""How many times as fast as the evaluator of the onnx package aicore is at least."""


def main(options: Sequence[str] | None = None) -> int:
    """0, or 1 when a network failed, its outputs differ, or --sanity found too little."""
    arguments = _parse(options)
    settings = Settings(arguments.threads, arguments.tune, arguments.budget)
    console = Console(stderr=True)
    networks = []
    with _progress(console) as progress:
        whole = progress.add_task("networks", total=len(arguments.networks))
        for name in arguments.networks:
            skip = arguments.skip
            request = Request(
                name,
                settings,
                rounds=arguments.rounds,
                layers=0 if "layers" in skip else arguments.layers,
                start_ups=0 if "start-up" in skip else 3,
                sanity=name == arguments.sanity,
            )
            networks.append(with_ratios(_measure(request, progress)))
            progress.advance(whole)
    figures = {**_circumstances(settings), **summary(networks), "networks": networks}
    text = json.dumps(figures, indent=2)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")
    if arguments.json:
        print(text)
    else:
        show(Console(width=None if sys.stdout.isatty() else 180), figures)
    for fault in faults(networks):
        console.print(f"[red]{fault}[/red]")
    return 1 if faults(networks) else 0


def _parse(options: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cpu_vs_onnxruntime",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NAME", help="all")
    parser.add_argument("--rounds", type=_positive, default=7, help="at least; fast networks get more (7)")
    parser.add_argument("--threads", type=_positive, default=2, help="of each side (2)")
    parser.add_argument("--tune", choices=("off", "cached", "measure"), default="off", help="of aicore (off)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="for tuning one network")
    parser.add_argument("--layers", type=_positive, default=12, help="of the heaviest of each network (12)")
    parser.add_argument("--skip", nargs="+", choices=("layers", "start-up"), default=(), help="leave these out")
    sanity = "also time the evaluator of the onnx package on a light network (light_squeezenet)"
    parser.add_argument("--sanity", nargs="?", const="light_squeezenet", choices=NETWORKS, metavar="NAME", help=sanity)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file")
    arguments = parser.parse_args(options)
    if arguments.sanity and arguments.sanity not in arguments.networks:
        parser.error(f"--sanity wants {arguments.sanity} among --networks")
    if arguments.budget is not None and arguments.tune != "measure":
        parser.error("--budget is for --tune measure")
    return arguments


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def _measure(request: Request, progress: Progress) -> dict[str, Any]:
    """The figures of one network, or its name and what went wrong."""
    task = progress.add_task(request.network, total=None)

    def say(stage: str, done: int, total: int) -> None:
        progress.update(task, description=f"{request.network}: {stage}", completed=done, total=total)

    command = [sys.executable, "-m", "benchmarks.versus.worker", request.as_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment(request.settings)) as worker:
        assert worker.stdout is not None  # a pipe was asked for
        result = read_messages(worker.stdout, say)
    progress.remove_task(task)
    if result is None:
        return {"network": request.network, "error": f"its process ended with {worker.returncode}, see above"}
    return result


def read_messages(lines: Any, say: Callable[[str, int, int], None]) -> dict[str, Any] | None:
    """The result among a worker's lines, None without one; stages are passed on."""
    result = None
    for line in lines:
        message = json.loads(line)
        if "result" in message:
            result = message["result"]
        else:
            say(message["stage"], message["done"], message["total"])
    return result


def _environment(settings: Settings) -> dict[str, str]:
    """No BLAS may use more threads than asked for, whatever aicore does about it."""
    threads = str(settings.threads)
    return {**os.environ, "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}


def with_ratios(one: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a network with start-up and memory of aicore over those of onnxruntime."""
    if "start_up" not in one:
        return dict(one)
    ours, theirs = one["start_up"]["aicore"], one["start_up"]["onnxruntime"]
    loads = [side["load_s"] + side["first_run_s"] for side in (ours, theirs)]
    ratios = {
        "load_and_first_run": loads[0] / loads[1],
        "with_import": (loads[0] + ours["imports_s"]) / (loads[1] + theirs["imports_s"]),
        "warm": ours["warm_s"] / theirs["warm_s"],
        "peak": ours["peak_bytes"] / theirs["peak_bytes"],
    }
    return {**one, "start_up": {**one["start_up"], "ratios": ratios}}


def summary(networks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric means of the networks' medians, and the worst; nothing when no network ran."""
    ran = [one for one in networks if "error" not in one]
    if not ran:
        return {}
    worst = min(ran, key=lambda one: float(one["ratio"]["median"]))
    found: dict[str, Any] = {
        "geometric_mean": geometric_mean(one["ratio"]["median"] for one in ran),
        "geometric_mean_spinning": geometric_mean(one["ratio_spinning"]["median"] for one in ran),
        "geometric_mean_without_spinning": geometric_mean(one["ratio_without_spinning"]["median"] for one in ran),
        "worst": worst["ratio"]["median"],
        "worst_network": worst["network"],
    }
    return {"summary": {**found, "text": summary_text(found)}}


def faults(networks: Sequence[Mapping[str, Any]]) -> list[str]:
    """What makes the run a failure, slowness aside."""
    found = []
    for one in networks:
        if "error" in one:
            found.append(f"{one['network']}: {one['error']}")
        elif one["difference"]["relative"] > DIFFERENCE_BOUND:
            found.append(f"{one['network']}: outputs differ by {one['difference']['relative']:.1e} of their norm")
        if "evaluator" in one and one["evaluator"]["ratio"] < EVALUATOR_BAR:
            found.append(f"{one['network']}: only {one['evaluator']['ratio']:.0f} times as fast as the onnx evaluator")
    return found


def _circumstances(settings: Settings) -> dict[str, Any]:
    packages = ("aicore", "aicore-cpu-numpy", "numpy", "onnx", "onnxruntime")
    return {
        "date": date.today().isoformat(),
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count()},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "settings": {"threads": settings.threads, "tune": settings.tune, "budget": settings.budget},
    }


def cpu_model(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as Linux tells it, or its architecture elsewhere."""
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


if __name__ == "__main__":
    sys.exit(main())
