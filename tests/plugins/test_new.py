"""`aicore plugins new`: its names collide with nothing, and what it writes is a plugin that works."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import aicore
import aicore_cpu_numpy.plugin
from aicore.errors import ConfigError, PluginError
from aicore.ir import Builder, Graph
from aicore.plugins import PluginInfo, PluginRecord, PluginRegistry, State
from aicore.plugins.new import LICENCES, NewPlugin, next_commands, plan_plugin, render_plugin, write_plugin

ROOT = Path(__file__).resolve().parent.parent.parent
KINDS = {
    "device": plan_plugin("my_npu"),
    "transform": plan_plugin("my_npu", transform=True),
    "native": plan_plugin("my_npu", native=True),
    "native-transform": plan_plugin("my_npu", transform=True, native=True),
    "renamed": plan_plugin("Some.Long-name_of4a5plugin", device="tpu", licence="MIT", author="A. Author"),
}
CPU = PluginRecord("cpu_numpy", "aicore-cpu-numpy", "0.1.0", info=PluginInfo(kind="device", devices=("cpu",)))


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[NewPlugin], ModuleType]]:
    """Write a plugin and import its hooks; nothing of it stays imported."""
    packages: list[str] = []

    def written(plugin: NewPlugin) -> ModuleType:
        write_plugin(plugin, tmp_path / plugin.package)
        monkeypatch.syspath_prepend(tmp_path / plugin.package / "src")
        packages.append(plugin.package)
        return importlib.import_module(f"{plugin.package}.plugin")

    yield written
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


def registry_of(**plugins: ModuleType) -> PluginRegistry:
    return PluginRegistry.from_modules({"cpu_numpy": aicore_cpu_numpy.plugin, **plugins})


def model(last: str = "Erf") -> Graph:
    op = Builder()
    x = op.input("x", "float32", ("N", 4))
    hidden = op.Relu(op.Add(op.MatMul(x, op.constant(np.eye(4, dtype=np.float32) * 2)), x))
    return op.graph([x], {"y": getattr(op, last)(hidden), "hidden": hidden})


X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


# Names


def test_names_follow_from_one() -> None:
    plugin = plan_plugin("My.Fast-npu_2")
    assert (plugin.distribution, plugin.package, plugin.device) == ("my-fast-npu-2", "my_fast_npu_2", "my_fast_npu_2")
    assert (plugin.op, plugin.target) == ("MyFastNpu2AddAct", "my_fast_npu_2")
    assert plan_plugin("x_1", transform=True).target == "cpu"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "no name of a distribution"),
        ("my npu", "no name of a distribution"),
        ("../npu", "no name of a distribution"),
        ("-npu", "no name of a distribution"),
        ("npü", "no name of a distribution"),
        ("3d-chip", "the module '3d_chip', which Python cannot import"),
        ("class", "the module 'class', which Python cannot import"),
        ("Lambda", "the module 'lambda', which Python cannot import"),
        ("random", "would hide another module 'random'"),
        ("numpy", "would hide another module 'numpy'"),
        ("aicore", "would hide another module 'aicore'"),
        ("tests", "would hide another module 'tests'"),
        ("conv", "the plugin's op would be ConvAddAct, which is an op of aicore"),
    ],
)
def test_names_that_cannot_be_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        plan_plugin(name)


@pytest.mark.parametrize("device", ["host", "core", "npu:0", "3d", "my-npu", ""])
def test_devices_that_cannot_be_are_refused(device: str) -> None:
    with pytest.raises(ConfigError, match=r"no kind of device|not a device's name"):
        plan_plugin("my_npu", device=device)


def test_what_is_taken_is_refused() -> None:
    with pytest.raises(PluginError, match=r"plugin cpu_numpy \(aicore-cpu-numpy 0.1.0\) is installed already"):
        plan_plugin("cpu-numpy", [CPU])
    with pytest.raises(PluginError, match=r"'cpu' is launched by plugin cpu_numpy .* with --device"):
        plan_plugin("my_npu", [CPU], device="cpu")
    assert plan_plugin("my_npu", [CPU], transform=True).target == "cpu"


def test_options_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="a transform plugin launches no device"):
        plan_plugin("my_npu", device="npu", transform=True)
    with pytest.raises(ConfigError, match=r"'GPL-3.0'; choose from Apache-2.0, MIT, BSD-3-Clause"):
        plan_plugin("my_npu", licence="GPL-3.0")


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "my_npu"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists already, and nothing in it was changed"):
        write_plugin(KINDS["device"], folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written: Not a directory"):
        write_plugin(KINDS["device"], tmp_path / "file" / "my_npu")


# Texts


@pytest.mark.parametrize("kind", KINDS)
def test_every_blank_is_filled_in(kind: str) -> None:
    plugin = KINDS[kind]
    for name, text in render_plugin(plugin).items():
        assert not re.search(r"[{}%]|\.jinja", name)
        assert not re.search(r"(?<!\$)\{\{ |\{%|%\}|\{#", text), name
        assert text.endswith("\n") or not text, name
        assert not re.search(r"\n\n\n\n| +\n|\t", text), name
        if name.endswith((".py", ".pyi")):
            ast.parse(text, name)


@pytest.mark.parametrize("kind", KINDS)
def test_the_project_says_what_it_is(kind: str) -> None:
    plugin = KINDS[kind]
    files = render_plugin(plugin)
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert (project["name"], project["license"]) == (plugin.distribution, plugin.licence)
    assert project["entry-points"] == {
        "aicore.plugin_info": {plugin.package: f"{plugin.package}.info:INFO"},
        "aicore.plugins": {plugin.package: f"{plugin.package}.plugin"},
    }
    assert "aicore>=0.1" in project["dependencies"]
    assert {f"src/{plugin.package}/py.typed", ".gitignore", ".github/workflows/test.yml"} <= set(files)
    assert ("src/" + plugin.package + "/launcher.py" in files) == bool(plugin.device)
    assert ("CMakeLists.txt" in files) == plugin.native


@pytest.mark.parametrize("kind", KINDS)
def test_the_readme_names_files_that_exist(kind: str) -> None:
    files = render_plugin(KINDS[kind])
    folder = f"src/{KINDS[kind].package}"
    table = [line for line in files["README.md"].splitlines() if line.startswith("| `")]
    for name in re.findall(r"`([^`]+)`", "\n".join(line.split("|")[1] for line in table)):
        assert any(f"{path}".startswith((name, f"{folder}/{name}")) for path in files), name
    named = " ".join(table)
    assert all(Path(path).name in named for path in files if path.startswith(f"{folder}/") and "__" not in path
               and not path.endswith(("py.typed", ".pyi")))  # fmt: skip


@pytest.mark.parametrize("licence", LICENCES)
def test_each_licence_has_its_text(licence: str) -> None:
    text = render_plugin(plan_plugin("my_npu", licence=licence, author="A. Author"))["LICENSE"]
    first = {"Apache-2.0": "Apache License", "MIT": "MIT License", "BSD-3-Clause": "Copyright (c) 20"}[licence]
    assert text.strip().startswith(first)
    assert ("A. Author" in text) == (licence != "Apache-2.0")


@pytest.mark.parametrize("kind", KINDS)
def test_it_uses_public_names_only(kind: str) -> None:
    """What a plugin's author may rely on is exported: by the package's `__all__`, or by a module without underscore."""
    for path, text in render_plugin(KINDS[kind]).items():
        for node in ast.walk(ast.parse(text)) if path.endswith(".py") else ():
            if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] != "aicore":
                continue
            module = importlib.import_module(node.module or "")
            assert not any(part.startswith("_") for part in module.__name__.split("."))
            for name in (alias.name for alias in node.names):
                assert not name.startswith("_")
                assert name in getattr(module, "__all__", dir(module)), f"{path}: {module.__name__}.{name}"


def test_the_page_quotes_what_is_written() -> None:
    """A block of docs/writing-a-backend.md that begins with the name of a file is a part of it, word for word."""
    page = (ROOT / "docs" / "writing-a-backend.md").read_text(encoding="utf-8")
    native = render_plugin(KINDS["native"])
    files = render_plugin(KINDS["device"])
    quotes = re.findall(r"```(?:python|cpp)\n(?:#|//) ([^\s,]+)(, with --native)?\n(.*?)\n```", page, re.DOTALL)
    checked = 0
    for name, is_native, quote in quotes:
        source = native if is_native or name not in files else files
        if name in source and ".cu" not in name and "uintptr_t" not in quote:
            assert quote in source[name], f"{name} has no such lines:\n{quote}"
            checked += 1
    assert checked >= 12


# Runs


def test_the_device_runs_a_model_and_says_what_it_cannot(load: Callable[[NewPlugin], ModuleType]) -> None:
    registry = registry_of(my_npu=load(KINDS["device"]))
    assert [record.state for record in registry.activate().records] == [State.ACTIVE, State.ACTIVE]
    program = aicore.compile(model(), "my_npu", registry=registry)
    outputs = program(x=X)
    np.testing.assert_allclose(outputs["hidden"], np.maximum(3 * X, 0), rtol=1e-6)
    assert str(program.placement) == "my_npu 2/3 nodes; 1 -> cpu_numpy [Erf: no kernel]"
    plan = next(plan for plan in program.plan if plan.device == "my_npu")
    assert [step.kernel.name for step in plan.steps] == ["matmul_dense", "mynpuaddact_single_pass"]
    assert program.steps_run == 3
    poisoned = aicore.compile(model(), "my_npu", registry=registry, poison=True)(x=X)
    apart = aicore.compile(model(), "my_npu", registry=registry, reuse_memory=False)(x=X)
    for name, array in outputs.items():
        np.testing.assert_array_equal(poisoned[name], array)
        np.testing.assert_array_equal(apart[name], array)


def test_it_is_no_default_target(load: Callable[[NewPlugin], ModuleType]) -> None:
    early = plan_plugin("a_npu")  # of equal priorities the first by name would win
    assert registry_of(a_npu=load(early)).default_target().device == "cpu"


def test_a_transform_joins_the_cpu(load: Callable[[NewPlugin], ModuleType]) -> None:
    registry = registry_of(tail=load(plan_plugin("tail", transform=True)))
    op = Builder()
    x, y = op.input("x", "float32", ("N", 4)), op.input("y", "float32", ("N", 4))
    program = aicore.compile(op.graph([x, y], {"z": op.Relu(op.Add(x, y))}), "cpu", registry=registry)
    np.testing.assert_array_equal(program(x=X, y=X[::-1])["z"], np.maximum(X + X[::-1], 0))
    assert [step.kernel.name for plan in program.plan for step in plan.steps] == ["tailaddact_single_pass"]


def test_two_of_them_live_side_by_side(load: Callable[[NewPlugin], ModuleType]) -> None:
    one, other = plan_plugin("one_npu"), plan_plugin("other_npu")
    registry = registry_of(one_npu=load(one), other_npu=load(other), tail=load(plan_plugin("tail", transform=True)))
    assert {record.state for record in registry.activate().records} == {State.ACTIVE}
    for device in ("one_npu", "other_npu"):
        program = aicore.compile(model("Relu"), device, registry=registry, fallback="error")
        np.testing.assert_array_equal(program(x=X)["y"], np.maximum(3 * X, 0))
        assert program.plan[0].device == device


@pytest.mark.parametrize("name", ["my_npu", "a_plugin_with_quite_a_long_name_for_a_test", "zz"])
def test_the_code_is_in_the_house_style(name: str, tmp_path: Path) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed beside this Python")
    for kind in (False, True):
        folder = tmp_path / f"{name}{kind}"
        write_plugin(plan_plugin(name, transform=kind, native=kind), folder)
        for command in (["check", "--no-cache"], ["format", "--check", "--diff", "--no-cache"]):
            if command[0] == "format" and len(name) > 10:
                continue  # where a long name makes a line break is the formatter's business
            done = subprocess.run([ruff, *command, "."], cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr


# What to do next


def test_the_next_commands_install_core_and_plugin_at_once(tmp_path: Path) -> None:
    commands = next_commands(KINDS["device"], Path("my_npu"))
    install = commands["install"]
    assert install.startswith("python -m pip install ")
    assert install.endswith(" -e './my_npu[test]'")
    assert "aicore" in install or str(ROOT) in install
    assert commands["test"] == "python -m pytest ./my_npu --aicore-target my_npu"
    elsewhere = next_commands(KINDS["transform"], tmp_path / "a folder")
    assert elsewhere["test"].endswith("--aicore-target cpu --aicore-ops MyNpuAddAct")
    assert f"'{tmp_path}/a folder[test]'" in elsewhere["install"]


@pytest.mark.parametrize(
    ("direct_url", "expected"),
    [
        (None, "'aicore>=0.1'"),
        ("{}", "'aicore>=0.1'"),
        ('{"url": "file:///no/such/folder", "dir_info": {}}', "'aicore>=0.1'"),
        ('{"url": "HERE", "dir_info": {}}', "PATH"),
        ('{"url": "HERE", "dir_info": {"editable": true}}', "-e PATH"),
        (
            '{"url": "https://host.example/a.git", "vcs_info": {"vcs": "git", "commit_id": "f00"}}',
            "'aicore @ git+https://host.example/a.git@f00'",
        ),
        (
            '{"url": "https://h.example/a.git", "subdirectory": "b", "vcs_info": {"vcs": "git", "commit_id": "f00"}}',
            "'aicore @ git+https://h.example/a.git@f00#subdirectory=b'",
        ),
        (
            '{"url": "HERE", "vcs_info": {"vcs": "git", "commit_id": "f00"}}',
            "'aicore @ git+HERE@f00'",
        ),
        ('{"url": "https://host.example/a.whl", "archive_info": {}}', "'aicore @ https://host.example/a.whl'"),
    ],
)
def test_the_core_comes_from_where_it_came(
    direct_url: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = direct_url and direct_url.replace("HERE", tmp_path.as_uri())

    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return text

    monkeypatch.setattr("importlib_metadata.distribution", lambda name: Distribution())
    install = next_commands(KINDS["device"], Path("my_npu"))["install"]
    expected = expected.replace("PATH", str(tmp_path)).replace("HERE", tmp_path.as_uri())
    assert install.startswith(f"python -m pip install {expected} ")
