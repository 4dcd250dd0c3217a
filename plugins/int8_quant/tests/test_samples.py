"""Every sample of the plugin's ops gives the same on its kernel as on the standard ops that it stands for."""

from __future__ import annotations

import numpy as np
import pytest

from aicore.ir import Builder, Sample
from aicore.kernels import REFERENCE, KernelTable
from aicore.runtime import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels
from aicore_int8_quant.kernels import KERNELS
from aicore_int8_quant.ops import OPS, WeightOnlyMatMul

REFERENCES = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))
BY_OP = {k.op: k for k in KERNELS}
SAMPLES = [(cls, sample) for cls in OPS for sample in cls.samples(np.random.default_rng(0))]


@pytest.mark.parametrize(("cls", "sample"), SAMPLES, ids=[f"{c.__name__}-{s.note}" for c, s in SAMPLES])
@pytest.mark.parametrize("bound", [False, True], ids=["operands", "constants"])
def test_kernel_gives_what_the_decomposition_gives(cls: type, sample: Sample, bound: bool) -> None:
    builder = Builder()
    values = [None if a is None else builder.input("x", a.dtype.name, a.shape) for a in sample.inputs]
    y = builder.apply(sample.op, *values)
    op, kernel = builder.nodes[-1].op, BY_OP[cls]
    types = [None if v is None else v.type for v in values]
    assert kernel.reason_against(op, *types) is None
    out = np.full(y.type.static_shape, 77, y.dtype)
    options = {} if kernel.workspace is None else {"workspace": np.full(kernel.workspace(op, *types), 255, np.uint8)}
    constants = [a if bound and i in sample.constant else None for i, a in enumerate(sample.inputs)]
    with np.errstate(all="ignore"):
        if kernel.bind is None:
            kernel.function(op, *sample.inputs, out=out, **options)
        else:
            kernel.bind(op, types, constants)(*sample.inputs, out=out, **options)
    (expected,) = REFERENCES(op, *sample.inputs)
    assert out.dtype == expected.dtype
    if cls is WeightOnlyMatMul:  # sums in another order
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)
    else:
        np.testing.assert_array_equal(out, expected)
