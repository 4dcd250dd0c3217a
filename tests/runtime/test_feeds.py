"""What does not fit is refused before anything runs, with a message that names it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aicore.errors import InputError
from aicore.ir import Builder, Value, symbol
from aicore.runtime.feeds import check_shapes, read_feeds


def inputs(*declared: tuple[str, str, Any]) -> list[Value]:
    b = Builder()
    return [b.input(name, dtype, shape) for name, dtype, shape in declared]


def check_feeds(declared: list[Value], feeds: Any) -> list[np.ndarray[Any, Any]]:
    arrays = read_feeds(declared, feeds)
    check_shapes(declared, [array.shape for array in arrays])
    return arrays


X = inputs(("x", "float32", ("N", 3)))


class HasArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.ones((2, 3), np.float32)


class HasDlpack:
    def __dlpack__(self, **options: Any) -> Any:
        return np.ones((2, 3), np.float32).__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return np.ones(1, np.float32).__dlpack_device__()


@pytest.mark.parametrize(
    "given",
    [
        np.ones((2, 3), np.float32),
        np.ones((2, 3), ">f4"),
        np.ones((3, 2), np.float32).T,
        [[1, 1, 1], [1.0, 1, 1]],
        ((1, 1, 1), (1, 1, 1)),
        [np.ones(3, np.float32), [1, 1, 1]],
        HasArray(),
        HasDlpack(),
    ],
)
def test_whatever_is_an_array_goes_in(given: Any) -> None:
    (array,) = check_feeds(X, {"x": given})
    assert array.dtype == np.float32
    assert array.dtype.isnative
    assert array.flags.c_contiguous
    np.testing.assert_array_equal(array, np.ones((2, 3)))


def test_a_dense_array_is_not_copied() -> None:
    given = np.ones((2, 3), np.float32)
    assert check_feeds(X, {"x": given})[0] is given


@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        ("float64", 1),
        ("float16", 1.5),
        ("bfloat16", 1.5),
        ("int64", 3),
        ("uint8", 255),
        ("bool", True),
        ("complex64", 1.5),
        ("string", "text"),
        ("string", np.array("text")),
        ("bfloat16", np.array(1.5, ml_dtypes.bfloat16)),
    ],
)
def test_scalars_take_the_dtype_of_the_input(dtype: str, given: Any) -> None:
    (array,) = check_feeds(inputs(("x", dtype, ())), {"x": given})
    assert array.shape == ()
    assert array.item() == given


@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        ("int64", 1.5),
        ("int64", True),
        ("bool", 1),
        ("float32", "text"),
        ("string", 1),
        ("uint8", 256),
        ("uint8", -1),
        ("float32", 1j),
        ("float32", object()),
        ("float32", None),
        ("float32", np.float64(1)),
        ("float32", np.array("2020-01-01", "datetime64[D]")),
        ("int32", np.int64(1)),
    ],
)
def test_numbers_of_another_kind_are_refused(dtype: str, given: Any) -> None:
    with pytest.raises(InputError, match="input 'x'"):
        check_feeds(inputs(("x", dtype, ())), {"x": given})


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, r"missing input 'x'; the program takes 'x': float32\[N,3\]"),
        ({"y": 1, "z": 1, "x": 1}, r"no such inputs 'y', 'z'; the program takes 'x': float32\[N,3\]"),
        ({"x": np.ones((2, 3))}, r"input 'x': expected float32\[N,3\], got float64\[2,3\]: wrong dtype"),
        ({"x": np.ones(3, np.float32)}, r"input 'x': expected float32\[N,3\], got float32\[3\]: rank 1 instead of 2"),
        ({"x": np.ones((2, 4), np.float32)}, r"got float32\[2,4\]: 4 where 3 belongs"),
        ({"x": [[1, 2, 3], [1]]}, r"input 'x' \(float32\[N,3\]\): list is no array"),
        ([1], "feeds must map names to arrays, got list"),
    ],
)
def test_messages_name_input_expected_and_given(feeds: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_feeds(X, feeds)


def test_one_dim_with_two_sizes_names_the_symbol_and_both_inputs() -> None:
    both = inputs(("a", "float32", ("N", 2)), ("b", "float32", ("N",)))
    with pytest.raises(InputError, match=r"input 'b': .*dim 'N' is 4 here but 3 in input 'a'"):
        check_feeds(both, {"a": np.ones((3, 2), np.float32), "b": np.ones(4, np.float32)})
    square = inputs(("a", "float32", ("N", "N")))
    with pytest.raises(InputError, match=r"dim 'N' is 2 here but 3 elsewhere in it"):
        check_feeds(square, {"a": np.ones((3, 2), np.float32)})


def test_computed_dims_are_checked_once_their_symbols_are_known() -> None:
    n = symbol("N")
    related = inputs(("a", "float32", (n + 1,)), ("b", "float32", (n,)))
    check_feeds(related, {"a": np.ones(4, np.float32), "b": np.ones(3, np.float32)})
    with pytest.raises(InputError, match=r"input 'a': .*5 where N\+1 = 4 belongs"):
        check_feeds(related, {"a": np.ones(5, np.float32), "b": np.ones(3, np.float32)})


def test_an_unknown_dim_takes_any_size() -> None:
    from aicore.ir import unknown

    free = inputs(("a", "float32", (unknown(),)), ("b", "float32", None))
    check_feeds(free, {"a": np.ones(4, np.float32), "b": np.ones((3, 2), np.float32)})


def test_no_inputs() -> None:
    assert check_feeds([], {}) == []
    with pytest.raises(InputError, match="the program takes no inputs"):
        check_feeds([], {"x": 1})
