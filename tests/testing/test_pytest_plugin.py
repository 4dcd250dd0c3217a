"""`pytest --aicore-target`, in processes of their own, on backends that are installed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import aicore.testing.pytest_plugin
from tests.testing.installed import install, run_python

# The plugin is loaded by name: an installed aicore would load it by its entry point, of the name that is blocked.
PYTEST = ("-m", "pytest", "-p", "no:aicore", "-p", "aicore.testing.pytest_plugin", "-p", "no:cacheprovider")
TARGET = ("--aicore-target", "npu", "--aicore-ops", "Relu,Identity", "--aicore-dtypes", "float32,float16")


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python(folder, *PYTEST, *arguments)


def test_the_module_imports_the_standard_library_alone() -> None:
    tree = ast.parse(Path(aicore.testing.pytest_plugin.__file__).read_text(encoding="utf-8"))
    names = [n for node in tree.body if isinstance(node, ast.Import) for n in [a.name for a in node.names]]
    names += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


def test_inert_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it():\n    assert 'numpy' not in sys.modules and 'aicore.ir' not in sys.modules\n"
    )
    done = run_pytest(tmp_path, "-q")
    assert done.returncode == 0, done.stdout
    assert "aicore" not in done.stdout


def test_a_right_backend_passes_with_proof(tmp_path: Path) -> None:
    install(tmp_path, "relu")
    done = run_pytest(tmp_path, *TARGET, "-q", "-rs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "npu: score 100.0%: 18 passed (72 steps), 16 renamed" in done.stdout
    assert "renamed: no kernel had to run" in done.stdout
    assert "failed" not in done.stdout


def test_a_backend_that_implements_nothing_scores_0(tmp_path: Path) -> None:
    install(tmp_path, "")
    done = run_pytest(tmp_path, *TARGET, "-q", "-rs")
    assert done.returncode == 1
    assert "npu: score 0.0%" in done.stdout
    assert "passed by fallback: " in done.stdout
    assert "npu ran not one case by itself: its score is 0" in done.stdout
    assert "1 failed" in done.stdout


def test_a_wrong_kernel_is_found_and_its_repro_replays(tmp_path: Path) -> None:
    install(tmp_path, "relu, relu_wrong")
    repros = tmp_path / "repros"
    case = "Relu-float32-0"
    done = run_pytest(tmp_path, *TARGET, "-q", "-k", f"{case} and not reversed", "--aicore-repro", str(repros))
    assert done.returncode == 1
    assert "1 of 30 elements are wrong; [0, 1, 2] is" in done.stdout
    assert "kernels: relu_wrong" in done.stdout
    script = repros / f"{case}-on-npu" / "replay.py"
    assert str(script) in done.stdout.replace("\n", "")
    replayed = run_python(tmp_path, str(script))
    assert (replayed.returncode, replayed.stdout[:24]) == (1, "reproduced: 1 of 30 elem"), replayed.stderr
    install(tmp_path, "relu")
    cured = run_python(tmp_path, str(script))
    assert (cured.returncode, cured.stdout[:14]) == (0, "not reproduced"), cured.stderr


def test_a_target_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "--aicore-target", "tpu")
    assert done.returncode == 4
    assert "--aicore-target tpu: no plugin drives device 'tpu'" in done.stderr


def test_a_suite_of_one_s_own(tmp_path: Path) -> None:
    install(tmp_path, "relu")
    (tmp_path / "test_npu.py").write_text(
        "from aicore.testing import ConformanceSuite\n"
        "class TestNpu(ConformanceSuite):\n"
        "    target = 'npu'\n"
        "    ops = 'Relu,Abs'\n"
        "    dtypes = ('float32',)\n"
        "    must_run = ('Relu-float*',)\n"
        "    skip = {'Abs-*': 'the device has no abs'}\n"
    )
    done = run_pytest(tmp_path, "-q", "test_npu.py")
    assert done.returncode == 0, done.stdout
    assert "npu: score 50.0%: 13 passed (52 steps), 13 skipped" in done.stdout
