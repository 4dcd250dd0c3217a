"""Gradients of a convolution's weights as the GPU computes them, run on the CPU; see conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel
from aicore.ops.convolution_grad import ConvWeightGrad
from aicore.ops.layout import ChannelsLast
from aicore.runtime import type_of
from aicore_cuda_ge.kernels import _weight_gradient_tiles as tiles
from aicore_cuda_ge.kernels import convolution_grad

Array = np.ndarray[Any, Any]
DIRECT = [kernel for kernel in convolution_grad.KERNELS if kernel.variant == "direct"]
TILED = [kernel for kernel in convolution_grad.KERNELS if kernel.variant != "direct"]


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build("cnn/weight_gradient.cu", "cnn/library.cu")


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(convolution_grad, "compiled", recorded)


def gradient(op: ConvWeightGrad, x: Array, dy: Array) -> Array:
    """By the definition, in float64, of images with their channels first."""
    dims = x.ndim - 2
    op = op.settled(x.shape[2:])
    group, channels, maps = op.group, x.shape[1] // op.group, dy.shape[1] // op.group
    begins, ends = op.pads[:dims], op.pads[dims:]
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(begins, ends, strict=True)])
    dw = np.zeros((dy.shape[1], channels, *op.kernel_shape))
    if not dy.size or not x.size:
        return dw
    for tap in np.ndindex(*op.kernel_shape):
        places = tuple(
            slice(k * d, k * d + (out - 1) * s + 1, s)
            for k, d, s, out in zip(tap, op.dilations, op.strides, dy.shape[2:], strict=True)
        )
        seen = wide[(slice(None), slice(None), *places)].reshape(len(x), group, channels, -1)
        dw[(..., *tap)] = np.einsum(
            "ngcp,ngmp->gmc", seen, dy.astype(np.float64).reshape(len(x), group, maps, -1)
        ).reshape(-1, channels)
    return dw


def run(host: Any, kernel: Kernel, op: ConvWeightGrad, x: Array, dy: Array, **settings: Any) -> Array | str:
    """The kernel's result for images with channels first, or its reason not to run."""
    chosen: Op = op
    operands = x, dy
    if kernel.op is ChannelsLast:
        chosen = ChannelsLast(op, x.ndim)
        operands = tuple(np.ascontiguousarray(np.moveaxis(a, 1, -1)) for a in (x, dy))  # type: ignore[assignment]
    reason = kernel.reason_against(chosen, *map(type_of, operands))
    if reason is not None:
        return reason
    return host.run(kernel, chosen, operands, **{**kernel.settings[0], **settings})[0]  # type: ignore[no-any-return]


def agree(found: Any, wanted: Array, note: str = "", tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(
        found, wanted, rtol=tolerance, atol=tolerance * max(1.0, np.abs(wanted).max(initial=0)), err_msg=note
    )


@pytest.mark.parametrize("kernel", DIRECT, ids=lambda kernel: kernel.op.__name__)
def test_direct_takes_every_sample(kernel: Kernel, host: Any) -> None:
    for sample in ConvWeightGrad.samples(np.random.default_rng(1)):
        x, dy = sample.inputs
        assert x is not None
        assert dy is not None
        found = run(host, kernel, sample.op, x, dy)  # type: ignore[arg-type]  # its own samples
        assert not isinstance(found, str), f"{sample.note}: {found}"
        agree(found, gradient(sample.op, x, dy), sample.note, 1e-2 if x.dtype == np.float16 else 2e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_direct_takes_other_types(dtype: str, host: Any) -> None:
    rng = np.random.default_rng(2)
    x, dy = (rng.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in ((2, 3, 6, 5), (2, 4, 6, 5)))
    op = ConvWeightGrad(kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    found = run(host, DIRECT[0], op, x, dy)
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-12}[dtype]  # one rounding of the result
    agree(np.asarray(found, np.float64), gradient(op, x, dy), tolerance=tolerance)


CASES: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = {
    "3x3": ({"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, (2, 12, 7, 6), (2, 20, 7, 6)),
    "more maps and channels than a tile": ({"kernel_shape": (1, 1)}, (3, 132, 5, 4), (3, 140, 5, 4)),
    "strided": ({"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}, (3, 8, 9, 8), (3, 36, 5, 4)),
    "1x1, strided": ({"kernel_shape": (1, 1), "strides": (2, 3)}, (2, 8, 7, 7), (2, 4, 4, 3)),
    "uneven padding": ({"kernel_shape": (3, 2), "strides": (1, 2), "pads": (0, 2, 1, 1)}, (2, 4, 6, 7), (2, 8, 5, 5)),
    "dilated": ({"kernel_shape": (3, 3), "dilations": (2, 3), "pads": (2, 3, 2, 3)}, (1, 8, 8, 9), (1, 12, 8, 9)),
    "groups": ({"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "group": 3}, (2, 24, 6, 6), (2, 12, 6, 6)),
    "one pixel": ({"kernel_shape": (1, 1)}, (37, 12, 1, 1), (37, 8, 1, 1)),
    "one column": ({"kernel_shape": (2, 1)}, (5, 4, 4, 1), (5, 8, 3, 1)),
    "one axis": ({"kernel_shape": (4,), "pads": (2, 1), "strides": (2,)}, (3, 8, 40), (3, 16, 20)),
    "picture": ({"kernel_shape": (7, 7), "strides": (2, 2), "pads": (3, 3, 3, 3)}, (2, 3, 15, 13), (2, 64, 8, 7)),
    "one channel": ({"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, (4, 1, 9, 9), (4, 16, 9, 9)),
    "odd channels": ({"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, (2, 37, 5, 6), (2, 68, 5, 6)),
    "odd channels, groups": ({"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "group": 2}, (2, 6, 5, 6), (2, 8, 5, 6)),
    "odd maps": ({"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, (2, 8, 5, 6), (2, 35, 5, 6)),
    "odd everything": ({"kernel_shape": (3, 1), "pads": (1, 0, 1, 0), "group": 3}, (2, 9, 5, 7), (2, 15, 5, 7)),
}


def choices() -> Iterator[Any]:
    for kernel in TILED:
        for setting in kernel.settings:
            name = f"{kernel.op.__name__}-{kernel.variant}-{setting['tile']}-{setting['blocks']}"
            if setting["blocks"] in (1, 8) and (kernel.op is ChannelsLast or setting["tile"] in ("64x64", "32x64")):
                yield pytest.param(kernel, setting, id=name)


@pytest.mark.parametrize(("kernel", "setting"), [*choices()])
def test_tiles(kernel: Kernel, setting: dict[str, Any], host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tile over shapes that no tile divides, whole and in splits."""
    monkeypatch.setattr(tiles, "_LEAST_STAGES", 1)  # so that few pixels are cut, too
    rng, compared = np.random.default_rng(3), 0
    for note, (fields, of_x, of_dy) in CASES.items():
        op = ConvWeightGrad(**fields)
        x, dy = (rng.standard_normal(shape).astype(np.float32) for shape in (of_x, of_dy))
        found = run(host, kernel, op, x, dy, **setting)
        if not isinstance(found, str):
            agree(found, gradient(op, x, dy), note)
            compared += 1
    assert compared >= 2, "too few cases reach the kernel"


def test_each_case_has_one_tiled_kernel() -> None:
    kernels = [kernel for kernel in TILED if kernel.op is ConvWeightGrad]
    for note, (fields, *shapes) in CASES.items():
        types = [TensorType("float32", shape) for shape in shapes]
        taken = [k.variant for k in kernels if k.reason_against(ConvWeightGrad(**fields), *types) is None]
        assert len(taken) == 1, f"{note}: {taken}"


REFUSALS: dict[str, tuple[str, dict[str, Any], tuple[int, ...] | None, tuple[int, ...] | None, str]] = {
    "symbolic": ("direct", {"kernel_shape": (1, 1)}, None, (1, 1, 1, 1), "known sizes"),
    "three axes": ("tiled", {"kernel_shape": (1, 1, 1)}, (1, 4, 2, 2, 2), (1, 4, 2, 2, 2), "two spatial axes"),
    "empty": ("tiled", {"kernel_shape": (1, 1)}, (0, 4, 2, 2), (0, 4, 2, 2), "at least 1"),
    "odd maps": ("tiled", {"kernel_shape": (1, 1)}, (1, 4, 2, 2), (1, 3, 2, 2), "in fours"),
    "maps in fours": ("tiled-any", {"kernel_shape": (1, 1)}, (1, 3, 2, 2), (1, 4, 2, 2), "not in fours"),
    "a far reach": (
        "tiled",
        {"kernel_shape": (2, 1), "dilations": (20_000, 1)},
        (1, 4, 20_001, 1),
        (1, 4, 1, 1),
        "reach over at most",
    ),
    "large": ("tiled", {"kernel_shape": (1, 1)}, (1 << 15, 4, 128, 128), (1 << 15, 4, 128, 128), "2**31"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_reasons(case: str) -> None:
    variant, fields, x, dy, wanted = REFUSALS[case]
    kernel = next(k for k in convolution_grad.KERNELS if k.variant == variant and k.op is ConvWeightGrad)
    reason = kernel.reason_against(ConvWeightGrad(**fields), *(TensorType("float32", shape) for shape in (x, dy)))
    assert wanted in str(reason)


def test_splits_fill_the_multiprocessors() -> None:
    op, types = (
        ConvWeightGrad(kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
        [
            TensorType("float32", (64, 16, 14, 14)),
            TensorType("float32", (64, 32, 14, 14)),
        ],
    )
    problem = convolution_grad.gradient_of(op, *types)
    tile = tiles.ALIGNED["32x64"]
    found = [tiles.splits_of(problem, tile, blocks) for blocks in tiles.BLOCKS]
    assert found == [44, 88, 176, 196]  # three tiles for 132 multiprocessors; then four stages a split
