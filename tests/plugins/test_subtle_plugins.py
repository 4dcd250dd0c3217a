"""Installed plugins that load, probe and compute something: only a comparison, or a proof of execution, finds them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.evil_plugins.catalogue import SUBTLE, named
from tests.evil_plugins.wheels import install
from tests.plugins.machine import Machine

pytestmark = pytest.mark.slow


def machine_with(name: str, folder: Path) -> Machine:
    """An environment with this broken plugin."""
    return Machine(install([named(name)], folder / "site"), folder / "cache")


@pytest.mark.parametrize("evil", SUBTLE, ids=lambda evil: evil.name)
def test_models_run_on_the_cpu_and_the_doctor_sees_nothing(evil: Any, tmp_path: Path) -> None:
    machine = machine_with(evil.name, tmp_path)
    machine.run_model()
    (plugin,) = machine.plugins("doctor", evil.name, status=0)
    assert (plugin["status"], plugin["devices"]) == ("ok", ["evil"])


@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("evil_wrong_numbers", "failed", r"\d+ of \d+ elements are wrong"),
        ("evil_mutating", "failed", "was overwritten|elements are wrong"),
        ("evil_nothing", "fallback", "no kernel"),
    ],
)
def test_the_matrix_shows_the_op(name: str, outcome: str, reason: str, tmp_path: Path) -> None:
    machine = machine_with(name, tmp_path)
    done = machine.aicore(
        "parity", "--ops", "Neg,Abs", "--dtypes", "float32", "--targets", "cpu:reference,evil", "--json"
    )
    answer = json.loads(done.stdout)
    assert done.returncode == (1 if outcome == "failed" else 0), done.stderr
    cells = {(row["name"], row["kind"]): row["cells"]["evil"] for row in answer["rows"]}
    assert cells["Neg", "plain"]["outcome"] == outcome
    assert re.search(reason, cells["Neg", "plain"]["reason"]), cells["Neg", "plain"]["reason"]
    assert cells["Abs", "plain"]["outcome"] == ("fallback" if name == "evil_nothing" else "passed")
    score = next(column["score"] for column in answer["columns"] if column["name"] == "evil")
    assert (score == 0) == (name == "evil_nothing")


def test_a_backend_that_implements_nothing_scores_0_and_fails(tmp_path: Path) -> None:
    machine = machine_with("evil_nothing", tmp_path)
    done = machine.python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "--aicore-target", "evil", "--aicore-ops", "Neg"
    )
    assert done.returncode != 0
    assert "evil: score 0.0%" in done.stdout
    assert " passed" not in done.stdout.splitlines()[-1]


def test_a_wrong_kernel_is_traced_to_its_node_and_its_repro_replays(tmp_path: Path) -> None:
    machine = machine_with("evil_wrong_numbers", tmp_path)
    model, repros = machine.save("mixed", "Softmax", "Neg"), tmp_path / "repros"
    done = machine.aicore("parity", model, "--targets", "cpu,evil", "--repro", repros)
    assert done.returncode == 1, done.stderr
    assert "evil: first divergent node: 1. Neg y: 3 of 3 elements are wrong" in done.stdout
    assert "evil: to blame: Neg 'y' (from neg1): neg_wrong on evil: 3 of 3 elements are wrong" in done.stdout
    (script,) = repros.rglob("replay.py")
    again = machine.python(script)
    assert again.returncode == 1, again.stderr
    assert again.stdout.startswith("reproduced: 3 of 3 elements are wrong")

    source = machine.site / "evil_wrong_numbers_package" / "plugin.py"
    source.write_text(source.read_text().replace(" + np.asarray(1, x.dtype)", ""))
    assert machine.python(script).returncode == 0  # mended, so it does not happen any more
    assert machine.aicore("parity", model, "--targets", "cpu,evil").returncode == 0
