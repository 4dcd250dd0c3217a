"""Executables above the launch list, on the host's stand-in for it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import ConfigError, ExecutionError, InputError, OutOfMemoryError
from aicore.ir import Builder, Graph
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge import profiler
from aicore_cuda_ge.arrays import DeviceArray

Array = np.ndarray[Any, Any]
Host = Any
"""The fixture `host`: conftest.HostMachine."""


def sums(length: int = 3, size: int = 4) -> Graph:
    """x + x + x, and so on."""
    b = Builder()
    x = b.input("x", "float32", (size,))
    y = x
    for _ in range(length):
        y = b.Add(y, x)
    return b.graph([x], {"y": y})


def split() -> Graph:
    """A launch, what cannot be captured, a launch."""
    b = Builder()
    x = b.input("x", "float32", (4,))
    return b.graph([x], {"y": b.Add(b.Mul(b.Add(x, x), x), x)})


def turned() -> Graph:
    """-(x + x): the sum lies in the arena, as it is not negated in place."""
    b = Builder()
    x = b.input("x", "float32", (4,))
    return b.graph([x], {"y": b.Neg(b.Add(x, x))})


class Foreign:
    """An array of another library."""

    def __init__(self, array: Array, place: tuple[int, int] = (2, 0), **more: Any) -> None:
        self.array, self.place, self.streams = array, place, list[int]()
        self.more = more

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place

    def __dlpack__(self, *, stream: int, max_version: tuple[int, int] | None = None) -> Any:
        self.streams.append(stream)
        return self.array.__dlpack__(max_version=max_version)


def aligned(*numbers: float, offset: int = 0) -> Array:
    room = np.empty(4 * len(numbers) + 512, np.uint8)
    start = -room.ctypes.data % 64 + offset
    found = room[start : start + 4 * len(numbers)].view(np.float32)
    found[...] = numbers
    return found


X = np.array([1, 2, 3, 4], np.float32)


def test_runs_on_numpy_arrays(host: Host) -> None:
    plugin = host.plugin()
    program = host.compiled(plugin, sums())
    for factor in (1, 2):
        assert program.run({"x": factor * X})["y"].tolist() == (4 * factor * X).tolist()
    assert program.steps_run == 6
    (executable,) = plugin.launched
    found = executable.statistics()
    assert (found.captures, found.replays, found.evictions, found.kept) == (1, 2, 0, 1)
    assert found.bytes >= 32


def test_runs_on_numpy_arrays_take_no_memory_of_the_device(host: Host) -> None:
    """Inputs are copied straight to where the graph reads them, and results straight into arrays of the host."""
    plugin = host.plugin()
    program = host.compiled(plugin, sums())
    program.run({"x": X})
    taken, plugin.device.upload, plugin.device.download = plugin.device.pool.used, None, None
    plugin.device.pool.bound = taken
    first, second = program.run({"x": X})["y"], program.run({"x": 2 * X})["y"]
    assert first.tolist() == (4 * X).tolist()
    assert second.tolist() == (8 * X).tolist()
    (executable,) = plugin.launched
    with pytest.raises(ExecutionError, match="captured for"):
        executable.run_from_host([X[:2]])
    with pytest.raises(ExecutionError, match="takes 1 inputs, got 2"):
        executable.run_from_host([X, X])


def test_results_come_in_the_order_of_the_graph(host: Host) -> None:
    b = Builder()
    unused, x, z = (b.input(name, "float32", (4,)) for name in ("unused", "x", "z"))
    early = b.Add(x, z)
    late = b.Add(early, z)
    program = host.compiled(host.plugin(), b.graph([unused, x, z], {"late": late, "early": early}))
    feeds = {"unused": X, "x": X, "z": 10 * X}
    found = program.run(feeds)
    assert found["late"].tolist() == (21 * X).tolist()
    assert found["early"].tolist() == (11 * X).tolist()
    late_array, early_array = np.zeros(4, np.float32), np.zeros(4, np.float32)
    bound = program.bind(feeds, {"late": late_array, "early": early_array})
    assert bound()["late"] is late_array
    assert late_array.tolist() == (21 * X).tolist()
    assert early_array.tolist() == (11 * X).tolist()


def test_results_that_are_inputs_or_shown_twice_are_copied(host: Host) -> None:
    b = Builder()
    x = b.input("x", "float32", (4,))
    y = b.Add(x, x)
    program = host.compiled(host.plugin(), b.graph([x], {"x_again": x, "y": y, "twice": y}))
    found = program.run({"x": X})
    assert {name: array.tolist() for name, array in found.items()} == {
        "x_again": X.tolist(),
        "y": (2 * X).tolist(),
        "twice": (2 * X).tolist(),
    }
    assert not np.shares_memory(found["y"], found["twice"])


def test_bound_arrays_are_used_where_they_are(host: Host) -> None:
    program = host.compiled(host.plugin(), sums())
    x, y = Foreign(aligned(1, 2, 3, 4)), Foreign(aligned(0, 0, 0, 0))
    bound = program.bind({"x": x}, {"y": y}, stream=77)
    assert bound()["y"] is y
    assert y.array.tolist() == [4, 8, 12, 16]
    x.array[...] = 1
    bound.run()
    assert y.array.tolist() == [4, 4, 4, 4]
    bound.wait()
    (made,) = host.lists
    assert len(made.launches) == 3, "something was copied"
    assert made.streams == [77, 77]
    assert x.streams == y.streams == [77]
    assert program.steps_run == 6


def test_arrays_that_are_not_aligned_are_copied(host: Host) -> None:
    program = host.compiled(host.plugin(), sums(1))
    x, y = Foreign(aligned(1, 2, 3, 4, offset=4)), Foreign(aligned(0, 0, 0, 0, offset=8))
    program.bind({"x": x}, {"y": y}).run()
    assert y.array.tolist() == [2, 4, 6, 8]
    labels = [launch[3] for launch in host.lists[0].launches]
    assert labels == ["copy of input 0", "Add 'add': kernel add_host on (float32[4], float32[4])", "copy of output 0"]


def test_outputs_are_made_on_the_device(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    ordered: list[tuple[int, int, int]] = []
    monkeypatch.setattr(native, "order", lambda *numbers: ordered.append(numbers))
    program = host.compiled(host.plugin(), sums(1))
    bound = program.bind({"x": Foreign(aligned(1, 2, 3, 4))}, stream=77)
    y = bound()["y"]
    assert isinstance(y, DeviceArray)
    assert host.view(y.address, 4).tolist() == [2, 4, 6, 8]
    assert y.__cuda_array_interface__["stream"] == 77
    for stream, reader in ((None, 1), (1, 1), (2, 2), (99, 99)):
        y.__dlpack__(stream=stream)
        assert ordered.pop() == (0, 77, reader)
    y.__dlpack__(stream=-1)
    assert ordered == []
    program.bind({"x": y}, stream=5)()
    assert ordered == [(0, 77, 5)]


def test_the_graph_of_equal_addresses_is_shared(host: Host) -> None:
    plugin = host.plugin()
    program = host.compiled(plugin, sums(1))
    x, y = Foreign(aligned(1, 2, 3, 4)), Foreign(aligned(0, 0, 0, 0))
    for stream in (5, 5, 6):
        program.bind({"x": x}, {"y": y}, stream=stream)()
    assert plugin.launched[-1].statistics().captures == 2


def test_arrays_are_bound_in_the_order_of_the_graph(host: Host) -> None:
    b = Builder()
    unread, late, early = (b.input(name, "float32", (4,)) for name in ("unread", "late", "early"))
    first = b.Neg(early)
    graph = b.graph([unread, late, early], {"y": b.Add(first, late)})
    program = host.compiled(host.plugin(), graph)
    arrays = {name: Foreign(aligned(*(k * X))) for name, k in (("unread", 100), ("late", 10), ("early", 1))}
    y = Foreign(aligned(0, 0, 0, 0))
    program.bind(arrays, {"y": y}).run()
    assert y.array.tolist() == (9 * X).tolist()
    assert [len(one.launches) for one in host.lists] == [2], "it was not run as one graph"


def bound_twice(program: Any, streams: tuple[int, int]) -> list[tuple[Any, Foreign, Array]]:
    """The program bound to two pairs of arrays: what runs it, its result, and what that should be."""
    found = []
    for number, stream in enumerate(streams):
        x, y = Foreign(aligned(*(X + number))), Foreign(aligned(0, 0, 0, 0))
        found.append((program.bind({"x": x}, {"y": y}, stream=stream), y, x.array))
    return found


@pytest.mark.parametrize(
    ("streams", "graph", "arenas"),
    [((5, 5), turned, 1), ((5, 6), turned, 2), ((2, 2), turned, 2), ((5, 5), split, 2)],
    ids=["one stream", "two streams", "the default stream of each thread", "several graphs a run"],
)
def test_runs_that_never_overlap_share_memory(
    host: Host, streams: tuple[int, int], graph: Callable[[], Graph], arenas: int
) -> None:
    plugin = host.plugin()
    program = host.compiled(plugin, graph())
    before = plugin.device.pool.used
    runs = bound_twice(program, streams)
    arena = plugin.launched[-1].plan.memory.arena
    assert arena > 0
    assert plugin.device.pool.used - before == arenas * arena
    assert plugin.launched[-1].statistics().bytes == arenas * arena
    for _ in range(2):
        for run, y, x in runs:
            run()
            wanted = -2 * x if graph is turned else (x + x) * x + x
            assert y.array.tolist() == wanted.tolist()


def test_shared_memory_stays_until_its_last_graph_goes(host: Host) -> None:
    plugin = host.plugin(graphs=1)
    program = host.compiled(plugin, turned())
    before = plugin.device.pool.used
    (first, y, x), (second, z, _) = bound_twice(program, (5, 5))
    arena = plugin.launched[-1].plan.memory.arena
    assert [one.closed for one in host.lists] == [True, False]
    assert plugin.device.pool.used - before == arena
    first()
    assert y.array.tolist() == (-2 * x).tolist()
    second()
    assert z.array.tolist() == (-2 * (x + 1)).tolist()
    assert plugin.device.pool.used - before == arena
    program.release()
    assert plugin.device.pool.used == before


def test_a_bound_program_outlives_its_graph(host: Host) -> None:
    plugin = host.plugin(graphs=2)
    program = host.compiled(plugin, sums(1))
    pairs = [(Foreign(aligned(i, i, i, i)), Foreign(aligned(0, 0, 0, 0))) for i in range(3)]
    bound = [program.bind({"x": x}, {"y": y}) for x, y in pairs]
    assert [one.closed for one in host.lists] == [True, False, False]
    for run, (x, y) in zip(bound, pairs, strict=True):
        run()
        assert y.array.tolist() == (2 * x.array).tolist()
    found = plugin.launched[-1].statistics()
    assert found.kept == 2
    assert found.captures - found.evictions == 2
    assert found.evictions >= 2


def test_with_room_for_one_graph_each_run_captures_once(host: Host) -> None:
    plugin = host.plugin(graphs=1)
    program = host.compiled(plugin, sums(1))
    pairs = [(Foreign(aligned(i, i, i, i)), Foreign(aligned(0, 0, 0, 0))) for i in range(3)]
    bound = [program.bind({"x": x}, {"y": y}) for x, y in pairs]
    for run in 2 * bound:
        run()
    found = plugin.launched[-1].statistics()
    assert (found.captures, found.replays, found.evictions, found.kept) == (9, 6, 8, 1)


def test_graphs_that_run_stay_longer(host: Host) -> None:
    program = host.compiled(host.plugin(graphs=2), sums(1))
    pairs = [(Foreign(aligned(i, i, i, i)), Foreign(aligned(0, 0, 0, 0))) for i in range(3)]
    first = program.bind({"x": pairs[0][0]}, {"y": pairs[0][1]})
    program.bind({"x": pairs[1][0]}, {"y": pairs[1][1]})
    first()
    program.bind({"x": pairs[2][0]}, {"y": pairs[2][1]})
    assert [one.closed for one in host.lists] == [False, True, False]


def test_graphs_go_with_their_program(host: Host) -> None:
    plugin = host.plugin()
    program = host.compiled(plugin, sums())
    program.run({"x": X})
    program.bind({"x": Foreign(X)})()
    plugin.launched.clear()
    del program
    gc.collect()
    assert all(one.closed for one in host.lists)
    assert plugin.device.pool.used == 0


def test_release_gives_memory_back(host: Host) -> None:
    plugin = host.plugin()
    program = host.compiled(plugin, sums())
    program.run({"x": X})
    program.release()
    assert [one.closed for one in host.lists] == [True]
    assert program.run({"x": X})["y"].tolist() == (4 * X).tolist()
    assert plugin.launched[0].statistics().captures == 2


def test_what_cannot_be_captured_splits_the_graph(host: Host) -> None:
    plugin = host.plugin()
    program = host.compiled(plugin, split())
    wanted = (X + X) * X + X
    for _ in range(2):
        assert program.run({"x": X})["y"].tolist() == wanted.tolist()
    first, second = host.lists
    assert (len(first), len(second)) == (1, 1)
    assert first.stream == second.stream
    assert program.steps_run == 6
    x, y = Foreign(aligned(*X)), Foreign(aligned(0, 0, 0, 0))
    bound = program.bind({"x": x}, {"y": y}, stream=9)
    bound()
    bound.wait()
    assert y.array.tolist() == wanted.tolist()
    assert [row.seconds > 0 for row in program.profile({"x": X}).rows if row.device == "cuda:0"] == [True] * 3
    assert plugin.launched[0].time_replay(2) > 0


def test_what_runs_eagerly_fails_by_name(host: Host) -> None:
    program = host.compiled(host.plugin(), split())
    with pytest.raises(ExecutionError, match=r"Mul.*kernel mul_eager on .*float32\[4\].* failed: ValueError: thirteen"):
        program.run({"x": np.full(4, 6.5, np.float32)})


def negated() -> Graph:
    b = Builder()
    x = b.input("x", "float32", (4,))
    return b.graph([x], {"y": b.Neg(x)})


def test_what_a_kernel_reports_fails_the_run(host: Host) -> None:
    program = host.compiled(host.plugin(), negated())
    with pytest.raises(ExecutionError, match=r"Neg.*kernel neg_checked on \(float32\[4\]\): -3 is negative"):
        program.run({"x": np.array([1, -3, 2, 0], np.float32)})
    assert program.run({"x": X})["y"].tolist() == (-X).tolist(), "the fault stayed"


def test_bound_runs_tell_faults_when_waited_for_or_in_the_next_run(host: Host) -> None:
    program = host.compiled(host.plugin(), negated())
    x = Foreign(aligned(1, -3, 2, 0))
    bound = program.bind({"x": x})
    bound()
    with pytest.raises(ExecutionError, match="-3 is negative"):
        bound.wait()
    bound()
    with pytest.raises(ExecutionError, match="-3 is negative"):
        bound()
    x.array[...] = 1
    bound()
    bound.wait()


def test_out_of_memory_is_an_error_after_which_less_runs(host: Host) -> None:
    plugin = host.plugin()
    small, large = host.compiled(plugin, sums()), host.compiled(plugin, sums(3, 1000))
    plugin.device.pool.bound = plugin.device.pool.used + 7900
    with pytest.raises(OutOfMemoryError, match="no room for 4,000 bytes"):
        large.run({"x": np.ones(1000, np.float32)})
    assert small.run({"x": X})["y"].tolist() == (4 * X).tolist()


def test_idle_graphs_make_room(host: Host) -> None:
    plugin = host.plugin()
    first, second = host.compiled(plugin, sums()), host.compiled(plugin, sums())
    first.run({"x": X})
    plugin.device.pool.bound = plugin.device.pool.used + 20
    assert second.run({"x": X})["y"].tolist() == (4 * X).tolist()
    assert plugin.launched[0].statistics().evictions == 1


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (Foreign(X, (1, 0)), Foreign(X), "'x' cannot be bound: Foreign is not on a CUDA device"),
        (Foreign(X, (2, 1)), Foreign(X), "'x' cannot be bound: Foreign is on cuda:1, not on cuda:0"),
        ([1.0], Foreign(X), "'x' cannot be bound: list has neither DLPack nor __cuda_array_interface__"),
        (Foreign(X.astype(np.float64)), Foreign(X), r"input 'x': expected float32\[4\], got float64\[4\]: wrong dtype"),
        (Foreign(X[:3].copy()), Foreign(X), r"input 'x': expected float32\[4\], got float32\[3\]"),
        (Foreign(np.zeros((4, 2), np.float32)[:, 0]), Foreign(X), r"'x' cannot be bound: it has strides \(8,\)"),
        (Foreign(X), Foreign(np.zeros(5, np.float32)), r"output 'y': expected float32\[4\], got float32\[5\]"),
        (Foreign(X), Foreign(X), "output 'y' cannot be bound to memory of 'x'"),
        (X, Foreign(X), "'x' is a NumPy array and 'y' is Foreign; bind one kind of arrays"),
    ],
)
def test_what_cannot_be_bound(host: Host, x: Any, y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        host.compiled(host.plugin(), sums()).bind({"x": x}, {"y": y})


def test_read_only_outputs_cannot_be_bound(host: Host) -> None:
    locked = aligned(0, 0, 0, 0)
    locked.flags.writeable = False
    with pytest.raises(InputError, match="'y' cannot be bound: it is read-only"):
        host.compiled(host.plugin(), sums()).bind({"x": Foreign(X)}, {"y": Foreign(locked)})


def test_streams_belong_to_arrays_of_the_device(host: Host) -> None:
    program = host.compiled(host.plugin(), sums())
    with pytest.raises(InputError, match="stream= is for arrays of a device"):
        program.bind({"x": X}, stream=7)
    with pytest.raises(InputError, match="stream=0 says nothing"):
        program.bind({"x": Foreign(X)}, stream=0)


def test_graphs_with_steps_on_other_devices_can_be_bound(host: Host) -> None:
    b = Builder()
    x = b.input("x", "float32", (4,))
    graph = b.graph([x], {"y": b.Add(b.Abs(b.Add(x, x)), x), "z": x})
    program = host.compiled(host.plugin(), graph, fallback="quiet")
    y, z = Foreign(aligned(0, 0, 0, 0)), Foreign(aligned(0, 0, 0, 0))
    bound = program.bind({"x": Foreign(-X)}, {"y": y, "z": z})
    bound()
    bound.wait()
    assert y.array.tolist() == X.tolist()
    assert z.array.tolist() == (-X).tolist()


def test_ranges_that_cannot_be_made_are_told(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_NVTX", "1")
    with pytest.raises(ConfigError, match="this CuPy has no NVTX"):
        host.compiled(host.plugin(), sums()).run({"x": X})


def test_runs_are_marked_when_asked(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setenv("AICORE_NVTX", "1")
    monkeypatch.setattr(profiler, "nvtx_mark", lambda: lambda name: names.append(name) or profiler.no_mark(name))
    program = host.compiled(host.plugin(), sums())
    program.run({"x": X})
    program.bind({"x": Foreign(X)})()
    assert names == ["cuda:0: 3 steps"] * 2


def test_dead_memory_is_poisoned_once_it_is_dead(host: Host) -> None:
    program = host.compiled(host.plugin(), split(), poison=True)
    assert program.run({"x": X})["y"].tolist() == ((X + X) * X + X).tolist()
    assert host.lists[1].launches[0][3].startswith("poison after Mul")
    rows = [row for row in program.profile({"x": X}).rows if row.device == "cuda:0"]
    assert [row.kernel for row in rows] == ["add_host", "mul_eager", "add_host"]
    assert [rows[0].seconds, rows[2].seconds] == [pytest.approx(2e-6)] * 2
