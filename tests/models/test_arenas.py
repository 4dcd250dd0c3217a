"""Arenas of real networks are within 5 % of the largest live set, below which no arena can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import aicore
from tools.export_models import FOLDER, MODELS, tokens
from tools.models import model_path
from tools.speech import DETECTORS
from tools.zoo import HUGE, NETWORKS, network

MOST = 1.05
Feeds = Mapping[str, np.ndarray[Any, Any]]
ALL = [
    pytest.param(name, marks=pytest.mark.slow) if name in HUGE else name for name in (*NETWORKS, *MODELS, *DETECTORS)
]


def _subject(name: str) -> tuple[str | bytes, Iterator[Feeds]]:
    """The model, and inputs in two sizes or settings."""
    if name in MODELS:
        return str(FOLDER / f"{name}.onnx"), ({"tokens": tokens(*size)} for size in ((1, 9), (4, 33)))
    if name in DETECTORS:
        one = DETECTORS[name]
        settings = ({**one.feeds(setting, 0), **one.first_state(setting)} for setting in one.settings)
        return str(model_path(name)), settings
    net = network(name)
    return net.model, (net.feeds(size) for size in (0, 1))


@pytest.mark.parametrize("target", ["cpu", "fake"])
@pytest.mark.parametrize("name", ALL)
def test_near_the_lower_bound(name: str, target: str) -> None:
    model, inputs = _subject(name)
    program = aicore.compile(model, target, fallback="quiet")
    for feeds in inputs:
        if name in DETECTORS:
            program.run(feeds)  # bodies of branches are planned when they run
        else:
            program.specialise({key: array.shape for key, array in feeds.items()})
        plans = program.memory().plans
        assert sum(plan.arena for plan in plans) > 0
        for plan in plans:
            assert plan.arena <= MOST * plan.lower_bound
