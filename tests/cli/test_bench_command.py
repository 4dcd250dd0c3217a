"""`aicore bench`: times of one or several targets in turn; no test asserts how long anything takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.cli import bench_command, main
from aicore.cli._inputs import make_feed
from aicore.cli.bench_command import measure
from tests import onnx_models as models
from tests.runtime.trace_format import faults

Output = Callable[..., str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings that are measured here are forgotten."""
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "mixed.onnx"
    file.write_bytes(models.mixed())
    return file


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str], path: Path) -> Output:
    """Bench the model, which must succeed and say nothing on stderr, and return what it prints."""

    def run(*arguments: str) -> str:
        status = main(["bench", str(path), "--warmup", "1", *arguments])
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return run


def test_two_targets(output: Output) -> None:
    text = output("-t", "cpu", "-t", "fake", "-t", "cpu", "--runs", "3", "--random")
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert "difference" in rows["target"]
    for target in ("cpu", "fake"):
        assert rows[target][-1] == "0.0e+00"
    assert sum(line.startswith("cpu ") for line in text.splitlines()) == 1, "a target named twice is timed once"
    assert "placement: fake_gpu 2/2 nodes" in text
    assert "chosen: dim 'batch' of input 'x' = 1, dim 0 of input 'k' = 1" in text


def test_one_target_has_no_difference(output: Output) -> None:
    assert "difference" not in output("--runs", "1")


def test_json_is_for_scripts(output: Output, tmp_path: Path) -> None:
    profiled = ("--profile", str(tmp_path / "trace.json"))
    text = output("-t", "cpu", "-t", "fake", "--runs", "4", "--json", *profiled, "--seed", "5", "--shape", "batch=2")
    answer = json.loads(text)
    assert answer["seed"] == 5
    assert answer["inputs"]["x"] == {"dtype": "float32", "shape": [2, 3], "from": "random"}
    cpu, fake = answer["targets"]
    for entry in (cpu, fake):
        assert len(entry["runs"]) == 4
        assert entry["min"] == min(entry["runs"])
        assert entry["max"] == max(entry["runs"])
        assert entry["median"] == np.median(entry["runs"])
        assert entry["first_run"] > 0
        assert entry["steps_per_second"] == entry["steps"] / entry["median"]
        assert entry["difference"] == 0
        assert len(entry["profile"]["rows"]) >= entry["steps"]
        assert entry["profile"]["runs"] == 4
        assert entry["profile"]["seconds"] <= entry["profile"]["wall"]
    assert {row["device"] for row in cpu["profile"]["rows"]} == {"cpu"}
    assert "profile" not in json.loads(output("--runs", "1", "--json"))["targets"][0]


def test_the_slowest_steps_and_a_trace(output: Output, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    text = output("--runs", "3", "--profile", str(file))
    assert "steps, " in text
    assert "in all, each at its best of 3 runs" in text
    assert "ceilings of cpu: " in text
    assert f"trace: {file}" in text
    lines = text.splitlines()
    title = next(i for i, line in enumerate(lines) if line.split()[:3] == ["time", "share", "launch"])
    shares = [float(line.split("%")[0].split()[-1]) for line in lines[title + 1 :] if "%" in line]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert faults(json.loads(file.read_text())) == []


def test_each_target_has_a_trace(output: Output, tmp_path: Path) -> None:
    text = output("-t", "cpu", "-t", "fake", "--runs", "1", "--profile", str(tmp_path / "t.json"))
    for target in ("cpu", "fake"):
        file = tmp_path / f"t-{target}.json"
        assert f"trace: {file}" in text
        events = json.loads(file.read_text())["traceEvents"]
        assert target in {event["args"]["name"] for event in events if event["name"] == "process_name"}


def test_a_trace_that_cannot_be_written(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "missing" / "t.json"
    assert main(["bench", str(path), "--runs", "1", "--profile", str(file)]) == 2
    assert f"--profile {file}: No such file" in capsys.readouterr().err


def test_inputs_from_files(output: Output, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((5, 3), np.float32))
    assert f"{tmp_path}/x.npy" in output("-i", f"x={tmp_path}/x.npy", "--runs", "1")


def test_targets_take_turns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = aicore.load(path)
    feed = make_feed(graph, None, None, random=True, seed=0)
    order: list[str] = []
    run = aicore.Program.run

    def noted(program: Any, *arguments: Any) -> Any:
        order.append(program.device.kind)
        return run(program, *arguments)

    monkeypatch.setattr(aicore.Program, "run", noted)
    cpu, fake = measure(graph, feed, ["cpu", "fake"], None, runs=2, warmup=1)
    assert order == ["cpu", "fake"] * 4
    assert (len(cpu.runs), len(fake.runs)) == (2, 2)
    assert cpu.steps == fake.steps == 2


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([3.0, 4.5], [3.0, 4.0], 0.1),
        ([1.0, np.nan], [1.0, np.nan], 0.0),
        ([1.0, np.inf], [1.0, np.inf], 0.0),
        ([1.0, np.inf], [1.0, 2.0], np.inf),
        ([0.5, 0.0], [0.0, 0.0], 0.5),
        ([1.0], [1.0, 1.0], np.inf),
    ],
)
def test_the_difference_between_targets(ours: list[float], theirs: list[float], expected: float) -> None:
    assert bench_command._difference(np.array(ours), np.array(theirs)) == pytest.approx(expected)


def test_the_difference_of_what_is_no_number() -> None:
    a, b = np.array(["a"], object), np.array(["b"], object)
    assert bench_command._difference(a, a.copy()) == 0
    assert bench_command._difference(a, b) == np.inf
    assert np.isnan(bench_command._difference(np.array([np.nan]), np.array([1.0])))


@pytest.mark.parametrize("option", [["--runs", "0"], ["--warmup", "-1"], ["--runs", "many"]])
def test_wrong_usage(path: Path, option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(path), *option]) == 2
    assert option[0] in capsys.readouterr().err
