"""Info modules: executed in a child process first, and then remembered, so that they cannot harm this process."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from aicore.config import Config
from aicore.plugins import PluginInfo, State, child_process, discovery, info_rehearsal
from aicore.plugins.distributions import Entry
from aicore.plugins.doctor import examine
from aicore.plugins.states import PluginRecord
from aicore.plugins.verdicts import VerdictCache
from tests.plugins.conftest import TRANSFORM_PLUGIN

BEFORE = "kind='transform', fixes={'libnpu': 'get it'}, summary='A test.')\n"


@pytest.fixture
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, starting a child process is an error."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a child process was started")

    monkeypatch.setattr(child_process, "read_in_children", refuse)


def found(environment: Any, config: Config) -> PluginRecord:
    """The record of the only plugin, as a new process would find it."""
    discovery._scan.cache_clear()
    (candidate,) = discovery.discover(config)
    return candidate.record


def info_file(environment: Any, name: str = "npu") -> Path:
    path: Path = environment.folder / f"dist_{name}_package" / "info.py"
    return path


def test_info_is_read_once_elsewhere_and_then_remembered(
    environment: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    mark = tmp_path / "executions"
    environment.install("npu", "", info=f"{BEFORE}open({str(mark)!r}, 'a').write('.'")
    config = environment.rehearsing()
    first = found(environment, config)
    assert (first.state, first.kind, first.info.summary) == (State.COMPATIBLE, "transform", "A test.")
    request.getfixturevalue("no_children")
    assert found(environment, config) == first
    assert first.info.fix_for("no libnpu.so") == "get it"
    assert mark.read_text() == "."
    assert environment.imported() == set()


@pytest.mark.parametrize(
    ("code", "finding", "reason"),
    [
        ("__import__('os')._exit(0)", "exit", "ended the process with status 0"),
        ("__import__('ctypes').string_at(0)", "crash", "crashed with SIGSEGV at "),
        ("__import__('os').abort()", "crash", "crashed with SIGABRT at "),
        ("exec('raise SystemExit(4)')", "exit", "raised SystemExit: 4"),
        ("exec('raise KeyboardInterrupt')", "import error", "raised KeyboardInterrupt: "),
        ("exec('import no_such_module')", "import error", "raised ModuleNotFoundError: No module named"),
        ("exec('from aicore.plugins.info import Colour')", "API skew", "raised ImportError: cannot import name"),
    ],
)
def test_what_would_harm_this_process_is_not_executed_here(
    environment: Any, code: str, finding: str, reason: str, request: pytest.FixtureRequest
) -> None:
    environment.install("npu", "", info=f"{BEFORE}({code}")
    config = environment.rehearsing()
    for _ in range(2):
        record = found(environment, config)
        assert (record.state, record.finding, record.info) == (State.FAILED, finding, None)
        assert record.reason.startswith(f"its info module dist_npu_package.info:INFO {reason}")
        assert record.fix.endswith("AICORE_DISABLE_PLUGINS=npu goes on without it")
        request.getfixturevalue("no_children")  # the second time, the verdict is remembered


def test_hanging_ends_at_the_limit_and_a_longer_one_is_another_chance(environment: Any) -> None:
    environment.install("npu", "", info=f"{BEFORE}__import__('time').sleep(2.5")
    record = found(environment, environment.rehearsing(0.5))
    assert (record.state, record.finding) == (State.FAILED, "hang")
    assert "did not end within 0.5 s at " in record.reason
    assert "AICORE_PLUGIN_TIMEOUT=120" in record.fix
    assert found(environment, environment.rehearsing(60)).state is State.COMPATIBLE


def test_a_disabled_plugin_is_not_even_asked(environment: Any, no_children: None) -> None:
    environment.install("npu", "", info=f"{BEFORE}exec('raise SystemExit(4)'")
    assert found(environment, environment.rehearsing(disabled_plugins=frozenset({"npu"}))).state is State.DISABLED


def test_an_edit_of_the_module_makes_the_verdict_void(environment: Any) -> None:
    environment.install("npu", "", info="kind='neither'")
    config = environment.rehearsing()
    assert found(environment, config).state is State.FAILED
    info_file(environment).write_text("from aicore.plugins import PluginInfo\nINFO = PluginInfo('transform')\n")
    assert found(environment, config).state is State.COMPATIBLE


def test_the_doctor_asks_again_and_what_it_finds_is_remembered(environment: Any) -> None:
    flag = environment.folder / "mended"
    environment.install("npu", TRANSFORM_PLUGIN, info=f"{BEFORE}__import__('os').path.exists({str(flag)!r}) or exit(1")
    config = environment.rehearsing()
    (broken,) = examine(config, "npu").plugins
    assert (broken.status, broken.finding) == ("failed", "exit")
    flag.touch()
    assert found(environment, config).state is State.FAILED
    assert examine(config, "npu").status == "ok"
    assert found(environment, config).state is State.COMPATIBLE


@pytest.mark.parametrize("info", [{"kind": "neither"}, {}, [], "transform", {"kind": "transform", "colour": 1}])
def test_a_remembered_info_that_is_none_is_a_miss(environment: Any, info: Any) -> None:
    environment.install("npu", "", info="kind='transform'")
    config = environment.rehearsing()
    first = found(environment, config)
    (path,) = (environment.cache / "plugins").glob("npu-*-info.json")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "verdict": {**content["verdict"], "info": info}}))
    cache = VerdictCache.of(config, "-info")
    assert cache.find(content["key"], 30) is None
    assert "is damaged" in cache.misses["npu"]
    assert found(environment, config) == first


def test_without_rehearsal_info_is_read_here_and_stops_nothing(environment: Any, no_children: None) -> None:
    environment.install("npu", "", info=f"{BEFORE}exec('raise SystemExit(4)'")
    record = found(environment, environment.rehearsing(0))
    assert (record.state, record.finding) == (State.FAILED, "exit")
    assert record.reason == "its info module dist_npu_package.info:INFO raised SystemExit: 4"


def test_an_interrupt_while_info_is_read_here_is_the_users(environment: Any) -> None:
    environment.install("npu", "", info=f"{BEFORE}exec('raise KeyboardInterrupt'")
    with pytest.raises(KeyboardInterrupt):
        found(environment, environment.rehearsing(0))


def test_where_no_child_can_start_info_is_read_here_and_it_is_said(
    environment: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    environment.install("npu", "", info="kind='transform'")
    monkeypatch.setattr("sys.executable", "/no/such/python")
    assert found(environment, environment.rehearsing()).kind == "transform"
    (message,) = caplog.messages
    assert message.startswith("the info module of plugin npu is executed without a rehearsal: the child process cannot")


def test_a_module_that_is_nowhere_has_a_fingerprint(environment: Any) -> None:
    environment.install("npu", "", info="kind='transform'")
    (item,) = discovery.installed(discovery.INFOS)
    assert info_rehearsal._fingerprint("npu", item)["file"].startswith(str(info_file(environment)))
    for value in ("__main__.info:INFO", "no_such_package.info", "not a module!"):
        entry = Entry("npu", value, discovery.INFOS)
        assert info_rehearsal._fingerprint("npu", item._replace(entry=entry))["file"] == "absent"


def test_info_survives_json() -> None:
    info = PluginInfo("device", 3, ("npu", "dsp"), -2, ("an NPU",), MappingProxyType({"no npu": "buy one"}), "It runs.")
    plain = json.loads(json.dumps(info.to_json()))
    assert PluginInfo.from_json(plain) == PluginInfo(
        "device", 3, ("npu", "dsp"), -2, ("an NPU",), {"no npu": "buy one"}, "It runs."
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"devices": "npu"}, "devices is 'npu'; give a tuple of texts"),
        ({"devices": ("npu", 1)}, "devices is "),
        ({"requirements": "an NPU"}, "requirements is 'an NPU'; give a tuple of texts"),
        ({"priority": "high"}, "priority is 'high'; give an integer"),
        ({"priority": True}, "priority is True; give an integer"),
        ({"api_version": 1.0}, "api_version is 1.0; give an integer"),
        ({"fixes": ("no npu", "buy one")}, "fixes is .*; give a dict from text to text"),
        ({"fixes": {"no npu": None}}, "fixes is .*; give a dict from text to text"),
        ({"summary": None}, "summary is None; give a text"),
    ],
)
def test_a_field_of_another_type_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        PluginInfo(**{"kind": "device", "devices": ("npu",), **fields})
