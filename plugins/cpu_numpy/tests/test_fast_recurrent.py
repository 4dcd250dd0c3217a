"""The stepped kernels of RNN, GRU and LSTM give the reference's numbers for every attribute and operand."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicore.ir import TensorType, Value, symbol
from aicore.kernels import Kernel
from aicore.ops.recurrent import ACTIVATION_DEFAULTS, DIRECTIONS, GRU, LSTM, RNN
from aicore.runtime.threads import using_threads
from aicore_cpu_numpy.fast import _gates, _shares, recurrent

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

KERNELS: dict[type[Any], Kernel] = {kernel.op: kernel for kernel in recurrent.KERNELS}
LAYERS = (RNN, GRU, LSTM)
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}
BOUNDED = ("Tanh", "Sigmoid", "HardSigmoid", "Softsign", "ScaledTanh", "Relu", "LeakyRelu")
NEEDS = {"ScaledTanh": (0.9, 1.1), "HardSigmoid": (0.3, 0.4), "LeakyRelu": (0.1, None)}


def compare(got: Any, wanted: Any, dtype: str) -> None:
    assert not isinstance(got, str), got
    for found, expected in zip(got, wanted, strict=True):
        assert found.shape == expected.shape
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def widened(arrays: Any) -> list[Array | None]:
    return [a.astype(np.float64) if a is not None and a.dtype.kind == "f" else a for a in arrays]


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples(cls: type[Any], dtype: str, run_kernel: Run, reference: Run) -> None:
    compared = 0
    for sample in cls.samples(np.random.default_rng(1)):
        arrays = [a.astype(dtype) if a is not None and a.dtype.kind == "f" else a for a in sample.inputs]
        compare(run_kernel(KERNELS[cls], sample.op, arrays), reference(sample.op, widened(arrays)), dtype)
        compared += 1
    assert compared >= 10


@st.composite
def layers(draw: Any) -> tuple[Any, list[Array | None]]:
    """An op with its operands: every attribute, every operand that may be absent, sizes of 0 and 1 included."""
    cls = draw(st.sampled_from(LAYERS))
    fields: dict[str, Any] = {
        "direction": draw(st.sampled_from(sorted(DIRECTIONS))),
        "layout": draw(st.integers(0, 1)),
        "clip": draw(st.sampled_from([None, 0.2, 3.0])),
        "residuals": draw(st.booleans()),
    }
    count = DIRECTIONS[fields["direction"]]
    if draw(st.booleans()):
        wanted = len(cls.default_activations) * count
        names = tuple(draw(st.lists(st.sampled_from(BOUNDED), min_size=wanted, max_size=wanted)))
        given = [NEEDS.get(name, (None, None)) for name in names]
        fields["activations"] = names
        fields["activation_alpha"] = tuple(a for a, _ in given if a is not None)
        fields["activation_beta"] = tuple(b for _, b in given if b is not None)
    if cls is LSTM:
        fields["input_forget"] = draw(st.integers(0, 1))
    if cls is GRU:
        fields["linear_before_reset"] = draw(st.integers(0, 1))
    op = cls(**fields)
    steps, batch, features, hidden = (draw(st.integers(low, 6)) for low in (0, 0, 1, 1))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    rows = op.gates * hidden

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape) / 2

    state = (batch, count, hidden) if op.layout else (count, batch, hidden)
    some = lambda make: make() if draw(st.booleans()) else None  # noqa: E731
    operands = [
        normal(batch, steps, features) if op.layout else normal(steps, batch, features),
        normal(count, rows, features),
        normal(count, rows, hidden),
        some(lambda: normal(count, 2 * rows)),
        some(lambda: rng.integers(0, steps + 2, batch).astype(np.int32)),
        *(some(lambda: normal(*state)) for _ in range(op.states)),
        *([some(lambda: normal(count, 3 * hidden))] if cls is LSTM else []),
    ]
    while operands[-1] is None:
        del operands[-1]
    return op, operands


@settings(max_examples=400, deadline=None)
@given(layer=layers(), constant=st.booleans(), threads=st.integers(1, 3))
def test_every_attribute_and_operand(run_kernel: Run, reference: Run, layer: Any, constant: bool, threads: int) -> None:
    op, operands = layer
    wanted = reference(op, operands)
    with pytest.MonkeyPatch.context() as patch, using_threads(threads):
        patch.setattr(_shares, "_LEAST", 1)
        patch.setattr(_shares, "_WORTH", 0.0)
        compare(run_kernel(KERNELS[type(op)], op, operands), wanted, "float64")
        if constant:
            compare(with_constant_weights(op, operands), wanted, "float64")


def with_constant_weights(op: Any, operands: list[Array | None], twice: bool = False) -> tuple[Array, ...]:
    """As the launcher runs it: packed once, in memory that holds rubbish."""
    kernel = KERNELS[type(op)]
    types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
    constants = [a if i in recurrent.WEIGHTS else None for i, a in enumerate(operands)]
    assert kernel.bind is not None
    assert kernel.workspace is not None
    bound: Any = kernel.bind(op, types, constants)
    workspace = np.full(kernel.workspace(op, *types), 255, np.uint8)
    results = op.infer(*(None if t is None else Value("x", t) for t in types))
    out = tuple(np.full(t.static_shape, np.nan, t.dtype) for t in results)
    call = bound.place(*operands, out=out, workspace=workspace)
    with np.errstate(all="ignore"):
        call()
        if twice:
            call()
    return out


@pytest.mark.parametrize("cls", LAYERS)
def test_a_placed_call_may_be_repeated_and_reads_its_inputs_anew(cls: type[Any], reference: Run) -> None:
    sample = max(cls.samples(np.random.default_rng(0)), key=lambda s: len(s.inputs))
    operands = widened(sample.inputs)
    compare(with_constant_weights(sample.op, operands, twice=True), reference(sample.op, operands), "float64")


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("constant", [True, False])
def test_what_is_prepared_for_a_workspace_takes_other_arrays_each_time(
    cls: type[Any], constant: bool, reference: Run
) -> None:
    """As inputs and outputs of a program do."""
    op, rng, rows = cls(), np.random.default_rng(1), cls.gates * 6
    w, r, b = (rng.standard_normal(shape) / 2 for shape in ((1, rows, 5), (1, rows, 6), (1, 2 * rows)))
    kernel = KERNELS[cls]
    types = [TensorType("float64", shape) for shape in ((4, 1, 5), w.shape, r.shape, b.shape)]
    assert kernel.bind is not None
    assert kernel.workspace is not None
    bound: Any = kernel.bind(op, types, [None, w, r, b] if constant else [None] * 4)
    run = bound.prepare(workspace=np.full(kernel.workspace(op, *types), 255, np.uint8))
    for _ in range(2):
        x = rng.standard_normal((4, 1, 5))
        out = (np.full((4, 1, 1, 6), np.nan), *(np.full((1, 1, 6), np.nan) for _ in range(op.states)))
        run(x, w, r, b, out=out)
        compare(out, reference(op, [x, w, r, b]), "float64")


@pytest.mark.parametrize("cls", [GRU, LSTM])
@pytest.mark.parametrize("batch", [1, 3])
def test_gates_that_are_shut_or_open_all_the_way(cls: type[Any], batch: int, run_kernel: Run, reference: Run) -> None:
    """Biases of -200 and 200 overflow exp in float32, on either side, with weights that are packed negated or not."""
    rng, rows = np.random.default_rng(2), cls.gates * 3
    operands = [rng.standard_normal(shape) for shape in ((2, batch, 4), (1, rows, 4), (1, rows, 3))]
    bias = np.resize([-200.0, 200.0, 0.0, -30.0, 30.0], (1, 2 * rows))
    narrow = [a.astype(np.float32) for a in (*operands, bias)]
    wanted = reference(cls(), widened(narrow))
    compare(with_constant_weights(cls(), narrow), wanted, "float32")
    compare(run_kernel(KERNELS[cls], cls(), narrow), wanted, "float32")


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 200.0, -200.0, 1.0, -1.0, 0.3, 0.99, 1.01])


@pytest.mark.parametrize("name", sorted(ACTIVATION_DEFAULTS))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_activations(name: str, dtype: str, reference: Run, run_kernel: Run) -> None:
    """Through a layer whose products hand the input on: w is 1, r is 0."""
    alpha, beta = {"ScaledTanh": ((0.7,), (1.3,))}.get(name, ((), ()))
    op = RNN(activations=(name,), activation_alpha=alpha, activation_beta=beta)
    x = np.concatenate([SPECIAL, np.linspace(-5, 5, 41)]).astype(dtype).reshape(1, -1, 1)
    one, zero = np.ones((1, 1, 1), dtype), np.zeros((1, 1, 1), dtype)
    compare(run_kernel(KERNELS[RNN], op, [x, one, zero]), reference(op, widened([x, one, zero])), dtype)
    assert {*_gates.PLAIN, *_gates.FORMULAS} == set(ACTIVATION_DEFAULTS)


@pytest.mark.parametrize("batch", [1, 2, 4, 5, 40])
def test_any_number_of_sequences(batch: int, run_kernel: Run, reference: Run) -> None:
    rng = np.random.default_rng(batch)
    for cls in LAYERS:
        rows = cls.gates * 33
        shapes = ((7, batch, 20), (1, rows, 20), (1, rows, 33), (1, 2 * rows))
        operands = [rng.standard_normal(shape).astype(np.float32) / 4 for shape in shapes]
        op = cls()
        compare(run_kernel(KERNELS[cls], op, operands), reference(op, widened(operands)), "float32")


@pytest.mark.parametrize("cls", LAYERS)
def test_temporaries_come_from_the_workspace(cls: type[Any]) -> None:
    rng = np.random.default_rng(0)
    rows = cls.gates * 64
    shapes = ((50, 40, 64), (1, rows, 64), (1, rows, 64), (1, 2 * rows))
    operands = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    kernel, types = KERNELS[cls], [TensorType("float32", shape) for shape in shapes]
    assert kernel.bind is not None
    assert kernel.workspace is not None
    bound = kernel.bind(cls(), types, [None, *operands[1:]])
    workspace = np.empty(kernel.workspace(cls(), *types), np.uint8)
    out = (np.empty((50, 1, 40, 64), np.float32), *(np.empty((1, 40, 64), np.float32) for _ in range(cls.states)))
    bound(*operands, out=out, workspace=workspace)
    tracemalloc.start()
    bound(*operands, out=out, workspace=workspace)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 << 10  # NumPy's iterators take up to three buffers of 8192 elements; the gates alone have more


@pytest.mark.parametrize("cls", LAYERS)
def test_reasons_and_estimates(cls: type[Any]) -> None:
    rows = cls.gates * 8
    w, r = TensorType("float32", (1, rows, 4)), TensorType("float32", (1, rows, 8))
    kernel = KERNELS[cls]
    types = TensorType("float32", (5, 2, 4)), w, r
    assert kernel.reason_against(cls(), *types) is None
    moving = TensorType("float32", (symbol("T"), 2, 4))
    assert "known in numbers" in str(kernel.reason_against(cls(), moving, w, r))
    half = TensorType("float16", (5, 2, 4))
    assert "does not take float16" in str(kernel.reason_against(cls(), half, w, r))
    assert kernel.estimate is not None
    longer = TensorType("float32", (50, 2, 4))
    assert 0 < kernel.estimate(cls(), *types) < kernel.estimate(cls(), longer, w, r)
