"""Recurrent layers that run in clusters of blocks, emulated on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, Value
from aicore.kernels import Kernel, KernelTable
from aicore.ops.recurrent import GRU, LSTM, RNN
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import _packing, _recurrent_clusters, recurrent
from aicore_cuda_ge.kernels import _product_times as times
from aicore_cuda_ge.kernels._machine import Machine

Array = np.ndarray[Any, Any]
NEWER = Machine(multiprocessors=132, capability=90, shared_bytes=227 << 10)
OLDER = Machine(multiprocessors=68, capability=80, shared_bytes=100 << 10)


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    gemms = [f"kernels/gemm_{name}.cu" for name in ("large", "medium", "small", "sliced")]
    return build(*gemms, "rnn/recurrent_clusters.cu")


@pytest.fixture(autouse=True)
def _on_a_newer_machine(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(_recurrent_clusters, "machine", lambda: NEWER)
    monkeypatch.setattr(recurrent, "machine", lambda: OLDER)  # products are not emulated in clusters
    monkeypatch.setattr(times, "machine", lambda: OLDER)
    for module in (recurrent, _packing):
        monkeypatch.setattr(module, "compiled", recorded)


def kernel_of(op: type[Op]) -> Kernel:
    return next(kernel for kernel in recurrent.KERNELS if kernel.op is op and kernel.variant == "clusters")


def compare(host: Any, op: Op, operands: Any) -> None:
    """All results against those in float64."""
    types = [None if a is None else type_of(a) for a in operands]
    op = op.resolve(*(None if t is None else Value("x", t) for t in types))
    kernel = kernel_of(type(op))
    assert kernel.reason_against(op, *types) is None
    wide = [None if a is None else a.astype(np.float64) if a.dtype == np.float32 else a for a in operands]
    wanted = ReferenceEvaluator(KernelTable(all_kernels()))(op, *wide)
    for one, other in zip(host.run(kernel, op, operands), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize("op", [RNN, LSTM, GRU])
def test_samples(op: type[Op], host: Any) -> None:
    """Every attribute: directions, layouts, activations, clip, lengths, peepholes, residuals."""
    for sample in op.samples(np.random.default_rng(3)):
        compare(host, sample.op, sample.inputs)


@pytest.mark.parametrize(
    ("steps", "batch", "hidden"), [(3, 2, 70), (2, 7, 130), (2, 17, 5), (2, 20, 5), (2, 29, 5), (2, 36, 37), (2, 39, 5)]
)
@pytest.mark.parametrize(
    "op",
    [RNN(), LSTM(residuals=True), GRU(residuals=True), GRU(linear_before_reset=1, layout=1, direction="reverse")],
    ids=["rnn", "lstm", "gru", "linear gru"],
)
def test_clusters_of_several_blocks_and_sequences(op: Any, steps: int, batch: int, hidden: int, host: Any) -> None:
    """Both widths of rows, one to six sequences a cluster, groups that are not full, and two waves of six clusters."""
    rng = np.random.default_rng(hidden)
    rows = op.gates * hidden
    x = (batch, steps, 3) if op.layout else (steps, batch, 3)
    shapes = (x, (op.directions, rows, 3), (op.directions, rows, hidden), (op.directions, 2 * rows))
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


@pytest.mark.parametrize("op", [RNN, LSTM, GRU])
def test_reasons(op: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    types = [TensorType("float32", shape) for shape in ((1, 1, 1), (1, op.gates * 257, 1), (1, op.gates * 257, 257))]
    assert "256 hidden units" in str(kernel_of(op).reason_against(op(), *types))
    monkeypatch.setattr(_recurrent_clusters, "machine", lambda: OLDER)
    types = [TensorType("float32", shape) for shape in ((1, 1, 1), (1, op.gates * 8, 1), (1, op.gates * 8, 8))]
    assert "clusters" in str(kernel_of(op).reason_against(op(), *types))
