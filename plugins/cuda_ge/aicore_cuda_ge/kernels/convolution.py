"""Convolutions with what follows them, by the kernels of graph_executor/cnn.

implicit: a matrix product in tiles, of channels-last float32 images. unaligned: the same where channels are no multiple
of 4. tensor: the same on tensor cores, for float16 and bfloat16, and as tf32 for float32 where that was asked for.
depthwise: one thread for a few results of a channel. direct: one thread for each result, for everything else.
cudnn, cudnn_fft, cudnn_winograd: NVIDIA's library, where it is installed; `_dnn_conv.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct
from aicore.ops.layout import ChannelsLast
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Call, Compiled, compiled
from aicore_cuda_ge.kernels import _conv_tiles as tiles
from aicore_cuda_ge.kernels import _dnn_conv as by_library
from aicore_cuda_ge.kernels import _tensor_conv as on_tensor_cores
from aicore_cuda_ge.kernels import _tensor_tiles as tensor
from aicore_cuda_ge.kernels._conv_launch import AxisTaps, implicit_params, pack_params
from aicore_cuda_ge.kernels._conv_problem import Problem, problem_of, reason_against
from aicore_cuda_ge.kernels._conv_tiles import Tile
from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, LAUNCH_SECONDS
from aicore_cuda_ge.kernels._memory_bound import run_from_plan
from aicore_cuda_ge.kernels._packing import item_bytes, on_device, pack_rows

Types = Sequence["TensorType | None"]
Constants = Sequence["DeviceArray | None"]

CONVOLUTIONS: tuple[type[Op], ...] = (Conv, ConvAct, ConvAdd, ConvAddAct)
_FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})
_FLOAT32 = frozenset({"float32"})
_NARROW = frozenset({"float16", "bfloat16"})
_MOST_TAPS = 15
"""Along an axis: there is a bit for each, and one to spare."""
_LARGEST = 2**31 - 1
_MOST_COLUMN_TILES = 65535
_DIRECT_PRODUCTS = 3e11
"""Products each second of the direct kernel; it is never the first choice."""
_WAIT_SECONDS, _READ_SECONDS = {4: 65e-9, 1: 50e-9}, {4: 1.5e-12, 1: 0.72e-12}
"""Of the depthwise kernel, by channels that a thread reads at once: how long a thread waits for what it reads, image or
weight, and how long the GPU takes for each read of all threads. Fitted to 37 problems on an H200."""
_DEPTHWISE_SECONDS, _REREAD = 0.5e-6, 0.75
"""To begin; and what reading an element once more takes of the first time, where no row is kept in registers."""


def image_reason(op: Op, *types: TensorType | None) -> str | None:
    """What the tiled and the depthwise kernel do not take: they index with 32 bits and loop over two axes."""
    if reason := reason_against(op, *types):
        return reason
    problem = problem_of(op, *types)
    window = problem.window
    if (window.size[0], window.out[0], window.kernel[0]) != (1, 1, 1):
        return "takes images of at most two spatial axes"
    if not problem.fused:
        return "adds a residual of the output's shape only"
    elements = problem.images * max(math.prod(window.size) * problem.groups * problem.channels, window.positions)
    reach = sum(k * d for k, d in zip(window.kernel, window.dilation, strict=True)) + sum(window.begin)
    margin = reach * (window.size[2] + reach) * problem.groups * problem.channels
    too_large = elements + margin > _LARGEST or problem.outputs * problem.depth > _LARGEST
    return "takes images of fewer than 2**31 elements" if too_large else None


def implicit_reason(aligned: bool, op: Op, *types: TensorType | None) -> str | None:
    if reason := image_reason(op, *types):
        return reason
    problem = problem_of(op, *types)
    if problem.channels == 0:
        return "takes at least one channel"
    if aligned != (problem.channels % 4 == 0):
        return f"takes channels of a group in {'fours' if aligned else 'other numbers than fours'}"
    if max(problem.window.kernel) > _MOST_TAPS:
        return f"takes at most {_MOST_TAPS} taps along an axis"
    least = min(tile.columns for tile in tiles.ALIGNED.values())
    if problem.groups * -(-problem.maps // least) > _MOST_COLUMN_TILES:
        return f"takes at most {_MOST_COLUMN_TILES} tiles of maps"
    return None


def tensor_reason(op: Op, *types: TensorType | None) -> str | None:
    if reason := tensor.reason_against_machine() or image_reason(op, *types):
        return reason
    problem = problem_of(op, *types)
    if problem.channels == 0:
        return "takes at least one channel"
    if max(problem.window.kernel) > _MOST_TAPS:
        return f"takes at most {_MOST_TAPS} taps along an axis"
    return None


def depthwise_reason(op: Op, *types: TensorType | None) -> str | None:
    if reason := image_reason(op, *types):
        return reason
    channels = problem_of(op, *types).channels
    return None if channels == 1 else f"takes one channel a group, here {channels}"


def packed(array_module: Any, w: Any, problem: Problem, depth: int, columns: int) -> Any:
    """Weights (groups * maps, channels, taps...) as (groups, depth, columns): taps and channels down, maps across.

    array_module: NumPy or CuPy. Zeros fill up rows and columns.
    """
    taps = problem.window.taps
    parts = w.reshape(problem.groups, problem.maps, problem.channels, taps).transpose(0, 3, 2, 1)
    full = array_module.zeros((problem.groups, depth, columns), w.dtype)
    full[:, : problem.depth, : problem.maps] = parts.reshape(problem.groups, problem.depth, problem.maps)
    return full


def packed_depthwise(array_module: Any, w: Any, problem: Problem) -> Any:
    """Weights (channels * maps, 1, taps...) as (taps, maps), rows filled up to a multiple of four."""
    full = array_module.zeros((problem.window.taps, tiles.in_fours(problem.outputs)), w.dtype)
    full[:, : problem.outputs] = w.reshape(problem.outputs, problem.window.taps).T
    return full


def bind_implicit(
    choices: dict[str, Tile], op: Op, types: Types, constants: Constants, tile: str, split: int
) -> tuple[Call, ...]:
    """The launch on packed weights; those that are not constant are packed into the workspace before it."""
    problem, chosen, w = problem_of(op, *types), choices[tile], constants[1]
    depth, columns, workspace = tiles.padded_depth(problem), tiles.padded_columns(problem), problem.out_at + 1
    if w is not None:
        extra = (on_device(w, partial(packed, problem=problem, depth=depth, columns=columns)),)
        numbers = implicit_params(problem, chosen, split, w_at=workspace + 1, is_fixed=True)
        return (compiled(chosen.kernel, numbers, extra),)
    pack = compiled("conv_pack", pack_params(problem, AxisTaps.all_of(problem.window), workspace))
    return pack, compiled(chosen.kernel, implicit_params(problem, chosen, split, w_at=workspace))


def implicit_workspace(op: Op, *types: TensorType | None, **settings: Any) -> int:
    """Bytes of packed weights, should these not be constant."""
    return tiles.packed_bytes(problem_of(op, *types))


def implicit_estimate(
    choices: dict[str, Tile], op: Op, *types: TensorType | None, tile: str = "", split: int = 1
) -> float:
    return tiles.seconds(problem_of(op, *types), choices[tile or next(iter(choices))], split)


def bind_depthwise(op: Op, types: Types, constants: Constants) -> tuple[Call, ...]:
    """The launch on packed weights, as for the implicit kernel."""
    problem, w = problem_of(op, *types), constants[1]
    columns, workspace = tiles.in_fours(problem.outputs), problem.out_at + 1
    if w is not None:
        extra = (on_device(w, partial(packed_depthwise, problem=problem)),)
        return (compiled("conv_depthwise", (*problem.params(workspace + 1), columns), extra),)
    taps = problem.window.taps
    sizes = (1, taps, problem.outputs, columns)
    pack = pack_rows(sizes, (0, 1, taps), source=1, to=workspace, item=item_bytes(problem.dtype))
    return pack, compiled("conv_depthwise", (*problem.params(workspace), columns))


def depthwise_workspace(op: Op, *types: TensorType | None) -> int:
    problem = problem_of(op, *types)
    return item_bytes(problem.dtype) * problem.window.taps * tiles.in_fours(problem.outputs)


def depthwise_estimate(op: Op, *types: TensorType | None) -> float:
    """Each thread reads rows of its windows one after the other, all threads as fast as caches or memory give them."""
    problem = problem_of(op, *types)
    (_, height, width), (*_, stride) = problem.window.kernel, problem.window.stride
    in_registers = width in (3, 5) and stride in (1, 2) and problem.window.dilation[2] == 1
    columns = 4 if in_registers and stride == 1 else 2  # as depthwise.cuh has it
    row = (columns - 1) * stride + width if in_registers else _REREAD * columns * width
    reads = height * (row + width)
    at_once = 4 if problem.maps == 1 and problem.outputs % 4 == 0 else 1
    _, down, across = problem.window.out
    threads = problem.images * down * -(-across // columns) * -(-problem.outputs // at_once)
    work = max(threads * reads * _READ_SECONDS[at_once], problem.nbytes / (0.94 * BYTES_EACH_SECOND))
    return LAUNCH_SECONDS + _DEPTHWISE_SECONDS + reads * _WAIT_SECONDS[at_once] + work


def bind_direct(name: str, op: Op, types: Types, constants: Constants) -> Compiled:
    return compiled(name, problem_of(op, *types).params())


def direct_estimate(op: Op, *types: TensorType | None) -> float:
    problem = problem_of(op, *types)
    return 10e-6 + problem.products / _DIRECT_PRODUCTS + problem.nbytes / BYTES_EACH_SECOND


def _direct(op: type[Op], wraps: type[Op] | None) -> Kernel:
    transposed = (wraps or op) is ConvTranspose
    made = kernel(
        op,
        device="cuda",
        variant="direct",
        dtypes=_FLOATS,
        supports=reason_against,
        estimate=direct_estimate,
        bind=partial(bind_direct, "conv_transpose_direct" if transposed else "conv_direct"),
        wraps=wraps,
    )
    return made(run_from_plan)


def _implicit(wraps: type[Op], variant: str, choices: dict[str, Tile]) -> Kernel:
    made = kernel(
        ChannelsLast,
        device="cuda",
        variant=variant,
        dtypes=_FLOAT32,
        supports=partial(implicit_reason, choices is tiles.ALIGNED),
        workspace=implicit_workspace,
        estimate=partial(implicit_estimate, choices),
        tune={"tile": tuple(choices), "split": tiles.SPLITS},
        bind=partial(bind_implicit, choices),
        wraps=wraps,
    )
    return made(run_from_plan)


def _tensor(wraps: type[Op], variant: str, dtypes: frozenset[str], precision: str | None) -> Kernel:
    made = kernel(
        ChannelsLast,
        device="cuda",
        variant=variant,
        dtypes=dtypes,
        supports=tensor_reason,
        workspace=on_tensor_cores.workspace,
        estimate=on_tensor_cores.estimate,
        tune=tensor.settings(),
        bind=on_tensor_cores.bind,
        wraps=wraps,
        precision=precision,
    )
    return made(run_from_plan)


def _depthwise(wraps: type[Op]) -> Kernel:
    made = kernel(
        ChannelsLast,
        device="cuda",
        variant="depthwise",
        dtypes=_FLOAT32 | _NARROW,
        supports=depthwise_reason,
        workspace=depthwise_workspace,
        estimate=depthwise_estimate,
        bind=bind_depthwise,
        wraps=wraps,
    )
    return made(run_from_plan)


_LIBRARY = (
    ("cudnn", "", _FLOAT32 | _NARROW, ("precomputed",), None),
    ("cudnn_tf32", "", _FLOAT32, ("precomputed",), tensor.TF32),
    ("cudnn_fft", "fft", _FLOAT32, ("fft_tiles", "fft"), None),
    ("cudnn_winograd", "winograd", _FLOAT32, ("winograd_apart",), None),
)
"""Variant, fast algorithm, element types, algorithms, precision."""


def library_reason(fast: str, op: Op, *types: TensorType | None) -> str | None:
    return image_reason(op, *types) or by_library.reason_against(fast, problem_of(op, *types))


def _by_library(
    wraps: type[Op], variant: str, fast: str, dtypes: frozenset[str], algorithms: tuple[str, ...], precision: str | None
) -> Kernel:
    made = kernel(
        ChannelsLast,
        device="cuda",
        variant=variant,
        dtypes=dtypes,
        supports=partial(library_reason, fast),
        workspace=partial(by_library.workspace, precision is not None),
        estimate=partial(by_library.estimate, precision is not None),
        tune={"algorithm": algorithms},
        bind=partial(by_library.bind, precision is not None),
        wraps=wraps,
        precision=precision,
    )
    return made(run_from_plan)


KERNELS: tuple[Kernel, ...] = (
    *(_direct(op, None) for op in (*CONVOLUTIONS, ConvTranspose)),
    *(_direct(ChannelsLast, wraps) for wraps in (*CONVOLUTIONS, ConvTranspose)),
    *(_implicit(wraps, "implicit", tiles.ALIGNED) for wraps in CONVOLUTIONS),
    *(_implicit(wraps, "unaligned", tiles.UNALIGNED) for wraps in CONVOLUTIONS),
    *(_tensor(wraps, "tensor", _NARROW, None) for wraps in CONVOLUTIONS),
    *(_tensor(wraps, tensor.TF32, _FLOAT32, tensor.TF32) for wraps in CONVOLUTIONS),
    *(_depthwise(wraps) for wraps in CONVOLUTIONS),
    *(_by_library(wraps, *what) for wraps in CONVOLUTIONS for what in _LIBRARY),
)
