"""Gradients of convolutions by cuDNN, where it is installed: of channels-last images and of their weights, in float32.

cudnn: images are turned over, the library computes the gradient, and what it made of images is turned back. Winograd's
algorithm mixes numbers that lie far apart: where one is not finite, or very large, all is computed anew by the
definition, as in `_dnn_conv.py`. The library refuses some problems only when it is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aicore.errors import ExecutionError
from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import ConvTranspose
from aicore.ops.convolution_grad import ConvWeightGrad
from aicore.ops.layout import ChannelsLast
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels import _dnn as dnn
from aicore_cuda_ge.kernels import _dnn_conv as forward
from aicore_cuda_ge.kernels._activations import IDENTITY
from aicore_cuda_ge.kernels._conv_problem import Problem, problem_of
from aicore_cuda_ge.kernels._conv_problem import reason_against as reason_against_convolution
from aicore_cuda_ge.kernels._dnn import Prepared
from aicore_cuda_ge.kernels._machine import (
    BYTES_EACH_SECOND,
    FLOPS_EACH_MULTIPROCESSOR,
    LAUNCH_SECONDS,
    machine,
)
from aicore_cuda_ge.kernels._memory_bound import run_from_plan
from aicore_cuda_ge.kernels._packing import aligned
from aicore_cuda_ge.kernels.convolution_grad import gradient_of
from aicore_cuda_ge.kernels.convolution_grad import supports as weights_reason

Types = Sequence["TensorType | None"]
_ALGORITHMS = ("plain", "winograd_apart", "fft_tiles")
_FLAG_BYTES = 64
_LARGEST = 2**31 - 1
_ASKED_PRODUCTS = 5e8
"""Winograd gains nothing with fewer products; with more, the library is asked whether it takes them."""
_APART_SECONDS = 30e-6
_PLAIN_RATE = 0.45
"""Of the float32 arithmetic of the GPU."""
_WINOGRAD_RATE, _WINOGRAD_PASSES = 3.5, 7.5
"""As for convolutions; see `_dnn_conv.py`."""
_NOTHING = (-1, -1)
"""Neither bias nor residual where images are turned over."""


def _convolution(op: Op, types: Types) -> Problem:
    """The convolution whose gradient is asked for; of images where the op is a ConvTranspose."""
    held = op.inner if isinstance(op, ChannelsLast) else op
    if isinstance(held, ConvWeightGrad):
        x, dy = types[:2]
        assert x is not None  # infer() refused the op otherwise
        assert dy is not None
        return gradient_of(op, x, dy)
    transposed = problem_of(op, *types[:2])
    window = replace(transposed.window, size=transposed.window.out, out=transposed.window.size)
    return replace(transposed, channels=transposed.maps, maps=transposed.channels, window=window)


def _way(algorithm: str, direction: str) -> forward.Way:
    return forward.Way(channels_last=False, algorithm=algorithm, direction=direction)


def _prepared(problem: Problem, algorithm: str, direction: str) -> Prepared | None:
    import cupy

    return dnn.prepared(forward.describe(problem, _way(algorithm, direction)), cupy.cuda.runtime.getDevice())


def supports(direction: str, op: Op, *types: TensorType | None) -> str | None:
    if not dnn.library_path():
        return dnn.MISSING
    reason = weights_reason if direction == "weights" else reason_against_convolution
    if found := reason(op, *types):  # type: ignore[arg-type]  # each takes what its op does
        return found
    if len(types) > 2:
        return "adds no bias"
    problem = _convolution(op, types)
    if (problem.window.size[0], problem.window.kernel[0]) != (1, 1):
        return "takes images of at most two spatial axes"
    if problem.images * problem.groups * problem.channels * math.prod(problem.window.size) > _LARGEST:
        return "takes images of fewer than 2**31 elements"
    return forward.reason_against("", replace(problem, activation=IDENTITY))


@dataclass(frozen=True)
class _Room:
    """Where things begin in the workspace, in bytes, behind a flag: images, results, what the library writes."""

    x: int
    y: int
    library: int
    total: int

    @classmethod
    def of(cls, problem: Problem, library: int) -> _Room:
        images = 4 * problem.images * math.prod(problem.window.size) * problem.groups * problem.channels
        y = _FLAG_BYTES + aligned(images)
        free = y + aligned(4 * problem.rows * problem.outputs)
        return cls(_FLAG_BYTES, y, free, free + library + 256)


def workspace(direction: str, op: Op, *types: TensorType | None, algorithm: str) -> int:
    """Bytes; a problem that the library refuses gets none of its own, and fails when it is bound."""
    problem = _convolution(op, types)
    found = _prepared(problem, algorithm, direction)
    return _Room.of(problem, 0 if found is None else found.workspace).total


def bind(direction: str, op: Op, types: Types, constants: Sequence[Any], algorithm: str) -> tuple[Call, ...]:
    problem = _convolution(op, types)
    found = _prepared(problem, algorithm, direction)
    if found is None:
        raise ExecutionError(f"cuDNN cannot compute this gradient by {algorithm}")
    room, out, at = _Room.of(problem, found.workspace), 2, 3
    numbers = (*found.functions, *found.objects, found.algorithm, found.workspace)
    channels, pixels = problem.groups * problem.channels, math.prod(problem.window.size)
    of_x, of_y = (problem.images, pixels, channels), (problem.images, problem.window.positions, problem.outputs)
    clear = compiled("fill", (4, 0), pick=(at,))
    none = (*_NOTHING, at, *IDENTITY)
    if direction == "weights":
        places = (at, room.x, at, room.y, out, 0, -1, -1, at, room.library)
        return (
            clear,
            compiled("conv_turn", (*of_x, 0, 0, at, room.x, *none)),
            compiled("conv_turn", (*of_y, 1, 0, at, room.y, *none)),
            compiled("conv_dnn", (*numbers, *places)),
            compiled("conv_weight_gradient_redo", (*problem.params(), at)),
        )
    places = (1, 0, at, room.y, at, room.x, -1, -1, at, room.library)
    back = (problem.images, channels, pixels, at, room.x, out, 0, *_NOTHING, -1, *IDENTITY)
    return (
        clear,
        compiled("conv_turn", (*of_y, 0, 0, at, room.y, *none)),
        compiled("conv_look", (problem.outputs * problem.depth, 1, at)),
        compiled("conv_dnn", (*numbers, *places)),
        compiled("conv_turn", back),
        compiled("conv_transpose_redo", (*problem_of(op, *types).params(), at)),
    )


def estimate(direction: str, op: Op, *types: TensorType | None, algorithm: str = "plain") -> float:
    """As for convolutions, with passes that turn images over. FFT is never the first choice: few shapes suit it."""
    problem = _convolution(op, types)
    peak, images = FLOPS_EACH_MULTIPROCESSOR * machine().multiprocessors, problem.nbytes
    around = _APART_SECONDS + 5 * LAUNCH_SECONDS + 2 * images / BYTES_EACH_SECOND
    plain = around + 2 * problem.products / (_PLAIN_RATE * peak)
    if algorithm == "plain":
        return plain
    if algorithm == "fft_tiles":
        return 2 * plain
    if problem.products < _ASKED_PRODUCTS or not _suits_winograd(problem) or _refused(problem, direction):
        return 4 * plain
    return around + 2 * problem.products / (_WINOGRAD_RATE * peak) + _WINOGRAD_PASSES * images / BYTES_EACH_SECOND


def _suits_winograd(problem: Problem) -> bool:
    window = problem.window
    return max(*window.stride, *window.dilation) == 1 and problem.groups == 1 and window.kernel[1:] == (3, 3)


def _refused(problem: Problem, direction: str) -> bool:
    """By the library, which is loaded and asked only where an estimate may choose it."""
    try:
        return _prepared(problem, "winograd_apart", direction) is None
    except ExecutionError:
        return True


def _made(held: type[Op], direction: str) -> Kernel:
    bound: Callable[..., Any] = partial(bind, direction)
    made = kernel(
        ChannelsLast,
        device="cuda",
        variant="cudnn",
        dtypes=frozenset({"float32"}),
        supports=partial(supports, direction),
        workspace=partial(workspace, direction),
        estimate=partial(estimate, direction),
        tune={"algorithm": _ALGORITHMS},
        bind=bound,
        wraps=held,
    )
    return made(run_from_plan)


KERNELS: tuple[Kernel, ...] = (_made(ConvTranspose, "images"), _made(ConvWeightGrad, "weights"))
