"""Rehearsal: what a plugin does to a process, it does to a child process first, and only once."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aicore.config import Config
from aicore.errors import PluginError
from aicore.plugins import State, child_process
from aicore.plugins.endings import Ending
from aicore.plugins.fingerprint import fingerprint
from aicore.plugins.rehearsal import rehearse
from aicore.plugins.verdicts import Verdict, VerdictCache
from tests.plugins.conftest import TRANSFORM_PLUGIN

UNTRIED = Config(plugin_timeout=0)

DEADLY = {
    "crash": ("import ctypes; ctypes.string_at(0)", r"its import crashed with SIGSEGV at .*plugin\.py, line 1"),
    "exit": ("import os; os._exit(7)", r"its import ended the process with status 7"),
    "exit without a fault": ("import os; os._exit(0)", r"its import ended the process with status 0"),
    "SystemExit": ("raise SystemExit('enough')", r"its import raised SystemExit: enough"),
}


@pytest.fixture(autouse=True)
def _expect_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


@pytest.fixture
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, starting a child process is an error."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a child process was started")

    monkeypatch.setattr(child_process, "run_children", refuse)


def candidate_of(environment: Any, name: str, config: Config) -> Any:
    from aicore.plugins import discovery

    discovery._scan.cache_clear()
    return next(c for c in discovery.discover(config) if c.record.name == name)


def test_a_healthy_plugin_is_tried_once_and_then_remembered(
    environment: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    environment.install_device("good", "npu")
    config = environment.rehearsing()
    record = environment.registry(config).plugin("good")
    assert (record.state, record.rehearsal) == (State.ACTIVE, "tried now: it was not tried yet")
    request.getfixturevalue("no_children")
    again = environment.registry(config).plugin("good")
    assert again.state is State.ACTIVE
    assert again.rehearsal.startswith("remembered from 20")
    assert again.to_json()["rehearsal"] == again.rehearsal


@pytest.mark.parametrize("how", DEADLY)
def test_what_would_end_this_process_is_never_imported_here(
    environment: Any, how: str, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    source, reason = DEADLY[how]
    environment.install("bad", source, info="kind='device', devices=('npu',)")
    environment.install_device("good", "cpu")
    config = environment.rehearsing()
    for _ in range(2):
        registry = environment.registry(config)
        assert registry.device("cpu").name == "cpu"
        with pytest.raises(PluginError, match=f"plugin bad .dist-bad 1.5. has failed: {reason}") as caught:
            registry.device("npu")
        assert "fix: pip install --force-reinstall dist-bad, then `aicore plugins doctor bad`" in str(caught.value)
        assert str(caught.value).endswith("AICORE_DISABLE_PLUGINS=bad goes on without it")
        assert not any(name.startswith("dist_bad") for name in environment.imported())
        request.getfixturevalue("no_children")  # the second time, the verdict is remembered
    assert registry.records[0].finding == ("crash" if how == "crash" else "exit")
    assert registry.records[0].seconds > 0
    assert len(caplog.messages) == 2


def test_hanging_ends_at_the_limit_and_says_where(environment: Any) -> None:
    environment.install("bad", "import time\n\ntime.sleep(3600)")
    started = time.monotonic()
    (record,) = environment.registry(environment.rehearsing(1.5)).activate().records
    assert time.monotonic() - started < 60
    assert (record.state, record.finding) == (State.FAILED, "hang")
    assert record.reason.startswith("its import did not end within 1.5 s at ")
    assert record.reason.endswith("plugin.py, line 3")
    assert "AICORE_PLUGIN_TIMEOUT=120" in record.fix


def test_a_hook_that_hangs_is_named(environment: Any) -> None:
    source = "from aicore.plugins import hookimpl\n@hookimpl\ndef register_ops():\n    while True: pass\n"
    environment.install("bad", source)
    (record,) = environment.registry(environment.rehearsing(1.5)).activate().records
    assert record.reason.startswith("register_ops did not end within 1.5 s at ")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are POSIX")
@pytest.mark.parametrize("last", ["time.sleep(3600)", "", "os._exit(1)"])
def test_processes_that_a_plugin_starts_neither_block_nor_outlive_it(environment: Any, last: str) -> None:
    # The grandchild keeps stdout open: one who waits for the end of the output would wait for it.
    environment.install(
        "bad",
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        f"open({str(environment.folder)!r} + '/pid', 'w').write(str(child.pid))\n{last}",
    )
    started = time.monotonic()
    rehearsals = rehearse([candidate_of(environment, "bad", UNTRIED)], environment.rehearsing(5))
    assert time.monotonic() - started < 60
    assert rehearsals["bad"].verdict.passed == (not last)
    wait_for_the_end(int((environment.folder / "pid").read_text()))


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are POSIX")
def test_an_interrupt_ends_the_children(environment: Any) -> None:
    environment.install("hanging", f"import os, time\nopen({str(environment.folder)!r} + '/pid', 'w').write"
                        "(str(os.getpid()))\ntime.sleep(3600)")  # fmt: skip
    pid_file = environment.folder / "pid"
    environment.install("quick", f"import os, time\nwhile not os.path.exists({str(pid_file)!r}): time.sleep(0.01)")

    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    jobs = {name: [candidate_of(environment, name, UNTRIED)] for name in ("hanging", "quick")}
    with pytest.raises(KeyboardInterrupt):
        child_process.run_children(jobs, 100, interrupt)
    wait_for_the_end(int(pid_file.read_text()))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends a process with its parent")
def test_a_killed_parent_takes_a_child_that_loops_with_it(environment: Any) -> None:
    pid_file = environment.folder / "pid"
    environment.install(
        "bad",
        "import os\n"
        f"open({str(pid_file)!r} + '.new', 'w').write(str(os.getpid()))\n"
        f"os.replace({str(pid_file)!r} + '.new', {str(pid_file)!r})\n"
        "while True: pass\n",
    )
    code = "from aicore.plugins import plugin_registry\nplugin_registry().activate()"
    settings = {
        "PYTHONPATH": str(environment.folder),
        "AICORE_CACHE_DIR": str(environment.cache),
        "AICORE_PLUGIN_TIMEOUT": "3600",
    }
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **settings})
    try:
        deadline = time.monotonic() + 120
        while not pid_file.exists():
            assert parent.poll() is None, "the parent ended before the plugin's import began"
            assert time.monotonic() < deadline, "the plugin's import never began"
            time.sleep(0.05)
        child = int(pid_file.read_text())
        assert _runs(child)
    finally:
        parent.kill()
        parent.wait()
    wait_for_the_end(child)


def wait_for_the_end(pid: int) -> None:
    deadline = time.monotonic() + 20
    while _runs(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_exception_passes_and_is_raised_here_with_its_cause(environment: Any) -> None:
    environment.install("bad", "raise OSError('libnpu.so.2')", info="kind='device', devices=('npu',)")
    registry = environment.registry(environment.rehearsing())
    for _ in range(2):
        with pytest.raises(PluginError, match=r"its import raised OSError: libnpu\.so\.2") as caught:
            registry.plugin("bad")
        assert isinstance(caught.value.__cause__.__cause__, OSError)
    assert registry.records[0].rehearsal == "tried now: it was not tried yet"


def test_an_absent_device_passes(environment: Any, caplog: pytest.LogCaptureFixture) -> None:
    source = "from aicore.plugins import Probe, hookimpl\n@hookimpl\ndef probe(): return Probe(reason='no npu')\n"
    environment.install("npu", source + "@hookimpl\ndef launch(plan): pass\n")
    (record,) = environment.registry(environment.rehearsing()).activate().records
    assert (record.state, record.finding, record.reason) == (State.UNAVAILABLE, "no device", "no npu")
    assert caplog.messages == []


def test_an_edit_makes_the_verdict_void(environment: Any) -> None:
    environment.install("mended", "import os; os._exit(1)")
    config = environment.rehearsing()
    assert environment.registry(config).activate().records[0].state is State.FAILED
    (environment.folder / "dist_mended_package" / "plugin.py").write_text(TRANSFORM_PLUGIN)
    (record,) = environment.registry(config).activate().records
    assert (record.state, record.rehearsal) == (State.ACTIVE, "tried now: changed since it was tried: files")


def test_a_longer_limit_gives_a_slow_plugin_another_chance(environment: Any) -> None:
    environment.install("slow", f"import time; time.sleep(2)\n{TRANSFORM_PLUGIN}")
    assert environment.registry(environment.rehearsing(0.5)).activate().records[0].finding == "hang"
    (record,) = environment.registry(environment.rehearsing(60)).activate().records
    assert record.state is State.ACTIVE
    assert record.rehearsal == "tried now: it did not end within 0.5 s, but may take 60 s now"


def test_no_rehearsal_when_the_limit_is_zero(environment: Any, no_children: None) -> None:
    environment.install_device("good", "npu")
    record = environment.registry(environment.rehearsing(0)).plugin("good")
    assert (record.rehearsal, environment.cache.exists()) == ("", False)


def test_a_plugin_that_asks_for_the_registry_starts_no_further_children(environment: Any) -> None:
    source = "from aicore.plugins import plugin_registry\nplugin_registry().activate()\n"
    environment.install("curious", source)
    reports = rehearse([candidate_of(environment, "curious", UNTRIED)], environment.rehearsing())
    assert reports["curious"].verdict.ending is Ending.RETURNED


def test_output_of_a_plugin_stays_in_the_child(environment: Any, capfd: pytest.CaptureFixture[str]) -> None:
    environment.install("loud", "import sys; print('hello'); print('there', file=sys.stderr); raise SystemExit")
    environment.registry(environment.rehearsing()).activate()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (sys, "executable", "/no/such/python"),
        (sys, "executable", ""),
        (sys, "executable", None),
        (tempfile, "tempdir", "/no/such/folder"),
    ],
)
def test_a_child_that_cannot_start_is_no_fault_of_the_plugin(
    environment: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    module: Any, name: str, value: str | None,
) -> None:  # fmt: skip
    environment.install_device("good", "npu")
    monkeypatch.setattr(module, name, value)
    config = environment.rehearsing()
    record = environment.registry(config).plugin("good")
    assert (record.state, record.rehearsal) == (State.ACTIVE, "")
    about_info, message = caplog.messages
    assert about_info.startswith("the info module of plugin good is executed without a rehearsal: the child process")
    assert message.startswith("plugin good (dist-good 1.5) is used without a rehearsal: the child process cannot start")
    assert not environment.cache.exists()


def test_a_child_that_ends_before_it_begins_is_no_fault_of_the_plugin(
    environment: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script = environment.folder / "child.py"
    script.write_text("raise SystemExit('this Python is broken')")
    monkeypatch.setattr(child_process, "_SCRIPT", script)
    environment.install_device("good", "npu")
    assert environment.registry(environment.rehearsing()).plugin("good").state is State.ACTIVE
    assert caplog.messages[0].endswith("ended before it touched the plugin: this Python is broken")


def test_a_cache_that_cannot_be_written_is_said_and_stops_nothing(
    environment: Any, caplog: pytest.LogCaptureFixture
) -> None:
    environment.install_device("good", "npu")
    environment.cache.write_text("a file")
    assert environment.registry(environment.rehearsing()).plugin("good").state is State.ACTIVE
    (message,) = caplog.messages
    assert message.startswith("verdicts on plugins cannot be kept in ")
    assert message.endswith("fix: set AICORE_CACHE_DIR to a folder that can be written")


def a_verdict(ending: Ending = Ending.RETURNED, limit: float = 30.0) -> Verdict:
    return Verdict(ending, "", limit, 1.25, "2026-01-02T03:04:05+00:00")


KEY = {"plugin": "npu", "module": "npu.plugin", "distribution": "npu 1", "python": "3.11 /here", "files": "abc"}


def test_a_verdict_survives_the_file(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path / "plugins")
    assert cache.find(KEY, 30) is None
    assert cache.keep(KEY, a_verdict()) == ""
    assert cache.find(KEY, 30) == a_verdict()
    assert (cache.hits, cache.misses) == (1, {"npu": "it was not tried yet"})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is damaged: JSONDecodeError"),
        (b"\x80\x04\x95", "is damaged: UnicodeDecodeError"),
        (b"[1, 2]", "is damaged: TypeError"),
        (b"null", "is damaged: TypeError"),
        (b"{}", "is damaged: KeyError: 'format'"),
        (b'{"format": 1}', "its format is 1, not 3"),
        (b'{"format": 3, "key": {}, "verdict": {}}', "is damaged: KeyError"),
        (b'{"format": 3, "key": [], "verdict": {}}', "is damaged"),
        (b" " * (1 << 17), "it is too large"),
        (b"[" * 60000, "is damaged: RecursionError"),
    ],
)
def test_a_damaged_file_is_a_miss_with_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    cache = VerdictCache(tmp_path)
    cache.keep(KEY, a_verdict())
    (path,) = tmp_path.glob("*.json")
    path.write_bytes(content)
    assert cache.find(KEY, 30) is None
    assert reason in cache.misses["npu"]
    assert str(path) in cache.misses["npu"]
    cache.keep(KEY, a_verdict())
    assert cache.find(KEY, 30) == a_verdict()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ending", "sang"),
        ("ending", None),
        ("ending", []),
        ("ending", "not started"),
        ("reason", 1),
        ("limit", "30"),
        ("limit", 10**400),
        ("limit", True),
        ("limit", -1),
        ("limit", float("nan")),
        ("taken", float("inf")),
        ("taken", None),
        ("time", ["now"]),
    ],
)
def test_a_tampered_field_is_a_miss(tmp_path: Path, field: str, value: Any) -> None:
    cache = VerdictCache(tmp_path)
    cache.keep(KEY, a_verdict())
    (path,) = tmp_path.glob("*.json")
    content = json.loads(path.read_text())
    content["verdict"][field] = value
    path.write_text(json.dumps(content))
    assert cache.find(KEY, 30) is None
    assert "is damaged" in cache.misses["npu"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files on this system")
def test_a_pipe_in_the_file_s_place_is_a_miss(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    cache.keep(KEY, a_verdict())
    (path,) = tmp_path.glob("*.json")
    path.unlink()
    os.mkfifo(path)
    assert cache.find(KEY, 30) is None
    assert "is damaged: JSONDecodeError" in cache.misses["npu"]


@pytest.mark.parametrize("limit", [1e-9, 1e12])
def test_no_limit_keeps_a_child_from_starting(environment: Any, limit: float) -> None:
    environment.install("good", TRANSFORM_PLUGIN)
    (report,) = rehearse([candidate_of(environment, "good", UNTRIED)], environment.rehearsing(limit)).values()
    assert report.verdict.ending is (Ending.RETURNED if limit > 1 else Ending.HUNG)


def test_two_processes_that_try_a_plugin_at_once_both_use_it(environment: Any) -> None:
    environment.install("good", f"import time; time.sleep(0.3)\n{TRANSFORM_PLUGIN}", info="kind='transform'")
    code = "from aicore.plugins import plugin_registry\nprint(plugin_registry().plugin('good').state)"
    settings = {"PYTHONPATH": str(environment.folder), "AICORE_CACHE_DIR": str(environment.cache)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["active\n"] * 3
    files = [path.name for path in (environment.cache / "plugins").iterdir()]
    assert not [name for name in files if not name.endswith(".json")]  # no temporary file is left
    record = environment.registry(environment.rehearsing()).plugin("good")
    assert record.rehearsal.startswith("remembered from ")


def test_other_files_of_the_same_version_are_tried_anew(environment: Any) -> None:
    environment.install("swapped", TRANSFORM_PLUGIN, info="kind='transform', summary='old'")
    config = environment.rehearsing()
    assert environment.registry(config).plugin("swapped").info.summary == "old"
    package = environment.folder / "dist_swapped_package"
    for file in (*package.glob("*.py"), *package.rglob("*.pyc")):
        file.unlink()
    (package / "plugin.py").write_text("import os; os._exit(1)")
    (package / "__init__.py").write_text("")
    (package / "info.py").write_text(
        "from aicore.plugins import PluginInfo\nINFO = PluginInfo('transform', summary='new')"
    )
    record = environment.registry(config).activate().records[0]
    assert (record.state, record.finding, record.info.summary) == (State.FAILED, "exit", "new")
    assert record.rehearsal == "tried now: changed since it was tried: files"


def test_a_folder_in_the_file_s_place_is_a_miss(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    cache.keep(KEY, a_verdict())
    (path,) = tmp_path.glob("*.json")
    path.unlink()
    path.mkdir()
    assert cache.find(KEY, 30) is None
    assert "cannot be read: Is a directory" in cache.misses["npu"]
    assert cache.keep(KEY, a_verdict()).startswith("IsADirectoryError")


@pytest.mark.parametrize("field", sorted(set(KEY) - {"plugin", "python"}))
def test_another_key_is_a_miss_that_names_what_changed(tmp_path: Path, field: str) -> None:
    cache = VerdictCache(tmp_path)
    cache.keep(KEY, a_verdict())
    assert cache.find({**KEY, field: "another"}, 30) is None
    assert cache.misses["npu"] == f"changed since it was tried: {field}"


def test_environments_do_not_share_files(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    cache.keep(KEY, a_verdict())
    elsewhere = {**KEY, "python": "3.12 /there"}
    assert cache.find(elsewhere, 30) is None
    cache.keep(elsewhere, a_verdict(Ending.CRASHED))
    assert cache.find(KEY, 30) == a_verdict()
    assert cache.find(elsewhere, 30) == a_verdict(Ending.CRASHED)


def test_a_name_leads_out_of_no_folder(tmp_path: Path) -> None:
    VerdictCache(tmp_path / "plugins").keep({**KEY, "plugin": "../../up/" + "x" * 300}, a_verdict())
    (path,) = tmp_path.rglob("*.json")
    assert path.parent == tmp_path / "plugins"


def test_the_cache_folder_is_the_users_or_the_configured_one(tmp_path: Path) -> None:
    assert VerdictCache.of(Config(cache_dir=tmp_path)).folder == tmp_path / "plugins"
    assert VerdictCache.of(Config()).folder.parts[-2:] == ("aicore", "plugins")


def test_writers_and_readers_at_once_see_whole_files(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    cache.keep(KEY, a_verdict(limit=0))

    def work(number: int) -> None:
        own = VerdictCache(tmp_path)
        for i in range(50):
            assert own.keep(KEY, a_verdict(limit=float(100 * number + i))) == ""
            assert own.find(KEY, 0) is not None, own.misses

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]  # no temporary file is left


def test_a_fingerprint_sees_versions_files_and_requirements(environment: Any) -> None:
    environment.install_device("npu", "npu", requires="aicore>=0.1\nRequires-Dist: some-driver; extra == 'test'")
    key = fingerprint(candidate_of(environment, "npu", UNTRIED).item)
    assert key["distribution"] == "dist-npu 1.5"
    assert key["requirements"] == ""
    dist_info = environment.folder / "dist_npu-1.5.dist-info"
    metadata = (dist_info / "METADATA").read_text()
    (dist_info / "METADATA").write_text(metadata + "Requires-Dist: some-driver>=2; python_version > '3'\n")
    absent = fingerprint(candidate_of(environment, "npu", UNTRIED).item)
    assert absent["requirements"] == "some-driver absent"
    environment.add_dist_info("some-driver", "Name: some-driver\nVersion: 2.5\n", "")
    assert fingerprint(candidate_of(environment, "npu", UNTRIED).item)["requirements"] == "some-driver 2.5"
    package = environment.folder / "dist_npu_package"
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "plugin.cpython-311.pyc").write_text("")
    assert fingerprint(candidate_of(environment, "npu", UNTRIED).item)["files"] == key["files"]
    (package / "native").mkdir()
    (package / "native" / "engine.so").write_text("")
    changed = fingerprint(candidate_of(environment, "npu", UNTRIED).item)["files"]
    assert changed != key["files"]
    (package / "native" / "engine.so").write_text("longer")
    assert fingerprint(candidate_of(environment, "npu", UNTRIED).item)["files"] != changed


def test_a_fingerprint_sees_listed_files_outside_the_package(environment: Any) -> None:
    environment.install_device("npu", "npu")
    (environment.folder / "engine.so").write_text("1")
    (environment.folder / "dist_npu-1.5.dist-info" / "RECORD").write_text("engine.so,,\ngone.so,,\n")
    before = fingerprint(candidate_of(environment, "npu", UNTRIED).item)["files"]
    (environment.folder / "engine.so").write_text("22")
    assert fingerprint(candidate_of(environment, "npu", UNTRIED).item)["files"] != before


@pytest.mark.parametrize("module", ["single_module", "a_namespace.part.plugin", "no_such_module", "json.decoder"])
def test_a_fingerprint_of_any_layout(environment: Any, module: str) -> None:
    (environment.folder / "single_module.py").write_text("")
    part = environment.folder / "a_namespace" / "part"
    part.mkdir(parents=True)
    (part / "plugin.py").write_text(TRANSFORM_PLUGIN)
    environment.add_dist_info("odd", "Name: odd\nVersion: 1\n", f"[aicore.plugins]\nodd = {module}\n")
    before = fingerprint(candidate_of(environment, "odd", UNTRIED).item)
    assert before == fingerprint(candidate_of(environment, "odd", UNTRIED).item)
    (environment.folder / "single_module.py").write_text("changed")
    (part / "plugin.py").write_text("changed")
    after = fingerprint(candidate_of(environment, "odd", UNTRIED).item)
    assert (before == after) == (module in {"no_such_module", "json.decoder"})


def test_importing_aicore_and_listing_again_need_no_child(tmp_path: Path) -> None:
    code = (
        "import re, sys, aicore, aicore.plugins\n"
        "assert 'subprocess' not in sys.modules\n"
        "assert not any(name.startswith('aicore.plugins.') for name in sys.modules), sys.modules\n"
        "aicore.plugins.plugin_registry().records\n"
        "print('aicore.plugins.child_process' in sys.modules, any(map(re.compile('aicore_cpu').match, sys.modules)))\n"
    )
    environment = {**os.environ, "AICORE_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    first, again = (subprocess.check_output(command, env=environment, text=True, timeout=60) for _ in range(2))
    assert (first.split(), again.split()) == (["True", "False"], ["False", "False"])
