"""Backward kernels of convolutions, batch normalisation and pools on a GPU, against the reference kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import Builder, Op, as_tuple
from aicore.kernels import REFERENCE, Kernel, KernelTable
from aicore.ops.activation import Relu
from aicore.ops.convolution import ConvTranspose
from aicore.ops.convolution_grad import ConvWeightGrad
from aicore.ops.fused_gradients import MaxPoolReluGrad
from aicore.ops.fused_normalization import BatchNormalizationAct
from aicore.ops.layout import ChannelsLast
from aicore.ops.normalization import BatchNormalization
from aicore.ops.normalization_grad import BatchNormalizationGrad
from aicore.ops.pooling_grad import AveragePoolGrad, MaxPoolGrad
from aicore.runtime import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import convolution_grad, convolution_transpose

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.gpu
TARGET = "cuda:0"
TWICE: dict[str, Any] = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}


@pytest.fixture(scope="module")
def evaluate() -> ReferenceEvaluator:
    return ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def run(op: Op, operands: Sequence[Array], variant: str, **settings: Any) -> list[Array]:
    """The results of one kernel, of the second of two runs of one program, which must be those of the first."""
    builder = Builder()
    values = [builder.input(f"x{i}", a.dtype.name, a.shape) for i, a in enumerate(operands)]
    results = as_tuple(builder.apply(op, *values))
    graph = builder.graph(values, {f"y{i}": value for i, value in enumerate(results)})
    options: dict[str, Any] = {"fallback": "error", "optimize": False, "tune": "off"}
    program = aicore.compile(graph, TARGET, kernels={type(op).__name__: variant}, **options)
    feeds = {f"x{i}": a for i, a in enumerate(operands)}
    first, second = (list(program.run(feeds).values()) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)  # sums have one order
    return second


def agree(evaluate: ReferenceEvaluator, op: Op, operands: Sequence[Array], found: Sequence[Array]) -> None:
    wanted = evaluate(op, *(a.astype(np.float64) if a.dtype == np.float32 else a for a in operands))
    for one, other in zip(found, wanted, strict=True):
        scale = max(1.0, float(np.abs(other).max(initial=0)))
        np.testing.assert_allclose(one, other, rtol=3e-5, atol=3e-5 * scale)


def last(array: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


WEIGHTS: dict[str, tuple[ConvWeightGrad, tuple[int, ...], tuple[int, ...]]] = {
    "3x3": (ConvWeightGrad(kernel_shape=(3, 3), pads=(1, 1, 1, 1)), (8, 64, 28, 28), (8, 64, 28, 28)),
    "3x3, strided": (ConvWeightGrad(**TWICE), (5, 132, 15, 14), (5, 100, 8, 7)),
    "1x1": (ConvWeightGrad(kernel_shape=(1, 1)), (8, 256, 14, 14), (8, 512, 14, 14)),
    "groups": (ConvWeightGrad(kernel_shape=(3, 3), pads=(1, 1, 1, 1), group=4), (4, 48, 13, 13), (4, 32, 13, 13)),
    "picture": (
        ConvWeightGrad(kernel_shape=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
        (4, 3, 64, 61),
        (4, 64, 32, 31),
    ),
    "one channel": (ConvWeightGrad(kernel_shape=(3, 3), pads=(1, 1, 1, 1)), (64, 1, 28, 28), (64, 16, 28, 28)),
    "odd": (ConvWeightGrad(kernel_shape=(3, 3), pads=(1, 1, 1, 1)), (3, 37, 17, 19), (3, 35, 17, 19)),
}
IMAGES: dict[str, tuple[ConvTranspose, tuple[int, ...], tuple[int, ...]]] = {
    "3x3": (ConvTranspose(pads=(1, 1, 1, 1)), (8, 64, 28, 28), (64, 96, 3, 3)),
    "3x3, strided": (
        ConvTranspose(strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 1)), (4, 100, 14, 14), (100, 68, 3, 3)
    ),
    "1x1, strided": (ConvTranspose(strides=(2, 2), output_padding=(1, 1)), (4, 128, 14, 14), (128, 64, 1, 1)),
    "groups": (ConvTranspose(pads=(2, 2, 2, 2), dilations=(2, 2), group=4), (2, 96, 13, 13), (96, 18, 3, 3)),
    "odd": (ConvTranspose(pads=(1, 1, 1, 1)), (2, 37, 17, 19), (37, 35, 3, 3)),
}  # fmt: skip


def kernels_of(kernels: Sequence[Kernel], held: type[Op]) -> Iterator[Any]:
    for kernel in kernels:
        if kernel.variant != "direct":
            yield pytest.param(kernel, id=f"{kernel.op.__name__}-{kernel.variant}")


@pytest.mark.parametrize("kernel", [*kernels_of(convolution_grad.KERNELS, ConvWeightGrad)])
def test_gradients_of_weights(kernel: Kernel, evaluate: ReferenceEvaluator) -> None:
    compared = 0
    for op, x_shape, dy_shape in WEIGHTS.values():
        x, dy = normal(*x_shape), normal(*dy_shape)
        chosen, operands = (op, [x, dy]) if kernel.wraps is None else (ChannelsLast(op), [last(x), last(dy)])
        if kernel.reason_against(chosen, *(aicore.runtime.type_of(a) for a in operands)) is None:
            agree(evaluate, op, [x, dy], run(chosen, operands, kernel.variant))
            compared += 1
    assert compared


@pytest.mark.parametrize("kernel", [*kernels_of(convolution_transpose.KERNELS, ConvTranspose)])
def test_gradients_of_images(kernel: Kernel, evaluate: ReferenceEvaluator) -> None:
    compared = 0
    for op, dy_shape, w_shape in IMAGES.values():
        dy, w = normal(*dy_shape), normal(*w_shape)
        chosen, operands = (op, [dy, w]) if kernel.wraps is None else (ChannelsLast(op), [last(dy), w])
        if kernel.reason_against(chosen, *(aicore.runtime.type_of(a) for a in operands)) is None:
            agree(evaluate, chosen, operands, run(chosen, operands, kernel.variant))
            compared += 1
    assert compared


@pytest.mark.parametrize("shape", [(64, 16, 28, 28), (8, 64, 56, 56), (5, 260, 9, 7), (64, 33), (3, 1, 40, 30)])
def test_batch_normalization(shape: tuple[int, ...], evaluate: ReferenceEvaluator) -> None:
    x, dy, channels = normal(*shape) * 2 + 7, normal(*shape) + 1, shape[1]
    scale, bias, mean, variance = (normal(channels + i)[:channels] for i in range(4))
    training = BatchNormalization(training_mode=1, statistics=True)
    operands = [x, scale, bias, mean, np.abs(variance)]
    for is_last in (False, True) if len(shape) > 2 else (False,):
        op: Op = ChannelsLast(training) if is_last else training
        given = [last(x), *operands[1:]] if is_last else operands
        found = run(op, given, "passes")
        agree(evaluate, op, given, found)
        with_relu: Op = BatchNormalizationAct(training.epsilon, training.momentum, Relu())
        cut = run(ChannelsLast(with_relu) if is_last else with_relu, given, "passes")
        for one, other in zip(cut, [np.maximum(found[0], 0), *found[1:]], strict=True):
            np.testing.assert_array_equal(one, other)
        back: Op = ChannelsLast(BatchNormalizationGrad()) if is_last else BatchNormalizationGrad()
        given = [given[0], scale, found[3], found[4], last(dy) if is_last else dy]
        agree(evaluate, back, given, run(back, given, "passes"))


@pytest.mark.parametrize("variant", ["rows", "direct"])
def test_pools(variant: str, evaluate: ReferenceEvaluator) -> None:
    x, dy = np.round(normal(4, 28, 27, 64)), normal(4, 14, 14, 64)
    largest = MaxPoolGrad(**TWICE)
    for held in (largest, MaxPoolReluGrad(largest), AveragePoolGrad(**TWICE, shape=(28, 27))):
        operands = [dy] if isinstance(held, AveragePoolGrad) else [x, dy]
        op = ChannelsLast(held)
        agree(evaluate, op, operands, run(op, operands, variant))
    for size in (2, 3):  # windows side by side
        beside = MaxPoolGrad(kernel_shape=(size, size), strides=(size, size), ceil_mode=1)
        given = normal(4, -(-28 // size), -(-27 // size), 64)
        for held in (beside, MaxPoolReluGrad(beside)):
            op = ChannelsLast(held)
            agree(evaluate, op, [x, given], run(op, [x, given], variant))
