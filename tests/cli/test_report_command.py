"""`aicore report`: one page from a model file."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.cli import main
from tests import onnx_models as models


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings that are measured here are forgotten."""
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "mixed.onnx"
    file.write_bytes(models.mixed())
    return file


def data_of(page: Path) -> Any:
    text = page.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def test_a_page(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    np.save(tmp_path / "x.npy", np.ones((5, 3), np.float32))
    given = ("--target", "cpu", "--runs", "2", "-i", f"x={tmp_path}/x.npy")
    assert main(["report", str(path), "-o", str(page), *given]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(rf"wrote {page}, [\d.]+ KiB\n", out)
    assert err == ""
    data = data_of(page)
    assert data["profile"]["runs"] == 2
    assert data["profile"]["seconds"] <= data["profile"]["wall"]
    assert data["profile"]["ceilings"]["cpu"]["flops"] > 0
    assert data["parity"] is None
    text = page.read_text(encoding="utf-8")
    assert f"%x: float32[5,3], {tmp_path}/x.npy" in text
    assert "chosen: " in text


def test_targets_beside_each_other(path: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    given = ("--target", "cpu", "--runs", "1", "--parity", "fake", "--shape", "batch=2")
    assert main(["report", str(path), "-o", str(page), *given]) == 0
    parity = data_of(page)["parity"]
    assert [column["name"] for column in parity["columns"]] == ["cpu", "fake"]
    assert parity["right"]
    assert parity["rows"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--parity", "nothing"), "--parity nothing: no installed plugin has this target"),
        (("-o", "missing/report.html"), "--output missing/report.html: there is no folder missing"),
    ],
)
def test_what_cannot_be(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...], reason: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(path), "-o", "report.html", "--target", "cpu", "--runs", "1", *arguments]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_where_no_file_can_be_written(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(path), "-o", "/proc/report.html", "--target", "cpu", "--runs", "1"]) == 2
    assert capsys.readouterr().err.startswith("aicore: error: --output /proc/report.html: ")


def test_a_file_whose_name_is_no_text(path: Path, tmp_path: Path) -> None:
    odd = path.with_name(os.fsdecode(b"odd-\xff.onnx"))
    try:
        path.rename(odd)
    except OSError:
        pytest.skip("the file system takes names in UTF-8 alone")
    assert main(["report", str(odd), "-o", str(tmp_path / "r.html"), "--target", "cpu", "--runs", "1"]) == 0
    assert "<h1>odd-?.onnx</h1>" in (tmp_path / "r.html").read_text(encoding="utf-8")
