"""Fused convolutions and products: type, cost and refusals follow from the decomposition."""

from __future__ import annotations

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder, Op
from aicore.ops.activation import Clip, Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct, GemmAct, MatMulAdd, MatMulAddAct, ScaleActConv
from aicore.ops.matmul import Gemm

FUSED = [ConvAct, ScaleActConv, ConvAdd, ConvAddAct, GemmAct, MatMulAdd, MatMulAddAct]


@pytest.mark.parametrize(
    ("op", "shapes", "kinds"),
    [
        (ConvAct(Conv(), Relu()), ((1, 3, 8, 8), (4, 3, 3, 3), (4,)), ["Conv", "Relu"]),
        (ConvAct(Conv(), Clip(0.0, 6.0)), ((1, 3, 8, 8), (4, 3, 3, 3)), ["Conv", "Clip"]),
        (
            ScaleActConv(Relu(), Conv()),
            ((1, 3, 8, 8), (3, 1, 1), (3, 1, 1), (4, 3, 1, 1)),
            ["Mul", "Add", "Relu", "Conv"],
        ),
        (
            ScaleActConv(Clip(0.0, 6.0), ConvAct(Conv(), Relu())),
            ((1, 3, 8, 8), (3, 1, 1), (3, 1, 1), (4, 3, 3, 3), (4,)),
            ["Mul", "Add", "Clip", "ConvAct"],
        ),
        (ConvAdd(Conv()), ((1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 6, 6), (4,)), ["Conv", "Add"]),
        (ConvAddAct(Conv(), Relu()), ((1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 6, 6)), ["Conv", "Add", "Relu"]),
        (GemmAct(Gemm(transB=1), Relu()), ((2, 3), (4, 3), (4,)), ["Gemm", "Relu"]),
        (MatMulAdd(), ((2, 5, 3), (3, 4), (4,)), ["MatMul", "Add"]),
        (MatMulAddAct(Relu()), ((2, 3), (3, 4), (4,)), ["MatMul", "Add", "Relu"]),
    ],
)
def test_a_fused_op_is_its_parts(op: Op, shapes: tuple[tuple[int, ...], ...], kinds: list[str]) -> None:
    builder, parts = Builder(), Builder()
    operands = [builder.input(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)]
    fused = builder.apply(op, *operands)
    result = op.decompose(parts, *operands)
    assert [type(node.op).__name__ for node in parts.nodes] == kinds
    assert fused.type == result.type
    flops, moved = op.cost(*operands)
    assert flops == sum(node.op.cost(*node.inputs)[0] for node in parts.nodes)
    assert moved == fused.type.nbytes + sum(v.type.nbytes for v in operands)


@pytest.mark.parametrize("cls", FUSED)
def test_samples_infer(cls: type[Op]) -> None:
    for sample in cls.samples(np.random.default_rng(0)):
        builder = Builder()
        operands = [builder.input(f"x{i}", "float32", a.shape) for i, a in enumerate(sample.inputs) if a is not None]
        assert builder.apply(sample.op, *operands).type.is_static


def test_an_error_names_the_fused_op() -> None:
    builder = Builder()
    x, w = builder.input("x", "float32", (1, 3, 8, 8)), builder.input("w", "float32", (4, 2, 3, 3))
    with pytest.raises(InferenceError, match=r"ConvAct 'convact'.*3 channels"):
        builder.apply(ConvAct(Conv(), Relu()), x, w)
