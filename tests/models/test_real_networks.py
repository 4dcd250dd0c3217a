"""Real networks give the numbers of onnxruntime, at two sizes in turn, on the CPU and on the fake GPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest

import aicore
from tools.zoo import HUGE, NETWORKS, THOROUGH, Network, network

RELATIVE_BOUND = 1e-4
"""Norm of the difference over the norm; float32 sums in another order stay well below it in all these networks."""
ORDER = (0, 1, 0, 1)
USUAL = [name for name in NETWORKS if name not in HUGE]
ALL = [*USUAL, *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(HUGE))]


@cache
def _network(name: str) -> Network:
    return network(name)


@cache
def _expected(name: str, size: int) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(_network(name).model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, _network(name).feeds(size)))


@cache
def _outputs(name: str, target: str, **options: Any) -> list[list[np.ndarray[Any, Any]]]:
    program = aicore.compile(aicore.load(_network(name).model), target=target, fallback="error", **options)
    return [list(program.run(_network(name).feeds(size)).values()) for size in ORDER]


def relative_difference(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> float:
    scale = float(np.linalg.norm(theirs.astype(np.float64).ravel()))
    return float(np.linalg.norm((ours.astype(np.float64) - theirs).ravel())) / max(scale, 1e-30)


@pytest.mark.parametrize("target", ["cpu", "fake"])
@pytest.mark.parametrize("name", ALL)
def test_agrees_with_onnxruntime(name: str, target: str) -> None:
    for size, ours in zip(ORDER, _outputs(name, target), strict=True):
        for got, expected in zip(ours, _expected(name, size), strict=True):
            assert got.shape == expected.shape
            assert got.dtype == expected.dtype
            assert float(np.std(expected)) > 1e-6, "an output that is constant proves nothing"
            assert relative_difference(got, expected) < RELATIVE_BOUND


@pytest.mark.parametrize("name", USUAL)
def test_fake_gpu_has_the_bits_of_the_cpu(name: str) -> None:
    for on_cpu, on_fake in zip(_outputs(name, "cpu"), _outputs(name, "fake"), strict=True):
        for a, b in zip(on_cpu, on_fake, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", THOROUGH)
def test_unoptimised_gives_the_same_numbers(name: str) -> None:
    for plain, optimised in zip(_outputs(name, "cpu", optimize=False), _outputs(name, "cpu"), strict=True):
        for a, b in zip(plain, optimised, strict=True):
            assert relative_difference(a, b) < RELATIVE_BOUND


@pytest.mark.parametrize("options", [{"reuse_memory": False}, {"poison": True}], ids=["no-reuse", "poison"])
@pytest.mark.parametrize("name", THOROUGH)
def test_memory_mode_changes_no_bit(name: str, options: dict[str, bool]) -> None:
    for other, arena in zip(_outputs(name, "cpu", **options), _outputs(name, "cpu"), strict=True):
        for a, b in zip(other, arena, strict=True):
            np.testing.assert_array_equal(a, b)
