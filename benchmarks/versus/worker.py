"""One network in a process of its own: `python -m benchmarks.versus.worker '{"network": ..., ...}'`.

It writes JSON lines: `{"stage": ..., "done": 1, "total": 7}` while it works, and at last `{"result": {...}}`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.versus.layers import compare_layers
from benchmarks.versus.networks import write_network
from benchmarks.versus.pairs import interleave
from benchmarks.versus.sides import (
    Settings,
    aicore_run,
    compare,
    onnxruntime_run,
    open_aicore,
    open_onnxruntime,
    read_feeds,
)
from benchmarks.versus.start_up import measure_start_up
from benchmarks.versus.statistics import estimate, paired_ratios

AICORE, THEIRS, THEIRS_QUIET = "aicore", "onnxruntime", "onnxruntime without spinning"


@dataclass(frozen=True)
class Request:
    """What to measure of one network.

    rounds: at least. layers: how many of the heaviest; 0 for none. start_ups: fresh processes of each side; 0 for none.
    sanity: also time the evaluator of the onnx package.
    """

    network: str
    settings: Settings = field(default_factory=Settings)
    rounds: int = 7
    layers: int = 12
    start_ups: int = 3
    sanity: bool = False

    @classmethod
    def from_json(cls, text: str) -> Request:
        fields = json.loads(text)
        return cls(**{**fields, "settings": Settings(**fields["settings"])})

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def measure(request: Request, say: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Figures of one network; times in seconds, ratios are speed of aicore over that of onnxruntime.

    Raises ValueError when outputs cannot be compared or prove nothing.
    """
    settings = request.settings
    with tempfile.TemporaryDirectory() as folder:
        say("write", 0, 1)
        model, feeds_path = write_network(request.network, Path(folder))
        feeds = read_feeds(feeds_path)
        say("compile", 0, 1)
        program = open_aicore(model, settings, lambda done, total: say("tuning", done, total))
        started = time.perf_counter()
        program.run(feeds)
        first_run_s = time.perf_counter() - started
        sides = {
            AICORE: aicore_run(program, feeds),
            THEIRS: onnxruntime_run(open_onnxruntime(model, settings), feeds),
            THEIRS_QUIET: onnxruntime_run(open_onnxruntime(model, settings, spinning=False), feeds),
        }
        difference = compare(sides[AICORE](), sides[THEIRS]())
        if difference.spread <= 1e-6:
            raise ValueError(f"an output varies by {difference.spread:g} only: that it agrees would prove nothing")
        samples = interleave(sides, request.rounds, lambda done, total: say("rounds", done, total))
        result: dict[str, Any] = {"network": request.network, "difference": asdict(difference), **speeds(samples)}
        result["load"] = round(os.getloadavg()[0], 1)  # about 2 by this process alone; more says the machine was busy
        result["tuning_s"] = round(first_run_s, 1) if settings.tune == "measure" else None
        del sides
        if request.sanity:
            say("onnx evaluator", 0, 1)
            evaluator_s = _evaluator_seconds(model, feeds)
            result["evaluator"] = {"seconds": evaluator_s, "ratio": evaluator_s / result["seconds"][AICORE]}
        if request.layers:
            layers = compare_layers(program, feeds, settings, request.layers, lambda d, t: say("layers", d, t))
            result["layers"] = [layer.as_json() for layer in layers]
        del program
        if request.start_ups:
            starts = measure_start_up(
                model, feeds_path, settings, request.start_ups, lambda d, t: say("start-up", d, t)
            )
            result["start_up"] = starts
    return result


def speeds(samples: dict[str, list[float]]) -> dict[str, Any]:
    """Medians of seconds by side, and ratios with their intervals: to both forms of onnxruntime, and to the better."""
    seconds = {side: statistics.median(taken) for side, taken in samples.items()}
    ratios = {side: asdict(estimate(paired_ratios(samples[side], samples[AICORE]))) for side in (THEIRS, THEIRS_QUIET)}
    better = min((THEIRS, THEIRS_QUIET), key=lambda side: seconds[side])
    return {
        "rounds": len(samples[AICORE]),
        "seconds": seconds,
        "better": better,
        "ratio": ratios[better],
        "ratio_spinning": ratios[THEIRS],
        "ratio_without_spinning": ratios[THEIRS_QUIET],
    }


def _evaluator_seconds(model: Path, feeds: Any) -> float:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(model))
    started = time.perf_counter()
    evaluator.run(None, feeds)
    return time.perf_counter() - started


def main(text: str) -> None:
    def say(stage: str, done: int, total: int) -> None:
        print(json.dumps({"stage": stage, "done": done, "total": total}), flush=True)

    print(json.dumps({"result": measure(Request.from_json(text), say)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
