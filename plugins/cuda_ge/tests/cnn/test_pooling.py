"""Kernels of pools, run on an emulated device, against the reference in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, Sample, TensorType
from aicore.kernels import Kernel
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from aicore_cuda_ge.kernels import pooling

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]


def identity(kernel: Kernel) -> str:
    return f"{kernel.op.__name__}-{kernel.name}"


def samples(kernel: Kernel) -> Iterator[Sample]:
    for sample in kernel.op.samples(np.random.default_rng(3)):
        if kernel.wraps is None or type(sample.op.inner) is kernel.wraps:  # type: ignore[attr-defined]
            yield sample


def with_samples() -> list[Kernel]:
    """`rows` takes channels in fours, which no sample has; it has tests of its own."""
    return [kernel for kernel in pooling.KERNELS if kernel.variant != "rows"]


@pytest.mark.parametrize("kernel", with_samples(), ids=identity)
def test_samples(kernel: Kernel, run_kernel: Run, reference: Run) -> None:
    compared = 0
    for sample in samples(kernel):
        got = run_kernel(kernel, sample.op, sample.inputs)
        assert not isinstance(got, str), f"{sample.note}: {got}"
        for found, wanted in zip(got, reference(sample.op, sample.inputs), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=sample.note)
        compared += 1
    assert compared >= 1, "the op has no samples"


WINDOWS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "3x3, strided": ({"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}, (2, 9, 8, 8)),
    "dilated": ({"kernel_shape": (2, 3), "dilations": (3, 2), "pads": (1, 2, 2, 1)}, (1, 9, 9, 4)),
    "ceil_mode": ({"kernel_shape": (3, 3), "strides": (3, 3), "pads": (1, 1, 1, 1), "ceil_mode": 1}, (1, 6, 7, 12)),
    "SAME_UPPER": ({"kernel_shape": (2, 3), "strides": (2, 2), "auto_pad": "SAME_UPPER"}, (3, 5, 6, 40)),
    "one spatial axis": ({"kernel_shape": (4,), "strides": (3,), "pads": (1, 2)}, (2, 9, 4)),
    "empty batch": ({"kernel_shape": (2, 2)}, (0, 5, 5, 4)),
}


@pytest.mark.parametrize("note", WINDOWS)
@pytest.mark.parametrize("cls", [MaxPool, AveragePool])
@pytest.mark.parametrize("padding", [0, 1])
def test_rows(note: str, cls: type[Op], padding: int, run_kernel: Run, reference: Run) -> None:
    fields, shape = WINDOWS[note]
    if cls is AveragePool:
        fields = {**fields, "count_include_pad": padding}
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    if x.size:
        x.flat[7], x.flat[-1] = np.nan, np.inf
    op = ChannelsLast(cls(**fields), len(shape))
    kernel = next(k for k in pooling.KERNELS if k.variant == "rows" and k.wraps is cls)
    (got,) = run_kernel(kernel, op, (x,))
    np.testing.assert_allclose(got, reference(op, (x,))[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 9, 8, 40), (1, 1, 1, 70), (2, 1, 3, 33), (1, 30, 31, 3), (2, 0, 4, 5)])
@pytest.mark.parametrize("cls", [GlobalAveragePool, GlobalMaxPool])
@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
def test_channels(shape: tuple[int, ...], cls: type[Op], last: bool, run_kernel: Run, reference: Run) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    op: Op = ChannelsLast(cls()) if last else cls()
    kernel = next(
        k for k in pooling.KERNELS if k.variant == "channels" and (k.wraps or k.op) is cls and bool(k.wraps) is last
    )
    (got,) = run_kernel(kernel, op, (x,))
    np.testing.assert_allclose(got, reference(op, (x,))[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("variant", "op", "shape", "reason"),
    [
        ("direct", MaxPool(kernel_shape=(1,) * 4), (1, 1, 2, 2, 2, 2), "at most 3 spatial axes"),
        ("direct", MaxPool(kernel_shape=(1,)), None, "known sizes"),
        ("rows", ChannelsLast(MaxPool(kernel_shape=(2, 2))), (1, 4, 4, 3), "in fours, here 3"),
        ("rows", ChannelsLast(MaxPool(kernel_shape=(2, 2, 2)), 5), (1, 4, 4, 4, 4), "two spatial axes"),
        ("rows", ChannelsLast(MaxPool(kernel_shape=(2, 2))), (2, 2**15, 2**14, 4), "2**31"),
        ("channels", GlobalMaxPool(), (70000, 2, 2, 2), "at most 65535 images"),
    ],
)
def test_refusals(variant: str, op: Op, shape: tuple[int, ...] | None, reason: str) -> None:
    inner = op.inner if isinstance(op, ChannelsLast) else op
    kernel = next(
        k for k in pooling.KERNELS if k.variant == variant and k.op is type(op) and k.wraps in (None, type(inner))
    )
    assert reason in (kernel.reason_against(op, TensorType("float32", shape)) or "")
