"""Real networks give the same numbers with channels last as in the order of ONNX."""

from __future__ import annotations

import numpy as np
import pytest

import aicore
from aicore.ops.layout import ChannelsLast
from aicore.passes import Pass, default_passes
from aicore.passes.place_channels_last import PlaceChannelsLast
from tools.zoo import network

RELATIVE_BOUND = 1e-4
"""Norm of the difference over the norm, as against other runtimes: kernels of either order round in their own way."""


def _without_channels_last(extra: tuple[Pass, ...] = ()) -> tuple[Pass, ...]:
    return tuple(one for one in default_passes(extra) if not isinstance(one, PlaceChannelsLast))


@pytest.mark.parametrize("name", ["magika", "light_squeezenet", "ppocr_rec"])
def test_same_numbers_with_and_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network(name)
    graph = aicore.load(net.model)
    last = aicore.compile(graph, target="cpu", fallback="error")
    monkeypatch.setattr("aicore.api.default_passes", _without_channels_last)
    first = aicore.compile(graph, target="cpu", fallback="error")
    assert any(isinstance(node.op, ChannelsLast) for node in last.graph.nodes)
    assert not any(isinstance(node.op, ChannelsLast) for node in first.graph.nodes)
    for size in (0, 1):
        feeds = net.feeds(size)
        for got, wanted in zip(last.run(feeds).values(), first.run(feeds).values(), strict=True):
            assert got.shape == wanted.shape
            assert np.linalg.norm(got - wanted) <= RELATIVE_BOUND * np.linalg.norm(wanted)
