"""Pointwise kernels and observers on the CPU by the CUDA sources: the same bits as the reference."""

from __future__ import annotations

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
