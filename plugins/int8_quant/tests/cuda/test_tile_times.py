"""Estimates of tiles: what must count for something, and choices without tuning against what tiles took on an H200."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel
from aicore.ops.activation import Relu
from aicore.ops.convolution import Conv
from aicore.ops.layout import ChannelsLast
from aicore_int8_quant.cuda import convolutions, products, tile_times, tiles
from aicore_int8_quant.cuda.launch import Machine
from aicore_int8_quant.ops.linear import Int8Conv, Int8MatMul

MEASURED: dict[str, dict[str, float]] = json.loads(
    (Path(__file__).parent / "data" / "tiles_h200.json").read_text("utf-8")
)
"""Microseconds by plan, variant/tile/split; of each problem those that took at most twice the least."""
WORST, MEAN, ERROR = 1.35, 1.05, 0.11
"""Of the time of the choice and that of the best: over one problem, and the geometric mean. And of the mean logarithm
of estimate and time."""
TILED = ("dp4a", "mma", "warpgroup", "wgmma")
Types = list[TensorType | None]
Problem = tuple[Op, Types]


@pytest.fixture(autouse=True)
def _h200(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tile_times, products, convolutions):
        monkeypatch.setattr(module, "machine", Machine)


def fused(op: Op, x: tuple[int, ...], w: tuple[int, ...], maps: int, y: tuple[int, ...], end: str) -> Problem:
    """Operands as fusing leaves them; end: codes, added or real."""
    one, point = TensorType("float32", ()), TensorType("int8", ())
    added: Types = [TensorType("int8", y), one, point] if end == "added" else [None] * 3
    result: Types = [None, None] if end == "real" else [one, point]
    scale, bias = TensorType("float32", (maps,)), TensorType("int32", (maps,))
    return op, [TensorType("int8", x), TensorType("int8", w), scale, point, None, bias, *added, *result]


def product(rows: int, inner: int, columns: int, end: str = "codes") -> Problem:
    op = Int8MatMul(None if end == "real" else Relu())
    return fused(op, (rows, inner), (inner, columns), columns, (rows, columns), end)


def convolution(
    images: int,
    size: int,
    channels: int,
    maps: int,
    kernel: int = 1,
    stride: int = 1,
    group: int = 1,
    end: str = "codes",
) -> Problem:
    """Of square images, channels last."""
    conv = Conv(pads=(kernel // 2,) * 4, strides=(stride,) * 2, group=group)
    op = ChannelsLast(Int8Conv(None if end == "real" else Relu(), conv), 4)
    out = (size + 2 * (kernel // 2) - kernel) // stride + 1
    w = (maps, channels // group, kernel, kernel)
    return fused(op, (images, size, size, channels), w, maps, (images, out, out, maps), end)


def kernels(op: Op) -> Iterator[Kernel]:
    wraps = type(op.inner) if isinstance(op, ChannelsLast) else None
    for kernel in (*products.KERNELS, *convolutions.KERNELS):
        if kernel.op is type(op) and kernel.wraps is wraps and kernel.variant in TILED:
            yield kernel


def seconds(problem: Problem, plan: str) -> float:
    """plan: variant/tile/split."""
    op, types = problem
    variant, tile, split = plan.split("/")
    kernel = next(k for k in kernels(op) if k.variant == variant)
    assert kernel.estimate is not None
    return float(kernel.estimate(op, *types, tile=tile, split=int(split)))


def plans(problem: Problem) -> list[str]:
    op, types = problem
    return [
        "/".join([kernel.variant, *map(str, settings.values())])
        for kernel in kernels(op)
        if kernel.reason_against(op, *types) is None
        for settings in kernel.settings
    ]


@pytest.mark.parametrize(
    ("copied", "ready", "nbytes"),
    [
        (product(33, 77, 64), product(33, 80, 64), 33 * 80),
        (convolution(2, 28, 37, 64), convolution(2, 28, 48, 64), 2 * 28 * 28 * 48),
    ],
)
def test_a_copy_of_x_counts(copied: Problem, ready: Problem, nbytes: int) -> None:
    """The product behind the copy is that of x whose rows are filled up already."""
    copy = tile_times.copy_seconds(nbytes)
    assert copy > tiles.LAUNCH_SECONDS
    for plan in plans(copied):
        assert seconds(copied, plan) == pytest.approx(seconds(ready, plan) + copy)


def test_copies_take_longer_the_larger_they_are_and_none_nothing() -> None:
    assert tile_times.copy_seconds(0) == tile_times.copy_seconds(0, turned=True) == 0
    assert tile_times.copy_seconds(1 << 24) > tile_times.copy_seconds(1 << 20)
    assert tile_times.copy_seconds(1 << 20, turned=True) > tile_times.copy_seconds(1 << 20)


@pytest.mark.parametrize("plan", ["mma/64x64/1", "mma/128x64s/1", "warpgroup/128x64/1"])
def test_results_that_do_not_leave_in_chunks_take_longer(plan: str) -> None:
    """One tile across each time: 64 columns in chunks of 16, 60 in words, 61 one by one; real numbers are no codes."""
    chunks, words, bytes_, real = (
        seconds(product(2000, 256, columns, end), plan)
        for columns, end in ((64, "codes"), (60, "codes"), (61, "codes"), (64, "real"))
    )
    assert chunks < words < bytes_
    assert chunks < real


def test_one_turn_is_shorter_than_eight() -> None:
    """Each tile has a multiprocessor, whose threads finish 16 x 64 real results in one turn, 64 x 64 in eight."""
    problem = product(4096, 512, 64, "real")
    assert seconds(problem, "dp4a/16x64x4/1") < seconds(problem, "mma/64x64/1")


@pytest.mark.parametrize("plan", ["dp4a/64x64x2/1", "mma/64x64/1", "mma/64x64s/1", "warpgroup/128x64/1"])
def test_windows_take_longer_than_pixels(plan: str) -> None:
    """Of the same product: nine taps of 64 channels, or 576 channels."""
    assert seconds(convolution(1, 28, 64, 64, 3), plan) > seconds(convolution(1, 28, 576, 64), plan)


def test_a_residual_takes_longer() -> None:
    plain, added = convolution(8, 28, 128, 512), convolution(8, 28, 128, 512, end="added")
    for plan in plans(added):
        assert seconds(added, plan) > seconds(plain, plan)


@pytest.mark.parametrize("tile", ["dp4a/16x64x4", "mma/64x64", "mma/64x64s", "warpgroup/128x64"])
@pytest.mark.parametrize("split", [2, 4, 8])
def test_blocks_that_have_nothing_to_share_do_not_share(tile: str, split: int) -> None:
    """One stage of depth, and nothing to finish that takes long; the others only join."""
    problem = product(4096, 64, 64)
    assert seconds(problem, f"{tile}/{split}") > seconds(problem, f"{tile}/1")


def test_without_clusters_sums_pass_through_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = product(256, 4096, 256)
    with_clusters = seconds(problem, "mma/64x64/4")
    monkeypatch.setattr(tile_times, "machine", lambda: replace(Machine(), capability=80))
    assert seconds(problem, "mma/64x64/4") > with_clusters


@pytest.mark.parametrize("columns", [16, 64, 1000])
@pytest.mark.parametrize("end", ["codes", "added", "real"])
def test_larger_products_never_take_less(columns: int, end: str) -> None:
    for plan in plans(product(64, 64, columns, end)):
        by_rows = [seconds(product(rows, 256, columns, end), plan) for rows in (1, 16, 200, 3000, 40_000, 100_000)]
        by_depth = [seconds(product(500, inner, columns, end), plan) for inner in (16, 128, 1024, 4096, 16_384)]
        assert by_rows == sorted(by_rows)
        assert by_depth == sorted(by_depth)


def test_nothing_to_multiply_takes_a_launch_at_most() -> None:
    for problem in (product(0, 64, 64), product(64, 64, 0)):
        assert {seconds(problem, plan) for plan in plans(problem)} == {tiles.LAUNCH_SECONDS}


def problem_of(case: str) -> Problem:
    """Such as `4096x512x64 real`, rows x inner x columns, or `b32 28x28x96 to 96 3x3/1 group 3 codes`."""
    end = case.split()[-1]
    sizes = re.fullmatch(r"(\d+)x(\d+)x(\d+) \w+", case)
    if sizes is not None:
        rows, inner, columns = map(int, sizes.groups())
        return product(rows, inner, columns, end)
    found = re.fullmatch(r"b(\d+) (\d+)x\d+x(\d+) to (\d+) (\d)x\d/(\d) group (\d+) \w+", case)
    assert found is not None
    images, size, channels, maps, kernel, stride, group = map(int, found.groups())
    return convolution(images, size, channels, maps, kernel, stride, group, end)


def test_choices_without_tuning_are_close_to_the_best() -> None:
    assert len(MEASURED) > 150
    lost, errors = {}, []
    for case, measured in MEASURED.items():
        problem = problem_of(case)
        told: dict[str, Any] = {plan: seconds(problem, plan) for plan in measured}
        lost[case] = measured[min(told, key=told.__getitem__)] / min(measured.values())
        errors += [np.log(told[plan] * 1e6 / measured[plan]) for plan in measured]
    assert {case: ratio for case, ratio in lost.items() if ratio > WORST} == {}
    assert np.exp(np.mean(np.log(list(lost.values())))) <= MEAN
    assert np.mean(np.abs(errors)) <= ERROR
    assert abs(np.mean(errors)) <= ERROR / 3, "neither too hopeful nor too cautious"
