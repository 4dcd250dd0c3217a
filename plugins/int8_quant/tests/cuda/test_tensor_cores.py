"""Kernels on tensor cores, by mma.sync and by wgmma, from their sources: each tile, the bits of the CPU kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.ir import Value
from aicore.ops.activation import Relu
from aicore.ops.convolution import Conv
from aicore.ops.layout import ChannelsLast
from aicore.runtime import type_of
from aicore_int8_quant.cuda import convolutions, products, tiles
from aicore_int8_quant.ops.linear import Int8Conv, Int8MatMul
from plugins.int8_quant.tests.cuda import cases
from plugins.int8_quant.tests.cuda.cases import Case, exact
from plugins.int8_quant.tests.cuda.test_convolutions import back, last, takes


@pytest.fixture(scope="module")
def host(build: Any) -> Any:
    tensor = [f"int8_{kind}_{name}" for kind in ("conv", "gemm") for name in ("mma", "warpgroup")]
    return build(*tensor, "int8_mma_short", "pack", "epilogue_kernels")


def check(host: Any, case: Case, variant: str, tile: str) -> bool:
    """Whether there is such a kernel for the case; then its bits must be right."""
    op, operands = case
    kernels = (*products.KERNELS, *convolutions.KERNELS)
    kernel = next((k for k in kernels if k.variant == variant and takes(k, case)), None)
    if kernel is None:
        return False
    types = [None if a is None else type_of(a) for a in operands]
    op = op.resolve(*(None if t is None else Value("x", t) for t in types))
    is_last = isinstance(op, ChannelsLast)
    wanted = np.moveaxis(exact(op.inner, tuple(back(op, operands))), 1, -1) if is_last else exact(op, operands)
    (found,) = host.run(kernel, op, operands, tile=tile, split=1)
    np.testing.assert_array_equal(found, wanted)
    return True


EACH = [*(("mma", tile) for tile in tiles.MMA), *(("warpgroup", tile) for tile in tiles.WARPGROUP)]


@pytest.mark.parametrize(("variant", "tile"), EACH)
def test_random_cases(variant: str, tile: str, host: Any) -> None:
    """Products, and convolutions in both layouts."""
    taken = 0
    for number, case in enumerate((*cases.products(3, 11, 90), *cases.convolutions(4, 11), *cases.requantised(3, 11))):
        taken += check(host, last(case) if cases.is_convolution(case) and number % 2 else case, variant, tile)
    assert taken > 4


@pytest.mark.parametrize("adds", ["", "int8", "uint8"])
@pytest.mark.parametrize(("variant", "tile"), [one for one in EACH if "256" not in one[1]])
def test_codes_straight_from_registers(adds: str, variant: str, tile: str, host: Any) -> None:
    rng = np.random.default_rng([len(adds), len(tile)])
    for to, y_scale, activation in cases.TARGETS:
        assert check(host, last(cases.usual(rng, adds, to, y_scale, activation)), variant, tile)


@pytest.mark.parametrize(("variant", "tile"), [one for one in EACH if one[1] != "64x64"])
def test_a_product_of_several_tiles(variant: str, tile: str, host: Any) -> None:
    """Blocks go from tile to tile, of many stages, and of one alone."""
    rng = np.random.default_rng(1)
    for rows, terms in ((150, 1040), (600, 48)):
        x, w = cases.codes(rng, (rows, terms), "uint8"), cases.codes(rng, (terms, 144), "int8")
        addend = cases.codes(rng, (rows, 144), "int8"), np.array(0.3, np.float32), np.array(9, np.int8)
        scale = (rng.uniform(0.5, 2, 144) / (200 * terms**0.5)).astype(np.float32)
        y = np.array(0.37, np.float32), np.array(-128, np.int8)
        case = Int8MatMul(Relu()), (x, w, scale, np.array(130, np.uint8), None, None, *addend, *y)
        assert check(host, case, variant, tile)


@pytest.mark.parametrize("tile", ["64x64s", "128x64s"])
def test_groups_of_images_from_tile_to_tile(tile: str, host: Any) -> None:
    rng = np.random.default_rng(2)
    x, w = cases.codes(rng, (2, 32, 17, 16), "int8"), cases.codes(rng, (160, 16, 3, 3), "int8")
    y = np.array(0.1, np.float32), np.array(3, np.uint8)
    op = Int8Conv(Relu(), Conv(group=2, pads=(1, 1, 1, 1)))
    case = op, (x, w, np.array(1e-4, np.float32), np.array(5, np.int8), *(None,) * 5, *y)
    assert check(host, last(case), "mma", tile)
