"""Convolutions whose threads hold four neighbouring results, by their sources on the CPU: bits of the CPU kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType
from aicore.ops.activation import Clip, Relu
from aicore.ops.convolution import Conv
from aicore.ops.layout import ChannelsLast
from aicore.runtime import type_of
from aicore_int8_quant.cuda import fours
from aicore_int8_quant.cuda.problem import operands_of
from aicore_int8_quant.cuda.windows import convolution_of
from aicore_int8_quant.ops.linear import Int8Conv
from plugins.int8_quant.tests.cuda import cases
from plugins.int8_quant.tests.cuda.cases import Array, Case
from plugins.int8_quant.tests.cuda.test_convolutions import check, last

KINDS: dict[str, tuple[Callable[..., Iterator[Case]], dict[str, fours.Tile]]] = {
    "depthwise": (cases.depthwise, fours.DEPTHWISE),
    "grouped": (cases.grouped, fours.GROUPED),
    "few": (cases.few, fours.FEW),
}


@pytest.fixture(scope="module")
def host(build: Any) -> Any:
    return build("depthwise", "grouped", "few", "pack")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("variant", KINDS)
def test_random_cases(variant: str, seed: int, host: Any) -> None:
    made, choices = KINDS[variant]
    for number, case in enumerate(made(12, seed)):
        check(host, variant, last(case), tile=tuple(choices)[(number + seed) % len(choices)])


def codes_of(sums: Array, scale: float, y_scale: float, activation: Any, dtype: str) -> Case:
    """A depthwise convolution whose sums are given, by a bias for each channel on an image of zeros."""
    channels = len(sums)
    x, w = np.zeros((1, channels, 3, 8), np.int8), np.ones((channels, 1, 3, 3), np.int8)
    op = Int8Conv(activation, Conv(group=channels, pads=(1, 1, 1, 1)))
    y = np.array(y_scale, np.float32), np.array(5, dtype)
    return op, (x, w, np.array(scale, np.float32), np.array(0, np.int8), None, sums.astype(np.int32), *(None,) * 3, *y)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("activation", [None, Relu(), Clip(-1.5, 2.25), Clip(2.0, -1.0)], ids=str)
def test_sums_near_the_middle_of_two_codes(activation: Any, dtype: str, host: Any) -> None:
    """Off it by one, or by nothing, and far beyond all codes; by scales that are powers of two, and others."""
    rng = np.random.default_rng(len(str(activation)))
    for scale, y_scale in ((0.25, 0.5), (0.0013, 0.0371), (1e-4, 0.25), (3e-5, 1.0), (-2e-4, 0.1), (0.1, 0.9)):
        halves = (rng.integers(-150, 150, 56) + 0.5) * y_scale / scale
        sums = np.concatenate([np.rint(halves) + rng.integers(-1, 2, 56), [10**6, -(10**6), 4_100_000, -(10**4)]])
        check(host, "depthwise", last(codes_of(sums, scale, y_scale, activation, dtype)), tile="2x2")


@pytest.mark.parametrize(
    ("scale", "y_scale"),
    [(np.nan, 0.1), (np.inf, 0.1), (1e-3, 1e-30), (1e-3, 1e30), (1.0, 1e-6), (0.0, 0.1), (1e-44, 1e-44)],
)
def test_scales_that_need_every_rounding(scale: float, y_scale: float, host: Any) -> None:
    sums = np.array([*range(-30, 30), 2**31 - 1, -(2**31), 2**23, -(2**22)])
    check(host, "depthwise", last(codes_of(sums, scale, y_scale, Relu(), "int8")), tile="1x2")


def test_no_images(host: Any) -> None:
    for variant, channels, group in (("depthwise", 8, 8), ("grouped", 8, 2), ("few", 3, 1)):
        x, w = np.zeros((0, channels, 6, 8), np.int8), np.zeros((8, channels // group, 3, 3), np.int8)
        case = Int8Conv(conv=Conv(group=group)), (x, w, np.array(1, np.float32))
        check(host, variant, last(case), tile=next(iter(KINDS[variant][1])))


@pytest.mark.parametrize("variant", KINDS)
def test_words_of_weights_are_packed_as_by_the_kernel(variant: str, host: Any) -> None:
    """NumPy's packing, which is what constants get, against the kernel's."""
    for case in KINDS[variant][0](6, 7):
        op, operands = last(case)
        types = [None if a is None else type_of(a) for a in operands]
        at, made = operands_of(op, types), convolution_of(op, *types).word_weights
        packed, sums, row_sums = made.pack(np, operands[at.w], None)
        room = np.zeros(made.nbytes + made.sum_bytes, np.uint8)
        host.launch(made.launch(at.w, -1, len(operands), 0), [*operands, room])
        np.testing.assert_array_equal(room[: packed.size].view(np.int8), packed.reshape(-1))
        np.testing.assert_array_equal(room[made.nbytes : made.nbytes + sums.nbytes].view(np.int32), sums.reshape(-1))
        assert not row_sums


@pytest.mark.parametrize("variant", KINDS)
def test_estimates_grow_with_the_images_and_differ_among_tiles(variant: str) -> None:
    channels, group = {"depthwise": (32, 32), "grouped": (32, 8), "few": (3, 1)}[variant]
    kernel = next(k for k in fours.KERNELS if k.wraps is Int8Conv and k.variant == variant)
    assert kernel.estimate is not None
    told = []
    for images in (1, 8, 64):
        types = TensorType("int8", (images, 56, 56, channels)), TensorType("int8", (32, channels // group, 3, 3))
        op = ChannelsLast(Int8Conv(conv=Conv(group=group, pads=(1, 1, 1, 1))), 4)
        told.append([kernel.estimate(op, *types, TensorType("float32", ()), **given) for given in kernel.settings])
    assert all(0 < few < more < most < 1e-3 for few, more, most in zip(*told, strict=True))
    assert len(set(told[2])) == len(kernel.settings)


@pytest.mark.parametrize(
    ("variant", "x", "w", "point", "reason"),
    [
        ("depthwise", (1, 6, 6, 6), (6, 1, 3, 3), None, "in fours, here 6"),
        ("depthwise", (1, 6, 6, 2), (8, 1, 3, 3), None, "channels in fours"),
        ("depthwise", (1, 6, 6, 8), (24, 1, 3, 3), None, "1, 2 or fours of maps"),
        ("depthwise", (1, 6, 6, 8), (8, 1, 3, 3), TensorType("int8", ()), "without a zero point"),
        ("grouped", (1, 6, 6, 12), (8, 6, 3, 3), None, "of a group in fours"),
        ("grouped", (1, 6, 6, 8), (4, 4, 3, 3), None, "of a group in fours"),
        ("few", (1, 6, 6, 6), (8, 3, 3, 3), None, "one group"),
        ("few", (1, 6, 6, 4), (8, 4, 3, 3), None, "not in fours"),
        ("few", (1, 6, 6, 9), (8, 9, 3, 3), None, "at most 6 words"),
        ("few", (1, 5, 5, 3), (8, 3, 3, 3), None, "whole words"),
        ("few", (1, 0, 4, 3), (8, 3, 1, 1), None, "at least one pixel"),
    ],
)
def test_refusals(variant: str, x: Any, w: Any, point: Any, reason: str) -> None:
    types = TensorType("int8", x), TensorType("int8", w), TensorType("float32", ()), None, point
    kernel = next(k for k in fours.KERNELS if k.wraps is Int8Conv and k.variant == variant)
    assert reason in str(kernel.reason_against(ChannelsLast(Int8Conv(conv=Conv(group=x[-1] // w[1])), 4), *types))


@pytest.mark.parametrize("variant", KINDS)
def test_no_maps_are_no_fault(variant: str) -> None:
    channels, group = {"depthwise": (8, 8), "grouped": (8, 2), "few": (3, 1)}[variant]
    x, w = TensorType("int8", (1, 6, 6, channels)), TensorType("int8", (0, channels // group, 3, 3))
    types = [x, w, TensorType("float32", ())]
    kernel = next(k for k in fours.KERNELS if k.wraps is Int8Conv and k.variant == variant)
    op = ChannelsLast(Int8Conv(conv=Conv(group=group)), 4)
    assert kernel.reason_against(op, *types) is None
    assert kernel.bind is not None
    assert kernel.bind(op, types, [None] * len(types), **kernel.settings[0]) == ()


@pytest.mark.parametrize("variant", KINDS)
def test_rows_of_pixels_that_end_far_in_the_padding(variant: str) -> None:
    """The last of three windows begins 16 bytes of a pixel times 2 * stride behind the first: below 2**31, or not."""
    channels, group = {"depthwise": (16, 16), "grouped": (16, 1), "few": (3, 1)}[variant]
    types = TensorType("int8", (1, 1, 4, channels)), TensorType("int8", (16, channels // group, 1, 1))
    kernel = next(k for k in fours.KERNELS if k.wraps is Int8Conv and k.variant == variant)

    def reason(stride: int) -> str:
        conv = Conv(group=group, strides=(1, stride), pads=(0, 0, 0, 2 * stride))
        op = ChannelsLast(Int8Conv(conv=conv), 4)
        return str(kernel.reason_against(op, *types, TensorType("float32", ())))

    bytes_of_pixel = 16 * group
    assert reason((2**30 - 1) // bytes_of_pixel) == "None"
    assert "fewer than 2**31 elements" in reason(2**30 // bytes_of_pixel)
