"""What tests of kernels share: run one kernel as the launcher would, and the reference beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Op, as_tuple, numpy_dtype
from aicore.kernels import REFERENCE, Kernel, KernelTable
from aicore.runtime.evaluate import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]
Arrays = Sequence[Array | None]
Results = tuple[Array, ...]


@pytest.fixture(scope="session")
def run_kernel() -> Callable[[Kernel, Op, Arrays], Results | str]:
    """`(kernel, op, arrays) -> results`, or the kernel's reason not to run.

    Outputs and workspace start out as rubbish, inputs are read-only, and a kernel with `out` must leave results there.
    """

    def run(kernel: Kernel, op: Op, arrays: Arrays) -> Results | str:
        builder = Builder()
        values = [None if a is None else builder.input(f"x{i}", a.dtype.name, a.shape) for i, a in enumerate(arrays)]
        results = as_tuple(builder.apply(op, *values))
        op = builder.nodes[-1].op
        types = [None if v is None else v.type for v in values]
        reason = kernel.reason_against(op, *types)
        if reason is not None:
            return reason
        options: dict[str, Any] = {}
        settings = kernel.settings[0]
        if kernel.workspace is not None:
            options["workspace"] = np.full(kernel.workspace(op, *types, **settings), 255, np.uint8)
        outputs = tuple(_rubbish(v.type.static_shape, numpy_dtype(v.dtype)) for v in results)
        options["out"] = outputs[0] if len(outputs) == 1 else outputs
        call = kernel.function if kernel.bind is None else kernel.bind(op, types, [None] * len(types), **settings)
        operands = [None if a is None else _read_only(a) for a in arrays]
        with np.errstate(all="ignore"):  # as the launcher does
            call(*([op] if kernel.bind is None else []), *operands, **options)
        return outputs

    return run


@pytest.fixture(scope="session")
def reference() -> Callable[[Op, Arrays], Results]:
    """`(op, arrays) -> results` of the reference kernels alone; of a fused op, those of its parts."""
    evaluate = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))
    return lambda op, arrays: evaluate(op, *arrays)


def _rubbish(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return np.full(shape, np.nan if dtype.kind == "f" else 77, dtype)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
