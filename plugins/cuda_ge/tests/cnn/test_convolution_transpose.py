"""Transposed convolutions by the tiled kernels, run on an emulated device, against the reference in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType
from aicore.kernels import Kernel
from aicore.ops.convolution import ConvTranspose
from aicore.ops.layout import ChannelsLast
from aicore_cuda_ge.kernels import convolution_transpose
from aicore_cuda_ge.kernels._conv_problem import problem_of

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]
KERNELS = convolution_transpose.KERNELS


def identity(kernel: Kernel) -> str:
    return f"{kernel.op.__name__}-{kernel.variant}"


def case(images: tuple[int, ...], maps: int, kernel: tuple[int, ...], **fields: Any) -> tuple[Any, ...]:
    group = fields.get("group", 1)
    return ConvTranspose(kernel_shape=kernel, **fields), images, (images[1], maps // group, *kernel)


CASES: dict[str, tuple[Any, ...]] = {
    "3x3": case((2, 36, 7, 6), 20, (3, 3), pads=(1, 1, 1, 1)),
    "without padding": case((1, 8, 5, 6), 68, (3, 2)),
    "more padding than reach": case((1, 8, 9, 8), 12, (3, 1), pads=(3, 1, 2, 1)),
    "dilated": case((1, 8, 6, 7), 12, (3, 3), pads=(2, 3, 2, 3), dilations=(2, 3)),
    "3x3, strided": case((2, 12, 5, 4), 8, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 0)),
    "1x1, strided": case((2, 8, 4, 3), 5, (1, 1), strides=(2, 3), output_padding=(1, 2)),
    "7x7, strided": case((1, 64, 5, 5), 3, (7, 7), strides=(2, 2), pads=(3, 3, 3, 3), output_padding=(1, 1)),
    "strided along one axis": case((1, 16, 4, 6), 8, (4, 3), strides=(3, 1), pads=(1, 1, 2, 1)),
    "groups": case((2, 12, 6, 5), 9, (3, 3), pads=(1, 1, 1, 1), group=3),
    "groups, strided": case((2, 8, 4, 5), 12, (3, 3), pads=(1, 1, 1, 1), strides=(2, 2), group=2),
    "odd channels": case((2, 10, 5, 6), 7, (3, 3), pads=(1, 1, 1, 1), strides=(2, 1)),
    "one axis": case((2, 8, 9), 12, (4,), strides=(2,), pads=(1, 1)),
    "one result": case((3, 8, 1, 1), 4, (1, 1)),
}


def operands(x: tuple[int, ...], w: tuple[int, ...], last: bool) -> list[Array]:
    rng = np.random.default_rng(sum(x))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (x, w)]
    return [np.ascontiguousarray(np.moveaxis(arrays[0], 1, -1)), arrays[1]] if last else arrays


@pytest.mark.parametrize("kernel", KERNELS, ids=identity)
@pytest.mark.parametrize(("tile", "split"), [("", 1), ("56x32x4", 3)])
def test_cases(kernel: Kernel, tile: str, split: int, run_kernel: Run, reference: Run) -> None:
    compared, last = 0, kernel.op is ChannelsLast
    for note, (conv, x_shape, w_shape) in CASES.items():
        x, w = operands(x_shape, w_shape, last)
        op = ChannelsLast(conv, x.ndim) if last else conv
        settings = {"tile": tile, "split": split} if tile else {}
        got = run_kernel(kernel, op, (x, w), **settings)
        if not isinstance(got, str):
            wanted = reference(op, (x, w))[0]
            np.testing.assert_allclose(got[0], wanted, rtol=2e-5, atol=2e-5, err_msg=note)
            compared += 1
    assert compared >= (11 if kernel.variant == "implicit" else 1), "too few cases reach the kernel"


@pytest.mark.parametrize("kernel", KERNELS, ids=identity)
def test_samples(kernel: Kernel, run_kernel: Run, reference: Run) -> None:
    compared = 0
    for sample in kernel.op.samples(np.random.default_rng(3)):
        if kernel.wraps is not None and type(sample.op.inner) is not kernel.wraps:  # type: ignore[attr-defined]
            continue
        got = run_kernel(kernel, sample.op, sample.inputs)
        if not isinstance(got, str):
            wanted = reference(sample.op, sample.inputs)[0]
            np.testing.assert_allclose(got[0], wanted, rtol=2e-5, atol=2e-5, err_msg=sample.note)
            compared += 1
    assert compared >= (kernel.variant == "unaligned"), "no sample reaches the kernel"


def test_parts_have_no_product_with_zeros_between_pixels() -> None:
    """Each result of a stride of 2 meets about a quarter of the taps, and each tap once."""
    op = ConvTranspose(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 1))
    problem = problem_of(op, *(TensorType("float32", shape) for shape in ((2, 8, 7, 7), (8, 4, 3, 3))))
    parts = convolution_transpose.parts_of(problem)
    assert [part.problem.window.taps for part in parts] == [1, 2, 2, 4]
    assert {part.problem.rows for part in parts} == {2 * 7 * 7}
    assert sum(part.problem.products for part in parts) == 2 * 7 * 7 * 9 * 8 * 4
    assert [part.scattered[0] for part in parts] == [0, 4, 14 * 4, 15 * 4]


def typed(*shapes: tuple[int, ...]) -> list[TensorType]:
    return [TensorType("float32", shape) for shape in shapes]


REFUSALS: dict[str, tuple[dict[str, Any], list[TensorType], str]] = {
    "symbolic": ({}, [TensorType("float32", None), *typed((4, 1, 1, 1))], "known sizes"),
    "three axes": ({}, typed((1, 4, 2, 2, 2), (4, 1, 1, 1, 1)), "two spatial axes"),
    "empty": ({}, typed((0, 4, 2, 2), (4, 1, 1, 1)), "at least 1"),
    "both": ({"strides": (2, 2), "dilations": (2, 2)}, typed((1, 4, 2, 2), (4, 1, 2, 2)), "strides or dilations"),
    "far apart": ({"strides": (5, 5)}, typed((1, 4, 2, 2), (4, 1, 5, 5)), "strides of at most 16 pixels"),
    "odd channels": ({}, typed((1, 3, 2, 2), (3, 1, 1, 1)), "in fours"),
    "taps": ({}, typed((1, 4, 20, 2), (4, 1, 16, 1)), "15 taps"),
    "maps": ({"group": 65536}, typed((1, 4 * 65536, 1, 1), (4 * 65536, 1, 1, 1)), "65535 tiles"),
    "a bias beside taps": ({"strides": (2, 2)}, typed((1, 4, 2, 2), (4, 1, 1, 1), (1,)), "each result meets a tap"),
    "large": ({}, typed((1, 4, 1 << 15, 1 << 14), (4, 4, 1, 1)), "2**30"),
}


@pytest.mark.parametrize("case_name", REFUSALS)
def test_reasons(case_name: str) -> None:
    fields, types, wanted = REFUSALS[case_name]
    kernel = next(k for k in KERNELS if k.variant == "implicit" and k.op is ConvTranspose)
    assert wanted in str(kernel.reason_against(ConvTranspose(**fields), *types))
