"""PyTorch's ways to run a network on the GPU: eager, as a CUDA Graph, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu.turns import Timer

Call = Callable[[], Any]


def strict() -> None:
    """float32 means float32, on both libraries."""
    use_precision("float32")


def use_precision(precision: str) -> None:
    """What float32 means to both libraries: `float32` or `tf32`."""
    lowered = precision == "tf32"
    torch.set_float32_matmul_precision("high" if lowered else "highest")
    torch.backends.cuda.matmul.allow_tf32 = lowered
    torch.backends.cudnn.allow_tf32 = lowered


def timer(call: Call) -> Timer:
    """Times calls in a row on the current stream by events."""

    def seconds(calls: int) -> float:
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / calls

    return seconds


def eager(network: torch.nn.Module, x: torch.Tensor) -> Call:
    def call() -> torch.Tensor:
        with torch.inference_mode():
            y: torch.Tensor = network(x)
            return y

    return call


class Graph:
    """A function of one tensor captured as a CUDA Graph; `replay` works on the numbers in `x`, and fills `y`.

    search: let cuDNN time its convolutions while it warms up, and keep the fastest.
    The graph does not keep the memory of `x` and of the function's weights; this object does, and `replay`, a bound
    method, keeps this object.
    """

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, search: bool = False) -> None:
        self.x = x.clone()
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = search
        try:
            self._graph, self.y = self._capture(function)
        finally:
            torch.backends.cudnn.benchmark = before
        self._function = function

    def replay(self) -> None:
        self._graph.replay()

    def _capture(self, function: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        with torch.inference_mode():
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # libraries make their handles and workspaces before the capture
                for _ in range(3):
                    function(self.x)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = function(self.x)
        return graph, y

    def call(self, x: torch.Tensor, y: torch.Tensor) -> Call:
        """A call as a caller with tensors of his own makes it: copies in, replay, copies out, waits."""

        def run() -> None:
            with torch.inference_mode():
                self.x.copy_(x)
                self.replay()
                y.copy_(self.y)
                torch.cuda.synchronize()

        return run


def compiled(network: torch.nn.Module, x: torch.Tensor, mode: str) -> Call:
    """`torch.compile` in a mode, compiled and warm."""
    function = torch.compile(network, mode=mode)

    def call() -> torch.Tensor:
        with torch.inference_mode():
            torch.compiler.cudagraph_mark_step_begin()
            y: torch.Tensor = function(x)
            return y

    for _ in range(4):  # the first runs of reduce-overhead warm up, record, and only then replay
        call()
    torch.cuda.synchronize()
    return call
