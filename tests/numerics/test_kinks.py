"""What is allowed where an activation at the end of a fused op bends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Op
from aicore.kernels import REFERENCE, KernelTable
from aicore.numerics import expect
from aicore.numerics.kinks import before_activation
from aicore.ops.activation import Activation, Clip, LeakyRelu, Relu
from aicore.ops.arithmetic import Add, Mul
from aicore.ops.convolution import Conv
from aicore.ops.elementwise import Neg
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct, GemmAct, MatMulAdd, MatMulAddAct, ScaleActConv
from aicore.ops.fused_pointwise import Region
from aicore.ops.layout import ChannelsLast
from aicore.ops.matmul import Gemm
from aicore.runtime import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]
EVALUATE = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))
ROUNDOFF = 2.0**-24
NEAR, FAR = -1e-8, -5.0
"""Sums below the bend of Relu: by less than their rounding, and by far."""


def sums(start: float) -> tuple[Array, ...]:
    """Operands of a product whose two sums, of terms near 1, are start + NEAR and start + FAR."""
    b = np.array([[1, 1], [-1, -1], [NEAR, FAR], [start, start]], np.float32)
    return np.ones((1, 4), np.float32), b, np.zeros(2, np.float32)


def float32(*numbers: float) -> Array:
    return np.array([numbers], np.float32)


def off(op: Op, operands: tuple[Array, ...], *errors: float) -> str:
    """What is said of the exact results, each with an error."""
    expected = expect(EVALUATE, op, operands, ["float32"])
    return expected.fault([(expected.arrays[0].reshape(-1) + errors).astype(np.float32).reshape(1, -1)])


@pytest.mark.parametrize("kind", ["product", "gemm", "region"])
def test_a_sum_just_below_relu_may_come_out_above(kind: str) -> None:
    """Four terms as large as 1 may be off by a few roundings of 2**-24; Relu hides none of that beside its bend."""
    a, b, c = sums(0.0)
    cases: dict[str, tuple[Op, tuple[Array, ...]]] = {
        "product": (MatMulAddAct(Relu()), (a, b, c)),
        "gemm": (GemmAct(Gemm(), Relu()), (a, b, c)),
        "region": (region(Relu()), (float32(1, 1), float32(1, 1), float32(-1 - 6e-8, -5))),
    }
    op, operands = cases[kind]
    expected = expect(EVALUATE, op, operands, ["float32"])
    np.testing.assert_array_equal(expected.arrays[0], [[0, 0]])
    near, far = expected.allowed[0][0]
    assert 4 * ROUNDOFF < near < 400 * ROUNDOFF
    assert far < 1e-37
    assert not off(op, operands, 2.2e-7, 0)
    assert "[0, 0]" in off(op, operands, 1e-4, 0)
    assert "[0, 1]" in off(op, operands, 0, 2.2e-7)


@pytest.mark.parametrize(
    ("activation", "start", "slopes"),
    [
        (Relu(), 0.0, (0, 1)),
        (LeakyRelu(alpha=0.25), 0.0, (0.25, 1)),
        (Clip(max=1.0), 1.0, (1, 0)),
        (Clip(-2.0, 2.0), -2.0, (0, 1)),
    ],
    ids=str,
)
def test_bends_pass_on_the_larger_slope(activation: Activation, start: float, slopes: tuple[float, float]) -> None:
    """By hand: the bound of the sum before the activation, less the way to the bend, times the slope behind it."""
    operands = sums(start)
    before = expect(EVALUATE, MatMulAddAct(LeakyRelu(alpha=1.0)), operands, ["float32"])  # a line through everything
    error, given = float(before.allowed[0][0, 0]), start + float(np.float32(NEAR))
    below, above = slopes
    wanted = max(below * error, below * abs(given - start) + above * (error - abs(given - start)))
    allowed = float(expect(EVALUATE, MatMulAddAct(activation), operands, ["float32"]).allowed[0][0, 0])
    assert 0.9 * wanted < allowed < 1.1 * wanted  # activations count different numbers of roundings


def region(activation: Op) -> Region:
    """activation(x * y + z)"""
    op = Builder()
    x, y, z = (op.input(name, "float32", (1, 2)) for name in "xyz")
    return Region(op.graph([x, y, z], {"r": op.apply(activation, op.apply(Add(), op.apply(Mul(), x, y), z))}))


def test_what_comes_before() -> None:
    conv, relu = Conv(), Relu()
    assert before_activation(ConvAct(conv, relu)) == (conv, relu)
    assert before_activation(ConvAddAct(conv, relu)) == (ConvAdd(conv), relu)
    assert before_activation(GemmAct(Gemm(alpha=2.0), relu)) == (Gemm(alpha=2.0), relu)
    assert before_activation(MatMulAddAct(relu)) == (MatMulAdd(), relu)
    assert before_activation(ChannelsLast(ConvAct(conv, relu), 3)) == (ChannelsLast(conv, 3), relu)
    held = ScaleActConv(LeakyRelu(), ConvAct(conv, relu))
    assert before_activation(held) == (ScaleActConv(LeakyRelu(), conv), relu)
    found = before_activation(region(relu))
    assert found is not None
    x = float32(3, 4)
    np.testing.assert_array_equal(EVALUATE(found[0], x, x, -x), (x * x - x)[None])
    for none in (conv, MatMulAdd(), ScaleActConv(relu, conv), ChannelsLast(conv), region(Neg())):
        assert before_activation(none) is None
