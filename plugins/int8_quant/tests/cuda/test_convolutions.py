"""Convolutions on the CPU by the sources of the CUDA kernels: the same bits as the CPU kernels, both layouts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, TensorType, Value
from aicore.kernels import Kernel
from aicore.ops.convolution import Conv
from aicore.ops.layout import ChannelsLast, images_of, knows_channels
from aicore.passes.place_channels_last import PlaceChannelsLast
from aicore.rewrite import Context
from aicore.runtime import type_of
from aicore_int8_quant.cuda import convolutions, fours, launch, products
from aicore_int8_quant.cuda.problem import operands_of
from aicore_int8_quant.ops.linear import Int8Conv, Int8MatMul
from plugins.int8_quant.tests.cuda import cases
from plugins.int8_quant.tests.cuda.cases import Case, exact, is_convolution, of_fours, requantised
from plugins.int8_quant.tests.cuda.cases import convolutions as random_convolutions
from plugins.int8_quant.tests.cuda.cases import products as random_products

ON_HOST = ("dp4a", "direct")
KERNELS = (*convolutions.KERNELS, *fours.KERNELS)


@pytest.fixture(scope="module")
def host(build: Any) -> Any:
    return build("int8_conv_dp4a", "int8_gemm_dp4a", "pack", "epilogue_kernels")


def last(case: Case) -> Case:
    """The same with channels last, and no addend that is not an image."""
    op, operands = case
    at = operands_of(op, [None if a is None else type_of(a) for a in operands])
    images, given = (at.x, at.addend), list(operands)
    added = None if at.addend < 0 else operands[at.addend]
    if added is not None and added.ndim < 4:
        for i in (at.addend, at.addend_scale, at.addend_point):
            if i >= 0:
                given[i] = None
    for i in images:
        array = given[i] if i >= 0 else None
        if array is not None:
            given[i] = np.ascontiguousarray(np.moveaxis(array, 1, -1))
    return ChannelsLast(op, 4), tuple(given)


def check(host: Any, variant: str, case: Case, **settings: Any) -> None:
    op, operands = case
    types = [None if a is None else type_of(a) for a in operands]
    wanted = exact(op.inner, tuple(back(op, operands))) if isinstance(op, ChannelsLast) else exact(op, operands)
    wanted = np.moveaxis(wanted, 1, -1) if isinstance(op, ChannelsLast) else wanted
    op = op.resolve(*(None if t is None else Value("x", t) for t in types))
    kernel = next(
        k
        for k in KERNELS
        if k.variant == variant and k.op is type(op) and k.wraps in (None, type(getattr(op, "inner", None)))
    )
    assert kernel.reason_against(op, *types) is None
    (found,) = host.run(kernel, op, operands, **settings)
    np.testing.assert_array_equal(found, wanted)


def back(op: ChannelsLast, operands: Any) -> Any:
    at = operands_of(op, [None if a is None else type_of(a) for a in operands])
    for i, array in enumerate(operands):
        yield np.moveaxis(array, -1, 1) if array is not None and i in (at.x, at.addend) else array


@pytest.mark.parametrize("variant", ON_HOST)
@pytest.mark.parametrize("seed", range(3))
def test_channels_first(variant: str, seed: int, host: Any) -> None:
    for case in random_convolutions(8, seed):
        settings = {"tile": "64x64x2" if seed else "16x64x4", "split": 1} if variant == "dp4a" else {}
        check(host, variant, case, **settings)


@pytest.mark.parametrize("variant", ON_HOST)
@pytest.mark.parametrize("seed", range(3, 6))
def test_channels_last(variant: str, seed: int, host: Any) -> None:
    for case in random_convolutions(8, seed):
        settings = {"tile": "64x128" if seed > 3 else "128x128", "split": 1} if variant == "dp4a" else {}
        check(host, variant, last(case), **settings)


@pytest.mark.parametrize("channels", [3, 20])
def test_padding_behind_an_image_alone(channels: int, host: Any) -> None:
    """Windows of one pixel begin at the image's first, but there are more of them than pixels."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        case = cases.convolution(rng, 2, channels, (5, 7), 6, 1, pads=(0, 0, 1, 2))
        check(host, "dp4a", last(case), tile="16x64x4", split=1)


@pytest.mark.parametrize("adds", ["int8", "uint8"])
def test_residuals_of_codes(adds: str, host: Any) -> None:
    rng = np.random.default_rng(len(adds))
    for to, y_scale, activation in cases.TARGETS:
        case = last(cases.usual(rng, adds, to, y_scale, activation, maps=36))
        check(host, "dp4a", case, tile="16x64x4", split=1)


def test_an_addend_that_is_no_image_is_left_out() -> None:
    """However it comes: float32, or codes with a scale and a zero point."""
    x, w, scale = np.zeros((1, 2, 3, 4), np.int8), np.zeros((5, 2, 1, 1), np.int8), np.array(1, np.float32)
    codes = np.zeros((5, 1, 1), np.int8), scale, np.array(3, np.int8)
    for addend in ((np.zeros((5, 1, 1), np.float32), None, None), codes):
        op, operands = last((Int8Conv(), (x, w, scale, None, None, None, *addend, scale, np.array(7, np.int8))))
        assert isinstance(op, ChannelsLast)
        assert len(operands) == 11
        assert operands[6:9] == (None, None, None)
        assert exact(op.inner, tuple(back(op, operands))).shape == (1, 5, 3, 4)


def test_what_is_an_image() -> None:
    """ChannelsLast moves x and the addend, not the weights."""
    op = Int8Conv()
    assert knows_channels(op)
    assert images_of(op) == (0, 6)
    assert not knows_channels(Int8MatMul())


def test_convolutions_go_channels_last_without_an_addend() -> None:
    """Operands that are left out are no reason against it."""
    op = Builder()
    first, w = op.input("x", "uint8", (1, 4, 8, 8)), op.constant(np.ones((4, 4, 3, 3), np.int8))
    scale, y_scale = op.constant(np.array(1, np.float32)), op.constant(np.array(1, np.float32))
    padded = Int8Conv(conv=Conv(pads=(1, 1, 1, 1)))
    x: Any = first
    for number in range(3):
        rest = (None, None, None, None, None, None, y_scale, op.constant(np.array(number, np.uint8)))
        x = op.apply(padded, x, w, scale, *rest)
    context = Context(supports=lambda op, *types: None if isinstance(op, ChannelsLast) else "channels first")
    placed = PlaceChannelsLast().apply(op.graph([first], {"y": x}), context)
    assert sum(isinstance(node.op, ChannelsLast) for node in placed.nodes) == 3


@pytest.mark.parametrize(
    ("x", "w", "conv", "reason"),
    [
        ((1, 2, 3, 4, 5), (2, 2, 1, 1, 1), Conv(), "one or two spatial axes"),
        ((1, 0, 4, 4), (2, 0, 1, 1), Conv(), "adds up 1 to"),
        (None, (2, 2, 1, 1), Conv(), "known sizes"),
    ],
    ids=["axes", "nothing", "open"],
)
def test_refusals(x: Any, w: Any, conv: Conv, reason: str) -> None:
    types = TensorType("int8", x), TensorType("int8", w), TensorType("float32", ())
    kernel = next(k for k in convolutions.KERNELS if k.op is Int8Conv)
    assert reason in str(kernel.reason_against(Int8Conv(conv=conv), *types))


@pytest.mark.parametrize("kernel", KERNELS + products.KERNELS, ids=lambda k: k.name)
def test_every_kernel_takes_some_case(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that run on a GPU, for any machine that has what the kernel needs."""
    for module in (convolutions, products):
        monkeypatch.setattr(module, "machine", lambda: replace(launch.Machine(), capability=90))
    assert any(takes(kernel, case if kernel.wraps is None else last(case)) for case in requantised_and_random(kernel))


def requantised_and_random(kernel: Kernel) -> Iterator[Case]:
    is_product = kernel.wraps is None and kernel.op in products.OPS
    for case in (*requantised(24, 2000), *random_convolutions(16, 2000), *of_fours(4), *random_products(16, 2000)):
        if is_convolution(case) != is_product:
            yield case


def takes(kernel: Kernel, case: Case) -> bool:
    op, operands = case
    types = [None if a is None else type_of(a) for a in operands]
    op = op.resolve(*(None if t is None else Value("x", t) for t in types))
    if kernel.op is not type(op) or kernel.wraps not in (None, type(getattr(op, "inner", None))):
        return False
    return kernel.reason_against(op, *types) is None


@pytest.mark.parametrize("variant", ON_HOST)
def test_cases_that_every_kernel_takes(variant: str, host: Any) -> None:
    settings = {"tile": "64x128", "split": 1} if variant == "dp4a" else {}
    for case in requantised(8, 9):
        if is_convolution(case):
            check(host, variant, last(case), **settings)


def test_wgmma_refuses_windows_that_overlap() -> None:
    types = TensorType("int8", (1, 4, 4, 32)), TensorType("int8", (2, 32, 3, 3)), TensorType("float32", ())
    kernel = next(k for k in convolutions.KERNELS if k.wraps is Int8Conv and k.variant == "wgmma")
    op = ChannelsLast(Int8Conv(), 4)
    found = kernel.reason_against(op, *types, *(None,) * 6, types[2], TensorType("int8", ()))
    assert "windows of one pixel" in str(found)
