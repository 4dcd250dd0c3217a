"""PyTorch's ways to make a training step: eager, compiled, and as a CUDA Graph; with weights of aicore's model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.gpu import networks

Call = Callable[[], Any]
Array = np.ndarray[Any, Any]
LEARNING_RATE = 1e-3


class LastState(nn.Module):
    """One LSTM, and a linear layer on its last state."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.lstm(x)[1][0][0])
        return y


def build(name: str, weights: Mapping[str, Array]) -> nn.Module:
    """The network with the weights of aicore's model, which lie in the same order; in training mode, on the CPU.

    Raises ValueError when they do not fit.
    """
    network = LastState(128, 256, 10) if name == "lstm" else networks.NETWORKS[name].make()
    own = list(network.parameters())
    given = _of_lstm(weights) if name == "lstm" else [a for n, a in weights.items() if "running_" not in n]
    if [tuple(p.shape) for p in own] != [a.shape for a in given]:
        raise ValueError(f"{[tuple(p.shape) for p in own]} beside {[a.shape for a in given]}")
    with torch.no_grad():
        for parameter, array in zip(own, given, strict=True):
            parameter.copy_(torch.from_numpy(np.array(array)))
    return network.train()


def _of_lstm(weights: Mapping[str, Array]) -> list[Array]:
    """Gates in PyTorch's order, input, forget, cell, output, from ONNX's: input, output, forget, cell."""

    def turned(array: Array) -> Array:
        i, o, f, c = np.split(array, 4)
        return np.concatenate([i, f, c, o])

    found = {name.rpartition(".")[2]: array for name, array in weights.items() if "lstm" in name}
    biases = np.split(found["bias"][0], 2)
    head = [array for name, array in weights.items() if "lstm" not in name]
    return [turned(found["weight"][0]), turned(found["recurrent_weight"][0]), *map(turned, biases), *head]


@dataclass
class Step:
    """A training step on one batch, again and again: forward pass, loss, backward pass, Adam.

    fused: one kernel for all parameters, which can be captured. compiled: forward pass and loss, by this mode.
    """

    network: nn.Module
    x: torch.Tensor
    target: torch.Tensor
    fused: bool = False
    compiled: str = ""
    loss: torch.Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        more: dict[str, Any] = {"fused": True, "capturable": self.x.is_cuda} if self.fused else {}
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE, **more)
        self._forward: Callable[..., torch.Tensor] = self._loss
        if self.compiled:
            self._forward = torch.compile(self._loss, mode=self.compiled)

    def _loss(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.network(x), target)

    def __call__(self) -> None:
        if self.compiled == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._forward(self.x, self.target)
        loss.backward()  # type: ignore[no-untyped-call]  # as PyTorch ships it
        self.optimizer.step()
        self.loss = loss.detach()


class CapturedStep:
    """A step as a CUDA Graph. search: let cuDNN time its convolutions first, and keep the fastest.

    The graph reads and writes the step's parameters where they lie, and does not keep them: whoever replays it must
    hold this object, which `replay`, a bound method, does.
    """

    def __init__(self, step: Step, search: bool = False) -> None:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = search
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # libraries make their handles and workspaces before the capture
                for _ in range(4):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
        finally:
            torch.backends.cudnn.benchmark = before
        self.step = step
        self._graph = graph

    def replay(self) -> None:
        self._graph.replay()
