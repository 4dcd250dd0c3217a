"""One network in a process of its own: `python -m benchmarks.gpu.worker '{"network": ..., ...}' FILE`.

Appends a line of JSON to FILE for each batch, and another one once torch.compile took part; the last of a batch counts.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from aicore.tuning import Measure, Outcome
from benchmarks.gpu import torch_sides
from benchmarks.gpu.aicore_side import CudaProgram, relative_error
from benchmarks.gpu.networks import build, expected, export, inputs
from benchmarks.gpu.turns import Timer, medians, ratios_to, take_turns
from benchmarks.versus.statistics import estimate, paired_ratios

AICORE, TUNED = "aicore", "aicore, tuned"
EAGER, GRAPH, SEARCHED = "eager", "graph", "graph, cuDNN searched"
REDUCE_OVERHEAD, MAX_AUTOTUNE = "reduce-overhead", "max-autotune"
SLOWEST_STEPS = 10
_LATENCY_CALLS = 50


@dataclass(frozen=True)
class Request:
    """What to measure of one network.

    modes: of torch.compile, maybe none. tune: of aicore. tuned: also aicore with everything measured anew, beside the
        untuned one. precision: of both sides.
    """

    network: str
    batches: tuple[int, ...] = (1, 32)
    rounds: int = 15
    modes: tuple[str, ...] = (REDUCE_OVERHEAD,)
    tune: str = "off"
    tuned: bool = False
    profile: bool = False
    precision: str = "float32"

    @classmethod
    def from_json(cls, text: str) -> Request:
        fields = json.loads(text)
        return cls(**{**fields, "batches": tuple(fields["batches"]), "modes": tuple(fields["modes"])})

    def as_json(self) -> str:
        return json.dumps(asdict(self))


class Comparison:
    """Both sides of one network at one batch. What fails becomes a reason in `failures`, not the end of the rest."""

    def __init__(self, request: Request, batch: int) -> None:
        self._request = request
        self._timers: dict[str, Timer] = {}
        self.failures: dict[str, str] = {}
        self.row: dict[str, Any] = {"network": request.network, "batch": batch}
        network = build(request.network)
        x = inputs(request.network, batch)
        self._wanted = expected(network, x)
        self._ours = self._attempt(AICORE, lambda: self._open_aicore(network, x))
        if request.tuned and AICORE in self._timers:
            self._attempt(TUNED, lambda: self._open_tuned(network, x))
        self._network, self._x = network.cuda(), x.cuda()
        for name, make in ((EAGER, self._eager), (GRAPH, self._graph), (SEARCHED, self._searched)):
            self._attempt(name, make)

    def add_compiled(self, mode: str) -> None:
        self._attempt(mode, lambda: self._compiled(mode))

    def measure(self) -> dict[str, Any]:
        """Seconds on the device by side, and how many times as fast aicore is as each of PyTorch's."""
        samples = take_turns(self._timers, self._request.rounds)
        seconds, tuned = medians(samples), samples.pop(TUNED, None)
        ratios = ratios_to(AICORE, samples) if AICORE in samples else {}
        more = {} if tuned is None else {"untuned_over_tuned": gain_of(samples[AICORE], tuned)}  # only beside that one
        return {**self.row, "rounds": self._request.rounds, "seconds": seconds, **best_of(samples, ratios), **more,
                "failures": dict(self.failures)}  # fmt: skip

    def _attempt(self, name: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except Exception as error:  # noqa: BLE001  # any failure of a side is a row that says why
            self.failures[name] = f"{type(error).__name__}: {error}"[:2000]
            return None

    def _open_aicore(self, network: torch.nn.Module, x: torch.Tensor) -> CudaProgram:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "network.onnx")
            self.row["exporter"] = export(network, x, path)
            started = time.perf_counter()
            ours = CudaProgram(path, {"x": x.numpy()}, self._request.tune, self._request.precision)
        self.row["compile_and_first_run_s"] = time.perf_counter() - started
        self.row |= {"nodes": ours.devices, "placement": ours.placement, "steps": ours.steps}
        (y,) = ours.result.values()
        self._note("relative_error", AICORE, relative_error(y, self._wanted))
        self._note("numpy_s", AICORE, _latency(lambda: ours.program.run(ours.feeds)))
        if self._request.profile:
            self.row["slowest"] = ours.slowest(SLOWEST_STEPS)
        if ours.why_no_replay:
            self.failures[AICORE] = ours.why_no_replay
            return ours
        self._note("latency_s", AICORE, _latency(ours.call()))
        self._timers[AICORE] = ours.replay
        return ours

    def _open_tuned(self, network: torch.nn.Module, x: torch.Tensor) -> None:
        """Untuned was opened before, so that what is imported and compiled once is in neither's time."""
        outcomes: list[Outcome] = []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "network.onnx")
            export(network, x, path)
            started = time.perf_counter()
            how = Measure(again=True, finished=outcomes.append)
            tuned = CudaProgram(path, {"x": x.numpy()}, how, self._request.precision)
            taken = time.perf_counter() - started
        changed = sum(o.record is not None and o.record.chosen != o.record.default for o in outcomes)
        timed = sum(outcome.timed for outcome in outcomes)
        refused = sum(len(o.record.refused) if o.record else 1 for o in outcomes)
        self.row["tuning"] = {
            "seconds": taken, "problems": len(outcomes), "timed": timed, "changed": changed, "refused": refused
        }  # fmt: skip
        (y,) = tuned.result.values()
        self._note("relative_error", TUNED, relative_error(y, self._wanted))
        self._timers[TUNED] = tuned.replay

    def _eager(self) -> None:
        call = torch_sides.eager(self._network, self._x)
        self._note("relative_error", EAGER, relative_error(call().cpu().numpy(), self._wanted))
        self._timers[EAGER] = torch_sides.timer(call)

    def _graph(self, name: str = GRAPH, search: bool = False) -> None:
        graph = torch_sides.Graph(self._network, self._x, search)
        graph.replay()
        torch.cuda.synchronize()
        self._note("relative_error", name, relative_error(graph.y.cpu().numpy(), self._wanted))
        self._note("latency_s", name, _latency(graph.call(self._x, torch.empty_like(graph.y))))
        host = self._x.cpu()

        def from_numpy() -> Any:
            with torch.inference_mode():
                graph.x.copy_(host)
                graph.replay()
                return graph.y.cpu().numpy()

        self._note("numpy_s", name, _latency(from_numpy))
        self._timers[name] = torch_sides.timer(graph.replay)

    def _searched(self) -> None:
        self._graph(SEARCHED, search=True)

    def _compiled(self, mode: str) -> None:
        started = time.perf_counter()
        call = torch_sides.compiled(self._network, self._x, mode)
        self._note("torch_compile_s", mode, time.perf_counter() - started)
        self._note("relative_error", mode, relative_error(call().cpu().numpy(), self._wanted))
        self._timers[mode] = torch_sides.timer(call)

    def _note(self, figure: str, side: str, value: float) -> None:
        self.row.setdefault(figure, {})[side] = value


def gain_of(untuned: list[float], tuned: list[float]) -> dict[str, float]:
    """Untuned over tuned time, the median of the rounds with its interval."""
    return asdict(estimate(paired_ratios(untuned, tuned)))


def best_of(samples: dict[str, list[float]], ratios: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """PyTorch's quickest variant, and aicore's ratio to it; None where a side has no samples."""
    theirs = {side: seconds for side, seconds in medians(samples).items() if side != AICORE}
    best = min(theirs, key=lambda side: theirs[side], default=None)
    return {"best": best, "ratio": ratios.get(best) if best else None, "ratios": ratios}


def _latency(call: Callable[[], Any]) -> float:
    """Median seconds of one call on the host's clock, each of which waits for its end."""
    taken = []
    for _ in range(_LATENCY_CALLS):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def main(text: str, file: Path) -> None:
    request = Request.from_json(text)
    torch_sides.use_precision(request.precision)

    def tell(figures: dict[str, Any]) -> None:
        with file.open("a") as lines:
            lines.write(json.dumps(figures) + "\n")

    tell({"gpu": torch.cuda.get_device_name()})
    comparisons = []
    for batch in request.batches:
        comparisons.append(Comparison(request, batch))
        tell(comparisons[-1].measure())
    for mode in request.modes:  # last: the longest, and the likeliest not to end
        for comparison in comparisons:
            comparison.add_compiled(mode)
            tell(comparison.measure())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
