"""Profiles: the least times of each step, beside what the device can do, as a table, as data and as a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import ConfigError, InputError
from aicore.ir import Builder, Graph
from aicore.plugins import PluginRegistry
from aicore.runtime import Ceilings, Place, Profile, ProfileRow, RunTimes, StepTime, ceilings, step_times
from aicore.runtime.trace import Slice, chrome_trace
from aicore.testing.registries import RestrictedRegistry
from tests.runtime.trace_format import faults

TARGETS = ("cpu", "fake")
N = 64
NEG = ProfileRow("Neg 'n'", "neg_fast", "npu", 2e-3, 1e-3, 10.0, "Neg", "n", "float32[8]", 8_000, 64_000)
MOVE = ProfileRow("copy %n from npu to host", "move", "core", 1e-3, 0.0, 10.003)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))
    return tmp_path


def graph() -> Graph:
    b = Builder()
    x = b.input("x", "float32", (N, N))
    return b.graph((x,), {"y": b.Softmax(b.MatMul(x, x), axis=1)})


def profile_of(*runs: tuple[ProfileRow, ...], **more: Any) -> Profile:
    return Profile(tuple(RunTimes(rows[0].start, 5e-3, rows) for rows in runs), **more)


@pytest.mark.parametrize("target", TARGETS)
def test_times_of_devices_fit_into_the_wall(registry: PluginRegistry, target: str) -> None:
    program = aicore.compile(graph(), target, registry=registry, fallback="quiet")
    found = program.profile({"x": np.ones((N, N), np.float32)}, runs=4, ceilings=False)
    assert (len(found.runs), len(found.plain)) == (4, 4)
    assert 0 < found.seconds <= found.wall
    for run in found.runs:
        assert sum(row.seconds + row.host for row in run.rows) <= run.wall
        assert [row.start for row in run.rows] == sorted(row.start for row in run.rows)
        assert run.start <= run.rows[0].start
    assert found.seconds == sum(row.seconds for row in found.rows)
    assert [row.op for row in found.rows if row.op] == ["MatMul", "Softmax"]


def test_work_is_that_of_the_op(registry: PluginRegistry) -> None:
    program = aicore.compile(graph(), "cpu", registry=registry)
    product = program.profile({"x": np.ones((N, N), np.float32)}, 1, ceilings=False).rows[0]
    assert (product.flops, product.nbytes) == (2 * N**3, 3 * 4 * N * N)
    assert (product.types, product.device, product.host) == (f"float32[{N},{N}]", "cpu", 0)


def test_the_host_is_apart_where_the_device_has_a_clock(registry: PluginRegistry) -> None:
    program = aicore.compile(graph(), "fake", registry=registry, fallback="quiet")
    rows = program.profile({"x": np.ones((N, N), np.float32)}, 2, ceilings=False).rows
    assert all(row.host > 0 for row in rows if row.device == "fake")
    assert all(row.host == 0 for row in rows if row.device == "core")


def test_one_clock_is_enough_for_an_executable() -> None:
    class Plain:
        def profile(self, inputs: Any) -> tuple[list[Any], list[float]]:
            return list(inputs), [0.25, 0.5]

    results, (first, second) = step_times(Plain(), ["x"])  # type: ignore[arg-type]  # nothing else is asked of it
    assert results == ["x"]
    assert (first.host, first.device, second.device) == (0.25, 0.25, 0.5)
    assert second.start == first.start + 0.25


def test_each_step_is_at_its_best() -> None:
    slow = ProfileRow("Neg 'n'", "neg_fast", "npu", 9e-3, 0.0, 11.0, "Neg", "n")
    found = profile_of((NEG, MOVE), (slow, MOVE), plain=(4e-3, 2e-3, 3e-3))
    assert found.rows == (NEG, MOVE)
    assert found.seconds == pytest.approx(3e-3)
    assert (found.run, found.best) == (3e-3, 2e-3)
    assert profile_of((NEG,)).run is None
    assert profile_of((NEG,)).best is None


def test_the_roofline() -> None:
    """8,000 operations and 64,000 bytes in 2 ms: at 10 MFLOP/s they take 0.8 ms, at 64 MB/s 1 ms."""
    found = profile_of((NEG, MOVE), ceilings={"npu": Ceilings(10e6, 64e6)})
    assert found.place(NEG) == Place("memory", 0.5)
    assert found.place(MOVE) is None
    assert profile_of((NEG,)).place(NEG) is None
    busy = profile_of((NEG,), ceilings={"npu": Ceilings(5e6, 640e6)})
    assert busy.place(NEG) == Place("compute", 0.8)


def test_open_sizes_have_no_place(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", (6,))
    found = aicore.compile(b.graph((x,), {"y": b.NonZero(x)}), "cpu", registry=registry)
    (row,) = found.profile({"x": np.ones(6, np.float32)}, 1, ceilings=False).rows
    assert (row.op, row.nbytes) == ("NonZero", None)
    assert Profile((RunTimes(0.0, 1.0, (row,)),), ceilings={"cpu": Ceilings(1.0, 1.0)}).place(row) is None


def test_all_forms_tell_the_same() -> None:
    found = profile_of((NEG, MOVE), ceilings={"npu": Ceilings(10e6, 64e6)}, reasons={"core": "a <reason>"})
    data = json.loads(json.dumps(found.to_json()))
    assert data["rows"][0] == {
        "step": "Neg 'n'", "op": "Neg", "value": "n", "types": "float32[8]", "kernel": "neg_fast", "device": "npu",
        "seconds": 2e-3, "host": 1e-3, "flops": 8000, "bytes": 64000, "bound": "memory", "of_roof": pytest.approx(0.5),
    }  # fmt: skip
    assert data["ceilings"] == {"npu": {"flops": 10e6, "bytes": 64e6, "source": "measured"}}
    assert data["reasons"] == {"core": "a <reason>"}
    text = str(found)
    row = next(line.split() for line in text.splitlines() if "neg_fast" in line)
    assert " ".join(row) == "2 ms 66.7% 1 ms 0.004 0.032 50% memory Neg n neg_fast npu float32[8]"
    assert "no ceilings of core: a <reason>" in text
    assert "a &lt;reason&gt;" in found._repr_html_()


def test_many_steps_show_the_slowest() -> None:
    rows = tuple(ProfileRow(f"Neg 'n{i}'", "k", "npu", i * 1e-6, value=f"n{i}", op="Neg") for i in range(1, 31))
    lines = str(profile_of(rows)).splitlines()
    assert lines[0].startswith("the slowest 20 of 30 steps")
    assert len(lines) == 3 + 20
    assert "n30" in lines[3]


@pytest.mark.parametrize("runs", [0, -1, 1.5, "2"])
def test_runs_are_a_count(registry: PluginRegistry, runs: Any) -> None:
    program = aicore.compile(graph(), "cpu", registry=registry)
    with pytest.raises(ConfigError, match="is no number of runs"):
        program.profile({"x": np.ones((N, N), np.float32)}, runs)


def test_feeds_are_checked(registry: PluginRegistry) -> None:
    with pytest.raises(InputError):
        aicore.compile(graph(), "cpu", registry=registry).profile({})


# ---- traces


@pytest.mark.parametrize("target", TARGETS)
def test_traces_are_of_the_format(registry: PluginRegistry, target: str) -> None:
    program = aicore.compile(graph(), target, registry=registry, fallback="quiet")
    trace = program.profile({"x": np.ones((N, N), np.float32)}, 3, ceilings=False).trace()
    assert faults(json.loads(json.dumps(trace))) == []
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert sum(event["name"] == "MatMul" for event in slices) == 3
    assert [event["name"] for event in slices if event["name"].startswith("run ")] == ["run 0", "run 1", "run 2"]
    launches = sum(event["name"].startswith("launch ") for event in slices)
    assert launches == (0 if target == "cpu" else 6)


def test_a_trace_in_numbers() -> None:
    trace = profile_of((NEG, MOVE), ceilings={"npu": Ceilings(10e6, 64e6)}).trace()
    names = [(event["name"], event["args"].get("name")) for event in trace["traceEvents"] if event["ph"] == "M"]
    assert [name for key, name in names if key == "process_name"] == ["host", "npu", "core"]
    by_name = {event["name"]: event for event in trace["traceEvents"] if event["ph"] == "X"}
    assert (by_name["launch Neg"]["ts"], by_name["launch Neg"]["dur"]) == (0, pytest.approx(3000))
    assert (by_name["Neg"]["ts"], by_name["Neg"]["dur"]) == (pytest.approx(1000), pytest.approx(2000))
    assert by_name["Neg"]["args"] == {
        "kernel": "neg_fast", "node": "Neg 'n'", "types": "float32[8]", "flops": 8000, "bytes": 64000,
        "bound": "memory", "of_roof": 0.5,
    }  # fmt: skip
    assert trace["otherData"]["ceilings"]["npu"] == "0 GFLOP/s in float32, 0.1 GB/s, measured"


def test_what_nests_still_nests_when_rounded() -> None:
    third = 1e-3 / 3
    slices = [Slice("p", "t", "all", 0.0, 1e-3, {}), *(Slice("p", "t", "part", i * third, third, {}) for i in range(3))]
    assert faults(chrome_trace(slices, {})) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ph": "?"}, "phase"),
        ({"ts": -1.0}, "ts"),
        ({"ts": "0"}, "ts"),
        ({"dur": None}, "dur"),
        ({"pid": "host"}, "pid"),
        ({"tid": 77}, "has no name"),
        ({"name": ""}, "name"),
        ({"dur": 3_500.5}, "overlaps"),
    ],
)
def test_the_validator_is_strict(change: Mapping[str, Any], fault: str) -> None:
    slices = [Slice("p", "t", "a", 0.0, 2e-3, {}), Slice("p", "t", "b", 3e-3, 1e-3, {})]
    trace = chrome_trace(slices, {})
    trace["traceEvents"][3].update(change)
    assert any(fault in found for found in faults(trace)), faults(trace)
    assert faults([]) == ["a trace is an object with a list of traceEvents"]


# ---- ceilings


def test_ceilings_are_measured_once_in_a_process(registry: PluginRegistry, own_cache: Path) -> None:
    program = aicore.compile(graph(), "cpu", registry=registry)
    feeds = {"x": np.ones((N, N), np.float32)}
    first = program.profile(feeds, 1).ceilings["cpu"]
    assert first.source == "measured"
    assert first.flops > 1e8
    assert first.bytes > 1e7
    assert program.profile(feeds, 1).ceilings["cpu"] == first
    kept = json.loads((own_cache / "ceilings.json").read_text())
    assert list(kept.values()) == [{"flops": first.flops, "bytes": first.bytes, "processes": 1}]
    assert next(iter(kept)).endswith("threads")


def test_the_best_of_three_processes_stands(
    registry: PluginRegistry, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = aicore.compile(graph(), "cpu", registry=registry)
    feeds = {"x": np.ones((N, N), np.float32)}
    found = []
    for flops, nbytes in ((2e9, 1e9), (1e9, 4e9), (3e9, 2e9), (9e9, 9e9)):
        monkeypatch.setattr(ceilings, "_measured_here", set())  # as in a new process
        monkeypatch.setattr(ceilings, "_best_product", lambda _, best=flops: best)
        monkeypatch.setattr(ceilings, "_best_stream", lambda _, best=nbytes: best)
        found.append(program.profile(feeds, 1).ceilings["cpu"])
    assert [(one.flops, one.bytes) for one in found] == [(2e9, 1e9), (2e9, 4e9), (3e9, 4e9), (3e9, 4e9)]


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "\x00", "[" * 100_000], ids=range(5))
def test_a_damaged_file_is_measured_anew(registry: PluginRegistry, own_cache: Path, content: str) -> None:
    file = own_cache / "ceilings.json"
    file.write_text(content)
    program = aicore.compile(graph(), "cpu", registry=registry)
    found = program.profile({"x": np.ones((N, N), np.float32)}, 1).ceilings["cpu"]
    assert {"flops": found.flops, "bytes": found.bytes, "processes": 1} in json.loads(file.read_text()).values()


@pytest.mark.parametrize(
    "changed",
    [{"flops": 0}, {"bytes": -1.0}, {"flops": float("nan")}, {"bytes": float("inf")}, {"processes": float("nan")},
     {"flops": True}, {"bytes": "many"}],
    ids=str,
)  # fmt: skip
def test_an_impossible_entry_is_measured_anew(
    registry: PluginRegistry, own_cache: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    monkeypatch.setattr(ceilings, "_best_product", lambda _: 2e9)
    monkeypatch.setattr(ceilings, "_best_stream", lambda _: 1e9)
    program = aicore.compile(graph(), "cpu", registry=registry)
    feeds = {"x": np.ones((N, N), np.float32)}
    program.profile(feeds, 1)
    file = own_cache / "ceilings.json"
    ((key, entry),) = json.loads(file.read_text()).items()
    file.write_text(json.dumps({key: {**entry, "processes": 3, **changed}}))
    assert program.profile(feeds, 1).ceilings["cpu"] == Ceilings(2e9, 1e9)
    assert json.loads(file.read_text()) == {key: {"flops": 2e9, "bytes": 1e9, "processes": 1}}


def test_where_nothing_can_be_kept_nothing_is_left(
    registry: PluginRegistry, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings, "_best_product", lambda _: 2e9)
    monkeypatch.setattr(ceilings, "_best_stream", lambda _: 1e9)
    (own_cache / "ceilings.json").mkdir()
    program = aicore.compile(graph(), "cpu", registry=registry)
    assert program.profile({"x": np.ones((N, N), np.float32)}, 1).ceilings["cpu"] == Ceilings(2e9, 1e9)
    assert not [file for file in own_cache.iterdir() if file.name.startswith("tmp")]


def test_a_device_may_declare_them(registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    program = aicore.compile(graph(), "cpu", registry=registry)
    declared = Ceilings(1e12, 1e11, "declared")
    monkeypatch.setattr(type(program.device), "ceilings", declared, raising=False)
    assert program.profile({"x": np.ones((N, N), np.float32)}, 1).ceilings == {"cpu": declared}


def test_without_a_kernel_there_is_a_reason(registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aicore.runtime.ceilings._PRODUCTS", (16,))
    monkeypatch.setattr("aicore.runtime.ceilings._ELEMENTS", 64)
    kernels = [kernel for kernel in registry.kernels if kernel.op.__name__ != "Neg" or kernel.device != "fake"]
    assert len(kernels) < len(registry.kernels)
    fewer = RestrictedRegistry(registry, kernels=kernels)
    program = aicore.compile(graph(), "fake", registry=fewer, fallback="quiet")
    found = program.profile({"x": np.ones((N, N), np.float32)}, 1)
    assert found.ceilings == {}
    assert found.reasons == {"fake": "fake has no kernel for Neg, by which ceilings are measured"}


def test_a_folder_that_cannot_be_written_stops_nothing(
    registry: PluginRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path / "file" / "below"))
    program = aicore.compile(graph(), "cpu", registry=registry)
    assert program.profile({"x": np.ones((N, N), np.float32)}, 1).ceilings["cpu"].flops > 0


def test_a_step_time_has_three_numbers() -> None:
    assert StepTime(1.0, 2.0, 1.5).device == 1.5
