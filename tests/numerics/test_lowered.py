"""What a result may be off by where factors of products are rounded to tf32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.ir import Op
from aicore.kernels import REFERENCE, KernelTable
from aicore.numerics import expect
from aicore.numerics.lowered import error_of_lowered_factors
from aicore.ops.activation import Gelu, Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAddAct, GemmAct, MatMulAddAct
from aicore.ops.layout import ChannelsLast
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.normalization import LayerNormalization
from aicore.runtime import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]
EVALUATE = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))
UNIT = 2.0**-11


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def as_tf32(array: Array) -> Array:
    bits = array.view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def test_error_of_a_product() -> None:
    """By hand: |a| @ |b| times what two factors are off by."""
    a, b = normal(3, 40).astype(np.float64), normal(40, 5).astype(np.float64)
    (error,) = error_of_lowered_factors(EVALUATE, MatMul(), (a, b), "tf32")
    np.testing.assert_allclose(error, 2 * UNIT * (2 + UNIT) * (np.abs(a) @ np.abs(b)), rtol=1e-8)


def test_activations_pass_the_error_on() -> None:
    """None where a ReLU is shut by far; all of it where it is open by far."""
    a, b = np.ones((1, 8)), np.tile([[1.0, -1.0]], (8, 1))
    (error,) = error_of_lowered_factors(EVALUATE, GemmAct(Gemm(), Relu()), (a, b, None), "tf32")
    np.testing.assert_allclose(error, [[2 * UNIT * (2 + UNIT) * 8, 0.0]], rtol=1e-9)


@pytest.mark.parametrize(
    ("op", "shapes", "factors"),
    [
        (MatMul(), ((30, 200), (200, 40)), 2),
        (GemmAct(Gemm(alpha=0.5, beta=2.0), Gelu()), ((30, 200), (200, 40), (40,)), 2),
        (MatMulAddAct(Gelu()), ((2, 30, 200), (200, 40), (40,)), 2),
        (ConvAddAct(Conv(pads=(1, 1, 1, 1)), Relu()), ((1, 16, 9, 9), (24, 16, 3, 3), (1, 24, 9, 9), (24,)), 2),
        (ChannelsLast(ConvAddAct(Conv(), Gelu())), ((1, 9, 9, 16), (24, 16, 1, 1), (1, 9, 9, 24), (24,)), 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_rounded_factors_are_within_what_is_allowed(op: Op, shapes: Any, factors: int) -> None:
    """They are; factors with three digits less are not, nor are these without the permission."""
    from aicore.ir import Value
    from aicore.runtime import type_of

    operands = tuple(normal(*shape) for shape in shapes)
    op = op.resolve(*(Value("x", type_of(a)) for a in operands))

    def with_factors(change: Any) -> Array:
        changed = [change(a) if i < factors else a for i, a in enumerate(operands)]
        result: Array = EVALUATE(op, *(a.astype(np.float64) for a in changed))[0].astype(np.float32)
        return result

    allowed = expect(EVALUATE, op, operands, ["float32"], "tf32")
    assert not allowed.fault([with_factors(as_tf32)])
    assert allowed.fault([with_factors(lambda a: (a * (1 + 2.0**-5)).astype(np.float32))])
    assert expect(EVALUATE, op, operands, ["float32"]).fault([with_factors(as_tf32)])


def test_ops_without_products_are_allowed_nothing_more() -> None:
    operands = (normal(4, 8), normal(8), normal(8))
    strict = expect(EVALUATE, LayerNormalization(), operands, ["float32"])
    lowered = expect(EVALUATE, LayerNormalization(), operands, ["float32"], "tf32")
    np.testing.assert_array_equal(strict.allowed[0], lowered.allowed[0])
