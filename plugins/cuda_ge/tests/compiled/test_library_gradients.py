"""Gradients of convolutions by cuDNN: the launches, with a stand-in for the library; see dnn.cpp."""

from __future__ import annotations

import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.errors import ExecutionError
from aicore.ir import Op, TensorType
from aicore.kernels import REFERENCE, Kernel, KernelTable
from aicore.ops.convolution import ConvTranspose
from aicore.ops.convolution_grad import ConvWeightGrad
from aicore.ops.layout import ChannelsLast
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import _dnn as dnn
from aicore_cuda_ge.kernels import library_gradients

Array = np.ndarray[Any, Any]
FILES = ("cnn/library.cu", "cnn/weight_gradient.cu", "kernels/bytes.cu")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    made = tmp_path_factory.mktemp("dnn") / "libcudnn.so.9"
    source = Path(__file__).with_name("dnn.cpp")
    subprocess.run([compiler, "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    return str(made)


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build(*FILES)


@pytest.fixture(autouse=True)
def _with_library(library: str, monkeypatch: pytest.MonkeyPatch, recorded: Any) -> Iterator[None]:
    monkeypatch.setattr(dnn, "library_path", lambda: library)
    monkeypatch.setattr(library_gradients, "compiled", recorded)
    runtime = types.SimpleNamespace(getDevice=lambda: 0)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime)))
    forget()
    yield
    forget()


def forget() -> None:
    for remembered in (dnn.prepared, dnn._library, dnn._handle):
        remembered.cache_clear()


def named(held: type[Op]) -> Kernel:
    return next(kernel for kernel in library_gradients.KERNELS if kernel.wraps is held)


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def exact(op: Op, *operands: Array) -> Array:
    evaluate = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))
    return evaluate(op, *(a.astype(np.float64) for a in operands))[0]


PADDED: dict[str, Any] = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
WEIGHTS: dict[str, tuple[ConvWeightGrad, tuple[int, ...], tuple[int, ...]]] = {
    "3x3": (ConvWeightGrad(**PADDED), (2, 9, 8, 5), (2, 9, 8, 7)),
    "3x3, strided": (ConvWeightGrad(**PADDED, strides=(2, 2)), (2, 9, 8, 4), (2, 5, 4, 6)),
    "groups": (ConvWeightGrad(**PADDED, group=2), (1, 6, 5, 4), (1, 6, 5, 6)),
}
IMAGES: dict[str, tuple[ConvTranspose, tuple[int, ...], tuple[int, ...]]] = {
    "3x3": (ConvTranspose(pads=(1, 1, 1, 1)), (2, 9, 8, 7), (7, 5, 3, 3)),
    "3x3, strided": (
        ConvTranspose(pads=(1, 1, 1, 1), strides=(2, 2), output_padding=(0, 1)), (2, 5, 4, 6), (6, 4, 3, 3)
    ),
    "groups": (ConvTranspose(pads=(1, 1, 1, 1), group=2), (1, 6, 5, 6), (6, 2, 3, 3)),
}  # fmt: skip
CASES: list[tuple[str, Op, Array, Array]] = [
    (note, op, normal(*first), normal(*second))
    for table in (WEIGHTS, IMAGES)
    for note, (op, first, second) in table.items()
]


@pytest.mark.parametrize("algorithm", ["winograd_apart", "plain", "fft_tiles"])
def test_gradients(algorithm: str, host: Any) -> None:
    compared = 0
    for note, held, first, second in CASES:
        op, kernel = ChannelsLast(held), named(type(held))
        assert kernel.reason_against(op, type_of(first), type_of(second)) is None
        if algorithm != "plain" and note != "3x3":
            with pytest.raises(ExecutionError, match=f"cannot compute this gradient by {algorithm}"):
                host.run(kernel, op, (first, second), algorithm=algorithm)
            continue
        (found,) = host.run(kernel, op, (first, second), algorithm=algorithm)
        np.testing.assert_allclose(found, exact(op, first, second), rtol=2e-5, atol=2e-5, err_msg=note)
        compared += 1
    assert compared == (6 if algorithm == "plain" else 2)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("operand", [0, 1])
def test_large_numbers_stay_where_they_are(number: float, operand: int, host: Any) -> None:
    """The stand-in for the library spoils all results of numbers that are not finite, as Winograd would."""
    for note, held, *given in CASES:
        if note != "3x3":
            continue
        operands = [array.copy() for array in given]
        operands[operand][(1, 2, 1, 1)] = number
        op = ChannelsLast(held)
        (found,) = host.run(named(type(held)), op, operands, algorithm="winograd_apart")
        with np.errstate(invalid="ignore"):
            wanted = exact(op, *operands)
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
        np.testing.assert_allclose(
            found, wanted, rtol=2e-5, atol=2e-5 * max(1.0, np.nanmax(np.abs(wanted[np.isfinite(wanted)])))
        )


def test_estimates_ask_the_library() -> None:
    """Winograd is the first choice for large 3x3 convolutions only, and where the library takes it."""
    kernel = named(ConvWeightGrad)
    assert kernel.estimate is not None

    def best(images: int, maps: int, **fields: Any) -> str:
        out = 28 // fields.get("strides", (1, 1))[0]
        op = ChannelsLast(ConvWeightGrad(**PADDED, **fields))
        shapes = (images, 28, 28, maps), (images, out, out, maps)
        operands = [TensorType("float32", shape) for shape in shapes]
        return min(library_gradients._ALGORITHMS, key=lambda a: kernel.estimate(op, *operands, algorithm=a))  # type: ignore[misc]

    assert best(32, 128) == "winograd_apart"
    assert best(1, 16) == best(32, 128, strides=(2, 2)) == "plain"


def test_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, op = named(ConvTranspose), ChannelsLast(ConvTranspose(pads=(1, 1, 1, 1)))
    four, w = TensorType("float32", (1, 8, 8, 4)), TensorType("float32", (4, 4, 3, 3))
    assert "no bias" in str(kernel.reason_against(op, four, w, TensorType("float32", (4,))))
    uneven = ChannelsLast(ConvTranspose(pads=(1, 1, 0, 1)))
    assert "same padding" in str(kernel.reason_against(uneven, four, w))
    assert "at least 1" in str(kernel.reason_against(op, TensorType("float32", (0, 8, 8, 4)), w))
    monkeypatch.setattr(dnn, "library_path", lambda: "")
    assert str(kernel.reason_against(op, four, w)) == dnn.MISSING
