"""Runs cases in child processes, and starts another child behind a case that broke one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WALL_SECONDS = 600
"""For one child: far more than its cases may take of the processor."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case: `ran`, `refused`, `escaped`, `late` or `crashed`. grown: bytes of memory it took."""

    label: str
    outcome: str
    detail: str = ""
    seconds: float = 0.0
    grown: int = 0

    @property
    def is_fault(self) -> bool:
        return self.outcome not in ("ran", "refused")


def run_cases(function: str, first: int, last: int, *arguments: str) -> list[Result]:
    """Results of the cases that `function(first, last, *arguments)` gives, by their numbers from `first` to `last`."""
    results: list[Result] = []
    while first + len(results) < last:
        results += _run_child(function, first + len(results), last, arguments)
    return results


def _run_child(function: str, first: int, last: int, arguments: tuple[str, ...]) -> list[Result]:
    path = os.pathsep.join((str(ROOT), *sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.child", function, str(first), str(last), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=WALL_SECONDS,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    results = [
        Result(row["end"], row["outcome"], row["detail"], row["seconds"], row["grown"]) for row in rows if "end" in row
    ]
    if done.returncode:
        assert rows, done.stderr
        results.append(
            Result(rows[-1].get("start", "?"), "crashed", f"status {done.returncode}: {done.stderr[-2000:]}")
        )
    return results
