"""Random products and convolutions with everything that goes wrong easily, and what the CPU kernels make of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np

from aicore.ir import Op, Value
from aicore.kernels import KernelTable
from aicore.ops.activation import Clip, HardSwish, LeakyRelu, Relu
from aicore.ops.convolution import Conv
from aicore.ops.quantized_linear import ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_int8_quant.kernels import KERNELS as CPU_KERNELS
from aicore_int8_quant.ops.linear import Int8Conv, Int8MatMul

Array = np.ndarray[Any, Any]
Case = tuple[Op, tuple[Array | None, ...]]
ACTIVATIONS = (None, Relu(), Clip(-3.0, 40.0), HardSwish(), LeakyRelu(0.125))
_EVALUATE = ReferenceEvaluator(KernelTable([*all_kernels(), *CPU_KERNELS]))


def exact(op: Op, operands: tuple[Array | None, ...]) -> Array:
    """What this plugin's CPU kernel gives for its own ops, and the reference for standard ones."""
    types = [None if a is None else type_of(a) for a in operands]
    op = op.resolve(*(None if t is None else Value("x", t) for t in types))
    own = next((k for k in CPU_KERNELS if k.op is type(op)), None)
    with np.errstate(all="ignore"):
        if own is None:
            found: Array = _EVALUATE(op, *operands)[0]
            return found
        (result,) = [op.infer(*(None if t is None else Value("x", t) for t in types))]
        out = np.empty(result.static_shape, result.dtype)  # type: ignore[union-attr]
        assert own.workspace is not None
        room = np.empty(own.workspace(op, *types), np.uint8)
        own.function(op, *operands, out=out, workspace=room)
    return out


def codes(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """All codes, and often the extreme ones."""
    limits = np.iinfo(dtype)
    found = np.asarray(rng.integers(limits.min, limits.max, shape, endpoint=True))
    ends = rng.choice([limits.min, limits.max], shape)
    return np.asarray(np.where(rng.random(shape) < rng.choice([0.1, 1.0]), ends, found)).astype(dtype)


def _kind(rng: np.random.Generator) -> str:
    return str(rng.choice(["int8", "uint8"]))


def _fused(rng: np.random.Generator, channels: int, out: tuple[int, ...], by_channel: tuple[int, ...]) -> Any:
    """(bias, addend and its parameters, y_scale, y_zero_point) of an Int8Linear."""
    bias = rng.integers(-(2**31), 2**31, channels) if rng.random() < 0.1 else rng.integers(-9999, 9999, channels)
    addend: tuple[Array | None, ...] = (None, None, None)
    kind = rng.integers(4)
    shape = by_channel if rng.random() < 0.3 else out
    if kind == 1:
        addend = (rng.normal(size=shape).astype(np.float32), None, None)
    elif kind == 2:
        to = _kind(rng)
        addend = (codes(rng, shape, to), np.array(0.03, np.float32), codes(rng, (), to))
    y: tuple[Array | None, ...] = (None, None)
    if rng.random() < 0.8:
        y = (np.array(rng.choice([1.0, 0.37]), np.float32), codes(rng, (), _kind(rng)))
    return (bias.astype(np.int32) if rng.random() < 0.7 else None, *addend, *y)


def _scale(rng: np.random.Generator, terms: int, channels: int) -> Array:
    size = (channels,) if rng.random() < 0.7 else ()
    return np.asarray(rng.uniform(0.2, 2, size) / (40 * terms**0.5), np.float32)


def _points(rng: np.random.Generator, dtype: str, channels: int) -> Array | None:
    choice = rng.integers(3)
    return None if choice == 0 else codes(rng, () if choice == 1 else (channels,), dtype)


def _fitting(points: Array | None, shape: tuple[int, ...], dtype: str) -> Array:
    """Zero points of the shape of the scales, as QLinear ops want them."""
    if points is None:
        return np.zeros(shape, dtype)
    return np.array(np.broadcast_to(points if points.shape in ((), shape) else points[0], shape))


def product(rng: np.random.Generator, rows: int, terms: int, columns: int, batch: tuple[int, ...] = ()) -> Case:
    """Of one of the three ops."""
    left, right = _kind(rng), _kind(rng)
    shared = rng.random() < 0.5
    x, w = codes(rng, (*batch, rows, terms), left), codes(rng, (*(() if shared else batch), terms, columns), right)
    x_point = codes(rng, (), left) if rng.random() < 0.8 else None
    w_point = _points(rng, right, columns)
    kind = rng.integers(3)
    if kind == 0:
        return MatMulInteger(), (x, w, x_point, w_point)
    scale = _scale(rng, terms, columns)
    if kind == 1:
        w_points = _fitting(w_point, scale.shape, right)
        y = np.array(0.043, np.float32), codes(rng, (), _kind(rng))
        own = np.array(0.05, np.float32), np.zeros((), left) if x_point is None else x_point
        return QLinearMatMul(), (x, *own, w, scale, w_points, *y)
    op = Int8MatMul(ACTIVATIONS[rng.integers(len(ACTIVATIONS))])
    bias, addend, addend_scale, addend_point, *y_own = _fused(rng, columns, (*batch, rows, columns), (columns,))
    return op, (x, w, scale, x_point, w_point, bias, addend, addend_scale, addend_point, *y_own)


def convolution(
    rng: np.random.Generator, images: int, channels: int, size: tuple[int, int], maps: int, kernel: int, **given: Any
) -> Case:
    """channels, maps: of one group."""
    conv, groups = Conv(**given), given.get("group", 1)
    left, right = _kind(rng), _kind(rng)
    x = codes(rng, (images, groups * channels, *size), left)
    w = codes(rng, (groups * maps, channels, kernel, kernel), right)
    x_point = codes(rng, (), left) if rng.random() < 0.8 else None
    w_point = _points(rng, right, groups * maps)
    kind = rng.integers(3)
    if kind == 0:
        return ConvInteger(**given), (x, w, x_point, w_point)
    scale = _scale(rng, channels * kernel * kernel, groups * maps)
    if kind == 1:
        w_points = _fitting(w_point, scale.shape, right)
        own = np.array(0.05, np.float32), np.zeros((), left) if x_point is None else x_point
        bias = rng.integers(-9999, 9999, groups * maps).astype(np.int32)
        y = np.array(0.043, np.float32), codes(rng, (), _kind(rng))
        return QLinearConv(**given), (x, *own, w, scale, w_points, *y, bias)
    op = Int8Conv(ACTIVATIONS[rng.integers(len(ACTIVATIONS))], conv)
    (result,) = [op.infer(*(None if a is None else Value("x", type_of(a)) for a in (x, w, scale)))]
    shape = result.static_shape  # type: ignore[union-attr]
    by_channel = (groups * maps, *(1,) * (len(shape) - 2))
    bias, addend, addend_scale, addend_point, *y_own = _fused(rng, groups * maps, shape, by_channel)
    return op, (x, w, scale, x_point, w_point, bias, addend, addend_scale, addend_point, *y_own)


def products(count: int, seed: int = 0, largest: int = 150) -> Iterator[Case]:
    """Random ones with rests in every direction."""
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        rows, columns = (int(n) for n in rng.integers(1, largest, 2))
        terms = int(rng.choice([16, 64, 128, 208, *rng.integers(1, 300, 4)]))
        yield product(rng, rows, terms, columns, ((2,), (), (2, 3))[rng.integers(3)] if number % 4 == 0 else ())


def fours(count: int, seed: int = 0) -> Iterator[Case]:
    """Random ones whose columns are a multiple of four."""
    for number in range(count):
        rng = np.random.default_rng((seed, number, 4))
        rows, terms, columns = (int(n) for n in rng.integers(1, 50, 3))
        yield product(rng, rows, 2 * terms, 4 * columns)


def convolutions(count: int, seed: int = 0) -> Iterator[Case]:
    """Random ones: groups, dilation, strides, pads that differ on each side."""
    for number in range(count):
        rng = np.random.default_rng((seed, number, 1))
        group = int(rng.choice([1, 1, 2, 4]))
        channels = int(rng.choice([1, 3, 5, 16, 20, 32]))
        maps = int(rng.integers(1, 40)) if group == 1 else int(rng.integers(1, 9))
        kernel, dilation = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        pads = tuple(int(n) for n in rng.integers(0, 3, 4))
        given = {
            "group": group,
            "dilations": (dilation, 1),
            "pads": pads,
            "strides": tuple(map(int, rng.integers(1, 3, 2))),
        }
        size = (int(rng.integers(5, 12)), int(rng.integers(3, 12)))
        yield convolution(rng, int(rng.integers(1, 3)), channels, size, maps, kernel, **given)


def requantised(count: int, seed: int = 0) -> Iterator[Case]:
    """What all kernels take, copy engines included: signed weights, a clamp at most, no addend, sums or 8 bits.

    Products by turns with windows of images that lie side by side, channels first; rests in every direction.
    """
    for number in range(count):
        rng = np.random.default_rng((seed, number, 2))
        if number % 2 == 0:
            rows, terms, columns = (int(n) for n in rng.integers(1, 400, 3))
            x, w = codes(rng, (rows, terms), _kind(rng)), codes(rng, (terms, columns), "int8")
            yield _simple(rng, MatMulInteger(), Int8MatMul, x, w, columns)
            continue
        kernel = int(rng.choice([1, 3]))
        channels = int(rng.choice([16, 48])) if kernel == 1 else int(rng.integers(1, 4))
        maps, pad = int(rng.integers(1, 300)), kernel // 2
        conv = Conv(pads=(pad,) * 4, strides=(1, 1) if kernel == 1 else (2, 1))
        x = codes(rng, (2, channels, int(rng.integers(5, 20)), 9), _kind(rng))
        w = codes(rng, (maps, channels, kernel, kernel), "int8")
        integer = ConvInteger(pads=conv.pads, strides=conv.strides)
        yield _simple(rng, integer, lambda activation, conv=conv: Int8Conv(activation, conv), x, w, maps)


def depthwise(count: int, seed: int = 0) -> Iterator[Case]:
    """One channel for each map, signed weights, half of them of windows and strides that a kernel has code for."""
    for number in range(count):
        rng = np.random.default_rng((seed, number, 3))
        groups, maps = 4 * int(rng.integers(1, 9)), int(rng.choice([1, 1, 2, 4, 8]))
        yield _of_fours(rng, number, groups, 1, maps, (1, 2, 3, 5) if number % 2 else (3, 5), number % 2 == 0)


def grouped(count: int, seed: int = 0) -> Iterator[Case]:
    """Channels and maps of a group in fours, signed weights."""
    for number in range(count):
        rng = np.random.default_rng((seed, number, 5))
        groups, channels, maps = (int(rng.choice(few)) for few in ((1, 2, 3, 8), (4, 8, 12, 16, 32), (4, 8, 12)))
        yield _of_fours(rng, number, groups, channels, maps, (1, 3, 3, 4), number % 2 == 0)


def few(count: int, seed: int = 0) -> Iterator[Case]:
    """Rows of a window of at most six words, signed weights; images of whole words."""
    for number in range(count):
        rng = np.random.default_rng((seed, number, 6))
        channels, side = [(1, 1), (1, 5), (3, 3), (3, 7), (2, 5), (5, 4), (6, 4)][number % 7]
        yield _of_fours(rng, number, 1, channels, 4 * int(rng.integers(1, 11)), (side,), True)


def of_fours(count: int, seed: int = 0) -> Iterator[Case]:
    """So many of each kind."""
    for kind in (depthwise, grouped, few):
        yield from kind(count, seed)


def _of_fours(
    rng: np.random.Generator, number: int, groups: int, channels: int, maps: int, sides: Any, regular: bool
) -> Case:
    """All kinds of results, addends of codes and of floats. regular: equal strides, no dilation."""
    kernel, strides = int(rng.choice(sides)), tuple(int(n) for n in rng.integers(1, 3, 2))
    conv = Conv(
        group=groups,
        pads=tuple(int(n) for n in rng.integers(0, kernel, 4)),
        strides=strides[:1] * 2 if regular else strides,
        dilations=(1, 1) if regular else (1, int(rng.integers(1, 3))),
    )
    left = _kind(rng)
    size = (int(rng.integers(5, 12)), 4 * int(rng.integers(2, 6)) if regular else int(rng.integers(9, 20)))
    x = codes(rng, (int(rng.integers(1, 3)), groups * channels, *size), left)
    w = codes(rng, (groups * maps, channels, kernel, kernel), "int8")
    x_point = codes(rng, (), left) if rng.random() < 0.8 else None
    if number % 4 == 3:
        return ConvInteger(**{f.name: getattr(conv, f.name) for f in fields(Conv)}), (x, w, x_point, None)
    scale = _scale(rng, channels * kernel * kernel, groups * maps)
    op = Int8Conv(ACTIVATIONS[rng.integers(len(ACTIVATIONS))], conv)
    (result,) = [op.infer(*(Value("x", type_of(a)) for a in (x, w, scale)))]
    shape = result.static_shape  # type: ignore[union-attr]
    bias, addend, addend_scale, addend_point, *y = _fused(rng, groups * maps, shape, (groups * maps, 1, 1))
    return op, (x, w, scale, x_point, None, bias, addend, addend_scale, addend_point, *y)


def usual(rng: np.random.Generator, adds: str, to: str, y_scale: float, activation: Any, maps: int = 48) -> Case:
    """A convolution whose results are whole chunks of codes, with a residual of codes or without, channels first."""
    x, w = codes(rng, (2, 16, 6, 7), "int8"), codes(rng, (maps, 16, 3, 3), "int8")
    scale = rng.uniform(0.5, 2, maps).astype(np.float32) * np.float32(y_scale / 400)
    bias = rng.integers(-9999, 9999, maps).astype(np.int32)
    addend: Any = (None, None, None)
    if adds:
        addend = codes(rng, (2, maps, 6, 7), adds), np.array(y_scale * 0.7, np.float32), codes(rng, (), adds)
    y = np.array(y_scale, np.float32), codes(rng, (), to)
    op = Int8Conv(activation, Conv(pads=(1, 1, 1, 1)))
    return op, (x, w, scale, np.array(-7, np.int8), None, bias, *addend, *y)


TARGETS: tuple[tuple[str, float, Any], ...] = (
    ("int8", 1.0, Relu()),
    ("uint8", 0.0371, Relu()),
    ("int8", 3e-9, None),
    ("uint8", 1e-30, Relu()),
    ("int8", 0.25, Clip(-3.0, 5.0)),
    ("int8", 0.25, Clip(5.0, -3.0)),
    ("uint8", 0.5, Clip(-500.0, -400.0)),
)
"""Types, scales and activations of results; one scale is too small to divide by its inverse."""


def _simple(rng: np.random.Generator, integer: Op, fused: Any, x: Array, w: Array, channels: int) -> Case:
    x_point = codes(rng, (), str(x.dtype)) if rng.random() < 0.8 else None
    if rng.random() < 0.4:
        return integer, (x, w, x_point, None)
    bias = rng.integers(-9999, 9999, channels).astype(np.int32) if rng.random() < 0.7 else None
    y = np.array(rng.choice([1.0, 0.37]), np.float32), codes(rng, (), _kind(rng))
    activation = ACTIVATIONS[rng.integers(3)]
    return fused(activation), (x, w, _scale(rng, w[:, 0].size, channels), x_point, None, bias, None, None, None, *y)


def is_convolution(case: Case) -> bool:
    return isinstance(case[0], ConvInteger | QLinearConv | Int8Conv)
