"""The choice among tiles and splits without tuning, against what every one of them took on an H200."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel
from aicore.ops.activation import Gelu, Relu
from aicore.ops.fused_linear import MatMulAdd, MatMulAddAct
from aicore.ops.matmul import Gemm, MatMul
from aicore_cuda_ge.kernels import _product_times, _tensor_tiles, products
from aicore_cuda_ge.kernels._machine import Machine

MEASURED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "products_h200.json").read_text("utf-8"))
WORST, MEAN = 1.20, 1.05
"""Of the time of the choice and that of the best; over one problem, and the geometric mean."""


@pytest.fixture(autouse=True)
def _h200(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_product_times, _tensor_tiles):
        monkeypatch.setattr(module, "machine", Machine)


def problem(case: str) -> tuple[Op, list[TensorType]]:
    """Such as `512^3`, `MatMulAdd 128x768x256` or `mlp 32x10x1024 relu`: rows x columns x inner."""
    if "^3" in case:
        size = int(case.split("^")[0])
        op: Op = Gemm(transA=1) if "transposed" in case else MatMul()
        return op, [TensorType("float32", (size, size))] * 2
    sizes = re.search(r"(\d+)x(\d+)x(\d+)", case)
    assert sizes is not None
    rows, columns, inner = map(int, sizes.groups())
    op = MatMulAdd() if case.startswith("MatMulAdd ") else MatMulAddAct(Gelu() if "Gelu" in case else Relu())
    return op, [TensorType("float32", shape) for shape in ((rows, inner), (inner, columns), (columns,))]


def kernel_of(op: Op, variant: str) -> Kernel:
    return next(k for k in products.KERNELS if k.op is type(op) and k.variant == variant)


def regret(variant: str, case: str) -> float:
    """The measured time of the setting with the least estimate, over the least measured time."""
    op, types = problem(case)
    kernel, measured = kernel_of(op, variant), MEASURED[variant][case]
    assert kernel.estimate is not None
    plans = {"/".join(map(str, settings.values())): settings for settings in kernel.settings}
    estimates = {plan: kernel.estimate(op, *types, **plans[plan]) for plan in measured if plan in plans}
    assert len(estimates) == len(measured), "a setting that was measured is gone"
    return float(measured[min(estimates, key=lambda plan: estimates[plan])] / min(measured.values()))


@pytest.mark.parametrize("variant", ["tiled", "tf32"])
def test_choices_without_tuning_are_close_to_the_best(variant: str) -> None:
    found = {case: regret(variant, case) for case in MEASURED[variant]}
    assert {case: ratio for case, ratio in found.items() if ratio > WORST} == {}
    assert np.exp(np.mean(np.log(list(found.values())))) <= MEAN


def test_large_products_turn_a_first() -> None:
    """Where the launch that turns it costs less than the tiles lose by turning it themselves; never what is turned."""
    for size, packed in ((512, False), (4096, True)):
        types = [TensorType("float32", (size, size))] * 2
        for op, pays in ((MatMul(), packed), (Gemm(transA=1), False)):
            tiled = kernel_of(op, "tiled")
            assert tiled.estimate is not None
            best = min(tiled.settings, key=lambda settings: tiled.estimate(op, *types, **settings))  # type: ignore[misc]
            assert str(best["plan"]).endswith("packed") == pays
