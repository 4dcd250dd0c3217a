"""ScatterElements and ScatterND without a reduction: graph_executor/kernels/scatter.cu."""

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


def supports(op: Any, *types: TensorType | None) -> str | None:
    if op.reduction != "none":
        return f"has no reduction; this is {op.reduction}"
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


KERNELS: tuple[Kernel, ...] = (_made(ScatterElements), _made(ScatterND))
