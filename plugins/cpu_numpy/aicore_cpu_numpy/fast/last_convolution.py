"""Convolutions of channels-last images, with bias, residual and activation done on each block while it is in the cache.

gemm: a 1x1 kernel is a matrix product as it is. It may scale, shift and bound its input, too, block by block.
im2col: the windows of a block are copied side by side, then it is a matrix product. Any other kernel.
shifted: the image times each offset's weights, added up shifted.
depthwise: sums of products over the kernel's offsets, with neighbouring positions and channels as one long loop.

Each worker takes rows of its own (or output channels, where there are few positions) through all that is to be done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct, ScaleActConv
from aicore.ops.layout import ChannelsLast
from aicore.records import dataclass
from aicore.runtime import thread_count
from aicore_cpu_numpy.fast import _last_depthwise, _last_products, _last_shifted, _last_windows
from aicore_cpu_numpy.fast._last_depthwise import Depthwise
from aicore_cpu_numpy.fast._last_epilogue import Array, Bias, Call, Calls, needs_two, reason_against
from aicore_cpu_numpy.fast._last_packing import Packs, packing
from aicore_cpu_numpy.fast._last_problem import Arrays, Problem
from aicore_cpu_numpy.fast._last_products import Products
from aicore_cpu_numpy.fast._last_shifted import Shifted
from aicore_cpu_numpy.fast._last_windows import Windows
from aicore_cpu_numpy.fast._parallel import run_all, side_by_side

Types = tuple[TensorType | None, ...]

DTYPES = frozenset({"float32", "float64"})


class Method(Protocol):
    """One way to compute a problem, with its settings; it never changes."""

    @property
    def problem(self) -> Problem: ...
    @property
    def seconds(self) -> float: ...
    @property
    def workspace(self) -> int: ...
    def packed(self, w: Array) -> Array: ...
    def plain(self, w: Array) -> Array: ...
    def tasks(self, arrays: Arrays, weights: Array, workspace: Array) -> list[Calls]: ...


@dataclass(frozen=True, eq=False)
class Variant:
    """A kernel of each op that is a convolution."""

    name: str
    method: Callable[..., Method]
    tune: dict[str, tuple[Any, ...]]
    reason_against: Callable[[Problem], str | None]


VARIANTS = (
    Variant(
        "gemm",
        Products,
        {"block": (1 << 16, 1 << 14, 1 << 18), "split": ("rows", "maps")},
        _last_products.reason_against,
    ),
    Variant(
        "im2col",
        Windows,
        {"block": (1 << 17, 1 << 16, 1 << 18), "split": ("rows", "maps")},
        _last_windows.reason_against,
    ),
    Variant("shifted", Shifted, {"block": (1 << 18, 1 << 20), "split": ("rows", "maps")}, _last_shifted.reason_against),
    Variant(
        "depthwise",
        Depthwise,
        {"block": (1 << 17, 1 << 16), "length": (1024, 2048)},
        _last_depthwise.reason_against,
    ),
)


class Operands(NamedTuple):
    """What each operand is for: an array, its type, or its constant; None where there is none."""

    x: Any
    w: Any
    bias: Any = None
    residual: Any = None
    scale: Any = None
    shift: Any = None

    @classmethod
    def of(cls, op: ChannelsLast, values: Sequence[Any]) -> Operands:
        """Of the values in the order of the op's operands."""
        return cls(**dict(zip(_ORDER[type(op.inner)], values, strict=False)))


_ORDER: dict[type[Op], tuple[str, ...]] = {
    **dict.fromkeys((Conv, ConvAct), ("x", "w", "bias")),
    **dict.fromkeys((ConvAdd, ConvAddAct), ("x", "w", "residual", "bias")),
    ScaleActConv: ("x", "scale", "shift", "w", "bias"),
}


@lru_cache(maxsize=4096)
def problem_of(op: ChannelsLast, workers: int, *types: TensorType | None) -> Problem:
    """The convolution that the op is for operands of known shapes."""
    inner: Any = op.inner
    scales = isinstance(inner, ScaleActConv)
    linear = inner.conv if scales else inner
    given = Operands.of(op, types)
    return Problem.of(
        linear if isinstance(linear, Conv) else linear.conv,
        given.x.static_shape,
        given.w.static_shape,
        numpy_dtype(given.x.dtype).itemsize,
        bias=given.bias is not None,
        residual=isinstance(inner, ConvAdd | ConvAddAct),
        activation=getattr(linear, "activation", None),
        before=inner.activation if scales else None,
        workers=workers,
    )


@dataclass(frozen=True)
class Bound:
    """A convolution of known shapes with its constants packed; threads may share it.

    known: the packed weights, and the Bias of each operand that is one, as far as they are constant.
    """

    op: ChannelsLast
    method: Method
    known: Operands

    def __call__(self, *operands: Array | None, out: Array, workspace: Array) -> None:
        self.place(*operands, out=out, workspace=workspace)()

    def place(self, *operands: Array | None, out: Array, workspace: Array) -> Call:
        """The call for these arrays, with the views of all blocks made."""
        return self._placed(self._room(), operands, out, workspace)

    def _room(self) -> Array | None:
        """Memory for weights that are packed in each run; like that of packed constants, it is the step's own."""
        if self.known.w is not None or not isinstance(self.method, Packs):
            return None
        return np.empty(math.prod(self.method.form), f"f{self.method.problem.itemsize}")

    def _placed(self, room: Array | None, operands: Sequence[Array | None], out: Array, workspace: Array) -> Call:
        given, known = Operands.of(self.op, operands), self.known
        packed = known.w is not None or room is not None
        pack: Call | None = None
        if room is not None and isinstance(self.method, Packs):
            p = self.method.problem
            weights, pack = packing(self.method, given.w.reshape(p.group, p.maps, p.channels, *p.geometry.kernel), room)
        else:
            weights = known.w if packed else self.method.plain(given.w)
        bias, scale = _numbers(known.bias, given.bias), _numbers(known.scale, given.scale)
        arrays = Arrays(given.x, out, bias, given.residual, packed, scale, _numbers(known.shift, given.shift))
        method = self.method if out.flags.c_contiguous else _pitched(self.method)
        whole = side_by_side(method.tasks(arrays, weights, workspace))
        return whole if pack is None else partial(run_all, (pack, whole))


def _numbers(known: Bias | None, given: Array | None) -> Bias | None:
    """One number per channel, as known before the run or as given."""
    return known if known is not None or given is None else Bias(given.reshape(-1))


@lru_cache(maxsize=1 << 14)
def _made(variant: Variant, workers: int, op: ChannelsLast, types: Types, settings: tuple[Any, ...]) -> Method:
    return variant.method(problem_of(op, workers, *types), *settings)


def method_of(variant: Variant, op: ChannelsLast, types: Types, settings: dict[str, Any]) -> Method:
    """The variant for operands of known shapes; settings that are not given are the default."""
    values = tuple(settings.get(name, choices[0]) for name, choices in variant.tune.items())
    return _made(variant, thread_count(), op, types, values)


def _pitched(method: Method) -> Method:
    """The same for an output whose positions are further apart than its channels are many."""
    found: Method = replace(method, problem=replace(method.problem, pitched=True))  # type: ignore[type-var]
    return found


def _supports(variant: Variant, op: ChannelsLast, *types: TensorType | None) -> str | None:
    given = Operands.of(op, types)
    if given.x is None or given.w is None or not (given.x.is_static and given.w.is_static):
        return "needs shapes that are known in numbers"
    problem = problem_of(op, 1, *types)
    if problem.activation is not None and (reason := reason_against(problem.activation)):
        return reason
    if problem.residual and (reason := _residual_reason(problem, given.residual)):
        return reason
    if problem.before is not None and (reason := _scale_reason(problem, problem.before, given)):
        return reason
    return variant.reason_against(problem)


def _workspace(
    variant: Variant, op: ChannelsLast, *types: TensorType | None, pitched: bool = False, **settings: Any
) -> int:
    method = method_of(variant, op, types, settings)
    return (_pitched(method) if pitched else method).workspace


def _estimate(variant: Variant, op: ChannelsLast, *types: TensorType | None, **settings: Any) -> float:
    return method_of(variant, op, types, settings).seconds


def _bind(
    variant: Variant,
    op: ChannelsLast,
    types: Sequence[TensorType | None],
    constants: Sequence[Array | None],
    **settings: Any,
) -> Bound:
    method = method_of(variant, op, tuple(types), settings)
    given = Operands.of(op, constants)
    packed = None if given.w is None else method.packed(given.w)
    vectors = (None if c is None else c.reshape(-1) for c in (given.bias, given.scale, given.shift))
    bias, scale, shift = (None if v is None else Bias.constant(v) for v in vectors)
    return Bound(op, method, Operands(None, packed, bias, None, scale, shift))


def _make(wraps: type[Op], variant: Variant) -> Kernel:
    @kernel(
        ChannelsLast,
        wraps=wraps,
        device="cpu",
        variant=variant.name,
        dtypes=DTYPES,
        supports=partial(_supports, variant),
        workspace=partial(_workspace, variant),
        estimate=partial(_estimate, variant),
        bind=partial(_bind, variant),
        pitched=True,
        tune=variant.tune,
    )
    def convolve(op: ChannelsLast, *operands: Array | None, out: Array, workspace: Array) -> None:
        types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
        _bind(variant, op, types, [None] * len(types))(*operands, out=out, workspace=workspace)

    return convolve


def _residual_reason(problem: Problem, residual: TensorType | None) -> str | None:
    """Why the residual cannot be added block by block, or None."""
    wanted = (problem.images, *problem.geometry.dims, problem.outputs)
    if residual is not None and residual.shape == wanted:
        return None
    return f"adds a residual of the output's shape only: {residual} to {wanted}"


def _scale_reason(problem: Problem, before: Op, given: Operands) -> str | None:
    """Why the input cannot be scaled block by block, or None."""
    wanted = (problem.inputs, *(1 for _ in problem.geometry.dims))
    if given.scale is None or given.shift is None or {given.scale.shape, given.shift.shape} != {wanted}:
        return f"scales and shifts by one number per channel, {wanted}: {given.scale}, {given.shift}"
    return f"cannot do {type(before).__name__} in place" if needs_two(before) else reason_against(before)


KERNELS: tuple[Kernel, ...] = (
    *(_make(wraps, variant) for wraps in (Conv, ConvAct, ConvAdd, ConvAddAct) for variant in VARIANTS),
    _make(ScaleActConv, VARIANTS[0]),
)
