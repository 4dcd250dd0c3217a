"""Recurrent layers as the GPU computes them, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, Value, numpy_dtype
from aicore.kernels import Kernel, KernelTable
from aicore.ops.recurrent import GRU, LSTM, RNN
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import _packing, recurrent
from aicore_cuda_ge.kernels import _product_times as times
from aicore_cuda_ge.kernels import _tensor_tiles as tensor
from aicore_cuda_ge.kernels._machine import Machine

Array = np.ndarray[Any, Any]
OLDER = Machine(multiprocessors=68, capability=80, shared_bytes=100 << 10)
FILES = (*(f"kernels/gemm_{name}.cu" for name in ("large", "medium", "small", "sliced")), "rnn/recurrent.cu")


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build(*FILES)


@pytest.fixture(autouse=True)
def _without_clusters(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(recurrent, "machine", lambda: OLDER)
    monkeypatch.setattr(times, "machine", lambda: OLDER)
    monkeypatch.setattr(recurrent, "compiled", recorded)
    monkeypatch.setattr(_packing, "compiled", recorded)


@dataclass(frozen=True)
class OnTensorCores:
    """Tensor cores, which tests/cnn emulates, multiplied x and w; everything behind them runs as it is."""

    host: Any

    def run(self, kernel: Kernel, op: Op, operands: Sequence[Array | None]) -> list[Array]:
        return type(self.host).run(self, kernel, op, operands)

    def launch(self, launch: Any, pointers: Sequence[Array | None]) -> None:
        if launch.name == "pack_rows":
            return
        if not launch.name.startswith("recurrent_project"):
            self.host.launch(launch, pointers)
            return
        x, w, *_, workspace = pointers
        assert x is not None
        assert w is not None
        assert workspace is not None
        wide = x.astype(np.float32).reshape(-1, x.shape[-1]) @ w.astype(np.float32).reshape(-1, w.shape[-1]).T
        workspace[: wide.nbytes].view(np.float32)[:] = wide.reshape(-1)


def compare(host: Any, op: Op, operands: Any) -> None:
    """All results against those in float64."""
    types = [None if a is None else type_of(a) for a in operands]
    op = op.resolve(*(None if t is None else Value("x", t) for t in types))
    kernel = kernel_of(type(op))
    assert kernel.reason_against(op, *types) is None
    wide = [None if a is None else a.astype(np.float64) if a.dtype == np.float32 else a for a in operands]
    wanted = ReferenceEvaluator(KernelTable(all_kernels()))(op, *wide)
    for one, other in zip(host.run(kernel, op, operands), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", [RNN, LSTM, GRU])
def test_samples_in_16_bits(op: type[Op], dtype: str, host: Any) -> None:
    """Rounded once, when a result is stored: the operands are what float64 sees, too."""
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    kernel, compared = kernel_of(op), 0
    for sample in op.samples(np.random.default_rng(3)):
        narrow = [a.astype(numpy_dtype(dtype)) if a is not None and a.dtype == np.float32 else a for a in sample.inputs]
        types = [None if a is None else type_of(a) for a in narrow]
        settled = sample.op.resolve(*(None if t is None else Value("x", t) for t in types))
        assert kernel.reason_against(settled, *types) is None
        wide = [a.astype(np.float64) if a is not None and a.dtype != np.int32 else a for a in narrow]
        wanted = ReferenceEvaluator(KernelTable(all_kernels()))(settled, *wide)
        for one, other in zip(OnTensorCores(host).run(kernel, settled, narrow), wanted, strict=True):
            np.testing.assert_allclose(one.astype(np.float64), other, rtol=2 * unit, atol=4e-6, err_msg=sample.note)
            compared += 1
    assert compared > 10


def test_16_bits_need_tensor_cores_and_features(monkeypatch: pytest.MonkeyPatch) -> None:
    types = [TensorType("float16", shape) for shape in ((4, 2, 0), (1, 3, 0), (1, 3, 3))]
    assert "at least one feature" in str(kernel_of(RNN).reason_against(RNN(), *types))
    monkeypatch.setattr(tensor, "machine", lambda: Machine(capability=75))
    assert "8.0" in str(kernel_of(RNN).reason_against(RNN(), *types))


def kernel_of(op: type[Op]) -> Kernel:
    return next(kernel for kernel in recurrent.KERNELS if kernel.op is op and kernel.variant == "steps")


@pytest.mark.parametrize("op", [RNN, LSTM, GRU])
def test_samples(op: type[Op], host: Any) -> None:
    """Every attribute: directions, layouts, activations, clip, lengths, peepholes."""
    for sample in op.samples(np.random.default_rng(3)):
        compare(host, sample.op, sample.inputs)


@pytest.mark.parametrize(("batch", "hidden"), [(1, 260), (9, 37)])
@pytest.mark.parametrize(
    "op", [RNN(), LSTM(direction="bidirectional"), GRU(), GRU(linear_before_reset=1)], ids=lambda op: str(op)[:24]
)
def test_wide_layers(op: Any, batch: int, hidden: int, host: Any) -> None:
    """More units than a block has warps, more sequences than a warp takes, rows longer than 32 lanes read at once."""
    rng = np.random.default_rng(hidden)
    rows = op.gates * hidden
    shapes = ((2, batch, 20), (op.directions, rows, 20), (op.directions, rows, hidden), (op.directions, 2 * rows))
    compare(host, op, [(rng.standard_normal(shape) / np.sqrt(hidden)).astype(np.float32) for shape in shapes])


@pytest.mark.parametrize("op", [LSTM(), GRU(direction="reverse", layout=1)], ids=["lstm", "gru"])
@pytest.mark.parametrize("sizes", [(0, 2), (3, 0)], ids=["no steps", "no sequences"])
def test_empty(op: Any, sizes: tuple[int, int], host: Any) -> None:
    """Without steps the last states are the initial ones."""
    steps, batch = sizes
    x = (batch, steps, 3) if op.layout else (steps, batch, 3)
    state = (batch, 1, 5) if op.layout else (1, batch, 5)
    rng = np.random.default_rng(1)
    shapes = (x, (1, op.gates * 5, 3), (1, op.gates * 5, 5))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (*shapes, *(state,) * op.states)]
    compare(host, op, [*arrays[:3], None, None, *arrays[3:]])


def test_open_sizes_are_refused() -> None:
    types = [TensorType("float32", None), None, None]
    assert kernel_of(RNN).reason_against(RNN(), *types) == "takes operands of known sizes"


def test_many_sequences_are_refused() -> None:
    types = [TensorType("float32", shape) for shape in ((1, 70_000, 1), (1, 1, 1), (1, 1, 1))]
    assert "65535 sequences" in str(kernel_of(RNN).reason_against(RNN(), *types))
