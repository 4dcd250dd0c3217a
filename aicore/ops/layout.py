"""Ops on tensors whose channels come last, (N, ..., C) instead of ONNX's (N, C, ...)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Namespace
from aicore.ir.op import Op, Sample, as_tuple
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.convolution_grad import ConvWeightGrad
from aicore.ops.fused_gradients import MaxPoolReluGrad
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct, ScaleActConv
from aicore.ops.fused_normalization import BatchNormalizationAct
from aicore.ops.normalization import LRN, BatchNormalization, InstanceNormalization
from aicore.ops.normalization_grad import BatchNormalizationGrad
from aicore.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, LpPool, MaxPool
from aicore.ops.pooling_grad import AveragePoolGrad, MaxPoolGrad
from aicore.ops.rearrange import DepthToSpace, SpaceToDepth

Array = np.ndarray[Any, Any]
Perm = tuple[int, ...]


def channels_last(rank: int) -> Perm:
    """The permutation from (N, C, ...) to (N, ..., C)."""
    return (0, *range(2, rank), 1)


def channels_first(rank: int) -> Perm:
    """The permutation from (N, ..., C) to (N, C, ...)."""
    return (0, rank - 1, *range(1, rank - 1))


IMAGES: dict[type[Op], tuple[int, ...]] = {
    ConvAdd: (0, 2),
    ConvAddAct: (0, 2),
    ConvWeightGrad: (0, 1),
    MaxPoolGrad: (0, 1),
    MaxPoolReluGrad: (0, 1),
    BatchNormalizationGrad: (0, 4),
}
"""Operands that are images; of other ops that ChannelsLast may hold it is the first alone."""

IMAGE_RESULTS: dict[type[Op], tuple[int, ...]] = {
    ConvWeightGrad: (),
    BatchNormalization: (0,),
    BatchNormalizationAct: (0,),
    BatchNormalizationGrad: (0,),
}
"""Results that are images; other ops have one result, which is one."""


IMAGE_OPS: frozenset[type[Op]] = frozenset(
    {
        *(Conv, ConvAct, ConvAdd, ConvAddAct, ScaleActConv, ConvTranspose),
        *(MaxPool, AveragePool, LpPool, GlobalAveragePool, GlobalMaxPool),
        *(ConvWeightGrad, MaxPoolGrad, MaxPoolReluGrad, AveragePoolGrad),
        *(BatchNormalization, BatchNormalizationAct, BatchNormalizationGrad),
        *(InstanceNormalization, LRN, DepthToSpace, SpaceToDepth),
    }
)
"""Ops that know which axis holds the channels."""

FOLLOWERS: frozenset[type[Op]] = frozenset(
    {GlobalAveragePool, GlobalMaxPool, BatchNormalization, BatchNormalizationAct, BatchNormalizationGrad}
)
"""Those of IMAGE_OPS that are no faster with channels last, and so are no reason to transpose an image."""


def images_of(inner: Op) -> tuple[int, ...]:
    """Indices of the operands that are images, and so have their channels last; others, such as weights, stay."""
    told: tuple[int, ...] = getattr(type(inner), "images", (0,))
    return IMAGES.get(type(inner), told)


def image_results_of(inner: Op) -> tuple[int, ...]:
    """Indices of the results that are images."""
    return IMAGE_RESULTS.get(type(inner), (0,))


def knows_channels(op: Op) -> bool:
    """Whether ChannelsLast may hold the op: one of IMAGE_OPS, or of a plugin that says which `images` it takes.

    A BatchNormalization by given statistics is left to the passes that fold it, and to pointwise ops.
    """
    if isinstance(op, BatchNormalization):
        return bool(op.training_mode)
    one = op.n_outputs() == 1 or type(op) in IMAGE_RESULTS
    return one and (type(op) in IMAGE_OPS or hasattr(type(op), "images"))


@op_class
class ChannelsLast(Op):
    """What `inner` computes, with the channels of its images and of its results that are images last.

    Fields of `inner` such as pads and strides keep their meaning: they speak of spatial axes in order. A backend that
    has no kernel for it gets `inner` between two transposes, which is its decomposition.

    inner: an op of images (N, C, ...).
    rank: of the images.
    """

    inner: Op
    rank: int = 4

    def n_outputs(self) -> int:
        return self.inner.n_outputs()

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
        results = as_tuple(op.apply(self.inner, *moved))
        images_among = image_results_of(self.inner)
        found = tuple(
            op.Transpose(y, perm=channels_last(self.rank)) if i in images_among else y for i, y in enumerate(results)
        )
        return found if len(found) > 1 else found[0]

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for held in sorted(IMAGE_OPS, key=lambda cls: cls.__name__):
            for sample in held.samples(rng):
                if knows_channels(sample.op) and sample.inputs[0] is not None and sample.inputs[0].ndim > 2:
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
