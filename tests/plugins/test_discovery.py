"""Discovery: what is installed, and which of it fits, with nothing imported."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from aicore.config import Config
from aicore.errors import ConfigError
from aicore.plugins import State, discovery
from aicore.plugins.discovery import COMMANDS, PLUGINS, core_version, installed
from aicore.plugins.registry import plugin_registry


def record_of(environment: Any, name: str, config: Config | None = None) -> Any:
    return next(record for record in environment.registry(config).records if record.name == name)


def test_nothing_installed(environment: Any) -> None:
    assert environment.registry().records == ()


def test_a_compatible_plugin_is_listed_and_not_imported(environment: Any) -> None:
    environment.install_device("cpu_a", "cpu", priority=3, init="raise SystemExit('imported')")
    record = record_of(environment, "cpu_a")
    assert record.state is State.COMPATIBLE
    assert (record.distribution, record.version) == ("dist-cpu_a", "1.5")
    assert (record.kind, record.devices, record.priority) == ("device", ("cpu",), 3)
    assert record.to_json()["summary"] == "A cpu."
    assert environment.imported() == set()


def test_a_plugin_without_info_is_compatible(environment: Any) -> None:
    environment.install("plain", "")
    record = record_of(environment, "plain")
    assert (record.state, record.info, record.kind, record.devices) == (State.COMPATIBLE, None, "", ())


def test_the_environment_is_scanned_once(environment: Any) -> None:
    environment.install_device("cpu_a", "cpu")
    threads = [threading.Thread(target=installed, args=(PLUGINS,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    installed(COMMANDS)
    assert plugin_registry() is plugin_registry()
    assert plugin_registry().activate() is plugin_registry().activate()
    assert environment.scans == 1


@pytest.mark.parametrize(
    ("requires", "reason"),
    [
        ("aicore>=99", f"requires aicore>=99, but this is aicore {core_version()}"),
        ("AICORE<0.0.1", f"requires aicore<0.0.1, but this is aicore {core_version()}"),
    ],
)
def test_an_unmet_requirement_is_incompatible(environment: Any, requires: str, reason: str) -> None:
    environment.install_device("old", "cpu", requires=requires)
    record = record_of(environment, "old")
    assert (record.state, record.reason) == (State.INCOMPATIBLE, reason)
    assert record.fix.startswith("pip install --upgrade dist-old; or for aicore itself")
    assert environment.imported() == set()


@pytest.mark.parametrize(
    "requires", ["aicore", "numpy>=99", "aicore>=99; extra == 'test'", "aicore>=99; python_version < '3'", "not=valid="]
)
def test_other_requirements_do_not_matter(environment: Any, requires: str) -> None:
    environment.install_device("fine", "cpu", requires=requires)
    assert record_of(environment, "fine").state is State.COMPATIBLE


def test_another_api_version_is_incompatible(environment: Any) -> None:
    environment.install("skewed", "", info="kind='transform', api_version=7")
    record = record_of(environment, "skewed")
    assert record.state is State.INCOMPATIBLE
    assert record.reason.startswith("made for plugin API 7, but aicore")


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ("kind='other'", "ValueError: kind is 'other'; choose from device, transform"),
        ("kind='device'", "ValueError: a device plugin cannot have devices=()"),
        ("kind='transform', colour='red'", "unexpected keyword argument 'colour'"),
        ("kind='transform'), exit(3", "SystemExit: 3"),
        ("kind='transform'), 1, (2", "PluginError: expected a PluginInfo, got tuple"),
    ],
)
def test_a_bad_info_is_a_failure_of_that_plugin_alone(environment: Any, info: str, reason: str) -> None:
    environment.install("bad", "", info=info)
    environment.install_device("good", "cpu")
    record = record_of(environment, "bad")
    assert record.state is State.FAILED
    assert reason in record.reason
    assert record_of(environment, "good").state is State.COMPATIBLE


def test_a_missing_info_module_is_a_failure(environment: Any) -> None:
    environment.add_dist_info("gone", "Name: gone\nVersion: 1\n", "[aicore.plugins]\ng=os\n[aicore.plugin_info]\ng=g.i")
    assert record_of(environment, "g").reason == "its info module g.i raised PluginError: there is no module g.i"


def test_an_info_module_inside_namespace_packages_is_found(environment: Any) -> None:
    part = environment.folder / "a_namespace" / "part"
    part.mkdir(parents=True)
    (part / "info.py").write_text("from aicore.plugins.info import PluginInfo\nINFO = PluginInfo('transform')\n")
    entries = "[aicore.plugins]\nn = a_namespace.part.plugin\n[aicore.plugin_info]\nn = a_namespace.part.info:INFO"
    environment.add_dist_info("namespaced", "Name: namespaced\nVersion: 1\n", entries)
    assert record_of(environment, "n").kind == "transform"
    assert "a_namespace" not in sys.modules


@pytest.mark.parametrize("lies", ["a_namespace.part", "a_namespace.no_such.info", "a_namespace.part.info.deeper"])
def test_what_is_no_info_module_is_a_failure(environment: Any, lies: str) -> None:
    part = environment.folder / "a_namespace" / "part"
    part.mkdir(parents=True)
    (part / "info.py").write_text("")
    entries = f"[aicore.plugins]\nn = a_namespace.part.plugin\n[aicore.plugin_info]\nn = {lies}:INFO"
    environment.add_dist_info("namespaced", "Name: namespaced\nVersion: 1\n", entries)
    record = record_of(environment, "n")
    assert (record.state, record.finding) == (State.FAILED, "import error")
    assert record.reason == f"its info module {lies}:INFO raised PluginError: there is no module {lies}"


@pytest.mark.parametrize(
    ("requires", "fits"),
    [
        ("aicore>=0.1,<99", True),
        ("aicore >= 0.1.0", True),
        ("aicore (>=0.1)", True),
        ("aicore[all]>=0.1", True),
        ("aicore>=0.1; python_version > '3'", True),
        ("aicore~=0.1", True),
        ("aicore==0.1.*", True),
        ("aicore>=0.1,<0.1.0", False),
        ("aicore!=0.1.0", False),
        ("aicore>=1.0rc1", False),
        ("aicore_gpu>=99", True),
        ("aicore-gpu>=99", True),
        ("aicore.gpu>=99", True),
        ("aicorex>=99", True),
    ],
)
def test_requirements_are_read_as_pip_reads_them(environment: Any, requires: str, fits: bool) -> None:
    environment.install_device("npu", "npu", requires=requires)
    assert record_of(environment, "npu").state is (State.COMPATIBLE if fits else State.INCOMPATIBLE)


def test_a_half_removed_distribution_hides_no_other(environment: Any) -> None:
    environment.add_dist_info("ruin", None, "[aicore.plugins]\nruin = os")
    environment.install_device("good", "cpu")
    assert record_of(environment, "ruin").distribution == "unknown distribution"
    assert record_of(environment, "good").state is State.COMPATIBLE


def test_a_malformed_entry_point_hides_no_other(environment: Any) -> None:
    environment.add_dist_info("odd", "Name: odd\nVersion: 1\n", "[aicore.plugins]\nodd = not a module!\n")
    environment.install_device("good", "cpu")
    assert record_of(environment, "good").state is State.COMPATIBLE


def test_one_name_twice_fails_both_and_names_both_distributions(environment: Any) -> None:
    environment.install_device("cpu_a", "cpu", distribution="dist-one")
    environment.install_device("cpu_a", "cpu", distribution="dist-two")
    records = environment.registry().records
    assert [record.state for record in records] == [State.FAILED, State.FAILED]
    assert records[0].reason == "2 plugins have this name, of dist-one 1.5 and dist-two 1.5"
    assert "AICORE_DISABLE_PLUGINS=cpu_a" in records[0].fix


def test_selection_and_exclusion(environment: Any) -> None:
    for name in ("a", "b", "c"):
        environment.install_device(name, name)
    selected = Config(plugins=frozenset({"a", "b"}), disabled_plugins=frozenset({"b"}))
    records = environment.registry(selected).records
    assert [str(record.state) for record in records] == ["compatible", "disabled", "disabled"]
    assert [record.reason for record in records[1:]] == [
        "AICORE_DISABLE_PLUGINS lists it",
        "AICORE_PLUGINS does not list it",
    ]


@pytest.mark.parametrize(
    ("config", "variable"),
    [
        (Config(plugins=frozenset({"ghost"})), "AICORE_PLUGINS"),
        (Config(disabled_plugins=frozenset({"ghost"})), "AICORE_DISABLE_PLUGINS"),
    ],
)
def test_an_unknown_name_lists_the_installed_ones(environment: Any, config: Config, variable: str) -> None:
    with pytest.raises(ConfigError, match=f"^{variable} names 'ghost'; installed plugins: none$"):
        environment.registry(config)
    discovery._scan.cache_clear()
    environment.install_device("cpu_a", "cpu")
    with pytest.raises(ConfigError, match=r"installed plugins: cpu_a$"):
        environment.registry(config)
