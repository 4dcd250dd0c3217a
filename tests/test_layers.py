"""Imports point one way. See docs/layout.md; a new module of aicore gets its line in LAYERS."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

FOUNDATION = {"errors", "config", "collector", "lazy", "pages", "records", "views"}
IR = FOUNDATION | {"ir"}
OPS = IR | {"ops"}
PASSES = OPS | {"rewrite", "passes"}
RUNTIME = OPS | {"kernels", "runtime"}
JOINED = (
    PASSES | RUNTIME | {"plugins", "frontends", "autodiff", "api", "bound", "program", "numerics", "tuning", "versions"}
)

LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "records": set(),
    "views": {"records"},
    "config": {"errors", "records"},
    "collector": set(),
    "lazy": set(),
    "pages": set(),
    "ir": FOUNDATION,
    "ops": IR,
    "rewrite": OPS,
    "passes": OPS | {"rewrite"},
    "kernels": OPS,
    "runtime": OPS | {"kernels"},
    "bound": RUNTIME,
    "plugins": PASSES | RUNTIME,
    "frontends": OPS,
    "autodiff": OPS,
    "numerics": OPS,
    "tuning": RUNTIME | {"numerics", "rewrite"},
    "session": RUNTIME | {"bound"},
    "versions": PASSES | RUNTIME | {"tuning"},
    "api": JOINED,
    "program": JOINED | {"session"},
    "onnx_backend": JOINED,
    "testing": JOINED,
    "nn": JOINED | {"session", "testing"},
    "compat": JOINED | {"nn"},
    "experiments": JOINED | {"testing"},
    "report": JOINED | {"testing", "experiments"},
    "cli": JOINED | {"testing", "experiments", "report", "compat", "nn"},
    "__main__": {"cli"},
    "__init__": JOINED | {"compat", "onnx_backend", "testing", "experiments", "report", "nn"},
}
"""What each module or package directly below aicore may import, itself aside."""

PLUGINS = {
    "aicore_cpu_numpy": ROOT / "plugins" / "cpu_numpy",
    "aicore_cuda_ge": ROOT / "plugins" / "cuda_ge",
    "aicore_int8_quant": ROOT / "plugins" / "int8_quant",
    "aicore_fake_gpu": ROOT / "tests" / "fake_gpu",
}
FOREIGN = ("onnxruntime", "onnx.reference")


@dataclass(frozen=True)
class Import:
    """One imported module or name: `aicore.ir.Graph` for `from aicore.ir import Graph`."""

    name: str
    line: int


def imports(path: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions too; those for type checkers alone are left out."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"), str(path))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(f"{'.' * node.level}{node.module or ''}.{a.name}", node.lineno) for a in node.names)
        waiting.extend(ast.iter_child_nodes(node))


def sources(folder: Path) -> list[Path]:
    # The template of a new plugin is text that a command fills in, not code of aicore.
    return [p for p in sorted(folder.rglob("*.py")) if "template" not in p.relative_to(folder).parts]


def unit(path: Path) -> str:
    """The module or package directly below aicore that holds the file."""
    first = path.relative_to(ROOT / "aicore").parts[0]
    return first.removesuffix(".py")


def core_violations(path: Path) -> Iterator[str]:
    own = unit(path)
    for found in imports(path):
        top, _, rest = found.name.partition(".")
        target = rest.partition(".")[0]
        is_submodule = target in LAYERS or (target and (ROOT / "aicore" / target).is_dir())
        if top.startswith("aicore_"):
            yield f"{path.name}:{found.line} imports the plugin {top}"
        elif top == "aicore" and is_submodule and target not in LAYERS[own] | {own}:
            yield f"{path.name}:{found.line} ({own}) imports {found.name}: {own} may use {sorted(LAYERS[own])}"


@pytest.mark.parametrize("name", sorted({unit(path) for path in sources(ROOT / "aicore")}))
def test_layer(name: str) -> None:
    assert name in LAYERS, f"aicore.{name} has no layer yet: give it a line in LAYERS and in docs/layout.md"
    files = [path for path in sources(ROOT / "aicore") if unit(path) == name]
    assert [violation for path in files for violation in core_violations(path)] == []


@pytest.mark.parametrize("package", PLUGINS)
def test_plugins_use_public_names_only(package: str) -> None:
    found = [
        f"{path.name}:{used.line} imports {used.name}"
        for path in sources(PLUGINS[package] / package)
        for used in imports(path)
        if used.name.startswith("aicore.") and any(part.startswith("_") for part in used.name.split("."))
    ]
    assert found == []


@pytest.mark.parametrize("package", PLUGINS)
def test_plugins_know_no_other_plugin_that_they_do_not_require(package: str) -> None:
    requirements = (PLUGINS[package] / "pyproject.toml").read_text(encoding="utf-8")
    others = {
        used.name.partition(".")[0]
        for path in sources(PLUGINS[package] / package)
        for used in imports(path)
        if used.name.startswith("aicore_")
    }
    assert {name for name in others - {package} if name.replace("_", "-") not in requirements} == set()


def test_nothing_stands_on_another_runtime() -> None:
    folders = [ROOT / "aicore", *(folder / package for package, folder in PLUGINS.items())]
    found = [
        f"{path.name}:{used.line} imports {used.name}"
        for folder in folders
        for path in sources(folder)
        for used in imports(path)
        if any(used.name == name or used.name.startswith(f"{name}.") for name in FOREIGN)
    ]
    assert found == []


def test_imports_are_absolute() -> None:
    folders = [ROOT / "aicore", *(folder / package for package, folder in PLUGINS.items())]
    relative = [
        f"{path}:{used.line}" for f in folders for path in sources(f) for used in imports(path) if used.name[0] == "."
    ]
    assert relative == []


def test_layers_have_no_cycle() -> None:
    # `api` and `program` are one layer in two files; `__init__` only names things, lazily.
    order = list(LAYERS)
    upward = [
        (name, used)
        for name, allowed in LAYERS.items()
        for used in allowed - {name}
        if order.index(used) > order.index(name) and (name, used) != ("api", "program")
    ]
    assert upward == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import aicore.ir", ["aicore.ir"]),
        ("def f():\n    from aicore.ir import Graph", ["aicore.ir.Graph"]),
        ("if TYPE_CHECKING:\n    import aicore.api\nelse:\n    import json", ["json"]),
        ("from onnx import reference", ["onnx.reference"]),
    ],
)
def test_the_parser_itself(tmp_path: Path, text: str, names: list[str]) -> None:
    path = tmp_path / "module.py"
    path.write_text(text, encoding="utf-8")
    assert [found.name for found in imports(path)] == names
