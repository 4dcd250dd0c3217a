"""Ways that race: what a pass may ask, how a race is named, and small graphs with the channels of their images last."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

import aicore
from aicore.config import Config
from aicore.ir import Builder, Graph
from aicore.kernels import kernel
from aicore.ops.elementwise import Abs, Neg
from aicore.ops.layout import ChannelsLast
from aicore.passes import Pass
from aicore.passes.in_channels_last import in_channels_last
from aicore.plugins import PluginRegistry, hookimpl
from aicore.rewrite import Context, Race, RaceResult
from aicore.rewrite.races import nobody_measured
from aicore.tuning import Measure, Raced
from aicore.tuning.races import race_text
from aicore_cpu_numpy import plugin as cpu_plugin

Array = np.ndarray[Any, Any]


def way(*names: str, shape: tuple[int, ...] = (4, 4)) -> Graph:
    op = Builder()
    x = value = op.input("x", "float32", shape)
    for name in names:
        value = getattr(op, name)(value)
    return op.graph([x], {"y": value})


def test_a_race_is_named_by_ways_ops_types_and_wiring() -> None:
    text = race_text(Race({"one": way("Neg"), "two": way("Abs", "Neg")}, "some-pass"))
    assert text == ("race one: %1=Neg(float32[4,4])<%0>; or two: %1=Abs(float32[4,4])<%0> %2=Neg(float32[4,4])<%1>")
    op = Builder()
    x = op.input("x", "float32", (4, 4))
    apart = op.graph([x], {"y": op.Sub(op.Neg(x), x)})
    op = Builder()
    x = op.input("x", "float32", (4, 4))
    turned = op.graph([x], {"y": op.Sub(x, op.Neg(x))})
    assert race_text(Race({"one": apart}, "p")) != race_text(Race({"one": turned}, "p"))
    tf32 = race_text(Race({"one": way("Neg")}, "p"), "tf32")
    assert tf32 != race_text(Race({"one": way("Neg")}, "p"))


def test_without_a_judge_nothing_is_known() -> None:
    race = Race({"one": way("Neg"), "two": way("Abs")}, "some-pass")
    assert nobody_measured([race, race]) == ["measured times are ignored"] * 2
    assert Context().race([race]) == ["measured times are ignored"]
    assert race.default == "one"


class Asking(Pass):
    """Asks about two ways, and keeps what it was told."""

    name: ClassVar[str] = "asking"
    phase: ClassVar[str] = "simplify"
    told: ClassVar[list[Any]] = []
    ways: ClassVar[dict[str, Graph]] = {}

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        if any(isinstance(node.op, Neg) for node in graph.nodes):
            self.told[:] = ctx.race([Race(self.ways, self.name)])
        return graph


def told(ways: dict[str, Graph], tune: Any, *more: Any) -> list[Any]:
    module = ModuleType("asking")

    def register_passes() -> list[Pass]:
        return [Asking()]

    def register_kernels() -> list[Any]:
        return [*cpu_plugin.register_kernels(), *more]

    module.probe = cpu_plugin.probe  # type: ignore[attr-defined]
    module.launch = cpu_plugin.launch  # type: ignore[attr-defined]
    module.register_passes = hookimpl(register_passes, specname="register_passes")  # type: ignore[attr-defined]
    module.register_kernels = hookimpl(register_kernels, specname="register_kernels")  # type: ignore[attr-defined]
    registry = PluginRegistry.from_modules({"asking": module}, config=Config())
    Asking.ways = ways
    aicore.compile(way("Neg"), "cpu", registry=registry, tune=tune)
    return list(Asking.told)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))


SHORT, LONG = way("Neg", shape=(256, 256)), way(*["Exp", "Log"] * 9, "Neg", shape=(256, 256))


def test_the_faster_way_wins_and_is_remembered() -> None:
    """The long way takes ten times as long on any machine."""
    outcomes: list[Raced] = []
    ways = {"long": LONG, "short": SHORT}
    assert told(ways, "off") == ["measured times are ignored"]
    assert told(ways, "cached") == ["nothing was measured yet"]
    (found,) = told(ways, Measure(raced=outcomes.append))
    assert isinstance(found, RaceResult)
    assert found.chosen == "short"
    assert found.seconds["short"] < found.seconds["long"]
    assert outcomes[0].record is not None
    assert outcomes[0].record.default == "long"
    assert told(ways, "cached") == [found]


def test_a_way_that_the_device_lacks_a_kernel_for_does_not_race(caplog: pytest.LogCaptureFixture) -> None:
    complex_way = way("Neg", shape=(256, 256))
    op = Builder()
    x = op.input("x", "float32", (256, 256))
    unknown = op.graph([x], {"y": op.apply(Unheard(), x)})
    assert told({"one": complex_way, "two": unknown}, Measure()) == ["two: the device lacks a kernel for a part of it"]
    assert "a race was not measured" in caplog.text


class Unheard(Abs):
    """An op that no device has a kernel for."""


def test_a_way_whose_kernel_raises_does_not_race(caplog: pytest.LogCaptureFixture) -> None:
    def raising(op: Unheard, x: Array, *, out: Array) -> None:
        raise RuntimeError("no such number")

    made = kernel(Unheard, device="cpu", variant="raising")(raising)
    op = Builder()
    x = op.input("x", "float32", (256, 256))
    broken = op.graph([x], {"y": op.apply(Unheard(), x)})
    (reason,) = told({"one": SHORT, "two": broken}, Measure(), made)
    assert "no such number" in reason
    assert "a race was not measured" in caplog.text


def images(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_a_graph_in_channels_last_computes_the_same() -> None:
    op = Builder()
    x, other = op.input("x", "float32", (2, 3, 5, 4)), op.input("other", "float32", (2, 6, 5, 4))
    w = op.constant(images(6, 3, 3, 3))
    bias = op.constant(images(6, 1, 1))
    y = op.Relu(op.Add(op.Add(op.Conv(x, w, pads=(1, 1, 1, 1)), other), bias))
    graph = op.graph([x, other], {"y": y})
    last = in_channels_last(graph)
    assert last is not None
    assert [v.type.static_shape for v in last.inputs] == [(2, 5, 4, 3), (2, 5, 4, 6)]
    assert isinstance(last.nodes[0].op, ChannelsLast)
    given = {"x": images(2, 3, 5, 4), "other": images(2, 6, 5, 4)}
    expected = aicore.compile(graph, "cpu", optimize=False, tune="off")(**given)["y"]
    moved = {name: np.ascontiguousarray(array.transpose(0, 2, 3, 1)) for name, array in given.items()}
    got = aicore.compile(last, "cpu", optimize=False, tune="off")(**moved)["y"]
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), expected, rtol=1e-5, atol=1e-5)


def test_what_has_no_channels_or_several_ranks_has_no_such_graph() -> None:
    assert in_channels_last(way("Neg")) is None
    op = Builder()
    x = op.input("x", "float32", (2, 3, 5, 4))
    flat = op.graph([x], {"y": op.Flatten(op.Conv(x, op.constant(images(6, 3, 3, 3))))})
    assert in_channels_last(flat) is None
    op = Builder()
    x = op.input("x", "float32", (2, 3, 5, 4))
    turned = op.graph([x], {"y": op.Transpose(op.Conv(x, op.constant(images(6, 3, 3, 3))), perm=(3, 2, 1, 0))})
    assert in_channels_last(turned) is None
