"""What `bind` may return, and the launch header that other plugins copy."""

from __future__ import annotations

import struct
import types
from pathlib import Path

import pytest

from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.calls import Compiled, Eager, Generated, calls_of, compiled, pack
from aicore_cuda_ge.codegen.compiler import waits_first
from aicore_cuda_ge.kernels import _blas, _dnn
from aicore_cuda_ge.plugin import _notes, probe

PLUGIN = Path(__file__).parents[2]


def test_copies_of_the_launch_header_are_equal() -> None:
    header = (PLUGIN / "graph_executor/include/aicore_cuda_launch.h").read_bytes()
    copies = [path for path in PLUGIN.parent.rglob("aicore_cuda_launch.h") if "build" not in path.parts]
    assert len(copies) >= 2
    assert [path for path in copies if path.read_bytes() != header] == []


def test_launches_of_other_plugins_need_no_class_of_this_one() -> None:
    capsule = native.kernels()["fill"]
    (plain,) = calls_of(types.SimpleNamespace(kernel=capsule, params=bytearray(b"12345678")))
    assert plain == Compiled(capsule, b"12345678")
    full = types.SimpleNamespace(kernel=capsule, params=b"", extra=[1], pick=(0, -1), reports="{value}")
    assert calls_of([full, plain]) == (Compiled(capsule, b"", (1,), (0, -1), "{value}"), plain)


def test_what_is_no_launch() -> None:
    for wrong in (None, object(), types.SimpleNamespace(kernel=1), types.SimpleNamespace(kernel=1, params="text")):
        with pytest.raises(TypeError, match="which is no launch: it lacks `kernel`, a capsule, or `params`, bytes"):
            calls_of(wrong)


def test_only_eager_calls_cannot_be_captured() -> None:
    calls = (compiled("fill", (1, 0)), Generated(1, None, (1, 1, 1), (1, 1, 1)), Eager(print))
    assert [call.capturable for call in calls_of(calls)] == [True, True, False]


def test_params() -> None:
    assert pack((3, 0.5, -1)) == struct.pack("<qffq", 3, 0.5, 0.0, -1)


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("__global__ void f(const float *x, i64 n) {\n    begin();\n    x;\n}", True),
        ('extern "C" __global__ void __launch_bounds__(256)\nf(\n  const u32 *x\n) { begin(); }', True),
        ("__global__ void f(float *x) {\n    x[0] = 0;\n    begin();\n}", False),
        ("__global__ void f(float *x) {\n    x[0] = 0;\n}", False),
        ("__global__ void f_element(float *x) { begin(); }", False),
        ("INLINE void f(float *x) { begin(); }\n__global__ void g(float *x) { f(x); }", False),
        ("__global__ void g(float *x) { f(x); }\nINLINE void f(float *x) { begin(); }", False),
        ("// f { begin();\n__global__ void g(float *x) { }", False),
    ],
)
def test_which_kernels_wait_first(text: str, waits: bool) -> None:
    assert waits_first(text, "f") is waits


def test_missing_libraries_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the doctor: programs run without them."""
    for library in (_blas, _dnn):
        monkeypatch.setattr(library, "library_path", lambda: "")
    on_cudnn, on_blas = _notes()
    assert on_cudnn.startswith("programs may be slower: a kernel takes cuDNN 9, which is not installed; `pip install")
    assert on_blas.startswith("programs may be slower: a kernel takes cuBLASLt, which is not installed; `pip install")
    for library in (_blas, _dnn):
        monkeypatch.setattr(library, "library_path", lambda: "/usr/lib/libthere.so")
    assert _notes() == ()


def test_a_machine_without_a_driver_is_told_from_one_with_an_old_driver() -> None:
    driver, _ = native.versions()
    if driver:
        pytest.skip("this machine has a driver")
    found = probe()
    assert found.reason == "no NVIDIA driver: libcuda.so.1 is not found"
    assert found.fix.startswith("install NVIDIA's driver")
