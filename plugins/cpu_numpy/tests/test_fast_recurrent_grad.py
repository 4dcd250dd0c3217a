"""The stepped kernel of RecurrentGrad gives the reference's numbers for every attribute and operand."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicore.ir import TensorType, Value, symbol
from aicore.ops.recurrent import ACTIVATION_DEFAULTS, DIRECTIONS, GRU, LSTM, RNN
from aicore.ops.recurrent_grad import RecurrentGrad
from aicore.runtime.threads import using_threads
from aicore_cpu_numpy.fast import _shares, _slopes, recurrent_grad

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

(KERNEL,) = recurrent_grad.KERNELS
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}
NEEDS = {"ScaledTanh": (0.9, 1.1), "HardSigmoid": (0.3, 0.4), "LeakyRelu": (0.1, None), "Affine": (0.7, 0.1)}


def compare(got: Any, wanted: Any, dtype: str) -> None:
    assert not isinstance(got, str), got
    assert len(got) == len(wanted)
    for found, expected in zip(got, wanted, strict=True):
        assert found.shape == expected.shape
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def widened(arrays: Any) -> list[Array | None]:
    return [a.astype(np.float64) if a is not None and a.dtype.kind == "f" else a for a in arrays]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples(dtype: str, run_kernel: Run, reference: Run) -> None:
    compared = 0
    for sample in RecurrentGrad.samples(np.random.default_rng(1)):
        arrays = [a.astype(dtype) if a is not None and a.dtype.kind == "f" else a for a in sample.inputs]
        compare(run_kernel(KERNEL, sample.op, arrays), reference(sample.op, widened(arrays)), dtype)
        compared += 1
    assert compared > 30


@st.composite
def walks(draw: Any) -> tuple[Any, list[Array | None]]:
    """An op with its operands: every attribute, every operand that may be absent, sizes of 0 and 1 included."""
    cls = draw(st.sampled_from((RNN, GRU, LSTM)))
    fields: dict[str, Any] = {
        "direction": draw(st.sampled_from(sorted(DIRECTIONS))),
        "layout": draw(st.integers(0, 1)),
        "clip": draw(st.sampled_from([None, 0.5, 3.0])),
    }
    count = DIRECTIONS[fields["direction"]]
    if draw(st.booleans()):
        wanted = len(cls.default_activations) * count
        names = tuple(draw(st.lists(st.sampled_from(sorted(ACTIVATION_DEFAULTS)), min_size=wanted, max_size=wanted)))
        parameters = [NEEDS.get(name, ACTIVATION_DEFAULTS[name]) for name in names]
        fields["activations"] = names
        fields["activation_alpha"] = tuple(a for a, _ in parameters if a is not None)
        fields["activation_beta"] = tuple(b for _, b in parameters if b is not None)
    if cls is LSTM:
        fields["input_forget"] = draw(st.integers(0, 1))
    if cls is GRU:
        fields["linear_before_reset"] = draw(st.integers(0, 1))
    layer = cls(**fields).checked()
    steps, batch, hidden = (draw(st.integers(low, 6)) for low in (0, 0, 1))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    rows = (count, batch, steps) if layer.layout else (count, steps, batch)
    state = (batch, count, hidden) if layer.layout else (count, batch, hidden)
    y = (batch, steps, count, hidden) if layer.layout else (steps, count, batch, hidden)
    peepholes = cls is LSTM and draw(st.booleans())
    op = RecurrentGrad(layer, peepholes)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape)

    given_ = [draw(st.booleans()) for _ in range(3)]
    if not any(given_[: 1 + layer.states]):
        given_[draw(st.integers(0, layer.states))] = True
    operands = [
        normal(count, layer.gates * hidden, hidden) / 2,
        normal(*rows, layer.gates * hidden),
        normal(*rows, hidden) if cls is GRU else None,
        normal(*rows, hidden) if cls is LSTM or op.is_linear_gru else None,
        rng.integers(0, steps + 2, batch).astype(np.int32) if draw(st.booleans()) else None,
        normal(count, 3 * hidden) if peepholes else None,
        normal(*y) if given_[0] else None,
        normal(*state) if given_[1] else None,
        normal(*state) if given_[2] and layer.states > 1 else None,
    ]
    while operands[-1] is None:
        del operands[-1]
    return op, operands


@settings(max_examples=400, deadline=None)
@given(walk=walks(), block=st.sampled_from([1, 8, 1 << 14]), threads=st.integers(1, 3))
def test_every_attribute_and_operand(run_kernel: Run, reference: Run, walk: Any, block: int, threads: int) -> None:
    op, operands = walk
    with pytest.MonkeyPatch.context() as patch, using_threads(threads):
        patch.setattr(recurrent_grad, "_BLOCK", block)  # of one step, of a few, of all
        patch.setattr(_shares, "_LEAST", 1)
        patch.setattr(_shares, "_WORTH", 0.0)
        compare(run_kernel(KERNEL, op, operands), reference(op, operands), "float64")


def test_a_placed_call_may_be_repeated_and_reads_its_inputs_anew(reference: Run) -> None:
    sample = max(RecurrentGrad.samples(np.random.default_rng(0)), key=lambda s: len(s.inputs))
    operands = widened(sample.inputs)
    types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
    results = sample.op.infer(*(None if t is None else Value("x", t) for t in types))
    assert KERNEL.bind is not None
    assert KERNEL.workspace is not None
    bound: Any = KERNEL.bind(sample.op, types, [None] * len(types))
    out = tuple(np.full(t.static_shape, np.nan) for t in results)
    call = bound.place(*operands, out=out, workspace=np.full(KERNEL.workspace(sample.op, *types), 255, np.uint8))
    call()
    for array in operands:
        if array is not None and array.dtype.kind == "f":
            array *= 0.5
    call()
    compare(out, reference(sample.op, operands), "float64")


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.3, 0.99, 1.01, 1.5, -1.5])


@pytest.mark.parametrize("name", sorted(ACTIVATION_DEFAULTS))
@pytest.mark.parametrize("clip", [None, 1.0])
def test_slopes_on_kinks_and_bounds(name: str, clip: float | None, reference: Run, run_kernel: Run) -> None:
    """Through one step of a layer whose product is nothing: r is 0."""
    alpha, beta = {"ScaledTanh": ((0.7,), (1.3,))}.get(name, ((), ()))
    layer = RNN(activations=(name,), activation_alpha=alpha, activation_beta=beta, clip=clip).checked()
    gates = np.concatenate([SPECIAL, np.linspace(-5, 5, 41)]).reshape(1, 1, -1, 1)
    operands = [np.zeros((1, 1, 1)), gates, None, None, None, None, np.ones((1, 1, gates.size, 1))]
    op = RecurrentGrad(layer)
    compare(run_kernel(KERNEL, op, operands)[:1], reference(op, operands)[:1], "float64")
    assert {*_slopes._PLAIN, *_slopes._FORMULAS} == set(ACTIVATION_DEFAULTS)


@pytest.mark.parametrize("cls", [RNN, GRU, LSTM])
def test_temporaries_come_from_the_workspace(cls: type[Any]) -> None:
    rng = np.random.default_rng(0)
    layer, rows = cls().checked(), (1, 50, 40)
    op = RecurrentGrad(layer)
    width = layer.gates * 64
    shapes = [(1, width, 64), (*rows, width), (*rows, 64), (*rows, 64), None, None, (50, 1, 40, 64)]
    operands = [None if shape is None else rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    types = [None if a is None else TensorType("float32", a.shape) for a in operands]
    results = op.infer(*(None if t is None else Value("x", t) for t in types))
    assert KERNEL.bind is not None
    assert KERNEL.workspace is not None
    bound: Any = KERNEL.bind(op, types, [None] * len(types))
    out = tuple(np.empty(t.static_shape, np.float32) for t in results)
    call = bound.place(*operands, out=out, workspace=np.empty(KERNEL.workspace(op, *types), np.uint8))
    call()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 << 10  # NumPy's iterators take up to three buffers of 8192 elements


def test_long_walks_are_shared_among_threads() -> None:
    op = RecurrentGrad(LSTM().checked())
    types = TensorType("float32", (1, 1024, 256)), TensorType("float32", (1, 64, 64, 1024))
    assert KERNEL.estimate is not None
    alone = KERNEL.estimate(op, *types)
    with using_threads(2):
        assert KERNEL.estimate(op, *types) < alone
        assert [s.stop - s.start for s in recurrent_grad._sequences(op, *types)] == [32, 32]
        short = TensorType("float32", (1, 8, 2)), TensorType("float32", (1, 4, 64, 8))
        assert recurrent_grad._sequences(op, *short) == [slice(0, 64)]


def test_reasons_and_estimates() -> None:
    op = RecurrentGrad(RNN().checked())
    r, gates = TensorType("float32", (1, 8, 8)), TensorType("float32", (1, 5, 2, 8))
    assert KERNEL.reason_against(op, r, gates) is None
    moving = TensorType("float32", (1, symbol("T"), 2, 8))
    assert "known in numbers" in str(KERNEL.reason_against(op, r, moving))
    half = [TensorType("float16", t.static_shape) for t in (r, gates)]
    assert "does not take float16" in str(KERNEL.reason_against(op, *half))
    assert KERNEL.estimate is not None
    longer = TensorType("float32", (1, 50, 2, 8))
    assert 0 < KERNEL.estimate(op, r, gates) < KERNEL.estimate(op, r, longer)
