"""One network in a process of its own: `python -m benchmarks.training.worker '{"network": ..., ...}' FILE`.

Appends a line of JSON to FILE for each batch, and another one each time that more sides took part; the last counts.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import torch_sides
from benchmarks.gpu.turns import Timer, medians, ratios_to, take_turns
from benchmarks.training.aicore_step import TrainedModel
from benchmarks.training.torch_steps import CapturedStep, Step, build

AICORE = "aicore"
EAGER, GRAPH, SEARCHED = "eager", "graph", "graph, cuDNN searched"
COMPILED_GRAPH = "compiled, graph"
COMPARED_STEPS = 10
_LATENCY_CALLS = 30


class Comparison:
    """Both sides of one network and batch. What fails becomes a reason in `failures`, not the end of the rest."""

    def __init__(self, request: dict[str, Any], batch: int) -> None:
        self._request, self._name = request, request["network"]
        self._on_gpu = request["target"] != "cpu"
        self._timers: dict[str, Timer] = {}
        self._captured: list[CapturedStep] = []
        self.failures: dict[str, str] = {}
        self.row: dict[str, Any] = {"network": self._name, "batch": batch}
        self._ours = self._attempt(AICORE, lambda: self._open_aicore(batch))
        if self._ours is None:
            return
        device = "cuda" if self._on_gpu else "cpu"
        self._x = torch.from_numpy(self._ours.x).to(device)
        self._target = torch.from_numpy(self._ours.y).to(device)
        self._attempt(EAGER, self._eager)
        if self._on_gpu:
            self._attempt(GRAPH, lambda: self._graph(GRAPH))
            self._attempt(SEARCHED, lambda: self._graph(SEARCHED, search=True))

    def add_compiled(self, mode: str) -> None:
        self._attempt(mode, lambda: self._compiled(mode))

    def measure(self) -> dict[str, Any]:
        """Seconds of a step by side, and how many times as fast aicore is as each of PyTorch's."""
        samples = take_turns(self._timers, self._request["rounds"])
        theirs = {side: seconds for side, seconds in medians(samples).items() if side != AICORE}
        best = min(theirs, key=lambda side: theirs[side], default=None)
        ratios = ratios_to(AICORE, samples) if AICORE in samples else {}
        found = {"best": best, "ratio": ratios.get(best) if best else None, "ratios": ratios}
        return {**self.row, "seconds": medians(samples), **found, "failures": dict(self.failures)}

    def _attempt(self, name: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except Exception as error:  # noqa: BLE001  # any failure of a side is a row that says why
            self.failures[name] = f"{type(error).__name__}: {error}"[:2000]
            return None

    def _note(self, figure: str, side: str, value: Any) -> None:
        self.row.setdefault(figure, {})[side] = value

    def _open_aicore(self, batch: int) -> TrainedModel:
        options: dict[str, Any] = {} if self._on_gpu else {"threads": self._request["threads"]}
        started = time.perf_counter()
        ours = TrainedModel(self._name, batch, self._request["target"], tune=self._request["tune"], **options)
        losses = [ours.step()]
        self.row["compile_and_first_step_s"] = time.perf_counter() - started
        losses += [ours.step() for _ in range(COMPARED_STEPS)]
        self._note("losses", AICORE, losses)
        self.row |= {"placement": ours.placement(), "steps": ours.kernels(), "keep_previous": ours.keeps_previous}
        self._note("step_with_host_s", AICORE, _latency(ours.step))
        if self._on_gpu:
            call = ours.queue()
            self._note("nbytes", AICORE, ours.nbytes())
            self._timers[AICORE] = torch_sides.timer(call)
        else:
            self._timers[AICORE] = _host_timer(ours.step)
        if self._request["profile"]:
            self.row["slowest"] = ours.slowest(self._request["profile"])
        return ours

    def _step(self, **fields: Any) -> Step:
        assert self._ours is not None  # without it there is no comparison
        network = build(self._name, self._ours.first)
        return Step(network.to(self._x.device), self._x, self._target, **fields)

    def _eager(self) -> None:
        step = self._step()
        losses = [_told(step) for _ in range(COMPARED_STEPS + 1)]
        self._note("losses", EAGER, losses)
        ours = self.row["losses"][AICORE]
        self.row["loss_difference"] = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(ours, losses, strict=True))
        if self._on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            parameters = sum(p.nbytes for p in step.network.parameters())
            kept = 4 * parameters + sum(b.nbytes for b in step.network.buffers())
            step()
            torch.cuda.synchronize()
            # Parameters, their gradients and two slots were there before, and what the step took beside that.
            self._note("nbytes", EAGER, kept + torch.cuda.max_memory_allocated() - before)
        self._note("step_with_host_s", EAGER, _latency(lambda: _told(step)))
        self._timers[EAGER] = torch_sides.timer(step) if self._on_gpu else _host_timer(step)

    def _graph(self, name: str, search: bool = False, compiled: str = "") -> None:
        step = self._step(fused=True, compiled=compiled)
        captured = CapturedStep(step, search)

        def told() -> float:
            captured.replay()
            assert step.loss is not None  # the capture left it
            return float(step.loss)

        self._note("step_with_host_s", name, _latency(told))
        self._captured.append(captured)  # a graph does not keep the memory of the parameters that it works on
        self._timers[name] = torch_sides.timer(captured.replay)

    def _compiled(self, mode: str) -> None:
        if mode == COMPILED_GRAPH:
            return self._graph(COMPILED_GRAPH, compiled="default")
        step = self._step(fused=True, compiled=mode)
        started = time.perf_counter()
        for _ in range(4):  # the first steps of reduce-overhead warm up, record, and only then replay
            step()
        if self._on_gpu:
            torch.cuda.synchronize()
        self._note("torch_compile_s", mode, time.perf_counter() - started)
        self._timers[mode] = torch_sides.timer(step) if self._on_gpu else _host_timer(step)
        return None


def _told(step: Step) -> float:
    step()
    assert step.loss is not None  # each step leaves it
    return float(step.loss)


def _latency(call: Callable[[], Any]) -> float:
    """Median seconds of one call on the host's clock, each of which waits for its end."""
    taken = []
    for _ in range(_LATENCY_CALLS):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _host_timer(call: Callable[[], Any]) -> Timer:
    def seconds(calls: int) -> float:
        started = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - started) / calls

    return seconds


def main(text: str, file: Path) -> None:
    request = json.loads(text)
    torch_sides.strict()
    if request["target"] == "cpu":
        torch.set_num_threads(request["threads"])

    def tell(figures: dict[str, Any]) -> None:
        with file.open("a") as lines:
            lines.write(json.dumps(figures) + "\n")

    tell({"gpu": torch.cuda.get_device_name() if request["target"] != "cpu" else "none"})
    for batch in request["batches"]:
        comparison = Comparison(request, batch)
        tell(comparison.measure())
        for mode in request["modes"]:  # last: the longest, and the likeliest not to end
            comparison.add_compiled(mode)
            tell(comparison.measure())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
