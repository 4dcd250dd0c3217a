"""More axes than the tensor has are refused when their number alone is known."""

from __future__ import annotations

import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder


def test_squeeze_of_more_axes_than_the_rank() -> None:
    op = Builder()
    x, axes = op.input("x", "float32", (1, 1)), op.input("axes", "int64", (3,))
    with pytest.raises(InferenceError, match=r"3 axes are given for \(1, 1\)"):
        op.Squeeze(x, axes)


def test_slice_with_more_starts_than_the_rank() -> None:
    op = Builder()
    x, bound = op.input("x", "float32", (4,)), op.input("bound", "int64", (2,))
    with pytest.raises(InferenceError, match="2 starts are given for rank 1"):
        op.Slice(x, bound, bound)
