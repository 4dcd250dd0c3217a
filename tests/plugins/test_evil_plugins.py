"""With any plugin broken in any way, models still run on the CPU, and the culprit, its class and the fix are named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import aicore
import aicore_cpu_numpy.plugin
from aicore.ir import Builder, Graph
from aicore.plugins import PluginRegistry, State
from tests.evil_plugins.catalogue import ABSENT, ALL, BROKEN, SUBTLE, Evil, groups, named
from tests.evil_plugins.wheels import build_wheel, install, load_module, pip_install

TIMEOUT = 8
"""Seconds for each plugin: time enough for a healthy one on a busy machine, and all that a hanging one gets."""


@dataclass(frozen=True)
class Machine:
    """An environment with broken plugins, and the command line in fresh processes."""

    site: Path
    cache: Path

    def aicore(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call `aicore`. It may take the limits of two hanging plugins, one after the other, and little more."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AICORE_")}
        search = [str(self.site), str(Path(aicore.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        settings = {
            "PYTHONPATH": os.pathsep.join(filter(None, search)),
            "AICORE_CACHE_DIR": str(self.cache),
            "AICORE_PLUGIN_TIMEOUT": str(TIMEOUT),
            "COLUMNS": "300",
        }
        command = [sys.executable, "-m", "aicore", *arguments]
        return subprocess.run(
            command, env={**clean, **settings}, capture_output=True, text=True, timeout=20 * TIMEOUT, check=False
        )

    def run_model(self) -> dict[str, Any]:
        """A model on the CPU; fails unless its numbers are right."""
        model = self.site / "relu.onnx"
        model.write_bytes(relu().SerializeToString())
        np.save(self.site / "x.npy", np.array([[-1, 2, -3]], np.float32))
        done = self.aicore("run", str(model), "-i", f"x={self.site}/x.npy", "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        assert (answer["target"], answer["placement"]) == ("cpu", "cpu_numpy 1/1 nodes")
        assert answer["outputs"]["y"]["values"] == [0, 2, 0]
        return {**answer, "stderr": done.stderr}

    def plugins(self, *arguments: str, status: int) -> list[dict[str, Any]]:
        """The plugins as `aicore plugins ... --json` shows them."""
        done = self.aicore("plugins", *arguments, "--json")
        assert done.returncode == status, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)["plugins"]
        return found


def relu() -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def of(evil: Evil, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The one plugin of this distribution."""
    (plugin,) = (p for p in found if p["distribution"] == evil.distribution)
    assert plugin["name"] == evil.entry_name
    return plugin


def check_reason_and_fix(evil: Evil, plugin: dict[str, Any]) -> None:
    assert plugin["class"] == evil.finding
    assert re.search(evil.reason, plugin["reason"]), plugin["reason"]
    fix = evil.fix.format(entry=evil.entry_name, distribution=evil.distribution)
    assert re.search(fix, plugin["fix"]), plugin["fix"]


@pytest.fixture(scope="module")
def all_at_once(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Every broken plugin in one environment."""
    folder = tmp_path_factory.mktemp("evil")
    return Machine(install((*BROKEN, *ABSENT), folder / "site"), folder / "cache")


@pytest.fixture(scope="module")
def first_run(all_at_once: Machine) -> dict[str, Any]:
    return all_at_once.run_model()


@pytest.fixture(scope="module")
def listed(all_at_once: Machine, first_run: dict[str, Any]) -> list[dict[str, Any]]:
    return all_at_once.plugins("list", "--load", status=0)


@pytest.fixture(scope="module")
def examined(all_at_once: Machine) -> list[dict[str, Any]]:
    return all_at_once.plugins("doctor", status=1)


def test_models_run_on_the_cpu_and_the_failures_are_logged(first_run: dict[str, Any]) -> None:
    for evil in BROKEN:
        if evil.state == "failed":
            assert f"plugin {evil.entry_name} ({evil.distribution} 1.0) has failed: " in first_run["stderr"]
    for evil in ABSENT:
        if evil.state == "unavailable":  # expected on most machines, so it is quiet
            assert evil.name not in first_run["stderr"]


@pytest.mark.parametrize("evil", [*BROKEN, *ABSENT], ids=lambda evil: evil.name)
def test_the_list_names_culprit_class_and_fix(evil: Evil, listed: list[dict[str, Any]]) -> None:
    plugin = of(evil, listed)
    assert plugin["state"] == evil.state
    check_reason_and_fix(evil, plugin)


@pytest.mark.parametrize("evil", [*BROKEN, *ABSENT], ids=lambda evil: evil.name)
def test_the_doctor_names_culprit_class_and_fix(evil: Evil, examined: list[dict[str, Any]]) -> None:
    plugin = of(evil, examined)
    assert plugin["status"] == ("unavailable" if evil.state == "unavailable" else "failed")
    check_reason_and_fix(evil, plugin)


def test_the_healthy_stay_healthy(listed: list[dict[str, Any]], examined: list[dict[str, Any]]) -> None:
    for name in ("cpu_numpy", "fake_gpu"):
        assert next(plugin["state"] for plugin in listed if plugin["name"] == name) == "active"
        assert next(plugin["status"] for plugin in examined if plugin["name"] == name) == "ok"


def test_verdicts_are_remembered(all_at_once: Machine, listed: list[dict[str, Any]]) -> None:
    tried = [plugin for plugin in listed if plugin["rehearsal"]]
    assert len(tried) > 10
    assert all(plugin["rehearsal"].startswith("remembered from") for plugin in tried)


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "evils"), list(groups()), ids=[entry for entry, _ in groups()])
def test_each_alone_installed_by_pip(entry: str, evils: tuple[Evil, ...], tmp_path: Path) -> None:
    machine = Machine(pip_install(evils, tmp_path / "site"), tmp_path / "cache")
    machine.run_model()
    found = machine.plugins("list", "--load", status=0)
    status = 2 if evils[0].state == "unavailable" else 1
    examined = machine.plugins("doctor", entry, status=status)
    for evil in evils:
        check_reason_and_fix(evil, of(evil, found))
        check_reason_and_fix(evil, of(evil, examined))


@pytest.mark.parametrize("evil", ALL, ids=lambda evil: evil.name)
def test_the_wheels_are_sound(evil: Evil, tmp_path: Path) -> None:
    compile(evil.source, evil.name, "exec")
    compile(evil.info_source, evil.name, "exec")
    assert build_wheel(evil, tmp_path).name == f"{evil.name}-1.0-py3-none-any.whl"


def negation() -> Graph:
    b = Builder()
    x = b.input("x", "float32", (3,))
    return b.graph((x,), {"y": b.Neg(x)})


@pytest.mark.parametrize("evil", SUBTLE, ids=lambda evil: evil.name)
def test_the_subtle_ones_load(evil: Evil) -> None:
    registry = PluginRegistry.from_modules({"cpu_numpy": aicore_cpu_numpy.plugin, evil.name: load_module(evil)})
    assert registry.plugin(evil.name).state is State.ACTIVE
    assert registry.device("evil").name == "evil"


def test_the_subtle_ones_do_what_they_are_for() -> None:
    x = np.array([1, -2, 3], np.float32)
    results = {}
    for evil in SUBTLE:
        registry = PluginRegistry.from_modules({"cpu_numpy": aicore_cpu_numpy.plugin, evil.name: load_module(evil)})
        program = aicore.compile(negation(), target="evil", registry=registry, fallback="quiet")
        operand = x.copy()
        results[evil.name] = (program(x=operand)["y"].tolist(), operand.tolist(), str(program.placement))
    assert results["evil_wrong_numbers"] == ([0, 3, -2], [1, -2, 3], "evil_wrong_numbers 1/1 nodes")
    assert results["evil_mutating"] == ([-1, 2, -3], [0, 0, 0], "evil_mutating 1/1 nodes")
    assert results["evil_nothing"][::2] == ([-1, 2, -3], "evil_nothing 0/1 nodes; 1 -> cpu_numpy [Neg: no kernel]")
    assert named("evil_nothing") in SUBTLE
