"""Convolutions and matrix products with what follows them in one kernel: each op is its decomposition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Namespace
from aicore.ir.op import Op, Sample
from aicore.ops.activation import Activation, Clip, HardSigmoid, HardSwish, LeakyRelu, Relu, Sigmoid, Tanh
from aicore.ops.convolution import Conv
from aicore.ops.matmul import Gemm

Array = np.ndarray[Any, Any]


@op_class
class ConvAct(Op):
    """activation(conv(x, w, b)) in one kernel."""

    conv: Conv
    activation: Activation

    def decompose(self, op: Namespace, x: Any, w: Any, b: Any = None) -> Any:
        return op.apply(self.activation, op.apply(self.conv, x, w, b))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for conv, operands in _convolutions(rng):
            for activation in (Relu(), LeakyRelu(alpha=0.2), HardSwish()):
                yield Sample(cls(conv, activation), operands, constant=_after_first(operands))


@op_class
class ScaleActConv(Op):
    """conv(activation(x * scale + shift), w, b) in one kernel, as in networks that normalise before a convolution.

    conv: with or without an activation of its own. scale, shift: one number per channel, (C, 1, ...).
    """

    activation: Activation
    conv: Conv | ConvAct

    def decompose(self, op: Namespace, x: Any, scale: Any, shift: Any, w: Any, b: Any = None) -> Any:
        return op.apply(self.conv, op.apply(self.activation, op.Add(op.Mul(x, scale), shift)), w, b)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for conv, (x, *weights) in _convolutions(rng):
            numbers = (x.shape[1],) + (1,) * (x.ndim - 2)
            operands = (x, _normal(rng, *numbers), _normal(rng, *numbers), *weights)
            for activation, inner in ((Relu(), conv), (Clip(-0.5, 0.75), ConvAct(conv, Relu()))):
                yield Sample(cls(activation, inner), operands, constant=_after_first(operands))
        x, w = _normal(rng, 1, 5, 3, 3), _normal(rng, 4, 5, 1, 1)
        scale, shift = np.zeros((5, 1, 1), np.float32), _normal(rng, 5, 1, 1)
        x[0, 1, 0, 0], x[0, 2, 1, 1], scale[3:] = np.nan, np.inf, -2
        yield Sample(cls(Relu(), Conv()), (x, scale, shift, w), constant=(1, 2, 3), note="NaN, infinity times zero")


@op_class
class ConvAdd(Op):
    """conv(x, w, b) + residual in one kernel."""

    conv: Conv

    def decompose(self, op: Namespace, x: Any, w: Any, residual: Any, b: Any = None) -> Any:
        return op.Add(op.apply(self.conv, x, w, b), residual)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for conv, operands in _residual_convolutions(rng):
            yield Sample(cls(conv), operands, constant=(1,))


@op_class
class ConvAddAct(Op):
    """activation(conv(x, w, b) + residual) in one kernel."""

    conv: Conv
    activation: Activation

    def decompose(self, op: Namespace, x: Any, w: Any, residual: Any, b: Any = None) -> Any:
        return op.apply(self.activation, op.Add(op.apply(self.conv, x, w, b), residual))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for conv, operands in _residual_convolutions(rng):
            for activation in (Relu(), Sigmoid(), HardSigmoid(alpha=0.3, beta=0.4)):
                yield Sample(cls(conv, activation), operands, constant=(1,))


@op_class
class GemmAct(Op):
    """activation(gemm(a, b, c)) in one kernel."""

    gemm: Gemm
    activation: Activation

    def decompose(self, op: Namespace, a: Any, b: Any, c: Any = None) -> Any:
        return op.apply(self.activation, op.apply(self.gemm, a, b, c))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        a, b, c = _normal(rng, 3, 4), _normal(rng, 4, 5), _normal(rng, 5)
        yield Sample(cls(Gemm(), Relu()), (a, b, c), constant=(1, 2))
        yield Sample(cls(Gemm(), LeakyRelu(alpha=0.3)), (a, b), constant=(1,), note="no c")
        scaled = Gemm(alpha=0.5, beta=2.0, transA=1, transB=1)
        yield Sample(cls(scaled, Tanh()), (_normal(rng, 4, 3), _normal(rng, 5, 4), _normal(rng, 3, 1)), note="scaled")


@op_class
class MatMulAdd(Op):
    """a @ b + bias in one kernel."""

    def decompose(self, op: Namespace, a: Any, b: Any, bias: Any) -> Any:
        return op.Add(op.MatMul(a, b), bias)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for operands in _products(rng):
            yield Sample(cls(), operands, constant=(1, 2))


@op_class
class MatMulAddAct(Op):
    """activation(a @ b + bias) in one kernel."""

    activation: Activation

    def decompose(self, op: Namespace, a: Any, b: Any, bias: Any) -> Any:
        return op.apply(self.activation, op.Add(op.MatMul(a, b), bias))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for operands in _products(rng):
            for activation in (Relu(), HardSwish()):
                yield Sample(cls(activation), operands, constant=(1, 2))


def _after_first(operands: Sequence[object]) -> tuple[int, ...]:
    return tuple(range(1, len(operands)))


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _convolutions(rng: np.random.Generator) -> Iterable[tuple[Conv, tuple[Array, ...]]]:
    """One for each way that fast kernels compute convolutions: 1x1, dense, depthwise, grouped."""
    yield Conv(), (_normal(rng, 2, 4, 5, 6), _normal(rng, 3, 4, 1, 1), _normal(rng, 3))
    yield Conv(pads=(1, 1, 1, 1), strides=(2, 1)), (_normal(rng, 2, 3, 5, 6), _normal(rng, 4, 3, 3, 3))
    yield Conv(group=4, pads=(1, 1, 1, 1)), (_normal(rng, 1, 4, 5, 6), _normal(rng, 4, 1, 3, 3), _normal(rng, 4))
    yield Conv(group=2, auto_pad="SAME_UPPER"), (_normal(rng, 1, 4, 6), _normal(rng, 6, 2, 2), _normal(rng, 6))


def _residual_convolutions(rng: np.random.Generator) -> Iterable[tuple[Conv, tuple[Array, ...]]]:
    outputs = ((2, 3, 5, 6), (2, 4, 3, 6), (1, 4, 5, 6), (1, 6, 6))
    for (conv, (x, w, *bias)), shape in zip(_convolutions(rng), outputs, strict=True):
        yield conv, (x, w, _normal(rng, *shape), *bias)
    pixels = _normal(rng, 3, 4, 1, 1), _normal(rng, 5, 4, 1, 1), _normal(rng, 3, 5, 1, 1), _normal(rng, 5)
    yield Conv(), pixels
    conv, (x, w, *bias) = next(iter(_convolutions(rng)))
    yield conv, (x, w, _normal(rng, 1, 3, 1, 6), *bias)  # broadcast


def _products(rng: np.random.Generator) -> Iterable[tuple[Array, ...]]:
    yield _normal(rng, 3, 4), _normal(rng, 4, 5), _normal(rng, 5)
    yield _normal(rng, 2, 3, 4), _normal(rng, 4, 5), _normal(rng, 5)
    yield _normal(rng, 2, 3, 4), _normal(rng, 2, 4, 5), _normal(rng, 3, 1)
    yield _normal(rng, 3, 4), _normal(rng, 4, 5), _normal(rng, 2, 3, 5)  # the sum is larger than the product
