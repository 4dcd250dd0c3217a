"""Batch normalisation in training and its gradient as the GPU computes them, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel
from aicore.ops.activation import Relu
from aicore.ops.fused_normalization import BatchNormalizationAct
from aicore.ops.layout import ChannelsLast
from aicore.ops.normalization import BatchNormalization
from aicore.ops.normalization_grad import BatchNormalizationGrad
from aicore.runtime import type_of
from aicore_cuda_ge.kernels import batch_normalization

Array = np.ndarray[Any, Any]
KERNELS = batch_normalization.KERNELS


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build("kernels/batch_norm.cu")


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(batch_normalization, "compiled", recorded)


def kernel_of(op: Op) -> Kernel:
    wraps = type(op.inner) if isinstance(op, ChannelsLast) else None
    return next(kernel for kernel in KERNELS if kernel.op is type(op) and kernel.wraps is wraps)


def spread(parameter: Array, x: Array) -> Array:
    """Of channels, which are axis 1, or all of a vector."""
    return parameter.astype(np.float64).reshape([1, -1, *[1] * (x.ndim - 2)] if x.ndim > 1 else [1])


def moments(x: Array) -> tuple[Array, Array]:
    axes = tuple(axis for axis in range(x.ndim) if axis != 1) if x.ndim > 1 else (0,)
    wide = x.astype(np.float64)
    return np.atleast_1d(wide.mean(axes)), np.atleast_1d(wide.var(axes))


def normalized(
    op: BatchNormalization, x: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> list[Array]:
    """All results, in float64."""
    batch_mean, batch_variance = moments(x)
    inverse = 1 / np.sqrt(batch_variance + op.epsilon)
    y = (x - spread(batch_mean, x)) * spread(inverse, x) * spread(scale, x) + spread(bias, x)
    moved = [
        old * op.momentum + new * (1 - op.momentum) for old, new in ((mean, batch_mean), (variance, batch_variance))
    ]
    return [y, *moved, batch_mean, inverse][: op.n_outputs()]


def gradients(x: Array, scale: Array, mean: Array, inverse: Array, dy: Array) -> list[Array]:
    axes = tuple(axis for axis in range(x.ndim) if axis != 1) if x.ndim > 1 else (0,)
    wide = dy.astype(np.float64)
    h = (x - spread(mean, x)) * spread(inverse, x)
    dbias, dscale = np.atleast_1d(wide.sum(axes)), np.atleast_1d((wide * h).sum(axes))
    count = x.size // len(dbias)
    rest = wide - spread(dbias, x) / count - h * spread(dscale, x) / count
    return [rest * spread(scale * inverse, x), dscale, dbias]


SHAPES: tuple[tuple[int, ...], ...] = (
    (2, 3, 4, 5),
    (4, 8, 5, 3),
    (2, 132, 3, 3),
    (1, 5, 1, 1),
    (70, 64),
    (9,),
    (3, 1, 20, 7),
    (2, 2, 3, 2, 4),
)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def turned(arrays: list[Array], rank: int) -> list[Array]:
    """With channels last where they are images."""
    return [np.ascontiguousarray(np.moveaxis(a, 1, -1)) if a.ndim == rank and rank > 2 else a for a in arrays]


def cases() -> Iterator[Any]:
    for shape in SHAPES:
        for last in (False, True):
            if not last or len(shape) > 2:
                yield pytest.param(shape, last, id=f"{shape}{' last' if last else ''}")


@pytest.fixture(name="few_bytes", params=["whole", "splits", "joined"])
def _few_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Cuts small arrays as large ones are, and joins the parts by a launch of their own."""
    how: str = request.param
    if how != "whole":
        monkeypatch.setattr(batch_normalization, "_LEAST_BYTES", 256)
        monkeypatch.setattr(batch_normalization, "_MOST_SPLITS", 3)
    monkeypatch.setattr(batch_normalization, "_JOIN_BYTES", 0 if how == "joined" else 1 << 40)
    return how


def agree(found: list[Array], wanted: list[Array], tolerance: float = 3e-5) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("cuts", [False, True], ids=["alone", "with Relu"])
@pytest.mark.parametrize(("shape", "last"), [*cases()])
def test_training(shape: tuple[int, ...], last: bool, cuts: bool, few_bytes: str, host: Any) -> None:
    statistics = cuts or few_bytes != "whole"
    op = BatchNormalization(epsilon=0.01, momentum=0.75, training_mode=1, statistics=statistics)
    channels = shape[1] if len(shape) > 1 else 1
    x, scale, bias, mean = numbers(*shape) * 3 + 100, *(numbers(channels) + i for i in range(3))
    variance = np.abs(numbers(channels)) + 1
    wanted = normalized(op, x, scale, bias, mean, variance)
    held: Op = BatchNormalizationAct(0.01, 0.75, Relu()) if cuts else op
    wanted[0] = np.maximum(wanted[0], 0) if cuts else wanted[0]
    chosen = ChannelsLast(held, len(shape)) if last else held
    operands = [x, scale, bias, mean, variance]
    if last:
        operands, wanted = turned(operands, len(shape)), turned(wanted, len(shape))
    kernel = kernel_of(chosen)
    assert kernel.reason_against(chosen, *map(type_of, operands)) is None
    agree(host.run(kernel, chosen, operands), wanted)


@pytest.mark.parametrize(("shape", "last"), [*cases()])
def test_gradient(shape: tuple[int, ...], last: bool, few_bytes: str, host: Any) -> None:
    op = BatchNormalizationGrad()
    x, dy = numbers(*shape), numbers(*shape)[::-1].copy()
    scale = numbers(shape[1] if len(shape) > 1 else 1)
    mean, variance = moments(x)
    operands = [x, scale, mean.astype(np.float32), (1 / np.sqrt(variance + 0.01)).astype(np.float32), dy]
    wanted = gradients(*operands)
    chosen = ChannelsLast(op, len(shape)) if last else op
    if last:
        operands, wanted = turned(operands, len(shape)), turned(wanted, len(shape))
    kernel = kernel_of(chosen)
    assert kernel.reason_against(chosen, *map(type_of, operands)) is None
    agree(host.run(kernel, chosen, operands), wanted)


def test_a_mean_far_above_the_deviation_cancels_nothing(host: Any) -> None:
    op = BatchNormalization(epsilon=0.0, training_mode=1, statistics=True)
    x = (np.random.default_rng(1).standard_normal((8, 4, 20, 20)) + 3000).astype(np.float32)
    ones = np.ones(4, np.float32)
    operands = [x, ones, ones * 0, ones, ones]
    found = host.run(kernel_of(op), op, operands)
    wanted = normalized(op, *operands)
    np.testing.assert_allclose(found[4], wanted[4], rtol=2e-4)  # x itself is rounded to 2.4e-4 of a deviation
    np.testing.assert_allclose(found[3], wanted[3], rtol=2e-7)


def test_nan_stays_in_its_channel(host: Any) -> None:
    op = BatchNormalization(training_mode=1)
    x = numbers(3, 4, 5, 5)
    x[1, 2, 3, 3] = np.nan
    ones = np.ones(4, np.float32)
    y, mean, variance = host.run(kernel_of(op), op, [x, ones, ones, ones, ones])
    assert np.isnan(y[:, 2]).all()
    assert np.isnan(mean).tolist() == np.isnan(variance).tolist() == [False, False, True, False]
    assert np.isfinite(y[:, [0, 1, 3]]).all()


def test_reasons() -> None:
    x, vector = TensorType("float32", (2, 3, 4, 4)), TensorType("float32", (3,))
    four = (vector,) * 4
    reason = kernel_of(BatchNormalization()).reason_against
    training = BatchNormalization(training_mode=1)
    assert "statistics of the batch" in str(reason(BatchNormalization(), x, *four))
    assert "known in numbers" in str(reason(training, TensorType("float32", None), *four))
    double = TensorType("float64", (3,))
    assert "one element type" in str(reason(training, x, vector, vector, double, double))
    assert "at least one element" in str(reason(training, TensorType("float32", (0, 3, 4)), *four))
    wide = (TensorType("float32", (1 << 16,)),) * 4
    assert "65535 channels" in str(reason(training, TensorType("float32", (1, 1 << 16, 1)), *wide))
    assert "2**31" in str(reason(training, TensorType("float32", (1 << 20, 3, 1 << 10)), *four))


def test_large_images_join_their_splits_first() -> None:
    large = batch_normalization.Batch.of((32, 112, 112, 64), channels_last=True)
    small = batch_normalization.Batch.of((64, 28, 28, 16), channels_last=True)
    assert (large.joins, small.joins) == (True, False)
    assert (small.lanes, small.width, small.splits) == (4, 4, 196)
