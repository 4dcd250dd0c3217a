"""What is kept for whole graphs: what it holds for, and what becomes of a record that fits no more."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.api import graph_records
from aicore.ir import Builder, Graph, TensorType, unknown
from aicore.plugins import PluginRegistry
from aicore.runtime import usable_cores, using_threads
from aicore.tuning import TuningStore, fingerprint
from aicore.tuning.graphs import Verdict
from aicore.tuning.store import Row


def network(scale: float = 1.0, name: str = "y", axis: int = 1, dim: Any = "n", bound: float = 0.5) -> Graph:
    op = Builder()
    x = op.input("x", "float32", (dim, 8))
    w = op.constant((np.arange(64).reshape(8, 8) * scale).astype(np.float32))
    h = op.Add(op.Relu(op.MatMul(x, w)), op.scalar(bound, x))
    return op.graph([x], {name: op.Softmax(h, axis=axis)})


def test_a_fingerprint_is_that_of_structure_names_and_small_constants() -> None:
    assert fingerprint(network()) == fingerprint(network())
    assert fingerprint(network(scale=2.0)) == fingerprint(network())  # other weights
    others = [network(name="z"), network(axis=0), network(dim=4), network(bound=0.25)]
    assert len({fingerprint(graph) for graph in (network(), *others)}) == 5


def test_unknown_dims_count_by_their_order() -> None:
    def made() -> Graph:
        op = Builder()
        x = op.input("x", "float32", (unknown(), 3))
        return op.graph([x], {"y": op.Relu(x)})

    assert fingerprint(made()) == fingerprint(made())


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("AICORE_TUNE", "cached")
    return tmp_path


FEED = {"x": np.ones((2, 8), np.float32)}
TYPES = (TensorType("float32", (2, 8)),)


def keep(registry: PluginRegistry, chosen: str, graph: Graph | None = None) -> None:
    records = graph_records(graph or network(), "cpu", registry=registry)
    with using_threads(usable_cores()):
        records.keep(TYPES, Verdict(chosen, {"default": 2e-3, chosen: 1e-3}, (0.5, 0.4, 0.6), {}))


def choices_of(registry: PluginRegistry, graph: Graph | None = None, **options: Any) -> str:
    program = aicore.compile(graph or network(), "cpu", registry=registry, **options)
    program.run(FEED)
    return program.explain().choices


def test_a_record_is_used_for_exactly_its_graph_types_and_threads(cache: Path, registry: PluginRegistry) -> None:
    assert choices_of(registry) == ""
    keep(registry, "-fuse-pointwise")
    told = "-fuse-pointwise: measured on this device for these shapes, 0.50 of the time of others"
    assert choices_of(registry).startswith(told)
    assert choices_of(registry, network(scale=3.0)).startswith(told)
    assert choices_of(registry, network(axis=0)) == ""
    assert choices_of(registry, threads=usable_cores() + 1) == ""
    assert choices_of(registry, tune="off") == ""
    assert choices_of(registry, optimize=False) == ""
    assert choices_of(registry, choices="default") == ""
    program = aicore.compile(network(), "cpu", registry=registry)
    program.run({"x": np.ones((3, 8), np.float32)})
    assert program.explain().choices == ""
    program.run(FEED)
    assert program.explain().choices.startswith(told)


def test_the_program_of_a_record_is_the_one_that_its_choices_make(cache: Path, registry: PluginRegistry) -> None:
    keep(registry, "-fuse-linear,-fuse-pointwise")
    found = aicore.compile(network(), "cpu", registry=registry)
    asked = aicore.compile(network(), "cpu", registry=registry, choices="-fuse-linear,-fuse-pointwise", tune="off")
    plain = aicore.compile(network(), "cpu", registry=registry, tune="off")
    results = [program.run(FEED)["y"] for program in (found, asked, plain)]
    assert found.plan[0].nodes == asked.plan[0].nodes > plain.plan[0].nodes
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_allclose(results[0], results[2], rtol=1e-5)
    assert found.bind(FEED)()["y"].shape == (2, 8)
    names = [row.name for report in found.explain().passes for row in report.rows]
    assert "fuse-linear" not in names


def changed(cache: Path, **fields: Any) -> None:
    store = TuningStore(cache / "tuning.sqlite")
    rows = [row for row in store.rows() if row.problem.startswith("graph ")]
    store.keep([Row(row.device, row.problem, replace(row.record, **fields)) for row in rows])


def test_other_code_makes_a_miss(cache: Path, registry: PluginRegistry) -> None:
    keep(registry, "-fuse-pointwise")
    changed(cache, considered="c0de")
    assert choices_of(registry) == ""
    with using_threads(usable_cores()):
        found = graph_records(network(), "cpu", registry=registry).find(TYPES)
    assert found == "passes or kernels have changed since it was measured"


@pytest.mark.parametrize("chosen", ["-no-such-rule", "rubbish[", "-decompose-unsupported"])
def test_choices_that_fit_no_pass_are_said_and_ignored(
    cache: Path, registry: PluginRegistry, caplog: pytest.LogCaptureFixture, chosen: str
) -> None:
    keep(registry, "-fuse-pointwise")
    changed(cache, chosen=chosen, seconds={"default": 1.0, chosen: 1.0})
    with caplog.at_level(logging.WARNING, "aicore"):
        assert choices_of(registry) == ""
    assert "the choices that were measured for this graph are ignored" in caplog.text


def test_a_damaged_record_is_a_miss(cache: Path, registry: PluginRegistry) -> None:
    import sqlite3

    keep(registry, "-fuse-pointwise")
    with sqlite3.connect(cache / "tuning.sqlite") as connection:
        connection.execute("UPDATE records SET value = 'x' WHERE problem LIKE 'graph %'")
    connection.close()
    assert choices_of(registry) == ""


def test_bodies_of_branches_follow_the_choices_of_their_graph(cache: Path, registry: PluginRegistry) -> None:
    def branch(kind: str) -> Graph:
        b = Builder()
        x = b.input("x", "float32", (2, 8))
        return b.graph([x], {"y": getattr(b, kind)(b.Neg(b.Exp(x)))})

    op = Builder()
    c, x = op.input("c", "bool", ()), op.input("x", "float32", (2, 8))
    y = op.If(c, x, then_branch=branch("Tanh"), else_branch=branch("Relu"))
    graph = op.graph([c, x], {"y": y})
    types = (TensorType("bool", ()), *TYPES)
    records = graph_records(graph, "cpu", registry=registry)
    with using_threads(usable_cores()):
        records.keep(types, Verdict("-fuse-pointwise", {"default": 2.0, "-fuse-pointwise": 1.0}, (0.5, 0.4, 0.6), {}))
    program = aicore.compile(graph, "cpu", registry=registry)
    want = np.tanh(-np.exp(FEED["x"]))
    np.testing.assert_allclose(program.run({"c": np.array(True), **FEED})["y"], want, rtol=1e-6)
    assert program.explain().choices.startswith("-fuse-pointwise")


def test_a_look_at_an_absent_store_makes_no_file(cache: Path, registry: PluginRegistry) -> None:
    assert choices_of(registry) == ""
    assert not TuningStore(cache / "tuning.sqlite").has("here", "graph ")
    assert list(cache.iterdir()) == []
