"""Convolutions by cuDNN: what the library is told, and the launches, with a stand-in for the library; see dnn.cpp."""

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
from aicore.kernels import Kernel, KernelTable
from aicore.ops.activation import Gelu, LeakyRelu, Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct
from aicore.ops.layout import ChannelsLast
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import _dnn as dnn
from aicore_cuda_ge.kernels import _dnn_conv, _nvidia, _packing, convolution
from aicore_cuda_ge.kernels._conv_problem import problem_of
from aicore_cuda_ge.kernels._machine import Machine

Array = np.ndarray[Any, Any]
FILES = ("cnn/library.cu", "kernels/gemm_blas.cu", "kernels/bytes.cu", "kernels/tensor/pack.cu")


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
    for module in (_dnn_conv, _packing):
        monkeypatch.setattr(module, "compiled", recorded)
    runtime = types.SimpleNamespace(getDevice=lambda: 0)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime)))
    forget()
    yield
    forget()


def forget() -> None:
    for remembered in (dnn.prepared, dnn._library, dnn._handle):
        remembered.cache_clear()


def named(wraps: type[Op], variant: str) -> Kernel:
    return next(k for k in convolution.KERNELS if k.variant == variant and k.wraps is wraps)


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def exact(op: Op, *operands: Array) -> Array:
    evaluate = ReferenceEvaluator(KernelTable(all_kernels()))
    return evaluate(op, *(a.astype(np.float64) for a in operands))[0]


CASES: dict[str, tuple[Conv, tuple[int, ...], tuple[int, ...]]] = {
    "3x3": (Conv(pads=(1, 1, 1, 1)), (2, 9, 8, 5), (34, 5, 3, 3)),
    "1x1": (Conv(), (1, 7, 5, 36), (3, 36, 1, 1)),
    "5x2": (Conv(pads=(2, 1, 2, 1)), (2, 6, 7, 3), (4, 3, 5, 2)),
    "strided and dilated": (Conv(pads=(1, 2, 1, 2), strides=(2, 1), dilations=(1, 2)), (2, 9, 8, 4), (6, 4, 3, 3)),
    "groups": (Conv(group=2, pads=(1, 1, 1, 1)), (1, 6, 5, 4), (6, 2, 3, 3)),
    "one axis": (Conv(pads=(1, 1)), (2, 40, 3), (5, 3, 3)),
}
WAYS = [
    (kernel.variant, s["algorithm"])
    for kernel in convolution.KERNELS
    for s in kernel.settings
    if kernel.wraps is Conv and kernel.variant in ("cudnn", "cudnn_fft", "cudnn_winograd")
]


@pytest.mark.parametrize(("variant", "algorithm"), WAYS)
def test_convolutions(variant: str, algorithm: str, host: Any) -> None:
    """Alone, with bias, with a residual, with all and an activation, over every shape that the kernel takes."""
    compared = 0
    for note, (conv, x_shape, w_shape) in CASES.items():
        x, w, b = normal(*x_shape), normal(*w_shape), normal(w_shape[0])
        residual = normal(*exact(ChannelsLast(conv, x.ndim), x, w).shape)
        for inner, operands in (
            (conv, (x, w)),
            (conv, (x, w, b)),
            (ConvAct(conv, Relu()), (x, w)),
            (ConvAdd(conv), (x, w, residual)),
            (ConvAddAct(conv, LeakyRelu(alpha=0.3)), (x, w, residual, b)),
        ):
            op, kernel = ChannelsLast(inner, x.ndim), named(type(inner), variant)
            if kernel.reason_against(op, *map(type_of, operands)) is None:
                (found,) = host.run(kernel, op, operands, algorithm=algorithm)
                np.testing.assert_allclose(found, exact(op, *operands), rtol=1e-5, atol=1e-5, err_msg=note)
                compared += 1
    assert compared == {"cudnn": 30, "cudnn_fft": 15, "cudnn_winograd": 5}[variant]


def test_relu_keeps_nan(host: Any) -> None:
    x, w = normal(1, 4, 4, 3), normal(5, 3, 1, 1)
    x[0, 1, 2, 0] = np.nan
    (found,) = host.run(named(ConvAct, "cudnn"), ChannelsLast(ConvAct(Conv(), Relu())), (x, w), algorithm="precomputed")
    assert np.isnan(found[0, 1, 2]).all()
    assert np.isnan(found).sum() == 5


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("operand", ["x", "w"])
def test_large_numbers_stay_where_they_are(number: float, operand: str, host: Any, monkeypatch: Any) -> None:
    """The stand-in for the library spoils all results of numbers that are not finite, as FFT would."""
    conv = Conv(pads=(1, 1, 1, 1)) if operand == "x" else Conv()  # padding times infinity is left out
    x, w, b = normal(1, 6, 5, 3), normal(4, 3, 3, 3), normal(4)
    (x if operand == "x" else w)[(0, 2, 1, 1) if operand == "x" else (2, 0, 0, 0)] = number
    residual = normal(1, 6, 5, 4) if operand == "x" else normal(1, 4, 3, 4)
    op, operands = ChannelsLast(ConvAddAct(conv, LeakyRelu(alpha=0.3))), (x, w, residual, b)
    for variant, algorithm in (("cudnn_fft", "fft_tiles"), ("cudnn_winograd", "winograd_apart")):
        (found,) = host.run(named(ConvAddAct, variant), op, operands, algorithm=algorithm)
        wanted = exact(op, *operands)
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_weights_that_are_constant_are_packed_once() -> None:
    w = normal(4, 3, 2, 5)
    problem = problem_of(ChannelsLast(Conv()), TensorType("float32", (1, 9, 9, 3)), type_of(w))
    np.testing.assert_array_equal(_dnn_conv._packed(np, w, problem), w.transpose(0, 2, 3, 1).reshape(4, 10, 3))


REFUSALS: dict[str, tuple[str, Op, tuple[int, ...], tuple[int, ...], str]] = {
    "uneven": ("cudnn", Conv(pads=(0, 1, 1, 0)), (1, 8, 8, 3), (4, 3, 3, 3), "same padding on both sides"),
    "nothing": ("cudnn", Conv(), (0, 8, 8, 3), (4, 3, 3, 3), "at least 1"),
    "three axes": ("cudnn", Conv(), (1, 4, 4, 4, 3), (4, 3, 3, 3, 3), "two spatial axes"),
    "strided FFT": ("cudnn_fft", Conv(strides=(2, 2)), (1, 9, 9, 3), (4, 3, 3, 3), "neither strides"),
    "padded FFT": ("cudnn_fft", Conv(pads=(3, 3, 3, 3)), (1, 9, 9, 3), (4, 3, 3, 3), "larger than the padding"),
    "FFT of a tap": ("cudnn_fft", Conv(), (1, 9, 9, 3), (4, 3, 1, 1), "more than one tap"),
    "FFT of many taps": ("cudnn_fft", Conv(), (1, 99, 9, 3), (4, 3, 33, 1), "at most 32 taps"),
    "Winograd": ("cudnn_winograd", Conv(), (1, 9, 9, 3), (4, 3, 5, 3), "3 x 3, here 5 x 3"),
}


@pytest.mark.parametrize("note", REFUSALS)
def test_refusals(note: str) -> None:
    variant, conv, x, w, reason = REFUSALS[note]
    given = TensorType("float32", x), TensorType("float32", w)
    assert reason in str(named(Conv, variant).reason_against(ChannelsLast(conv, len(x)), *given))


def test_what_would_be_rounded_twice_is_refused() -> None:
    given = TensorType("float16", (1, 8, 8, 3)), TensorType("float16", (4, 3, 3, 3))
    kernel = named(ConvAct, "cudnn")
    assert kernel.reason_against(ChannelsLast(ConvAct(Conv(), Relu())), *given) is None
    assert "rounded twice" in str(kernel.reason_against(ChannelsLast(ConvAct(Conv(), Gelu())), *given))


def test_float32_is_not_rounded_to_tf32_unless_asked() -> None:
    problem = problem_of(ChannelsLast(Conv()), TensorType("float32", (1, 9, 9, 3)), TensorType("float32", (4, 3, 1, 1)))
    assert not _dnn_conv.describe(problem, _dnn_conv._way("precomputed", False)).tf32
    assert _dnn_conv._prepared(problem, _dnn_conv._way("precomputed", False)) is not None
    assert _dnn_conv._prepared(problem, _dnn_conv._way("precomputed", True)) is None  # the stand-in takes FMA only


def test_older_gpus_and_missing_libraries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = TensorType("float32", (1, 8, 8, 3)), TensorType("float32", (4, 3, 3, 3))
    kernel = named(Conv, "cudnn")
    monkeypatch.setattr(_dnn_conv, "machine", lambda: Machine(capability=61))
    assert "7.5" in str(kernel.reason_against(ChannelsLast(Conv()), *given))
    monkeypatch.setattr(dnn, "library_path", lambda: "")
    assert "not installed" in str(kernel.reason_against(ChannelsLast(Conv()), *given))
    with pytest.raises(ExecutionError, match="not installed"):
        dnn._library()


def test_a_file_that_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "libcudnn.so.9"
    empty.write_bytes(b"")
    monkeypatch.setattr(dnn, "library_path", lambda: str(empty))
    with pytest.raises(ExecutionError, match="cannot be loaded"):
        dnn._library()


def test_libraries_are_looked_for_in_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tmp_path / "cudnn" / "lib" / "libmade_up.so.9"
    spec = types.SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(_nvidia.importlib.util, "find_spec", lambda name: spec)
    assert _nvidia.library_file(("libmade_up.so.9",), ("cudnn/lib",)) == ""
    found.parent.mkdir(parents=True)
    found.touch()
    assert _nvidia.library_file(("libother.so.9", "libmade_up.so.9"), ("cu13/lib", "cudnn/lib")) == str(found)
    monkeypatch.setattr(_nvidia.importlib.util, "find_spec", lambda name: None)
    assert _nvidia.library_file(("libmade_up.so.9",), ("cudnn/lib",)) == ""


def test_an_algorithm_that_the_library_refuses(host: Any) -> None:
    op, operands = ChannelsLast(Conv(strides=(2, 2))), (normal(1, 9, 9, 3), normal(4, 3, 3, 3))
    with pytest.raises(ExecutionError, match="cannot do this convolution by fft"):
        host.run(named(Conv, "cudnn_fft"), op, operands, algorithm="fft")


LARGE = ChannelsLast(Conv(pads=(1, 1, 1, 1))), [TensorType("float32", s) for s in ((32, 28, 28, 128), (128, 128, 3, 3))]


def test_the_library_is_asked_where_an_estimate_may_choose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large convolutions by Winograd; what is too small to gain is neither asked about nor promised to be fast."""
    (op, given), kernel, asked = LARGE, named(Conv, "cudnn_winograd"), []
    small = TensorType("float32", (1, 28, 28, 128)), given[1]

    def refused(what: Any, device: int) -> None:
        asked.append((what.images, what.algorithm, what.tf32))

    assert kernel.reason_against(op, *given) is None
    assert kernel.estimate is not None
    implicit = named(Conv, "implicit")
    assert implicit.estimate is not None
    for types_, chosen in ((given, True), (small, False)):
        best = min(implicit.estimate(op, *types_, **s) for s in implicit.settings)
        assert (kernel.estimate(op, *types_, algorithm="winograd_apart") < best) == chosen
    with monkeypatch.context() as patch:
        patch.setattr(dnn, "prepared", refused)
        assert kernel.reason_against(op, *small) is None
        assert named(Conv, "cudnn_fft").reason_against(op, *given) is None
        assert asked == []
        assert "what cuDNN can do by Winograd" in str(kernel.reason_against(op, *given))
    assert asked == [(32, "winograd_apart", False)]


def test_a_library_that_cannot_be_used_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "libcudnn.so.9"
    empty.write_bytes(b"")
    monkeypatch.setattr(dnn, "library_path", lambda: str(empty))
    op, given = LARGE
    assert "cannot be loaded" in str(named(Conv, "cudnn_winograd").reason_against(op, *given))


def test_status_of_the_library_is_told() -> None:
    with pytest.raises(ExecutionError, match="describing failed: cuDNN says 7"):
        dnn._check(7, "describing")
