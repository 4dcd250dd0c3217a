"""A program that nobody holds is gone at once, with its weights: a GPU's memory cannot wait for Python's collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import Builder, Graph
from aicore.tuning import Measure

X = np.ones((1, 4, 6, 6), np.float32)


@pytest.fixture
def _without_collector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def convolution() -> Graph:
    b = Builder()
    x = b.input("x", "float32", X.shape)
    w = b.constant(np.ones((4, 4, 3, 3), np.float32))
    return b.graph([x], {"y": b.Relu(b.Conv(x, w))})


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize("tune", ["off", "cached", Measure(again=True)], ids=["off", "cached", "measured"])
def test_a_program_and_its_weights_go_together(tune: Any) -> None:
    program = aicore.compile(convolution(), "cpu", tune=tune)
    program.run({"x": X})
    held = [weakref.ref(one) for one in (program, program._specialiser, program._specialiser._target.constants)]
    assert all(one() is not None for one in held)
    del program
    assert [one() for one in held] == [None, None, None]
