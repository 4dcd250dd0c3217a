"""`python -m benchmarks [--output FILE]` runs every benchmark: one JSON document on stdout, tables on stderr."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from benchmarks import core, cpu_vs_onnxruntime, discovery, int8_cpu


def main() -> int:
    """0, or 1 when the comparison with onnxruntime found a fault."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"core": core.measure(), "discovery": discovery.measure()}
    figures["int8_cpu"] = int8_cpu.measure(rounds=3)
    figures["cpu_vs_onnxruntime"], status = _beside_onnxruntime()
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")
    return status


def _beside_onnxruntime() -> tuple[Any, int]:
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        output = Path(folder, "figures.json")
        status = cpu_vs_onnxruntime.main(["--output", str(output)])
        return json.loads(output.read_text()), status


if __name__ == "__main__":
    sys.exit(main())
