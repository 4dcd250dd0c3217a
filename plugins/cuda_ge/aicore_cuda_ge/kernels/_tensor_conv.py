"""Convolutions on tensor cores, by the kernels of graph_executor/cnn/tensor_*.cu."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from aicore.ir import Op, TensorType
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels import _tensor_tiles as tensor
from aicore_cuda_ge.kernels._conv_problem import Problem, problem_of
from aicore_cuda_ge.kernels._packing import aligned, item_bytes, on_device, pack_rows, pack_seconds


def with_whole_chunks(problem: Problem) -> Problem:
    """With channels of a group that are a multiple of 16 bytes."""
    return replace(problem, channels=tensor.padded(problem.channels, problem.dtype))


def bind(
    op: Op, types: Sequence[TensorType | None], constants: Sequence[DeviceArray | None], tile: str, split: int
) -> tuple[Call, ...]:
    """Launches that pad x and pack the weights, where they are needed, and the convolution.

    The workspace holds packed weights, then padded images; packed weights that are constant come behind it.
    """
    problem = problem_of(op, *types)
    whole, workspace, w = with_whole_chunks(problem), problem.out_at + 1, constants[1]
    item, taps = item_bytes(problem.dtype), problem.window.taps
    calls: list[Call] = []
    x_at, x_byte = 0, 0
    if whole.channels != problem.channels:
        x_at, x_byte = workspace, _weight_bytes(whole)
        sizes = (problem.images * math.prod(problem.window.size), problem.groups, problem.channels, whole.channels)
        strides = (problem.groups * problem.channels, problem.channels, 1)
        calls.append(pack_rows(sizes, strides, source=0, to=workspace, to_byte=x_byte, item=item))
    extra: tuple[DeviceArray, ...] = ()
    if w is None:
        sizes = (problem.outputs, taps, problem.channels, whole.channels)
        calls.append(pack_rows(sizes, (problem.channels * taps, 1, taps), source=1, to=workspace, item=item))
    else:
        extra = (on_device(w, partial(packed, problem=problem)),)
    w_at = workspace if w is None else workspace + 1
    tail = (x_at, x_byte, tensor.TILES[tile].index, split, int(w is not None))
    name = f"conv_tensor_{tensor.kernel_name(problem.dtype)}"
    return (*calls, compiled(name, (*whole.params(w_at), *tail), extra))


def packed(array_module: Any, w: Any, problem: Problem) -> Any:
    """Weights (groups * maps, channels, taps...) as (groups * maps, taps, channels), with zeros for missing channels.

    array_module: NumPy or CuPy.
    """
    taps, channels = problem.window.taps, with_whole_chunks(problem).channels
    full = array_module.zeros((problem.outputs, taps, channels), w.dtype)
    full[:, :, : problem.channels] = w.reshape(problem.outputs, problem.channels, taps).transpose(0, 2, 1)
    return full


def workspace(op: Op, *types: TensorType | None, **settings: Any) -> int:
    """Bytes of packed weights, should these not be constant, and of padded images."""
    problem = problem_of(op, *types)
    whole = with_whole_chunks(problem)
    return _weight_bytes(whole) + (0 if whole.channels == problem.channels else _image_bytes(whole))


def estimate(op: Op, *types: TensorType | None, tile: str = "64x64", split: int = 1) -> float:
    problem = problem_of(op, *types)
    whole = with_whole_chunks(problem)
    work = tensor.Work(whole.dtype, whole.groups, whole.rows, whole.maps, whole.depth, whole.nbytes)
    padding = 0.0 if whole.channels == problem.channels else pack_seconds(_image_bytes(whole))
    return padding + tensor.seconds(work, tile, split)


def _weight_bytes(whole: Problem) -> int:
    return aligned(whole.outputs * whole.depth * item_bytes(whole.dtype))


def _image_bytes(whole: Problem) -> int:
    elements = whole.images * math.prod(whole.window.size) * whole.groups * whole.channels
    return aligned(elements * item_bytes(whole.dtype))
