"""Filling and copying bytes, at addresses and of lengths that no word fits."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

Array = np.ndarray[Any, Any]
LENGTHS = (0, 1, 15, 16, 17, 4096, 5003)


def rooms(nbytes: int) -> Iterator[tuple[Array, Array]]:
    """(whole array, a part of it): aligned to 16 bytes, and not."""
    for offset in (0, 1, 8):
        whole = np.full(nbytes + 128, 0xEE, np.uint8)
        start = -whole.ctypes.data % 16 + 32 + offset
        yield whole, whole[start : start + nbytes]


@pytest.fixture
def kernels(build: Callable[..., Any]) -> Any:
    return build("kernels/bytes.cu")


@pytest.mark.parametrize("nbytes", LENGTHS)
def test_fill(nbytes: int, kernels: Any, recorded: Callable[..., Any]) -> None:
    for whole, part in rooms(nbytes):
        kernels.launch(recorded("fill", (nbytes, 0xA7)), [part])
        assert (part == 0xA7).all()
        assert (whole == 0xA7).sum() == nbytes, "something else was written"


@pytest.mark.parametrize("nbytes", LENGTHS)
def test_copy(nbytes: int, kernels: Any, recorded: Callable[..., Any]) -> None:
    numbers = np.random.default_rng(nbytes).integers(0, 200, nbytes).astype(np.uint8)
    for _, source in rooms(nbytes):
        source[...] = numbers
        for whole, target in rooms(nbytes):
            kernels.launch(recorded("copy", (nbytes,)), [source, target])
            np.testing.assert_array_equal(target, numbers)
            assert (whole == 0xEE).sum() == whole.size - nbytes, "something else was written"


def test_params(recorded: Callable[..., Any]) -> None:
    assert recorded("copy", (7,)).params == struct.pack("<q", 7)
