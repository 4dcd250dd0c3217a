"""`bisect` inside of loops and branches, which are compiled apart when their sizes are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore.api
import aicore.experiments.blame
import aicore.testing.wholes
from aicore import ops
from aicore.experiments import bisect
from aicore.ir import Builder, Graph, Value
from aicore.kernels import kernel
from aicore.passes import Pass
from aicore.rewrite import rule
from aicore.testing import replay
from tests.experiments.planted import pass_of, registry_with

FEED = {"x": np.float32([-1, -2])}
PLAIN = "-fuse-pointwise"


@rule(lambda op, x: op.Relu(x))
def relu_as_max(op: Any, x: Value) -> Any:
    """Wrong, and only where the size is known: a body whose sizes are open has none until it runs."""
    return op.Max(x, op.scalar(100.0, x)) if x.type.is_static else None


@pytest.fixture
def wrong_when_sized(monkeypatch: pytest.MonkeyPatch) -> Pass:
    planted = pass_of("planted", relu_as_max)
    for module in (aicore.api, aicore.testing.wholes):
        known = module.specialise_passes()
        monkeypatch.setattr(module, "specialise_passes", lambda known=known: (planted, *known))
    return planted


def body(name: str, inner: Callable[[Builder, Value], Value]) -> Graph:
    """(i, go on, h) -> (go on, h and inner(h)), which is twice as long."""
    op = Builder()
    i, go_on, h = op.input("i", "int64", ()), op.input("go_on", "bool", ()), op.input(name, "float32", ("n",))
    return op.graph([i, go_on, h], {"again": op.Identity(go_on), "longer": op.Concat(inner(op, h), h, axis=0)})


def loop(op: Builder, x: Value, inner: Graph, trips: int = 3) -> Any:
    return op.apply(ops.Loop(inner, 1), op.constant(np.int64(trips)), None, x)


def in_a_loop(name: str = "h") -> Graph:
    op = Builder()
    x = op.input("x", "float32", (2,))
    return op.graph([x], {"y": loop(op, op.Neg(x), body(name, lambda op, h: op.Relu(op.Sub(h, op.scalar(0.25, h)))))})


def in_a_loop_in_a_loop() -> Graph:
    op = Builder()
    x = op.input("x", "float32", (2,))
    inner = body("k", lambda op, k: op.Relu(op.Sub(k, op.scalar(0.25, k))))
    return op.graph([x], {"y": loop(op, op.Neg(x), body("h", lambda op, h: loop(op, h, inner, 2)), 2)})


def in_a_branch() -> Graph:
    """Of a sequence whose length the condition decides, so that the branch has no size before it runs."""

    def branch(act: Callable[[Builder, Value], Value]) -> Graph:
        op = Builder()
        x = op.input("x", "float32", ("n",))
        return op.graph([x], {"y": act(op, x)})

    op = Builder()
    x = op.input("x", "float32", (2,))
    kept = op.Compress(op.Neg(x), op.Greater(op.Neg(x), op.scalar(1.5, x)), axis=0)
    flag = op.Greater(op.ReduceSum(kept, keepdims=0), op.scalar(0.0, x))
    branches = (branch(lambda op, x: op.Relu(op.Neg(x))), branch(lambda op, x: op.Neg(x)))
    return op.graph([x], {"y": op.apply(ops.If(*branches), flag, kept)})


@pytest.mark.parametrize(
    ("graph", "numbers"),
    [
        (in_a_loop(), [0.75, 1.75]),
        (in_a_loop("x"), [0.75, 1.75]),  # the name of the model's input
        (in_a_loop_in_a_loop(), [0.75, 1.75]),
        (in_a_branch(), [0.0]),
    ],
    ids=["loop", "a loop with the model's names", "loop in a loop", "branch"],
)
def test_a_wrong_change_in_a_body_has_a_repro_of_its_nodes(
    wrong_when_sized: Pass, tmp_path: Path, graph: Graph, numbers: list[float]
) -> None:
    registry = registry_with()
    found = bisect(graph, FEED, target="cpu", registry=registry, choices=PLAIN, folder=tmp_path)
    assert (found.pass_name, found.rule) == ("planted", "relu-as-max")
    assert found.node.endswith("in the body of a loop or branch")
    assert found.verdict == "the change is wrong by itself: its nodes alone show it"
    assert (tmp_path / "graph.txt").read_text().count("= Relu(") == 1
    again = replay(tmp_path, registry)
    assert again.reproduced
    (want,) = [np.load(path) for path in tmp_path.glob("want*.npy")]
    np.testing.assert_array_equal(want, numbers)


def test_a_kernel_that_is_wrong_for_the_sizes_of_a_body_is_named(tmp_path: Path) -> None:
    @kernel(
        ops.Region,
        device="cpu",
        variant="off_by_one",
        supports=lambda op, *types: None if types[0] is not None and types[0].shape == (4,) else "size",
        estimate=lambda op, *operands: 0.0,
    )
    def off_by_one(op: Any, x: Any, *more: Any) -> Any:
        return np.maximum(x - np.float32(0.25), 0) + 1

    registry = registry_with(kernels=(off_by_one,))
    found = bisect(in_a_loop(), FEED, target="cpu", registry=registry, folder=tmp_path)
    assert found.pass_name == "fuse-pointwise"
    assert found.verdict.startswith("the change keeps what the graph means, but its node is computed wrongly")
    assert "off_by_one" in found.verdict
    assert replay(tmp_path, registry).reproduced


def test_a_body_of_which_no_call_is_seen_is_told(wrong_when_sized: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aicore.experiments.blame, "calls_of", lambda *_: [])
    found = bisect(in_a_loop(), FEED, target="cpu", registry=registry_with(), choices=PLAIN)
    assert (found.verdict, found.repro) == ("no call of that body is seen", "")
