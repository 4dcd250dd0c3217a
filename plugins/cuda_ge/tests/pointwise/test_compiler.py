"""From source to machine code: NVRTC, which needs no GPU, and the cache on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from aicore.errors import ExecutionError
from aicore.ir import TensorType
from aicore.ops.activation import Gelu
from aicore_cuda_ge.codegen import compiler
from aicore_cuda_ge.codegen.chain import chain_of
from aicore_cuda_ge.codegen.compiler import architecture_option, binary_of
from aicore_cuda_ge.codegen.source import prelude, source_of


@pytest.fixture
def nvrtc() -> None:
    """Skips where CuPy or NVRTC is missing."""
    pytest.importorskip("cupy", reason="no CuPy here, so no NVRTC")
    from cupy_backends.cuda.libs import nvrtc

    try:
        nvrtc.getVersion()
    except RuntimeError as error:
        pytest.skip(f"NVRTC cannot be loaded: {error}")


def gelu() -> str:
    return prelude() + source_of(chain_of(Gelu(), [TensorType("bfloat16", (5, 3))])).text


def test_devices_newer_than_the_compiler_get_ptx() -> None:
    known = [75, 80, 90, 100]
    assert architecture_option("90", known) == "--gpu-architecture=sm_90"
    assert architecture_option("89", known) == "--gpu-architecture=compute_80"
    assert architecture_option("120", known) == "--gpu-architecture=compute_100"
    with pytest.raises(ExecutionError, match="compute capability 75"):
        architecture_option("70", known)


@pytest.mark.usefixtures("nvrtc")
def test_what_was_compiled_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = binary_of(gelu(), "90", tmp_path)
    assert first[:4] == b"\x7fELF"
    (kept,) = tmp_path.iterdir()
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("it was compiled again"))
    assert binary_of(gelu(), "90", tmp_path) == first
    monkeypatch.undo()
    kept.write_bytes(kept.read_bytes()[:100])
    assert binary_of(gelu(), "90", tmp_path) == first, "half a file was taken for a kernel"
    assert binary_of(gelu(), "75", tmp_path) != first


@pytest.mark.usefixtures("nvrtc")
def test_a_folder_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    assert binary_of(gelu(), "90", tmp_path / "file" / "cuda")[:4] == b"\x7fELF"


@pytest.mark.usefixtures("nvrtc")
def test_source_that_does_not_compile_is_an_error_with_the_log(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match=r"(?s)NVRTC refuses generated source.*undefined"):
        binary_of("extern void f() { nothing(); }", "90", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("nvrtc")
def test_the_cache_is_in_the_folder_of_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))
    binary_of(gelu(), "90")
    assert len(list((tmp_path / "cuda").iterdir())) == 1
