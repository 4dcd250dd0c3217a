"""Gathers: each element of the result comes from where indices say.

An index counts from the front, or from the back where it is negative. One that is out of range is reported in `fault`,
and reads the nearest element that exists: a kernel cannot raise, and must not read what is not its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from aicore.ir import TensorType, numpy_dtype
from aicore.ops.gather import Gather, GatherElements
from aicore_cuda_ge.codegen.copying import MOST_BLOCKS, THREADS, WORDS, CopySource, dense

_INDICES = {"int32": "i32", "int64": "i64"}


def gather_source(op: Any, x: TensorType, indices: TensorType, y: TensorType) -> CopySource:
    """The kernel `name(x, indices, y, fault, count)` for Gather, GatherElements or GatherND; x and y have elements."""
    kind, index = WORDS[numpy_dtype(x.dtype).itemsize], _INDICES[indices.dtype]
    name = f"aicore_{type(op).__name__.lower()}"
    count = math.prod(y.static_shape)
    body = _body(op, x.static_shape, indices.static_shape, y.static_shape)
    lines = [
        "INLINE i64 within(const i64 i, const i64 dim, i64 *fault) {",
        "    const i64 place = i < 0 ? i + dim : i;",
        "    if (place >= 0 && place < dim) return place;",
        "    *fault = i;  // never 0, which is in range",
        "    return place < 0 ? 0 : dim - 1;",
        "}",
        "",
        f'extern "C" __global__ void __launch_bounds__({THREADS})',
        f"{name}(const {kind} *__restrict__ x, const {index} *__restrict__ indices, {kind} *__restrict__ y,",
        "        i64 *fault, const i64 count) {",
        "    begin();",
        f"    for (i64 e = i64(blockIdx.x) * {THREADS} + threadIdx.x; e < count; e += i64(gridDim.x) * {THREADS}) {{",
        *(f"        {line}" for line in body),
        "        y[e] = x[from];",
        "    }",
        "}",
    ]
    text = "\n".join(["namespace aicore {", "", *lines, "", "}  // namespace aicore", ""])
    blocks = min(max(-(-count // THREADS), 1), MOST_BLOCKS)
    return CopySource(name, text, count, (blocks, 1, 1), (THREADS, 1, 1))


def _body(op: Any, x: Sequence[int], indices: Sequence[int], y: Sequence[int]) -> Iterator[str]:
    if isinstance(op, Gather):
        return _along_axis(op.axis % len(x), x, indices)
    if isinstance(op, GatherElements):
        return _elements(op.axis % len(x), x, y)
    return _tuples(op.batch_dims, x, indices)


def _along_axis(axis: int, x: Sequence[int], indices: Sequence[int]) -> Iterator[str]:
    """y[outer, i, inner] = x[outer, indices[i], inner]"""
    inner, picked = math.prod(x[axis + 1 :]), math.prod(indices)
    yield f"const u64 n = u64(e), i = n / {inner}u % {picked}u;"
    yield f"const i64 outer = i64(n / {inner * picked}u), place = within(indices[i], {x[axis]}, fault);"
    yield f"const i64 from = (outer * {x[axis]} + place) * {inner} + i64(n % {inner}u);"


def _elements(axis: int, x: Sequence[int], y: Sequence[int]) -> Iterator[str]:
    """y[..., i, ...] = x[..., indices[..., i, ...], ...]; dims of the result may be shorter than those of x."""
    counted, strides = dense(y), dense(x)
    terms = [f"within(indices[e], {x[axis]}, fault) * {strides[axis]}"]
    others = (dim for dim in range(len(x)) if dim != axis)
    terms += [f"i64(u64(e) / {counted[dim]}u % {y[dim]}u) * {strides[dim]}" for dim in others]
    yield f"const i64 from = {' + '.join(terms)};"


def _tuples(batch: int, x: Sequence[int], indices: Sequence[int]) -> Iterator[str]:
    """y[b, i, inner] = x[b, *indices[b, i], inner]"""
    length = indices[-1]
    inner = math.prod(x[batch + length :])
    each = math.prod(indices[batch:-1])
    strides = dense(x)
    yield f"const u64 n = u64(e), tuple = n / {inner}u;"
    terms = [f"i64(tuple / {each}u) * {math.prod(x[batch:])}", f"i64(n % {inner}u)"]
    terms += [
        f"within(indices[tuple * {length} + {k}], {x[batch + k]}, fault) * {strides[batch + k]}" for k in range(length)
    ]
    yield f"const i64 from = {' + '.join(terms)};"
