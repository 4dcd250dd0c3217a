"""The registry: registrations all or nothing, conflicts named, failures kept, no device silently replaced."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from aicore.config import Config
from aicore.errors import PluginError, UnsupportedError
from aicore.ir import Op
from aicore.kernels import Kernel
from aicore.plugins import PluginInfo, PluginRegistry, Probe, State, hookimpl


class Blend(Op):
    """An op of a plugin."""


def a_kernel(variant: str = "reference", device: str = "cpu", op: type[Op] = Blend) -> Kernel:
    return Kernel(op, device, variant, lambda op, x: x)


def a_pass(name: str = "tidy") -> Any:
    return SimpleNamespace(name=name, phase="fuse", before=(), after=(), apply=lambda graph, ctx: graph)


def an_executable(made_by: str, plan: Any) -> Any:
    return SimpleNamespace(made_by=made_by, plan=plan, steps_run=0, run=print, profile=print, release=print)


def a_device(name: str, **parts: Any) -> Any:
    methods = dict.fromkeys(("allocate", "empty", "upload", "download", "copy", "synchronize"), print)
    kind = name.partition(":")[0]
    return SimpleNamespace(
        **methods, **{"name": name, "kind": kind, "fingerprint": "", "static_shapes_only": 0, **parts}
    )


def hooks(name: str = "a_module", info: PluginInfo | None = None, **results: Any) -> Any:
    """A plugin whose hooks return these values; a value that is an exception is raised."""

    def implement(hook: str, value: Any) -> Any:
        def answer() -> Any:
            if isinstance(value, BaseException):
                raise value
            return value

        answer.__name__ = hook
        return hookimpl(answer)

    plugin = SimpleNamespace(__name__=name, **{hook: implement(hook, value) for hook, value in results.items()})
    if info is not None:
        plugin.INFO = info
    return plugin


def driver(*devices: str, priority: int = 0, name: str = "a_module", **results: Any) -> Any:
    """A device plugin for these devices."""

    @hookimpl
    def launch(plan: Any) -> Any:
        return an_executable(name, plan)

    info = PluginInfo("device", devices=tuple({device.partition(":")[0] for device in devices}), priority=priority)
    plugin = hooks(name, info, probe=Probe(tuple(a_device(device) for device in devices)), **results)
    plugin.launch = launch
    return plugin


def states(registry: PluginRegistry) -> dict[str, str]:
    return {record.name: str(record.state) for record in registry.activate().records}


@pytest.fixture(autouse=True)
def _expect_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


def test_all_registrations_of_an_active_plugin_are_there() -> None:
    plugin = driver("cpu", register_ops=[Blend], register_kernels=(a_kernel(),), register_passes=[a_pass()])
    registry = PluginRegistry.from_modules({"mine": plugin})
    assert registry.records[0].state is State.COMPATIBLE
    assert dict(registry.ops) == {"Blend": Blend}
    assert [(kernel.name, kernel.plugin) for kernel in registry.kernels] == [("blend_reference", "mine")]
    assert [a.name for a in registry.passes] == ["tidy"]
    assert registry.device("cpu").name == "cpu"
    assert registry.devices()["cpu"][0] == registry.plugin("mine")
    executable = registry.launcher("cpu:0")("plan")  # type: ignore[arg-type]
    assert executable == an_executable("a_module", "plan")
    assert registry.records[0].state is State.ACTIVE
    assert registry.records[0].seconds > 0
    with pytest.raises(TypeError):
        registry.ops["Other"] = Blend  # type: ignore[index]


def test_a_transform_has_no_device() -> None:
    plugin = hooks(info=PluginInfo("transform"), register_passes=[a_pass()])
    registry = PluginRegistry.from_modules({"tidy": plugin})
    assert states(registry) == {"tidy": "active"}
    assert registry.devices() == {}


@pytest.mark.parametrize(
    "last", [RuntimeError("boom"), SystemExit(4), [a_pass(), "no pass"], [Blend], None, UnsupportedError("no")]
)
def test_a_plugin_whose_third_hook_fails_registers_nothing(last: Any, caplog: pytest.LogCaptureFixture) -> None:
    bad = driver("npu", register_ops=[Blend], register_kernels=[a_kernel(device="npu")], register_passes=last)
    registry = PluginRegistry.from_modules({"bad": bad, "good": driver("cpu")})
    assert states(registry) == {"bad": "failed", "good": "active"}
    assert (dict(registry.ops), registry.kernels, registry.passes) == ({}, (), ())
    assert list(registry.devices()) == ["cpu"]
    assert [record.message for record in caplog.records] == [registry.records[0].explain()]


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        (driver("cpu", register_ops=[Blend()]), "which is no subclass of Op"),
        (driver("cpu", register_kernels=[len]), "which is no Kernel; make one with @kernel"),
        (driver("cpu", register_passes=[type("P", (), {"name": "p"})]), "which is no instance of a Pass"),
        (driver("cpu", register_passes=[SimpleNamespace(name="p")]), "which has no method apply"),
        (driver("cpu", register_ops={Blend}), "register_ops returned set; return a list"),
        (driver("cpu", register_ops=None), "register_ops returned NoneType; return a list"),
        (driver("cpu", register_ops=SystemExit(4)), "register_ops raised SystemExit: 4"),
        (hooks(probe=Probe(reason="none")), "it implements probe without launch"),
        (hooks(launch=None), "it implements launch without probe"),
        (
            hooks(info=PluginInfo("device", devices=("cpu",)), register_ops=[]),
            "INFO says kind='device', but it does not implement",
        ),
        (hooks(no_such_hook=1), "unknown hook 'no_such_hook'"),
        (SimpleNamespace(register_ops=list), "register_ops is not marked with @hookimpl"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_said(plugin: Any, reason: str) -> None:
    registry = PluginRegistry.from_modules({"bad": plugin})
    with pytest.raises(PluginError, match=r"^plugin bad \(.* given as a module\) has failed: .*; fix: ") as caught:
        registry.plugin("bad")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("probed", "reason"),
    [
        ("cpu", "probe returned str; return a Probe"),
        (None, "probe returned NoneType; return a Probe"),
        (Probe((a_device("cuda:0"),)), "probe returned device 'cuda:0', but INFO.devices is ('cpu',)"),
        (Probe((a_device("cpu"), a_device("cpu:0"))), "returned device 'cpu:0' twice"),
        (Probe((a_device("c p u"),)), "'c p u' is not a device's name"),
        (Probe((SimpleNamespace(name="cpu"),)), "which lacks a part of aicore.runtime.Device"),
        (Probe((a_device("cpu", kind="npu"),)), "device 'cpu', whose kind 'npu' is another"),
        (OSError("libcuda.so"), "probe raised OSError: libcuda.so"),
    ],
)
def test_a_bad_probe_is_a_failure(probed: Any, reason: str) -> None:
    plugin = driver("cpu")
    plugin.probe = hooks(probe=probed).probe
    registry = PluginRegistry.from_modules({"bad": plugin})
    with pytest.raises(PluginError, match="cannot be used") as caught:
        registry.device("cpu")
    assert reason in str(caught.value)


def test_a_probe_without_devices_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        Probe()


def test_a_wrong_signature_names_hook_and_argument() -> None:
    @hookimpl
    def register_ops(graph: object) -> list[object]:
        return [graph]

    registry = PluginRegistry.from_modules({"bad": SimpleNamespace(register_ops=register_ops)})
    assert states(registry) == {"bad": "failed"}
    reason = registry.records[0].reason
    assert "'bad'" in reason
    assert "register_ops" in reason
    assert "{'graph'}" in reason


def test_an_absent_device_is_unavailable_and_quiet(caplog: pytest.LogCaptureFixture) -> None:
    plugin = driver("cuda:0", register_ops=[Blend])
    plugin.probe = hooks(probe=Probe(reason="no NVIDIA driver", fix="install a driver")).probe
    registry = PluginRegistry.from_modules({"gpu": plugin, "slow": driver("cpu")})
    with pytest.raises(PluginError) as caught:
        registry.device("cuda")
    assert str(caught.value) == (
        "device 'cuda' cannot be used: plugin gpu (a_module given as a module) is unavailable: no NVIDIA driver; "
        "fix: install a driver"
    )
    assert registry.records[0].state is State.UNAVAILABLE
    assert dict(registry.ops) == {}
    assert caplog.records == []


def test_a_failure_is_kept_and_raised_each_time() -> None:
    cause = OSError("libnpu.so: cannot open shared object file")
    calls = []

    @hookimpl
    def probe() -> Probe:
        calls.append(1)
        raise cause

    plugin = driver("npu", priority=9)
    plugin.probe = probe
    plugin.INFO = PluginInfo("device", devices=("npu",), fixes={"libnpu.so": "apt install libnpu"})
    registry = PluginRegistry.from_modules({"npu": plugin, "slow": driver("cpu")})
    messages = set()
    for request in (registry.device, registry.launcher, registry.device_name, registry.device):
        with pytest.raises(PluginError) as caught:
            request("npu")
        messages.add(str(caught.value))
        assert caught.value.__cause__ is not None
        assert caught.value.__cause__.__cause__ is cause
    with pytest.raises(PluginError, match="libnpu") as caught:
        registry.plugin("npu")
    assert len(messages) == len(calls) == 1
    assert messages.pop().endswith("fix: apt install libnpu")
    assert registry.default_target().text.endswith("; failed plugins: npu")


def test_an_interrupt_is_no_failure_of_the_plugin() -> None:
    registry = PluginRegistry.from_modules({"p": hooks(register_ops=KeyboardInterrupt())})
    with pytest.raises(KeyboardInterrupt):
        registry.activate()
    assert registry.records[0].state is State.COMPATIBLE


def test_a_plugin_that_asks_for_the_registry_fails() -> None:
    registry: PluginRegistry

    @hookimpl
    def register_ops() -> list[type[Op]]:
        return list(registry.ops.values())

    registry = PluginRegistry.from_modules({"curious": SimpleNamespace(register_ops=register_ops)})
    assert states(registry) == {"curious": "failed"}
    assert "asks for the registry" in registry.records[0].reason


@pytest.mark.parametrize(
    ("results", "what"),
    [
        ({"register_ops": [Blend]}, "op 'Blend'"),
        ({"register_kernels": [a_kernel("fast")]}, "kernel 'fast' of Blend on cpu"),
        ({"register_passes": [a_pass()]}, "pass 'tidy'"),
    ],
)
def test_a_duplicate_fails_both_and_names_both(results: dict[str, Any], what: str) -> None:
    modules = {name: hooks(f"dist-{name}", **results) for name in ("b", "a")}
    registry = PluginRegistry.from_modules({**modules, "other": driver("cpu")})
    assert states(registry) == {"b": "failed", "a": "failed", "other": "active"}
    both = "b (dist-b given as a module) and a (dist-a given as a module)"
    assert [record.reason for record in registry.records[:2]] == [f"{what} is registered by {both}"] * 2
    assert (dict(registry.ops), registry.kernels, registry.passes) == ({}, (), ())


def test_a_thing_twice_in_one_plugin_fails() -> None:
    registry = PluginRegistry.from_modules({"a": hooks(register_kernels=[a_kernel(), a_kernel()])})
    assert states(registry) == {"a": "failed"}
    assert registry.records[0].reason.endswith("is registered by a (a_module given as a module) twice")


def test_a_kernel_stays_with_the_plugin_that_drives_its_device() -> None:
    owner, intruder = driver("cpu", register_kernels=[a_kernel()]), driver("npu", register_kernels=[a_kernel()])
    registry = PluginRegistry.from_modules({"a_intruder": intruder, "owner": owner})
    assert states(registry) == {"a_intruder": "failed", "owner": "active"}
    assert [kernel.plugin for kernel in registry.kernels] == ["owner"]


def test_other_variants_devices_and_ops_are_no_duplicates() -> None:
    other = type("Other", (Op,), {})
    plugins = {
        "a": hooks(register_kernels=[a_kernel(), a_kernel("fast"), a_kernel(op=other)]),
        "b": hooks(register_kernels=[a_kernel("faster"), a_kernel(device="npu")]),
    }
    registry = PluginRegistry.from_modules(plugins)
    assert states(registry) == {"a": "active", "b": "active"}
    assert len(registry.kernels) == 5


def test_kernels_of_what_an_op_holds_are_told_apart() -> None:
    def wrapping(held: type[Op]) -> Kernel:
        return Kernel(Blend, "cpu", "fast", lambda op, x: x, wraps=held)

    other = type("Other", (Op,), {})
    registry = PluginRegistry.from_modules({"a": hooks(register_kernels=[wrapping(Blend), wrapping(other)])})
    assert states(registry) == {"a": "active"}
    twice = PluginRegistry.from_modules({"a": hooks(register_kernels=[wrapping(other), wrapping(other)])})
    assert states(twice) == {"a": "failed"}
    assert twice.records[0].reason.startswith("kernel 'fast' of Blend(Other) on cpu is registered by a")


def test_the_name_of_a_core_op_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aicore.ops.CORE", {"Blend": object})
    registry = PluginRegistry.from_modules({"a": hooks(register_ops=[Blend])})
    assert states(registry) == {"a": "failed"}
    assert "op 'Blend' is an op of aicore itself" in registry.records[0].reason


def test_the_highest_priority_launches_the_device() -> None:
    plugins = {"slow": driver("cpu", name="slow"), "fast": driver("cpu", name="fast", priority=5)}
    registry = PluginRegistry.from_modules(plugins)
    assert registry.launcher("cpu")("plan") == an_executable("fast", "plan")  # type: ignore[arg-type]
    assert registry.default_target() == (
        "cpu",
        "target cpu: fast (fast given as a module) has the highest priority, 5",
    )


def test_equal_top_priority_for_one_device_names_both(caplog: pytest.LogCaptureFixture) -> None:
    plugins = {
        "b": driver("cpu", name="dist-b"),
        "a": driver("cpu:0", name="dist-a"),
        "low": driver("cpu", priority=-1),
    }
    registry = PluginRegistry.from_modules(plugins)
    expected = (
        "device 'cpu' is claimed with equal priority 0 by b (dist-b given as a module) and a (dist-a given as a module)"
        "; fix: set AICORE_DISABLE_PLUGINS to one of a, b"
    )
    for request in (registry.device, registry.launcher, lambda _: registry.default_target()):
        with pytest.raises(PluginError) as caught:
            request("cpu")
        assert str(caught.value) == expected
    assert [record.message for record in caplog.records] == [expected]


def test_a_contested_device_does_not_hide_a_better_one() -> None:
    plugins = {"a": driver("cpu"), "b": driver("cpu"), "gpu": driver("cuda:1", "cuda:0", priority=100)}
    registry = PluginRegistry.from_modules(plugins)
    assert registry.default_target().device == "cuda:0"
    assert registry.device("cuda").name == "cuda:0"
    assert registry.device("cuda:1").name == "cuda:1"


def test_a_tie_between_devices_goes_by_name_and_is_said() -> None:
    registry = PluginRegistry.from_modules({"z": driver("npu"), "y": driver("cpu")})
    assert registry.default_target().device == "cpu"
    assert registry.default_target().text.endswith("priority, 0, as npu has; the first by name is taken")


def test_the_configured_target_wins_or_raises() -> None:
    plugins = {"a": driver("cpu"), "b": driver("npu:0", priority=9)}
    chosen = PluginRegistry.from_modules(plugins, config=Config(target="cpu")).default_target()
    assert chosen == ("cpu", "target cpu: AICORE_TARGET asks for it")
    with pytest.raises(PluginError, match="no plugin drives device 'tpu'; usable devices: cpu, npu:0"):
        PluginRegistry.from_modules(plugins, config=Config(target="tpu")).default_target()


def test_without_plugins_the_error_says_what_to_install() -> None:
    registry = PluginRegistry.from_modules({})
    for request in (lambda: registry.device("cpu"), registry.default_target, lambda: registry.launcher("cuda")):
        with pytest.raises(PluginError, match=r"no plugin .* is installed.*`pip install \. \./plugins/cpu_numpy`"):
            request()


def test_a_disabled_plugin_is_named_when_its_device_is_asked_for() -> None:
    config = Config(disabled_plugins=frozenset({"a"}))
    registry = PluginRegistry.from_modules({"a": driver("cpu"), "b": driver("npu")}, config=config)
    with pytest.raises(PluginError, match=r"device 'cpu' cannot be used: .* is disabled: AICORE_DISABLE_PLUGINS lists"):
        registry.device("cpu")
    with pytest.raises(PluginError, match="no plugin 'c' is installed; installed plugins: a, b"):
        registry.plugin("c")


def test_a_plugin_name_given_as_a_device_is_explained() -> None:
    registry = PluginRegistry.from_modules({"cpu_a": driver("cpu")})
    with pytest.raises(PluginError, match="'cpu_a' is a plugin, of device 'cpu'"):
        registry.device("cpu_a")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "launch returned None"),
        (("cpu", "plan"), "launch returned tuple, which is no Executable"),
        (ValueError("bad plan"), "plugin p could not launch: ValueError: bad plan"),
        (SystemExit(3), "plugin p could not launch: SystemExit: 3"),
    ],
)
def test_a_launch_that_fails_names_the_plugin(answer: Any, message: str) -> None:
    plugin = driver("cpu")
    plugin.launch = hooks(launch=answer).launch
    launch = PluginRegistry.from_modules({"p": plugin}).launcher("cpu")
    with pytest.raises(PluginError, match=message):
        launch("plan")  # type: ignore[arg-type]


def test_an_error_of_aicore_passes_through_launch() -> None:
    plugin = driver("cpu")
    plugin.launch = hooks(launch=UnsupportedError("too deep")).launch
    with pytest.raises(UnsupportedError, match=r"^too deep$"):
        PluginRegistry.from_modules({"p": plugin}).launcher("cpu")("plan")  # type: ignore[arg-type]


IMPORTS = {
    "raise SystemExit(3)": "SystemExit: 3",
    "import no_such_library": "ModuleNotFoundError: No module named 'no_such_library'",
    "raise OSError('libcudart.so.12')": "OSError: libcudart.so.12",
    "x = (": "SyntaxError: '(' was never closed",
}


@pytest.mark.parametrize("source", IMPORTS)
def test_an_installed_plugin_whose_import_fails(environment: Any, source: str) -> None:
    environment.install("bad", source, info="kind='device', devices=('npu',)")
    environment.install_device("good", "cpu")
    registry = environment.registry()
    assert registry.device("cpu").name == "cpu"
    with pytest.raises(PluginError, match=r"plugin bad .dist-bad 1.5. has failed: its import raised") as caught:
        registry.device("npu")
    assert IMPORTS[source] in str(caught.value)
    assert "AICORE_DISABLE_PLUGINS=bad" in str(caught.value)


def test_what_is_disabled_incompatible_or_ambiguous_is_never_imported(environment: Any) -> None:
    crash = "raise SystemExit('imported')"
    environment.install("disabled", crash)
    environment.install("old", crash, requires="aicore>=99")
    environment.install("twin", crash, distribution="twin-one")
    environment.install("twin", crash, distribution="twin-two")
    registry = environment.registry(Config(disabled_plugins=frozenset({"disabled"})))
    assert [str(r.state) for r in registry.activate().records] == ["disabled", "incompatible", "failed", "failed"]
    assert environment.imported() == set()
    assert "dist_disabled_package" not in sys.modules
