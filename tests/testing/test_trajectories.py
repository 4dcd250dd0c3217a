"""Training steps in a row, compared between targets."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from aicore.cli.app import app
from aicore.nn.trajectories import sample_trajectories
from aicore.plugins import plugin_registry
from aicore.testing import trajectories
from aicore.testing.outcomes import Outcome
from aicore.testing.parity import find_targets
from aicore.testing.reference import Reference


def compared(names: list[str], networks: list[Any]) -> Any:
    registry = plugin_registry()
    columns, targets = find_targets(names, registry)
    return trajectories.compare_trajectories(networks, columns, targets, Reference(registry), "training")


def test_every_network_follows_the_same_course_on_all_targets() -> None:
    networks = sample_trajectories(steps=3)
    matrix = compared(["cpu", "cpu:reference"], networks)
    assert [entry.name for entry in matrix.entries] == ["MLP", "CNN", "LSTM", "GRU", "transformer"]
    assert matrix.is_right
    assert all(verdict.steps > 0 for entry in matrix.entries for verdict in entry.verdicts.values())


def test_a_learning_rate_that_is_one_per_cent_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    (network,) = [one for one in sample_trajectories(steps=3) if one.name == "LSTM"]
    real = trajectories.compile

    class Wrong:
        """A program whose sessions begin with another learning rate."""

        def __init__(self, program: Any) -> None:
            self._program = program
            self.placement = program.placement

        def session(self, state: Any) -> Any:
            rate = np.float32(state["optimizer.learning_rate"] * 1.01)
            return self._program.session({**state, "optimizer.learning_rate": rate})

    monkeypatch.setattr(trajectories, "compile", lambda *a, **k: Wrong(real(*a, **k)))
    (entry,) = compared(["cpu"], [network]).entries
    assert entry.verdicts["cpu"].outcome is Outcome.FAILED
    assert "lstm" in entry.verdicts["cpu"].reason or "loss" in entry.verdicts["cpu"].reason


def test_an_error_of_the_backend_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    (network,) = [one for one in sample_trajectories(steps=2) if one.name == "LSTM"]
    monkeypatch.setattr(trajectories, "compile", lambda *a, **k: 1 / 0)
    (entry,) = compared(["cpu"], [network]).entries
    assert entry.verdicts["cpu"].outcome is Outcome.FAILED
    assert "ZeroDivisionError" in entry.verdicts["cpu"].reason


def test_command_line() -> None:
    result = CliRunner().invoke(app, ["parity", "--training", "2", "--targets", "cpu", "--json"])
    assert result.exit_code == 0
    rows = json.loads(result.stdout)["rows"]
    assert [row["name"] for row in rows] == ["MLP", "CNN", "LSTM", "GRU", "transformer"]


@pytest.mark.parametrize("option", [["--ops", "Add"], ["--dtypes", "float16"], ["--shape", "x=1"]])
def test_options_of_other_comparisons_are_refused(option: list[str]) -> None:
    result = CliRunner().invoke(app, ["parity", "--training", "2", *option])
    assert result.exit_code != 0
