"""`aicore run`: inputs from files and at random, outputs on the screen, as JSON and as files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import aicore
from aicore.cli import main
from aicore.cli._arrays import random_arrays, save_arrays
from aicore.cli._inputs import make_feed
from aicore.errors import InputError
from aicore.ir import TensorType
from tests import onnx_models as models
from tests.onnx_models import model, value

X = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]], np.float32)
K = np.array([[1, -2]], np.int64)
Output = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "mixed.onnx"
    file.write_bytes(models.mixed())
    return file


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    """Run the command line, which must succeed and say nothing on stderr, and return what it prints."""

    def run(*arguments: str | Path) -> str:
        status = main(["run", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return run


@pytest.mark.parametrize("target", ["cpu", "fake"])
def test_files_in_and_files_out(path: Path, tmp_path: Path, output: Output, target: str) -> None:
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "rest.npz", k=K, s=np.float32(2))
    results = tmp_path / "new" / "results"
    options = ["-i", f"x={tmp_path}/x.npy", "-i", f"{tmp_path}/rest.npz", "-t", target, "-o", results]
    text = output(path, *options)
    for word in (f"{tmp_path}/x.npy", f"{tmp_path}/rest.npz", "float32[2,3]", "int64[1,2]", f"wrote {results}/y.npy"):
        assert word in text
    np.testing.assert_array_equal(np.load(results / "y.npy"), np.maximum(X, 0) * 2)
    np.testing.assert_array_equal(np.load(results / "z.npy"), -K)


def test_the_screen_shows_placement_statistics_and_values(path: Path, output: Output) -> None:
    lines = output(path, "--random", "--seed", "3", "--shape", "batch=2", "--shape", "k=4x2", "-t", "fake").splitlines()
    x = next(line for line in lines if line.startswith("x "))
    assert x.split()[1:] == ["float32[2,3]", "random,", "seed", "3"]
    program = aicore.compile(path)
    feed = make_feed(program.graph, None, ["batch=2", "k=4x2"], random=True, seed=3)
    y = program.run(feed.arrays)["y"].astype(np.float64)
    row = next(line for line in lines if line.startswith("y ")).split()
    assert row[1:5] == ["float32[2,3]", f"{y.min():.6g}", f"{y.mean():.6g}", f"{y.max():.6g}"]
    assert row[5:] == [*(f"{number:.6g}" for number in y.ravel()[:5]), "..."]
    assert "placement: fake_gpu 2/2 nodes" in lines
    assert any(line.startswith("target fake") for line in lines)


def test_a_batch_that_nobody_gives_is_one(path: Path, output: Output) -> None:
    text = output(path, "--random", "--shape", "k=1x2")
    assert "chosen: dim 'batch' of input 'x' = 1" in text
    assert "float32[1,3]" in text


def test_json_is_for_scripts(path: Path, tmp_path: Path, output: Output) -> None:
    np.save(tmp_path / "x.npy", np.array([[np.inf, np.nan, 2]], np.float32))
    answer = json.loads(
        output(path, "-i", f"x={tmp_path}/x.npy", "--random", "--seed", "7", "--json", "-o", tmp_path / "out")
    )
    assert answer["target"] == "cpu"
    assert answer["placement"] == "cpu_numpy 2/2 nodes"
    assert answer["seed"] == 7
    assert answer["chosen"] == ["dim 0 of input 'k' = 1"]
    assert answer["inputs"]["x"] == {"dtype": "float32", "shape": [1, 3], "from": f"{tmp_path}/x.npy"}
    assert answer["inputs"]["k"] == {"dtype": "int64", "shape": [1, 2], "from": "random"}
    y = answer["outputs"]["y"]
    assert (y["dtype"], y["shape"], y["nan"]) == ("float32", [1, 3], 1)
    assert y["values"][1] == "nan"
    assert y["file"] == f"{tmp_path}/out/y.npy"
    z = answer["outputs"]["z"]
    assert (z["min"], z["max"]) == (min(z["values"]), max(z["values"]))
    assert all(isinstance(number, int) for number in z["values"])
    assert set(answer["seconds"]) == {"load", "compile_and_run"}


def test_one_seed_gives_one_result(path: Path, output: Output) -> None:
    def values(seed: int) -> Any:
        options = ["--random", "--seed", seed, "--shape", "batch=2", "--json"]
        return json.loads(output(path, *map(str, options)))["outputs"]

    assert values(1) == values(1)
    assert values(1) != values(2)


def test_sizes_of_files_hold_for_random_inputs_too(tmp_path: Path, output: Output) -> None:
    inputs = [value("a", shape=["rows", "columns"]), value("b", shape=["columns", "rows"])]
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    path = tmp_path / "model.onnx"
    path.write_bytes(model([node], inputs, [value("y", shape=["rows", "rows"])]).SerializeToString())
    np.save(tmp_path / "a.npy", np.ones((2, 5), np.float32))
    assert "float32[5,2]" in output(path, "-i", f"a={tmp_path}/a.npy", "--random")


def test_a_single_input_needs_no_name(tmp_path: Path, output: Output) -> None:
    path = tmp_path / "bare.onnx"
    path.write_bytes(models.bare())
    np.save(tmp_path / "a=b.npy", np.array([-1, 2], np.float32))
    assert "0 2" in output(path, "-i", tmp_path / "a=b.npy")


def test_names_with_equals_signs(tmp_path: Path, output: Output) -> None:
    node = helper.make_node("Relu", ["a=b"], ["y"])
    path = tmp_path / "model.onnx"
    made = model([node], [value("a=b", shape=["n=m", 2])], [value("y", shape=["n=m", 2])])
    path.write_bytes(made.SerializeToString())
    np.save(tmp_path / "x.npy", np.ones((1, 2), np.float32))
    assert "float32[1,2]" in output(path, "-i", f"a=b={tmp_path}/x.npy")
    assert "float32[3,2]" in output(path, "--random", "--shape", "a=b=3x2")
    assert "float32[4,2]" in output(path, "--random", "--shape", "n=m=4")


def test_element_types_that_numpy_lacks_survive_files(tmp_path: Path, output: Output) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.identity(TensorProto.BFLOAT16))
    output(path, "--random", "-o", tmp_path / "one")
    text = output(path, "-i", f"x={tmp_path}/one/y.npy", "-o", tmp_path / "two")
    assert "bfloat16[1,2]" in text
    assert (tmp_path / "one" / "y.npy").read_bytes() == (tmp_path / "two" / "y.npy").read_bytes()


def test_texts(tmp_path: Path, output: Output) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.identity(TensorProto.STRING))
    np.save(tmp_path / "x.npy", np.array([["one", "two"]]))
    text = output(path, "-i", f"x={tmp_path}/x.npy", "-o", tmp_path)
    assert "string[1,2]" in text
    assert np.load(tmp_path / "y.npy", allow_pickle=False).tolist() == [["one", "two"]]
    assert "text " in output(path, "--random")


def test_one_input_from_two_files_is_an_error(path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    option = f"x={tmp_path}/x.npy"
    with pytest.raises(InputError, match=r"'x' comes from .*x\.npy already"):
        make_feed(aicore.load(path), [option, option], None, random=True, seed=0)


def test_archives_feed_by_name(path: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=X, w=X)
    graph = aicore.load(path)
    with pytest.raises(InputError, match="has an array 'w', but the model has no input 'w'; its inputs: 'x' "):
        make_feed(graph, [f"{tmp_path}/all.npz"], None, random=True, seed=0)
    with pytest.raises(InputError, match="holds several arrays by name; give it without x="):
        make_feed(graph, [f"x={tmp_path}/all.npz"], None, random=True, seed=0)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("y=x.npy", r"--input 'y=x.npy': the model has no input 'y'; its inputs: 'x' \(float32"),
        ("w=no_such_file.npy", "the model has no input 'w'; its inputs: "),
        ("kk=x.npy", r"the model has no input 'kk'; its inputs: .*; did you mean 'k'\?$"),
    ],
)
def test_an_unknown_input_is_named_with_those_of_the_model(path: Path, option: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_feed(aicore.load(path), [option], None, random=True, seed=0)


def test_a_file_without_a_name_for_several_inputs(path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(InputError, match=r"write NAME=.*x\.npy; its inputs: 'x' \(.*, 'k' \("):
        make_feed(aicore.load(path), [f"{tmp_path}/x.npy"], None, random=True, seed=0)


def test_an_unknown_rank_needs_a_shape() -> None:
    graph = aicore.load(model([helper.make_node("Relu", ["x"], ["y"])], [value("x")], [value("y")]))
    with pytest.raises(InputError, match="rank of input 'x' is unknown; give --shape x=SIZES"):
        make_feed(graph, None, None, random=True, seed=0)
    assert make_feed(graph, None, ["x="], random=True, seed=0).arrays["x"].shape == ()


def test_free_dims_that_are_no_batch_are_asked_for() -> None:
    image = value("x", shape=["N", 3, "height", "width"])
    graph = aicore.load(model([helper.make_node("Relu", ["x"], ["y"])], [image], [value("y")]))
    with pytest.raises(InputError, match="--shape x=1x3xSIZExSIZE, or --shape height=SIZE --shape width=SIZE"):
        make_feed(graph, None, None, random=True, seed=0)
    with pytest.raises(InputError, match="--shape x=1x3x8xSIZE, or --shape width=SIZE"):
        make_feed(graph, None, ["height=8"], random=True, seed=0)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "int4", "uint2", "int2"])
def test_random_integers_are_small_and_fit(dtype: str) -> None:
    array = random_arrays({"x": TensorType(dtype, (200,))}, 0)["x"].astype(np.int64)
    largest = {"int4": 7, "uint2": 3, "int2": 1}.get(dtype, 9)
    assert (array.min(), array.max()) == (0, largest)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "float8_e4m3fn"])
def test_random_floats_are_standard_normal(dtype: str) -> None:
    array = random_arrays({"x": TensorType(dtype, (4000,))}, 0)["x"].astype(np.complex128)
    assert abs(array.mean()) < 0.06
    assert 0.9 < np.std(array.real) < 1.1
    assert random_arrays({"x": TensorType("bool", (50,))}, 0)["x"].dtype == bool


def test_names_of_files_are_safe_and_unique(tmp_path: Path) -> None:
    names = ["../../etc/passwd", "a/b", "a_b", "A/b", "", "..", "\N{SNOWMAN}", "x" * 500, "con:0"]
    files = save_arrays(tmp_path, {name: np.array(i) for i, name in enumerate(names)})
    assert sorted(tmp_path.rglob("*")) == sorted(files.values())
    assert len({str(file).lower() for file in files.values()}) == len(names)
    for i, name in enumerate(names):
        assert files[name].parent == tmp_path
        assert np.load(files[name]) == i
    assert files["a/b"].name == "a_b.npy"
    assert files["a_b"].name == "a_b_2.npy"


def test_outputs_of_odd_kinds_are_shown(tmp_path: Path, output: Output) -> None:
    path = tmp_path / "model.onnx"
    for dtype, word in ((TensorProto.BOOL, "bool[0,2]"), (TensorProto.DOUBLE, "float64[0,2]")):
        path.write_bytes(models.identity(dtype))
        assert word in output(path, "--random", "--shape", "x=0x2")
    path.write_bytes(models.identity(TensorProto.COMPLEX64))
    assert "complex64[1,2]" in output(path, "--random")
