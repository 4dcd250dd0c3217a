"""Whatever is wrong with a model or its inputs: exit status 2, one line that names it, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from aicore.cli import main
from tests import onnx_models as models
from tests.onnx_models import model, value

Failure = Callable[..., str]


@pytest.fixture
def failure(capsys: pytest.CaptureFixture[str]) -> Failure:
    """Run the command line, which must fail, and return its message."""

    def run(*arguments: str | Path) -> str:
        status = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert (status, out) == (2, "")
        assert err.startswith("aicore: error: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        return err.removeprefix("aicore: error: ").rstrip("\n")

    return run


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[bytes | ModelProto], Path]:
    def save(content: bytes | ModelProto) -> Path:
        path = tmp_path / "model.onnx"
        path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
        return path

    return save


@pytest.mark.parametrize("command", ["run", "inspect", "bench"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["is empty"]),
        (b"garbage", ["is no ONNX model, or is damaged"]),
        (b"\x08\x08", ["holds no graph"]),
        (models.mixed()[:-25], ["is no ONNX model, or is damaged"]),
        (models.mixed()[: len(models.mixed()) // 3], ["is no ONNX model, or is damaged"]),
    ],
    ids=["empty", "garbage", "no graph", "truncated", "cut to a third"],
)
def test_files_that_are_no_models(failure: Failure, saved: Any, command: str, content: bytes, words: list[str]) -> None:
    path = saved(content)
    message = failure(command, path)
    for word in (str(path), *words):
        assert word in message


@pytest.mark.parametrize("command", ["run", "inspect", "bench"])
def test_files_that_cannot_be_read(failure: Failure, tmp_path: Path, command: str) -> None:
    assert failure(command, tmp_path / "nowhere.onnx") == f"{tmp_path}/nowhere.onnx: there is no such file"
    assert failure(command, tmp_path) == f"{tmp_path}: is not a file"


def _relu(source: str, target: str, **more: Any) -> Any:
    return helper.make_node("Relu", [source], [target], name=f"relu_{target}", **more)


X, Y = value("x", shape=[2, 3]), value("y", shape=[2, 3])

BAD_GRAPHS: dict[str, tuple[ModelProto, list[str]]] = {
    "cycle": (model([_relu("b", "a"), _relu("a", "b"), _relu("x", "y")], [X], [Y]), ["cycle", "relu_"]),
    "undefined operand": (model([_relu("nowhere", "y")], [X], [Y]), ["relu_y", "'nowhere'", "not defined"]),
    "undefined output": (model([_relu("x", "a")], [X], [Y]), ["'y'", "not defined"]),
    "two nodes define a value": (model([_relu("x", "y"), _relu("x", "y")], [X], [Y]), ["relu_y", "'y'"]),
    "two inputs of one name": (model([_relu("x", "y")], [X, X], [Y]), ["'x'"]),
    "unknown op": (model([helper.make_node("NoSuchOp", ["x"], ["y"], name="odd")], [X], [Y]), ["NoSuchOp", "odd"]),
    "unknown domain": (
        model([helper.make_node("Relu", ["x"], ["y"], name="odd", domain="org.nowhere")], [X], [Y]),
        ["org.nowhere", "odd"],
    ),
    "missing required attribute": (
        model([helper.make_node("Concat", ["x", "x"], ["y"], name="join")], [X], [Y]), ["Concat", "join", "axis"],
    ),
    "unknown attribute": (model([_relu("x", "y", slope=1.0)], [X], [Y]), ["relu_y", "slope"]),
    "operands that contradict": (
        model([helper.make_node("MatMul", ["x", "x"], ["y"], name="fc")], [X], [Y]), ["MatMul", "fc", "(2, 3)"],
    ),
    "operands of two dtypes": (
        model([helper.make_node("Add", ["x", "i"], ["y"], name="sum")],
              [X, value("i", TensorProto.INT64, [3])], [Y]), ["Add", "sum", "int64"],
    ),
    "too few operands": (model([helper.make_node("Add", ["x"], ["y"], name="sum")], [X], [Y]), ["Add", "sum"]),
}  # fmt: skip


@pytest.mark.parametrize("command", ["run", "inspect", "bench"])
@pytest.mark.parametrize(("graph", "words"), BAD_GRAPHS.values(), ids=BAD_GRAPHS.keys())
def test_graphs_that_break_a_rule(
    failure: Failure, saved: Any, command: str, graph: ModelProto, words: list[str]
) -> None:
    message = failure(command, saved(graph))
    for word in words:
        assert word in message


@pytest.mark.parametrize(("field", "version"), [("opset", 999), ("opset", -1), ("ir", 999), ("ir", 1)])
def test_versions_that_cannot_be_read(failure: Failure, saved: Any, field: str, version: int) -> None:
    made = model([_relu("x", "y")], [X], [Y])
    if field == "ir":
        made.ir_version = version
    else:
        made.opset_import[0].version = version
    assert str(version) in failure("inspect", saved(made))


@pytest.fixture
def arrays(tmp_path: Path) -> Callable[..., list[str]]:
    """Save arrays and return the options that feed them."""

    def save(**given: Any) -> list[str]:
        options = []
        for name, array in given.items():
            np.save(tmp_path / f"{name}.npy", array)
            options += ["--input", f"{name}={tmp_path / name}.npy"]
        return options

    return save


GOOD = {"x": np.ones((2, 3), np.float32), "k": np.ones((1, 2), np.int64), "s": np.float32(1)}

BAD_FEEDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "wrong dtype": ({**GOOD, "x": np.ones((2, 3))}, ["'x'", "expected float32[batch,3]", "float64[2,3]"]),
    "wrong rank": ({**GOOD, "x": np.ones(3, np.float32)}, ["'x'", "expected float32[batch,3]", "float32[3]"]),
    "wrong dim": ({**GOOD, "x": np.ones((2, 4), np.float32)}, ["'x'", "expected float32[batch,3]", "4 where 3"]),
    "no such dtype": ({**GOOD, "x": np.array(["2020-01-01"], "M8[D]")}, ["'x'", "datetime64"]),
}


@pytest.mark.parametrize("command", ["run", "bench"])
@pytest.mark.parametrize(("given", "words"), BAD_FEEDS.values(), ids=BAD_FEEDS.keys())
def test_inputs_that_do_not_fit(
    failure: Failure, saved: Any, arrays: Any, command: str, given: dict[str, Any], words: list[str]
) -> None:
    message = failure(command, saved(models.mixed()), *arrays(**given))
    for word in words:
        assert word in message


def test_an_input_that_is_missing(failure: Failure, saved: Any, arrays: Any) -> None:
    message = failure("run", saved(models.mixed()), *arrays(x=GOOD["x"]))
    for word in ("inputs 'k' (int64[", "'s' (float32[])", "--input k=FILE.npy", "--random"):
        assert word in message


def test_an_input_that_the_model_has_not(failure: Failure, saved: Any, arrays: Any) -> None:
    message = failure("run", saved(models.mixed()), *arrays(**GOOD, w=GOOD["x"]))
    assert "w=" in message
    assert "its inputs: 'x' (" in message


def test_a_named_dim_of_two_sizes(failure: Failure, saved: Any, arrays: Any) -> None:
    inputs = [value("a", shape=["rows", 2]), value("b", shape=["rows", 2])]
    node = helper.make_node("Add", ["a", "b"], ["y"])
    path = saved(model([node], inputs, [value("y", shape=["rows", 2])]))
    message = failure("run", path, *arrays(a=np.ones((3, 2), np.float32), b=np.ones((4, 2), np.float32)))
    for word in ("'b'", "dim 'rows' is 4 here but 3 in input 'a'"):
        assert word in message
    ones = np.ones((1, 2), np.float32)  # would broadcast, but the model says that they are equal
    assert "'rows'" in failure("run", path, *arrays(a=np.ones((3, 2), np.float32), b=ones))


@pytest.mark.parametrize("target", ["cpu", "fake"])
@pytest.mark.parametrize("index", [3, -4, 2**62])
def test_an_index_out_of_range(failure: Failure, saved: Any, arrays: Any, target: str, index: int) -> None:
    options = arrays(x=np.ones((3, 3), np.float32), i=np.array([index]))
    message = failure("run", saved(models.gather()), *options, "--target", target)
    for word in ("Gather", "'y' (from pick)", str(index)):
        assert word in message


FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "cannot be read as .npy or .npz"),
    "garbage": (b"garbage", "cannot be read as .npy or .npz"),
    "truncated": (b"", "cannot be read as .npy or .npz"),
    "damaged archive": (b"PK\x03\x04garbage", "cannot be read as .npy or .npz"),
    "pickled": (b"", "cannot be read as .npy or .npz"),
}


@pytest.mark.parametrize("kind", FILES)
def test_array_files_that_are_damaged(failure: Failure, saved: Any, tmp_path: Path, kind: str) -> None:
    content, words = FILES[kind]
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    if kind == "truncated":
        np.save(path, GOOD["x"])
        path.write_bytes(path.read_bytes()[:-5])
    if kind == "pickled":
        np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    message = failure("run", saved(models.bare()), "--input", f"x={path}")
    assert message.startswith(str(path))
    assert words in message


def test_array_files_that_are_not_there(failure: Failure, saved: Any, tmp_path: Path) -> None:
    path = saved(models.bare())
    assert failure("run", path, "-i", "x=nowhere.npy") == "nowhere.npy: there is no such file"
    assert "cannot be read" in failure("run", path, "-i", f"x={tmp_path}")
    message = failure("run", path, "-i", "nowhere")
    assert message == "nowhere: there is no such file"


def _external(location: str, **entries: object) -> ModelProto:
    """y = x + w, with w in a file."""
    made = model([helper.make_node("Add", ["x", "w"], ["y"], name="sum")], [X], [Y])
    tensor = made.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(entry))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for the model, with good data in it, a secret beside it, and links to the secret."""
    inside = tmp_path / "inside"
    inside.mkdir()
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(12))
    (inside / "w.bin").write_bytes(np.ones(3, np.float32).tobytes())
    (inside / "link").symlink_to(secret)
    (inside / "folder").symlink_to(tmp_path)
    os.link(secret, inside / "hard")
    os.mkfifo(inside / "pipe")
    return inside


ATTACKS: dict[str, tuple[str, dict[str, object], str]] = {
    "parent": ("../secret", {}, "secret"),
    "parent in the middle": ("folder/../../secret", {}, "secret"),
    "absolute": ("/etc/passwd", {}, "/etc/passwd"),
    "symbolic link": ("link", {}, "symbolic link"),
    "link to a folder": ("folder/secret", {}, "symbolic link"),
    "hard link": ("hard", {}, "hard link"),
    "pipe": ("pipe", {}, "not a plain file"),
    "missing": ("nowhere.bin", {}, "nowhere.bin"),
    "offset beyond the end": ("w.bin", {"offset": 4}, "lie outside"),
    "giant offset": ("w.bin", {"offset": 2**62}, "lie outside"),
    "negative offset": ("w.bin", {"offset": -4}, "'-4'"),
    "short length": ("w.bin", {"length": 8}, "needs 12 bytes"),
    "long length": ("w.bin", {"length": 2**40}, "needs 12 bytes"),
    "unknown key": ("w.bin", {"mode": "w"}, "'mode'"),
}


@pytest.mark.parametrize(("location", "entries", "words"), ATTACKS.values(), ids=ATTACKS.keys())
def test_external_data_that_leaves_the_folder_or_lies(
    failure: Failure, folder: Path, location: str, entries: dict[str, object], words: str
) -> None:
    path = folder / "model.onnx"
    path.write_bytes(_external(location, **entries).SerializeToString())
    message = failure("run", path, "--random")
    for word in ("'w'", words):
        assert word in message


def test_external_data_beside_the_model_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "model.onnx"
    path.write_bytes(_external("w.bin", offset=0, length=12).SerializeToString())
    assert main(["run", str(path), "--random"]) == 0
    assert "float32[2,3]" in capsys.readouterr().out


OPTIONS: dict[str, tuple[list[str], list[str]]] = {
    "no sizes": (["--shape", "x"], ["'x'", "NAME=SIZES"]),
    "odd sizes": (["--shape", "x=1x-3"], ["'x=1x-3'", "NAME=SIZES"]),
    "a size that contradicts": (["--shape", "x=2x4"], ["'x'", "float32[batch,3]", "float32[2,4]"]),
    "another rank": (["--shape", "x=3"], ["'x'", "float32[batch,3]", "float32[3]"]),
    "two sizes for one dim": (["--shape", "batch=2x3"], ["'batch'", "one size"]),
    "an unknown name": (["--shape", "width=3"], ["inputs are x, k, s", "named dims are batch"]),
    "a target that is not there": (["--target", "npu"], ["npu", "cpu", "fake"]),
    "a target that is no name": (["--target", "c p u"], ["'c p u'"]),
    "an unknown policy": (["--fallback", "maybe"], ["--fallback='maybe'", "error, warn, quiet"]),
}


@pytest.mark.parametrize("command", [["run", "--random"], ["bench"], ["inspect"]], ids=lambda command: command[0])
@pytest.mark.parametrize(("options", "words"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options_that_make_no_sense(
    failure: Failure, saved: Any, command: list[str], options: list[str], words: list[str]
) -> None:
    name, *more = command
    message = failure(name, saved(models.mixed()), *more, *options)
    for word in words:
        assert word in message


def test_results_that_cannot_be_written(failure: Failure, saved: Any, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    message = failure("run", saved(models.bare()), "--random", "--output", taken)
    assert message.startswith(f"--output {taken}: cannot be written")


def test_a_process_ends_with_status_2_and_no_traceback(saved: Any) -> None:
    command = [sys.executable, "-m", "aicore", "run", str(saved(models.mixed()[:-25])), "--random", "--json"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("aicore: error: ")
    assert finished.stderr.count("\n") == 1
