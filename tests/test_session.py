"""State that stays on the device from run to run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import InputError
from aicore.ir import Builder, Graph
from aicore.session import DeviceState

TARGETS = ["cpu", "fake"]


def counting_graph() -> Graph:
    """y = x * w; the next w is w plus half of the sum of y over the batch."""
    op = Builder()
    x, w, c = op.input("x", "float32", ("n", 3)), op.input("w", "float32", (3,)), op.input("c", "float32", ())
    y = op.Mul(x, w)
    following = op.Add(w, op.Mul(c, op.ReduceSum(y, axes=(0,), keepdims=0)))
    return op.graph([x, w, c], {"y": y, "next.w": following}, [("next.w", "w")])


def started(target: str) -> Any:
    program = aicore.compile(counting_graph(), target, fallback="quiet")
    return program.session({"w": np.ones(3, np.float32), "c": np.float32(0.5)})


@pytest.mark.parametrize("target", TARGETS)
def test_runs_follow_the_recurrence_for_batches_of_several_sizes(target: str) -> None:
    session, w = started(target), np.ones(3)
    for step in range(6):
        x = np.random.default_rng(step).uniform(size=(2 + step % 2, 3)).astype(np.float32)
        found = session.run({"x": x})
        np.testing.assert_allclose(found["y"], x * w, rtol=1e-6)
        w = w + 0.5 * (x * w).sum(axis=0)
        np.testing.assert_allclose(session.state.read()["w"], w, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_results_that_a_caller_holds_never_change(target: str) -> None:
    session, x = started(target), np.ones((2, 3), np.float32)
    first, state = session.run({"x": x})["y"], session.state.read()["w"]
    kept = first.copy(), state.copy()
    session.run({"x": x * 3})
    session.run({"x": x * 5})
    np.testing.assert_array_equal(first, kept[0])
    np.testing.assert_array_equal(state, kept[1])


@pytest.mark.parametrize("target", TARGETS)
def test_a_run_can_be_undone_once(target: str) -> None:
    session, x = started(target), np.ones((2, 3), np.float32)
    session.run({"x": x})
    before = session.state.read()["w"]
    session.run({"x": x})
    session.undo()
    np.testing.assert_array_equal(session.state.read()["w"], before)
    with pytest.raises(InputError, match="no run to undo"):
        session.undo()
    assert session.run({"x": x})["y"][0, 0] == before[0]


@pytest.mark.parametrize("target", TARGETS)
def test_sessions_share_a_state(target: str) -> None:
    session = started(target)
    op = Builder()
    w = op.input("w", "float32", (3,))
    reader = aicore.compile(op.graph([w], {"double": op.Add(w, w)}), target, fallback="quiet").session(session.state)
    session.run({"x": np.ones((2, 3), np.float32)})
    np.testing.assert_array_equal(reader.run({})["double"], [4, 4, 4])
    session.state.write({"w": np.float32([1, 2, 3])})
    np.testing.assert_array_equal(reader.run({})["double"], [2, 4, 6])


@pytest.mark.parametrize("target", TARGETS)
def test_only_what_is_fetched_comes_back(target: str) -> None:
    session = started(target)
    assert session.run({"x": np.ones((2, 3), np.float32)}, fetch=()) == {}
    assert session.state.read()["w"][0] == 2


def test_writing_does_not_touch_the_array_that_was_given() -> None:
    first = np.ones(3, np.float32)
    program = aicore.compile(counting_graph(), "cpu")
    session = program.session({"w": first, "c": np.float32(0.5)})
    for _ in range(3):
        session.run({"x": np.ones((2, 3), np.float32)})
    np.testing.assert_array_equal(first, 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda s: s.run({}), "missing input 'x'"),
        (lambda s: s.run({"x": np.ones((2, 4), np.float32)}), "x"),
        (lambda s: s.run({"x": np.ones((2, 3), np.float32)}, fetch=["next.w"]), "no such output 'next.w'"),
        (lambda s: s.state.read(["v"]), "no state 'v'; there is 'w', 'c'"),
        (lambda s: s.state.write({"w": np.ones(4, np.float32)}), r"state 'w' is float32\[3\], got float32\[4\]"),
        (lambda s: s.state.write({"w": np.ones(3)}), r"got float64\[3\]"),
    ],
)
def test_wrong_use_is_told(wrong: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        wrong(started("cpu"))


def test_state_that_does_not_fit_the_program_is_refused() -> None:
    program = aicore.compile(counting_graph(), "cpu")
    with pytest.raises(InputError, match="there is no state for 'w'"):
        program.session({"c": np.float32(1)})
    with pytest.raises(InputError, match=r"state 'w' is float32\[2\], the program takes float32\[3\]"):
        program.session({"w": np.ones(2, np.float32), "c": np.float32(1)})


def test_sessions_that_update_different_parts_take_turns_apart() -> None:
    """Two programs on one state: one doubles a, the other one adds 1 to b and to a."""
    op = Builder()
    a = op.input("a", "float32", ())
    double = aicore.compile(op.graph([a], {"next.a": op.Add(a, a)}, [("next.a", "a")]), "cpu")
    op = Builder()
    a, b = op.input("a", "float32", ()), op.input("b", "float32", ())
    one = op.scalar(1.0, a)
    both = op.graph([a, b], {"x": op.Add(a, one), "y": op.Add(b, one)}, [("x", "a"), ("y", "b")])
    state = DeviceState(double.device, {"a": np.float32(1), "b": np.float32(10)})
    adding, doubling = aicore.compile(both, "cpu").session(state), double.session(state)
    for session in (adding, doubling, adding, adding, doubling, doubling, adding):
        session.run({})
    assert state.read() == {"a": (((1 + 1) * 2 + 1 + 1) * 2) * 2 + 1, "b": 14}


def test_a_session_keeps_so_many_bindings_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of ever other sizes would otherwise fill the memory; those that are used again are kept."""
    monkeypatch.setattr("aicore.session.KEPT", 4)
    session, w = started("cpu"), np.ones(3)
    bind, bound = session._bind, []

    def noted(arrays: Any) -> Any:
        bound.append(len(arrays["x"]))
        return bind(arrays)

    monkeypatch.setattr(session, "_bind", noted)
    for step in range(12):
        x = np.ones((1 if step % 2 else step + 2, 3), np.float32)
        session.run({"x": x}, fetch=())
        w = w + 0.5 * (x * w).sum(axis=0)
    np.testing.assert_allclose(session.state.read()["w"], w, rtol=1e-5)
    assert len(session._bindings) == 4
    assert bound.count(1) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_state_that_is_kept_once_follows_the_same_recurrence(target: str) -> None:
    """The fake GPU binds no arrays: there, the option changes nothing but that nothing can be undone."""
    program = aicore.compile(counting_graph(), target, fallback="quiet")
    first = {"w": np.ones(3, np.float32), "c": np.float32(0.5)}
    once, twice = program.session(first, keep_previous=False), program.session(first)
    for step in range(6):
        x = np.random.default_rng(step).uniform(size=(2 + step % 2, 3)).astype(np.float32)
        np.testing.assert_array_equal(once.run({"x": x})["y"], twice.run({"x": x})["y"])
        np.testing.assert_array_equal(once.state.read()["w"], twice.state.read()["w"])
    with pytest.raises(InputError, match=r"the state before the latest run is not kept: .* keep_previous=False"):
        once.undo()
    twice.undo()


def test_what_kernels_compute_in_place_is_held_once() -> None:
    """The update of a may be written over a; that of b takes a sum of b, and is written over b as well."""
    op = Builder()
    a, b = op.input("a", "float32", (4,)), op.input("b", "float32", (4,))
    mean = op.ReduceMean(b, keepdims=0)
    graph = op.graph([a, b], {"x": op.Add(a, mean), "y": op.Add(b, op.ReduceSum(b))}, [("x", "a"), ("y", "b")])
    first = {"a": np.zeros(4, np.float32), "b": np.ones(4, np.float32)}
    session = aicore.compile(graph, "cpu").session(first, keep_previous=False)
    assert session.state.nbytes == 32
    for _ in range(3):
        session.run({})
    np.testing.assert_array_equal(session.state.read()["b"], [125] * 4)  # 1, 5, 25, 125
    np.testing.assert_array_equal(session.state.read()["a"], [31] * 4)  # 1 + 5 + 25
    assert session.state.nbytes == 32


def test_state_that_is_read_after_its_update_stays_double() -> None:
    op = Builder()
    a = op.input("a", "float32", (4,))
    following = op.Add(a, op.scalar(1.0, a))
    graph = op.graph([a], {"x": following, "y": op.MatMul(following, a)}, [("x", "a")])
    session = aicore.compile(graph, "cpu").session({"a": np.zeros(4, np.float32)}, keep_previous=False)
    assert [float(session.run({})["y"]) for _ in range(3)] == [0, 8, 24]
    assert session.state.nbytes == 32


def test_bindings_of_the_same_shapes_share_their_feeds() -> None:
    session = started("cpu")
    for size in (2, 2, 3, 3):
        session.run({"x": np.ones((size, 3), np.float32)})
    assert len(session._bindings) == 4
    assert len({id(binding.feeds["x"]) for binding in session._bindings.values()}) == 2
