"""The ops on the CPU pass the suite that every backend is held to, and the plugin is found as it is installed."""

from __future__ import annotations

from typing import ClassVar

from aicore.plugins import PluginRegistry, State, plugin_registry
from aicore.testing.suite import ConformanceSuite
from aicore_int8_quant.ops import OPS


class TestInt8(ConformanceSuite):
    target = "cpu"
    ops = "Int8*"
    must_run: ClassVar[tuple[str, ...]] = ("Int8Conv-*", "Int8MatMul-*", "Int8Lookup-*")


class TestWeightOnly(ConformanceSuite):
    target = "cpu"
    ops = "WeightOnly*"


def test_the_plugin_is_active() -> None:
    registry: PluginRegistry = plugin_registry()
    assert {op.__name__ for op in OPS} <= set(registry.ops)
    assert "fuse-int8" in [one.name for one in registry.passes]
    (record,) = [record for record in registry.records if record.name == "int8_quant"]
    assert record.state is State.ACTIVE
    assert registry.default_target()[0] != "int8_quant"
