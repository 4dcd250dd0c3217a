"""Names of targets, and what each may use."""

from __future__ import annotations

import pytest

import aicore.ops as ops
from aicore.errors import ConfigError, PluginError
from aicore.kernels import REFERENCE
from aicore.plugins import PluginRegistry
from aicore.testing import Target
from aicore.testing.targets import split_target


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("cpu", ("cpu", None)),
        ("cuda:0", ("cuda:0", None)),
        ("cpu:reference", ("cpu", "reference")),
        ("cuda:1:wmma", ("cuda:1", "wmma")),
    ],
)
def test_split(name: str, parts: tuple[str, str | None]) -> None:
    assert split_target(name) == parts


@pytest.mark.parametrize("name", ["", ":fast", "cpu:", "cuda:0:"])
def test_no_target(name: str) -> None:
    with pytest.raises(ConfigError, match="write a device such as cpu or cuda:0"):
        split_target(name)


def test_an_unusable_device_and_an_unknown_variant(registry: PluginRegistry) -> None:
    with pytest.raises(PluginError, match="no plugin drives device 'tpu'"):
        Target.find("tpu", registry)
    with pytest.raises(PluginError, match=r"no kernel on cpu is called 'slow'; there are: fast, .*blas"):
        Target.find("cpu:slow", registry)


def variants(target: Target, op: type[ops.Op] | None) -> list[set[str]]:
    found = []
    for registry, _ in target.attempts(op):
        found.append({k.variant for k in registry.kernels if k.device == "cpu" and op in (None, k.op)})
    return found


def test_what_a_target_may_use(registry: PluginRegistry) -> None:
    both = {k.variant for k in registry.kernels if k.op is ops.Conv and k.device == "cpu"}
    assert variants(Target.find("cpu", registry), ops.Conv) == [both]
    assert variants(Target.find("cpu:reference", registry), ops.Conv) == [{REFERENCE}]
    fast = Target.find("cpu:fast", registry)
    assert variants(fast, ops.Conv) == [{variant} for variant in both - {REFERENCE}] or len(both) > 2
    assert variants(fast, ops.Det) == [set()]
    assert REFERENCE not in variants(fast, None)[0]


def test_only_a_whole_device_may_fall_back(registry: PluginRegistry) -> None:
    whole, _ = Target.find("fake", registry).attempts(ops.Relu)[0]
    part, _ = Target.find("fake:reference", registry).attempts(ops.Relu)[0]
    assert set(whole.devices()) == {"cpu", "fake"}
    assert set(part.devices()) == {"fake"}
    assert whole.records == registry.activate().records


def test_launches_are_watched(registry: PluginRegistry) -> None:
    restricted, watch = Target.find("cpu", registry).attempts(ops.Relu)[0]
    assert restricted.launcher("cpu") is not registry.launcher("cpu")
    assert (watch.steps_run("cpu"), watch.planned("cpu"), watch.kernels("cpu")) == (0, 0, ())
