"""Run the suite of the onnx package against aicore and count: `python -m tools.onnx_suite [--json FILE] [PATTERN]`.

A test passes when its numbers agree and the launcher proves that it ran every node of the graph. Where the passes leave
nothing to run (of an Identity, say), the graph must pass as the file has it, too. One whose numbers agree without such
proof (a graph of constants alone) is unproven and counts as nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aicore.onnx_backend
from aicore.errors import UnsupportedError

OUTCOMES = ("passed", "unproven", "unsupported", "failed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test. detail: the error's type and first line, empty for one that passed."""

    category: str
    name: str
    outcome: str
    detail: str = ""
    seconds: float = 0.0


class Watched:
    """A backend as the suite sees it, which keeps the proof of the latest run.

    module: has `prepare` and `supports_device`. Only tests for the CPU are run.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._rep: Any = None
        self._options: dict[str, Any] = {}

    @property
    def proven(self) -> bool:
        """Whether the latest model ran, and its backend can prove it."""
        proof = getattr(self._rep, "proof", None)
        return proof is not None and proof.complete

    def start(self, **options: Any) -> None:
        """Forget the latest run; `prepare` gets the options from now on."""
        self._rep, self._options = None, options

    def supports_device(self, device: str) -> bool:
        return device == "CPU" and bool(self._module.supports_device(device))

    def prepare(self, model: Any, device: str, **kwargs: Any) -> Any:
        self._rep = self._module.prepare(model, device, **kwargs, **self._options)
        return self._rep


def run_suite(module: Any = aicore.onnx_backend, pattern: str = "") -> list[Outcome]:
    """The outcome of every CPU test whose name `pattern` (a regular expression) is found in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own data generators are full of them
        from onnx.backend.test import BackendTest  # generates the data of all tests: takes seconds

        watched = Watched(module)
        backend: Any = watched
        cases = BackendTest(backend, __name__).test_cases
        return [
            _run(watched, category, name, case(name))
            for category, case in sorted(cases.items())
            for name in sorted(vars(case))
            if name.startswith("test_") and name.endswith("_cpu") and re.search(pattern, name)
        ]


def summary(outcomes: list[Outcome]) -> dict[str, dict[str, int]]:
    """How many tests of each category, and of all, had each outcome."""
    counts = {"all": Counter(outcome.outcome for outcome in outcomes)}
    for outcome in outcomes:
        counts.setdefault(outcome.category, Counter())[outcome.outcome] += 1
    return {category: {key: count[key] for key in OUTCOMES} for category, count in counts.items()}


def _run(watched: Watched, category: str, name: str, case: unittest.TestCase) -> Outcome:
    watched.start()
    category = category.removeprefix("OnnxBackend").removesuffix("ModelTest")
    start = time.perf_counter()
    error = _error_of(getattr(case, name))
    if error is None and not watched.proven:
        watched.start(optimize=False)
        error = _error_of(getattr(case, name))
    seconds = time.perf_counter() - start
    if error is None:
        return Outcome(category, name, "passed" if watched.proven else "unproven", "", seconds)
    kind = "unsupported" if isinstance(error, UnsupportedError) else "failed"
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return Outcome(category, name, kind, f"{type(error).__name__}: {text}", seconds)


def _error_of(test: Callable[[], Any]) -> BaseException | None:
    try:
        test()
    except Exception as error:  # noqa: BLE001  whatever a backend raises is an outcome of the test
        return error
    return None


def _print(outcomes: list[Outcome], verbose: bool) -> None:
    print(f"{'':24}" + "".join(f"{outcome:>13}" for outcome in OUTCOMES))
    for category, counts in summary(outcomes).items():
        print(f"{category:24}" + "".join(f"{counts[outcome]:13}" for outcome in OUTCOMES))
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.outcome != "passed":
            groups[outcome.outcome, re.sub(r"'[^']*'|\d+", "_", outcome.detail)].append(outcome.name)
    if verbose:
        for (kind, detail), names in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
            print(f"{kind} {len(names):4}  {detail[:160]}\n{'':18}{', '.join(names[:4])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="", help="regular expression that names must contain")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome to a file")
    parser.add_argument("--verbose", action="store_true", help="list what did not pass, by reason")
    arguments = parser.parse_args()
    outcomes = run_suite(pattern=arguments.pattern)
    _print(outcomes, arguments.verbose)
    if arguments.json:
        rows = {"summary": summary(outcomes), "tests": [asdict(outcome) for outcome in outcomes]}
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
