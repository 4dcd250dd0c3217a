"""Copies of files of plugins/cuda_ge are equal to them; tables in Python fit the sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aicore_int8_quant.cuda import fours, tiles

PLUGIN = Path(__file__).parents[2]
CUDA_GE = PLUGIN.parent / "cuda_ge"


@pytest.mark.parametrize(
    ("copy", "original"),
    [
        ("csrc/aicore_cuda_launch.h", "graph_executor/include/aicore_cuda_launch.h"),
        ("cmake/find_nvcc.cmake", "cmake/find_nvcc.cmake"),
        ("cmake/architectures.cmake", "cmake/architectures.cmake"),
    ],
)
def test_copies(copy: str, original: str) -> None:
    assert (PLUGIN / copy).read_bytes() == (CUDA_GE / original).read_bytes()


@pytest.mark.parametrize(
    ("source", "choices", "kind"),
    [
        ("int8_gemm_dp4a", tiles.DP4A, "Dp4a"),
        ("int8_conv_dp4a", tiles.DP4A_IMAGES, "Dp4a"),
        ("int8_gemm_mma", tiles.MMA, "Mma"),
        ("int8_conv_mma", tiles.MMA, "Mma"),
        ("int8_gemm_warpgroup", tiles.WARPGROUP, "Warpgroup"),
        ("int8_conv_warpgroup", tiles.WARPGROUP, "Warpgroup"),
    ],
)
def test_tiles_are_listed_at_their_places(source: str, choices: dict[str, tiles.Tile], kind: str) -> None:
    text = (PLUGIN / "csrc" / f"{source}.cu").read_text()
    listed = re.findall(rf"nullptr|launch_\w+<{kind}(\w+), \w+>", text)
    if kind == "Mma":  # those with short stages come behind, each for products and for images
        short = (PLUGIN / "csrc" / "int8_mma_short.cu").read_text()
        listed += dict.fromkeys(re.findall(r"launch_mma<Mma(\w+), \w+>", short))
    assert {name: listed.index(name) for name in choices} == {name: tile.index for name, tile in choices.items()}


@pytest.mark.parametrize(
    ("source", "choices", "listed"),
    [
        ("depthwise", fours.DEPTHWISE, r"slide<kSide, kStride, (?P<down>\d), (?P<across>\d), kOwn, kUnsigned>"),
        ("grouped", fours.GROUPED, r"launch_one<kWords, kStride, (?P<across>\d), kUnsigned>"),
        ("few", fours.FEW, r"convolve_few<kWords, (?P<across>\d), (?P<words>\d), kUnsigned>"),
    ],
)
def test_tiles_of_threads_are_listed_in_order(source: str, choices: dict[str, fours.Tile], listed: str) -> None:
    text = (PLUGIN / "csrc" / f"{source}.cu").read_text()
    found = [{name: int(n) for name, n in match.groupdict().items()} for match in re.finditer(listed, text)]
    sizes = [{"down": 1, "words": 1, **one} for one in found]
    assert [fours.Tile(i, **one) for i, one in enumerate(sizes)] == list(choices.values())


def test_shared_memory_of_the_largest_blocks() -> None:
    """Sums of 128 x 256 with eight words more to a row, what 256 columns have, and the target, 32 bytes wide."""
    assert tiles.DP4A["128x256"].shared_bytes == 128 * 264 * 4 + 256 * 8 + 32
    assert tiles.MMA["128x128"].shared_bytes == 3 * 256 * 128 + 128 * 8 + 32
    assert tiles.MMA["128x64s"].shared_bytes == 3 * (192 * 64 + 128 * 80) + 2 * (64 * 8 + 32)
