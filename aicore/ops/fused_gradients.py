"""Gradients of two ops in a row in one kernel: each op is its decomposition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Namespace
from aicore.ir.op import Op, Sample
from aicore.ops.pooling_grad import MaxPoolGrad


@op_class
class MaxPoolReluGrad(Op):
    """pool(x, dy), and 0 where x is not above 0, in one kernel: back through MaxPool, and the Relu that gave x.

    NaN is no number that Relu has cut: its gradient remains.
    """

    pool: MaxPoolGrad

    def decompose(self, op: Namespace, x: Any, dy: Any) -> Any:
        zero = op.scalar(0.0, x)
        return op.Where(op.LessOrEqual(x, zero), zero, op.apply(self.pool, x, dy))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        """Those of MaxPoolGrad; some x as Relu leaves them, with windows of zeros."""
        for sample in MaxPoolGrad.samples(rng):
            assert isinstance(sample.op, MaxPoolGrad)  # each sample is one of its own class
            x, dy = sample.inputs
            assert x is not None
            yield replace(sample, op=cls(sample.op))
            cut = np.maximum(x - x.dtype.type(0.5), 0)
            yield replace(sample, op=cls(sample.op), inputs=(cut, dy), note=f"{sample.note}, behind a Relu")
