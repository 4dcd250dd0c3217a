"""Normalisations with what comes before or behind them in one kernel: each op is its decomposition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Namespace
from aicore.ir.op import Op, Sample
from aicore.ops._pointwise import SPECIAL, floats
from aicore.ops.activation import Relu
from aicore.ops.normalization import BatchNormalization, LayerNormalization, RMSNormalization


@op_class
class AddNormalization(Op):
    """normalization(a + b, scale, bias) in one kernel, as after the residual of a transformer's layer."""

    normalization: LayerNormalization | RMSNormalization

    def n_outputs(self) -> int:
        return self.normalization.n_outputs()

    def decompose(self, op: Namespace, a: Any, b: Any, scale: Any, bias: Any = None) -> Any:
        return op.apply(self.normalization, op.Add(a, b), scale, bias)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        a, b, scale, bias = floats(rng, (2, 3, 5)), floats(rng, (2, 3, 5)), floats(rng, (5,)), floats(rng, (5,))
        layer = cls(LayerNormalization(axis=2))
        yield Sample(layer, (a, b, scale, bias), constant=(2, 3), note="constant parameters")
        yield Sample(layer, (a, b, scale), note="no bias")
        yield Sample(layer, (a, floats(rng, (3, 1)), scale, bias), note="broadcast")
        yield Sample(cls(RMSNormalization(axis=2, epsilon=0.1)), (a, b, scale), note="root mean square")
        yield Sample(layer, (a + 1000, b, scale, bias), note="a large mean")
        yield Sample(layer, (a[:0], b[:0], scale, bias), note="zero size")
        special = np.stack([SPECIAL, floats(rng, (7,))])
        flat = cls(replace(layer.normalization, axis=1))
        yield Sample(flat, (special, special[::-1].copy(), floats(rng, (7,))), note="NaN, infinity")


@op_class
class AddNormalizationSum(Op):
    """normalization(a + b, scale, bias) and a + b itself in one kernel, for a residual that is read again."""

    normalization: LayerNormalization | RMSNormalization

    def n_outputs(self) -> int:
        return 2

    def decompose(self, op: Namespace, a: Any, b: Any, scale: Any, bias: Any = None) -> Any:
        total = op.Add(a, b)
        return op.apply(self.normalization, total, scale, bias), total

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        """Those of AddNormalization, and rows too long to be kept in registers."""
        for sample in AddNormalization.samples(rng):
            if isinstance(sample.op, AddNormalization):
                yield replace(sample, op=cls(sample.op.normalization))
        a, b, scale = floats(rng, (2, 2100)), floats(rng, (2, 2100)), floats(rng, (2100,))
        yield Sample(cls(LayerNormalization(axis=1)), (a, b, scale), note="long rows")


@op_class
class BatchNormalizationAct(Op):
    """activation(y), of a BatchNormalization in training with all its results, in one kernel.

    epsilon, momentum: of the BatchNormalization. The other results are its, `statistics` included.
    """

    epsilon: float
    momentum: float
    activation: Relu

    def n_outputs(self) -> int:
        return 5

    def decompose(self, op: Namespace, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        how = {"epsilon": self.epsilon, "momentum": self.momentum, "training_mode": 1, "statistics": True}
        y, *others = op.BatchNormalization(x, scale, bias, mean, variance, **how)
        return op.apply(self.activation, y), *others

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        """Those of BatchNormalization in training, and NaN in one channel, which is no 0."""
        for sample in BatchNormalization.samples(rng):
            op = sample.op
            if isinstance(op, BatchNormalization) and op.training_mode:
                yield replace(sample, op=cls(op.epsilon, op.momentum, Relu()))
        x, c = np.concatenate([SPECIAL.reshape(1, 1, 7), floats(rng, (1, 1, 7))], 1), (2,)
        operands = x, floats(rng, c), floats(rng, c), floats(rng, c), floats(rng, c, 0.1, 2.0)
        yield Sample(cls(1e-5, 0.9, Relu()), operands, note="NaN in one channel")
