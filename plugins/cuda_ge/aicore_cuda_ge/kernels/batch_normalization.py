"""Batch normalisation in training, with a Relu or without, and its gradient, by graph_executor/kernels/batch_norm.cu.

passes: sums, then a pass; float32, channels second or last, of at least one pixel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.fused_normalization import BatchNormalizationAct
from aicore.ops.layout import ChannelsLast
from aicore.ops.normalization import BatchNormalization
from aicore.ops.normalization_grad import BatchNormalizationGrad
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, LAUNCH_SECONDS, machine
from aicore_cuda_ge.kernels._memory_bound import need_static, run_from_plan, shape_of

Types = Sequence["TensorType | None"]
_FLOAT32 = frozenset({"float32"})
_LARGEST = 2**31 - 1
_MOST_LANES = 32
_MOST_SPLITS = 256
_MOST_CHANNELS = 65535
_LEAST_BYTES = 1 << 14
"""Of x that are worth a block."""
_BLOCKS_EACH_MULTIPROCESSOR = 4
_JOIN_BYTES = 16 << 20
"""Of partial sums that blocks read, all together: more of them are joined by a launch of its own."""


@dataclass(frozen=True)
class Batch:
    """The struct BatchNorm without its floats; joins: whether a launch joins the splits."""

    pixels: int
    channels: int
    inner: int
    lanes: int
    width: int
    splits: int
    blocks: int
    joins: bool

    @classmethod
    def of(cls, shape: Sequence[int], channels_last: bool) -> Batch:
        channels = shape[-1] if channels_last else shape[1] if len(shape) > 1 else 1
        pixels = math.prod(shape) // channels
        inner = 1 if channels_last else math.prod(shape[2:])
        last = inner == 1 and channels > 1  # a vector is one channel, whose numbers lie side by side
        if not last:
            inner = pixels if channels == 1 else inner
        width = 4 if (channels if last else inner) % 4 == 0 else 1
        lanes = min(_MOST_LANES, 1 << (-(-channels // width) - 1).bit_length()) if last else 1
        across = -(-channels // (lanes * width)) if last else channels
        most = max(1, 4 * pixels * channels // across // _LEAST_BYTES)
        splits = max(1, min(_BLOCKS_EACH_MULTIPROCESSOR * machine().multiprocessors // across, most, _MOST_SPLITS))
        blocks = max(1, min(2 * _BLOCKS_EACH_MULTIPROCESSOR * machine().multiprocessors // across, most))
        read = blocks * splits * 8 * channels
        return cls(pixels, channels, inner, lanes, width, splits, blocks, read > _JOIN_BYTES)

    def params(self, epsilon: float = 0.0, momentum: float = 0.0) -> tuple[int | float, ...]:
        sizes = (self.pixels, self.channels, self.inner, self.lanes, self.width, self.splits, self.blocks)
        return (*sizes, float(epsilon), float(momentum))

    @property
    def workspace(self) -> int:
        """Bytes of two numbers for each channel and split, and for all splits."""
        return 8 * self.channels * (self.splits + 1)


def _batch(op: Op, x: TensorType | None) -> Batch:
    return Batch.of(shape_of(x), isinstance(op, ChannelsLast))


def _reason(op: Op, *types: TensorType | None) -> str | None:
    if reason := need_static(*types):
        return reason
    if {t.dtype for t in types if t is not None} != {"float32"}:
        return "takes one element type"
    shape = shape_of(types[0])
    if math.prod(shape) == 0:
        return "takes at least one element"
    if math.prod(shape) > _LARGEST:
        return "takes fewer than 2**31 elements"
    batch = _batch(op, types[0])
    return f"takes at most {_MOST_CHANNELS} channels" if batch.channels > _MOST_CHANNELS else None


def _normalization(op: Op) -> Op:
    """Without what is around it."""
    inner = op.inner if isinstance(op, ChannelsLast) else op
    if isinstance(inner, BatchNormalizationAct):
        return BatchNormalization(inner.epsilon, inner.momentum, training_mode=1, statistics=True)
    return inner


def supports(op: Op, *types: TensorType | None) -> str | None:
    inner = _normalization(op)
    if isinstance(inner, BatchNormalization) and not inner.training_mode:
        return "normalises with the statistics of the batch only"
    return _reason(op, *types)


def workspace(op: Op, x: TensorType, *others: TensorType | None) -> int:
    return _batch(op, x).workspace


def bind(op: Op, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    inner: Any = _normalization(op)
    cuts = isinstance(op.inner if isinstance(op, ChannelsLast) else op, BatchNormalizationAct)
    batch, results = _batch(op, types[0]), inner.n_outputs()
    params, at = batch.params(inner.epsilon, inner.momentum), len(types) + results
    statistics = (8, 9) if inner.statistics else (-1, -1)
    joins = (compiled("batch_join_moments", params, pick=(at,)),) if batch.joins else ()
    return (
        compiled("batch_moments", params, pick=(0, at)),
        *joins,
        compiled("batch_train", (*params, batch.splits * batch.joins, cuts), pick=(*range(8), *statistics, at)),
    )


def bind_gradient(op: Op, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    batch = _batch(op, types[0])
    params, at = batch.params(), 8
    joins = (compiled("batch_join_sums", params, pick=(at,)),) if batch.joins else ()
    return (
        compiled("batch_gradient_sums", params),
        *joins,
        compiled("batch_gradient", (*params, batch.splits * batch.joins)),
    )


def estimate(passes: int, op: Op, x: TensorType, *others: TensorType | None) -> float:
    """passes: how often something of x's size is read or written."""
    moved = 4 * math.prod(x.static_shape) * passes
    return (3 if _batch(op, x).joins else 2) * (LAUNCH_SECONDS + 1e-6) + moved / (0.8 * BYTES_EACH_SECOND)


def _made(op: type[Op], wraps: type[Op] | None) -> Kernel:
    is_gradient = (wraps or op) is BatchNormalizationGrad
    made = kernel(
        op,
        device="cuda",
        variant="passes",
        dtypes=_FLOAT32,
        supports=supports,
        workspace=workspace,
        estimate=partial(estimate, 5 if is_gradient else 3),
        bind=bind_gradient if is_gradient else bind,
        wraps=wraps,
    )
    return made(run_from_plan)


KERNELS: tuple[Kernel, ...] = tuple(
    _made(op, wraps)
    for held in (BatchNormalization, BatchNormalizationAct, BatchNormalizationGrad)
    for op, wraps in ((held, None), (ChannelsLast, held))
)
