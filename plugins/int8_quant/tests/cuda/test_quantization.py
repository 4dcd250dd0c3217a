"""Pointwise kernels and observers on the CPU by the CUDA sources: the same bits as the reference."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import Sample, TensorType, Value
from aicore.kernels import REFERENCE, KernelTable
from aicore.ops.quantization import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_int8_quant.cuda import quantization
from aicore_int8_quant.cuda.launch import launch
from aicore_int8_quant.ops.lookup import Int8Lookup

_EVALUATE = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))


@pytest.fixture(scope="module")
def host(build: Any) -> Any:
    return build("quant_kernels", "observers")


def check(host: Any, sample: Sample) -> bool:
    """Whether the kernel takes it; then its results must be those of the reference."""
    types = [None if a is None else type_of(a) for a in sample.inputs]
    op = sample.op.resolve(*(None if t is None else Value("x", t) for t in types))
    kernel = next(k for k in quantization.KERNELS if k.op is type(op))
    if kernel.reason_against(op, *types) is not None:
        return False
    with np.errstate(all="ignore"):
        wanted = _EVALUATE(op, *sample.inputs)
    for found, exact in zip(host.run(kernel, op, sample.inputs), wanted, strict=True):
        np.testing.assert_array_equal(found, exact, err_msg=sample.note)
    return True


@pytest.mark.parametrize("op", [QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, Int8Lookup])
def test_samples(op: Any, host: Any) -> None:
    taken = [check(host, sample) for sample in op.samples(np.random.default_rng(0))]
    assert sum(taken) >= 5 or op in (DynamicQuantizeLinear, Int8Lookup)
    assert any(taken)


@pytest.mark.parametrize("shape", [(3, 257), (1, 5, 1024), (2, 3, 7, 11)], ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantize_along_an_axis(shape: Any, dtype: str, host: Any) -> None:
    rng = np.random.default_rng(len(shape))
    x = (rng.normal(size=shape) * 50).astype(np.float32)
    scale, limits = rng.uniform(0.1, 1, shape[1]).astype(np.float32), np.iinfo(dtype)
    points = rng.integers(limits.min, limits.max, shape[1], endpoint=True).astype(dtype)
    assert check(host, Sample(QuantizeLinear(), (x, scale, points)))
    codes = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
    assert check(host, Sample(DequantizeLinear(), (codes, scale, points)))


def ways(shape: tuple[int, ...], dtype: str, axis: int | None) -> Iterator[Sample]:
    """Tensors of this shape and type of codes, by one scale or by one for each place along an axis."""
    rng, limits = np.random.default_rng(len(shape)), np.iinfo(dtype)
    scale = rng.uniform(0.01, 3, () if axis is None else shape[axis]).astype(np.float32)
    attributes = {} if axis is None else {"axis": axis}
    x = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
    yield Sample(DequantizeLinear(**attributes), (x, scale))
    if dtype == "int32":
        return
    points = rng.integers(limits.min, limits.max, scale.shape, endpoint=True).astype(dtype)
    real = x.astype(np.float32) * np.float32(0.7)
    yield Sample(DequantizeLinear(**attributes), (x, scale, points))
    yield Sample(QuantizeLinear(**attributes), (real, scale, points))
    yield Sample(QuantizeLinear(output_dtype=dtype, **attributes), (real, scale))


def hard(scale: float, axis: int | None) -> Iterator[Sample]:
    """Halves and their neighbours, ends of the codes, infinities, NaN, subnormal numbers."""
    with np.errstate(all="ignore"):
        halves, infinite = np.arange(-260, 261, 0.5, dtype=np.float32) * np.float32(scale), np.float32(np.inf)
        around = [halves, np.nextafter(halves, infinite), np.nextafter(halves, -infinite)]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3e38, -3e38]
    x = np.concatenate([*around, np.array(special, np.float32)])
    scales = np.array(scale, np.float32)
    if axis is not None:
        x = x[-x.size // 16 * 16 :].reshape(1, 4, -1)
        scales = np.full(4, scale, np.float32)
    for points in (np.array([-128, -3, 0, 127], np.int8), np.array([0, 128, 255], np.uint8)):
        for point in points:
            yield Sample(QuantizeLinear(), (x, scales, np.full(scales.shape, point)))


def large() -> Iterator[Sample]:
    """Of which a thread takes several fours, with a rest of a turn."""
    count = 1024 * 4 * 4 * 256 + 1234
    codes = np.random.default_rng(3).integers(-128, 128, count).astype(np.int8)
    scale, point = np.array(0.37, np.float32), np.array(-5, np.int8)
    yield Sample(DequantizeLinear(), (codes, scale, point))
    yield Sample(QuantizeLinear(), (codes.astype(np.float32), scale, point))
    yield Sample(Int8Lookup(), (codes, np.arange(256, dtype=np.float32)))
    for rows in (codes[: count // 1026 * 1026].reshape(-1, 1026), codes[: count // 300 * 300].reshape(-1, 3, 100)):
        own = np.linspace(0.1, 2, rows.shape[1], dtype=np.float32), np.arange(rows.shape[1]).astype(np.int8)
        yield Sample(DequantizeLinear(), (rows, *own))
        yield Sample(QuantizeLinear(), (rows.astype(np.float32), *own))


SHAPES = (
    *((3, 8, 5, 4), (2, 3, 1, 1028), (2, 5, 7, 7), (7, 3), (1027, 2), (5, 1000, 1)),
    *((64, 12), (3, 1025), (1, 1), (2, 2, 3)),
)
"""Rows of whole fours, rows of any length, scales side by side in whole fours and not; turns with a rest."""
SCALES = (1.0, 0.1, 0.037, 3e-9, 1e-30, 1e-40, 1e30, 3e38, -0.25, 0.0, np.inf, np.nan)
"""Those that are divided by through their inverse, and others."""


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_every_way_to_find_a_scale(shape: tuple[int, ...], dtype: str, axis: int | None, host: Any) -> None:
    assert all(check(host, sample) for sample in ways(shape, dtype, axis))


@pytest.mark.parametrize("axis", [None, 1], ids=["one scale", "scales that are the same"])
@pytest.mark.parametrize("scale", SCALES)
def test_hard_numbers(scale: float, axis: int | None, host: Any) -> None:
    assert all(check(host, sample) for sample in hard(scale, axis))


def test_large_tensors(host: Any) -> None:
    assert all(check(host, sample) for sample in large())


@pytest.fixture(scope="module")
def division(build: Any) -> ctypes.CDLL:
    library: ctypes.CDLL = build(beside=("division.cpp",)).library
    for name in ("wrong_codes", "wrong_mantissas", "wrong_places"):
        getattr(library, name).restype = ctypes.c_int64
    return library


def test_quotients_around_halves_are_those_of_a_division(division: ctypes.CDLL) -> None:
    """200 million of them: 83,000 divisors, all halves of codes, their neighbours."""
    assert division.wrong_codes(ctypes.c_int64(0), ctypes.c_int64(101)) == 0
    assert division.wrong_codes(ctypes.c_int64((1 << 23) - 400), ctypes.c_int64(1)) == 0


@pytest.mark.parametrize("one", [1.0, 127.5, 1.9999999, 1.0000001, 0.3333333, 3.7e17, 1.2e-17])
def test_quotients_of_every_mantissa_are_those_of_a_division(one: float, division: ctypes.CDLL) -> None:
    assert division.wrong_mantissas(ctypes.c_float(one)) == 0


def test_places_are_divided_exactly(division: ctypes.CDLL) -> None:
    divisors = [*range(1, 300), *(2**n + k for n in range(9, 31) for k in (-1, 0, 1)), 2**31 - 1]
    assert [d for d in divisors if division.wrong_places(ctypes.c_int64(d))] == []


@pytest.mark.parametrize("count", [1, 255, 5000])
def test_dynamic(count: int, host: Any) -> None:
    x = np.random.default_rng(count).normal(size=count).astype(np.float32)
    assert check(host, Sample(DynamicQuantizeLinear(), (x,)))


def test_range_with_nan(host: Any) -> None:
    x = np.ones(3000, np.float32)
    x[2222] = np.nan
    room, found = np.zeros(8 * quantization.RANGE_BLOCKS, np.uint8), np.zeros(2, np.float32)
    host.launch(quantization.range_launch(x.size, 0, 1, 2), [x, room, found])
    assert np.isnan(found).all()


def test_histogram(host: Any) -> None:
    """Ends are kept within the bins; what is not finite is left out."""
    x = np.concatenate([np.random.default_rng(1).uniform(-1.2, 1.2, 4000), [np.inf, -np.inf, np.nan]]).astype(
        np.float32
    )
    counts = np.full(64, 99, np.uint32)
    host.launch(launch("int8_histogram", (x.size, 64, -1.0, 2 / 64, 0, 1)), [x, counts])
    finite = x[np.isfinite(x)]
    wanted = np.bincount(
        np.clip(np.floor((finite + np.float32(1)) / np.float32(2 / 64)), 0, 63).astype(int), minlength=64
    )
    np.testing.assert_array_equal(counts, wanted)


@pytest.mark.parametrize(
    ("op", "types", "reason"),
    [
        (QuantizeLinear(axis=1, block_size=2), [("float32", (2, 4)), ("float32", (2, 2))], "does not take blocks"),
        (QuantizeLinear(output_dtype="int16"), [("float32", (2, 4)), ("float32", ())], "does not give int16"),
        (QuantizeLinear(precision="float16"), [("float32", (2,)), ("float32", ())], "does not divide in float16"),
        (DequantizeLinear(output_dtype="float16"), [("int8", (2, 4)), ("float32", ())], "does not give float16"),
        (DequantizeLinear(), [("int8", (2, 4)), ("float16", ())], "takes scales of float32"),
        (DequantizeLinear(), [("int32", (2,)), ("float32", ()), ("int32", ())], "no zero point of int32"),
        (DequantizeLinear(), [("int8", None), ("float32", ())], "known sizes"),
        (DynamicQuantizeLinear(), [("float32", (0, 3))], "at least one element"),
        (Int8Lookup(), [("int8", (3,)), ("float64", (256,))], "of 1 or 4 bytes"),
    ],
    ids=str,
)
def test_refusals(op: Any, types: Any, reason: str) -> None:
    kernel = next(k for k in quantization.KERNELS if k.op is type(op))
    assert reason in str(kernel.reason_against(op, *(TensorType(*t) for t in types)))


def test_estimates_count_bytes() -> None:
    """A launch of 1 us, and 4 TB a second; a search for the range before."""
    x, scale = TensorType("float32", (8_000_000,)), TensorType("float32", ())
    estimates: dict[Any, Any] = {k.op: k.estimate for k in quantization.KERNELS}
    assert estimates[QuantizeLinear](QuantizeLinear(), x, scale) == pytest.approx(11e-6)
    codes, sums = (TensorType(dtype, (8_000_000,)) for dtype in ("int8", "int32"))
    assert estimates[DequantizeLinear](DequantizeLinear(), codes, scale) == pytest.approx(11e-6)
    assert estimates[DequantizeLinear](DequantizeLinear(), sums, scale) == pytest.approx(17e-6)
    table = TensorType("int8", (256,))
    assert estimates[Int8Lookup](Int8Lookup(), codes, table) == pytest.approx(5e-6, rel=1e-3)
    assert estimates[DynamicQuantizeLinear](DynamicQuantizeLinear(), x) > 20e-6
    odd, scales = TensorType("int8", (9000, 1001)), TensorType("float32", (1001,))
    assert estimates[DequantizeLinear](DequantizeLinear(), odd, scales) == pytest.approx(21e-6, rel=0.01)
