"""One small case for each kernel of the plugin, through the public API: short enough for a memory checker.

compute-sanitizer --tool memcheck python -m pytest plugins/cuda_ge/tests -m sanitize
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import AicoreError
from aicore.ir import Sample, TensorType
from aicore.kernels import REFERENCE, Kernel, KernelTable
from aicore.numerics import expect
from aicore.ops.activation import Relu
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.convolution_grad import ConvWeightGrad
from aicore.ops.fused_gradients import MaxPoolReluGrad
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import AveragePool, MaxPool
from aicore.ops.pooling_grad import AveragePoolGrad, MaxPoolGrad
from aicore.ops.resize import Resize
from aicore.runtime import ReferenceEvaluator
from aicore.testing.cases import Case, conformance_cases
from aicore_cpu_numpy.kernels import all_kernels as cpu_kernels
from aicore_cuda_ge.kernels import _dnn as dnn
from aicore_cuda_ge.kernels import all_kernels

Array = np.ndarray[Any, Any]
TARGET = "cuda:0"

IMAGES = np.linspace(-2, 2, 2 * 9 * 7 * 8, dtype=np.float32).reshape(2, 9, 7, 8)
WEIGHTS = np.linspace(-1, 1, 8 * 8 * 9, dtype=np.float32).reshape(8, 8, 3, 3)
CONV = Conv(pads=(1, 1, 1, 1))
POOL: dict[str, Any] = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
POOLED = np.linspace(-1, 1, 2 * 5 * 4 * 8, dtype=np.float32).reshape(2, 5, 4, 8)
FIRST = np.ascontiguousarray(np.moveaxis(IMAGES, -1, 1))
TRANSPOSED = ConvTranspose(strides=(2, 1), pads=(1, 1, 1, 1))
WEIGHT_GRADIENT = ConvWeightGrad(kernel_shape=(3, 3), pads=(1, 1, 1, 1))
SAMPLES: dict[str, Sample] = {
    "ChannelsLast-maxpoolgrad_rows": Sample(ChannelsLast(MaxPoolGrad(**POOL)), (IMAGES, POOLED)),
    "ChannelsLast-maxpoolrelugrad_rows": Sample(ChannelsLast(MaxPoolReluGrad(MaxPoolGrad(**POOL))), (IMAGES, POOLED)),
    "ChannelsLast-averagepoolgrad_rows": Sample(ChannelsLast(AveragePoolGrad(**POOL, shape=(9, 7))), (POOLED,)),
    "ConvTranspose-convtranspose_implicit": Sample(TRANSPOSED, (FIRST, WEIGHTS)),
    "ChannelsLast-convtranspose_implicit": Sample(ChannelsLast(TRANSPOSED), (IMAGES, WEIGHTS)),
    "ConvWeightGrad-convweightgrad_tiled": Sample(WEIGHT_GRADIENT, (FIRST, FIRST)),
    "ChannelsLast-convweightgrad_tiled": Sample(ChannelsLast(WEIGHT_GRADIENT), (IMAGES, IMAGES)),
    "ConvWeightGrad-convweightgrad_tiled-channels": Sample(WEIGHT_GRADIENT, (FIRST[:, :3].copy(), FIRST)),
    "ChannelsLast-convweightgrad_tiled-channels": Sample(
        ChannelsLast(WEIGHT_GRADIENT), (IMAGES[..., :3].copy(), IMAGES)
    ),
    "ChannelsLast-maxpool_rows": Sample(ChannelsLast(MaxPool(**POOL)), (IMAGES,)),
    "ChannelsLast-averagepool_rows": Sample(ChannelsLast(AveragePool(**POOL)), (IMAGES,)),
    "Resize-resize_copy": Sample(Resize(scales=(1.0, 2.0, 3.0, 1.0)), (IMAGES,)),
    **{
        f"ChannelsLast-{type(held).__name__.lower()}_{variant}": Sample(ChannelsLast(held), operands)
        for variant in ("cudnn_fft", "cudnn_winograd")
        for held, operands in (
            (ConvAct(CONV, Relu()), (IMAGES, WEIGHTS)),
            (ConvAdd(CONV), (IMAGES, WEIGHTS, IMAGES)),
            (ConvAddAct(CONV, Relu()), (IMAGES, WEIGHTS, IMAGES, WEIGHTS[:, 0, 0, 0].copy())),
        )
    },
}
"""For kernels that take none of their op's own samples."""


def identity(kernel: Kernel) -> str:
    return f"{kernel.op.__name__}-{kernel.name}"


def lacks_library(kernel: Kernel) -> bool:
    return kernel.variant.startswith("cudnn") and not dnn.library_path()


def first_case(kernel: Kernel) -> Case | None:
    """The first case with elements that the kernel takes, of whichever element type."""
    name, own = kernel.op.__name__, SAMPLES.get(identity(kernel))
    cases = conformance_cases({name: kernel.op}) if own is None else [Case(name, 0, own, "float32", "plain")]
    return next((case for case in cases if case.kind != "empty" and takes(kernel, case)), None)


def takes(kernel: Kernel, case: Case) -> bool:
    held = getattr(case.sample.op, "inner", None)
    if kernel.wraps is not None and type(held) is not kernel.wraps:
        return False
    try:
        node = case.node()
    except AicoreError:
        return False  # an edge case that means nothing to the op
    types: Iterator[TensorType | None] = (None if v is None else v.type for v in node.inputs)
    return kernel.reason_against(node.op, *types) is None


@pytest.fixture(scope="module")
def evaluate() -> ReferenceEvaluator:
    return ReferenceEvaluator(KernelTable(k for k in cpu_kernels() if k.variant == REFERENCE))


def test_every_kernel_has_a_case() -> None:
    """Needs no GPU. A kernel that none of its op's samples reaches gets one in SAMPLES, which names no others."""
    kernels = {identity(kernel): kernel for kernel in all_kernels()}
    found = {name for name, kernel in kernels.items() if lacks_library(kernel) or first_case(kernel) is not None}
    assert set(kernels) - found == set()
    assert set(SAMPLES) <= set(kernels)


@pytest.mark.gpu
@pytest.mark.sanitize
@pytest.mark.parametrize("kernel", all_kernels(), ids=identity)
def test_kernel(kernel: Kernel, evaluate: ReferenceEvaluator) -> None:
    if lacks_library(kernel):
        pytest.skip(dnn.MISSING)
    case = first_case(kernel)
    assert case is not None
    node, feeds = case.node(), case.feeds()
    precision: Any = kernel.precision or "float32"
    program = aicore.compile(
        case.graph(),
        TARGET,
        fallback="error",
        optimize=False,
        tune="off",
        precision=precision,
        kernels={kernel.op.__name__: kernel.variant},
    )
    results = list(program.run(feeds).values())
    operands = [None if v is None else feeds[v.name] if v.constant is None else v.constant.array for v in node.inputs]
    fault = expect(evaluate, node.op, operands, [value.dtype for value in node.outputs], precision).fault(results)
    assert not fault, f"{kernel.name} on {case.id}: {fault}"
    if not program.steps_run:
        assert node.op.alias, "nothing ran on the device"
        pytest.skip("plans launch nothing for an op that only renames bytes")
