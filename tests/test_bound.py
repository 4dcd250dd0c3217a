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


def counter(updated: bool = True) -> Program:
    """x and the next x, x + y; as a pair of state, or not."""
    op = Builder()
    x, y = op.input("x", "float32", (4,)), op.input("y", "float32", (4,))
    return aicore.compile(op.graph([x, y], {"next": op.Add(x, y)}, [("next", "x")] if updated else []), "cpu")


def test_an_update_may_be_bound_to_its_own_input() -> None:
    x, y = np.zeros(4, np.float32), np.array([1, 2, 3, 4], np.float32)
    bound = counter().bind({"x": x, "y": y}, {"next": x})
    for _ in range(3):
        bound.run()
    np.testing.assert_array_equal(x, 3 * y)


@pytest.mark.parametrize(
    ("updated", "x", "y", "result", "message"),
    [
        (False, 0, 8, 0, "output 'next' cannot be bound to memory of 'x'"),
        (True, 0, 8, 8, "output 'next' cannot be bound to memory of 'y'"),
        (True, 0, 8, 1, "output 'next' cannot be bound to memory of 'x'"),
        (True, 0, 0, 0, "output 'next' cannot be bound to memory of 'y'"),
        (True, 0, 2, 0, "output 'next' cannot be bound to memory of 'y'"),
    ],
    ids=["no state", "another input", "not the very same memory", "an input that is there too", "one that overlaps"],
)
def test_only_an_update_and_only_to_that(updated: bool, x: int, y: int, result: int, message: str) -> None:
    memory = np.zeros(16, np.float32)
    inputs = {"x": memory[x : x + 4], "y": memory[y : y + 4]}
    with pytest.raises(InputError, match=message):
        counter(updated).bind(inputs, {"next": memory[result : result + 4]})


def test_an_update_that_is_not_computed_in_place_stays_apart() -> None:
    op = Builder()
    x = op.input("x", "float32", (4,))
    following = op.Neg(x)
    program = aicore.compile(op.graph([x], {"next": following, "y": op.MatMul(x, following)}, [("next", "x")]), "cpu")
    array = np.ones(4, np.float32)
    with pytest.raises(InputError, match="output 'next' cannot be bound to memory of 'x'"):
        program.bind({"x": array}, {"next": array, "y": np.empty((), np.float32)})
