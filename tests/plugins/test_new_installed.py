"""What `aicore plugins new` writes, installed by pip in an environment of its own, used, tested, and removed again."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import aicore
import aicore_cpu_numpy
from aicore.plugins.new import plan_plugin, write_plugin

pytestmark = pytest.mark.slow

# A path in a .pth file would not make the editable installations of the parent visible, a site folder does.
_PARENT = "import site; site.addsitedir({folder!r})\n"


@dataclass(frozen=True)
class Machine:
    """A virtual environment that has all that this one has, and what is installed in it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "environment" / ("Scripts" if os.name == "nt" else "bin") / "python"

    def run(self, *arguments: str | Path, fails: bool = False) -> str:
        """What a module of Python prints: `run("aicore", "plugins", "list")`."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AICORE_", "PYTHON"))}
        environment = {**clean, "AICORE_CACHE_DIR": str(self.folder / "cache"), "NO_COLOR": "1", "COLUMNS": "300"}
        command = [self.python, "-m", *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert (done.returncode != 0) == fails, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def install(self, project: Path) -> None:
        """Nothing is fetched: what the build needs is here."""
        self.run("pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", project)

    def states(self) -> dict[str, str]:
        answer = json.loads(self.run("aicore", "plugins", "list", "--load", "--json"))
        return {plugin["name"]: plugin["state"] for plugin in answer["plugins"]}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment"], check=True, timeout=120)
    made = Machine(tmp_path)
    (site,) = (tmp_path / "environment").rglob("site-packages")
    folders = [path for path in sys.path if path.endswith("site-packages")]
    (site / "parent.pth").write_text("".join(_PARENT.format(folder=folder) for folder in folders))
    return made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    text = """
        <ir_version: 10, opset_import: ["": 21]>
        net (float[N, 3] x, float[N, 3] r) => (float[N, 3] y)
        <float[3, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1}>
        { h = MatMul(x, w)  s = Add(h, r)  a = Relu(s)  y = Erf(a) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def _need_setuptools() -> None:
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("building without a network needs setuptools 77 or newer in this environment")


def test_it_is_installed_used_tested_and_removed(machine: Machine, model: Path) -> None:
    _need_setuptools()
    machine.run("aicore", "plugins", "new", "my_npu")
    before = machine.states()
    machine.install(machine.folder / "my_npu")
    assert machine.states() == {**before, "my_npu": "active"}
    assert "ok" in machine.run("aicore", "plugins", "doctor", "my_npu")

    run = ("aicore", "run", model, "--random", "--shape", "N=2", "--json")
    on_npu = json.loads(machine.run(*run, "--target", "my_npu", "--fallback", "quiet"))
    on_cpu = json.loads(machine.run(*run))
    assert on_npu["placement"] == "my_npu 2/3 nodes; 1 -> cpu_numpy [Erf: no kernel]"
    assert on_cpu["target"] == "cpu"
    np.testing.assert_allclose(on_npu["outputs"]["y"]["values"], on_cpu["outputs"]["y"]["values"], rtol=1e-5)

    tests = ("pytest", "-q", "-p", "no:cacheprovider", machine.folder / "my_npu")
    said = machine.run(*tests, "--aicore-target", "my_npu", "--aicore-ops", "Relu,Neg")
    assert "passed" in said
    assert "failed" not in said
    assert "my_npu: score" in said

    machine.run("pip", "uninstall", "--quiet", "--yes", "my_npu")
    assert machine.states() == before
    assert json.loads(machine.run(*run))["outputs"] == on_cpu["outputs"]
    assert "no plugin drives device 'my_npu'" in machine.run(*run, "--target", "my_npu", fails=True)


def test_the_editable_installation_works_from_the_folder_above(machine: Machine) -> None:
    """There, a folder of the package's name is in the way, which a source layout without `src` would not survive."""
    _need_setuptools()
    machine.run("aicore", "plugins", "new", "my_npu", "--transform")
    machine.run(
        "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "-e", machine.folder / "my_npu"
    )
    assert machine.states()["my_npu"] == "active"
    said = machine.run("pytest", "-q", "-p", "no:cacheprovider", "my_npu")
    assert "failed" not in said


def test_the_native_kernel_is_built_and_passes(machine: Machine) -> None:
    for needed in ("scikit_build_core", "pybind11"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed, and nothing is fetched")
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    project = machine.folder / "my_chip"
    write_plugin(plan_plugin("my_chip", native=True), project)
    machine.install(project)
    assert machine.states()["my_chip"] == "active"
    said = machine.run("pytest", "-q", "-p", "no:cacheprovider", project)
    assert "passed" in said
    assert "failed" not in said


def test_types_are_strict(tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    # mypy cannot see through an editable installation.
    search = os.pathsep.join(str(Path(package.__file__ or "").parent.parent) for package in (aicore, aicore_cpu_numpy))
    options = ["--strict", "--follow-imports", "silent", "--cache-dir", str(tmp_path / "types")]
    for kind, transform in {"device": False, "transform": True}.items():
        project = tmp_path / kind
        write_plugin(plan_plugin("my_npu", transform=transform, native=True), project)
        command = [sys.executable, "-m", "mypy", *options, "src/my_npu"]
        done = subprocess.run(
            command, cwd=project, env={**os.environ, "MYPYPATH": search}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_shows_cuda_that_compiles(tmp_path: Path) -> None:
    """The kernel, its binding and the CMake file of docs/writing-a-backend.md, put in place of the C++ ones."""
    for tool in ("nvcc", "cmake", "ninja"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    pybind11 = pytest.importorskip("pybind11", reason="pybind11 is not installed")
    page = (Path(__file__).resolve().parents[2] / "docs" / "writing-a-backend.md").read_text(encoding="utf-8")
    found = re.findall(r"```(?:cpp|cmake)\n(?:#|//) (\S+)\n(.*?)```", page, re.DOTALL)
    blocks = dict(found)
    (declaration,) = re.findall(r"^cudaError_t .*\)(?= \{$)", blocks["csrc/add_relu.cu"], re.MULTILINE)
    project = tmp_path / "my_npu"
    files = {
        "csrc/add_relu.h": f"#pragma once\n#include <cuda_runtime_api.h>\n#include <cstddef>\n{declaration};\n",
        "csrc/add_relu.cu": blocks["csrc/add_relu.cu"],
        "csrc/bindings.cpp": "#include <pybind11/pybind11.h>\n#include <stdexcept>\n#include <string>\n"
        f'#include "add_relu.h"\n{blocks["csrc/bindings.cpp"]}'
        'PYBIND11_MODULE(_native, module) { module.def("add_relu", &bound_add_relu); }\n',
        "CMakeLists.txt": f"cmake_minimum_required(VERSION 3.18...3.31)\n{blocks['CMakeLists.txt']}",
    }
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    options = [f"-Dpybind11_DIR={pybind11.get_cmake_dir()}", f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (["cmake", "-G", "Ninja", "-B", "build", *options], ["cmake", "--build", "build"]):
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert list((project / "build").glob("_native*"))
