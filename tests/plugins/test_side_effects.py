"""What a plugin's import leaves behind in a process: noticed in the child, before a program is left with it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import importlib_metadata
import pytest

from aicore.plugins import State, child_process, host_state
from aicore.plugins.child_report import Report, read_report, started
from aicore.plugins.doctor import Diagnosis, examine
from aicore.plugins.endings import Ending
from aicore.plugins.states import PluginRecord
from tests.plugins.conftest import TRANSFORM_PLUGIN

HEAD = "import atexit, os, signal, sys, threading, time\nimport numpy as np\n"


@pytest.fixture
def installed(environment: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The fake environment, to which the examination of distributions is confined too."""
    real = importlib_metadata.distributions
    monkeypatch.setattr(importlib_metadata, "distributions", lambda: real(path=[str(environment.folder)]))
    return environment


def diagnosed(installed: Any, code: str, timeout: float = 60) -> Diagnosis:
    """What the doctor says of a transform plugin that runs this code at its import."""
    installed.install("odd", f"{HEAD}{code}\n{TRANSFORM_PLUGIN}")
    (diagnosis,) = examine(installed.rehearsing(timeout)).plugins
    return diagnosis


def activated(environment: Any, code: str, timeout: float = 60) -> PluginRecord:
    """The record of such a plugin after a program asked for the plugins in use."""
    environment.install("odd", f"{HEAD}{code}\n{TRANSFORM_PLUGIN}")
    (record,) = environment.registry(environment.rehearsing(timeout)).activate().records
    return record  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("code", "effects"),
    [
        ("os.chdir('/')", "changes the working directory"),
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "changes the handler of SIGINT"),
        ("os.umask(0o077)", "changes the umask"),
        ("sys.stdout = None", "changes sys.stdout"),
        ("sys.excepthook = print", "changes sys.excepthook"),
        ("sys.setrecursionlimit(5000)", "changes the recursion limit"),
        ("np.seterr(all='raise')", "changes NumPy's handling of floating-point errors"),
        ("os.environ['AICORE_TARGET'] = 'npu'", "changes AICORE_ variables"),
        ("import logging; logging.basicConfig()", "changes the root logger"),
        ("atexit.register(os._exit, 9)", "ends it with status 9"),
        ("atexit.register(os.abort)", "makes the process crash with SIGABRT at its end"),
    ],
)
def test_the_doctor_names_what_is_left_changed(installed: Any, code: str, effects: str) -> None:
    found = diagnosed(installed, code)
    assert (found.status, found.finding, found.reason) == ("ok", "side effects", f"loading it {effects}")
    assert found.fix.startswith("pip install --upgrade dist-odd, or tell its authors")


def test_an_import_that_only_defines_things_has_no_side_effects(installed: Any) -> None:
    found = diagnosed(installed, "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()")
    assert (found.status, found.finding, found.reason) == ("ok", "", "")


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("os.close(1); os.close(2)", "file descriptor 1, file descriptor 2"),
        ("np.maximum = None", "numpy.maximum"),
        ("np.minimum = np.fmin", "numpy.minimum"),
        ("sys.setrecursionlimit(100)", "the recursion limit"),
        ("np.maximum = None; raise ValueError('and so on')", "numpy.maximum"),
    ],
)
def test_damage_is_refused(environment: Any, code: str, what: str) -> None:
    record = activated(environment, code)
    assert (record.state, record.finding) == (State.FAILED, "side effects")
    assert record.reason == f"loading it changes {what}, which the program and other plugins need"
    assert not environment.imported()


def test_what_fails_beside_another_is_said_with_the_other_s_side_effects(installed: Any) -> None:
    installed.install("a_spoiler", f"import numpy as np\nnp.seterr(all='raise')\n{TRANSFORM_PLUGIN}")
    hook = TRANSFORM_PLUGIN.replace("return []", "return [][int(np.float32(1e-30) * np.float32(1e-30)):]")
    installed.install("victim", f"import numpy as np\n{hook}")
    spoiler, victim = examine(installed.rehearsing()).plugins
    assert (spoiler.status, spoiler.finding) == ("ok", "side effects")
    assert victim.status == "failed"
    assert victim.reason.startswith("register_ops raised FloatingPointError: ")
    assert victim.reason.endswith(
        "; beside it, a_spoiler: loading it changes NumPy's handling of floating-point errors"
    )


def test_a_thread_that_keeps_a_process_from_ending_is_a_hang(environment: Any) -> None:
    record = activated(environment, "threading.Thread(target=time.sleep, args=(3600,), name='busy').start()", 3)
    assert (record.state, record.finding) == (State.FAILED, "hang")
    assert record.reason.startswith("a process that has loaded it does not end within 3 s: the thread 'busy' runs on")
    assert not environment.imported()


def test_a_thread_that_ends_in_time_is_none(environment: Any) -> None:
    assert activated(environment, "threading.Thread(target=time.sleep, args=(0.5,)).start()").state is State.ACTIVE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no such call on this system")
@pytest.mark.parametrize("then", ["", "if not COPY: raise ValueError('the copy')", "if COPY: os.waitpid(COPY, 0)"])
def test_a_copy_of_the_process_that_goes_on_is_refused(environment: Any, then: str) -> None:
    record = activated(environment, f"COPY = os.fork()\n{then}")
    assert (record.state, record.finding) == (State.FAILED, "side effects")
    assert record.reason == "its import makes a copy of the process (os.fork), which goes on beside it"
    assert not environment.imported()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no such call on this system")
def test_a_copy_that_ends_is_the_plugin_s_own_business(installed: Any) -> None:
    found = diagnosed(installed, "COPY = os.fork()\nif not COPY: time.sleep(0.3); os._exit(3)")
    assert (found.status, found.finding) == ("ok", "")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no such files on this system")
def test_a_copy_that_leaves_the_group_is_named_and_ended(installed: Any, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        f"if not os.fork():\n    os.setsid()\n    open({str(pid)!r}, 'w').write(str(os.getpid()))\n    time.sleep(3600)"
    )
    found = diagnosed(installed, code)
    assert (found.status, found.finding) == ("failed", "side effects")
    assert found.reason == "it leaves a copy of the process (os.fork) that outlives it and keeps its files open"
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid.read_text()}").exists() and " Z " not in Path(f"/proc/{pid.read_text()}/stat").read_text():
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.05)


@pytest.mark.parametrize(
    "code",
    [
        "for i in range(3, 60):\n    try: os.write(i, b'\\xff\\n5\\n[1]\\n{}\\n')\n    except OSError: pass",
        "os.closerange(3, 200)",
        "import json; json.dumps = None",
        "sys.stdout = sys.stderr = 5",
    ],
)  # fmt: skip
def test_nothing_that_a_plugin_does_to_descriptors_and_modules_spoils_its_report(environment: Any, code: str) -> None:
    environment.install("odd", f"{HEAD}{code}\n{TRANSFORM_PLUGIN}")
    from tests.plugins.test_rehearsal import UNTRIED, candidate_of

    (report,) = child_process.run_children({"odd": [candidate_of(environment, "odd", UNTRIED)]}, 60).values()
    assert (report.ending, report.outcome) == (Ending.RETURNED, "loaded")


FORGED = {
    "bytes": b"\xff\xfe\n",
    "a number": b"5\n",
    "a list": b"[1]\n",
    "an empty object": b"{}\n",
    "a step that is no text": b'{"step": 7}\n',
    "an unknown outcome": b'{"outcome": "splendid"}\n',
    "an outcome that is a list": b'{"outcome": []}\n',
    "no devices": b'{"outcome": "loaded"}\n',
    "devices that are a number": b'{"outcome": "loaded", "devices": 5}\n',
    "an unknown fact": b'{"outcome": "loaded", "devices": [], "colour": "red"}\n',
    "records without states": b'{"outcome": "loaded", "records": [{"name": "a"}], "contested": []}\n',
    "a contest of one": b'{"outcome": "loaded", "records": [], "contested": [["a"]]}\n',
    "a deep list": b"[" * 100_000 + b"\n",
    "a fork that is a text": b'{"fork": "me"}\n',
    "a copy without a step": b'{"back": [1]}\n',
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_report_that_the_plugin_wrote_into_is_a_verdict(environment: Any, forged: str) -> None:
    environment.install("odd", f"import gc, os\nfrom aicore.plugins.child_report import Report\n"
                        "(report,) = (o for o in gc.get_objects() if type(o) is Report)\n"
                        f"report._path.open('ab').write({FORGED[forged]!r})\n{TRANSFORM_PLUGIN}")  # fmt: skip
    record = environment.registry(environment.rehearsing()).activate().records[0]
    assert (record.state, record.finding) == (State.FAILED, "exit")
    assert record.reason.startswith("what the child process reports cannot be read, as if the plugin wrote into it")


def test_half_a_last_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "report"
    assert read_report(file).steps == []
    file.write_bytes(b'{"step": "its import"}\n{"step": "pro')
    assert read_report(file).steps == ["its import"]


def test_a_copy_is_known_by_number_and_start(tmp_path: Path) -> None:
    report = Report(str(tmp_path / "report"), 60)
    report._note_fork()
    assert read_report(tmp_path / "report").forks == [(os.getpid(), started(os.getpid()))]
    assert started(2**22 + 1) == 0


def test_workers_that_end_with_the_process_are_the_plugin_s_own_business(installed: Any) -> None:
    found = diagnosed(installed, "import multiprocessing\nPOOL = multiprocessing.get_context('fork').Pool(2)")
    assert (found.status, found.finding) == ("ok", "")


def test_a_plugin_that_asks_for_the_registry_is_told_so_in_the_child_as_well(installed: Any) -> None:
    found = diagnosed(installed, "import aicore.plugins; aicore.plugins.plugin_registry().devices()")
    assert (found.status, found.finding) == ("failed", "broken hook")
    assert found.reason == "a plugin asks for the registry while it is being loaded; its hooks must only return"


def test_the_state_of_a_process_is_the_same_when_nothing_happens() -> None:
    before = host_state.observe()
    assert host_state.changes(before, host_state.observe()) == []
    assert len(before) > 100
