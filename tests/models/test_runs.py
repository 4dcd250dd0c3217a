"""What a run of a real network may cost, and that threads share a program without touching each other's numbers."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import aicore
from tools.zoo import THOROUGH, network

THREADS = 8
PEAK_OVER_PLAN = 0.05
BUFFERS = 3 * np.getbufsize() * 4
"""What NumPy's iterators hold in each thread while they walk over strided operands: 96 KiB for two operands and a
result, whatever the size of the network. Nothing else may be allocated."""


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", THOROUGH)
def test_peak_is_the_planned_arena(name: str, size: int) -> None:
    net = network(name)
    program = aicore.compile(aicore.load(net.model), target="cpu", fallback="error")
    feeds = net.feeds(size)
    program.run(feeds)  # the arena exists from now on
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        program.run(feeds)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    arena = sum(plan.memory.arena for plan in program.plan)
    outputs = sum(plan.memory.outputs for plan in program.plan)
    assert arena > 0
    buffers = BUFFERS * program.plan[0].threads
    assert peak - before - outputs <= PEAK_OVER_PLAN * arena + buffers


@pytest.mark.parametrize("name", ["magika", "ppocr_cls", "ppocr_rec"])
def test_eight_threads_give_the_bits_of_one(name: str) -> None:
    net = network(name)
    program = aicore.compile(aicore.load(net.model), target="cpu", fallback="error")
    feeds = [net.feeds(i % 2) for i in range(2 * THREADS)]
    serial = [program.run(feed) for feed in feeds]
    with ThreadPoolExecutor(THREADS) as pool:
        threaded = list(pool.map(program.run, feeds))
    for expected, got in zip(serial, threaded, strict=True):
        _assert_same_bits(expected, got)


def test_earlier_results_outlive_later_runs() -> None:
    net = network("magika")
    program = aicore.compile(aicore.load(net.model), target="cpu")
    first = program.run(net.feeds(0))
    kept = {name: array.copy() for name, array in first.items()}
    for size in (1, 0, 1):
        program.run(net.feeds(size))
    _assert_same_bits(kept, first)


def _assert_same_bits(expected: dict[str, Any], got: dict[str, Any]) -> None:
    assert expected.keys() == got.keys()
    for name in expected:
        np.testing.assert_array_equal(expected[name], got[name])
