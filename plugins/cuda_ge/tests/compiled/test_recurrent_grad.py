"""The gradient of recurrent layers as the GPU computes it, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, KernelTable
from aicore.ops.recurrent import GRU, LSTM, RNN, Recurrent
from aicore.ops.recurrent_grad import RecurrentGrad
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import _recurrent_clusters, recurrent_grad
from aicore_cuda_ge.kernels._machine import Machine
from aicore_cuda_ge.kernels.recurrent_grad import CLUSTERS, STEPS

Array = np.ndarray[Any, Any]
NEWER = Machine(multiprocessors=132, capability=90, shared_bytes=227 << 10)
OLDER = Machine(multiprocessors=68, capability=80, shared_bytes=100 << 10)


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build("rnn/recurrent_grad.cu", "rnn/recurrent_back_clusters.cu")


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(recurrent_grad, "compiled", recorded)
    monkeypatch.setattr(_recurrent_clusters, "machine", lambda: NEWER)


@pytest.fixture(params=recurrent_grad.KERNELS, ids=lambda kernel: kernel.variant, name="kernel")
def _kernel(request: pytest.FixtureRequest) -> Kernel:
    found: Kernel = request.param
    return found


def wanted(op: Op, operands: Any) -> Any:
    wide = [a if a is None or a.dtype == np.int32 else a.astype(np.float64) for a in operands]
    return ReferenceEvaluator(KernelTable(all_kernels()))(op, *wide)


def operands_of(
    layer: Recurrent, steps: int, batch: int, hidden: int, seed: int = 0
) -> tuple[RecurrentGrad, list[Any]]:
    """Every operand that the layer may have."""
    rng, count = np.random.default_rng(seed), layer.directions
    rows = (count, batch, steps) if layer.layout else (count, steps, batch)
    state = (batch, count, hidden) if layer.layout else (count, batch, hidden)
    y = (batch, steps, count, hidden) if layer.layout else (steps, count, batch, hidden)
    is_lstm = isinstance(layer, LSTM)
    op = RecurrentGrad(layer, peepholes=is_lstm)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    return op, [
        normal(count, layer.gates * hidden, hidden) / np.float32(np.sqrt(hidden)),
        normal(*rows, layer.gates * hidden),
        normal(*rows, hidden),
        normal(*rows, hidden),
        rng.integers(0, steps + 2, batch).astype(np.int32),
        normal(count, 3 * hidden) if is_lstm else None,
        normal(*y),
        normal(*state),
        normal(*state) if is_lstm else None,
    ]


def compare(host: Any, kernel: Kernel, op: Op, operands: Any, tolerance: float = 2e-5) -> None:
    """All results against those in float64."""
    types = [None if a is None else type_of(a) for a in operands]
    assert kernel.reason_against(op, *types) is None
    for one, other in zip(host.run(kernel, op, operands), wanted(op, operands), strict=True):
        np.testing.assert_allclose(one.astype(np.float64), other, rtol=tolerance, atol=tolerance)


def test_samples(kernel: Kernel, host: Any) -> None:
    """Every attribute: layers, directions, layouts, activations, clip, lengths, peepholes."""
    compared = 0
    for sample in RecurrentGrad.samples(np.random.default_rng(3)):
        compare(host, kernel, sample.op, sample.inputs)
        compared += 1
    assert compared > 30


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_samples_in_16_bits(dtype: str, host: Any) -> None:
    """Rounded once, when a result is stored: the operands are what float64 sees, too."""
    unit, compared = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype], 0
    for sample in RecurrentGrad.samples(np.random.default_rng(3)):
        narrow = [a.astype(numpy_dtype(dtype)) if a is not None and a.dtype == np.float32 else a for a in sample.inputs]
        compare(host, STEPS, sample.op, narrow, 2 * unit)
        compared += 1
    assert compared > 30


LAYERS = [RNN(), LSTM(direction="bidirectional"), LSTM(layout=1), GRU(), GRU(linear_before_reset=1)]


@pytest.mark.parametrize(
    ("steps", "batch", "hidden"), [(3, 1, 130), (3, 9, 37), (2, 17, 5), (2, 20, 5), (2, 29, 5), (2, 36, 33), (2, 39, 5)]
)
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: f"{type(layer).__name__}-{layer.direction}-{layer.layout}")
def test_wide_layers(kernel: Kernel, layer: Any, steps: int, batch: int, hidden: int, host: Any) -> None:
    """More units than a block has, more sequences than it takes, rows that are no multiple of what a warp reads.

    Clusters have one to six sequences each, groups that are not full, and two waves of six clusters.
    """
    compare(host, kernel, *operands_of(layer.checked(), steps, batch, hidden))


@pytest.mark.parametrize("layer", [LSTM(), GRU(direction="reverse", layout=1)], ids=["lstm", "gru"])
@pytest.mark.parametrize("sizes", [(0, 2), (3, 0)], ids=["no steps", "no sequences"])
def test_empty(kernel: Kernel, layer: Any, sizes: tuple[int, int], host: Any) -> None:
    """Without steps the gradients of the initial states are those of the last."""
    compare(host, kernel, *operands_of(layer.checked(), *sizes, 5))


def test_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    op = RecurrentGrad(RNN().checked())
    r = TensorType("float32", (1, 8, 8))
    assert STEPS.reason_against(op, r, TensorType("float32", None)) == "takes operands of known sizes"
    assert "65535 sequences" in str(STEPS.reason_against(op, r, TensorType("float32", (1, 1, 70_000, 8))))
    assert "below 2**31" in str(STEPS.reason_against(op, r, TensorType("float32", (1, 1, 2**30, 8))))
    wide = TensorType("float32", (1, 257, 257)), TensorType("float32", (1, 2, 2, 257))
    assert "256 hidden units" in str(CLUSTERS.reason_against(op, *wide))
    assert STEPS.reason_against(op, *wide) is None
    small = r, TensorType("float32", (1, 2, 2, 8))
    assert CLUSTERS.reason_against(op, *small) is None
    monkeypatch.setattr(_recurrent_clusters, "machine", lambda: OLDER)
    assert "clusters" in str(CLUSTERS.reason_against(op, *small))


def test_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """One launch for all steps is worth more than one for each."""
    monkeypatch.setattr(_recurrent_clusters, "machine", lambda: NEWER)
    op = RecurrentGrad(LSTM().checked())
    types = TensorType("float32", (1, 1024, 256)), TensorType("float32", (1, 64, 64, 1024))
    assert CLUSTERS.estimate is not None
    assert STEPS.estimate is not None
    assert 0 < CLUSTERS.estimate(op, *types) < STEPS.estimate(op, *types)
