"""Local response normalisation with channels last: squares of neighbours added up by shifted slices, block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.layout import ChannelsLast
from aicore.ops.normalization import LRN
from aicore_cpu_numpy.fast._parallel import PASS, Array, Call, Placing, parts_of, side_by_side, spans
from aicore_cpu_numpy.fast._rows import carve, carved_bytes

FLOATS = frozenset({"float32", "float64"})
BLOCK_BYTES = 64 << 10


def _rows(x: TensorType) -> int:
    """Positions of a block."""
    return max(BLOCK_BYTES // max(x.static_shape[-1] * numpy_dtype(x.dtype).itemsize, 1), 1)


def _parts(op: ChannelsLast, x: TensorType) -> int:
    return parts_of(_seconds(op, x))


def _seconds(op: ChannelsLast, x: TensorType) -> float:
    """Of one thread."""
    assert isinstance(op.inner, LRN)  # the kernel below is for nothing else
    return math.prod(x.static_shape) * PASS * (min(op.inner.size, x.static_shape[-1]) + 20)


def _calls(op: LRN, x: Array, y: Array, room: Array) -> list[Call]:
    """y = x / (bias + alpha / size * sums) ** beta for a block (positions, channels); `room` is two of its size."""
    channels, number = x.shape[1], x.dtype.type
    squares, sums = (r[: x.size].reshape(x.shape) for r in room)
    calls: list[Call] = [partial(np.multiply, x, x, out=squares), partial(np.copyto, sums, squares)]
    before, after = min((op.size - 1) // 2, channels - 1), min(op.size // 2, channels - 1)
    ends = [(slice(shift, None), slice(None, -shift)) for shift in range(1, before + 1)]
    ends += [(slice(None, -shift), slice(shift, None)) for shift in range(1, after + 1)]
    calls += [partial(np.add, sums[:, here], squares[:, there], out=sums[:, here]) for here, there in ends]
    calls.append(partial(np.multiply, sums, number(op.alpha / op.size), out=sums))
    calls.append(partial(np.add, sums, number(op.bias), out=sums))
    if op.beta == 0.75:  # the usual exponent, as the product of a root and the root of that: a tenth of a power's time
        calls += [
            partial(np.sqrt, sums, out=squares),
            partial(np.sqrt, squares, out=sums),
            partial(np.multiply, squares, sums, out=sums),
        ]
    else:
        calls.append(partial(np.power, sums, number(op.beta), out=sums))
    return [*calls, partial(np.divide, x, sums, out=y)]


def _room(x: TensorType) -> int:
    """Elements that a worker needs: two blocks."""
    return 2 * min(_rows(x), math.prod(x.static_shape[:-1])) * x.static_shape[-1]


def _workspace(op: ChannelsLast, x: TensorType) -> int:
    return carved_bytes(*(_room(x) * numpy_dtype(x.dtype).itemsize,) * _parts(op, x))


def _estimate(op: ChannelsLast, x: TensorType) -> float:
    return _seconds(op, x) / _parts(op, x)


def _bind(op: ChannelsLast, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Placing:
    tensor, inner = types[0], op.inner
    assert tensor is not None  # infer() refused the op otherwise
    assert isinstance(inner, LRN)
    positions, channels, step = math.prod(tensor.static_shape[:-1]), tensor.static_shape[-1], _rows(tensor)
    parts = _parts(op, tensor)

    def place(x: Array, *, out: Array, workspace: Array) -> Call:
        source, target = x.reshape(positions, channels), out.reshape(positions, channels)
        tasks: list[list[Call]] = []
        rooms = carve(workspace, x.dtype, *((2, _room(tensor) // 2),) * parts)
        for (start, stop), room in zip(spans(positions if x.size else 0, parts), rooms, strict=False):
            cuts = [slice(i, min(i + step, stop)) for i in range(start, stop, step)]
            tasks.append([call for cut in cuts for call in _calls(inner, source[cut], target[cut], room)])
        return side_by_side(tasks)

    return Placing(place)


def _supports(op: ChannelsLast, x: TensorType) -> str | None:
    return None if x.is_static else "needs a shape that is known in numbers"


@kernel(
    ChannelsLast,
    wraps=LRN,
    device="cpu",
    variant="shifted",
    dtypes=FLOATS,
    supports=_supports,
    workspace=_workspace,
    estimate=_estimate,
    bind=_bind,
)
def lrn_last_shifted(op: ChannelsLast, x: Array, *, out: Array, workspace: Array) -> None:
    _bind(op, [TensorType(x.dtype.name, x.shape)], [None])(x, out=out, workspace=workspace)


KERNELS: tuple[Kernel, ...] = (lrn_last_shifted,)
