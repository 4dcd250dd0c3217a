"""Ops on tensors whose channels come last, (N, ..., C) instead of ONNX's (N, C, ...)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Namespace
from aicore.ir.op import Op, Sample
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct, ScaleActConv
from aicore.ops.normalization import LRN, InstanceNormalization
from aicore.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, LpPool, MaxPool
from aicore.ops.rearrange import DepthToSpace, SpaceToDepth

Array = np.ndarray[Any, Any]
Perm = tuple[int, ...]


def channels_last(rank: int) -> Perm:
    """The permutation from (N, C, ...) to (N, ..., C)."""
    return (0, *range(2, rank), 1)


def channels_first(rank: int) -> Perm:
    """The permutation from (N, ..., C) to (N, C, ...)."""
    return (0, rank - 1, *range(1, rank - 1))


IMAGES: dict[type[Op], tuple[int, ...]] = {ConvAdd: (0, 2), ConvAddAct: (0, 2)}
"""Operands that are images; of other ops that ChannelsLast may hold it is the first alone."""


IMAGE_OPS: frozenset[type[Op]] = frozenset(
    {
        *(Conv, ConvAct, ConvAdd, ConvAddAct, ScaleActConv, ConvTranspose),
        *(MaxPool, AveragePool, LpPool, GlobalAveragePool, GlobalMaxPool),
        *(InstanceNormalization, LRN, DepthToSpace, SpaceToDepth),
    }
)
"""Ops with one result that know which axis holds the channels."""

FOLLOWERS: frozenset[type[Op]] = frozenset({GlobalAveragePool, GlobalMaxPool})
"""Those of IMAGE_OPS that are no faster with channels last, and so are no reason to transpose an image."""


def images_of(inner: Op) -> tuple[int, ...]:
    """Indices of the operands that are images, and so have their channels last; others, such as weights, stay."""
    told: tuple[int, ...] = getattr(type(inner), "images", (0,))
    return IMAGES.get(type(inner), told)


def knows_channels(op: Op) -> bool:
    """Whether ChannelsLast may hold the op: one of IMAGE_OPS, or of a plugin that says which `images` it takes."""
    return type(op) in IMAGE_OPS or hasattr(type(op), "images")


@op_class
class ChannelsLast(Op):
    """What `inner` computes, with the channels of its images and of its one result last.

    Fields of `inner` such as pads and strides keep their meaning: they speak of spatial axes in order. A backend that
    has no kernel for it gets `inner` between two transposes, which is its decomposition.

    inner: an op of images, (N, C, ...) -> (N, C, ...).
    rank: of the images.
    """

    inner: Op
    rank: int = 4

    def resolve(self, *operands: Value | None) -> Op:
        """With defaults of `inner` filled in, as it would fill them in itself."""
        images = images_of(self.inner)
        moved = [_with_channels_first(x, self.rank) if i in images else x for i, x in enumerate(operands)]
        inner = self.inner.resolve(*moved)
        return self if inner is self.inner else replace(self, inner=inner)

    def decompose(self, op: Namespace, *operands: Any) -> Any:
        images = images_of(self.inner)
        moved = [
            op.Transpose(x, perm=channels_first(self.rank)) if i in images and x is not None else x
            for i, x in enumerate(operands)
        ]
        return op.Transpose(op.apply(self.inner, *moved), perm=channels_last(self.rank))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for held in sorted(IMAGE_OPS, key=lambda cls: cls.__name__):
            for sample in held.samples(rng):
                if sample.op.n_outputs() == 1 and sample.inputs[0] is not None and sample.inputs[0].ndim > 2:
                    yield _with_channels_last(sample)


def _with_channels_first(x: Value | None, rank: int) -> Value | None:
    """A stand-in for the transposed value, which is all that defaults may depend on."""
    if x is None or x.shape is None or len(x.shape) != rank:
        return x
    return Value(x.name, TensorType(x.dtype, tuple(x.shape[axis] for axis in channels_first(rank))))


def _with_channels_last(sample: Sample) -> Sample:
    first = sample.inputs[0]
    assert first is not None  # the caller saw to it
    rank, images = first.ndim, images_of(sample.op)
    inputs = tuple(
        np.ascontiguousarray(x.transpose(channels_last(rank))) if i in images and x is not None else x
        for i, x in enumerate(sample.inputs)
    )
    note = f"{type(sample.op).__name__} {sample.note}".strip()
    return Sample(ChannelsLast(sample.op, rank), inputs, sample.constant, note)
