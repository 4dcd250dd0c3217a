"""Ops that reorder elements in a pattern of their own: space and depth, reversed sequences."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim
from aicore.ir.op import Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import ensure, need_rank, normalize_axis, same_dim
from aicore.ops.gradients import Given, Gradients
from aicore.ops.sizes import Movement, need_vector, unknown_shape

ORDERS = ("DCR", "CRD")


@op_class
class DepthToSpace(Movement):
    """(N, C * b * b, H, W) -> (N, C, H * b, W * b): channels become the pixels of blocks.

    mode: DCR, where the block's row and column lead in the channel's number, or CRD, where C leads.
    Source: ONNX DepthToSpace.
    """

    blocksize: int
    mode: str = "DCR"

    def infer(self, x: Value) -> Types:
        _check_blocks(self.blocksize, self.mode, x)
        if x.shape is None:
            return TensorType(x.dtype, unknown_shape(4))
        n, c, h, w = x.shape
        block = self.blocksize
        return TensorType(x.dtype, (n, _divided(c, block * block, "channels"), h * block, w * block))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (op.SpaceToDepth(grads[0], blocksize=self.blocksize, mode=self.mode),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 12, 2, 3)).astype(np.float32)
        for mode in ORDERS:
            yield Sample(DepthToSpace(2, mode), (x,), note=mode)
        yield Sample(DepthToSpace(2), (x[:0],), note="no elements")


@op_class
class SpaceToDepth(Movement):
    """(N, C, H * b, W * b) -> (N, C * b * b, H, W): the reverse of DepthToSpace. Source: ONNX SpaceToDepth."""

    blocksize: int
    mode: str = "DCR"

    def infer(self, x: Value) -> Types:
        _check_blocks(self.blocksize, self.mode, x)
        if x.shape is None:
            return TensorType(x.dtype, unknown_shape(4))
        n, c, h, w = x.shape
        block = self.blocksize
        return TensorType(x.dtype, (n, c * block * block, _divided(h, block, "rows"), _divided(w, block, "columns")))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (op.DepthToSpace(grads[0], blocksize=self.blocksize, mode=self.mode),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(2, 3, 4, 6)).astype(np.float32)
        for mode in ORDERS:
            yield Sample(SpaceToDepth(2, mode), (x,), note=mode)
        yield Sample(SpaceToDepth(2), (x[:, :0],), note="no elements")


@op_class
class ReverseSequence(Movement):
    """`x` with the first `sequence_lens[b]` steps of each batch entry b in reverse order.

    sequence_lens: int64 vector, each from 0 to the number of steps; one out of that range is an ExecutionError.
    Source: ONNX ReverseSequence.
    """

    batch_axis: int = 1
    time_axis: int = 0

    def infer(self, x: Value, sequence_lens: Value) -> Types:
        need_vector(sequence_lens, "sequence_lens")
        if x.shape is None:
            return x.type
        ensure(len(x.shape) >= 2, f"%{x.name} has rank {len(x.shape)}, wants 2 or more")
        batch, time = normalize_axis(self.batch_axis, len(x.shape)), normalize_axis(self.time_axis, len(x.shape))
        ensure(batch != time, f"axis {batch} is both batch and time")
        count = x.shape[batch] if sequence_lens.shape is None else sequence_lens.shape[0]
        ensure(same_dim(count, x.shape[batch]), f"{count} sequence lengths for a batch of {x.shape[batch]}")
        return x.type

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (op.apply(self, grads[0], inputs[1]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(4, 3, 2)).astype(np.float32)
        yield Sample(ReverseSequence(), (x, np.array([4, 1, 3], np.int64)))
        yield Sample(ReverseSequence(0, 1), (x, np.array([3, 2, 1, 0], np.int64)), note="batch first, a length of 0")
        yield Sample(ReverseSequence(-1, -2), (x, np.array([2, 3], np.int64)), note="negative axes")


def _check_blocks(blocksize: int, mode: str, x: Value) -> None:
    ensure(blocksize > 0, f"blocksize is {blocksize}, wants 1 or more")
    ensure(mode in ORDERS, f"mode is {mode!r}, wants DCR or CRD")
    need_rank(x, 4)


def _divided(dim: Dim, divisor: int, what: str) -> Dim:
    ensure(not isinstance(dim, int) or dim % divisor == 0, f"{dim} {what} are no multiple of {divisor}")
    return dim // divisor
