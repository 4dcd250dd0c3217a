"""Matrix products as the GPU computes them, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, Value
from aicore.kernels import REFERENCE, Kernel, KernelTable
from aicore.ops.activation import Activation, Gelu, HardSwish, Relu, Swish
from aicore.ops.fused_linear import GemmAct, MatMulAdd, MatMulAddAct
from aicore.ops.matmul import Gemm, MatMul
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import _packing, products
from aicore_cuda_ge.kernels import _product_times as times
from aicore_cuda_ge.kernels._machine import Machine

Array = np.ndarray[Any, Any]
FILES = (
    *(f"kernels/gemm_{name}.cu" for name in ("large", "medium", "small", "sliced", "rows", "simple", "reduce", "half")),
    "kernels/tensor/pack.cu",
)
OLDER = Machine(multiprocessors=68, capability=80, shared_bytes=100 << 10)


class Unknown(Activation):
    """An activation that only somebody else's kernels know."""


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build(*FILES)


@pytest.fixture(autouse=True)
def _without_clusters(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    """Fibers are no clusters, so splits go through the workspace."""
    monkeypatch.setattr(products, "machine", lambda: OLDER)
    monkeypatch.setattr(times, "machine", lambda: OLDER)
    monkeypatch.setattr(products, "compiled", recorded)
    monkeypatch.setattr(_packing, "compiled", recorded)


@pytest.fixture(scope="module")
def exact() -> Callable[..., Array]:
    """The result in float64, of the CPU's reference kernels."""
    evaluate = ReferenceEvaluator(KernelTable(all_kernels()))

    def compute(op: Op, *operands: Array | None) -> Array:
        wide = [None if a is None else a if a.dtype.kind in "iu" else a.astype(np.float64) for a in operands]
        return evaluate(op, *wide)[0]

    return compute


ELSEWHERE = ("tensor", "tf32", "cublas", "cublas_tf32")
"""Tensor cores are emulated by tests/cnn; test_blas.py stands in for the library."""
ON_HOST = [kernel for kernel in products.KERNELS if kernel.variant not in ELSEWHERE]


def kernels_of(op: type[Op]) -> Iterator[Kernel]:
    return (kernel for kernel in ON_HOST if kernel.op is op)


def named(op: type[Op], variant: str) -> Kernel:
    return next(kernel for kernel in kernels_of(op) if kernel.variant == variant)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def check(found: Array, wanted: Array, inner: int, unit: float = 2.0**-24) -> None:
    """Within a random walk's worth of roundings of numbers near 1."""
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=8 * unit, atol=16 * (inner + 16) * unit)


def test_kernels_are_the_same_whatever_is_installed() -> None:
    """A library that is missing is a reason against a kernel, so that every machine runs the same tests."""
    assert set(ELSEWHERE) < {kernel.variant for kernel in products.KERNELS}


@pytest.mark.parametrize("kernel", ON_HOST, ids=lambda kernel: str(kernel.name))
def test_samples(kernel: Kernel, host: Any, exact: Any) -> None:
    """Every sample of the op that the kernel takes, with each of its settings."""
    taken = 0
    for sample in kernel.op.samples(np.random.default_rng(0)):
        types = [None if a is None else type_of(a) for a in sample.inputs]
        op = sample.op.resolve(*(None if t is None else Value("x", t) for t in types))
        if kernel.reason_against(op, *types) is not None:
            continue
        taken += 1
        with np.errstate(invalid="ignore"):
            wanted = exact(op, *sample.inputs)
        for settings in kernel.settings:
            (found,) = host.run(kernel, op, sample.inputs, **settings)
            check(found, wanted, 64)
    assert taken or kernel.variant == "narrow"  # no sample has 16 bits


@pytest.mark.parametrize(
    "plan", ["128x256/1", "128x256/1/packed", "64x128/2", "64x128x2/1", "64x128x2/2", "32x64x4/4", "32x32x4/8"]
)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("sizes", [(132, 136, 72), (129, 132, 70), (33, 261, 37)], ids=str)
def test_tiles(plan: str, trans_a: int, trans_b: int, sizes: tuple[int, ...], host: Any, exact: Any) -> None:
    """More than one tile each way, with rests; columns that are, and are not, a multiple of four."""
    rows, columns, inner = sizes
    a = normal(*((inner, rows) if trans_a else (rows, inner)))
    b = normal(*((columns, inner) if trans_b else (inner, columns)))
    op = GemmAct(Gemm(alpha=0.5, beta=2.0, transA=trans_a, transB=trans_b), Gelu())
    operands = (a, b, normal(columns))
    (found,) = host.run(named(GemmAct, "tiled"), op, operands, plan=plan)
    check(found, exact(op, *operands), inner)


@pytest.mark.parametrize("plan", ["64x128/1", "32x32x4/2", "64x128x2/2", "128x256/1/packed"])
@pytest.mark.parametrize(
    ("a", "b", "bias"),
    [
        ((3, 5, 20), (3, 20, 8), (8,)),
        ((2, 1, 3, 5, 20), (4, 1, 20, 8), (3, 5, 1)),
        ((2, 3, 5, 20), (20, 8), (2, 3, 5, 8)),
        ((2, 3, 5, 20), (20, 8), (3, 5, 8)),
        ((20,), (6, 20, 7), (6, 7)),
        ((6, 5, 20), (20,), (5,)),
        ((20,), (20,), (4,)),
        ((1, 20), (20, 8), (3, 9, 8)),
        ((5, 20), (20, 1), (5, 7)),
        ((1, 1, 1, 2, 1, 3, 2, 20), (2, 1, 2, 1, 2, 1, 20, 4), (2, 1, 1, 1, 1, 1, 1, 1)),
    ],
    ids=str,
)
def test_batches(plan: str, a: Any, b: Any, bias: Any, host: Any, exact: Any) -> None:
    """Broadcast batches, vectors, and a bias that makes the result larger."""
    op, operands = MatMulAddAct(HardSwish()), (normal(*a), normal(*b), normal(*bias))
    wanted = exact(op, *operands)
    for kernel, settings in ((named(MatMulAddAct, "tiled"), {"plan": plan}), (named(MatMulAddAct, REFERENCE), {})):
        (found,) = host.run(kernel, op, operands, **settings)
        check(found, wanted, 20)


@pytest.mark.parametrize("share", [1, 2, 8])
@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("sizes", [(1, 72, 1100), (3, 37, 515), (8, 40, 256), (70, 5, 129)], ids=str)
def test_rows(share: int, trans_a: int, trans_b: int, sizes: tuple[int, ...], host: Any, exact: Any) -> None:
    rows, columns, inner = sizes
    a = normal(*((inner, rows) if trans_a else (rows, inner)))
    b = normal(*((columns, inner) if trans_b else (inner, columns)))
    op = GemmAct(Gemm(transA=trans_a, transB=trans_b), Swish(alpha=1.5))
    operands = (a, b, normal(rows, 1))
    (found,) = host.run(named(GemmAct, "rows"), op, operands, share=share)
    check(found, exact(op, *operands), inner)


@pytest.mark.parametrize(
    "shapes", [((2, 7, 20), (20, 3)), ((3, 1, 20), (3, 20, 12)), ((5, 30, 20), (5, 20, 2))], ids=str
)
def test_rows_of_batches(shapes: Any, host: Any, exact: Any) -> None:
    operands = tuple(normal(*shape) for shape in shapes)
    for share in (1, 4):
        (found,) = host.run(named(MatMul, "rows"), MatMul(), operands, share=share)
        check(found, exact(MatMul(), *operands), 20)


@pytest.mark.parametrize(("dtype", "unit"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
@pytest.mark.parametrize("variant", ["narrow", "blocked", REFERENCE])
def test_narrow_types(dtype: str, unit: float, variant: str, host: Any, exact: Any) -> None:
    pytest.importorskip("ml_dtypes")
    operands = tuple(normal(*shape, dtype=dtype) for shape in ((70, 45), (45, 131), (131,)))
    kernel = named(MatMulAdd, variant)
    for settings in kernel.settings:
        (found,) = host.run(kernel, MatMulAdd(), operands, **settings)
        np.testing.assert_allclose(found.astype(np.float64), exact(MatMulAdd(), *operands), rtol=2 * unit, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("variant", ["blocked", REFERENCE])
def test_integers_wrap(dtype: str, variant: str, host: Any) -> None:
    rng, info = np.random.default_rng(5), np.iinfo(dtype)
    a, b, c = (rng.integers(info.min, info.max, shape, dtype) for shape in ((20, 33), (33, 18), (18,)))
    (found,) = host.run(named(Gemm, variant), Gemm(), (a, b, c))
    np.testing.assert_array_equal(found, a @ b + c)


def test_double_precision(host: Any) -> None:
    a, b = normal(20, 33, dtype="float64"), normal(33, 18, dtype="float64")
    (found,) = host.run(named(Gemm, "blocked"), Gemm(alpha=0.5), (a, b))
    np.testing.assert_allclose(found, 0.5 * (a @ b), rtol=1e-13, atol=1e-13)


def test_infinity_in_c_of_no_weight(host: Any) -> None:
    """beta * c is computed even where beta is 0, as the formula says."""
    c = np.array([np.inf, 1], np.float32)
    (found,) = host.run(named(Gemm, "tiled"), Gemm(beta=0.0), (normal(3, 4), normal(4, 2), c), plan="32x32x4/1")
    assert np.isnan(found[:, 0]).all()
    assert np.isfinite(found[:, 1]).all()


@pytest.mark.parametrize(
    ("op", "operands", "reason"),
    [
        (Gemm(alpha=2.0), (np.ones((2, 2), np.int64),) * 2, "does not scale integers"),
        (GemmAct(Gemm(), Relu()), (np.ones((2, 2)),) * 2, "applies no activation to float64"),
        (Gemm(alpha=0.1), (np.ones((2, 2)),) * 2, "float32 holds exactly"),
        (GemmAct(Gemm(), Unknown()), (np.ones((2, 2), np.float32),) * 2, "have no Unknown"),
    ],
    ids=["integers", "double", "alpha", "activation"],
)
def test_refusals(op: Op, operands: Any, reason: str) -> None:
    found = named(type(op), "blocked").reason_against(op, *map(type_of, operands))
    assert found is not None
    assert reason in found


def test_many_rows_are_refused_by_the_kernel_for_few() -> None:
    types = [type_of(normal(9, 4)), type_of(normal(4, 9))]
    assert "at most 8 rows or columns" in str(named(MatMul, "rows").reason_against(MatMul(), *types))


def test_open_sizes_are_refused() -> None:
    types = [TensorType("float32", None), type_of(normal(4, 9))]
    assert "known sizes" in str(named(MatMul, "tiled").reason_against(MatMul(), *types))
