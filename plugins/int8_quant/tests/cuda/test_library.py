"""Products by cuBLASLt: what the library is told and the launches around it, with a stand-in; see library.cpp."""

from __future__ import annotations

import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.errors import ExecutionError
from aicore.ir import TensorType
from aicore.kernels import Kernel
from aicore_int8_quant.cuda import library, library_products, products
from aicore_int8_quant.ops.linear import Int8MatMul
from plugins.int8_quant.tests.cuda import cases
from plugins.int8_quant.tests.cuda.cases import exact
from plugins.int8_quant.tests.cuda.test_convolutions import takes

KERNELS = library_products.KERNELS


def forget() -> None:
    for one in (library.library_path, library.prepared, library._handle, library._library):
        one.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    path = tmp_path / "libcublasLt.so.13"
    source = Path(__file__).with_name("library.cpp")
    subprocess.run([compiler, "-O1", "-w", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    monkeypatch.setattr(library, "_SYSTEM", (str(tmp_path),))
    monkeypatch.setattr(library, "_WHEELS", ())
    fake = types.ModuleType("cupy")
    fake.cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDevice=lambda: 0))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", fake)
    forget()
    yield
    forget()


@pytest.fixture(scope="module")
def host(build: Any) -> Any:
    return build("library", "pack", "epilogue_kernels")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_random_products(kernel: Kernel, host: Any) -> None:
    """Zero points of weights, addends, all kinds of results; what is not taken says why."""
    taken = 0
    for op, operands in cases.fours(60):
        if not takes(kernel, (op, operands)):
            continue
        taken += 1
        (found,) = host.run(kernel, op, operands)
        np.testing.assert_array_equal(found, exact(op, operands))
    assert taken


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("x", "w", "reason"),
    [
        (TensorType("uint8", (3, 16)), TensorType("int8", (16, 8)), "a signed x"),
        (TensorType("int8", (3, 16)), TensorType("int8", (16, 6)), "columns in fours"),
        (TensorType("int8", (2, 3, 16)), TensorType("int8", (2, 16, 8)), "not a batch"),
        (TensorType("int8", None), TensorType("int8", (16, 8)), "known sizes"),
    ],
    ids=["unsigned", "columns", "batch", "open"],
)
def test_refusals(x: TensorType, w: TensorType, reason: str) -> None:
    kernel = next(k for k in KERNELS if k.op is Int8MatMul)
    assert reason in str(kernel.reason_against(Int8MatMul(), x, w, TensorType("float32", ())))


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_SYSTEM", ())
    monkeypatch.setattr(library, "_WHEELS", ())
    forget()
    types_ = TensorType("int8", (4, 16)), TensorType("int8", (16, 8)), TensorType("float32", ())
    kernel = next(k for k in KERNELS if k.op is Int8MatMul)
    assert "not installed" in str(kernel.reason_against(Int8MatMul(), *types_))
    with pytest.raises(ExecutionError, match="not installed"):
        library.prepared(4, 8, 16, 16, 128, 0)
    forget()


@pytest.mark.usefixtures("installed")
def test_what_the_library_refuses() -> None:
    """A step that is no multiple of 16 bytes; and sizes for which it has no way."""
    with pytest.raises(ExecutionError, match="describing a matrix"):
        library.prepared(4, 8, 16, 20, 128, 0)
    assert library.prepared(4, 6, 16, 16, 128, 0) is None


def test_a_library_that_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcublasLt.so.12").write_bytes(b"no library")
    monkeypatch.setattr(library, "_SYSTEM", (str(tmp_path),))
    monkeypatch.setattr(library, "_WHEELS", ())
    forget()
    with pytest.raises(ExecutionError, match="cannot be loaded"):
        library.prepared(4, 8, 16, 16, 128, 0)
    forget()


@pytest.mark.usefixtures("installed")
def test_only_measuring_chooses_it() -> None:
    """Whatever the sizes, some kernel of our own is estimated to be faster, and few are."""
    ours = [k for k in products.KERNELS if k.op is Int8MatMul]
    kernel = next(k for k in KERNELS if k.op is Int8MatMul)
    for rows, terms, columns in ((1, 64, 8), (32, 2048, 1000), (4096, 4096, 4096)):
        given = TensorType("int8", (rows, terms)), TensorType("int8", (terms, columns)), TensorType("float32", ())
        assert kernel.reason_against(Int8MatMul(), *given) is None
        assert kernel.estimate is not None
        own = kernel.estimate(Int8MatMul(), *given)
        others = [k.estimate(Int8MatMul(), *given, **s) for k in ours if k.estimate for s in k.settings]
        assert min(others) < own
        assert sum(one < own for one in others) < 24, "tuning would never get to it"
