"""Blocks alive at one time never overlap, whatever the packing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicore.runtime import arena
from aicore.runtime.arena import ALIGNMENT, Block, lower_bound, place

BLOCKS = st.lists(
    st.builds(
        lambda nbytes, start, length: Block(nbytes, start, start + length),
        nbytes=st.one_of(st.integers(0, 1000), st.sampled_from([64, 128, 4096])),
        start=st.integers(0, 30),
        length=st.integers(0, 10),
    ),
    max_size=40,
)


def overlaps(blocks: Sequence[Block], offsets: Sequence[int]) -> list[tuple[Block, Block]]:
    found = []
    for i, a in enumerate(blocks):
        for j, b in enumerate(blocks[:i]):
            together = a.start <= b.end and b.start <= a.end
            touching = offsets[i] < offsets[j] + b.nbytes and offsets[j] < offsets[i] + a.nbytes
            if together and touching and a.nbytes and b.nbytes:
                found.append((a, b))
    return found


@given(BLOCKS)
def test_no_two_live_blocks_overlap(blocks: list[Block]) -> None:
    offsets, size = place(blocks)
    assert overlaps(blocks, offsets) == []
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    assert all(offset + block.nbytes <= size for offset, block in zip(offsets, blocks, strict=True))
    assert lower_bound(blocks) <= size <= sum(-(-b.nbytes // ALIGNMENT) * ALIGNMENT for b in blocks)


@given(BLOCKS)
def test_the_packing_for_many_blocks_is_right_too(blocks: list[Block]) -> None:
    offsets, size = arena._best_fit_by_time(blocks)
    assert overlaps(blocks, offsets) == []
    assert all(offset + block.nbytes <= size for offset, block in zip(offsets, blocks, strict=True))


@given(BLOCKS)
def test_without_reuse_no_byte_is_shared(blocks: list[Block]) -> None:
    offsets, _ = place(blocks, reuse=False)
    always = [Block(block.nbytes, 0, 1) for block in blocks]
    assert overlaps(always, offsets) == []


def test_a_chain_takes_two_places() -> None:
    chain = [Block(640, i, i + 1) for i in range(100)]
    assert place(chain)[1] == 2 * 640 == lower_bound(chain)


def test_largest_first_beats_first_come() -> None:
    # In the order of time, the small block takes the front and the large one no longer fits below the middle one.
    blocks = [Block(64, 0, 1), Block(128, 0, 2), Block(192, 2, 3), Block(64, 3, 3)]
    assert place(blocks)[1] == lower_bound(blocks) == 320


def test_the_lower_bound_is_the_largest_live_set() -> None:
    assert lower_bound([Block(64, 0, 2), Block(64, 1, 1), Block(64, 2, 3), Block(1, 5, 5)]) == 128
    assert lower_bound([]) == 0


@pytest.mark.parametrize("count", [0, 1])
def test_few_blocks(count: int) -> None:
    assert place([Block(10, 0, 0)] * count) == ([0] * count, 64 * count)


def test_counting_pairs() -> None:
    blocks = [Block(1, 0, 1), Block(1, 1, 2), Block(1, 2, 2), Block(1, 3, 3)]
    assert arena._pairs(blocks) == 2


def test_the_search_finds_what_neither_packing_does() -> None:
    lines = ((5, 2, 4), (1, 3, 5), (3, 4, 6), (2, 5, 5), (4, 5, 7))
    blocks = [Block(count * ALIGNMENT, start, end) for count, start, end in lines]
    sizes = [block.nbytes for block in blocks]
    by_size = sorted(range(len(blocks)), key=lambda i: -sizes[i])
    assert arena._best_fit_by_time(blocks)[1] == 11 * ALIGNMENT
    assert arena._into_gaps(sizes, by_size, arena._alive_together(blocks))[1] == 11 * ALIGNMENT
    assert place(blocks)[1] == lower_bound(blocks) == 10 * ALIGNMENT
    assert place(blocks) == place(blocks)


@given(BLOCKS)
def test_the_search_is_right_too(blocks: list[Block]) -> None:
    sizes = [arena.aligned(block.nbytes) for block in blocks]
    if not any(sizes):
        return
    offsets, size = arena._climb(sizes, range(len(blocks)), arena._alive_together(blocks), 0, 20)
    assert overlaps(blocks, offsets) == []
    assert all(offset + block.nbytes <= size for offset, block in zip(offsets, blocks, strict=True))
