"""Transposed convolutions without stride, of channels-last images: convolutions with the kernel turned round.

The gradient of a convolution's input is one. Against adding up each offset's share, it takes no pass over the output
for each offset, and workers may take rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import ConvTranspose
from aicore.ops.layout import ChannelsLast
from aicore.ops.window import numbers
from aicore.records import dataclass
from aicore.runtime import thread_count
from aicore_cpu_numpy.fast import _last_shifted, _last_windows
from aicore_cpu_numpy.fast._last_epilogue import Bias
from aicore_cpu_numpy.fast._last_packing import packing
from aicore_cpu_numpy.fast._last_problem import Arrays, Problem
from aicore_cpu_numpy.fast._last_shifted import Shifted
from aicore_cpu_numpy.fast._last_windows import Windows
from aicore_cpu_numpy.fast._parallel import Array, Call, run_all, side_by_side
from aicore_cpu_numpy.fast._rows import carve, carved_bytes
from aicore_cpu_numpy.fast._taps import Geometry

DTYPES = frozenset({"float32", "float64"})
Shape = tuple[int, ...]


@lru_cache(maxsize=4096)
def problem(op: ConvTranspose, x: Shape, w: Shape, itemsize: int, bias: bool, workers: int) -> Problem | str:
    """The convolution, or why there is none. x: (N, spatial..., C). w: (C, M / group, kernel...)."""
    spatial = x[1:-1]
    op = op.settled(w[2:], len(spatial))
    if set(op.strides) != {1}:
        return "needs strides of 1"
    out = numbers(op.output_dims(spatial, w[2:]))
    cut = op.padding(spatial, w[2:])[: len(out)]
    reaches = [(k - 1) * d for k, d in zip(w[2:], op.dilations, strict=True)]
    begins = tuple(reach - begin for reach, begin in zip(reaches, cut, strict=True))
    ends = (o - d - b + r for o, d, b, r in zip(out, spatial, begins, reaches, strict=True))
    if min(*begins, *ends) < 0:
        return "cuts off whole windows"
    geometry = Geometry(spatial, out, w[2:], op.strides, op.dilations, begins)
    return Problem(geometry, x[0], op.group, w[0] // op.group, w[1], itemsize, bias=bias, workers=workers)


def _problem(op: ChannelsLast, *types: TensorType | None) -> Problem | str:
    x, w, *rest = types
    assert isinstance(op.inner, ConvTranspose)  # the kernels below are for nothing else
    assert x is not None
    assert w is not None  # infer() refused the op otherwise
    bias = any(t is not None for t in rest)
    return problem(op.inner, x.static_shape, w.static_shape, numpy_dtype(x.dtype).itemsize, bias, thread_count())


@dataclass(frozen=True, eq=False)
class Bound:
    """A convolution of known shapes; its weights are turned round in each run."""

    method: Windows | Shifted

    def __call__(self, *operands: Any, out: Array, workspace: Array) -> None:
        self.place(*operands, out=out, workspace=workspace)()

    def place(self, x: Array, w: Array, b: Array | None = None, *, out: Array, workspace: Array) -> Call:
        p, method = self.problem, self.method
        (room,) = carve(workspace, w.dtype, (w.size,))
        turned = np.flip(w.reshape(p.group, p.channels, p.maps, *p.geometry.kernel), tuple(range(3, w.ndim + 1)))
        weights, pack = packing(method, turned.swapaxes(1, 2), room)
        arrays = Arrays(x, out, None if b is None else Bias(b), None, packed=True)
        return partial(
            run_all, (pack, side_by_side(method.tasks(arrays, weights, workspace[carved_bytes(room.nbytes) :])))
        )

    @property
    def problem(self) -> Problem:
        return self.method.problem


def _make(variant: str, cls: Any, reason_against: Any, tune: dict[str, tuple[Any, ...]]) -> Kernel:
    @lru_cache(maxsize=4096)
    def method_of(p: Problem, *settings: Any) -> Windows | Shifted:
        found: Windows | Shifted = cls(p, *settings)
        return found

    def method(op: ChannelsLast, types: Sequence[TensorType | None], settings: dict[str, Any]) -> Windows | Shifted:
        p = _problem(op, *types)
        assert isinstance(p, Problem)  # supports() refused the op otherwise
        return method_of(p, *(settings.get(name, choices[0]) for name, choices in tune.items()))

    def supports(op: ChannelsLast, *types: TensorType | None) -> str | None:
        if not all(t is None or t.is_static for t in types):
            return "needs shapes that are known in numbers"
        p = _problem(op, *types)
        if isinstance(p, str):
            return p
        reason: str | None = reason_against(p)
        return reason

    def workspace(op: ChannelsLast, *types: TensorType | None, **settings: Any) -> int:
        found, w = method(op, types, settings), types[1]
        assert w is not None  # infer() refused the op otherwise
        return carved_bytes(int(np.prod(w.static_shape)) * found.problem.itemsize) + found.workspace

    def estimate(op: ChannelsLast, *types: TensorType | None, **settings: Any) -> float:
        return method(op, types, settings).seconds

    def bind(op: ChannelsLast, types: Sequence[Any], constants: Sequence[Any], **settings: Any) -> Bound:
        return Bound(method(op, types, settings))

    @kernel(
        ChannelsLast,
        wraps=ConvTranspose,
        device="cpu",
        variant=variant,
        dtypes=DTYPES,
        supports=supports,
        workspace=workspace,
        estimate=estimate,
        bind=bind,
        tune=tune,
    )
    def transpose(op: ChannelsLast, *operands: Array | None, out: Array, workspace: Array) -> None:
        types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
        bind(op, types, [None] * len(types))(*operands, out=out, workspace=workspace)

    return transpose


_SPLIT = ("rows", "maps")

KERNELS: tuple[Kernel, ...] = (
    _make("im2col", Windows, _last_windows.reason_against, {"block": (1 << 17, 1 << 16, 1 << 18), "split": _SPLIT}),
    _make("shifted", Shifted, _last_shifted.reason_against, {"block": (1 << 18, 1 << 20), "split": _SPLIT}),
)
