"""The examples of training reach what they promise, with fixed seeds, on the CPU."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "training"


@pytest.fixture(autouse=True)
def in_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)


def run(name: str, *arguments: Any) -> Any:
    return importlib.import_module(name).main(*arguments)


def test_exclusive_or() -> None:
    assert run("xor") == 1.0


def test_regression() -> None:
    distance, r_squared = run("regression")
    assert distance < 1e-4
    assert r_squared > 0.97


def test_breast_cancer() -> None:
    pytest.importorskip("sklearn")
    assert run("breast_cancer") >= 0.97


def test_grid_search() -> None:
    pytest.importorskip("sklearn")
    assert run("grid_search") >= 0.94


@pytest.mark.slow
def test_digits_with_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curves.png"
    assert run("digits", str(picture)) >= 0.985
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_sequences(kind: str) -> None:
    assert run("sequence", kind) > 0.95


@pytest.mark.slow
def test_train_quantise_export_run() -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("aicore_int8_quant")
    of_floats, of_codes = run("to_int8")
    assert of_floats > 0.97
    assert of_codes > of_floats - 0.005
