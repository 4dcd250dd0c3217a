"""What finding plugins takes beside one call of `entry_points()`, with 20 plugins among 400 other distributions.

Run `python -m benchmarks.discovery [--output benchmarks/results/discovery.json]`. Every sample is two fresh processes,
one for each, as the scan is made once in a process; what the plugins say about themselves is remembered, as it is from
the second process on. CPU time is shown beside the clock's, which other work on the machine lengthens. The bar is what
finding may take more than the call of importlib-metadata alone, whose import does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import aicore

PLUGINS, OTHERS = 20, 400
BAR_MS = 20.0

_SAMPLE = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import aicore, aicore.config

started = time.perf_counter(), time.process_time()
from aicore.plugins.discovery import discover
config = aicore.config.Config(cache_dir=Path(sys.argv[1], "cache"))
found = discover(config)
total = time.perf_counter() - started[0], time.process_time() - started[1]
discover(config)
ours = [one for one in found if one.record.name.startswith("bench_plugin")]
print(json.dumps({"total": total, "states": sorted({str(one.record.state) for one in ours})}))
"""
_SCAN = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import importlib_metadata

started = time.perf_counter(), time.process_time()
importlib_metadata.entry_points()
print(json.dumps({"scan": (time.perf_counter() - started[0], time.process_time() - started[1])}))
"""
_LIGHT = """
import sys
import aicore
loaded = [name for name in sys.modules if name == "importlib_metadata" or name.startswith("aicore.plugins")]
sys.exit(f"import aicore loaded {loaded}" if loaded else 0)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file")
    parser.add_argument("--samples", type=int, default=15, help="fresh processes to measure (15)")
    arguments = parser.parse_args()
    text = json.dumps(measure(arguments.samples), indent=2)
    print(text)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")


def measure(samples: int = 15) -> dict[str, Any]:
    """Medians over fresh processes: the call, and discovery, its imports included."""
    subprocess.run([sys.executable, "-c", _LIGHT], check=True)
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        return _measure(Path(folder), samples)


def _measure(folder: Path, samples: int) -> dict[str, Any]:
    _sample(folder)  # byte code and verdicts on the info modules are there from now on
    taken = [_sample(folder) for _ in range(samples)]
    if any(sample["states"] != ["compatible"] for sample in taken):
        raise SystemExit(f"the plugins are not found as they should be: {taken[0]['states']}")
    clock, cpu = ([sample["total"][i] - sample["scan"][i] for sample in taken] for i in (0, 1))
    return {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, aicore {aicore.__version__}",
        "distributions": {"plugins": PLUGINS, "others": OTHERS},
        "entry_points_ms": _median_ms([sample["scan"][0] for sample in taken]),
        "discovery_ms": _median_ms([sample["total"][0] for sample in taken]),
        "added_ms": _median_ms(clock),
        "added_ms_lowest": round(min(clock) * 1e3, 2),
        "added_cpu_ms": _median_ms(cpu),
        "bar_ms": BAR_MS,
    }


def install(folder: Path) -> None:
    """Fake distributions: plugins with info modules, and others with command line scripts and long descriptions."""
    for number in range(PLUGINS):
        _install_plugin(folder, f"bench_plugin_{number}")
    for number in range(OTHERS):
        _write_dist_info(
            folder, f"other_{number}", "[console_scripts]\ntool = other.main:run\n", "Requires-Dist: numpy"
        )


def _install_plugin(folder: Path, name: str) -> None:
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('discovery imports no plugin')\n")
    (package / "plugin.py").write_text("")
    info = "from aicore.plugins.info import PluginInfo\nINFO = PluginInfo('device', devices=('bench',))\n"
    (package / "info.py").write_text(info)
    entries = f"[aicore.plugins]\n{name} = {name}.plugin\n[aicore.plugin_info]\n{name} = {name}.info:INFO\n"
    _write_dist_info(folder, name, entries, "Requires-Dist: aicore>=0.1\nRequires-Dist: numpy>=1.26")


def _write_dist_info(folder: Path, name: str, entry_points: str, requires: str) -> None:
    dist_info = folder / f"{name}-1.0.dist-info"
    dist_info.mkdir()
    description = "A line of a long description.\n" * 200
    metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n{requires}\n\n{description}"
    (dist_info / "METADATA").write_text(metadata)
    (dist_info / "entry_points.txt").write_text(entry_points)


def _sample(folder: Path) -> dict[str, Any]:
    return _run(_SCAN, folder) | _run(_SAMPLE, folder)


def _run(code: str, folder: Path) -> dict[str, Any]:
    """A fresh process that finds byte code, as pip leaves it; here it goes to a folder of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "byte_code")
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _median_ms(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1e3, 2)


if __name__ == "__main__":
    main()
