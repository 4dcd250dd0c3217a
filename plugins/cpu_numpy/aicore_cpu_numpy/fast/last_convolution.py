"""Convolutions of channels-last images, with bias, residual and activation done on each block while it is in the cache.

gemm: a 1x1 kernel is a matrix product as it is.
im2col: the windows of a block are copied side by side, then it is a matrix product. Any other kernel.
shifted: the image times each offset's weights, added up shifted.
depthwise: sums of products over the kernel's offsets, with neighbouring positions and channels as one long loop.

Each worker takes rows of its own (or output channels, where there are few positions) through all that is to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Protocol

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct
from aicore.ops.layout import ChannelsLast
from aicore.records import dataclass
from aicore.runtime import thread_count
from aicore_cpu_numpy.fast import _last_depthwise, _last_products, _last_shifted, _last_windows
from aicore_cpu_numpy.fast._last_depthwise import Depthwise
from aicore_cpu_numpy.fast._last_epilogue import Array, Bias, Call, Calls, reason_against
from aicore_cpu_numpy.fast._last_problem import Arrays, Problem
from aicore_cpu_numpy.fast._last_products import Products
from aicore_cpu_numpy.fast._last_shifted import Shifted
from aicore_cpu_numpy.fast._last_windows import Windows
from aicore_cpu_numpy.fast._parallel import side_by_side

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


@lru_cache(maxsize=4096)
def problem_of(op: ChannelsLast, workers: int, *types: TensorType | None) -> Problem:
    """The convolution that the op is for operands of known shapes."""
    inner: Any = op.inner
    conv = inner if isinstance(inner, Conv) else inner.conv
    x, w, *rest = types
    assert x is not None  # infer() refused the op otherwise
    assert w is not None
    adds = isinstance(inner, ConvAdd | ConvAddAct)
    return Problem.of(
        conv,
        x.static_shape,
        w.static_shape,
        numpy_dtype(x.dtype).itemsize,
        bias=len(rest) > adds and rest[-1] is not None,
        residual=adds,
        activation=getattr(inner, "activation", None),
        workers=workers,
    )


@dataclass(frozen=True)
class Bound:
    """A convolution of known shapes with its constants packed; threads may share it."""

    method: Method
    weights: Array | None
    bias: Bias | None
    residual: bool

    def __call__(self, x: Array, w: Array, *rest: Array | None, out: Array, workspace: Array) -> None:
        self.place(x, w, *rest, out=out, workspace=workspace)()

    def place(self, x: Array, w: Array, *rest: Array | None, out: Array, workspace: Array) -> Call:
        """The call for these arrays, with the views of all blocks made."""
        residual = rest[0] if self.residual else None
        loose = rest[self.residual] if len(rest) > self.residual else None
        bias = self.bias if self.bias is not None or loose is None else Bias(loose)
        weights = self.method.plain(w) if self.weights is None else self.weights
        arrays = Arrays(x, out, bias, residual, self.weights is not None)
        method = self.method if out.flags.c_contiguous else _pitched(self.method)
        return side_by_side(method.tasks(arrays, weights, workspace))


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
    x, w = types[:2]
    if x is None or w is None or not (x.is_static and w.is_static):
        return "needs shapes that are known in numbers"
    problem = problem_of(op, 1, *types)
    if problem.activation is not None and (reason := reason_against(problem.activation)):
        return reason
    if problem.residual and (reason := _residual_reason(problem, types[2])):
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
    adds = isinstance(op.inner, ConvAdd | ConvAddAct)
    w, bias = constants[1], constants[2 + adds] if len(constants) > 2 + adds else None
    packed = None if w is None else method.packed(w)
    return Bound(method, packed, None if bias is None else Bias.constant(bias), adds)


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
    def convolve(op: ChannelsLast, x: Array, w: Array, *rest: Array | None, out: Array, workspace: Array) -> None:
        types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in (x, w, *rest)]
        _bind(variant, op, types, [None] * len(types))(x, w, *rest, out=out, workspace=workspace)

    return convolve


def _residual_reason(problem: Problem, residual: TensorType | None) -> str | None:
    """Why the residual cannot be added block by block, or None."""
    wanted = (problem.images, *problem.geometry.dims, problem.outputs)
    if residual is not None and residual.shape == wanted:
        return None
    return f"adds a residual of the output's shape only: {residual} to {wanted}"


KERNELS: tuple[Kernel, ...] = tuple(
    _make(wraps, variant) for wraps in (Conv, ConvAct, ConvAdd, ConvAddAct) for variant in VARIANTS
)
