"""Updates, norms, sums of rows and the loss of classes on a GPU, at sizes that take long on the CPU.

Samples are in conformance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import ExecutionError
from aicore.ir import Builder, as_tuple, numpy_dtype
from aicore.kernels import REFERENCE, KernelTable
from aicore.numerics import expect
from aicore.ops.losses import SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad
from aicore.ops.optimizers import (
    AdagradUpdate,
    AdamUpdate,
    GlobalNorm,
    LambUpdate,
    LionUpdate,
    RMSpropUpdate,
    SGDUpdate,
)
from aicore.ops.scatter import ScatterND
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.gpu
SHAPES = [(1 << 21,), (1000, 333), (64, 3, 7, 7), (), (0, 5), (17,)] + [(i % 300 + 1,) for i in range(70)]


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_TUNE", "off")


@pytest.fixture(scope="module")
def evaluate() -> ReferenceEvaluator:
    return ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


def program_of(op: Any, operands: Sequence[Array | None]) -> Any:
    builder = Builder()
    values = [None if a is None else builder.input(f"x{i}", type_of(a).dtype, a.shape) for i, a in enumerate(operands)]
    results = as_tuple(builder.apply(op, *values))
    graph = builder.graph([v for v in values if v is not None], {f"y{i}": v for i, v in enumerate(results)})
    return aicore.compile(graph, "cuda:0", fallback="error")


def run(program: Any, operands: Sequence[Array | None]) -> list[Array]:
    feeds = {f"x{i}": a for i, a in enumerate(operands) if a is not None}
    found = program.run(feeds)
    return [np.asarray(found[f"y{i}"]) for i in range(len(found))]


def agrees(evaluate: ReferenceEvaluator, op: Any, *operands: Array | None) -> None:
    """Three replays give the same bits, and the right numbers."""
    program = program_of(op, operands)
    first, *others = (run(program, operands) for _ in range(3))
    for again in others:
        for a, b in zip(first, again, strict=True):
            np.testing.assert_array_equal(a, b)
    fault = expect(evaluate, op, operands, [type_of(a).dtype for a in first]).fault(first)
    assert not fault, f"{op}: {fault}"


@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.parametrize(
    "made",
    [
        SGDUpdate(),
        SGDUpdate(momentum=0.9, nesterov=True),
        RMSpropUpdate(),
        RMSpropUpdate(momentum=0.5, centered=True),
        AdagradUpdate(lr_decay=0.1),
        AdamUpdate(),
        AdamUpdate(amsgrad=True),
        AdamUpdate(decoupled=True),
        LambUpdate(),
        LionUpdate(),
    ],
    ids=repr,
)
def test_updates(made: Any, scale: float | None, evaluate: ReferenceEvaluator) -> None:
    decays = tuple(i % 3 != 1 for i in range(len(SHAPES)))
    op = type(made)(**{**vars(made), "count": len(SHAPES), "weight_decay": 0.1, "decays": decays})
    rng = np.random.default_rng(5)
    tensors = [rng.normal(size=shape) for shape in (*SHAPES, *SHAPES)]
    for name in op.slots:
        is_square = "sq" in name or name == "sum"
        tensors += [rng.uniform(1, 2, shape) if is_square else rng.uniform(-0.9, 0.9, shape) for shape in SHAPES]
    scalars = (np.array(0.1, np.float32), np.array(7), None if scale is None else np.array(scale, np.float32))
    agrees(evaluate, op, *scalars, *(np.asarray(tensor, np.float32) for tensor in tensors))


def test_updates_in_place(evaluate: ReferenceEvaluator) -> None:
    """Parameters that were computed before are overwritten, which changes no bit."""
    x, g = (np.random.default_rng(i).normal(size=(300, 999)).astype(np.float32) for i in (1, 2))

    def graph(inner: bool) -> Any:
        op = Builder()
        rate, step = op.input("rate", "float32", ()), op.input("step", "int64", ())
        inputs = [op.input(name, "float32", x.shape) for name in ("p", "g", "m", "v")]
        p, gradient, m, v = inputs
        if inner:
            p, m, v = op.Neg(op.Neg(p)), op.Abs(m), op.Abs(v)
        results = op.apply(AdamUpdate(), rate, step, None, p, gradient, m, v)
        # An update alone would write to outputs; what is computed from them lets it write to its operands.
        return op.graph([rate, step, *inputs], {str(i): op.Add(r, r) for i, r in enumerate(results)})

    feeds = {"rate": np.float32(0.1), "step": np.array(3), "p": x, "g": g, "m": np.abs(x), "v": np.abs(g)}
    found = [aicore.compile(graph(inner), "cuda:0", fallback="error").run(feeds) for inner in (False, True)]
    for name in found[0]:
        np.testing.assert_array_equal(np.asarray(found[0][name]), np.asarray(found[1][name]))


def test_norm(evaluate: ReferenceEvaluator) -> None:
    rng = np.random.default_rng(3)
    agrees(evaluate, GlobalNorm(), *(rng.normal(size=shape).astype(np.float32) for shape in SHAPES))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ((64, 10), {}),
        ((4096, 1000), {"label_smoothing": 0.1}),
        ((512, 32000), {"ignore_index": -100}),
        ((4, 50257), {}),
        ((4, 21, 65, 67), {"axis": 1, "ignore_index": 255}),
        ((3, 5000, 7), {"axis": 1, "label_smoothing": 0.1}),
    ],
    ids=repr,
)
def test_loss_of_classes(shape: Any, fields: Any, dtype: str, evaluate: ReferenceEvaluator) -> None:
    rng = np.random.default_rng(4)
    logits = (3 * rng.normal(size=shape)).astype(numpy_dtype(dtype))
    axis = fields.get("axis", 1)
    rows = tuple(np.delete(shape, axis).tolist())
    target = rng.integers(0, shape[axis], rows)
    if "ignore_index" in fields:
        target[rng.random(rows) < 0.2] = fields["ignore_index"]
    g = rng.normal(size=rows).astype(numpy_dtype(dtype))
    axis_given = {"axis": axis, **fields}
    agrees(evaluate, SoftmaxCrossEntropy(**axis_given), logits, target)
    agrees(evaluate, SoftmaxCrossEntropyGrad(**axis_given), logits, target, g)
    if "ignore_index" not in fields and np.prod(shape) < 1 << 21:
        q = rng.uniform(0.1, 1, shape)
        q = (q / q.sum(axis, keepdims=True)).astype(numpy_dtype(dtype))
        agrees(evaluate, SoftmaxCrossEntropy(**axis_given), logits, q)
        agrees(evaluate, SoftmaxCrossEntropyGrad(**axis_given), logits, q, g)


def test_a_class_that_there_is_not_stops_the_run() -> None:
    given = [np.zeros((2, 5), np.float32), np.array([3, 7])]
    program = program_of(SoftmaxCrossEntropy(axis=1), given)
    with pytest.raises(ExecutionError, match="the target has class 7, which there is not"):
        run(program, given)
    (found,) = run(program, [given[0], np.array([3, 4])])
    np.testing.assert_allclose(found, [np.log(5)] * 2, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize(("rows", "width", "count"), [(1000, 64, 4096), (50, 700, 300), (3000, 1, 5000), (7, 33, 0)])
def test_sums_of_rows(rows: int, width: int, count: int, dtype: str, evaluate: ReferenceEvaluator) -> None:
    """As in the gradient of an embedding, half of whose rows are one: the bits of adding one after the other."""
    rng = np.random.default_rng(rows)
    indices = np.where(rng.random(count) < 0.5, 3, rng.integers(-rows, rows, count))[:, None]
    x, updates = ((rng.normal(size=(n, width)) * 1e3).astype(dtype) for n in (rows, count))
    operands = [x, indices, updates]
    program = program_of(ScatterND("add"), operands)
    (wanted,) = evaluate(ScatterND("add"), *operands)
    for _ in range(3):
        np.testing.assert_array_equal(run(program, operands)[0], wanted)


def test_a_sum_out_of_range_is_told() -> None:
    operands = [np.zeros((5, 2), np.float32), np.array([[1], [5]]), np.ones((2, 2), np.float32)]
    with pytest.raises(ExecutionError, match="index 5 is out of range"):
        run(program_of(ScatterND("add"), operands), operands)
