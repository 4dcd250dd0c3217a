"""ScatterElements and ScatterND by graph_executor/kernels/scatter.cu.

claims: without a reduction. sums: a ScatterND that adds, such as the gradient of rows that were gathered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.scatter import ScatterElements, ScatterND
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.codegen.copying import dense
from aicore_cuda_ge.kernels._memory_bound import need_static, need_words, run_from_plan, seconds_of, shape_of

Types = Sequence["TensorType | None"]

_MOST_AXES = 8
_LARGEST = 2**31 - 1
_INDICES, _UPDATES = 1, 2
_OUTSIDE = "index {value} is out of range"
seconds = seconds_of(bytes_per_second=1.2e12, launch_seconds=4.4e-6)
_SUMS: dict[str, int] = {"float32": 0, "float64": 1, "int32": 2, "int64": 3, "uint32": 2, "uint64": 3}
"""The enum SumType; integers wrap, whether they are signed or not."""
_WARP, _MOST_LANES = 32, 128
_LONGEST_SLICE = 65535 * _MOST_LANES
"""A grid has no more blocks along a slice."""
_TARGETS_EACH_SECOND, _TARGETS_SECONDS = 3e12, 1.5e-9
"""That threads which look for their updates compare, in all; and how long a warp alone takes for one."""


def supports(op: Any, *types: TensorType | None) -> str | None:
    if op.reduction != "none":
        return f"has no reduction; this is {op.reduction}"
    return _reason_against_sizes(*types)


def sums_reason(op: ScatterND, *types: TensorType | None) -> str | None:
    if op.reduction != "add":
        return f"adds; the reduction is {op.reduction}"
    if (dtype := _of(types, 0).dtype) not in _SUMS:
        return f"does not add {dtype}"
    if reason := _reason_against_sizes(*types):
        return reason
    return f"adds slices of at most {_LONGEST_SLICE} elements" if _slices(types)[1] > _LONGEST_SLICE else None


def _reason_against_sizes(*types: TensorType | None) -> str | None:
    if reason := need_static(*types) or need_words(_of(types, 0).dtype):
        return reason
    x, updates = shape_of(types[0]), shape_of(types[_UPDATES])
    if len(x) > _MOST_AXES:
        return f"takes up to {_MOST_AXES} axes, here {len(x)}"
    if max(math.prod(x), math.prod(updates)) > _LARGEST:
        return "takes tensors of fewer than 2**31 elements"
    return "every index is out of range" if math.prod(updates) and not math.prod(x) else None


def workspace(op: Any, *types: TensorType | None) -> int:
    """Bytes: an int32 for each element of x, the number of the update that it gets."""
    return 4 * math.prod(shape_of(types[0]))


def bind(op: Any, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    """A copy of x; no claims; claims; writes."""
    x, out = _of(types, 0), len(types)
    count = math.prod(x.static_shape)
    if not count:
        return ()
    copy = compiled("copy", (count * _item(x),), pick=(0, out))
    params = _params(op, types)
    clear = compiled("fill", (4 * count, 0xFF), pick=(out + 1,))
    claim = compiled("scatter_claim", params, pick=(_INDICES, out + 1), reports=_OUTSIDE)
    write = compiled("scatter_write", params, pick=(_INDICES, _UPDATES, out, out + 1), reports=_OUTSIDE)
    return copy, clear, claim, write


def sums_workspace(op: ScatterND, *types: TensorType | None) -> int:
    """Bytes: an int32 for each update, the slice that it is for, and one for each slice, how many it has."""
    slices, _, updates = _slices(types)
    return 4 * (slices + updates)


def bind_sums(op: ScatterND, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    """No updates; the slice of each of them; sums."""
    slices, length, updates = _slices(types)
    if not slices * length:
        return ()
    x, indices, out = _of(types, 0), _of(types, _INDICES), len(types)
    indexed = x.static_shape[: indices.static_shape[-1]]
    places = (
        *(_item(x), int(indices.dtype == "int64"), updates, len(indexed), 1),
        *(*_filled(indexed, 1), *_filled(dense(indexed), 0), *_led((1,), 1), *_led((0,), 0)),
    )
    lanes = min(_MOST_LANES, max(_WARP, 1 << (length - 1).bit_length()))
    clear = compiled("fill", (sums_workspace(op, *types), 0), pick=(out + 1,))
    targets = compiled("scatter_targets", places, pick=(_INDICES, out + 1), reports=_OUTSIDE)
    sums = compiled("scatter_sums", (*places, length, slices, lanes, _SUMS[x.dtype]), pick=(0, _UPDATES, out, out + 1))
    return clear, targets, sums


def sums_seconds(op: ScatterND, *types: TensorType | None) -> float:
    """Slices that have updates look through all of them, a warp for 32 elements."""
    slices, length, updates = _slices(types)
    warps = min(slices, updates) * -(-length // _WARP)
    return seconds(op, *types) + max(warps * updates / _TARGETS_EACH_SECOND, updates * _TARGETS_SECONDS)


def _slices(types: Types) -> tuple[int, int, int]:
    """How many slices x has, elements of one, and updates of slices."""
    x, indices = shape_of(types[0]), shape_of(types[_INDICES])
    depth = indices[-1]
    return math.prod(x[:depth]), math.prod(x[depth:]), math.prod(indices[:-1])


def _params(op: Any, types: Types) -> tuple[int, ...]:
    """The struct ScatterParams."""
    x, indices, updates = (_of(types, i) for i in (0, _INDICES, _UPDATES))
    shape, strides = x.static_shape, dense(x.static_shape)
    dims: tuple[int, ...] = (1,)
    steps: tuple[int, ...] = (0,)
    if isinstance(op, ScatterND):
        depth = indices.static_shape[-1]
        slice_, indexed = max(math.prod(shape[depth:]), 1), list(range(depth))
    else:
        axis = op.axis % len(shape)
        depth, slice_, indexed = 1, 1, [axis]
        dims = updates.static_shape
        steps = tuple(0 if i == axis else stride for i, stride in enumerate(strides))
    return (
        *(_item(x), int(indices.dtype == "int64"), math.prod(updates.static_shape), depth, slice_),
        *_filled([shape[axis] for axis in indexed], 1),
        *_filled([strides[axis] for axis in indexed], 0),
        *_led(dims, 1),
        *_led(steps, 0),
    )


def _filled(numbers: Sequence[int], filling: int) -> tuple[int, ...]:
    return (*numbers, *(filling,) * (_MOST_AXES - len(numbers)))


def _led(numbers: Sequence[int], filling: int) -> tuple[int, ...]:
    return (*(filling,) * (_MOST_AXES - len(numbers)), *(max(number, filling) for number in numbers))


def _of(types: Types, position: int) -> TensorType:
    found = types[position]
    assert found is not None  # all three are required
    return found


def _item(x: TensorType) -> int:
    return int(numpy_dtype(x.dtype).itemsize)


def _made(op: type[Op]) -> Kernel:
    made = kernel(
        op, device="cuda", variant="claims", supports=supports, workspace=workspace, bind=bind, estimate=seconds
    )
    return made(run_from_plan)


_sums = kernel(
    ScatterND,
    device="cuda",
    variant="sums",
    supports=sums_reason,
    workspace=sums_workspace,
    bind=bind_sums,
    estimate=sums_seconds,
)(run_from_plan)
KERNELS: tuple[Kernel, ...] = (_made(ScatterElements), _made(ScatterND), _sums)
