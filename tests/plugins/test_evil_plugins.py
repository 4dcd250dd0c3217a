"""With any plugin broken in any way, models still run on the CPU, and the culprit, its class and the fix are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
import aicore_cpu_numpy.plugin
from aicore.ir import Builder, Graph
from aicore.plugins import PluginRegistry, State
from tests.evil_plugins.catalogue import ABSENT, ALL, BROKEN, SUBTLE, Evil, groups, named
from tests.evil_plugins.wheels import build_wheel, install, load_module, pip_install
from tests.plugins.machine import Machine


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


def test_without_loading_the_list_shows_what_metadata_and_info_tell(
    all_at_once: Machine, listed: list[dict[str, Any]]
) -> None:
    found = all_at_once.plugins("list", status=0)
    for evil in (*BROKEN, *ABSENT):
        early = evil.name.startswith("evil_info") or evil.entry == "evil_twin" or evil.state == "incompatible"
        assert of(evil, found)["state"] == (evil.state if early else "compatible"), evil.name
        if early:
            check_reason_and_fix(evil, of(evil, found))


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
