"""Detectors of speech give onnxruntime's numbers over consecutive chunks, each side carrying its own state."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest

import aicore
from tools.models import model_path
from tools.speech import DETECTORS, Detector, Feeds

CHUNKS = 50
RELATIVE_BOUND = 1e-4
"""Norm of the difference over the norm. An error of one chunk goes on into the next: it must not grow."""

Outputs = dict[str, np.ndarray[Any, Any]]


def _calls(detector: Detector, run: Callable[[Feeds], Outputs]) -> list[list[Outputs]]:
    """The outputs of all calls for each setting, the settings taking turns."""
    states = [detector.first_state(setting) for setting in detector.settings]
    found: list[list[Outputs]] = [[], []]
    for call in range(CHUNKS):
        for k, setting in enumerate(detector.settings):
            outputs = run({**detector.feeds(setting, call), **states[k]})
            states[k] = {into: outputs[name] for name, into in detector.carried}
            found[k].append(outputs)
    return found


@cache
def _expected(name: str) -> list[list[Outputs]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model_path(name), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return _calls(DETECTORS[name], lambda feeds: dict(zip(names, session.run(None, feeds), strict=True)))


def _difference(ours: list[Outputs], theirs: list[Outputs], name: str) -> float:
    a = np.stack([outputs[name] for outputs in ours]).astype(np.float64)
    b = np.stack([outputs[name] for outputs in theirs]).astype(np.float64)
    assert a.shape == b.shape
    return float(np.linalg.norm((a - b).ravel()) / np.linalg.norm(b.ravel()))


@pytest.mark.parametrize("target", ["cpu", "fake"])
@pytest.mark.parametrize("name", list(DETECTORS))
def test_agrees_with_onnxruntime(name: str, target: str) -> None:
    program = aicore.compile(model_path(name), target=target, fallback="error")
    for ours, theirs in zip(_calls(DETECTORS[name], program.run), _expected(name), strict=True):
        probabilities, *states = theirs[0]
        assert [list(outputs) for outputs in ours] == [list(outputs) for outputs in theirs]
        spread = np.ptp([outputs[probabilities] for outputs in theirs])
        assert spread > 0.3, "sound and pauses that the detector cannot tell apart prove little"
        for output in (probabilities, *states):
            assert _difference(ours, theirs, output) < RELATIVE_BOUND
            assert ours[0][output].dtype == theirs[0][output].dtype
        last = [{name: outputs[name] for name in states} for outputs in (ours[-1], theirs[-1])]
        for output in states:
            assert _difference(last[:1], last[1:], output) < RELATIVE_BOUND, "the error grows from chunk to chunk"


@pytest.mark.parametrize("name", list(DETECTORS))
def test_no_branch_is_left_to_the_run_that_sizes_decide(name: str) -> None:
    """All that remains is the choice by samples per second, which is an input."""
    detector = DETECTORS[name]
    program = aicore.compile(model_path(name), target="cpu", fallback="error")
    for setting in detector.settings:
        feeds = {**detector.feeds(setting, 0), **detector.first_state(setting)}
        program.run(feeds)
        rows = [row for row in program.profile(feeds).rows if row.kernel == "call"]
        assert len(rows) == (1 if name in ("silero_vad", "silero_vad_op18_ifless") else 0)
