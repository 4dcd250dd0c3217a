"""`aicore plugins new` writes a package, says what to do next, and leaves nothing behind when it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

INFO = "kind='device', devices=('npu',)"


def test_it_writes_and_says_what_to_do_next(command_line: Any, tmp_path: Path) -> None:
    result = command_line("plugins", "new", "my_npu", "--output", str(tmp_path))
    assert (result.status, result.err) == (0, "")
    folder = tmp_path / "my_npu"
    assert result.out.startswith(f"{folder}: 17 files of plugin my_npu, device my_npu, Apache-2.0. Next:\n")
    commands = [line.strip() for line in result.out.splitlines()[2:]]
    assert [command.split()[:3] for command in commands] == [
        ["python", "-m", "pip"],
        ["aicore", "plugins", "list"],
        ["aicore", "run", "MODEL.onnx"],
        ["python", "-m", "pytest"],
    ]
    assert commands[0].endswith(f"-e '{folder}[test]'")
    assert (folder / "src" / "my_npu" / "launcher.py").is_file()


def test_options_and_json(command_line: Any, tmp_path: Path) -> None:
    options = ["--device", "tpu", "--native", "--license", "MIT", "--author", "A. Author", "--json"]
    result = command_line("plugins", "new", "My.Npu", "-o", str(tmp_path), *options)
    answer = json.loads(result.out)
    assert {key: answer[key] for key in ("plugin", "distribution", "device")} == {
        "plugin": "my_npu",
        "distribution": "my-npu",
        "device": "tpu",
    }
    folder = Path(answer["folder"])
    assert folder == tmp_path / "My.Npu"
    assert sorted(answer["files"]) == sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )
    assert "csrc/add_relu.cpp" in answer["files"]
    assert "A. Author" in (folder / "LICENSE").read_text()
    assert "--aicore-target tpu" in answer["commands"]["test"]


def test_a_transform_has_no_launcher(command_line: Any, tmp_path: Path) -> None:
    result = command_line("plugins", "new", "tail", "--transform", "--output", str(tmp_path))
    assert result.status == 0
    assert "plugin tail, a transform" in result.out
    assert not (tmp_path / "tail" / "src" / "tail" / "launcher.py").exists()


def test_what_cannot_be_is_refused_in_one_line(command_line: Any, install: Any, tmp_path: Path) -> None:
    install("npu", "raise SystemExit('imported')", INFO)
    refused = {
        ("npu",): "plugin npu (dist-npu 1.5) is installed already; choose another name",
        ("my_npu", "--device", "npu"): "device 'npu' is launched by plugin npu (dist-npu 1.5)",
        ("class",): "'class' would be the module 'class', which Python cannot import",
        ("my_npu", "--license", "GPL"): "there is no text for licence 'GPL'",
        ("my_npu", "--transform", "--device", "x"): "a transform plugin launches no device",
    }
    for arguments, message in refused.items():
        result = command_line("plugins", "new", *arguments, "--output", str(tmp_path / "out"))
        assert (result.status, result.out) == (2, "")
        assert result.err.startswith("aicore: error: ")
        assert message in result.err
    assert not (tmp_path / "out").exists()


def test_the_help_needs_none_of_it(command_line: Any) -> None:
    result = command_line("plugins", "new", "--help")
    assert result.status == 0
    assert "--transform" in result.out
    assert result.modules & {"jinja2", "numpy", "aicore.plugins.new"} == set()
    assert "jinja2" not in command_line("plugins", "list").modules
