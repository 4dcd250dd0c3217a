"""Ops of places, lines and tables as the GPU computes them, run on the CPU over their conformance cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import AicoreError
from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, KernelTable
from aicore.numerics import expect
from aicore.ops.creation import ConstantOfShape, EyeLike, OneHot, Trilu
from aicore.ops.cumulative import CumProd, CumSum
from aicore.ops.ordering import ArgMax, ArgMin, TopK
from aicore.ops.random import Dropout
from aicore.ops.scatter import ScatterElements, ScatterND
from aicore.ops.shape import Shape, Size
from aicore.ops.slicing import Pad
from aicore.runtime import ReferenceEvaluator, type_of
from aicore.testing.cases import Case, conformance_cases
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import _tables, creation, cumulative, ordering, pad, reductions, scatter

Array = np.ndarray[Any, Any]
FILES = (
    "kernels/scan.cu",
    "kernels/placed.cu",
    "kernels/resize.cu",
    "kernels/bytes.cu",
    "kernels/scatter.cu",
    "reduce/top.cu",
    "reduce/arg.cu",
)
KERNELS = [
    *(kernel for module in (cumulative, ordering, creation, pad, scatter) for kernel in module.KERNELS),
    *(kernel for kernel in reductions.KERNELS if kernel.op in (ArgMax, ArgMin)),
]


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build(*FILES)


@pytest.fixture(scope="module")
def evaluate() -> ReferenceEvaluator:
    return ReferenceEvaluator(KernelTable(all_kernels()))


@pytest.fixture(autouse=True)
def _on_host(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    for module in (_tables, creation, cumulative, ordering, reductions, scatter):
        monkeypatch.setattr(module, "compiled", recorded)
    for module in (_tables, creation):
        monkeypatch.setattr(module, "uploaded", np.ascontiguousarray)


def kernel_of(op: type[Op]) -> Kernel:
    return next(kernel for kernel in KERNELS if kernel.op is op)


def check(host: Any, evaluate: ReferenceEvaluator, kernel: Kernel, case: Case) -> bool:
    """Whether the kernel takes the case; if it does, the results are right."""
    try:
        node = case.node()
    except AicoreError:
        return False  # an edge case that means nothing to the op
    types = [None if v is None else v.type for v in node.inputs]
    if kernel.reason_against(node.op, *types) is not None:
        return False
    feeds = case.feeds()
    operands = [None if v is None else feeds[v.name] if v.constant is None else v.constant.array for v in node.inputs]
    fault = expect(evaluate, node.op, operands, [v.dtype for v in node.outputs]).fault(
        host.run(kernel, node.op, operands)
    )
    assert not fault, f"{kernel.name} on {case.id}: {fault}"
    return True


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: str(kernel.name))
def test_conformance(kernel: Kernel, host: Any, evaluate: ReferenceEvaluator) -> None:
    cases = [case for case in conformance_cases({kernel.op.__name__: kernel.op}) if case.layout == "dense"]
    taken = [case for case in cases if check(host, evaluate, kernel, case)]
    assert len(taken) >= (1 if kernel.variant == "sums" else len(cases) // 3)  # one reduction of four


def exact(evaluate: ReferenceEvaluator, op: Op, *operands: Array) -> tuple[Array, ...]:
    return evaluate(op, *operands)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "uint8", "int64"])
@pytest.mark.parametrize(("shape", "axis", "k"), [((2, 700), 1, 5), ((3, 300, 2), 1, 300), ((1, 1), 0, 1)], ids=str)
def test_top_of_long_lines(
    shape: tuple[int, ...], axis: int, k: int, dtype: str, host: Any, evaluate: ReferenceEvaluator
) -> None:
    """More elements than a block has threads, all of them wanted, ties among them."""
    x = (np.random.default_rng(1).integers(0, 99, shape) / 4).astype(numpy_dtype(dtype))
    for largest in (0, 1):
        op = TopK(axis=axis, k=k, largest=largest)
        assert kernel_of(TopK).reason_against(op, type_of(x)) is None
        for found, wanted in zip(host.run(kernel_of(TopK), op, [x]), exact(evaluate, op, x), strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "uint64", "float64", "bool"])
@pytest.mark.parametrize("op", [ArgMax(axis=1), ArgMin(axis=1, select_last_index=1), ArgMax(axis=0)], ids=str)
def test_extremes_of_wide_numbers(op: Op, dtype: str, host: Any, evaluate: ReferenceEvaluator) -> None:
    x = np.random.default_rng(2).integers(0, 100, (7, 41)).astype(dtype)
    reason = kernel_of(type(op)).reason_against(op, type_of(x))
    if dtype == "bool":
        assert reason == "does not take bool"
        return
    np.testing.assert_array_equal(host.run(kernel_of(type(op)), op, [x])[0], exact(evaluate, op, x)[0])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "bool"])
def test_pads(mode: str, dtype: str, host: Any, evaluate: ReferenceEvaluator) -> None:
    """Of axes side by side and apart, with cuts, larger than the axis, with another constant than 0."""
    x = np.random.default_rng(3).integers(0, 2, (3, 1, 5, 4)).astype(dtype)
    for pads, axes in (((1, 2, 0, 7), (0, 2)), ((-1, 3, 2, -2, 1, 0), (3, 2, 0)), ((0, 0), (1,))):
        op = Pad(axes=axes, constant_value=1 if mode == "constant" else None, mode=mode, pads=pads)
        assert kernel_of(Pad).reason_against(op, type_of(x)) is None
        np.testing.assert_array_equal(host.run(kernel_of(Pad), op, [x])[0], exact(evaluate, op, x)[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8", "int64"])
def test_the_last_of_equal_places_wins(dtype: str, host: Any, evaluate: ReferenceEvaluator) -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(0, 99, (4, 5, 3)).astype(numpy_dtype(dtype))
    cases: list[tuple[Op, Array, tuple[int, ...]]] = [
        (ScatterElements(axis=1), rng.integers(-5, 5, (3, 300, 2)), (3, 300, 2)),
        (ScatterND(), rng.integers(-4, 4, (2, 60, 2)), (2, 60, 3)),
        (ScatterElements(axis=0), rng.integers(-4, 4, (90, 2, 3)).astype(np.int32), (90, 2, 3)),
        (ScatterND(), rng.integers(-3, 3, (400, 3)), (400,)),
    ]
    for op, indices, shape in cases:
        operands = [x, indices, rng.integers(0, 99, shape).astype(numpy_dtype(dtype))]
        (found,) = host.run(kernel_of(type(op)), op, operands)
        np.testing.assert_array_equal(found, exact(evaluate, op, *operands)[0])
    assert host.fault[0] == 0


def sums() -> Kernel:
    return next(kernel for kernel in KERNELS if kernel.variant == "sums")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint32"])
def test_sums_have_the_bits_of_one_after_the_other(dtype: str, host: Any, evaluate: ReferenceEvaluator) -> None:
    """Slices of one element and of many, with none to hundreds of updates, and negative indices."""
    rng = np.random.default_rng(5)
    for shape, rows, depth in (
        ((50, 40), (9, 30), 1),
        ((7, 3, 150), (300,), 1),
        ((7, 3, 150), (70,), 2),
        ((3, 5), (500,), 2),
        ((4, 33), (0,), 1),
        ((1, 200), (100,), 1),
    ):
        indices = np.stack([rng.integers(-n, n, rows) for n in shape[:depth]], -1)
        indices = indices.astype(np.int32 if depth == 2 else np.int64)
        x, updates = (rng.normal(size=s) * 1e4 for s in (shape, (*rows, *shape[depth:])))
        operands = [np.abs(x).astype(dtype), indices, np.abs(updates).astype(dtype)]
        op = ScatterND("add")
        assert sums().reason_against(op, *map(type_of, operands)) is None
        (found,) = host.run(sums(), op, operands)
        np.testing.assert_array_equal(found, exact(evaluate, op, *operands)[0], err_msg=f"{shape} {depth}")
    assert host.fault[0] == 0


@pytest.mark.parametrize("index", [-6, 5])
def test_a_sum_out_of_range_is_told(index: int, host: Any) -> None:
    x, updates = np.zeros((5, 2), np.float32), np.ones((2, 2), np.float32)
    (found,) = host.run(sums(), ScatterND("add"), [x, np.array([[1], [index]]), updates])
    assert host.fault[0] == index
    np.testing.assert_array_equal(found[1], [1, 1])  # what is in range was added
    host.fault[0] = 0


def test_what_is_not_summed() -> None:
    def reason(op: ScatterND, dtype: str, shape: tuple[int, ...] | None = (3,)) -> str:
        return str(sums().reason_against(op, TensorType(dtype, shape), TensorType("int64", (2, 1)), None))

    assert "the reduction is none" in reason(ScatterND(), "float32")
    assert "does not add float16" in reason(ScatterND("add"), "float16")
    assert "known in numbers" in reason(ScatterND("add"), "float32", None)


@pytest.mark.parametrize(("more", "told"), [(0, "None"), (1, "slices of at most 8388480 elements")])
def test_the_longest_slice_that_is_summed(more: int, told: str) -> None:
    """As many blocks as a grid has along y, of 128 elements each."""
    length = 65535 * 128 + more
    types = TensorType("float32", (2, length)), TensorType("int64", (3, 1)), TensorType("float32", (3, length))
    assert told in str(sums().reason_against(ScatterND("add"), *types))


@pytest.mark.parametrize("index", [-6, 5])
def test_indices_out_of_range_are_told(index: int, host: Any) -> None:
    x, updates = np.zeros(5, np.float32), np.ones(2, np.float32)
    host.run(kernel_of(ScatterElements), ScatterElements(), [x, np.array([1, index]), updates])
    assert host.fault[0] == index
    host.fault[0] = 0


def test_diagonals_of_the_run(host: Any, evaluate: ReferenceEvaluator) -> None:
    x = np.arange(1, 31, dtype=np.int16).reshape(2, 3, 5)
    for k in (-1, 2):
        operands = [x, np.array(k, np.int64)]
        np.testing.assert_array_equal(
            host.run(kernel_of(Trilu), Trilu(upper=0), operands)[0], exact(evaluate, Trilu(upper=0), *operands)[0]
        )


REFUSALS: dict[str, tuple[Op, list[TensorType | None], str]] = {
    "axis of the run": (CumSum(), [TensorType("float32", (3,)), TensorType("int64", ())], "known before the run"),
    "open line": (CumProd(axis=0), [TensorType("float32", None)], "known in numbers"),
    "k of the run": (TopK(), [TensorType("float32", (3,)), TensorType("int64", (1,))], "known before the run"),
    "many": (TopK(k=9000), [TensorType("float32", (9000,))], "k times the length"),
    "open top": (TopK(k=1), [TensorType("float32", None)], "known in numbers"),
    "pads of the run": (Pad(), [TensorType("float32", (3,)), TensorType("int64", (2,))], "known before the run"),
    "open pads": (Pad(pads=(1, 1)), [TensorType("float32", None)], "known in numbers"),
    "text": (Pad(pads=(1, 1), constant_value="x"), [TensorType("string", (3,))], "does not pad"),
    "many pads": (Pad(pads=(1,) * 8), [TensorType("float32", (2,) * 4)], "changes 3 axes, here 4"),
    "depth of the run": (
        OneHot(),
        [TensorType("int64", (3,)), TensorType("int64", ()), TensorType("float32", (2,))],
        "known before the run",
    ),
    "odd indices": (OneHot(depth=3), [TensorType("bool", (3,)), None, TensorType("float32", (2,))], "indices of bool"),
    "odd elements": (Trilu(), [TensorType("int4", (3, 3))], "does not take int4"),
    "open triangle": (Trilu(), [TensorType("float32", None)], "known in numbers"),
    "training": (
        Dropout(0.5, True),
        [TensorType("float32", (3,)), None, None, TensorType("uint32", (2,))],
        "draws no numbers",
    ),
    "a sum": (ScatterND("add"), [TensorType("float32", (3,))] * 3, "has no reduction; this is add"),
    "open scatter": (ScatterND(), [TensorType("float32", None)] * 3, "known in numbers"),
    "nine axes": (ScatterElements(), [TensorType("float32", (1,) * 9)] * 3, "up to 8 axes, here 9"),
    "nothing to scatter to": (
        ScatterElements(),
        [TensorType("float32", (0,)), TensorType("int64", (2,)), TensorType("float32", (2,))],
        "every index is out of range",
    ),
    "size of the run": (ConstantOfShape(), [TensorType("int64", (2,))], "known before the run"),
    "open shape": (Shape(), [TensorType("float32", None)], "known in numbers"),
    "open size": (Size(), [TensorType("float32", None)], "known in numbers"),
    "a large result": (ConstantOfShape(shape=(1 << 28,)), [], "makes up to"),
    "an odd result": (EyeLike("int4"), [TensorType("float32", (2, 2))], "does not take int4"),
}


@pytest.mark.parametrize("note", REFUSALS)
def test_refusals(note: str) -> None:
    op, types, reason = REFUSALS[note]
    kernel = kernel_of(type(op))
    assert kernel.supports is not None
    assert reason in str(kernel.supports(op, *types))
