"""The fast quantised kernels give the bits of an oracle in int64 and Python's own integers, on any threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicore.ir import Builder, Op, TensorType
from aicore.kernels import Kernel
from aicore.ops.quantization import DequantizeLinear, QuantizeLinear
from aicore.ops.quantized_linear import ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul
from aicore.runtime import using_threads
from aicore_cpu_numpy.fast import quantized, quantized_convolution, quantized_tensors
from aicore_cpu_numpy.fast._quantized import EXACT, Packed, chunks, exact_length, magnitude

Array = np.ndarray[Any, Any]
KERNELS = {k.op: k for k in (*quantized.KERNELS, *quantized_convolution.KERNELS)}
PAIRS = list(itertools.product(("uint8", "int8"), repeat=2))
SEEDS = st.integers(0, 2**32 - 1)


def run(op: Op, arrays: Sequence[Array | None], constant: Sequence[int] = (), threads: int = 1) -> Array:
    """The fast kernel's result; operands whose numbers are in `constant` are known when it is bound."""
    builder = Builder()
    values = [None if a is None else builder.input(f"x{i}", a.dtype.name, a.shape) for i, a in enumerate(arrays)]
    result = builder.apply(op, *values)
    op, kernel = builder.nodes[-1].op, KERNELS[type(op)]
    types: list[TensorType | None] = [None if v is None else v.type for v in values]
    with using_threads(threads):
        assert kernel.reason_against(op, *types) is None
        assert kernel.workspace is not None
        assert kernel.bind is not None
        assert kernel.estimate is not None
        assert kernel.estimate(op, *types) > 0
        workspace = np.full(kernel.workspace(op, *types), 255, np.uint8)
        call = kernel.bind(op, types, [a if i in constant else None for i, a in enumerate(arrays)])
    out = np.full(result.type.static_shape, 77, result.dtype)
    call(*arrays, out=out, workspace=workspace)
    return out


def wide(x: Array | None, shape: tuple[int, ...] = ()) -> Any:
    """In int64; an absent zero point is 0."""
    return 0 if x is None else x.astype(np.int64).reshape(shape if x.size > 1 else ())


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Bytes, often the extreme ones alone."""
    limits = np.iinfo(dtype)
    ends = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random() < 0.5, ends, rng.integers(limits.min, limits.max + 1, shape)).astype(dtype)


def products(a: Array, b: Array, za: Array | None, zb: Array | None) -> Array:
    return np.matmul(a.astype(np.int64) - wide(za, (-1, 1)), b.astype(np.int64) - wide(zb, (1, -1)))


def convolved(op: ConvInteger | QLinearConv, x: Array, w: Array, zx: Array | None, zw: Array | None) -> Array:
    """Two spatial dims, one kernel offset at a time: what lies in the padding is the zero point, so it adds nothing."""
    images = x.astype(np.int64) - wide(zx)
    weights = w.astype(np.int64) - wide(zw, (-1, 1, 1, 1))
    top, left, bottom, right = op.pads or (0, 0, 0, 0)
    images = np.pad(images, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (down, across), (dy, dx) = op.strides or (1, 1), op.dilations or (1, 1)
    rows = (images.shape[2] - (w.shape[2] - 1) * dy - 1) // down + 1
    columns = (images.shape[3] - (w.shape[3] - 1) * dx - 1) // across + 1
    y = np.zeros((x.shape[0], w.shape[0], rows, columns), np.int64)
    maps = w.shape[0] // op.group
    for m, c, i, j in itertools.product(*map(range, w.shape)):
        channel = m // maps * w.shape[1] + c
        taken = images[:, channel, i * dy : i * dy + (rows - 1) * down + 1 : down, j * dx :]
        y[:, m] += weights[m, c, i, j] * taken[:, :, : (columns - 1) * across + 1 : across]
    return y


def requantized(sums: Array, multiplier: Array, zero_point: Array) -> Array:
    """One element after the other, with Python's round (halves to even) and integers."""
    limits, found = np.iinfo(zero_point.dtype), np.empty(sums.shape, zero_point.dtype)
    factors = np.broadcast_to(multiplier, sums.shape)
    for place, total in np.ndenumerate(sums):
        whole = round(float(np.float32(total) * factors[place])) + int(zero_point.item())
        found[place] = min(max(whole, limits.min), limits.max)
    return found


def multiplier(*scales: Array) -> Array:
    first, second, last = (s.astype(np.float64) for s in scales)
    return (first * second / last).astype(np.float32)


def scalar(number: float, dtype: str = "float32") -> Array:
    return np.array(number, dtype)


@pytest.mark.parametrize(("left", "right"), PAIRS)
@given(
    seed=SEEDS,
    sizes=st.tuples(st.integers(1, 9), st.integers(0, 3000), st.integers(1, 9)),
    constant=st.booleans(),
    per=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_matmul_integer(
    left: str, right: str, seed: int, sizes: tuple[int, int, int], constant: bool, per: bool
) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), sizes
    a, b = random(rng, (m, k), left), random(rng, (k, n), right)
    za, zb = (
        (random(rng, (m if per else 1,), left), random(rng, (n if per else 1,), right)) if seed % 3 else (None,) * 2
    )
    found = run(MatMulInteger(), (a, b, za, zb), (1, 3) if constant else ())
    np.testing.assert_array_equal(found, products(a, b, za, zb))


@pytest.mark.parametrize(("left", "right"), PAIRS)
@given(seed=SEEDS, sizes=st.tuples(st.integers(1, 5), st.integers(1, 2000), st.integers(1, 5)), constant=st.booleans())
@settings(max_examples=30, deadline=None)
def test_qlinear_matmul(left: str, right: str, seed: int, sizes: tuple[int, int, int], constant: bool) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), sizes
    a, b = random(rng, (m, k), left), random(rng, (k, n), right)
    za, zb, zy = random(rng, (), left), random(rng, (), right), random(rng, (), left)
    sa, sb, sy = (np.array(rng.uniform(0.001, 2) * factor, np.float32) for factor in (1, 1, k))
    operands = (a, sa, za, b, sb, zb, sy, zy)
    found = run(QLinearMatMul(), operands, range(1, 8) if constant else ())
    np.testing.assert_array_equal(found, requantized(products(a, b, za, zb), multiplier(sa, sb, sy), zy))


def test_qlinear_matmul_by_row_and_column() -> None:
    rng = np.random.default_rng(1)
    a, b = random(rng, (2, 3, 7), "uint8"), random(rng, (7, 4), "int8")
    sa, za = rng.uniform(0.01, 0.1, (2, 3, 1)).astype("f4"), random(rng, (2, 3, 1), "uint8")
    sb, zb = rng.uniform(0.01, 0.1, 4).astype("f4"), random(rng, (4,), "int8")
    sy, zy = scalar(0.5), scalar(3, "uint8")
    sums = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)
    wanted = requantized(sums, multiplier(sa, sb, sy), zy)
    for constant in ((), (3, 5)):
        np.testing.assert_array_equal(run(QLinearMatMul(), (a, sa, za, b, sb, zb, sy, zy), constant), wanted)


def test_batches_of_their_own_and_shared() -> None:
    rng = np.random.default_rng(2)
    a, b, zb = random(rng, (2, 3, 4, 700), "uint8"), random(rng, (2, 3, 700, 5), "int8"), scalar(-7, "int8")
    za = random(rng, (2, 3, 4, 1), "uint8")
    sums = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)
    np.testing.assert_array_equal(run(MatMulInteger(), (a, b, za, zb)), sums)
    shared = (a.astype(np.int64) - za) @ (b[0, 0].astype(np.int64) - zb)
    np.testing.assert_array_equal(run(MatMulInteger(), (a, b[0, 0], za, zb)), shared)


CONVOLUTIONS = [
    ({}, (1, 3, 7, 6), (4, 3, 3, 3)),
    ({"pads": (1, 0, 2, 1), "strides": (2, 1)}, (2, 3, 7, 6), (4, 3, 3, 3)),
    ({}, (2, 300, 3, 4), (3, 300, 1, 1)),
    ({"strides": (2, 3)}, (1, 4, 7, 7), (6, 4, 1, 1)),
    ({"pads": (1, 0, 0, 2)}, (1, 2, 5, 5), (3, 2, 1, 1)),
    ({"group": 2, "pads": (1, 0, 2, 1)}, (2, 4, 9, 8), (6, 2, 3, 2)),
    ({"group": 5, "pads": (1, 2, 1, 2)}, (2, 5, 8, 9), (5, 1, 3, 5)),
    ({"dilations": (2, 3), "pads": (2, 1, 0, 3), "strides": (1, 2)}, (1, 2, 11, 12), (3, 2, 3, 2)),
    ({"pads": (1, 1, 1, 1)}, (1, 150, 3, 3), (2, 150, 3, 3)),
    ({"pads": (3, 3, 3, 3)}, (1, 2, 1, 1), (3, 2, 3, 3)),
]


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize(("fields", "x", "w"), CONVOLUTIONS)
def test_conv_integer(left: str, right: str, fields: Any, x: tuple[int, ...], w: tuple[int, ...]) -> None:
    for seed, constant in itertools.product(range(4), ((), (1, 3))):
        rng = np.random.default_rng(seed)
        image, weight = random(rng, x, left), random(rng, w, right)
        zx, zw = random(rng, (), left), random(rng, (w[0],) if seed % 2 else (), right)
        op = ConvInteger(**fields)
        zero_points = (None, None) if seed == 3 else (zx, zw)
        found = run(op, (image, weight, *zero_points), constant)
        np.testing.assert_array_equal(found, convolved(op, image, weight, *zero_points))


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize(("fields", "x", "w"), CONVOLUTIONS)
def test_qlinear_conv(left: str, right: str, fields: Any, x: tuple[int, ...], w: tuple[int, ...]) -> None:
    for seed, constant in itertools.product(range(3), ((), (3, 4, 5))):
        rng = np.random.default_rng(seed)
        image, weight = random(rng, x, left), random(rng, w, right)
        zx, zw, zy = random(rng, (), left), random(rng, (w[0],), right), random(rng, (), right)
        sx, sw = scalar(0.02), rng.uniform(0.01, 0.2, w[0]).astype("f4")
        sy, bias = scalar(0.03 * weight[0].size), rng.integers(-(2**28) * (seed == 2) - 999, 999, w[0]).astype("i4")
        op = QLinearConv(**fields)
        found = run(op, (image, sx, zx, weight, sw, zw, sy, zy, None if seed == 0 else bias), constant)
        sums = convolved(op, image, weight, zx, zw)
        if seed:
            sums = sums + bias.reshape(-1, 1, 1)
        wanted = requantized(sums, multiplier(sx, sw, sy).reshape(-1, 1, 1), zy)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int) -> None:
    """Sizes large enough to be shared: by rows, by columns, by products of a batch, by images and by output rows."""
    rng = np.random.default_rng(3)
    for a, b in (((700, 300), (300, 40)), ((3, 600), (600, 900)), ((9, 40, 200), (9, 200, 50))):
        left, right = random(rng, a, "uint8"), random(rng, b, "int8")
        wanted = left.astype(np.int64) @ right.astype(np.int64)
        np.testing.assert_array_equal(run(MatMulInteger(), (left, right), (1,), threads), wanted)
    for x, w in (((4, 9, 30, 20), (16, 9, 3, 3)), ((1, 9, 60, 40), (16, 9, 3, 3))):
        op = ConvInteger(pads=(1, 1, 1, 1), strides=(1, 2))
        image, weight = random(rng, x, "uint8"), random(rng, w, "int8")
        np.testing.assert_array_equal(run(op, (image, weight), (1,), threads), convolved(op, image, weight, None, None))


def test_sums_wrap_in_32_bits() -> None:
    """131,072 times -128 * -128 is 2^31, which wraps; the op says so."""
    a, b = np.full((1, 131_072), -128, np.int8), np.full((131_072, 1), -128, np.int8)
    for constant in ((), (1,)):
        assert run(MatMulInteger(), (a, b), constant).item() == -(2**31)
        assert run(MatMulInteger(), (a[:, 1:], b[1:]), constant).item() == 2**31 - 128 * 128


def test_an_infinite_multiplier_saturates_and_zero_times_it_is_the_zero_point() -> None:
    a, b, one = np.int8([[1], [0], [-1]]), np.int8([[1]]), scalar(1)
    operands = (a, one, scalar(0, "int8"), b, one, scalar(0, "int8"), scalar(0), scalar(5, "int8"))
    with np.errstate(all="ignore"):
        assert run(QLinearMatMul(), operands).tolist() == [[127], [5], [-128]]


@pytest.mark.parametrize("op", KERNELS)
def test_samples(op: type[Op], run_kernel: Callable[..., Any], reference: Callable[..., Any]) -> None:
    kernel: Kernel = KERNELS[op]
    compared = 0
    for sample in op.samples(np.random.default_rng(1)):
        found = run_kernel(kernel, sample.op, sample.inputs)
        if isinstance(found, str):
            assert found in ("takes matrices, not vectors", "does not broadcast batches")
            continue
        compared += 1
        np.testing.assert_array_equal(found[0], reference(sample.op, sample.inputs)[0])
    assert compared >= 8


@pytest.mark.parametrize(
    ("dtype", "zero_point", "wanted"),
    [("uint8", None, 255), ("uint8", [128], 128), ("uint8", [3, 200], 252), ("int8", None, 128), ("int8", [-128], 255)],
)
def test_magnitude(dtype: str, zero_point: list[int] | None, wanted: int) -> None:
    assert magnitude(dtype, None if zero_point is None else np.array(zero_point, dtype)) == wanted


def test_chunks_are_as_long_as_float32_is_exact() -> None:
    """1024 products of -128 * -128 are 2^24; 514 of 255 * -128 and 258 of 255 * 255 are just below."""
    assert [exact_length(*pair) for pair in ((128, 128), (255, 128), (255, 255), (0, 0))] == [1024, 514, 258, EXACT]
    assert chunks(1500, 1024) == [slice(0, 750), slice(750, 1500)]
    assert chunks(0, 1024) == [slice(0, 0)]


def test_numbers_that_are_known_make_longer_chunks() -> None:
    """Of 4000 weights 1, times 255, the sum is at most 1,020,000; of 4000 weights 100 it is 102,000,000."""
    assert Packed.of(np.ones((4000, 1), np.int8), None, 0).parts(4000, 255) == [slice(0, 4000)]
    parts = Packed.of(np.full((4000, 1), 100, np.int8), None, 0).parts(4000, 255)
    assert len(parts) == 7  # 2^24 / 25,500 is 657
    assert max(part.stop - part.start for part in parts) <= 657


TENSORS = {k.op: k for k in quantized_tensors.KERNELS}


@pytest.mark.parametrize("op", TENSORS)
def test_samples_of_tensors(op: type[Op], run_kernel: Callable[..., Any], reference: Callable[..., Any]) -> None:
    compared = 0
    for sample in op.samples(np.random.default_rng(1)):
        found = run_kernel(TENSORS[op], sample.op, sample.inputs)
        if isinstance(found, str):
            assert found.startswith("does not")
            continue
        compared += 1
        np.testing.assert_array_equal(found[0], reference(sample.op, sample.inputs)[0])
    assert compared >= 6


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("shape", [(70_000,), (3, 5, 40_000), (2, 40_000), (300, 3, 50), (7, 1, 1), (0, 3), (3, 0)])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_tensors_of_any_size(
    dtype: str, shape: tuple[int, ...], axis: int | None, run_kernel: Any, reference: Any
) -> None:
    """Longer than a block, with scales for the whole or along an axis, and with numbers that saturate or are none."""
    rng = np.random.default_rng(5)
    count = () if axis is None else (shape[axis],)
    scale = rng.uniform(0.01, 0.1, count).astype(np.float32)
    zero_point = rng.integers(0, 99, count).astype(dtype)
    x = (rng.normal(size=shape) * rng.choice([1, 100], shape)).astype(np.float32)
    x.reshape(-1)[::97] = np.nan
    x.reshape(-1)[1::97] = np.inf
    for operands in ((x, scale, zero_point), (x, scale)):
        op = QuantizeLinear(axis=axis or 0, output_dtype=dtype)
        (found,) = run_kernel(TENSORS[QuantizeLinear], op, operands)
        np.testing.assert_array_equal(found, reference(op, operands)[0])
        back = DequantizeLinear(axis=axis or 0)
        operands = (found, *operands[1:])
        (real,) = run_kernel(TENSORS[DequantizeLinear], back, operands)
        np.testing.assert_array_equal(real, reference(back, operands)[0])


def test_a_scale_of_zero_is_infinite_but_for_zero() -> None:
    x, out = np.float32([1, 0, -1]), np.zeros(3, np.int8)
    with np.errstate(all="ignore"):
        quantized_tensors.quantize_linear_blocks.function(
            QuantizeLinear(), x, np.float32([0]), np.int8([5]), out=out, workspace=np.zeros(4 << 15, np.uint8)
        )
    assert out.tolist() == [127, 5, -128]
