"""`aicore quantize` and `aicore quantize analyze`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from aicore.errors import InputError
from aicore.frontends.onnx import save_model
from aicore.ir import Graph
from aicore_int8_quant.command import app
from aicore_int8_quant.data_files import DataFiles
from aicore_int8_quant.errors import QuantizationError


@pytest.fixture
def files(network: Graph, batches: list[Any], tmp_path: Path) -> Path:
    """A folder with a model and a folder of data."""
    save_model(network, tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    for number, batch in enumerate(batches):
        np.savez(tmp_path / "data" / f"{number}.npz", **batch)
    return tmp_path


def run(*arguments: Any) -> str:
    found = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def test_a_model_is_written(files: Path) -> None:
    out = files / "q.onnx"
    text = run(files / "m.onnx", "--data", files / "data", "-o", out, "--exclude", "stem")
    assert "int8 coverage: 10 of 11 products (91 %)" in text
    assert "1 in float: excluded [stem]" in text
    assert f"wrote {out}, opset 21" in text
    assert out.stat().st_size > 1000


def test_json_for_scripts(files: Path) -> None:
    arguments = ("--target-drop", "0.5", "--metric", "cosine", "--per-tensor", "--method", "mse", "--json")
    data = json.loads(run(files / "m.onnx", "--data", files / "data", "-o", files / "q.onnx", *arguments))
    assert data["opset"] == 21
    assert data["metric"] == "cosine"
    assert data["score"] >= 99.5
    assert data["coverage"]["share"] > 0.5


def test_auto_excludes_so_many(files: Path) -> None:
    arguments = (files / "m.onnx", "--data", files / "data", "-o", files / "q.onnx", "--exclude", "auto:2", "--json")
    assert len(json.loads(run(*arguments))["excluded"]) == 2


def test_analyze_writes_json_and_page(files: Path) -> None:
    page, out = files / "page.html", files / "found.json"
    arguments = ("--data", files / "data", "--batches", 1, "--html", page, "-o", out)
    text = run("analyze", files / "m.onnx", *arguments)
    assert "int8 coverage: 11 of 11 products" in text
    assert "11 in float: inf dB" in text
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert len(json.loads(out.read_text())["layers"]) == 11


def test_data_from_files(network: Graph, tmp_path: Path) -> None:
    x = np.zeros((2, 3, 16, 16), np.float32)
    np.save(tmp_path / "one.npy", x)
    assert [b["x"].shape for b in DataFiles(tmp_path / "one.npy", network)] == [x.shape]
    np.savez(tmp_path / "many.npz", x=np.stack([x, x, x]))
    assert [b["x"].shape for b in DataFiles(tmp_path / "many.npz", network)] == [x.shape] * 3
    assert [b["x"].shape for b in DataFiles(tmp_path, network)] == [x.shape] * 4


def test_bad_files_are_refused(network: Graph, tmp_path: Path) -> None:
    def read(name: str) -> None:
        list(DataFiles(tmp_path / name, network))

    with pytest.raises(InputError, match="there is no such file"):
        read("absent.npz")
    with pytest.raises(InputError, match=r"no \.npz or \.npy files"):
        read("")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(InputError, match="cannot be read"):
        read("text.npz")
    np.savez(tmp_path / "other.npz", z=np.zeros(3))
    with pytest.raises(InputError, match="no array 'x'"):
        read("other.npz")
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read"):
        read("objects.npy")


def test_errors_name_the_choice(files: Path) -> None:
    arguments = [str(files / "m.onnx"), "--data", str(files / "data"), "-o", str(files / "q.onnx")]
    with pytest.raises(QuantizationError, match="there is no metric 'best'"):
        CliRunner().invoke(app, [*arguments, "--metric", "best"], catch_exceptions=False)
    with pytest.raises(QuantizationError, match="write auto:3"):
        CliRunner().invoke(app, [*arguments, "--exclude", "auto"], catch_exceptions=False)
    assert CliRunner().invoke(app, [*arguments, "--method", "best"]).exit_code == 2
