"""DotProductAttention against its formula, and what its layouts must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder
from aicore.kernels import KernelTable
from aicore.ops.attention import DotProductAttention
from aicore.runtime import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels

evaluate = ReferenceEvaluator(KernelTable(all_kernels()))


def test_formula_of_two_parts_in_another_order() -> None:
    rng = np.random.default_rng(0)
    q, packed = rng.standard_normal((2, 3, 4, 8)), rng.standard_normal((2, 5, 2, 3, 8))  # b h l d, b l p h d
    keys, values = packed[:, :, 1].transpose(0, 2, 1, 3), packed[:, :, 0].transpose(0, 2, 1, 3)
    powers = np.exp(0.3 * q @ keys.swapaxes(-1, -2))
    wanted = (powers / powers.sum(-1, keepdims=True)) @ values
    op = DotProductAttention(0.3, "bhld", "blphd", "blphd", "lbhd", (0, 1, 0))
    (found,) = evaluate(op, q, packed, packed)
    np.testing.assert_allclose(found, wanted.transpose(2, 0, 1, 3), rtol=1e-12)


@pytest.mark.parametrize(
    ("attributes", "shapes", "message"),
    [
        ({"y_layout": "bhd"}, ((1, 1, 2, 3),) * 3, "names no such axes"),
        ({"y_layout": "bhldd"}, ((1, 1, 2, 3),) * 3, "names an axis twice"),
        ({"k_layout": "hld"}, ((1, 1, 2, 3), (1, 2, 3), (1, 1, 2, 3)), "has not the axes of y"),
        ({"q_layout": "ppbhld"}, ((1, 1, 1, 1, 2, 3), (1, 1, 2, 3), (1, 1, 2, 3)), "has not the axes of y"),
        ({}, ((1, 1, 2, 3), (1, 2, 3), (1, 1, 2, 3)), "is no tensor with the axes 'bhld'"),
        ({"parts": (0, 0)}, ((1, 1, 2, 3),) * 3, "wants one for each of q, k and v"),
        ({"q_layout": "pbhld", "parts": (2, 0, 0)}, ((2, 1, 1, 2, 3), (1, 1, 2, 3), (1, 1, 2, 3)), "out of range"),
    ],
)
def test_what_does_not_fit(attributes: dict[str, Any], shapes: Any, message: str) -> None:
    builder = Builder()
    operands = [builder.input(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)]
    with pytest.raises(InferenceError, match=message):
        builder.apply(DotProductAttention(**attributes), *operands)
