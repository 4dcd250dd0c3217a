"""Convolutions by cuDNN, and what is launched around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aicore.errors import ExecutionError
from aicore.ir import Op, TensorType
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels import _dnn as dnn
from aicore_cuda_ge.kernels._activations import IDENTITY
from aicore_cuda_ge.kernels._conv_problem import Problem, problem_of
from aicore_cuda_ge.kernels._dnn import Description, Prepared
from aicore_cuda_ge.kernels._machine import (
    BYTES_EACH_SECOND,
    FLOPS_EACH_MULTIPROCESSOR,
    LAUNCH_SECONDS,
    machine,
)
from aicore_cuda_ge.kernels._packing import aligned, item_bytes, on_device, pack_rows
from aicore_cuda_ge.kernels._windows import ELEMENTS

_RELU = 1
_WORKSPACE_ALIGNMENT = 256
_FLAG_BYTES = 4
_LARGEST = 1e25
"""As kLargest of library.cu."""
_FFT_LARGEST_KERNEL = 32
"""Taps along an axis."""
_OVERHEAD_SECONDS = {"float32": 8e-6, "tf32": 4e-6, "float16": 4e-6, "bfloat16": 4e-6}
"""Of one call beside its arithmetic: kernels of the library do not begin before the previous one has ended."""
_RATES = {"float32": 0.42, "tf32": 1.5, "float16": 6.0, "bfloat16": 6.0}
"""Of the float32 arithmetic of the GPU, by large convolutions of channels-last images."""
_ODD_SHARE = 0.67
"""Of that rate, where channels are no multiple of 16 bytes."""
_LEAST_MAPS = 32
"""Fewer maps take as long."""
_GROUP_MAPS, _GROUP_SECONDS = 64, 0.6e-6
"""Of several groups of several channels each: how many maps are computed at a time, and what it takes besides."""
_DEPTH_SECONDS = {"float32": 30e-9, "tf32": 6e-9, "float16": 6e-9, "bfloat16": 6e-9}
"""Of a block for each place of the depth, which the library does not divide: what small images take."""
_APART_SECONDS, _APART_RATE = 45e-6, 0.5
"""Of transforms to and fro, and what is promised of the products between them: the library refuses some shapes only
when it is asked, and what nobody asked about may be chosen by measurement, but not by an estimate."""
_ASKED_PRODUCTS = 5e8
"""Winograd gains nothing with fewer products; with more, the library is asked before the kernel takes them."""
_WINOGRAD_RATE, _WINOGRAD_PASSES = 3.5, 7.5
"""What it does of the arithmetic of a plain convolution, of the float32 arithmetic of the GPU; how often all operands
and results are moved. Fitted to 4 problems of 32 images on an H200."""


@dataclass(frozen=True)
class Way:
    """How the library is asked: channels_last and algorithm as in Description."""

    channels_last: bool
    algorithm: str
    tf32: bool = False
    direction: str = "forward"


def reason_against(fast: str, problem: Problem) -> str | None:
    """What the library is not given; `fast` is "", "fft" or "winograd"."""
    if not dnn.library_path():
        return dnn.MISSING
    if machine().capability < 75:
        return "takes GPUs of compute capability 7.5 and above"
    window = problem.window
    if min(problem.rows, problem.depth, problem.outputs, *window.size) < 1:
        return "takes sizes of at least 1"
    places = (window.size, window.begin, window.kernel, window.dilation, window.stride, window.out)
    if any((n + 2 * b - d * (k - 1) - 1) // s + 1 != out for n, b, k, d, s, out in zip(*places, strict=True)):
        return "takes the same padding on both sides"
    if problem.dtype != "float32" and problem.activation[0] not in (IDENTITY[0], _RELU):
        return f"applies no activation but Relu to {problem.dtype}, which would be rounded twice"
    return _fast_reason(fast, problem) or _refusal(fast, problem) if fast else None


def _refusal(fast: str, problem: Problem) -> str | None:
    """Of the library, which is loaded and asked only where an estimate may choose it."""
    if fast != "winograd" or problem.products < _ASKED_PRODUCTS:
        return None
    try:
        found = _prepared(problem, _way("winograd_apart", tf32=False))
    except ExecutionError as error:
        return str(error)
    return None if found else "takes what cuDNN can do by Winograd's algorithm"


def _fast_reason(fast: str, problem: Problem) -> str | None:
    window = problem.window
    _, *kernel = window.kernel
    if max(*window.stride, *window.dilation) > 1 or problem.groups > 1:
        return "takes one group, and neither strides nor dilations"
    if fast == "winograd":
        return None if kernel == [3, 3] else f"takes kernels of 3 x 3, here {kernel[0]} x {kernel[1]}"
    if max(kernel) == 1:
        return "takes kernels of more than one tap"
    if any(k <= b for k, b in zip(window.kernel, window.begin, strict=True)):
        return "takes kernels larger than the padding"
    return None if max(kernel) <= _FFT_LARGEST_KERNEL else f"takes at most {_FFT_LARGEST_KERNEL} taps along an axis"


def describe(problem: Problem, way: Way) -> Description:
    window = problem.window
    (_, *size), (_, *kernel), (_, *out) = window.size, window.kernel, window.out
    return Description(
        dtype=problem.dtype,
        tf32=way.tf32,
        channels_last=way.channels_last,
        algorithm=way.algorithm,
        images=problem.images,
        channels=problem.groups * problem.channels,
        size=(size[0], size[1]),
        w=(problem.outputs, problem.channels, kernel[0], kernel[1]),
        out=(out[0], out[1]),
        pad=(window.begin[1], window.begin[2]),
        stride=(window.stride[1], window.stride[2]),
        dilation=(window.dilation[1], window.dilation[2]),
        groups=problem.groups,
        direction=way.direction,
    )


@dataclass(frozen=True)
class _Room:
    """Where things begin in the workspace, in bytes, behind a flag, or a bias of zeros: turned images, or packed
    weights, then turned results, then what the library writes."""

    x_or_w: int
    y: int
    library: int
    total: int

    @classmethod
    def of(cls, problem: Problem, way: Way, library: int) -> _Room:
        item = item_bytes(problem.dtype)
        images = problem.images * math.prod(problem.window.size) * problem.groups * problem.channels
        weights, results = problem.outputs * problem.depth, problem.rows * problem.outputs
        x_or_w = aligned(_zeros_bytes(problem) if way.channels_last else _FLAG_BYTES)
        y = x_or_w + aligned(item * (weights if way.channels_last else images))
        free = y + (0 if way.channels_last else aligned(item * results))
        return cls(x_or_w, y, free, free + library + _WORKSPACE_ALIGNMENT)


def bind(
    tf32: bool, op: Op, types: Sequence[TensorType | None], constants: Sequence[DeviceArray | None], algorithm: str
) -> tuple[Call, ...]:
    """The call of the library, and what goes before and behind it."""
    problem, way = problem_of(op, *types), _way(algorithm, tf32)
    found = _prepared(problem, way)
    if found is None:
        raise ExecutionError(f"cuDNN cannot do this convolution by {algorithm}")
    room = _Room.of(problem, way, found.workspace)
    if way.channels_last:
        return _channels_last(problem, found, room, constants)
    return _channels_first(problem, found, room, constants[1])


def workspace(tf32: bool, op: Op, *types: TensorType | None, algorithm: str) -> int:
    """Bytes; a convolution that the library refuses gets none of its own, and fails when it is bound."""
    problem, way = problem_of(op, *types), _way(algorithm, tf32)
    found = _prepared(problem, way)
    return _Room.of(problem, way, 0 if found is None else found.workspace).total


def estimate(tf32: bool, op: Op, *types: TensorType | None, algorithm: str = "precomputed") -> float:
    """Arithmetic at the rate that large convolutions reach, or the way along the depth, and passes over images.

    Fitted to 23 problems of one image and 9 of 32 on an H200, and to 18 of several groups.
    """
    problem, way = problem_of(op, *types), _way(algorithm, tf32)
    kind = "tf32" if tf32 else problem.dtype
    peak = FLOPS_EACH_MULTIPROCESSOR * machine().multiprocessors
    moved, results = problem.nbytes, 2 * problem.rows * problem.outputs * item_bytes(problem.dtype)
    if algorithm == "winograd_apart" and problem.products >= _ASKED_PRODUCTS:
        products = 2 * problem.products / (_WINOGRAD_RATE * peak)
        return _APART_SECONDS + products + _WINOGRAD_PASSES * moved / BYTES_EACH_SECOND
    if not way.channels_last:
        products = max(2 * problem.products / (_APART_RATE * peak), moved / BYTES_EACH_SECOND)
        return _APART_SECONDS + 4 * LAUNCH_SECONDS + products + 2 * (results + moved) / BYTES_EACH_SECOND
    odd = problem.channels * item_bytes(problem.dtype) % 16 != 0
    rate = _RATES[kind] * peak * (_ODD_SHARE if odd else 1.0)
    maps, apart = problem.groups * max(problem.maps, _LEAST_MAPS), 0.0
    if problem.groups > 1 and problem.channels > 1:
        maps = problem.groups * -(-problem.maps // _GROUP_MAPS) * _GROUP_MAPS
        apart = problem.groups * _GROUP_SECONDS
    arithmetic = 2 * problem.rows * maps * problem.depth / rate + apart
    work = max(arithmetic, problem.depth * _DEPTH_SECONDS[kind], moved / BYTES_EACH_SECOND)
    after = problem.activation != IDENTITY
    return _OVERHEAD_SECONDS[kind] + work + (LAUNCH_SECONDS + results / BYTES_EACH_SECOND if after else 0.0)


def _way(algorithm: str, tf32: bool) -> Way:
    return Way(channels_last=algorithm == "precomputed", algorithm=algorithm, tf32=tf32)


def _prepared(problem: Problem, way: Way) -> Prepared | None:
    import cupy

    return dnn.prepared(describe(problem, way), cupy.cuda.runtime.getDevice())


def _channels_last(
    problem: Problem, found: Prepared, room: _Room, constants: Sequence[DeviceArray | None]
) -> tuple[Call, ...]:
    """Weights as (maps, taps, channels); the library adds bias and residual, and wants a bias for a residual."""
    w, at = constants[1], problem.out_at + 1
    taps, item = problem.window.taps, item_bytes(problem.dtype)
    calls: list[Call] = []
    extra: tuple[DeviceArray, ...] = ()
    if w is None:
        sizes = (problem.outputs, taps, problem.channels, problem.channels)
        strides = (problem.channels * taps, 1, taps)
        calls.append(pack_rows(sizes, strides, source=1, to=at, to_byte=room.x_or_w, item=item))
    else:
        extra = (on_device(w, partial(_packed, problem=problem)),)
    if zeros := _zeros_bytes(problem):
        calls.append(compiled("fill", (zeros, 0), pick=(at,)))
    weights = (at, room.x_or_w) if w is None else (at + 1, 0)
    places = (0, 0, *weights, problem.out_at, 0, at if zeros else problem.bias_at, problem.residual_at)
    calls.append(compiled("conv_dnn", (*_numbers(found), *places, at, room.library), extra))
    if problem.activation != IDENTITY:
        count = problem.rows * problem.outputs
        after = (count, ELEMENTS[problem.dtype], problem.out_at, *problem.activation)
        calls.append(compiled("activate_in_place", after))
    return tuple(calls)


def _channels_first(problem: Problem, found: Prepared, room: _Room, w: DeviceArray | None) -> tuple[Call, ...]:
    """Images turned over, the library, results turned back with all that is added to them; and once more by the
    definition, where numbers are too large for this."""
    at, channels, pixels = problem.out_at + 1, problem.groups * problem.channels, math.prod(problem.window.size)
    into = (problem.images, pixels, channels, 0, 0, at, room.x_or_w, -1, -1, at, *IDENTITY)
    places = (at, room.x_or_w, 1, 0, at, room.y, -1, -1, at, room.library)
    back = (problem.images, problem.outputs, problem.window.positions, at, room.y, problem.out_at, 0)
    look = () if w is not None else (compiled("conv_look", (problem.outputs * problem.depth, 1, at)),)
    return (
        compiled("fill", (_FLAG_BYTES, 0 if w is None or _is_moderate(w) else 1), pick=(at,)),
        compiled("conv_turn", into),
        *look,
        compiled("conv_dnn", (*_numbers(found), *places)),
        compiled("conv_turn", (*back, problem.bias_at, problem.residual_at, -1, *problem.activation)),
        compiled("conv_redo", (*problem.params(), at)),
    )


def _is_moderate(w: DeviceArray) -> bool:
    """All weights are finite, and sums of them stay so."""
    import cupy

    with cupy.cuda.Device(w.device):
        return bool((abs(w._as_cupy()) <= _LARGEST).all())


def _zeros_bytes(problem: Problem) -> int:
    """Of a bias, where there is none beside a residual."""
    lacks = problem.residual_at >= 0 and problem.bias_at < 0
    return item_bytes(problem.dtype) * problem.outputs if lacks else 0


def _numbers(found: Prepared) -> tuple[int, ...]:
    return (*found.functions, *found.objects, found.algorithm, found.workspace)


def _packed(array_module: Any, w: Any, problem: Problem) -> Any:
    parts = w.reshape(problem.outputs, problem.channels, problem.window.taps)
    return array_module.ascontiguousarray(parts.transpose(0, 2, 1))
