"""Memory plans to look at: what is told follows from the lifetimes, and no two of them share a byte."""

from __future__ import annotations

import json

import numpy as np
import pytest

import aicore
from aicore.ir import Builder, Graph
from aicore.plugins import PluginRegistry
from aicore.runtime import Lifetime, MemoryTimeline, MemoryView
from aicore.runtime.arena import ALIGNMENT, Block, lower_bound

KIB = 1024


def chain(length: int) -> Graph:
    """Products of a square matrix with itself, 64 KiB each; none can be computed in place."""
    b = Builder()
    x = value = b.input("x", "float32", (128, 128))
    for _ in range(length):
        value = b.MatMul(value, value)
    return b.graph((x,), {"y": value})


def timeline(*lives: tuple[str, int, int, int, int], arena: int) -> MemoryTimeline:
    """lives: name, offset, bytes, first and last step."""
    made = tuple(Lifetime(name, "float32[16]", "buffer", *numbers) for name, *numbers in lives)
    bound = lower_bound([Block(life.nbytes, life.start, life.end) for life in made])
    steps = tuple(f"Neg '{i}'" for i in range(max((life.end for life in made), default=-1) + 1))
    return MemoryTimeline("cpu", steps, made, arena, bound, sum(life.nbytes for life in made), 0, 0)


@pytest.mark.parametrize("target", ["cpu", "fake"])
def test_a_chain(registry: PluginRegistry, target: str) -> None:
    """Each product is alive for two steps, so two places are enough, whatever their number."""
    program = aicore.compile(chain(5), target, registry=registry, optimize=False)
    program(x=np.eye(128, dtype=np.float32))
    (found,) = program.memory().plans
    buffers = [life for life in found.lifetimes if life.kind == "buffer"]
    assert [(life.nbytes, life.start, life.end) for life in buffers] == [(64 * KIB, i, i + 1) for i in range(4)]
    assert max(found.alive) == found.lower_bound == found.arena
    assert found.peak is not None
    assert sum(life.nbytes for life in found.holders) == found.lower_bound
    assert found.fragmentation == 0
    assert len(found.steps) == 5


@pytest.mark.parametrize("reuse", [True, False])
def test_what_is_told_follows_from_the_lifetimes(registry: PluginRegistry, reuse: bool) -> None:
    b = Builder()
    x = b.input("x", "float32", (4, 4))
    wide = b.MatMul(b.Concat(x, x, axis=1), b.constant(np.ones((8, 8), np.float32)))
    graph = b.graph((x,), {"y": b.ReduceSum(b.Softmax(wide)), "z": b.Neg(b.Transpose(wide, perm=(1, 0)))})
    program = aicore.compile(graph, "cpu", registry=registry, reuse_memory=reuse)
    program.specialise({"x": (4, 4)})
    for found in program.memory().plans:
        lives = found.lifetimes
        assert lower_bound([Block(life.nbytes, life.start, life.end) for life in lives]) == found.lower_bound
        assert sum(life.nbytes for life in lives) == found.without_reuse > 0
        assert max(life.offset + life.nbytes for life in lives) <= found.arena
        for i, one in enumerate(lives):
            for other in lives[:i]:
                apart_in_time = one.end < other.start or other.end < one.start
                apart = one.offset + one.nbytes <= other.offset or other.offset + other.nbytes <= one.offset
                assert apart or (apart_in_time and reuse)


def test_fragmentation_and_peak() -> None:
    """Two of 64 bytes are alive together at most, and lie 64 bytes apart."""
    found = timeline(("a", 0, 64, 0, 1), ("b", 128, 64, 1, 2), ("c", 64, 64, 2, 2), arena=192)
    assert found.alive == (64, 128, 128)
    assert found.peak == 1
    assert [life.name for life in found.holders] == ["a", "b"]
    assert found.fragmentation == pytest.approx(1 / 3)
    text = str(found)
    assert "33.3% lost to fragmentation" in text
    assert "peak at step 1 of 3, Neg '1'; it is held by:" in text


def test_sizes_count_in_whole_cache_lines() -> None:
    assert timeline(("a", 0, 1, 0, 0), arena=ALIGNMENT).alive == (ALIGNMENT,)


def test_nothing_is_planned_yet(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", ("n",))
    memory = aicore.compile(b.graph((x,), {"y": b.Neg(x)}), "cpu", registry=registry).memory()
    assert memory == MemoryView(())
    assert str(memory) == "no memory is planned yet: call the program, or `specialise` it"
    assert memory.to_json() == {"plans": []}


def test_an_empty_arena() -> None:
    found = timeline(arena=0)
    assert (found.peak, found.holders, found.fragmentation) == (None, (), 0)
    assert len(str(found).splitlines()) == 2


def test_all_forms_tell_the_same() -> None:
    life = ("<script>", 0, 64, 0, 0)
    view = MemoryView((timeline(life, ("b", 64, 64, 0, 3), arena=128),))
    data = json.loads(json.dumps(view.to_json()))["plans"][0]
    assert data["peak"] == {"step": 0, "bytes": 128}
    assert data["lifetimes"][1] == {
        "name": "b", "type": "float32[16]", "kind": "buffer", "offset": 64, "bytes": 64, "start": 0, "end": 3,
    }  # fmt: skip
    html = view._repr_html_()
    assert html.count("<rect ") == 2
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "█" in str(view)


def test_few_of_many_holders_are_named() -> None:
    many = timeline(*((f"b{i}", 64 * i, 64, 0, 0) for i in range(13)), arena=13 * 64)
    assert len(many.holders) == 13
    assert str(many).endswith("and 3 smaller ones")
