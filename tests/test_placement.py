"""Which target is used, and what runs elsewhere: said in one line each, or an error with reason and fix."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aicore
import aicore_cpu_numpy.plugin
import aicore_fake_gpu.plugin
from aicore.config import Config
from aicore.errors import PluginError, UnsupportedError
from aicore.ir import Builder, Graph
from aicore.kernels import Kernel
from aicore.plugins import PluginRegistry, Probe, hookimpl

X = np.array([-2, 0.5], np.float32)
SUMMARY = "fake_gpu 1/3 nodes; 2 -> cpu_numpy [Neg: no kernel; Sin: no kernel]"


def network() -> Graph:
    b = Builder()
    x = b.input("x", "float32", (2,))
    return b.graph((x,), {"y": b.Neg(b.Relu(b.Sin(x)))})


def fake_gpu_without(*ops: str) -> Any:
    """The plugin of the fake GPU without the kernels of some ops."""

    @hookimpl
    def register_kernels() -> list[Kernel]:
        return [k for k in aicore_fake_gpu.plugin.register_kernels() if k.op.__name__ not in ops]

    hooks = {name: getattr(aicore_fake_gpu.plugin, name) for name in ("INFO", "probe", "launch")}
    return SimpleNamespace(__name__="fake", register_kernels=register_kernels, **hooks)


@pytest.fixture
def partial() -> PluginRegistry:
    """A fake GPU that lacks some kernels, and the CPU."""
    fake = fake_gpu_without("Neg", "Sin", "Region")  # a Region is a chain of pointwise ops in one kernel
    return PluginRegistry.from_modules({"cpu_numpy": aicore_cpu_numpy.plugin, "fake_gpu": fake})


def run(registry: PluginRegistry, **options: Any) -> aicore.Program:
    program = aicore.compile(network(), target="fake", registry=registry, **options)
    np.testing.assert_array_equal(program(x=X)["y"], -np.maximum(np.sin(X), 0))
    return program


def test_warn_says_in_one_line_which_plugin_runs_what_and_why(
    partial: PluginRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    program = run(partial)
    assert [(r.levelname, r.message) for r in caplog.records] == [("WARNING", f"placement: {SUMMARY}")]
    assert str(program.placement) == SUMMARY
    program(x=X + 1)
    assert len(caplog.records) == 1  # once for each placement, not for each run


def test_quiet_says_nothing_and_explains(
    partial: PluginRegistry, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    program = run(partial, fallback="quiet")
    assert caplog.messages == []
    assert capfd.readouterr() == ("", "")
    assert f"placement: {SUMMARY}" in str(program.explain()).splitlines()


def test_error_names_the_node_the_reason_and_the_fix(partial: PluginRegistry) -> None:
    with pytest.raises(UnsupportedError) as caught:
        run(partial, fallback="error")
    assert str(caught.value) == (
        "Sin 'sin': no kernel for Sin on fake; fallback='warn' or 'quiet' lets cpu_numpy try it"
    )


def test_error_without_anything_to_fall_back_to_gives_no_advice() -> None:
    alone = PluginRegistry.from_modules({"fake_gpu": fake_gpu_without("Neg", "Region")})
    for policy in ("error", "warn", "quiet"):
        with pytest.raises(UnsupportedError, match=r"^Neg 'neg': no kernel for Neg on fake$"):
            run(alone, fallback=policy)


@pytest.mark.parametrize("policy", ["error", "warn", "quiet"])
def test_without_a_fallback_every_policy_is_the_same(
    registry: PluginRegistry, policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert str(run(registry, fallback=policy).placement).startswith("fake_gpu ")
    assert caplog.messages == []


def test_the_variable_sets_the_policy(partial: PluginRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_FALLBACK", "error")
    with pytest.raises(UnsupportedError, match="no kernel for Sin on fake"):
        run(partial)
    assert run(partial, fallback="quiet").placement is not None


def test_the_choice_of_a_target_is_logged_in_one_line(
    registry: PluginRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aicore")
    program = aicore.compile(network(), registry=registry)
    assert [(r.name, r.levelname, r.message) for r in caplog.records] == [("aicore", "INFO", program.target)]
    assert program.target.startswith("target cpu: cpu_numpy (")
    assert program.target.endswith("has the highest priority, 0")
    assert str(program.explain()).splitlines()[0] == program.target
    caplog.clear()
    aicore.compile(network(), "fake", registry=registry)
    assert caplog.messages == []


def test_a_target_of_the_variable_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aicore")
    plugins = {"cpu_numpy": aicore_cpu_numpy.plugin, "fake_gpu": aicore_fake_gpu.plugin}
    aicore.compile(network(), registry=PluginRegistry.from_modules(plugins, config=Config(target="fake")))
    assert caplog.messages == ["target fake: AICORE_TARGET asks for it"]


def test_a_requested_target_that_cannot_be_used_raises_with_reason_and_fix() -> None:
    @hookimpl
    def probe() -> Probe:
        return Probe(reason="the bus is empty", fix="plug a card in")

    absent = fake_gpu_without()
    absent.probe = probe
    registry = PluginRegistry.from_modules({"cpu_numpy": aicore_cpu_numpy.plugin, "fake_gpu": absent})
    for target in ("fake", "fake:0"):
        with pytest.raises(
            PluginError, match=r"device 'fake.*' cannot be used: plugin fake_gpu .* is unavailable: the"
        ):
            aicore.compile(network(), target, registry=registry)
    with pytest.raises(PluginError, match=r"the bus is empty; fix: plug a card in$"):
        aicore.compile(network(), "fake", registry=registry)
    assert aicore.compile(network(), registry=registry).device.name == "cpu"
