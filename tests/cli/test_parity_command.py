"""`aicore parity`: columns, rows, files, and what it says of targets that are not here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import aicore_cpu_numpy.plugin
from aicore.cli import main
from aicore.plugins import PluginInfo, PluginRegistry, Probe, hookimpl
from aicore.plugins import registry as registry_module
from tests import onnx_models as models
from tests.testing import backends
from tests.testing.backends import backend

Run = Callable[..., tuple[int, str, str]]
OPS = ("--ops", "Relu,Add", "--dtypes", "float32")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call `aicore parity`; its status and what it prints."""

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(["parity", *arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend beside the CPU whose Relu is wrong in one place."""
    monkeypatch.setattr(registry_module, "_discovered", lambda: backend([backends.relu_wrong]))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "mixed.onnx"
    file.write_bytes(models.mixed())
    return file


def test_targets_beside_each_other(run: Run) -> None:
    status, out, err = run(*OPS, "--targets", "cpu:reference,cpu:fast,fake,tpu")
    assert (status, err) == (0, "")
    assert "cpu:reference  score 100.0%: " in out
    assert "tpu            not used" in out
    assert "no plugin drives device 'tpu'" in out
    assert "nothing is wrong; the largest relative errors:" in out


def test_every_usable_device_by_default(run: Run) -> None:
    _, out, _ = run("--ops", "Det", "--dtypes", "float32", "--json")
    assert {"cpu", "fake"} <= {column["name"] for column in json.loads(out)["columns"]}


@pytest.mark.usefixtures("wrong")
def test_what_is_wrong_ends_with_status_1(run: Run) -> None:
    status, out, _ = run(*OPS, "--targets", "cpu,npu")
    assert status == 1
    assert "rows are wrong" in out
    assert "failed: Relu-float32-0: 1 of 30 elements are wrong; [0, 0, 3] is" in out


def test_json_is_for_scripts(run: Run) -> None:
    status, out, err = run(*OPS, "--targets", "cpu:reference,fake", "--json")
    data: Any = json.loads(out)
    assert (status, err, data["right"]) == (0, "", True)
    assert {row["name"] for row in data["rows"]} == {"Relu", "Add"}
    assert {row["dtype"] for row in data["rows"]} == {"float32"}
    cell = data["rows"][0]["cells"]["fake"]
    assert (cell["outcome"], cell["versus"]["wrong"]) == ("passed", 0)


def test_a_page(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "parity.html"
    status, out, _ = run(*OPS, "--targets", "cpu", "--html", str(page))
    assert status == 0
    assert f"wrote {page}" in out
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_two_machines(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "there.npz"
    assert run(*OPS, "--targets", "fake", "--save", str(file))[0] == 0
    status, out, _ = run(*OPS, "--targets", "cpu:reference", "--against", str(file), "--json")
    data = json.loads(out)
    assert status == 0
    assert [(column["name"], column["source"]) for column in data["columns"]] == [
        ("cpu:reference", ""),
        ("fake@there", "there"),
    ]
    assert data["rows"][0]["cells"]["fake@there"]["versus"]["wrong"] == 0


def test_a_model_node_by_node(run: Run, model: Path) -> None:
    status, out, _ = run(str(model), "--targets", "cpu,fake", "--shape", "batch=2")
    assert status == 0
    assert "mixed.onnx" not in out.splitlines()[0]
    assert "cpu: no node diverges; the largest relative error, " in out
    _, out, _ = run(str(model), "--targets", "cpu,fake", "--json")
    rows = json.loads(out)["rows"]
    assert rows[0]["kind"] == "model"
    assert len(rows) > 1


def test_a_model_that_is_wrong_leaves_a_repro(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = backend([backends.relu_raising])
    monkeypatch.setattr(registry_module, "_discovered", lambda: registry)
    status, out, _ = run(str(model), "--targets", "npu", "--repro", str(tmp_path / "repros"))
    assert status == 1
    assert "npu: first divergent node: " in out
    assert "npu: to blame: Relu" in out
    script = tmp_path / "repros" / "npu" / "replay.py"
    assert f"wrote {script}" in out
    assert script.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ops", "Convolve"), "no op matches 'Convolve'"),
        (("--ops", "Relu,Nope"), "no op matches 'Nope'"),
        (("--ops", "Relu", "--dtypes", "string"), "no case is left by --ops 'Relu' --dtypes string"),
        (("--ops", "Relu", "--dtypes", "float32,flaot16"), "no element type is called 'flaot16'"),
        (("--ops", "Relu", "--repro", "x"), "--repro is for a model, and none is given"),
        (("--ops", "Relu", "--shape", "x=1"), "--shape is for a model, and none is given"),
        (("--ops", "Relu", "--input", "x.npz"), "--input is for a model, and none is given"),
        (("--ops", "Relu", "--against", "nowhere.npz"), "nowhere.npz is no saved matrix that can be read"),
        (("--ops", "Relu", "--html", "no/such/folder.html"), "no/such/folder.html cannot be written"),
        (("nowhere.onnx",), "nowhere.onnx"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], message: str, run: Run) -> None:
    status, _, err = run("--targets", "cpu", *arguments)
    assert status == 2
    assert message in err


def test_a_target_without_a_device_is_a_column_that_says_so(run: Run) -> None:
    _, out, _ = run(*OPS, "--targets", "cpu, :fast, cpu:slow")
    assert "target ':fast' is none; write a device such as cpu or cuda:0" in out
    assert "no kernel on cpu is called 'slow'" in out


@pytest.mark.parametrize("names", ["nosuch", "nosuch,cqu", ":fast", "c p u"])
def test_targets_that_are_all_unknown_are_an_error(names: str, run: Run, model: Path) -> None:
    for what in (OPS, (str(model),)):
        status, out, err = run(*what, "--targets", names)
        assert (status, out) == (2, "")
        assert f"no installed plugin has a target {names.split(',')[0]!r}" in err
        assert "; there are: cpu, fake" in err


def test_no_target_at_all_is_an_error(run: Run) -> None:
    status, _, err = run(*OPS, "--targets", " , ")
    assert status == 2
    assert "--targets names none; there are: cpu, fake" in err


def test_one_target_under_several_names_runs_once(run: Run) -> None:
    _, out, _ = run(*OPS, "--targets", "cpu,cpu:0,CPU,cpu:fast,cpu:0:fast", "--json")
    assert [column["name"] for column in json.loads(out)["columns"]] == ["cpu", "cpu:fast"]


def test_where_nothing_could_be_compared_the_status_is_2(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    absent = tmp_path / "absent"
    registry = absent_npu()
    monkeypatch.setattr(registry_module, "_discovered", lambda: registry)
    status, out, err = run(*OPS, "--targets", "npu", "--save", str(absent))
    assert status == 2
    assert "nothing was compared" in out
    assert "nothing is wrong" not in out
    assert (
        "nothing was compared, as no target could be used: npu: device 'npu' cannot be used: plugin npu_backend" in err
    )
    status, out, _ = run(*OPS, "--targets", "npu,cpu")
    assert status == 0
    assert "no npu is here" in out


def test_a_file_without_a_common_case_is_an_error(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "there.npz"
    assert run("--ops", "Neg", "--dtypes", "float32", "--targets", "fake", "--save", str(file))[0] == 0
    status, out, err = run(*OPS, "--targets", "cpu", "--against", str(file))
    assert status == 2
    assert "there has no results for" in out
    assert "there has no result for any of these" in err


def absent_npu() -> PluginRegistry:
    """The CPU, and a plugin for a device that is not here."""

    @hookimpl
    def probe() -> Probe:
        return Probe(reason="no npu is here")

    @hookimpl
    def launch(plan: Any) -> Any:
        raise NotImplementedError

    info = PluginInfo("device", devices=("npu",))
    npu = SimpleNamespace(__name__="npu_backend", INFO=info, probe=probe, launch=launch)
    return PluginRegistry.from_modules({"cpu_numpy": aicore_cpu_numpy.plugin, "npu_backend": npu})
