"""Attention and kernels of rows on a GPU: every tile, what overlaps, and sizes that take long on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Op, TensorType, Value, as_tuple, numpy_dtype
from aicore.kernels import REFERENCE, Kernel, KernelTable
from aicore.numerics import expect
from aicore.ops.attention import DotProductAttention
from aicore.ops.fused_normalization import AddNormalization, AddNormalizationSum
from aicore.ops.normalization import GroupNormalization, InstanceNormalization, LayerNormalization, RMSNormalization
from aicore.ops.ordering import ArgMax
from aicore.ops.reduction import ReduceL2, ReduceMax, ReduceMean, ReduceProd, ReduceSum
from aicore.ops.softmax import LogSoftmax, Softmax
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.calls import calls_of, picked
from aicore_cuda_ge.device import CudaDevice
from aicore_cuda_ge.kernels import attention, normalization, reductions, softmax

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.gpu
KERNELS = (*softmax.KERNELS, *reductions.KERNELS, *normalization.KERNELS, *attention.KERNELS)
PLANS = (*attention.PLANS, "64/2", "16/4")


@pytest.fixture(scope="module")
def device() -> Any:
    return CudaDevice(0)


@pytest.fixture(scope="module")
def evaluate() -> ReferenceEvaluator:
    return ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


def kernel_of(op: Op, given: Sequence[TensorType | None]) -> Kernel:
    """The first that takes it."""
    plain = (kernel for kernel in KERNELS if kernel.op is type(op) and kernel.wraps is None)
    return next(kernel for kernel in plain if kernel.reason_against(op, *given) is None)


def run(device: Any, op: Op, operands: Sequence[Array | None], times: int = 3, **settings: Any) -> list[Array]:
    """The results of the last of several replays; they are 255 where nothing was written."""
    given = [None if a is None else type_of(a) for a in operands]
    kernel = kernel_of(op, given)
    outputs = as_tuple(op.infer(*(None if t is None else Value("x", t) for t in given)))
    arrays = [None if a is None else device.upload(a) for a in operands]
    assert kernel.bind is not None
    results = [device.upload(np.full(t.static_shape, 0xFF, numpy_dtype(t.dtype))) for t in outputs]
    pointers = [0 if a is None else a.address for a in (*arrays, *results)]
    workspace = device.allocate(kernel.workspace(op, *given, **settings) if kernel.workspace else 0)
    if kernel.workspace is not None:
        pointers.append(workspace.address)
    launches = native.LaunchList(device.index)
    calls: Any = calls_of(kernel.bind(op, given, [None] * len(given), **settings))
    for call in calls:
        chosen = [at or 0 for at in picked(call, pointers)]
        launches.add_kernel(call.kernel, chosen, call.params, kernel.name)
    launches.capture()
    for _ in range(times):
        launches.run([], [])
    return [device.download(result) for result in results]


def agrees(device: Any, evaluate: Any, op: Op, *operands: Array | None, **settings: Any) -> None:
    values = [None if a is None else Value("x", type_of(a)) for a in operands]
    op = op.resolve(*values)
    outputs = as_tuple(op.infer(*values))
    found = run(device, op, operands, **settings)
    fault = expect(evaluate, op, operands, [t.dtype for t in outputs]).fault(found)
    assert not fault, f"{op} {settings}: {fault}"


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("size", [16, 32, 64, 80, 128])
def test_attention(size: int, plan: str, device: Any, evaluate: Any) -> None:
    for queries, keys in ((128, 128), (1, 777), (301, 67)):
        operands = [numbers(2, 3, n, size, seed=i) for i, n in enumerate((queries, keys, keys))]
        agrees(device, evaluate, DotProductAttention(size**-0.5), *operands, plan=plan)
        mask = numbers(2, 1, queries, keys)
        agrees(device, evaluate, DotProductAttention(size**-0.5), *operands, mask, plan=plan)


@pytest.mark.parametrize("plan", ["64/1", "16/1", "8/1", "8/4"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention_of_parts(dtype: str, plan: str, device: Any, evaluate: Any) -> None:
    packed = numbers(3, 130, 3, 4, 32, dtype=dtype)
    op = DotProductAttention(0.2, "blphd", "blphd", "blphd", "blhd", (0, 1, 2))
    agrees(device, evaluate, op, packed, packed, packed, plan=plan)


@pytest.mark.parametrize("plan", PLANS)
def test_attention_has_the_same_bits_each_time(plan: str, device: Any) -> None:
    operands = [numbers(1, 8, 200, 64, seed=i) for i in range(3)]
    one, other = (run(device, DotProductAttention(0.1), operands, plan=plan)[0] for _ in range(2))
    np.testing.assert_array_equal(one, other)


@pytest.mark.sanitize
@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("plan", ["64/1", "16/1", "8/1", "8/2"])
def test_small_attention(size: int, plan: str, device: Any, evaluate: Any) -> None:
    operands = [numbers(1, 2, n, size - 3 * i, seed=i) for i, n in ((0, 19), (0, 70), (1, 70))]
    agrees(device, evaluate, DotProductAttention(0.2), *operands, numbers(19, 70), times=1, plan=plan)
    packed = numbers(1, 33, 3, 2, size)
    op = DotProductAttention(0.2, "blphd", "blphd", "blphd", "blhd", (0, 1, 2))
    agrees(device, evaluate, op, packed, packed, packed, times=1, plan=plan)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [3, 33, 100, 500, 1024, 1027, 2048, 3000, 33_001])
def test_rows(length: int, dtype: str, device: Any, evaluate: Any) -> None:
    x, scale, bias = (numbers(*s, dtype=dtype, seed=i) for i, s in enumerate([(3, length), (length,), (length,)]))
    agrees(device, evaluate, Softmax(), x)
    agrees(device, evaluate, LogSoftmax(), x)
    agrees(device, evaluate, LayerNormalization(axis=1), x, scale, bias)
    agrees(device, evaluate, RMSNormalization(axis=1), x, scale)
    agrees(device, evaluate, AddNormalization(LayerNormalization(axis=1)), x, x[::-1].copy(), scale, bias)
    agrees(device, evaluate, AddNormalizationSum(LayerNormalization(axis=1)), x, x[::-1].copy(), scale, bias)
    agrees(device, evaluate, ReduceSum(axes=(1,)), x)
    agrees(device, evaluate, ReduceMax(axes=(0,)), x)
    agrees(device, evaluate, ArgMax(axis=1), x)


@pytest.mark.sanitize
@pytest.mark.parametrize("shape", [(2, 6, 5), (1, 64, 300), (3, 40, 8, 8)])
def test_channels(shape: tuple[int, ...], device: Any, evaluate: Any) -> None:
    x, scale, bias = numbers(*shape), numbers(shape[1]), numbers(shape[1], seed=1)
    agrees(device, evaluate, InstanceNormalization(), x, scale, bias)
    agrees(device, evaluate, GroupNormalization(num_groups=2), x, scale, bias)
    agrees(device, evaluate, Softmax(axis=1), x)
    agrees(device, evaluate, ReduceMean(axes=(1,)), x)
    agrees(device, evaluate, ReduceL2(axes=(0,)), x.astype(np.float64))


@pytest.mark.parametrize("op", [ReduceSum, ReduceMax, ReduceL2, ReduceProd], ids=lambda op: str(op.__name__))
def test_lengths_that_are_cut(op: Any, device: Any, evaluate: Any) -> None:
    for shape, axes in (((1, 3_000_001), (1,)), ((70_000, 60), (0,)), ((2, 100_000, 3), (1,))):
        x = 1 + 1e-3 * numbers(*shape)
        agrees(device, evaluate, op(axes=axes), x.astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("op", [ReduceSum, ReduceMean, ReduceMax, ReduceL2], ids=lambda op: str(op.__name__))
def test_two_groups_of_axes(op: Any, dtype: str, device: Any, evaluate: Any) -> None:
    for shape, axes in (
        ((64, 16, 28, 28), (0, 2, 3)),
        ((2, 3, 700, 900), (0, 2, 3)),
        ((90_000, 8, 3), (0, 2)),
        ((30, 7, 50, 12), (0, 2)),
    ):
        x = np.random.default_rng(1).random(shape).astype(numpy_dtype(dtype)) + numpy_dtype(dtype).type(0.5)
        assert kernel_of(op(axes=axes), [type_of(x)]).variant == "pair"
        agrees(device, evaluate, op(axes=axes), x)


def test_an_encoder_layer_is_seven_launches(device: Any) -> None:
    import aicore

    batch, length, heads, size = 2, 40, 4, 16
    width = heads * size
    op = Builder()
    x = op.input("x", "float32", (batch, length, width))

    def dense(value: Value, outputs: int, seed: int) -> Value:
        inputs = value.type.static_shape[-1]
        w = numbers(inputs, outputs, seed=seed) / np.float32(np.sqrt(inputs))
        found: Value = op.Add(op.MatMul(value, op.constant(w)), op.constant(numbers(outputs, seed=seed)))
        return found

    def normalised(value: Value) -> Value:
        found: Value = op.LayerNormalization(value, op.constant(numbers(width)), op.constant(numbers(width, seed=3)))
        return found

    parts = op.Split(dense(x, 3 * width, 1), axis=2, num_outputs=3)
    q, k, v = (op.Transpose(op.Reshape(part, shape=(batch, length, heads, size)), perm=(0, 2, 1, 3)) for part in parts)
    scores = op.Mul(op.MatMul(q, op.Transpose(k, perm=(0, 1, 3, 2))), op.constant(np.float32(size**-0.5)))
    seen = op.Transpose(op.MatMul(op.Softmax(scores), v), perm=(0, 2, 1, 3))
    y = normalised(op.Add(x, dense(op.Reshape(seen, shape=(batch, length, width)), width, 2)))
    y = normalised(op.Add(y, dense(op.Gelu(dense(y, 2 * width, 4)), width, 5)))
    graph = op.graph([x], {"y": y})
    feeds = {"x": numbers(batch, length, width, seed=9)}
    program = aicore.compile(graph, "cuda:0", fallback="error", tune="off")
    got = program.run(feeds)["y"]
    (executable,) = program.explain().specialised.executables
    assert len(executable.plan.steps) == 7
    wanted = aicore.compile(graph, "cpu", optimize=False, tune="off").run(feeds)["y"]
    assert np.linalg.norm(got - wanted) < 1e-5 * np.linalg.norm(wanted)
