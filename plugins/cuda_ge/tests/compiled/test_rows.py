"""Softmax, normalisations and reductions as the GPU computes them, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, Value, as_tuple, numpy_dtype
from aicore.kernels import REFERENCE, Kernel, KernelTable
from aicore.numerics import expect
from aicore.ops.fused_normalization import AddNormalization, AddNormalizationSum
from aicore.ops.normalization import (
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    RMSNormalization,
)
from aicore.ops.ordering import ArgMax, ArgMin
from aicore.ops.reduction import ReduceL1, ReduceL2, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from aicore.ops.softmax import LogSoftmax, Softmax
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.codegen.copying import Copy
from aicore_cuda_ge.kernels import normalization, reductions, softmax

Array = np.ndarray[Any, Any]
FAMILIES = (softmax, reductions, normalization)
KERNELS = tuple(kernel for family in FAMILIES for kernel in family.KERNELS)
LENGTHS = (1, 2, 3, 7, 8, 32, 33, 127, 128, 129, 256, 500, 1000, 1024, 1027, 2048, 3000)
"""Of rows: one thread, lanes of a warp, a warp, a block; whole packs and not."""


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build("softmax/softmax.cu", "reduce/reduce.cu", "reduce/arg.cu", "kernels/normalize.cu", "kernels/lrn.cu")


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    for family in FAMILIES:
        monkeypatch.setattr(family, "compiled", recorded)


@pytest.fixture(scope="module")
def evaluate() -> ReferenceEvaluator:
    return ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


def kernel_of(op: Op) -> Kernel:
    return next(kernel for kernel in KERNELS if kernel.op is type(op) and kernel.wraps is None)


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(numpy_dtype(dtype))


def agrees(host: Any, evaluate: ReferenceEvaluator, op: Op, *operands: Array | None) -> None:
    types = [None if a is None else type_of(a) for a in operands]
    values = [None if t is None else Value("x", t) for t in types]
    kernel, op = kernel_of(op), op.resolve(*values)
    assert kernel.reason_against(op, *types) is None
    outputs = as_tuple(op.infer(*values))
    found = host.run(kernel, op, operands)
    fault = expect(evaluate, op, operands, [t.dtype for t in outputs]).fault(found)
    assert not fault, f"{op} on {types}: {fault}"


def taken_samples(kernel: Kernel) -> Iterator[tuple[Op, tuple[Array | None, ...]]]:
    for sample in kernel.op.samples(np.random.default_rng(0)):
        types = [None if a is None else type_of(a) for a in sample.inputs]
        op = sample.op.resolve(*(None if t is None else Value("x", t) for t in types))
        if kernel.reason_against(op, *types) is None:
            yield op, sample.inputs


@pytest.mark.parametrize(
    "kernel",
    [kernel for kernel in KERNELS if kernel.wraps is None and kernel.variant not in ("apart", "pair")],
    ids=lambda kernel: str(kernel.name),
)
def test_samples(kernel: Kernel, host: Any, evaluate: ReferenceEvaluator) -> None:
    samples = list(taken_samples(kernel))
    assert samples
    for op, operands in samples:
        agrees(host, evaluate, op, *operands)


@dataclass(frozen=True)
class CopyInNumPy:
    """A generated copy, which tests/pointwise runs, as what it means."""

    copy: Copy
    dtype: str
    source: int
    target: int

    def run(self, pointers: Sequence[Array | None]) -> None:
        x, room = pointers[self.source], pointers[self.target]
        assert x is not None
        assert room is not None
        strides = [stride * x.itemsize for stride in self.copy.from_strides]
        moved = np.lib.stride_tricks.as_strided(x, self.copy.dims, strides)
        room[: moved.nbytes].view(x.dtype)[:] = moved.reshape(-1)


@dataclass(frozen=True)
class CopyingHost:
    host: Any

    def run(self, kernel: Kernel, op: Op, operands: Sequence[Array | None]) -> list[Array]:
        return type(self.host).run(self, kernel, op, operands)

    def launch(self, launch: Any, pointers: Sequence[Array | None]) -> None:
        launch.run(pointers) if isinstance(launch, CopyInNumPy) else self.host.launch(launch, pointers)


@pytest.mark.parametrize(
    "kernel", [kernel for kernel in KERNELS if kernel.variant == "apart"], ids=lambda kernel: str(kernel.name)
)
def test_axes_that_are_no_neighbours(
    kernel: Kernel, host: Any, evaluate: ReferenceEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reductions, "launch_copy", lambda *given: (CopyInNumPy(*given),))
    samples = list(taken_samples(kernel))
    x = np.abs(numbers(3, 4, 5, 2, 6, seed=5)) + np.float32(0.5)
    made: Any = kernel.op
    for op, operands in [*samples, (made(axes=(-1, 0, 2)), (x,)), (made(axes=(1, 3), keepdims=0), (x,))]:
        types = [None if a is None else type_of(a) for a in operands]
        assert kernel.reason_against(op, *types) is None
        (wanted,) = as_tuple(op.infer(*(None if t is None else Value("x", t) for t in types)))
        found = CopyingHost(host).run(kernel, op, operands)
        assert not expect(evaluate, op, operands, [wanted.dtype]).fault(found), op
    neighbours = made(axes=(1, 2))
    assert kernel.reason_against(neighbours, type_of(x)) == "reduces axes that are no neighbours"
    assert "known in numbers" in str(kernel.reason_against(neighbours, TensorType("float32", None)))
    assert "axes that are known" in str(kernel.reason_against(neighbours, type_of(x), TensorType("int64", (2,))))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "kernel", [kernel for kernel in KERNELS if kernel.variant == "pair"], ids=lambda kernel: str(kernel.name)
)
def test_two_groups_of_axes(
    kernel: Kernel, dtype: str, host: Any, evaluate: ReferenceEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, and with both launches cut into parts as for large tensors."""
    made: Any = kernel.op
    cases: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((3, 4, 5, 6), (0, 2, 3)),
        ((3, 4, 5, 8), (0, 2)),
        ((1, 9, 2, 1, 300), (1, 4)),
        ((70, 2, 3, 2), (-4, -2)),
        ((2, 3, 5, 1), (0, 2)),
    )
    for cut in (False, True):
        if cut:
            monkeypatch.setattr(reductions, "_SMALLEST_CUT", 0)
            monkeypatch.setattr(reductions, "_LEAST_BYTES", 64)
            monkeypatch.setattr(reductions, "_MOST_SPLITS", 3)
        for shape, axes in cases:
            op, x = made(axes=axes), (np.abs(numbers(*shape, seed=5)) / 2 + np.float32(0.75)).astype(numpy_dtype(dtype))
            assert kernel.reason_against(op, type_of(x)) is None
            (wanted,) = as_tuple(op.infer(Value("x", type_of(x))))
            assert not expect(evaluate, op, [x], [wanted.dtype]).fault(host.run(kernel, op, [x])), f"{op} {shape} {cut}"


def test_which_axes_are_two_groups() -> None:
    """As (outer, kept, length, inner)."""
    assert reductions.pair((64, 16, 28, 28), (0, 2, 3)) == (64, 16, 784, 1)
    assert reductions.pair((2, 3, 4, 5), (0, 2)) == (2, 3, 4, 5)
    assert reductions.pair((1, 2, 1, 3, 4), (1, 4)) == (2, 3, 4, 1)
    for shape, axes in (((2, 3, 4), (0, 1)), ((2, 3, 4), (1,)), ((2, 3, 4, 5), (1, 3)), ((2, 3, 2, 3, 2), (0, 2, 4))):
        assert reductions.pair(shape, axes) is None
    kernel = next(kernel for kernel in KERNELS if kernel.variant == "pair")
    assert kernel.reason_against(ReduceSum(axes=(1,)), TensorType("float32", (2, 3))) == (
        "reduces two groups of axes, the first one in front"
    )
    assert "known in numbers" in str(kernel.reason_against(ReduceSum(axes=(1,)), TensorType("float32", None)))
    with_axes = kernel.reason_against(ReduceSum(), TensorType("float32", (2, 3)), TensorType("int64", (2,)))
    assert "axes that are known" in str(with_axes)


def test_sums_of_all_pixels_of_a_channel_are_not_copied_first() -> None:
    x = TensorType("float32", (64, 16, 28, 28))
    kernels = [kernel for kernel in KERNELS if kernel.op is ReduceSum]
    taken: list[Any] = [k for k in kernels if k.reason_against(ReduceSum(axes=(0, 2, 3)), x) is None]
    assert len(taken) == 2
    assert min(taken, key=lambda k: k.estimate(ReduceSum(axes=(0, 2, 3)), x)).variant == "pair"


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_softmax_of_rows(length: int, dtype: str, host: Any, evaluate: ReferenceEvaluator) -> None:
    agrees(host, evaluate, Softmax(), 3 * numbers(5, length, dtype=dtype))
    agrees(host, evaluate, LogSoftmax(), numbers(3, length, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_softmax_of_a_row_that_no_team_holds(dtype: str, host: Any, evaluate: ReferenceEvaluator) -> None:
    x = 5 * numbers(2, 70_001, dtype=dtype)
    x[0, :40_000] = -np.inf
    agrees(host, evaluate, Softmax(), x)
    agrees(host, evaluate, LogSoftmax(), x)


@pytest.mark.parametrize("shape", [(2, 5, 3), (1, 300, 40), (3, 9, 1, 33), (2, 1, 64), (1, 17, 257)])
def test_softmax_of_columns(shape: tuple[int, ...], host: Any, evaluate: ReferenceEvaluator) -> None:
    agrees(host, evaluate, Softmax(axis=1), 4 * numbers(*shape))
    agrees(host, evaluate, LogSoftmax(axis=1), numbers(*shape, dtype="float64"))


def test_softmax_of_infinite_numbers(host: Any, evaluate: ReferenceEvaluator) -> None:
    rows = np.float32(
        [[-np.inf] * 6, [np.inf, 0, 1, -np.inf, 2, 3], [np.nan, 1, 2, 3, 4, 5], [1e38, -1e38, 0, 0, 0, 0]]
    )
    for x in (rows, np.repeat(rows, 7000, axis=1)):
        agrees(host, evaluate, Softmax(), x)
        agrees(host, evaluate, Softmax(axis=0), x.T.copy())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_normalisation_of_rows(length: int, dtype: str, host: Any, evaluate: ReferenceEvaluator) -> None:
    x, scale, bias = (
        numbers(*shape, dtype=dtype, seed=i) for i, shape in enumerate([(5, length), (length,), (length,)])
    )
    agrees(host, evaluate, LayerNormalization(axis=1, epsilon=0.01), x + x.dtype.type(3), scale, bias)
    agrees(host, evaluate, RMSNormalization(axis=1), x, scale)
    agrees(host, evaluate, AddNormalization(LayerNormalization(axis=1, epsilon=0.01)), x, x[::-1].copy(), scale, bias)
    agrees(
        host, evaluate, AddNormalizationSum(LayerNormalization(axis=1, epsilon=0.01)), x, x[::-1].copy(), scale, bias
    )


def test_normalisation_of_a_row_that_no_team_holds(host: Any, evaluate: ReferenceEvaluator) -> None:
    x, scale, bias = numbers(2, 40_003) + 2, numbers(40_003), numbers(40_003, seed=1)
    agrees(host, evaluate, LayerNormalization(axis=1, statistics=True), x, scale, bias)
    agrees(host, evaluate, AddNormalization(LayerNormalization(axis=1)), x, x, scale, bias)
    agrees(host, evaluate, AddNormalizationSum(LayerNormalization(axis=1)), x, x, scale, bias)
    agrees(host, evaluate, InstanceNormalization(), x.reshape(1, 2, -1), scale[:2], bias[:2])


@pytest.mark.parametrize("shape", [(2, 6, 5), (1, 4, 8, 16), (2, 12, 37), (1, 2, 70, 70)])
def test_normalisation_of_channels(shape: tuple[int, ...], host: Any, evaluate: ReferenceEvaluator) -> None:
    channels = shape[1]
    scale, bias = numbers(channels), numbers(channels, seed=1)
    agrees(host, evaluate, InstanceNormalization(), numbers(*shape) + 1, scale, bias)
    agrees(host, evaluate, GroupNormalization(num_groups=2), numbers(*shape) + 1, scale, bias)


REDUCTIONS = (ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceL1, ReduceL2)


@pytest.mark.parametrize("op", REDUCTIONS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_reductions(op: Any, dtype: str, host: Any, evaluate: ReferenceEvaluator) -> None:
    for length in (1, 3, 8, 33, 300, 2500):
        agrees(host, evaluate, op(axes=(1,)), numbers(5, length, dtype=dtype))
        agrees(host, evaluate, op(axes=(1,), keepdims=False), numbers(2, length, 3, dtype=dtype))
    for columns in (8, 64, 300):
        agrees(host, evaluate, op(axes=(0,)), numbers(70, columns, dtype=dtype))


def test_products(host: Any, evaluate: ReferenceEvaluator) -> None:
    agrees(host, evaluate, ReduceProd(axes=(1,)), 1 + 0.01 * numbers(3, 500))
    agrees(host, evaluate, ReduceProd(axes=(0,)), 1 + 0.01 * numbers(50, 13))


@pytest.mark.parametrize("op", [ReduceSum, ReduceMean, ReduceMax, ReduceL2], ids=lambda op: op.__name__)
@pytest.mark.parametrize(("shape", "axes"), [((2, 300_001), (1,)), ((5000, 60), (0,)), ((3, 40_000, 3), (1,))])
def test_lengths_that_are_cut(
    op: Any, shape: tuple[int, ...], axes: tuple[int, ...], host: Any, evaluate: ReferenceEvaluator
) -> None:
    x = numbers(*shape)
    sizes = reductions.middle(shape, axes)
    assert sizes is not None
    assert reductions.splits_of(sizes, 4) > 1
    agrees(host, evaluate, op(axes=axes), x)


def test_nothing_is_cut_that_is_small_or_wide() -> None:
    assert reductions.splits_of((8192, 8192, 1), 4) == 1
    assert reductions.splits_of((1, 100, 100), 4) == 1
    assert reductions.splits_of((0, 8192, 8192), 4) == 1


@pytest.mark.parametrize("op", [ArgMax, ArgMin], ids=lambda op: op.__name__)
@pytest.mark.parametrize("last", [False, True])
def test_place_of_the_extreme(op: Any, last: bool, host: Any, evaluate: ReferenceEvaluator) -> None:
    for axis, shape in ((1, (7, 100)), (0, (100, 7)), (1, (2, 5))):
        x = np.random.default_rng(1).integers(0, 9, shape).astype(np.float32)
        agrees(host, evaluate, op(axis=axis, select_last_index=last), x)
        x[0, 0], x[-1, -1] = np.nan, np.nan
        agrees(host, evaluate, op(axis=axis, select_last_index=last), x)


def test_what_is_refused() -> None:
    x, row = TensorType("float32", (2, 3, 4)), TensorType("float32", (4,))
    layer = LayerNormalization(axis=2)
    assert "one shape" in str(kernel_of(AddNormalization(layer)).reason_against(AddNormalization(layer), x, row, row))
    keeping = AddNormalization(LayerNormalization(axis=2, statistics=True))
    assert "statistics" in str(kernel_of(keeping).reason_against(keeping, x, x, row))
    assert "scale" in str(kernel_of(layer).reason_against(layer, x, TensorType("float32", (1,))))
    rms = RMSNormalization(axis=2)
    narrow = TensorType("float16", (4,))
    assert "of the type of x" in str(kernel_of(rms).reason_against(rms, x, narrow))
    outer = ReduceSum(axes=(0, 2))
    assert "neighbouring" in str(kernel_of(outer).reason_against(outer, x))
