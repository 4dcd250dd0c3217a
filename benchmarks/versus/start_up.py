"""What a network costs a process that starts from nothing: seconds until the first result, and memory at its peak.

`python -m benchmarks.versus.start_up SIDE time|memory MODEL FEEDS THREADS TUNE` measures its own process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmarks.versus import sides
from benchmarks.versus.sides import Settings, read_feeds

if TYPE_CHECKING:
    from aicore.config import TunePolicy

SIDES = ("aicore", "onnxruntime")
_TIMEOUT_SECONDS = 900


def measure_start_up(
    model: Path, feeds: Path, settings: Settings, samples: int, progress: Callable[[int, int], None]
) -> dict[str, dict[str, float]]:
    """By side: medians of seconds over fresh processes that take turns, and bytes of one more.

    As in an installation that was used before, both sides have their bytecode and lie in the system's file cache: a
    process of each, which is not counted, sees to that. aicore has its CPU backend alone, as onnxruntime has.
    NumPy, which reads the inputs, is imported before the clock starts on both sides.

    imports_s: importing the package. load_s: from the file to a program, imports made on first use included.
    first_run_s: the first inference. warm_s: both in a process that ran another model before, so that nothing is left
    to import. peak_bytes: the most memory above what that process held before it read the file.
    """
    seconds: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    total = len(SIDES) * (samples + 1)
    for side in SIDES:
        _child(side, "time", model, feeds, settings)
    for number in range(samples):
        for i, side in enumerate(SIDES):
            seconds[side].append(_child(side, "time", model, feeds, settings))
            progress(number * len(SIDES) + i + 1, total)
    found = {
        side: {name: statistics.median(one[name] for one in taken) for name in taken[0]}
        for side, taken in seconds.items()
    }
    for i, side in enumerate(SIDES):
        found[side].update(_child(side, "memory", model, feeds, settings))
        progress(total - len(SIDES) + i + 1, total)
    return found


def _child(side: str, what: str, model: Path, feeds: Path, settings: Settings) -> dict[str, float]:
    tune = "off" if settings.tune == "off" else "cached"  # whoever measures fills the store; later starts read it
    command = [sys.executable, "-m", __name__, side, what, str(model), str(feeds), str(settings.threads), tune]
    # An installed package has its bytecode; without it each process would compile every source that has changed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["AICORE_PLUGINS"] = "cpu_numpy"
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_SECONDS, env=environment
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main(side: str, what: str, model: str, feeds: str, threads: str, tune: str) -> None:
    arrays = read_feeds(Path(feeds))
    settings = Settings(int(threads), cast("TunePolicy", tune))  # aicore is not imported yet, its time counts
    make = _time if what == "time" else _memory
    print(json.dumps(make(side, Path(model), arrays, settings)))


def _time(side: str, model: Path, feeds: Any, settings: Settings) -> dict[str, float]:
    started = time.perf_counter()
    __import__(side)
    imported = time.perf_counter()
    load_s, first_run_s = _load_and_run(side, model, feeds, settings)
    return {"imports_s": imported - started, "load_s": load_s, "first_run_s": first_run_s}


def _memory(side: str, model: Path, feeds: Any, settings: Settings) -> dict[str, float]:
    from onnx import parser

    small = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }')
    path = model.with_name(f"start_up_{side}.onnx")
    path.write_bytes(small.SerializeToString())
    _load_and_run(side, path, {"x": feeds[next(iter(feeds))].ravel()[:2].astype("float32")}, settings)
    before = _status_bytes("VmRSS")
    seconds = sum(_load_and_run(side, model, feeds, settings))
    return {"warm_s": seconds, "peak_bytes": max(_status_bytes("VmHWM") - before, 1)}


def _load_and_run(side: str, model: Path, feeds: Any, settings: Settings) -> tuple[float, float]:
    started = time.perf_counter()
    if side == "aicore":
        run = sides.aicore_run(sides.open_aicore(model, settings), feeds)
    else:
        run = sides.onnxruntime_run(sides.open_onnxruntime(model, settings), feeds)
    loaded = time.perf_counter()
    run()
    return loaded - started, time.perf_counter() - loaded


def _status_bytes(field: str) -> int:
    """A size of this process as Linux tells it. `ru_maxrss` would not do: a child starts with its parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}; peak memory is measured on Linux only")


if __name__ == "__main__":
    main(*sys.argv[1:])
