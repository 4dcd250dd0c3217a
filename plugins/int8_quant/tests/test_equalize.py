"""Channels of like sizes in front of depthwise convolutions: nothing but codes changes, and these get better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import Builder, Graph
from aicore.ops.convolution import Conv
from aicore_int8_quant import quantize
from aicore_int8_quant.analysis.measures import sqnr
from aicore_int8_quant.observers import OBSERVERS
from aicore_int8_quant.passes.equalize import growth

Array = np.ndarray[Any, Any]
SIZES = 2.0 ** -np.arange(8)
"""Of the channels that a depthwise convolution reads."""


def depthwise_network(kind: str) -> Graph:
    """A convolution, or one with a clamp and a Mul and Add behind it; then a depthwise one, and a sum over channels."""
    rng = np.random.default_rng(3)
    op = Builder()
    x = op.input("x", "float32", ("n", 4, 9, 9))
    sizes = SIZES.astype(np.float32).reshape(8, 1, 1, 1)
    first = rng.standard_normal((8, 4, 1, 1)).astype(np.float32)
    if kind == "conv":
        bias = op.constant(0.1 * sizes.reshape(8))
        y = op.Relu(op.apply(Conv(), x, op.constant(first * sizes), bias))
    else:
        y = op.HardSwish(op.apply(Conv(), x, op.constant(first)))
        y = op.Add(op.Mul(y, op.constant(sizes.reshape(1, 8, 1, 1))), op.constant(np.float32(0.001)))
    weight = (rng.standard_normal((8, 1, 3, 3)) / sizes).astype(np.float32)
    y = op.apply(Conv(group=8, pads=(1, 1, 1, 1)), y, op.constant(weight), names=["depthwise"])
    return op.graph([x], {"y": y})


def data(count: int = 3) -> list[Array]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal((2, 4, 9, 9)).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("kind", ["conv", "mul"])
def test_the_float_graph_keeps_every_bit(kind: str) -> None:
    graph, batches = depthwise_network(kind), data()
    model = quantize(graph, batches)
    exact, equalized = (aicore.compile(g, "cpu", optimize=False) for g in (graph, model.prepared))
    assert np.array_equal(exact.run({"x": batches[0]})["y"], equalized.run({"x": batches[0]})["y"])


@pytest.mark.parametrize("method", OBSERVERS)
@pytest.mark.parametrize("kind", ["conv", "mul"])
def test_small_channels_keep_their_steps(kind: str, method: str) -> None:
    """Channel 7 is 128 times smaller than channel 0: with one scale for both, 2 codes of 255 are left for it.

    Entropy cuts off more than it saves.
    """
    graph, batches = depthwise_network(kind), data()
    wanted = aicore.compile(graph, "cpu").run({"x": batches[0]})["y"]
    model = quantize(graph, batches, method=method)
    got = model.compile("cpu").run({"x": batches[0]})["y"]
    assert sqnr(wanted[:, 7], got[:, 7]) > (5 if method == "entropy" else 25)


def test_without_scales_for_channels_nothing_is_equalized() -> None:
    graph, batches = depthwise_network("conv"), data()
    model = quantize(graph, batches, per_channel=False)
    wanted = aicore.compile(graph, "cpu").run({"x": batches[0]})["y"]
    assert sqnr(wanted[:, 7], model.compile("cpu").run({"x": batches[0]})["y"][:, 7]) < 15


def test_growth_stays_within_the_range() -> None:
    """By hand: beside 0 ... 8, a channel up to 1 can be doubled 3 times, one up to 3 once, and zeros not at all."""
    low, high = np.zeros(4), np.array([8.0, 1.0, 3.0, 0.0])
    assert growth(low, high, np.ones(4)).tolist() == [0, 3, 1, 0]


def test_growth_widens_the_range_only_where_that_pays() -> None:
    """-1 ... 1 beside 0 ... 8 would need a range of twice the size to grow; with heavy weights it is worth it."""
    low, high = np.array([0.0, -1.0]), np.array([8.0, 1.0])
    assert growth(low, high, np.array([100.0, 1.0])).tolist() == [0, 0]
    assert growth(low, high, np.array([1.0, 100.0])).tolist() == [0, 3]


@pytest.mark.parametrize("method", OBSERVERS)
def test_joined_observers_are_those_of_the_scaled_tensor(method: str) -> None:
    exponents, kind = np.array([0, 3, -2, 5]), OBSERVERS[method]
    batches = [np.random.default_rng(i).standard_normal((3, 4, 5)) for i in range(4)]
    by_channel, whole = kind("t", axis=1), kind("t")
    for batch in batches:
        by_channel.update(batch)
        whole.update(np.ldexp(batch, exponents.reshape(4, 1)))
    joined = by_channel.joined(exponents)
    if method == "moving-average":  # extremes of averages, not averages of extremes
        assert joined.extremes()[1][0] <= whole.extremes()[1][0]
        assert joined.extremes()[1][0] > 0.5 * whole.extremes()[1][0]
        return
    assert joined.to_json() == whole.to_json()
