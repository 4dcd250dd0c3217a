"""Int8MatMul and Int8Conv give the bits of an oracle in int64, and refuse sums that may not fit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicore.errors import InferenceError, UnsupportedError
from aicore.ir import Builder, TensorType
from aicore.ops.activation import Activation, Clip, HardSigmoid, HardSwish, Relu
from aicore.ops.convolution import Conv
from aicore_cpu_numpy.reference import activation as reference
from aicore_int8_quant.kernels import KERNELS
from aicore_int8_quant.kernels.epilogue import apply_of
from aicore_int8_quant.ops import Int8Conv, Int8Linear, Int8Lookup, Int8MatMul, WeightOnlyMatMul
from aicore_int8_quant.ops.linear import folded_scale

Array = np.ndarray[Any, Any]
BY_OP = {k.op: k for k in KERNELS}
PAIRS = list(itertools.product(("uint8", "int8"), repeat=2))
SEEDS = st.integers(0, 2**32 - 1)


def run(op: Int8Linear, *operands: Array | None, bound: bool = True) -> Array:
    """The kernel's result; with `bound`, all but x are constants."""
    builder = Builder()
    values = [None if a is None else builder.input("x", a.dtype.name, a.shape) for a in operands]
    y = builder.apply(op, *values)
    op, kernel = builder.nodes[-1].op, BY_OP[type(op)]  # type: ignore[assignment]
    types: list[TensorType | None] = [None if v is None else v.type for v in values]
    assert kernel.reason_against(op, *types) is None
    assert kernel.workspace is not None
    assert kernel.bind is not None
    out = np.full(y.type.static_shape, 77, y.dtype)
    workspace = np.full(kernel.workspace(op, *types), 255, np.uint8)
    constants = [a if bound and i else None for i, a in enumerate(operands)]
    kernel.bind(op, types, constants)(*operands, out=out, workspace=workspace)
    return out


def codes(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Often the extreme ones alone."""
    limits = np.iinfo(dtype)
    ends = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random() < 0.4, ends, rng.integers(limits.min, limits.max + 1, shape)).astype(dtype)


def finished(sums: Array, scale: Array, low: float, high: float, y_scale: float, point: int, dtype: str) -> Array:
    """The contract, step by step, on int64 sums: wrap, float32, one product, clamp, divide, round, offset, saturate."""
    wrapped = ((sums + 2**31) % 2**32 - 2**31).astype(np.int64)
    real = wrapped.astype(np.float32) * scale.astype(np.float32)
    real = np.minimum(np.maximum(real, np.float32(low)), np.float32(high))
    rounded = np.rint(real / np.float32(y_scale)).astype(np.float64) + point
    limits = np.iinfo(dtype)
    return np.clip(rounded, limits.min, limits.max).astype(dtype)


@pytest.mark.parametrize(("left", "right"), PAIRS)
@given(seed=SEEDS, m=st.integers(1, 9), k=st.integers(1, 70), n=st.integers(1, 9), bound=st.booleans())
@settings(deadline=None, max_examples=60)
def test_products(left: str, right: str, seed: int, m: int, k: int, n: int, bound: bool) -> None:
    rng = np.random.default_rng(seed)
    a, b = codes(rng, (m, k), left), codes(rng, (k, n), right)
    za, zb = codes(rng, (), left), codes(rng, (n,), right)
    bias = rng.integers(-(2**28), 2**28, n).astype(np.int32)
    scale = (rng.random(n) * 10.0 ** rng.integers(-7, 1)).astype(np.float32)
    point, to = codes(rng, (), right), right
    got = run(Int8MatMul(Relu()), a, b, scale, za, zb, bias, None, None, None, np.float32(1)[()], point, bound=bound)
    sums = (a.astype(np.int64) - za.astype(np.int64)) @ (b.astype(np.int64) - zb.astype(np.int64)) + bias
    np.testing.assert_array_equal(got, finished(sums, scale, 0, np.inf, 1, int(point), to))


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("k", [513, 514, 1023, 1024, 1025, 4096, 131_071])
def test_long_sums(left: str, right: str, k: int) -> None:
    """Around the lengths that float32 can add up exactly, and at the longest sum that is allowed."""
    rng = np.random.default_rng(k)
    a, b = codes(rng, (2, k), left), codes(rng, (k, 3), right)
    a[0], b[:, 0] = np.iinfo(left).min, np.iinfo(right).min  # the largest products of signed codes
    scale = np.float32([1e-6, 3e-7, 1e-7])
    got = run(Int8MatMul(), a, b, scale, bound=True)
    sums = a.astype(np.int64) @ b.astype(np.int64)
    wrapped = ((sums + 2**31) % 2**32 - 2**31).astype(np.int64)
    np.testing.assert_array_equal(got, wrapped.astype(np.float32) * scale)


def test_the_longest_sum_of_the_largest_products_fits() -> None:
    """131,071 times -128 * -128 is 2^31 - 16384; one more would be 2^31."""
    a, b = np.full((1, 131_071), -128, np.int8), np.full((131_071, 1), -128, np.int8)
    assert run(Int8MatMul(), a, b, np.float32(1)[()]).item() == np.float32(2**31 - 16384)


@pytest.mark.parametrize("op", [Int8MatMul(), Int8Conv()])
def test_longer_sums_are_refused_by_name(op: Int8Linear) -> None:
    builder = Builder()
    k = 131_072
    shapes = ((1, k), (k, 1)) if isinstance(op, Int8MatMul) else ((1, k, 1, 1), (1, k, 1, 1))
    x, w = (builder.input(name, "int8", shape) for name, shape in zip("xw", shapes, strict=True))
    with pytest.raises(UnsupportedError, match=rf"{type(op).__name__} 'fc'.*131072 products of 8 bits"):
        builder.apply(op, x, w, builder.input("s", "float32", ()), names=["fc"])


@pytest.mark.parametrize("y_scale", [1.0, 0.5])
def test_a_clamp_whose_ends_are_exchanged_gives_the_upper_one(y_scale: float) -> None:
    """As Clip does; where the scale is 1, codes are clamped, not numbers."""
    a, one = np.arange(-9, 10, dtype=np.int8)[:, None], np.full((1, 1), 1, np.int8)
    y = np.float32(y_scale)[()], np.int8(5)[()]
    got = run(Int8MatMul(Clip(2.0, -1.0)), a, one, np.float32(1)[()], *(None,) * 6, *y)
    np.testing.assert_array_equal(got, np.full((19, 1), -1 / y_scale + 5, np.int8))


def test_ties_round_to_even() -> None:
    a = np.arange(-9, 10, dtype=np.int8)[:, None]
    one, half = np.full((1, 1), 1, np.int8), np.float32(0.5)[()]
    operands = (a, one, half, None, None, None, None, None, None, np.float32(1)[()], np.array(1, np.int8))
    assert run(Int8MatMul(), *operands).ravel().tolist() == [
        -3, -3, -3, -2, -1, -1, -1, 0, 1, 1, 1, 2, 3, 3, 3, 4, 5, 5, 5,
    ]  # fmt: skip


def test_sums_beyond_2_to_the_24_are_rounded_once() -> None:
    """2^24 + 1 has no float32: its neighbour below is even."""
    a, b = np.array([[127, 1]], np.int8), np.array([[127], [1]], np.int8)
    bias = np.array([2**24 + 1 - 127 * 127 - 1], np.int32)
    assert run(Int8MatMul(), a, b, np.float32(1)[()], None, None, bias).item() == 2**24
    bias += 2
    assert run(Int8MatMul(), a, b, np.float32(1)[()], None, None, bias).item() == 2**24 + 4


def test_the_product_is_not_fused_with_what_follows() -> None:
    """fma(sum, scale, addend) would round once instead of twice."""
    a, b = np.array([[3]], np.int8), np.array([[1]], np.int8)
    scale, addend = np.float32(0.1), np.float32(-0.3)
    got = run(Int8MatMul(), a, b, np.asarray(scale), None, None, None, np.array([[addend]]), bound=False).item()
    assert got == np.float32(3) * scale + addend
    assert got != np.float32(3 * float(scale) + float(addend))


def test_a_clamp_in_front_of_rounding() -> None:
    a = np.array([[-100], [10], [100]], np.int8)
    one = np.full((1, 1), 1, np.int8)
    y = run(Int8MatMul(Clip(-3.5, 50.5)), a, one, np.float32(1)[()], *[None] * 6, np.float32(1)[()], np.int8(3)[()])
    assert y.ravel().tolist() == [-1, 13, 53]  # -3.5 to -4, 50.5 to 50


@pytest.mark.parametrize(("left", "right"), PAIRS)
@given(seed=SEEDS, data=st.data())
@settings(deadline=None, max_examples=30)
def test_convolutions(left: str, right: str, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    group, channels, maps = (data.draw(st.integers(1, 3)) for _ in range(3))
    kernel = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations, strides = (data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2))) for _ in range(2))
    pads = data.draw(st.tuples(*[st.integers(0, 2)] * 4))
    x = codes(rng, (2, group * channels, 6, 7), left)
    w = codes(rng, (group * maps, channels, *kernel), right)
    zx, zw = codes(rng, (), left), codes(rng, (len(w),), right)
    bias = rng.integers(-9999, 9999, len(w)).astype(np.int32)
    x_scale, w_scale = np.float32(0.013), rng.uniform(0.01, 0.1, len(w)).astype(np.float32)
    scale = folded_scale(np.asarray(x_scale), w_scale, np.asarray(np.float32(0.9)))
    conv = Conv(dilations=dilations, strides=strides, pads=pads, group=group, kernel_shape=kernel)
    point = codes(rng, (), left)
    got = run(Int8Conv(None, conv), x, w, scale, zx, zw, bias, None, None, None, np.float32(1)[()], point)
    sums = convolved(conv, x.astype(np.int64) - int(zx), w.astype(np.int64) - zw.reshape(-1, 1, 1, 1).astype(np.int64))
    sums += bias[:, None, None]
    wanted = finished(sums, scale.reshape(-1, 1, 1), -np.inf, np.inf, 1, int(point), left)
    np.testing.assert_array_equal(got, wanted)


def convolved(op: Conv, x: Array, w: Array) -> Array:
    """One kernel offset at a time; what lies in the padding is the zero point, so it adds nothing."""
    top, left, bottom, right = op.pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (down, across), (dy, dx) = op.strides, op.dilations
    rows = (x.shape[2] - (w.shape[2] - 1) * dy - 1) // down + 1
    columns = (x.shape[3] - (w.shape[3] - 1) * dx - 1) // across + 1
    y = np.zeros((x.shape[0], w.shape[0], max(rows, 0), max(columns, 0)), np.int64)
    maps = w.shape[0] // op.group
    for m, c, i, j in itertools.product(*map(range, w.shape)):
        taken = x[:, m // maps * w.shape[1] + c, i * dy :: down, j * dx :: across]
        y[:, m] += w[m, c, i, j] * taken[:, :rows, :columns]
    return y


def test_the_scale_is_made_in_float64_and_rounded_once() -> None:
    x, w, y = (np.asarray(np.float32(v)) for v in (0.0123, 0.0456, 0.0789))
    assert folded_scale(x, w, y) == np.float32(float(x) * float(w) / float(y))
    assert folded_scale(x, w) == np.float32(float(x) * float(w))


@pytest.mark.parametrize(
    "activation", [Relu(), Clip(0.0, 6.0), Clip(-1.0, 2.0), HardSwish(), HardSigmoid(), HardSigmoid(0.5, -0.25)]
)
def test_activations_in_place_have_the_bits_of_the_reference(activation: Activation) -> None:
    rng = np.random.default_rng(0)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3.0, -3.0, 1e-45, -1e-45, 3.4e38, -3.4e38, np.nextafter(-3, 0)]
    x = np.concatenate([special, rng.normal(size=1000) * 4]).astype(np.float32)
    (kernel,) = [k for k in reference.KERNELS if k.op is type(activation)]
    with np.errstate(over="ignore", invalid="ignore"):
        wanted, found = np.asarray(kernel.function(activation, x)), apply_of(activation)(x.copy())
    np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize(
    ("op", "dtypes", "message"),
    [
        (Int8MatMul(), ("int8", "int8", "float16"), "float16"),
        (Int8MatMul(), ("int8", "float32", "float32"), "float32"),
        (WeightOnlyMatMul(), ("float64", "int8", "float32"), "float64"),
        (WeightOnlyMatMul(), ("float32", "int16", "float32"), "int16"),
        (Int8Lookup(), ("int16", "int8"), "int16"),
        (Int8Lookup(), ("int8", "int8"), "wants 256 elements"),
    ],
)
def test_other_operands_are_refused(op: Any, dtypes: tuple[str, ...], message: str) -> None:
    builder = Builder()
    shapes = ((2, 3), (3, 4), ())
    values = [builder.input("x", dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=False)]
    with pytest.raises(InferenceError, match=message):
        builder.apply(op, *values)
