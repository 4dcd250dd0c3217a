"""The choice among tiles and splits without tuning, against what every one of them took on an H200."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel
from aicore.ops.activation import Gelu, Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import GemmAct, MatMulAdd, MatMulAddAct
from aicore.ops.layout import ChannelsLast
from aicore.ops.matmul import Gemm, MatMul
from aicore_cuda_ge.kernels import _conv_tiles, _dnn_conv, _product_times, _tensor_tiles, convolution, products
from aicore_cuda_ge.kernels._machine import Machine

DATA = Path(__file__).parent / "data"
MEASURED: dict[str, Any] = json.loads((DATA / "products_h200.json").read_text("utf-8"))
CONVOLUTIONS: dict[str, dict[str, float]] = json.loads((DATA / "convolutions_h200.json").read_text("utf-8"))
"""Microseconds by plan: of those whose estimate was within 1.3 of the least, at the time, and of cuDNN for some."""
WORST, MEAN = 1.20, 1.05
"""Of the time of the choice and that of the best; over one problem, and the geometric mean."""
GEMM = GemmAct(Gemm(), Relu())
WORST_OF_CONVOLUTIONS, MEAN_OF_CONVOLUTIONS = 1.10, 1.02


@pytest.fixture(autouse=True)
def _h200(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_product_times, _tensor_tiles, _conv_tiles, _dnn_conv):
        monkeypatch.setattr(module, "machine", Machine)


def problem(case: str) -> tuple[Op, list[TensorType]]:
    """Such as `512^3`, `MatMulAdd 128x768x256` or `mlp 32x10x1024 relu`: rows x columns x inner."""
    if "^3" in case:
        size = int(case.split("^")[0])
        op: Op = Gemm(transA=1) if "transposed" in case else MatMul()
        return op, [TensorType("float32", (size, size))] * 2
    sizes = re.search(r"(\d+)x(\d+)x(\d+)", case)
    assert sizes is not None
    rows, columns, inner = map(int, sizes.groups())
    op = MatMulAdd() if case.startswith("MatMulAdd ") else MatMulAddAct(Gelu() if "Gelu" in case else Relu())
    return op, [TensorType("float32", shape) for shape in ((rows, inner), (inner, columns), (columns,))]


def kernel_of(op: Op, variant: str) -> Kernel:
    return next(k for k in products.KERNELS if k.op is type(op) and k.variant == variant)


def regret(variant: str, case: str) -> float:
    """The measured time of the setting with the least estimate, over the least measured time."""
    op, types = problem(case)
    kernel, measured = kernel_of(op, variant), MEASURED[variant][case]
    assert kernel.estimate is not None
    plans = {"/".join(map(str, settings.values())): settings for settings in kernel.settings}
    estimates = {plan: kernel.estimate(op, *types, **plans[plan]) for plan in measured if plan in plans}
    assert len(estimates) == len(measured), "a setting that was measured is gone"
    return float(measured[min(estimates, key=lambda plan: estimates[plan])] / min(measured.values()))


@pytest.mark.parametrize("variant", ["tiled", "tf32"])
def test_choices_without_tuning_are_close_to_the_best(variant: str) -> None:
    found = {case: regret(variant, case) for case in MEASURED[variant]}
    assert {case: ratio for case, ratio in found.items() if ratio > WORST} == {}
    assert np.exp(np.mean(np.log(list(found.values())))) <= MEAN


def conv_regret(case: str) -> float:
    """As `regret`, of a case such as `3x3/2 128->128 on 56x56 b32`; plans: variant/tile/split, or cudnn/algorithm."""
    found = re.fullmatch(r"(\d)x\d/(\d) (\d+)->(\d+) on (\d+)x\d+ b(\d+)", case)
    assert found is not None
    taps, stride, channels, maps, image, batch = map(int, found.groups())
    op = ChannelsLast(Conv(pads=(taps // 2,) * 4, strides=(stride,) * 2))
    types = [TensorType("float32", s) for s in ((batch, image, image, channels), (maps, channels, taps, taps))]
    kernels = {k.variant: k for k in convolution.KERNELS if k.wraps is Conv}

    def estimate(plan: str) -> float:
        variant, tile, *split = plan.split("/")
        if not split:
            return _dnn_conv.estimate(False, op, *types, algorithm=tile)
        return kernels[variant].estimate(op, *types, tile=tile, split=int(split[0]))  # type: ignore[misc]

    measured = CONVOLUTIONS[case]
    return measured[min(measured, key=estimate)] / min(measured.values())


@pytest.mark.parametrize("batch", [1, 32])
def test_choices_of_convolutions_are_close_to_the_best(batch: int) -> None:
    found = {case: conv_regret(case) for case in CONVOLUTIONS if case.endswith(f" b{batch}")}
    assert len(found) == 23
    assert {case: ratio for case, ratio in found.items() if ratio > WORST_OF_CONVOLUTIONS} == {}
    assert np.exp(np.mean(np.log(list(found.values())))) <= MEAN_OF_CONVOLUTIONS


def test_few_rows_choose_well_between_kernels() -> None:
    """One row and eight, by the kernels that are made for few, or by tiles."""
    found = {}
    for case, measured in MEASURED["few"].items():
        rows, columns, inner = map(int, case.split("x"))
        types = [TensorType("float32", shape) for shape in ((rows, inner), (inner, columns), (columns,))]
        estimates: dict[str, float] = {}
        for kernel in (k for k in products.KERNELS if k.op is GemmAct and k.variant in ("rows", "tiled")):
            for settings in kernel.settings:
                ((name, value),) = settings.items()
                estimates[f"{kernel.variant}[{name}={value}]"] = kernel.estimate(GEMM, *types, **settings)  # type: ignore[misc]
        found[case] = measured[min(measured, key=lambda plan: estimates[plan])] / min(measured.values())
    assert {case: ratio for case, ratio in found.items() if ratio > WORST} == {}
    assert np.exp(np.mean(np.log(list(found.values())))) <= MEAN


def test_large_products_turn_a_first() -> None:
    """Where the launch that turns it costs less than the tiles lose by turning it themselves; never what is turned."""
    for size, packed in ((512, False), (4096, True)):
        types = [TensorType("float32", (size, size))] * 2
        for op, pays in ((MatMul(), packed), (Gemm(transA=1), False)):
            tiled = kernel_of(op, "tiled")
            assert tiled.estimate is not None
            best = min(tiled.settings, key=lambda settings: tiled.estimate(op, *types, **settings))  # type: ignore[misc]
            assert str(best["plan"]).endswith("packed") == pays


def conv_seconds(plan: str, images: int, size: int, channels: int, maps: int, kernel: int, group: int = 1) -> float:
    """Of square images, channels last; plan: variant/tile/split, variant, or cudnn/algorithm."""
    op = ChannelsLast(Conv(pads=(kernel // 2,) * 4, group=group))
    types = [
        TensorType("float32", shape)
        for shape in ((images, size, size, channels), (maps, channels // group, kernel, kernel))
    ]
    variant, *rest = plan.split("/")
    if variant == "cudnn":
        return _dnn_conv.estimate(False, op, *types, algorithm=rest[0])
    kernels = {k.variant: k for k in convolution.KERNELS if k.wraps is Conv}
    settings: dict[str, Any] = {"tile": rest[0], "split": int(rest[1])} if rest else {}
    return float(kernels[variant].estimate(op, *types, **settings))  # type: ignore[misc]


def test_larger_windows_of_one_channel_take_longer() -> None:
    """A thread reads 13 elements for each of 5 rows of taps, or 9 for each of 3; small images wait for little else."""
    small, large = (conv_seconds("depthwise", 1, 28, 120, 120, kernel, group=120) for kernel in (3, 5))
    assert 1.5 * small < large < 65 / 27 * small


def test_single_channels_are_read_more_slowly_than_fours() -> None:
    """Of as many results: two maps for each channel, one by one, or four channels at a time."""
    singly = conv_seconds("depthwise", 32, 28, 32, 64, 3, group=32)
    assert singly > conv_seconds("depthwise", 32, 28, 64, 64, 3, group=64)


@pytest.mark.parametrize(("channels", "group"), [(512, 32), (1024, 32)])
def test_many_groups_are_left_to_tiles_of_our_own(channels: int, group: int) -> None:
    """cuDNN computes 64 maps of a group at a time, of which there are 16 and 32, and ours 32."""
    library = conv_seconds("cudnn/precomputed", 32, 14, channels, channels, 3, group)
    assert conv_seconds("implicit/56x32x4/1", 32, 14, channels, channels, 3, group) < library
