"""Memory in large pages: aligned, apart, and given back."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from aicore.pages import ALIGNMENT, LARGE_PAGE, aligned_bytes, dense_copy, shared_bytes


@pytest.mark.parametrize(
    ("nbytes", "alignment"),
    [(1, ALIGNMENT), (100, ALIGNMENT), (LARGE_PAGE, LARGE_PAGE), (3 * LARGE_PAGE + 5, LARGE_PAGE)],
)
def test_what_fills_a_large_page_begins_with_one(nbytes: int, alignment: int) -> None:
    memory = aligned_bytes(nbytes)
    assert memory.nbytes == nbytes
    assert memory.ctypes.data % alignment == 0


def test_numpy_is_asked_for_as_much_as_gets_large_pages() -> None:
    memory = aligned_bytes(LARGE_PAGE).base
    assert isinstance(memory, np.ndarray)
    assert memory.nbytes >= 4 << 20


def test_pieces_lie_apart_and_are_aligned() -> None:
    pieces = [shared_bytes(nbytes) for nbytes in (3, 1 << 20, 64, 0, 3 << 20, 7, 5 << 20)]
    assert [piece.nbytes for piece in pieces] == [3, 1 << 20, 64, 0, 3 << 20, 7, 5 << 20]
    for number, piece in enumerate(pieces):
        piece.fill(number)
    for number, piece in enumerate(pieces):
        assert (piece == number).all()
        assert not piece.nbytes or piece.ctypes.data % ALIGNMENT == 0


def test_memory_is_given_back_with_the_last_piece() -> None:
    whole = 3 << 20  # no two of them share
    first, second = shared_bytes(whole), shared_bytes(whole)
    assert isinstance(first.base, np.ndarray)
    held = weakref.ref(first.base)
    assert not np.shares_memory(first, second)
    del first
    assert held() is None


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 7), (1024, 1025)])
def test_a_copy_in_c_order(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape).astype(dtype).T
    copy = dense_copy(array)
    assert copy.flags.c_contiguous
    assert copy.flags.aligned
    assert copy.dtype == array.dtype
    assert not np.shares_memory(copy, array)
    np.testing.assert_array_equal(copy, array)
