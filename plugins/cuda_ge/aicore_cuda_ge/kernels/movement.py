"""Ops that move elements and compute nothing: strided copies, and gathers by indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.gather import Gather, GatherElements, GatherND
from aicore.ops.movement import Concat, Expand, Split, Tile, Transpose
from aicore.ops.rearrange import DepthToSpace, SpaceToDepth
from aicore.ops.resize import Resize
from aicore.ops.shape import Flatten, Identity, Reshape, Squeeze, Unsqueeze
from aicore.ops.slicing import Pad, Slice, clamped
from aicore_cuda_ge.calls import Call, Generated, compiled, pack
from aicore_cuda_ge.codegen.compiler import load
from aicore_cuda_ge.codegen.copying import Copy, copy_source, dense
from aicore_cuda_ge.codegen.gathering import gather_source
from aicore_cuda_ge.codegen.source import prelude
from aicore_cuda_ge.kernels._memory_bound import results_of, run_from_plan, seconds_of, shape_of

Types = Sequence["TensorType | None"]
seconds = seconds_of(bytes_per_second=2.5e12, launch_seconds=1.1e-6)


def _transpose(op: Transpose, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[Copy, ...]:
    perm = op.perm if op.perm is not None else tuple(range(len(x)))[::-1]
    strides = dense(x)
    return (Copy(y, tuple(strides[axis] for axis in perm), dense(y)),)


def _expand(op: Expand, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[Copy, ...]:
    padded = (1,) * (len(y) - len(x)) + x
    strides = dense(padded)
    return (Copy(y, tuple(0 if dim == 1 else strides[i] for i, dim in enumerate(padded)), dense(y)),)


def _tile(op: Tile, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[Copy, ...]:
    """The result as (repeats, dim) for each axis: the repeats have stride 0."""
    strides = dense(x)
    dims, from_strides = [], []
    for dim, total, stride in zip(x, y, strides, strict=True):
        dims += [total // dim if dim else 0, dim]
        from_strides += [0, stride]
    return (Copy(tuple(dims), tuple(from_strides), dense(dims)),)


def _slice(op: Slice, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[Copy, ...]:
    strides, start = list(dense(x)), 0
    axes = op.axes if op.axes is not None else tuple(range(len(op.starts or ())))
    steps = op.steps if op.steps is not None else (1,) * len(axes)
    for axis, first, last, step in zip(axes, op.starts or (), op.ends or (), steps, strict=True):
        cut = clamped(first, last, step, x[axis])
        begin, _, step = cut.indices(x[axis])
        start += begin * dense(x)[axis]
        strides[axis] *= step
    return (Copy(y, tuple(strides), dense(y), from_start=start),)


def _depth_to_space(op: DepthToSpace, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[Copy, ...]:
    n, c, h, w = x
    block = op.blocksize
    kept = c // block**2
    # The channel's number holds (row, column, C) in DCR order, and (C, row, column) in CRD order.
    row, column, channel = (block * kept, kept, 1) if op.mode == "DCR" else (block, 1, block**2)
    dims = (n, kept, h, block, w, block)
    area = h * w
    strides = (c * area, channel * area, w, row * area, 1, column * area)
    return (Copy(dims, strides, dense(dims)),)


def _space_to_depth(op: SpaceToDepth, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[Copy, ...]:
    n, c, h, w = x
    block = op.blocksize
    area, row, line = h * w, w * block, w
    if op.mode == "DCR":
        dims = (n, block, block, c, h // block, w // block)
        strides = (c * area, line, 1, area, row, block)
    else:
        dims = (n, c, block, block, h // block, w // block)
        strides = (c * area, area, line, 1, row, block)
    return (Copy(dims, strides, dense(dims)),)


def _relabel(op: Op, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[Copy, ...]:
    count = (math.prod(x),)
    return (Copy(count, (1,), (1,)),)


def _fields_missing(op: Op, *names: str) -> str | None:
    missing = [name for name in names if getattr(op, name) is None]
    return f"needs {', '.join(missing)} to be known before the run" if missing else None


def _movable(types: Types) -> str | None:
    for tensor in types:
        if tensor is not None and (not tensor.is_static or numpy_dtype(tensor.dtype).itemsize not in (1, 2, 4, 8, 16)):
            return f"does not move {tensor}"
        if tensor is not None and tensor.dtype in ("string", "int4", "uint4", "float4e2m1"):
            return f"does not take {tensor.dtype}"
    return None


def _repeats(op: Resize, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[Copy, ...]:
    """Whole factors: each axis as (dim, repeats), where the repeats have stride 0."""
    strides = dense(x)
    dims, from_strides = [], []
    for dim, total, stride in zip(x, y, strides, strict=True):
        dims += [dim, total // dim if dim else 0]
        from_strides += [stride, 0]
    return (Copy(tuple(dims), tuple(from_strides), dense(dims)),)


_REPEATING = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")}
"""Ways to round under which place i of an axis enlarged k times is i // k: i / k rounded down, or the nearest to
(i + 1/2) / k - 1/2, which lies within half a place of it."""


def _resize_supports(op: Resize, *types: TensorType | None) -> str | None:
    if any(t is not None for t in types[1:]) or (op.scales is None and op.sizes is None):
        return "needs sizes that are known before the run"
    ways = (op.coordinate_transformation_mode, op.nearest_mode)
    if op.mode != "nearest" or ways not in _REPEATING:
        return "repeats elements only: nearest, asymmetric with floor or half_pixel with the nearest"
    reason = _movable(types)
    if reason is not None:
        return reason
    x, y = shape_of(types[0]), results_of(op, types)[0].static_shape
    axes = op.axes if op.axes is not None else tuple(range(len(x)))
    whole = all(new % old == 0 and new >= old for old, new in zip(x, y, strict=True) if old)
    scales = dict(zip(axes, op.scales or (), strict=False))
    exact = all(scale * x[axis] == y[axis] for axis, scale in scales.items())
    return None if whole and exact and op.keep_aspect_ratio_policy == "stretch" else "enlarges by whole factors only"


Plan = Callable[[Any, "tuple[int, ...]", "tuple[int, ...]"], "tuple[Copy, ...]"]


def launch_copy(copy: Copy, dtype: str, source: int, target: int) -> tuple[Call, ...]:
    """One launch between two of the step's pointers; none when there is nothing to copy."""
    if not copy.size:
        return ()
    itemsize = numpy_dtype(dtype).itemsize
    made = copy_source(Copy(copy.dims, copy.from_strides, copy.to_strides, copy.from_start, copy.to_start, itemsize))
    function = load(prelude() + made.text, made.name)
    params = pack((made.count,))
    pick, early = (source, target), function.waits
    return (Generated(function.address, function.module, made.grid, made.block, params, pick=pick, early=early),)


def _copying(op: type[Op], plan: Plan, *needed: str) -> Kernel:
    """A kernel whose result is one strided copy of its first operand."""

    def supports(op: Any, *types: TensorType | None) -> str | None:
        if any(t is not None for t in types[1:]):
            return "needs sizes and bounds to be known before the run"
        return _fields_missing(op, *needed) or _movable(types)

    def bind(op: Any, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
        y = results_of(op, types)[0]
        calls: tuple[Call, ...] = ()
        for copy in plan(op, shape_of(types[0]), y.static_shape):
            calls += launch_copy(copy, y.dtype, 0, len(types))
        return calls

    asked = _resize_supports if op is Resize else supports
    return kernel(op, device="cuda", variant="copy", supports=asked, bind=bind, estimate=seconds)(run_from_plan)


def _concat_supports(op: Concat, *types: TensorType | None) -> str | None:
    return _movable(types)


def _concat_bind(op: Concat, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    """One launch for each operand, into its part of the result."""
    y = results_of(op, types)[0]
    axis = op.axis % len(y.static_shape)
    strides, start = dense(y.static_shape), 0
    calls: tuple[Call, ...] = ()
    for i, tensor in enumerate(types):
        x = shape_of(tensor)
        calls += launch_copy(Copy(x, dense(x), strides, to_start=start), y.dtype, i, len(types))
        start += x[axis] * strides[axis]
    return calls


def _split_supports(op: Split, *types: TensorType | None) -> str | None:
    if len(types) > 1 and types[1] is not None:
        return "needs sizes to be known before the run"
    return _movable(types)


def _split_bind(op: Split, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    """One launch for each result, from its part of the operand."""
    x = shape_of(types[0])
    axis = op.axis % len(x)
    strides, start = dense(x), 0
    calls: tuple[Call, ...] = ()
    for i, y in enumerate(results_of(op, types)):
        copy = Copy(y.static_shape, strides, dense(y.static_shape), from_start=start)
        calls += launch_copy(copy, y.dtype, 0, len(types) + i)
        start += y.static_shape[axis] * strides[axis]
    return calls


def _pad_supports(op: Pad, *types: TensorType | None) -> str | None:
    if op.mode != "constant" or any(t is not None for t in types[1:]):
        return "pads with a constant that is known before the run only"
    if op.constant_value not in (None, 0, False):
        return "pads with zeros only"
    return _fields_missing(op, "pads") or _movable(types)


def _pad_bind(op: Pad, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    """Zeros everywhere, then what is kept of the operand in its place; negative pads cut."""
    y = results_of(op, types)[0]
    if not y.size:
        return ()
    x = shape_of(types[0])
    axes = tuple(range(len(x))) if op.axes is None else tuple(axis % len(x) for axis in op.axes)
    pads = op.pads or ()
    kept, from_start, to_start = list(x), 0, 0
    for axis, begin, end in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        kept[axis] -= max(-begin, 0) + max(-end, 0)
        from_start += max(-begin, 0) * dense(x)[axis]
        to_start += max(begin, 0) * dense(y.static_shape)[axis]
    size = y.size if isinstance(y.size, int) else 0
    clear = compiled("fill", (size * numpy_dtype(y.dtype).itemsize, 0), pick=(len(types),))
    copy = Copy(tuple(kept), dense(x), dense(y.static_shape), from_start, to_start)
    return (clear, *(launch_copy(copy, y.dtype, 0, len(types)) if min(kept, default=1) > 0 else ()))


def _gather_supports(op: Op, *types: TensorType | None) -> str | None:
    reason = _movable(types)
    if reason is None and 0 in shape_of(types[0]) and results_of(op, types)[0].size:
        return "every index is out of range"  # of an operand without elements
    return reason


def _gather_bind(op: Any, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    y = results_of(op, types)[0]
    if not y.size:
        return ()
    x, indices = types[0], types[1]
    assert x is not None  # both are required
    assert indices is not None
    made = gather_source(op, x, indices, y)
    function = load(prelude() + made.text, made.name)
    params, early = pack((made.count,)), function.waits
    reports = "index {value} is out of range"
    return (Generated(function.address, function.module, made.grid, made.block, params, reports=reports, early=early),)


def _gathering(op: type[Op]) -> Kernel:
    decorate = kernel(
        op, device="cuda", variant="gather", supports=_gather_supports, bind=_gather_bind, estimate=seconds
    )
    return decorate(run_from_plan)


KERNELS: tuple[Kernel, ...] = (
    _copying(Transpose, _transpose),
    _copying(Expand, _expand, "shape"),
    _copying(Tile, _tile, "repeats"),
    _copying(Slice, _slice, "starts", "ends"),
    _copying(Resize, _repeats),
    _copying(DepthToSpace, _depth_to_space),
    _copying(SpaceToDepth, _space_to_depth),
    *(_copying(op, _relabel) for op in (Reshape, Flatten, Squeeze, Unsqueeze, Identity)),
    kernel(Concat, device="cuda", variant="copy", supports=_concat_supports, bind=_concat_bind, estimate=seconds)(
        run_from_plan
    ),
    kernel(Split, device="cuda", variant="copy", supports=_split_supports, bind=_split_bind, estimate=seconds)(
        run_from_plan
    ),
    kernel(Pad, device="cuda", variant="copy", supports=_pad_supports, bind=_pad_bind, estimate=seconds)(run_from_plan),
    *map(_gathering, (Gather, GatherElements, GatherND)),
)
