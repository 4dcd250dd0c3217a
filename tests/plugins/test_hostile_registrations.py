"""What hooks return may be anything: the plugin fails with the reason, and programs compile and run without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aicore
import aicore.ops as ops
import aicore_cpu_numpy.plugin
from aicore.errors import PluginError, UnsupportedError
from aicore.ir import Builder, Graph
from aicore.kernels import KernelTable, Selector, kernel
from aicore.passes import PHASES, default_passes, run_passes
from aicore.plugins import PluginInfo, PluginRegistry, Probe, State, hookimpl, registry
from tests.plugins.conftest import DEVICE_PLUGIN, TRANSFORM_PLUGIN

X = np.array([-1, 2, -3], np.float32)


class UnprintableError(Exception):
    """Its text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def plugin(**results: Any) -> Any:
    """A plugin whose hooks return these values, or call them."""

    def implement(name: str, value: Any) -> Any:
        def answer() -> Any:
            return value() if callable(value) else value

        answer.__name__ = name
        return hookimpl(answer)

    return SimpleNamespace(**{name: implement(name, value) for name, value in results.items()})


def beside_the_cpu(**plugins: Any) -> PluginRegistry:
    return PluginRegistry.from_modules({"cpu_numpy": aicore_cpu_numpy.plugin, **plugins})


def relu() -> Graph:
    b = Builder()
    x = b.input("x", "float32", (3,))
    return b.graph((x,), {"y": b.Relu(x)})


def check_it_runs(registry: PluginRegistry) -> None:
    program = aicore.compile(relu(), "cpu", registry=registry)
    assert program(x=X)["y"].tolist() == [0, 2, 0]


def a_pass(**parts: Any) -> Any:
    whole = {"name": "odd", "phase": "fuse", "before": (), "after": (), "apply": lambda graph, ctx: graph, **parts}
    return SimpleNamespace(**{name: value for name, value in whole.items() if value is not ...})


class NamelessPass:
    @property
    def name(self) -> str:
        raise ValueError("I have none")


PASSES = [
    (a_pass(phase=...), f"register_passes returned pass 'odd' with phase None; choose from {', '.join(PHASES)}"),
    (a_pass(phase="late"), "with phase 'late'; choose from simplify"),
    (a_pass(phase=["fuse"]), "with phase ['fuse']; choose from simplify"),
    (a_pass(before=...), "whose before is None; it must be a tuple of names of passes"),
    (a_pass(after="fold-constants"), "whose after is 'fold-constants'; it must be a tuple of names of passes"),
    (a_pass(after=(5,)), "whose after is (5,); it must be a tuple of names of passes"),
    (a_pass(name=""), "which is no instance of a Pass"),
    (a_pass(apply=...), "which has no method apply"),
    (default_passes()[0], f"pass {default_passes()[0].name!r}, which is a pass of aicore itself"),
    (a_pass(before=("odd",)), "what register_passes returned has no order: passes wait for each other"),
    (NamelessPass(), "checking what it returned raised ValueError: I have none"),
]


@pytest.mark.parametrize(("item", "reason"), PASSES)
def test_a_pass_without_its_parts_fails_its_plugin_and_no_compilation(item: Any, reason: str) -> None:
    registry = beside_the_cpu(odd=plugin(register_passes=[item]))
    check_it_runs(registry)
    with pytest.raises(PluginError, match="plugin odd ") as caught:
        registry.plugin("odd")
    assert reason in str(caught.value)


def test_passes_of_two_plugins_that_wait_for_each_other_fail_both() -> None:
    one, two = a_pass(name="one", before=("two",)), a_pass(name="two", before=("one",))
    innocent = a_pass(name="three", after=("one",))
    registry = beside_the_cpu(
        a=plugin(register_passes=[one]), b=plugin(register_passes=[innocent]), c=plugin(register_passes=[two])
    )
    check_it_runs(registry)
    assert [record.name for record in registry.records if record.state is State.FAILED] == ["a", "c"]
    assert (
        "the passes of a (a given as a module) and c (c given as a module) have no order" in registry.records[1].reason
    )
    assert [one.name for one in registry.passes] == ["three"]


def test_a_pass_that_ends_the_program_is_rolled_back() -> None:
    def leave(graph: Graph, ctx: Any) -> Graph:
        raise SystemExit(5)

    graph = relu()
    same, report = run_passes(graph, [a_pass(apply=leave)])
    assert same is graph
    assert report.errors == ["odd rolled back after its first match: SystemExit: 5"]
    check_it_runs(beside_the_cpu(odd=plugin(register_passes=[a_pass(apply=leave)])))


@kernel(ops.Relu, device="cpu", variant="odd")
def odd_relu(op: ops.Relu, x: Any) -> Any:
    return np.maximum(x, 0)


FIELDS: list[tuple[str, Any]] = [
    ("op", 5), ("op", int), ("op", ops.Relu()), ("device", 5), ("device", ["cpu"]), ("device", "cpu:1"),
    ("device", "c p u"), ("variant", [1]), ("variant", ""), ("function", None), ("dtypes", ["float32"]),
    ("dtypes", frozenset([5])), ("supports", 5), ("workspace", 8), ("bind", "x"), ("estimate", 1e-3),
    ("tune", [1]), ("tune", {"block": ()}), ("tune", {5: (1,)}), ("tune", {"block": 3}), ("wraps", 5),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), FIELDS)
def test_a_kernel_with_an_odd_field_fails_its_plugin(field: str, value: Any) -> None:
    broken = replace(odd_relu, **{field: value})
    registry = beside_the_cpu(odd=plugin(register_kernels=[odd_relu, broken], register_ops=[]))
    check_it_runs(registry)
    reason = registry.records[1].reason
    assert reason.startswith(f"register_kernels returned a kernel whose {field} is ") or "device's name" in reason
    assert not any(kernel.plugin == "odd" for kernel in registry.kernels)


def test_a_device_of_a_plugin_needs_a_name() -> None:
    registry = beside_the_cpu(odd=plugin(register_kernels=[replace(odd_relu, device="c p u")]))
    assert "'c p u' is not a device's name" in registry.activate().records[1].reason


def raising(error: BaseException) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        raise error

    return call


ERRORS = [SystemExit(3), RuntimeError("boom"), UnprintableError()]
SAID = ["SystemExit: 3", "RuntimeError: boom", "UnprintableError: its text cannot be read, which raises RuntimeError"]


CASES = list(zip(ERRORS, SAID, strict=True))


@pytest.mark.parametrize(("error", "said"), CASES, ids=SAID)
@pytest.mark.parametrize("part", ["supports", "estimate"])
def test_a_kernel_that_cannot_be_asked_is_not_taken_and_says_why(part: str, error: BaseException, said: str) -> None:
    registry = beside_the_cpu(odd=plugin(register_kernels=[replace(odd_relu, **{part: raising(error)})]))
    check_it_runs(registry)
    explained = aicore.compile(relu(), "cpu", registry=registry)
    explained(x=X)
    assert f"kernel relu_odd of plugin odd: its {part} raised {said}" in str(explained.explain())


@pytest.mark.parametrize(
    ("part", "answer", "said"),
    [
        ("supports", False, "returned bool; return None, or the reason as a text"),
        ("estimate", float("nan"), "returned float; return seconds, not NaN"),
        ("estimate", None, "raised TypeError: must be real number, not NoneType"),
    ],
)
def test_an_odd_answer_of_a_kernel_is_a_reason_against_it(part: str, answer: Any, said: str) -> None:
    registry = beside_the_cpu(odd=plugin(register_kernels=[replace(odd_relu, **{part: lambda op, *types: answer})]))
    (found,) = (k for k in registry.kernels if k.plugin == "odd")
    selector = Selector(KernelTable([found]), "cpu")
    with pytest.raises(UnsupportedError) as caught:
        selector.select(ops.Relu(), relu().inputs[0].type)
    assert f"relu_odd: kernel relu_odd of plugin odd: its {part} {said}" in str(caught.value)


@pytest.mark.parametrize(("error", "said"), CASES, ids=SAID)
@pytest.mark.parametrize("part", ["workspace", "bind"])
def test_a_chosen_kernel_that_cannot_be_prepared_is_an_error_that_names_it(
    part: str, error: BaseException, said: str
) -> None:
    parts = {"bind": lambda op, types, constants: lambda x, out=None, workspace=None: None, part: raising(error)}
    chosen = replace(odd_relu, estimate=lambda op, *types: 0.0, **parts)
    registry = beside_the_cpu(odd=plugin(register_kernels=[chosen]))
    with pytest.raises(PluginError, match="kernel relu_odd of plugin odd: its ") as caught:
        aicore.compile(relu(), "cpu", registry=registry)(x=X)
    assert f"its {part} raised {said}" in str(caught.value)


def test_an_interrupt_and_errors_of_aicore_pass_through_a_kernel() -> None:
    for error in (KeyboardInterrupt(), UnsupportedError("declined"), MemoryError()):
        guarded = replace(odd_relu, supports=raising(error)).of_plugin("odd")
        with pytest.raises(type(error)):
            guarded.reason_against(ops.Relu())


@pytest.mark.parametrize(("part", "answer"), [("workspace", -1), ("bind", None)])
def test_odd_preparations_are_refused(part: str, answer: Any) -> None:
    guarded = replace(odd_relu, **{part: lambda *arguments: answer}).of_plugin("odd")
    with pytest.raises(PluginError, match=f"^kernel relu_odd of plugin odd: its {part} returned "):
        getattr(guarded, part)(ops.Relu())


class Listing(list[Any]):
    def __iter__(self) -> Any:
        raise ValueError("endless")


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("unspeakable")


def device(**parts: Any) -> Any:
    names = ("allocate", "empty", "upload", "download", "copy", "synchronize")
    whole = {"name": "npu", "kind": "npu", "fingerprint": "", "static_shapes_only": False}
    return SimpleNamespace(**dict.fromkeys(names, print), **{**whole, **parts})


PROBES: list[tuple[Any, str]] = [
    (lambda: Probe(devices=5), "probe raised TypeError: devices of a Probe is a int; give a tuple"),
    (lambda: Probe(devices=(d for d in [device()])), "devices of a Probe is a generator; give a tuple"),
    (lambda: Probe(devices={"npu": 1}), "devices of a Probe is a dict; give a tuple"),
    (lambda: Probe(reason=5), "reason of a Probe is a int; give a text"),
    (lambda: Probe(reason="no", fix=7), "fix of a Probe is a int; give a text"),
    (lambda: Probe(reason="no", notes="slow"), "notes of a Probe is 'slow'; give a tuple of texts"),
    (lambda: Probe(reason="no", notes=(5,)), "notes of a Probe is (5,); give a tuple of texts"),
    (lambda: Probe(devices=(Unspeakable(),)), "checking what it returned raised ValueError: unspeakable"),
    (lambda: Probe(devices=(device(name=5),)), "5 is not a device's name"),
]


@pytest.mark.parametrize(("probe", "reason"), PROBES)
def test_an_odd_probe_fails_its_plugin(probe: Any, reason: str) -> None:
    odd = plugin(probe=probe)
    odd.launch = hookimpl(lambda plan: None, specname="launch")
    registry = beside_the_cpu(odd=odd)
    check_it_runs(registry)
    assert reason in registry.records[1].reason


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        (Listing([1]), "checking what it returned raised ValueError: endless"),
        ([Unspeakable()], "checking what it returned raised ValueError: unspeakable"),
    ],
)
def test_an_odd_list_fails_its_plugin(items: Any, reason: str) -> None:
    registry = beside_the_cpu(odd=plugin(register_kernels=lambda: items))
    check_it_runs(registry)
    assert registry.records[1].reason == reason


@pytest.mark.parametrize(
    "module", [SimpleNamespace(), 5, type("Odd", (), {"z": property(raising(ValueError("no")))})()]
)
def test_a_plugin_without_hooks_is_none(module: Any) -> None:
    registry = beside_the_cpu(odd=module)
    check_it_runs(registry)
    reason = registry.records[1].reason
    assert reason.startswith("it implements none of the hooks probe, ") or "raised ValueError: no" in reason


def test_an_error_whose_text_cannot_be_read_is_named() -> None:
    registry = beside_the_cpu(odd=plugin(register_ops=raising(UnprintableError())))
    check_it_runs(registry)
    assert registry.records[1].reason == f"register_ops raised {SAID[2]}"


def test_a_long_text_is_cut() -> None:
    registry = beside_the_cpu(odd=plugin(register_ops=raising(ValueError("x" * 10_000_000))))
    check_it_runs(registry)
    assert len(registry.records[1].reason) < 2100


def test_an_info_that_is_none_is_refused() -> None:
    class Mine(PluginInfo):
        """Its methods would run in the host."""

    for info in ({"kind": "transform"}, Mine("transform")):
        with pytest.raises(PluginError, match="INFO of the module given as odd is a "):
            beside_the_cpu(odd=SimpleNamespace(INFO=info))


def test_what_plugins_print_goes_to_stderr(environment: Any, capsys: pytest.CaptureFixture[str]) -> None:
    info = "kind='transform', summary=str(print('from info'))"
    environment.install("loud", f"print('at import')\n{TRANSFORM_PLUGIN}", info=info)
    environment.registry().activate()
    out, err = capsys.readouterr()
    assert (out, err) == ("", "from info\nat import\n")


@pytest.mark.parametrize("command", [("plugins", "list", "--load", "--json"), ("plugins", "doctor", "--json")])
def test_json_is_all_that_a_command_prints_to_stdout(command: tuple[str, ...], tmp_path: Path) -> None:
    from tests.plugins.machine import Machine

    site = tmp_path / "site"
    package = site / "loud_package"
    package.mkdir(parents=True)
    noise = "import os, sys\nprint('python')\nos.write(1, b'native')\nsys.stdout.write('no newline')\n"
    hook = DEVICE_PLUGIN.format(device="loud").replace("def probe():", "def probe():\n    os.system('echo a program')")
    (package / "plugin.py").write_text(noise + hook)
    (site / "loud-1.0.dist-info").mkdir()
    (site / "loud-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (site / "loud-1.0.dist-info" / "entry_points.txt").write_text("[aicore.plugins]\nloud = loud_package.plugin\n")
    done = Machine(site, tmp_path / "cache").aicore(*command)
    found = {one["name"]: one for one in json.loads(done.stdout)["plugins"]}
    assert found["loud"].get("state", found["loud"].get("status")) in ("active", "ok")


@pytest.mark.parametrize("code", ["plugin_registry()", "plugin_registry().devices()"])
def test_an_info_module_that_asks_for_the_registry_is_refused(
    environment: Any, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AICORE_PLUGIN_TIMEOUT", "0")
    info = f"kind=('transform', __import__('aicore.plugins').plugins.{code})[0]"
    environment.install("odd", TRANSFORM_PLUGIN, info=info)
    (record,) = registry.plugin_registry().records
    assert (record.state, record.finding) == (State.FAILED, "import error")
    assert record.reason.endswith("raised PluginError: an info module asks for the registry; it must only define INFO")


def test_an_info_module_that_asks_for_the_registry_of_its_child_harms_nobody(environment: Any) -> None:
    info = "kind=('transform', __import__('aicore.plugins').plugins.plugin_registry())[0]"
    environment.install("odd", TRANSFORM_PLUGIN, info=info)
    (record,) = environment.registry(environment.rehearsing(20)).records
    assert record.state is State.COMPATIBLE
