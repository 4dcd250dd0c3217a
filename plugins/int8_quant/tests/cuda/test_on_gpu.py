"""Every variant on a GPU: the bits of the CPU kernels. And one small case for each kernel, for a memory checker:

compute-sanitizer --tool memcheck python -m pytest plugins/int8_quant/tests/cuda -m sanitize
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, Sample, Value, as_tuple
from aicore.kernels import REFERENCE, Kernel, KernelTable
from aicore.ops.layout import ChannelsLast
from aicore.ops.movement import Transpose
from aicore.ops.quantized_linear import MatMulInteger
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_int8_quant.cuda import fours, launch, layout, library_products, pooling, products, quantization
from aicore_int8_quant.ops.linear import Int8Conv, Int8MatMul
from plugins.int8_quant.tests.cuda import cases
from plugins.int8_quant.tests.cuda.cases import Array, Case, exact
from plugins.int8_quant.tests.cuda.test_convolutions import KERNELS as CONVOLUTIONS
from plugins.int8_quant.tests.cuda.test_convolutions import back, last, takes
from plugins.int8_quant.tests.cuda.test_layout import SHAPES
from plugins.int8_quant.tests.cuda.test_pooling import CASES as POOLS
from plugins.int8_quant.tests.cuda.test_quantization import SCALES as HARD_SCALES
from plugins.int8_quant.tests.cuda.test_quantization import SHAPES as QUANTIZED_SHAPES
from plugins.int8_quant.tests.cuda.test_quantization import hard, large, ways

PRODUCTS = (*products.KERNELS, *library_products.KERNELS)
KERNELS = (*PRODUCTS, *CONVOLUTIONS)
PLAIN = [kernel for kernel in KERNELS if kernel.op is not ChannelsLast]


def name(kernel: Kernel) -> str:
    inner = kernel.op if kernel.wraps is None else kernel.wraps
    return f"{inner.__name__}{'' if kernel.wraps is None else '-last'}-{kernel.variant}"


@pytest.fixture(scope="module")
def device() -> Any:
    return importlib.import_module("aicore_cuda_ge.device").CudaDevice(0)


def address(array: Any) -> int:
    """Of an array of CuPy or of aicore."""
    found: int = array.data.ptr if hasattr(array, "data") else array.address
    return found


def run(device: Any, kernel: Kernel, op: Op, operands: Sequence[Array | None], constant: bool, **settings: Any) -> Any:
    """The results of the last of three replays; constant: all but the first operand never change."""
    native = importlib.import_module("aicore_cuda_ge._graph_executor")
    given = [None if a is None else type_of(a) for a in operands]
    outputs = as_tuple(op.infer(*(None if t is None else Value("x", t) for t in given)))
    arrays = [None if a is None else device.upload(np.ascontiguousarray(a)) for a in operands]
    constants = [None, *arrays[1:]] if constant else [None] * len(arrays)
    assert kernel.bind is not None
    calls: Any = kernel.bind(op, given, constants, **settings)
    results = [device.empty(t) for t in outputs]
    pointers = [0 if a is None else a.address for a in (*arrays, *results)]
    room = device.allocate(kernel.workspace(op, *given, **settings) if kernel.workspace else 0)
    if kernel.workspace is not None:
        pointers.append(room.address)
    launches = native.LaunchList(device.index)
    for call in calls:
        launches.add_kernel(call.kernel, [*pointers, *map(address, call.extra)], call.params, kernel.name)
    launches.capture()
    for _ in range(3):
        launches.run([], [])
    return [device.download(result) for result in results]


def check(
    device: Any, kernel: Kernel, case: Case, wanted: Array | None = None, constant: bool = True, **settings: Any
) -> bool:
    """Whether the kernel takes it; then its bits must be those of the CPU, which `wanted` may hold already."""
    op, operands = case
    if not takes(kernel, case):
        return False
    types = [None if a is None else type_of(a) for a in operands]
    op = op.resolve(*(None if t is None else Value("x", t) for t in types))
    (found,) = run(device, kernel, op, operands, constant, **settings)
    expected = of_case(case) if wanted is None else wanted
    np.testing.assert_array_equal(found, expected, err_msg=f"{name(kernel)} {settings} {op}")
    return True


def of_case(case: Case) -> Array:
    op, operands = case
    if isinstance(op, ChannelsLast):
        return np.moveaxis(exact(op.inner, tuple(back(op, operands))), 1, -1)
    return exact(op, operands)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", PRODUCTS, ids=name)
def test_products(kernel: Kernel, device: Any) -> None:
    """Each setting on cases of its own, with rests; a case in four has a batch."""
    taken = 0
    for number, settings in enumerate(kernel.settings):
        random = cases.products(16, seed=1000 + number, largest=400)
        for case in (*random, *cases.requantised(24, seed=1000 + number), *cases.fours(24, seed=1000 + number)):
            taken += check(device, kernel, case, constant=number % 2 == 0, **settings)
    assert taken


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", CONVOLUTIONS, ids=name)
def test_convolutions(kernel: Kernel, device: Any) -> None:
    taken = 0
    for number, settings in enumerate(kernel.settings):
        seed = 2000 + number
        for case in (*cases.convolutions(16, seed), *cases.requantised(24, seed), *cases.of_fours(8, seed)):
            if not cases.is_convolution(case):
                continue
            chosen = case if kernel.wraps is None else last(case)
            taken += check(device, kernel, chosen, constant=number % 2 == 0, **settings)
    assert taken


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [k for k in CONVOLUTIONS if k.wraps is Int8Conv], ids=name)
def test_results_of_whole_chunks(kernel: Kernel, device: Any) -> None:
    """With a residual of codes or without."""
    rng = np.random.default_rng(4)
    for adds in ("", "int8", "uint8"):
        for to, y_scale, activation in cases.TARGETS:
            case = last(cases.usual(rng, adds, to, y_scale, activation, maps=80))
            wanted = of_case(case)
            for settings in kernel.settings:
                check(device, kernel, case, wanted, **settings)


@pytest.mark.gpu
@pytest.mark.sanitize
@pytest.mark.parametrize("kernel", fours.KERNELS, ids=name)
def test_four_results_of_a_thread(kernel: Kernel, device: Any) -> None:
    """Each setting, on windows of each size that a kernel has code for."""
    taken = 0
    for number, case in enumerate(cases.of_fours(7, seed=5)):
        for settings in kernel.settings:
            taken += check(device, kernel, last(case), constant=number % 3 > 0, **settings)
    assert taken


@pytest.mark.gpu
@pytest.mark.sanitize
@pytest.mark.parametrize(("shape", "op"), POOLS, ids=lambda one: str(one)[:24])
def test_pools(shape: tuple[int, ...], op: Op, device: Any) -> None:
    for dtype in ("int8", "uint8"):
        x = cases.codes(np.random.default_rng(len(shape)), shape, dtype)
        (wanted,) = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))(op, x)
        moved = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        (found,) = run(device, pooling.KERNELS[0], ChannelsLast(op, len(shape)), (moved,), False)
        np.testing.assert_array_equal(np.moveaxis(found, -1, 1), wanted)


@pytest.mark.gpu
@pytest.mark.sanitize
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_channels_last(shape: tuple[int, ...], device: Any) -> None:
    x = cases.codes(np.random.default_rng(0), shape, "uint8")
    (found,) = run(device, layout.KERNELS[0], Transpose((0, *range(2, len(shape)), 1)), (x,), False)
    np.testing.assert_array_equal(found, np.moveaxis(x, 1, -1))


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [k for k in PRODUCTS if k.op is Int8MatMul], ids=name)
def test_large_products(kernel: Kernel, device: Any) -> None:
    """More tiles than multiprocessors, and depths of many stages."""
    rng = np.random.default_rng(5)
    for rows, terms, columns in ((1100, 2064, 3000), (3, 4096, 1000)):
        x, w = cases.codes(rng, (rows, terms), "uint8"), cases.codes(rng, (terms, columns), "int8")
        scale = rng.uniform(1e-4, 1e-3, columns).astype(np.float32)
        y = np.array(1, np.float32), np.array(-3, np.int8)
        bias = rng.integers(-9999, 9999, columns).astype(np.int32)
        case: Case = Int8MatMul(), (x, w, scale, np.array(77, np.uint8), None, bias, None, None, None, *y)
        wanted = of_case(case)
        for settings in kernel.settings:
            assert check(device, kernel, case, wanted, **settings) or kernel.variant == "cublas"  # takes a signed x


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [k for k in PRODUCTS if k.op is MatMulInteger], ids=name)
def test_as_many_terms_as_int32_holds(kernel: Kernel, device: Any) -> None:
    x, w = np.full((2, 131_071), -128, np.int8), np.full((131_071, 4), -128, np.int8)
    for settings in kernel.settings:
        assert check(device, kernel, (MatMulInteger(), (x, w)), np.full((2, 4), 131_071 << 14, np.int32), **settings)


@pytest.mark.gpu
def test_sums_in_memory(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """How GPUs before sm_90 share the depth of a tile."""
    monkeypatch.setattr(products, "machine", lambda: replace(launch.machine(), capability=80))
    taken = 0
    for kernel in PLAIN:
        if kernel.variant not in ("dp4a", "mma"):
            continue
        for case in (*cases.products(6, seed=7), *cases.convolutions(6, seed=7)):
            taken += check(device, kernel, case, tile=kernel.tune["tile"][-1], split=4)
    assert taken


@pytest.mark.gpu
def test_every_run_gives_the_same_bits(device: Any) -> None:
    kernel = next(k for k in products.KERNELS if k.op is MatMulInteger and k.variant == "dp4a")
    rng = np.random.default_rng(8)
    operands = cases.codes(rng, (64, 4096), "int8"), cases.codes(rng, (4096, 64), "int8")
    op = MatMulInteger()
    first, *others = (run(device, kernel, op, operands, True, tile="64x64x2", split=8)[0] for _ in range(10))
    assert all(first.tobytes() == other.tobytes() for other in others)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", quantization.KERNELS, ids=name)
def test_pointwise(kernel: Kernel, device: Any) -> None:
    taken = 0
    for sample in kernel.op.samples(np.random.default_rng(0)):
        taken += check_pointwise(device, kernel, sample)
    assert taken


def kernel_of(sample: Sample) -> Kernel:
    return next(k for k in quantization.KERNELS if k.op is type(sample.op))


@pytest.mark.gpu
@pytest.mark.sanitize
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_ways_to_find_a_scale(dtype: str, axis: int | None, device: Any) -> None:
    for shape in QUANTIZED_SHAPES:
        for sample in ways(shape, dtype, axis):
            assert check_pointwise(device, kernel_of(sample), sample)


@pytest.mark.gpu
@pytest.mark.parametrize("axis", [0, None])
def test_hard_numbers(axis: int | None, device: Any) -> None:
    for scale in HARD_SCALES:
        for sample in hard(scale, axis):
            assert check_pointwise(device, kernel_of(sample), sample)


@pytest.mark.gpu
@pytest.mark.sanitize
def test_large_tensors(device: Any) -> None:
    for sample in large():
        assert check_pointwise(device, kernel_of(sample), sample)


def check_pointwise(device: Any, kernel: Kernel, sample: Sample) -> bool:
    types = [None if a is None else type_of(a) for a in sample.inputs]
    op = sample.op.resolve(*(None if t is None else Value("x", t) for t in types))
    if kernel.reason_against(op, *types) is not None:
        return False
    with np.errstate(all="ignore"):
        wanted = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))(op, *sample.inputs)
    for found, one in zip(run(device, kernel, op, sample.inputs, False), wanted, strict=True):
        np.testing.assert_array_equal(found, one, err_msg=sample.note)
    return True


@pytest.mark.gpu
@pytest.mark.sanitize
@pytest.mark.parametrize("constant", [True, False], ids=["packed before", "packed by a kernel"])
@pytest.mark.parametrize("kernel", [*KERNELS, *quantization.KERNELS], ids=name)
def test_one_case(kernel: Kernel, constant: bool, device: Any) -> None:
    """The first that the kernel takes, with two settings: one block for a tile, and several."""
    if kernel in quantization.KERNELS:
        assert any(check_pointwise(device, kernel, s) for s in kernel.op.samples(np.random.default_rng(0)))
        return
    settings = [kernel.settings[0], kernel.settings[-1]]
    random = (*cases.products(40, seed=3), *cases.convolutions(60, seed=3), *cases.requantised(40, seed=3))
    for case in (*random, *cases.of_fours(4, seed=3), *cases.fours(40, seed=3)):
        chosen = last(case) if kernel.op is ChannelsLast and cases.is_convolution(case) else case
        if check(device, kernel, chosen, None, constant, **settings[0]):
            check(device, kernel, chosen, None, constant, **settings[1])
            return
    pytest.fail("no case for this kernel")
