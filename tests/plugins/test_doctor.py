"""The doctor: each plugin tried on its own, the healthy ones together, and defects of the environment."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import importlib_metadata
import pytest

from aicore.config import Config
from aicore.errors import ConfigError, PluginError
from aicore.plugins import State, child_process, discovery, doctor, surroundings
from aicore.plugins.child_process import ChildReport, run_children
from aicore.plugins.doctor import Diagnosis, Examination, examine
from aicore.plugins.endings import Ending
from aicore.plugins.surroundings import Problem, examine_surroundings
from tests.plugins.conftest import TRANSFORM_PLUGIN

KERNEL = """
from aicore import ops
from aicore.kernels import kernel
from aicore.plugins import hookimpl

@kernel(ops.Relu, device="cpu", variant="quick")
def relu_quick(op, x):
    return x

@hookimpl
def register_kernels():
    return [relu_quick]
"""


@pytest.fixture
def installed(environment: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The fake environment, to which the examination of distributions is confined too."""
    real = importlib_metadata.distributions

    def distributions(**context: Any) -> Any:
        return real(**{"path": [str(environment.folder)], **context})

    monkeypatch.setattr(importlib_metadata, "distributions", distributions)
    return environment


def by_name(examination: Examination) -> dict[str, Diagnosis]:
    return {diagnosis.record.name: diagnosis for diagnosis in examination.plugins}


def test_each_plugin_gets_its_class(installed: Any) -> None:
    installed.install_device("good", "npu")
    installed.install("deadly", "import ctypes; ctypes.string_at(0)")
    installed.install("broken", "import no_such_module")
    installed.install("skewed", "", info="kind='transform', api_version=9")
    installed.install("hinted", "raise OSError('libnpu')", info="kind='transform', fixes={'libnpu': 'get libnpu'}")
    installed.install("badly_said", "", info="kind='neither'")
    tried: list[str] = []
    examination = examine(installed.rehearsing(), done=tried.append)
    found = {name: (one.status, one.finding) for name, one in by_name(examination).items()}
    assert found == {
        "good": ("ok", ""),
        "deadly": ("failed", "crash"),
        "broken": ("failed", "import error"),
        "skewed": ("failed", "API skew"),
        "hinted": ("failed", "import error"),
        "badly_said": ("failed", "import error"),
    }
    assert examination.status == "failed"
    assert sorted(tried) == ["broken", "deadly", "good", "hinted"]
    assert by_name(examination)["good"].devices == ("npu",)
    assert by_name(examination)["hinted"].fix == "get libnpu"
    assert "import no_such_module" in by_name(examination)["broken"].details
    assert "Segmentation fault" in by_name(examination)["deadly"].details
    assert all(one.fix for one in examination.plugins if one.status != "ok")
    assert installed.imported() == set()


def test_an_absent_device_is_unavailable(installed: Any) -> None:
    probe = "from aicore.plugins import Probe, hookimpl\n@hookimpl\ndef probe(): return Probe(reason={!r}, fix={!r})\n"
    launch = "@hookimpl\ndef launch(plan): pass\n"
    installed.install("absent", probe.format("there is no npu", "") + launch)
    installed.install("old", probe.format("the driver 1.2 is too old", "get driver 2") + launch)
    examination = examine(installed.rehearsing())
    found = by_name(examination)
    assert examination.status == "unavailable"
    assert (found["absent"].status, found["absent"].finding) == ("unavailable", "no device")
    assert found["absent"].fix.startswith("connect the device and install its driver")
    assert (found["old"].status, found["old"].finding) == ("unavailable", "driver too old")
    assert found["old"].fix == "get driver 2"


def test_what_only_shows_together(installed: Any) -> None:
    installed.install("kernels_one", KERNEL)
    installed.install("kernels_two", KERNEL)
    installed.install_device("rival_one", "npu", priority=3)
    installed.install_device("rival_two", "npu:0", priority=3)
    installed.install_device("innocent", "tpu")
    found = by_name(examine(installed.rehearsing()))
    for name in ("kernels_one", "kernels_two"):
        assert (found[name].status, found[name].finding) == ("failed", "conflict")
        assert found[name].reason.startswith("kernel 'quick' of Relu on cpu is registered by kernels_one (")
    for name in ("rival_one", "rival_two"):
        assert (found[name].status, found[name].finding) == ("failed", "conflict")
        assert "is claimed with equal priority 3 by rival_one (" in found[name].reason
        assert found[name].fix == "set AICORE_DISABLE_PLUGINS to one of rival_one, rival_two"
    assert found["innocent"].status == "ok"


def test_a_named_plugin_meets_the_others(installed: Any) -> None:
    installed.install("kernels_one", KERNEL)
    installed.install("kernels_two", KERNEL)
    (diagnosis,) = examine(installed.rehearsing(), "kernels_two").plugins
    assert (diagnosis.record.name, diagnosis.finding) == ("kernels_two", "conflict")


def test_plugins_that_crash_together_are_a_defect_of_the_pair(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    installed.install_device("one", "npu")
    installed.install_device("two", "tpu")

    def run(jobs: Any, limit: float, *rest: Any) -> dict[str, ChildReport]:
        if all(len(group) == 1 for group in jobs.values()):
            return run_children(jobs, limit, *rest)
        return {name: ChildReport(Ending.CRASHED, "loading them together crashed with SIGSEGV") for name in jobs}

    monkeypatch.setattr(doctor, "run_children", run)
    examination = examine(installed.rehearsing())
    assert [one.status for one in examination.plugins] == ["ok", "ok"]
    (problem,) = examination.problems
    assert problem.finding == "crash"
    assert problem.reason == "each of one, two loads alone, but loading them together crashed with SIGSEGV"
    assert examination.status == "failed"


def test_a_repaired_plugin_is_used_again(installed: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    flag = installed.folder / "mended"
    installed.install("npu", f"import os\nif not os.path.exists({str(flag)!r}): os._exit(1)\n{TRANSFORM_PLUGIN}")
    config = installed.rehearsing()
    assert installed.registry(config).activate().records[0].state is State.FAILED
    flag.touch()  # not a file of the plugin: a driver was installed, for example
    assert installed.registry(config).activate().records[0].state is State.FAILED
    assert examine(config).status == "ok"
    assert installed.registry(config).activate().records[0].state is State.ACTIVE


def test_a_disabled_plugin_is_left_alone_unless_it_is_named(installed: Any) -> None:
    installed.install_device("npu", "npu")
    installed.install("deadly", "import os; os._exit(1)")
    config = installed.rehearsing(plugins=frozenset({"npu"}), disabled_plugins=frozenset({"deadly"}))
    found = by_name(examine(config))
    assert (found["deadly"].status, found["deadly"].reason) == ("disabled", "AICORE_DISABLE_PLUGINS lists it")
    assert examine(config).status == "ok"
    (named,) = examine(config, "deadly").plugins
    assert (named.status, named.finding) == ("failed", "exit")


def test_names_that_are_not_installed(installed: Any) -> None:
    with pytest.raises(PluginError, match="no plugin 'npu' is installed; installed plugins: none"):
        examine(installed.rehearsing(), "npu")
    with pytest.raises(ConfigError, match="AICORE_PLUGINS names 'npu'"):
        examine(Config(plugins=frozenset({"npu"})))


def test_without_plugins_nothing_can_run(installed: Any) -> None:
    assert examine(installed.rehearsing()) == Examination(())
    assert Examination(()).status == "failed"


def test_a_child_that_cannot_start_is_said(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    installed.install_device("npu", "npu")
    script = installed.folder / "child.py"
    script.write_text("import no_such_module")
    monkeypatch.setattr(child_process, "_SCRIPT", script)
    (diagnosis,) = examine(installed.rehearsing()).plugins
    assert (diagnosis.status, diagnosis.finding) == ("failed", "not tried")
    assert "No module named 'no_such_module'" in diagnosis.reason
    assert not installed.cache.exists()


OUR_ENTRY = "[console_scripts]\naicore = aicore.cli:main\n"


def test_a_foreign_aicore_is_named(installed: Any) -> None:
    installed.add_dist_info("aicore", "Name: AIcore\nVersion: 3.2\n", "[console_scripts]\naicore = aicore.main:cli\n")
    (problem,) = examine_surroundings()
    assert problem.finding == "foreign aicore"
    assert problem.reason == f"a distribution aicore 3.2 of another project is installed in {installed.folder}"
    assert problem.fix.startswith("pip uninstall aicore, then from a checkout of this project: pip install . ")


def test_our_own_aicore_is_not_foreign(installed: Any) -> None:
    installed.add_dist_info("aicore", "Name: aicore\nVersion: 0.1.0\n", OUR_ENTRY)
    installed.add_dist_info("cupy-cuda12x", "Name: cupy_cuda12x\nVersion: 13\n", "")
    installed.add_dist_info("ruin", None, "")
    assert examine_surroundings() == []


def test_two_cupy_wheels_are_named(installed: Any) -> None:
    for name in ("cupy-cuda11x", "cupy-cuda12x", "cupy-like"):
        installed.add_dist_info(name, f"Name: {name}\nVersion: 13.0\n", "")
    (problem,) = examine_surroundings()
    assert problem.finding == "two CuPy wheels"
    assert problem.reason.startswith("cupy-cuda11x and cupy-cuda12x are installed")
    assert problem.fix == "pip uninstall --yes cupy-cuda11x cupy-cuda12x && pip install cupy-cuda12x"


def test_a_plugin_that_fails_for_the_environment_says_so(installed: Any) -> None:
    installed.add_dist_info("aicore", "Name: aicore\nVersion: 3.2\n", "[console_scripts]\naicore = aicore.main:cli\n")
    for name in ("cupy-cuda11x", "cupy-cuda12x"):
        installed.add_dist_info(name, f"Name: {name}\nVersion: 13.0\n", "")
    installed.install("skewed", "from aicore.kernels import no_such_name")
    installed.install("gpu", "raise ImportError('array')", requires="cupy-cuda12x>=13")
    installed.install("other", "raise ImportError('array')")
    examination = examine(installed.rehearsing())
    found = by_name(examination)
    assert found["skewed"].finding == "foreign aicore"
    assert found["skewed"].reason.startswith("a distribution aicore 3.2 of another project is installed")
    assert "cannot import name 'no_such_name'" in found["skewed"].reason
    assert found["gpu"].finding == "two CuPy wheels"
    assert found["gpu"].fix.startswith("pip uninstall --yes cupy-cuda11x cupy-cuda12x")
    assert found["other"].finding == "import error"
    assert [problem.finding for problem in examination.problems] == ["foreign aicore", "two CuPy wheels"]


@pytest.mark.parametrize(
    ("requirements", "uses"),
    [(["cupy-cuda12x>=13"], True), (["CuPy"], True), (["cupyx-extras", "numpy"], False), ([], False)],
)
def test_who_uses_cupy(requirements: list[str], uses: bool) -> None:
    assert surroundings.uses_cupy(requirements) == uses


@pytest.mark.parametrize(
    ("statuses", "problems", "worst"),
    [
        (["ok", "ok"], (), "ok"),
        (["ok", "disabled"], (), "ok"),
        (["ok", "unavailable"], (), "unavailable"),
        (["unavailable", "failed"], (), "failed"),
        (["ok"], (Problem("foreign aicore", "", ""),), "failed"),
    ],
)
def test_the_worst_decides(statuses: list[Any], problems: tuple[Problem, ...], worst: str) -> None:
    record = discovery.PluginRecord("npu", "dist", "1")
    assert Examination(tuple(Diagnosis(record, status) for status in statuses), problems).status == worst


def test_a_module_cannot_be_tried_in_a_child(tmp_path: Path) -> None:
    record = discovery.PluginRecord("npu", "dist", "1")
    with pytest.raises(ValueError, match="is given as a module"):
        run_children({"npu": [discovery.Candidate(record, dict)]}, 1)
