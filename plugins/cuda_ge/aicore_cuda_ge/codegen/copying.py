"""Strided copies: every op that only moves elements, where sizes say from where to where, is one of these.

A copy has dims, and for each dim a stride in the source and one in the target, in elements; a stride of 0 repeats, a
negative one walks backwards. Sizes and strides stand in the source as numbers, so that the compiler divides by them
with multiplications. Two forms:

rows    each thread copies words of up to 16 bytes that are neighbours on both sides; any strides will do.
tiles   source and target have different dims whose elements are neighbours, as in a transpose: squares of 32x32 pass
        through shared memory, so that both sides are read and written in whole lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

THREADS = 256
_TILE, _ROWS = 32, 8
MOST_BLOCKS = 1 << 20
_LARGEST_32_BIT = 2**31
WORDS = {1: "u8", 2: "u16", 4: "u32", 8: "w64", 16: "w128"}


@dataclass(frozen=True)
class Copy:
    """`target[to_start + i * to_strides] = source[from_start + i * from_strides]` for all i in dims, in elements."""

    dims: tuple[int, ...]
    from_strides: tuple[int, ...]
    to_strides: tuple[int, ...]
    from_start: int = 0
    to_start: int = 0
    itemsize: int = 4

    @property
    def size(self) -> int:
        return math.prod(self.dims)


@dataclass(frozen=True)
class CopySource:
    """A kernel `name(source, target, count)` as text, and how to launch it."""

    name: str
    text: str
    count: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


def dense(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides of an array in C order."""
    strides = [1] * len(dims)
    for axis in range(len(dims) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * dims[axis + 1]
    return tuple(strides)


def simplified(copy: Copy) -> Copy:
    """The same copy with as few dims as possible, the target's neighbours last, in words as wide as possible."""
    return _widened(_merged(copy))


def copy_source(copy: Copy, name: str = "aicore_copy") -> CopySource:
    """The kernel for a copy of at least one element."""
    copy = simplified(copy)
    tile = _tile_of(copy)
    return _rows(copy, f"{name}_rows") if tile is None else _tiles(copy, tile, f"{name}_tiles")


def _merged(copy: Copy) -> Copy:
    """Dims of one element left out, those sorted by the target's stride, neighbours joined."""
    rows = [row for row in zip(copy.dims, copy.from_strides, copy.to_strides, strict=True) if row[0] != 1]
    rows.sort(key=lambda row: -abs(row[2]))
    joined: list[tuple[int, int, int]] = []
    for dim, from_stride, to_stride in rows:
        if joined:
            outer, from_outer, to_outer = joined[-1]
            if from_outer == from_stride * dim and to_outer == to_stride * dim:
                joined[-1] = (outer * dim, from_stride, to_stride)
                continue
        joined.append((dim, from_stride, to_stride))
    dims, from_strides, to_strides = zip(*joined, strict=True) if joined else ((1,), (1,), (1,))
    return replace(copy, dims=tuple(dims), from_strides=tuple(from_strides), to_strides=tuple(to_strides))


def _widened(copy: Copy) -> Copy:
    """Twice as wide elements, again and again, while neighbours stay neighbours and everything stays aligned."""
    while copy.itemsize < 16 and copy.from_strides[-1] == copy.to_strides[-1] == 1:
        numbers = (*copy.from_strides[:-1], *copy.to_strides[:-1], copy.from_start, copy.to_start, copy.dims[-1])
        if any(number % 2 for number in numbers):
            break
        copy = Copy(
            (*copy.dims[:-1], copy.dims[-1] // 2),
            (*(stride // 2 for stride in copy.from_strides[:-1]), 1),
            (*(stride // 2 for stride in copy.to_strides[:-1]), 1),
            copy.from_start // 2,
            copy.to_start // 2,
            copy.itemsize * 2,
        )
    return copy


def _tile_of(copy: Copy) -> int | None:
    """The dim whose elements are neighbours in the source, if a tile of it and of the last dim pays."""
    if copy.from_strides[-1] in (0, 1) or copy.to_strides[-1] != 1 or copy.itemsize > 8:
        return None
    found = [axis for axis, stride in enumerate(copy.from_strides[:-1]) if stride == 1]
    return found[0] if found and min(copy.dims[found[0]], copy.dims[-1]) >= _TILE // 2 else None


def _rows(copy: Copy, name: str) -> CopySource:
    kind = WORDS[copy.itemsize]
    lines = [
        *_head(name, copy, THREADS),
        f"    const Index stride = Index(gridDim.x) * {THREADS};",
        f"    for (Index e = Index(blockIdx.x) * {THREADS} + threadIdx.x; e < count; e += stride) {{",
        *_offsets(copy, "e", range(len(copy.dims)), "        "),
        "        target[to] = source[from];",
        "    }",
        "}",
    ]
    blocks = min(max(-(-copy.size // THREADS), 1), MOST_BLOCKS)
    return CopySource(name, _wrapped(kind, lines), copy.size, (blocks, 1, 1), (THREADS, 1, 1))


def _tiles(copy: Copy, across: int, name: str) -> CopySource:
    """Block x walks over tiles of (dim `across`, last dim), and then over all other dims."""
    last = len(copy.dims) - 1
    others = [axis for axis in range(last) if axis != across]
    high, wide = -(-copy.dims[across] // _TILE), -(-copy.dims[last] // _TILE)
    count = high * wide * math.prod(copy.dims[axis] for axis in others)
    kind = WORDS[copy.itemsize]
    rest = replace(
        copy,
        dims=tuple(copy.dims[a] for a in others) or (1,),
        from_strides=tuple(copy.from_strides[a] for a in others) or (0,),
        to_strides=tuple(copy.to_strides[a] for a in others) or (0,),
    )
    lines = [
        *_head(name, copy, _TILE * _ROWS),
        f"    __shared__ {kind} tile[{_TILE}][{_TILE} + 1];  // one more, so that columns lie in different banks",
        "    for (Index t = blockIdx.x; t < count; t += gridDim.x) {",
        f"        const Index left = t % {wide}u * {_TILE}, top = t / {wide}u % {high}u * {_TILE};",
        f"        const Index other = t / {wide * high}u;",
        *_offsets(rest, "other", range(len(rest.dims)), "        "),
        f"        for (int row = threadIdx.y; row < {_TILE}; row += {_ROWS}) {{",
        "            const Index a = top + threadIdx.x, b = left + row;",
        f"            if (a < {copy.dims[across]}u && b < {copy.dims[last]}u)",
        f"                tile[row][threadIdx.x] = source[from + a + i64(b) * {copy.from_strides[last]}];",
        "        }",
        "        __syncthreads();",
        f"        for (int row = threadIdx.y; row < {_TILE}; row += {_ROWS}) {{",
        "            const Index a = top + row, b = left + threadIdx.x;",
        f"            if (a < {copy.dims[across]}u && b < {copy.dims[last]}u)",
        f"                target[to + i64(a) * {copy.to_strides[across]} + b] = tile[threadIdx.x][row];",
        "        }",
        "        __syncthreads();  // before the next tile overwrites this one",
        "    }",
        "}",
    ]
    return CopySource(name, _wrapped(kind, lines), count, (min(count, MOST_BLOCKS), 1, 1), (_TILE, _ROWS, 1))


def _head(name: str, copy: Copy, threads: int) -> Iterator[str]:
    kind = WORDS[copy.itemsize]
    yield f'extern "C" __global__ void __launch_bounds__({threads})'
    yield f"{name}(const {kind} *__restrict__ source, {kind} *__restrict__ target, const i64 count) {{"
    yield "    begin();"
    yield f"    typedef {'u32' if copy.size < _LARGEST_32_BIT else 'u64'} Index;"


def _offsets(copy: Copy, element: str, axes: Sequence[int], indent: str) -> Iterator[str]:
    """`from` and `to` of the element with this number, counted over the dims in C order."""
    inner = dense(copy.dims)
    terms: dict[str, list[str]] = {"from": [str(copy.from_start)], "to": [str(copy.to_start)]}
    for axis in axes:
        index = element if inner[axis] == 1 else f"{element} / {inner[axis]}u"
        index = f"{index} % {copy.dims[axis]}u" if axis else index
        for side, strides in (("from", copy.from_strides), ("to", copy.to_strides)):
            if strides[axis]:
                terms[side].append(f"i64({index}) * {strides[axis]}")
    for side, found in terms.items():
        yield f"{indent}const i64 {side} = {' + '.join(found)};"


def _wrapped(kind: str, lines: Sequence[str]) -> str:
    return "\n".join(["namespace aicore {", "", *lines, "", "}  // namespace aicore", ""])
