"""`aicore tune`: what it measures, keeps, prints and carries to another machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
from onnx import parser

from aicore.cli import main, tune_command
from aicore.cli._inputs import Feed
from aicore.ir import Builder, Node
from aicore.ops import activation as ops
from aicore.tuning import Comparison, Outcome, Problem, Record, Row, TuningStore

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8, 12, 12] x) => (float[] y) { a = Relu(x) b = MaxPool<kernel_shape = [3, 3]>(a) y = Softmax(b) }"""


class Finished(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Finished]


@pytest.fixture
def command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Call `aicore` in this process, with a folder of caches of its own."""
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path / "cache"))

    def run(*arguments: str) -> Finished:
        return Finished(main(list(arguments)), *capsys.readouterr())

    return run


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(MODEL), path)
    return str(path)


def test_it_measures_keeps_and_compares(command_line: Command, model: str, tmp_path: Path) -> None:
    first = command_line("tune", model, "--shape", "n=2", "--json", "--threads", "1")
    assert first.code == 0, first.err
    report = json.loads(first.out)
    assert report["finished"]
    assert report["problems"] == len(report["measured"]) > 0
    for row in report["measured"]:
        assert row["record"]["chosen"] in row["record"]["seconds"], row["reason"]
        assert "float32[2,8," in row["problem"]
    assert report["run"]["low"] <= report["run"]["over_untuned"] <= report["run"]["high"]
    assert report["store"] == str(tmp_path / "cache" / "tuning.sqlite")
    again = command_line("tune", model, "--shape", "n=2", "--threads", "1")
    assert "nothing to measure: every choice is known (--again measures anew), or there is none" in again.out
    other = json.loads(command_line("tune", model, "--shape", "n=1", "--json", "--threads", "1").out)
    assert other["problems"] == report["problems"]


@pytest.mark.parametrize("place", ["search", "compare"])
def test_ctrl_c_after_measuring_shows_what_was_measured(
    command_line: Command, model: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tune_command._Run, place, stop)
    found = command_line("tune", model, "--shape", "n=2", "--json", "--threads", "1", "--whole-graph", "--budget", "1")
    assert found.code == 130, found.err
    report = json.loads(found.out)
    assert (report["finished"], report["run"]) == (False, None)
    assert report["problems"] > 0


def test_choices_that_make_the_program_slower_are_taken_back(
    command_line: Command, model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = TuningStore(tmp_path / "store.sqlite")
    record = Record("fast", "plain", {"fast": 1e-3, "plain": 2e-3}, (0.5, 0.4, 0.6), "digest")
    store.keep([Row("device", "this", record), Row("device", "earlier", record)])
    run = tune_command._Run(Builder().graph([], {}), Feed({}, {}), None, None)
    run.outcomes = [Outcome(Problem("this", Node(ops.Relu(), (), ()), 1, ()), record)]
    assert run.withdraw(store) == 1
    kept = {row.problem: row.record for row in store.rows()}
    assert (kept["this"].chosen, kept["earlier"].chosen) == ("plain", "fast")
    assert kept["this"].seconds == record.seconds

    slower = Comparison(1.1, 1.05, 1.15, 20, (1.0, 1.1))
    monkeypatch.setattr(tune_command._Run, "compare", lambda _: slower)
    monkeypatch.setattr(tune_command._Run, "withdraw", lambda *_: 3)
    assert json.loads(command_line("tune", model, "--shape", "n=2", "--json", "--threads", "1").out)["withdrawn"] == 3
    assert "3 choices are taken back" in command_line("tune", model, "--shape", "n=2", "--threads", "1").out


def test_a_table_for_people(command_line: Command, model: str) -> None:
    found = command_line("tune", model, "--shape", "n=2")
    assert found.code == 0, found.err
    assert "problems measured, " in found.out
    assert "of an untuned one (" in found.out
    assert "with 95 % confidence)" in found.out


def test_what_the_budget_does_not_reach_is_said(command_line: Command, model: str) -> None:
    found = command_line("tune", model, "--shape", "n=2", "--budget", "0")
    assert "were not reached within the budget; a larger --budget reaches them" in found.out


def test_records_travel_as_json(
    command_line: Command, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command_line("tune", model, "--shape", "n=2", "--budget", "20")
    file = tmp_path / "times.json"
    written = command_line("tune", "--export", str(file))
    count = len(json.loads(file.read_text())["records"])
    assert count > 0
    assert written.out.strip() == f"{count} records written to {file}"
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path / "elsewhere"))
    added = command_line("tune", "--import", str(file))
    assert added.out.strip() == f"{count} records added from {file}; of 0 the store has newer ones"
    assert "nothing to measure" in command_line("tune", model, "--shape", "n=2").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "what is to be tuned? give a MODEL, or --export or --import a FILE"),
        (("--import", "absent.json"), "absent.json cannot be read"),
        (("absent.onnx",), "absent.onnx"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], message: str, command_line: Command) -> None:
    found = command_line("tune", *arguments)
    assert found.code == 2
    assert message in found.err
    assert "Traceback" not in found.err


def test_an_unwritable_export_and_a_hostile_import(command_line: Command, tmp_path: Path) -> None:
    file = tmp_path / "hostile.json"
    file.write_text('{"format": "aicore tuning records 1", "records": [{"device": 1}]}')
    found = command_line("tune", "--import", str(file))
    assert found.code == 2
    assert "record 0: it names no device" in found.err
    missing = command_line("tune", "--export", str(tmp_path / "no" / "folder.json"))
    assert missing.code == 2
    assert "cannot be written" in missing.err
