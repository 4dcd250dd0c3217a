"""`aicore demo` with a client that stands in for magika: it too imports onnxruntime and knows nothing of aicore."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aicore.cli import main
from aicore.cli.demo_command import _own_files
from tests import onnx_models as models

CLIENT = """
from dataclasses import dataclass
from pathlib import Path
import numpy as np
import onnxruntime as rt

@dataclass
class Output:
    label: str

@dataclass
class Result:
    output: Output
    score: float

class Magika:
    def __init__(self):
        rt.disable_telemetry_events()
        self._onnx_session = rt.InferenceSession(
            Path(__file__).with_name("model.onnx"), providers=["CPUExecutionProvider"]
        )

    def identify_paths(self, paths):
        return [self._identify(path) for path in paths]

    def _identify(self, path):
        size = np.array([path.stat().st_size, -1], np.float32)
        (y,) = self._onnx_session.run(["y"], {"x": size})
        assert y.tolist() == [size[0], 0]
        return Result(Output(LABEL), np.float32(0.75))
"""
LABEL_BY_SUFFIX = "path.suffix.lstrip('.')"
LABEL_BY_DEVICE = "self._onnx_session.get_providers()[0]"

Output = Callable[..., tuple[int, str, str]]


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        status = main(["demo", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install the client, with this expression for a file's label."""

    def install(label: str) -> None:
        package = tmp_path / "clients" / "magika"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(CLIENT.replace("LABEL", label))
        (package / "model.onnx").write_bytes(models.bare())
        monkeypatch.syspath_prepend(str(package.parent))

    return install


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = [tmp_path / "notes.md", tmp_path / "[bold]tool[/].py"]
    for file in made:
        file.parent.mkdir(exist_ok=True)
        file.write_text("text")
    return made


def test_every_target_identifies_every_file(output: Output, client: Any, files: list[Path]) -> None:
    client(LABEL_BY_SUFFIX)
    before = sys.modules.get("onnxruntime")
    status, out, err = output(*files)
    assert (status, err) == (0, "")
    for word in ("type on cpu", "type on fake", "notes.md", "[bold]tool[/].py", "0.7500", "yes"):
        assert word in out
    for target, plugin in (("cpu", "cpu_numpy"), ("fake", "fake_gpu")):
        assert f"{target}: 2 files in " in out
        assert f"{plugin} 1/1 nodes" in out
    assert "2 of 2 files: the targets agree; largest difference of a probability 0.0e+00" in out
    assert sys.modules.get("onnxruntime") is before
    assert "magika" not in sys.modules


def test_json_is_for_scripts(output: Output, client: Any, files: list[Path]) -> None:
    client(LABEL_BY_SUFFIX)
    status, out, err = output(*files, "--json", "--target", "fake")
    assert (status, err) == (0, "")
    answer = json.loads(out)
    assert answer["files"] == [str(file) for file in files]
    assert answer["agree"] == [True, True]
    (run,) = answer["runs"]
    assert run["target"] == "fake"
    assert run["answers"] == [{"label": label, "probability": 0.75} for label in ("md", "py")]
    assert run["seconds"] > 0


def test_targets_that_disagree_are_status_1(output: Output, client: Any, files: list[Path]) -> None:
    client(LABEL_BY_DEVICE)
    status, out, _ = output(*files)
    assert status == 1
    assert "0 of 2 files: the targets agree" in out
    assert "NO" in out
    status, out, _ = output(*files, "--json")
    assert (status, json.loads(out)["agree"]) == (1, [False, False])


@pytest.mark.skipif(importlib.util.find_spec("magika") is not None, reason="magika is installed")
def test_without_the_client_it_says_how_to_get_it(output: Output, files: list[Path]) -> None:
    status, out, err = output(*files)
    assert (status, out) == (2, "")
    assert err.startswith("aicore: error: the demo needs the magika client")
    assert err.count("\n") == 1
    for word in ("make demo", "pip install --no-deps magika==1.0.3"):
        assert word in err


def test_a_broken_client_is_not_taken_for_a_missing_one(
    output: Output, tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "clients" / "magika"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import a_module_that_is_not_there")
    monkeypatch.syspath_prepend(str(package.parent))
    status, _, err = output(*files)
    assert status == 2
    assert "a_module_that_is_not_there" in err


def test_files_and_targets_that_are_not_there(output: Output, tmp_path: Path, files: list[Path]) -> None:
    assert output(tmp_path / "nowhere")[::2] == (2, f"aicore: error: {tmp_path}/nowhere is not a file\n")
    status, _, err = output(*files, "--target", "npu")
    assert status == 2
    assert "npu" in err


def test_its_own_files_are_of_several_kinds_and_written_by_people() -> None:
    files = _own_files()
    assert 8 <= len(files) <= 32
    assert len({file.suffix or file.name for file in files}) >= 5
    assert not any(".egg-info" in part or part.startswith(".venv") for file in files for part in file.parts)
