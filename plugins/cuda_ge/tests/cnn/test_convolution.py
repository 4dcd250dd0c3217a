"""Kernels of convolutions, run on an emulated device, against the reference in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, Sample, TensorType, numpy_dtype
from aicore.kernels import Kernel
from aicore.ops.activation import LeakyRelu, Relu
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct
from aicore.ops.layout import ChannelsLast
from aicore_cuda_ge.kernels import _conv_tiles as tiles
from aicore_cuda_ge.kernels import convolution
from aicore_cuda_ge.kernels._conv_problem import problem_of

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]

DIRECT = [kernel for kernel in convolution.KERNELS if kernel.variant == "direct"]
FAST = [kernel for kernel in convolution.KERNELS if kernel.variant in ("implicit", "unaligned", "depthwise")]


def identity(kernel: Kernel) -> str:
    return f"{kernel.op.__name__}-{kernel.name}"


def samples(kernel: Kernel) -> Iterator[Sample]:
    for sample in kernel.op.samples(np.random.default_rng(3)):
        if kernel.wraps is None or type(sample.op.inner) is kernel.wraps:  # type: ignore[attr-defined]
            yield sample


def agree(got: Any, wanted: Any, note: str = "") -> None:
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5, err_msg=note)


@pytest.mark.parametrize("kernel", DIRECT + FAST, ids=identity)
def test_samples(kernel: Kernel, run_kernel: Run, reference: Run) -> None:
    compared = 0
    for sample in samples(kernel):
        got = run_kernel(kernel, sample.op, sample.inputs)
        if not isinstance(got, str):
            agree(got[0], reference(sample.op, sample.inputs)[0], sample.note)
            compared += 1
    assert compared >= 1, "no sample reaches the kernel"


@pytest.mark.parametrize("kernel", DIRECT, ids=identity)
def test_direct_takes_every_sample(kernel: Kernel, run_kernel: Run) -> None:
    refused = [
        sample.note for sample in samples(kernel) if isinstance(run_kernel(kernel, sample.op, sample.inputs), str)
    ]
    assert not refused


def image(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[Conv, tuple[int, ...], tuple[int, ...]]] = {
    "1x1": (Conv(), (1, 7, 7, 68), (72, 68, 1, 1)),
    "1x1, strided": (Conv(strides=(2, 2)), (2, 9, 8, 36), (20, 36, 1, 1)),
    "3x3": (Conv(pads=(1, 1, 1, 1)), (1, 9, 8, 36), (68, 36, 3, 3)),
    "3x3, strided, uneven padding": (Conv(strides=(2, 1), pads=(0, 2, 1, 1)), (2, 9, 7, 12), (10, 12, 3, 3)),
    "dilated": (Conv(pads=(2, 3, 2, 3), dilations=(2, 3)), (1, 8, 9, 8), (33, 8, 3, 3)),
    "groups": (Conv(group=3, pads=(1, 1, 1, 1)), (1, 6, 6, 24), (30, 8, 3, 3)),
    "one channel of a group short of four": (Conv(group=2, pads=(1, 1, 1, 1)), (1, 6, 6, 6), (14, 3, 3, 3)),
    "picture": (Conv(strides=(2, 2), pads=(3, 3, 3, 3)), (1, 15, 13, 3), (64, 3, 7, 7)),
    "odd channels": (Conv(pads=(1, 1, 1, 1)), (1, 9, 8, 37), (66, 37, 3, 3)),
    "one channel": (Conv(pads=(1, 2, 1, 2), strides=(1, 2)), (2, 7, 9, 1), (6, 1, 3, 5)),
    "many taps": (Conv(pads=(7, 7, 7, 7)), (1, 5, 6, 4), (8, 4, 15, 15)),
    "one pixel": (Conv(), (3, 1, 1, 100), (37, 100, 1, 1)),
    "many rows": (Conv(pads=(1, 0, 1, 0)), (3, 13, 11, 4), (5, 4, 3, 1)),
}


def choices() -> Iterator[Any]:
    for variant, table in (("implicit", tiles.ALIGNED), ("unaligned", tiles.UNALIGNED)):
        for tile in table:
            for split in (1, 2, 3, 8):
                yield pytest.param(variant, tile, split, id=f"{variant}-{tile}-{split}")


@pytest.mark.parametrize(("variant", "tile", "split"), [*choices()])
def test_tiles(variant: str, tile: str, split: int, run_kernel: Run, reference: Run) -> None:
    """Every tile and split over shapes that no tile divides; with bias, residual and activation."""
    kernel = next(k for k in FAST if k.variant == variant and k.wraps is ConvAddAct)
    rng = np.random.default_rng(5)
    compared = 0
    for note, (conv, x_shape, w_shape) in CASES.items():
        x, w, b = image(rng, *x_shape), image(rng, *w_shape), image(rng, w_shape[0])
        (plain,) = reference(ChannelsLast(conv), (x, w))
        residual = image(rng, *plain.shape)
        op = ChannelsLast(ConvAddAct(conv, LeakyRelu(alpha=0.3)))
        got = run_kernel(kernel, op, (x, w, residual, b), tile=tile, split=split)
        if not isinstance(got, str):
            agree(got[0], reference(op, (x, w, residual, b))[0], note)
            compared += 1
    assert compared >= 4, "too few cases reach the kernel"


@pytest.mark.parametrize("split", [1, 4, 8])
@pytest.mark.parametrize("tile", ["112x128", "128x128", "56x64x4"])
def test_strided_pixels_in_whole_tiles(tile: str, split: int, run_kernel: Run, reference: Run) -> None:
    """The 1x1 convolution with stride 2 between two stages of a ResNet: no tile has a rest, the last pixel counts."""
    kernel = next(k for k in FAST if k.variant == "implicit" and k.wraps is Conv)
    rng = np.random.default_rng(9)
    x, w = image(rng, 16, 14, 14, 128), image(rng, 256, 128, 1, 1)
    op = ChannelsLast(Conv(strides=(2, 2)))
    (got,) = run_kernel(kernel, op, (x, w), tile=tile, split=split)
    agree(got, reference(op, (x, w))[0])


DEPTHWISE: dict[str, tuple[Conv, tuple[int, ...], tuple[int, ...]]] = {
    f"{width} wide, stride {stride}, {channels} channels, {maps} maps": (
        Conv(group=channels, strides=(1, stride), pads=(1, 2, 0, 1)),
        (2, 6, 11, channels),
        (channels * maps, 1, 3, width),
    )
    for width in (2, 3, 5)
    for stride in (1, 2, 3)
    for channels, maps in ((8, 1), (3, 1), (3, 2))
}
DEPTHWISE["dilated"] = (Conv(group=4, dilations=(2, 2)), (1, 9, 9, 4), (4, 1, 3, 3))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("note", DEPTHWISE)
def test_depthwise(note: str, dtype: str, run_kernel: Run, reference: Run) -> None:
    conv, x_shape, w_shape = DEPTHWISE[note]
    rng = np.random.default_rng(6)
    x, w, b = (image(rng, *shape).astype(numpy_dtype(dtype)) for shape in (x_shape, w_shape, w_shape[:1]))
    kernel = next(k for k in FAST if k.variant == "depthwise" and k.wraps is ConvAct)
    op = ChannelsLast(ConvAct(conv, Relu()))
    (got,) = run_kernel(kernel, op, (x, w, b))
    (wanted,) = reference(op, tuple(a.astype(np.float64) for a in (x, w, b)))
    unit = {"float32": 1e-5, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2 * unit, atol=2e-5)


@pytest.mark.parametrize("variant", ["implicit", "unaligned", "depthwise"])
def test_constant_weights_are_packed_as_others(
    variant: str, host_kernels: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python packs is what the packing kernel makes."""
    conv = Conv(group=6) if variant == "depthwise" else Conv(group=2)
    channels = {"implicit": 4, "unaligned": 3, "depthwise": 1}[variant]
    x = image(np.random.default_rng(7), 1, 5, 5, channels * conv.group)
    w = image(np.random.default_rng(8), 6, channels, 3, 2)
    kernel = next(k for k in FAST if k.variant == variant and k.wraps is Conv)
    seen: list[Array] = []

    def keep(w: Any, pack: Callable[..., Array]) -> Array:
        seen.append(pack(np, w))
        return seen[-1]

    monkeypatch.setattr(convolution, "on_device", keep)
    op = ChannelsLast(conv)
    types = [TensorType("float32", a.shape) for a in (x, w)]
    (constant,) = kernel.bind(op, types, [None, w], **kernel.settings[0])  # type: ignore[misc]
    pack, _ = kernel.bind(op, types, [None, None], **kernel.settings[0])  # type: ignore[misc]
    made = np.full(seen[0].shape, np.nan, np.float32)
    pointers = (ctypes.c_void_p * 4)(None, w.ctypes.data, None, made.ctypes.data)
    launch = host_kernels.pack_rows if variant == "depthwise" else host_kernels.conv_pack
    assert launch(pointers, pack.params) == 0
    np.testing.assert_array_equal(made, seen[0])
    assert len(constant.extra) == 1


def test_tables_of_tiles_agree(host_kernels: ctypes.CDLL) -> None:
    """Python's and those that are compiled; each fits what a block of compute capability 7.5 may have."""
    found = {}
    for name in ("sliced", "large", "unaligned"):
        room = (ctypes.c_int * 100)()
        count = getattr(host_kernels, f"tiles_of_{name}")(room)
        for i in range(count):
            *sizes, shared = room[5 * i : 5 * i + 5]
            found[f"conv_implicit_{name}", i] = tuple(sizes)
            assert shared <= 64 << 10
    wanted = {
        (t.kernel, t.index): (t.rows, t.columns, t.depth, t.threads)
        for t in (*tiles.ALIGNED.values(), *tiles.UNALIGNED.values())
    }
    assert found == wanted
    assert all(tiles.DEEPEST % t.depth == 0 for t in (*tiles.ALIGNED.values(), *tiles.UNALIGNED.values()))


def typed(*shapes: tuple[int, ...], dtype: str = "float32") -> list[TensorType]:
    return [TensorType(dtype, shape) for shape in shapes]


REFUSALS: dict[str, tuple[str, type[Op], Op, list[TensorType], str]] = {
    "symbolic": ("direct", Conv, Conv(), [TensorType("float32", None), *typed((1, 1, 1, 1))], "known sizes"),
    "four axes": ("direct", Conv, Conv(), typed((1, 1, 2, 2, 2, 2), (1, 1, 1, 1, 1, 1)), "at most 3 spatial axes"),
    "float64 activation": (
        "direct",
        ConvAct,
        ConvAct(Conv(), Relu()),
        typed((1, 1, 2, 2), (1, 1, 1, 1), dtype="float64"),
        "no activation to float64",
    ),
    "large residual": (
        "direct",
        ConvAdd,
        ConvAdd(Conv()),
        typed((1, 1, 2, 2), (1, 1, 1, 1), (2, 1, 2, 2)),
        "adds no residual",
    ),
    "three axes": (
        "implicit",
        Conv,
        ChannelsLast(Conv(), 5),
        typed((1, 2, 2, 2, 4), (4, 4, 1, 1, 1)),
        "two spatial axes",
    ),
    "broadcast residual": (
        "implicit",
        ConvAdd,
        ChannelsLast(ConvAdd(Conv())),
        typed((1, 2, 2, 4), (4, 4, 1, 1), (1, 1, 1, 4)),
        "of the output's shape",
    ),
    "large image": ("implicit", Conv, ChannelsLast(Conv()), typed((1, 2**15, 2**14, 4), (4, 4, 1, 1)), "2**31"),
    "no channel": ("implicit", Conv, ChannelsLast(Conv()), typed((1, 2, 2, 0), (4, 0, 1, 1)), "at least one channel"),
    "three channels": ("implicit", Conv, ChannelsLast(Conv()), typed((1, 2, 2, 3), (4, 3, 1, 1)), "in fours"),
    "four channels": ("unaligned", Conv, ChannelsLast(Conv()), typed((1, 2, 2, 4), (4, 4, 1, 1)), "than fours"),
    "16 taps": ("implicit", Conv, ChannelsLast(Conv()), typed((1, 20, 20, 4), (4, 4, 16, 1)), "at most 15 taps"),
    "many tiles": (
        "unaligned",
        Conv,
        ChannelsLast(Conv(group=65536)),
        typed((1, 1, 1, 65536), (65536, 1, 1, 1)),
        "tiles of maps",
    ),
    "not depthwise": (
        "depthwise",
        Conv,
        ChannelsLast(Conv()),
        typed((1, 2, 2, 4), (4, 4, 1, 1)),
        "one channel a group",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    variant, inner, op, types, reason = REFUSALS[name]
    kernel = next(k for k in convolution.KERNELS if k.variant == variant and inner in (k.op, k.wraps))
    assert reason in (kernel.reason_against(op, *types) or "")


def test_more_work_takes_longer() -> None:
    """Of what the estimate must not get wrong: direct kernels come last, and splitting helps where tiles are few."""
    few = typed((1, 7, 7, 512), (512, 512, 3, 3))
    op = ChannelsLast(Conv(pads=(1, 1, 1, 1)).settled((7, 7), (3, 3), 2))
    implicit = next(k for k in FAST if k.variant == "implicit" and k.wraps is Conv)
    direct = next(k for k in DIRECT if k.wraps is Conv)
    assert implicit.estimate is not None
    assert direct.estimate is not None
    times = {tuple(s.values()): implicit.estimate(op, *few, **s) for s in implicit.settings}
    assert min(times, key=lambda key: times[key])[1] > 1
    assert min(times.values()) < direct.estimate(op, *few)
    assert problem_of(op, *few).products == 49 * 512 * 512 * 9


def test_transpose_has_direct_kernels_only() -> None:
    found = {k.variant for k in convolution.KERNELS if ConvTranspose in (k.op, k.wraps)}
    assert found == {"direct"}
