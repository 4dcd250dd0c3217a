"""Gradients of pools as the GPU computes them, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, Value, numpy_dtype
from aicore.kernels import Kernel
from aicore.ops.fused_gradients import MaxPoolReluGrad
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import AveragePool, MaxPool, settle_pool
from aicore.ops.pooling_grad import AveragePoolGrad, MaxPoolGrad
from aicore.ops.window import numbers, output_dims
from aicore.runtime import type_of
from aicore_cuda_ge.kernels import pooling_grad

Array = np.ndarray[Any, Any]
KERNELS = pooling_grad.KERNELS


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build("pooling/gradient.cu")


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(pooling_grad, "compiled", recorded)


def wanted_of(op: Any, operands: list[Array]) -> Array:
    """By the definition, a window after the other, in float64; images have their channels first."""
    if isinstance(op, MaxPoolReluGrad):
        return np.where(operands[0] <= 0, 0.0, wanted_of(op.pool, operands))
    is_mean = isinstance(op, AveragePoolGrad)
    dy = operands[-1]
    shape = (*dy.shape[:2], *op.shape) if is_mean else operands[0].shape
    settled = settle_pool(op, shape[2:])
    dims = len(shape) - 2
    dx = np.zeros(shape)
    ends = settled.pads[dims:]
    for o in np.ndindex(*dy.shape[2:]):
        starts = [i * s - b for i, s, b in zip(o, settled.strides, settled.pads[:dims], strict=True)]
        taps = [
            tuple(a + k * d for a, k, d in zip(starts, tap, settled.dilations, strict=True))
            for tap in np.ndindex(*settled.kernel_shape)
        ]
        inside = [t for t in taps if all(0 <= i < n for i, n in zip(t, shape[2:], strict=True))]
        padded = [t for t in taps if all(i < n + e for i, n, e in zip(t, shape[2:], ends, strict=True))]
        for place in np.ndindex(*shape[:2]):
            given = float(dy[(*place, *o)])
            if is_mean:
                for t in inside:
                    dx[(*place, *t)] += given / (len(padded) if op.count_include_pad else len(inside))
            elif inside:
                values = [operands[0][(*place, *t)] for t in inside]
                dx[(*place, *inside[int(np.argmax(values))])] += given  # NaN is the largest for argmax, too
    return dx


def run(host: Any, kernel: Kernel, op: Any, operands: list[Array]) -> Array | str:
    """The kernel's result with channels first, or its reason not to run."""
    if kernel.op is not ChannelsLast:
        chosen: Op = op
    else:
        chosen = ChannelsLast(op, operands[0].ndim)
        operands = [np.ascontiguousarray(np.moveaxis(a, 1, -1)) for a in operands]
    types = [type_of(a) for a in operands]
    chosen = chosen.resolve(*(Value("x", t) for t in types))
    reason = kernel.reason_against(chosen, *types)
    if reason is not None:
        return reason
    (found,) = host.run(kernel, chosen, operands)
    return np.moveaxis(found, -1, 1) if kernel.op is ChannelsLast else found  # type: ignore[no-any-return]


def identity(kernel: Kernel) -> str:
    return f"{(kernel.wraps or kernel.op).__name__}-{kernel.op.__name__}-{kernel.variant}"


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.variant == "direct"], ids=identity)
def test_direct_takes_every_sample(kernel: Kernel, host: Any) -> None:
    held: Any = kernel.wraps or kernel.op
    compared = 0
    for sample in held.samples(np.random.default_rng(1)):
        operands = [a for a in sample.inputs if a is not None]
        if sample.note == "sizes known at run time only":
            continue
        if kernel.op is ChannelsLast and operands[0].ndim < 3:
            continue
        found = run(host, kernel, sample.op, operands)
        assert not isinstance(found, str), f"{sample.note}: {found}"
        np.testing.assert_allclose(found, wanted_of(sample.op, operands), rtol=1e-5, atol=1e-5, err_msg=sample.note)
        compared += 1
    assert compared > 5


CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "2x2": ({"kernel_shape": (2, 2), "strides": (2, 2)}, (2, 8, 6, 4)),
    "2x2, a row left over": ({"kernel_shape": (2, 2), "strides": (2, 2)}, (1, 4, 5, 7)),
    "3x3, rounded up": ({"kernel_shape": (3, 3), "strides": (3, 3), "ceil_mode": 1}, (2, 4, 7, 8)),
    "3x3, lines left over": ({"kernel_shape": (3, 3), "strides": (3, 3)}, (1, 8, 8, 9)),
    "2x2, padded behind": ({"kernel_shape": (2, 2), "strides": (2, 2), "pads": (0, 0, 1, 1)}, (2, 4, 4, 5)),
    "overlapping": ({"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}, (2, 12, 7, 8)),
    "every place": ({"kernel_shape": (3, 2), "strides": (1, 1), "pads": (1, 0, 1, 1)}, (1, 4, 5, 6)),
    "rounded up": ({"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}, (2, 4, 6, 6)),
    "dilated": ({"kernel_shape": (2, 3), "dilations": (2, 1), "pads": (1, 1, 0, 1)}, (1, 8, 6, 5)),
    "one axis": ({"kernel_shape": (3,), "strides": (2,), "pads": (1, 0)}, (2, 4, 9)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("held", [MaxPoolGrad, MaxPoolReluGrad, AveragePoolGrad])
@pytest.mark.parametrize("variant", ["rows", "direct"])
def test_cases(variant: str, held: Any, dtype: str, host: Any) -> None:
    kernel = next(k for k in KERNELS if k.wraps is held and k.variant == variant)
    rng = np.random.default_rng(2)
    for note, (fields, shape) in CASES.items():
        pool = (AveragePool if held is AveragePoolGrad else MaxPool)(**fields)
        x = rng.integers(-3, 4, shape).astype(numpy_dtype(dtype))  # with ties
        dims = numbers(output_dims(settle_pool(pool, shape[2:]), shape[2:], pool.kernel_shape, bool(pool.ceil_mode)))
        dy = rng.standard_normal((*shape[:2], *dims)).astype(numpy_dtype(dtype))
        for counts in (0, 1) if held is AveragePoolGrad else (0,):
            extra: dict[str, Any] = {"count_include_pad": counts, "shape": shape[2:]} if held is AveragePoolGrad else {}
            op, operands = (MaxPoolGrad if extra == {} else held)(**fields, **extra), [x, dy][-1 if extra else 0 :]
            op = MaxPoolReluGrad(op) if held is MaxPoolReluGrad else op
            found = run(host, kernel, op, operands)
            assert not isinstance(found, str), f"{note}: {found}"
            wanted = wanted_of(op, [np.asarray(a, np.float64) for a in operands])
            tolerance = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}[dtype]  # one rounding of the result
            np.testing.assert_allclose(
                np.asarray(found, np.float64), wanted, rtol=tolerance, atol=tolerance, err_msg=note
            )


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("held", [MaxPoolGrad, MaxPoolReluGrad])
@pytest.mark.parametrize("variant", ["rows", "direct"])
def test_nan_and_infinities(variant: str, held: Any, stride: int, host: Any) -> None:
    kernel = next(k for k in KERNELS if k.wraps is held and k.variant == variant)
    x = np.full((1, 4, 4, 6), -np.inf, np.float32)
    x[0, 0, 1, 1] = x[0, 0, 1, 2] = np.nan
    x[0, 1, 2, 2], x[0, 1, 3, 3] = np.inf, np.nan
    x[0, 2] = np.nan
    shape = (1, 4, 3, 5) if stride == 1 else (1, 4, 2, 3)
    dy = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    op: Op = MaxPoolGrad(kernel_shape=(2, 2), strides=(stride, stride))
    op = MaxPoolReluGrad(op) if held is MaxPoolReluGrad else op
    np.testing.assert_array_equal(run(host, kernel, op, [x, dy]), wanted_of(op, [x, dy]))


def test_reasons() -> None:
    def reason(variant: str, op: Any, *shapes: tuple[int, ...] | None) -> str:
        kernel = next(k for k in KERNELS if k.variant == variant and (k.wraps is type(op) or k.op is type(op)))
        chosen = ChannelsLast(op, len(op.kernel_shape) + 2) if kernel.op is ChannelsLast else op
        return str(kernel.reason_against(chosen, *(TensorType("float32", shape) for shape in shapes)))

    largest = MaxPoolGrad(kernel_shape=(2, 2))
    assert "known sizes" in reason("direct", largest, None, (1, 4, 1, 1))
    assert "in fours" in reason("rows", largest, (1, 2, 2, 3), (1, 1, 1, 3))
    assert "two spatial axes" in reason("rows", MaxPoolGrad(kernel_shape=(1, 1, 1)), (1, 2, 2, 2, 4), (1, 2, 2, 2, 4))
    assert "known before the run" in reason("direct", AveragePoolGrad(kernel_shape=(2, 2)), (1, 4, 1, 1))
    deep = MaxPoolGrad(kernel_shape=(1, 1, 1, 1))
    assert "3 spatial axes" in reason("direct", deep, (1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1))
    assert "2**31" in reason("rows", largest, (1 << 12, 512, 512, 4), (1 << 12, 511, 511, 4))
