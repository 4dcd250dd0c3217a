"""Programs are bound to arrays that are apart."""

from __future__ import annotations

import numpy as np
import pytest

import aicore
import aicore.bound
from aicore.errors import InputError
from aicore.ir import Builder
from aicore.program import Program


def two_in_two_out() -> Program:
    op = Builder()
    a, b = op.input("a", "float32", ("n",)), op.input("b", "float32", ("n",))
    return aicore.compile(op.graph([a, b], {"sum": op.Add(a, b), "product": op.Mul(a, b)}), "cpu")


def test_inputs_may_share_memory() -> None:
    x, results = np.array([1, 2, 3], np.float32), np.empty((2, 3), np.float32)
    two_in_two_out().bind({"a": x, "b": x}, {"sum": results[0], "product": results[1]}).run()
    np.testing.assert_array_equal(results, [[2, 4, 6], [1, 4, 9]])


def test_empty_arrays_are_apart_from_all() -> None:
    x = np.empty(4, np.float32)
    bound = two_in_two_out().bind({"a": x[:0], "b": x[2:2]}, {"sum": x[:0], "product": x[2:2]})
    assert bound.run()["sum"].shape == (0,)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ((0, 8, 2, 20), "output 'sum' cannot be bound to memory of 'a'"),
        ((8, 0, 20, 6), "output 'product' cannot be bound to memory of 'a'"),
        ((0, 8, 10, 20), "output 'sum' cannot be bound to memory of 'b'"),
        ((0, 8, 20, 17), "output 'product' cannot be bound to memory of 'sum'"),
        ((0, 0, 20, 2), "output 'product' cannot be bound to memory of '[ab]'"),
    ],
)
def test_outputs_share_memory_with_nothing(places: tuple[int, ...], message: str) -> None:
    """Four arrays of four numbers each, from these places of one array on."""
    memory = np.empty(32, np.float32)
    a, b, total, product = (memory[place : place + 4] for place in places)
    with pytest.raises(InputError, match=message):
        two_in_two_out().bind({"a": a, "b": b}, {"sum": total, "product": product})


def test_touching_arrays_are_apart() -> None:
    memory = np.ones(16, np.float32)
    a, total, b, product = np.split(memory, 4)
    two_in_two_out().bind({"a": a, "b": b}, {"sum": total, "product": product}).run()
    np.testing.assert_array_equal(memory, [1] * 4 + [2] * 4 + [1] * 8)


def test_each_array_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training step has thousands of arrays, whose pairs would be millions."""
    looked_at = []
    span = aicore.bound._span
    monkeypatch.setattr(aicore.bound, "_span", lambda array: (looked_at.append(id(array)), span(array))[1])
    arrays = [np.zeros(4, np.float32) for _ in range(4)]
    two_in_two_out().bind(
        dict(zip("ab", arrays[:2], strict=True)), dict(zip(("sum", "product"), arrays[2:], strict=True))
    )
    assert sorted(looked_at) == sorted(map(id, arrays))
