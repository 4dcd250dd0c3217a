"""Results that are known when a step is bound, which are copied, and those whose elements depend on their places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.creation import ConstantOfShape, EyeLike, OneHot, Trilu
from aicore.ops.random import Dropout
from aicore.ops.shape import Shape, Size
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._memory_bound import (
    need_static,
    need_words,
    results_of,
    run_from_plan,
    seconds_of,
    shape_of,
)
from aicore_cuda_ge.kernels._packing import uploaded
from aicore_cuda_ge.kernels._windows import ELEMENTS

Array = np.ndarray[Any, Any]
Types = Sequence["TensorType | None"]
Known = Callable[[Any, Sequence["TensorType | None"]], Array]

seconds = seconds_of(bytes_per_second=2.5e12, launch_seconds=1.1e-6)
_LARGEST_KNOWN = 1 << 28
"""Bytes of results that are kept on the device to be copied."""


def _shape(op: Shape, types: Types) -> Array:
    return np.array(shape_of(types[0])[op.start : op.end], np.int64)


def _size(op: Size, types: Types) -> Array:
    return np.array(math.prod(shape_of(types[0])), np.int64)


def _eye(op: EyeLike, types: Types) -> Array:
    rows, columns = shape_of(types[0])
    return np.eye(rows, columns, op.k).astype(numpy_dtype(results_of(op, types)[0].dtype))


def _filled(op: ConstantOfShape, types: Types) -> Array:
    value = 0 if op.value is None else op.value.array.reshape(())
    return np.full(op.shape or (), value, numpy_dtype(op.dtype))


def _known_supports(op: Op, *types: TensorType | None) -> str | None:
    if reason := need_static(*types):
        return reason
    result = results_of(op, types)[0]
    if not result.is_static:
        return "needs a size that is known before the run"
    if reason := need_words(result.dtype):
        return reason
    nbytes = math.prod(result.static_shape) * numpy_dtype(result.dtype).itemsize
    return None if nbytes <= _LARGEST_KNOWN else f"makes up to {_LARGEST_KNOWN} bytes"


def _known(op: type[Op], make: Known) -> Kernel:
    """A kernel whose result does not depend on numbers of operands."""

    def bind(op: Any, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
        result = make(op, types)
        if not result.size:
            return ()
        out = len(types)
        return (compiled("copy", (result.nbytes,), [uploaded(result)], (out + 1, out)),)

    made = kernel(op, device="cuda", variant="known", supports=_known_supports, bind=bind, estimate=seconds)
    return made(run_from_plan)


def _words_supports(op: Op, *types: TensorType | None) -> str | None:
    return need_static(*types) or need_words(results_of(op, types)[0].dtype)


def _trilu_bind(op: Trilu, types: Types, constants: Sequence[Any]) -> Call:
    """k is a field, or the second pointer, or 0."""
    x = results_of(op, types)[0]
    *_, rows, columns = x.static_shape
    given = len(types) > 1 and types[1] is not None
    params = (numpy_dtype(x.dtype).itemsize, math.prod(x.static_shape), max(rows, 1), max(columns, 1), op.upper)
    return compiled("trilu", (*params, op.k or 0), pick=(0, 1 if given else -1, len(types)))


def _one_hot_supports(op: OneHot, *types: TensorType | None) -> str | None:
    if op.depth is None:
        return "needs a depth that is known before the run"
    indices = types[0]
    if indices is not None and indices.dtype not in ELEMENTS:
        return f"does not take indices of {indices.dtype}"
    return _words_supports(op, *types)


def _one_hot_bind(op: OneHot, types: Types, constants: Sequence[Any]) -> Call:
    y, indices = results_of(op, types)[0], types[0]
    assert indices is not None  # it is required
    shape = y.static_shape
    axis = op.axis % len(shape)
    count, inner = math.prod(shape), math.prod(shape[axis + 1 :])
    params = (numpy_dtype(y.dtype).itemsize, ELEMENTS[indices.dtype], count, max(shape[axis], 1), max(inner, 1))
    return compiled("one_hot", params, pick=(0, 2, len(types)))


def _dropout_supports(op: Dropout, *types: TensorType | None) -> str | None:
    trains = op.training_mode or any(t is not None for t in types[2:])
    return "copies what is not trained on, and draws no numbers" if trains else need_static(*types)


def _dropout_bind(op: Dropout, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    """x as it is, and a mask of ones."""
    x, out = types[0], len(types)
    count = math.prod(shape_of(x))
    item = numpy_dtype(x.dtype).itemsize if x is not None else 0
    mask = (compiled("fill", (count, 1), pick=(out + 1,)),) if op.mask else ()
    return (compiled("copy", (count * item,), pick=(0, out)), *mask) if count else ()


KERNELS: tuple[Kernel, ...] = (
    _known(Shape, _shape),
    _known(Size, _size),
    _known(EyeLike, _eye),
    _known(ConstantOfShape, _filled),
    kernel(Trilu, device="cuda", variant="words", supports=_words_supports, bind=_trilu_bind, estimate=seconds)(
        run_from_plan
    ),
    kernel(OneHot, device="cuda", variant="words", supports=_one_hot_supports, bind=_one_hot_bind, estimate=seconds)(
        run_from_plan
    ),
    kernel(Dropout, device="cuda", variant="copy", supports=_dropout_supports, bind=_dropout_bind, estimate=seconds)(
        run_from_plan
    ),
)
