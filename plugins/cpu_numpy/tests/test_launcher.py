"""Plans on the CPU: where memory goes, what errors say, and how runs stay apart."""

from __future__ import annotations

import threading
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aicore.ops as ops
from aicore.errors import ExecutionError
from aicore.ir import Builder, Graph, TensorType
from aicore.kernels import Kernel, KernelTable, Selector, kernel
from aicore.pages import ALIGNMENT, LARGE_PAGE
from aicore.runtime import Constants, Device, Executable, MemoryOptions, Plan, make_plan
from aicore.runtime.planner import only_renames
from aicore_cpu_numpy.arena import Arena
from aicore_cpu_numpy.device import CpuDevice
from aicore_cpu_numpy.launcher import CpuExecutable

Array = np.ndarray[Any, Any]


@kernel(ops.Add, device="cpu", variant="out", inplace=True)
def add_out(op: ops.Add, a: Array, b: Array, *, out: Array) -> None:
    np.add(a, b, out=out)


@kernel(ops.Neg, device="cpu", variant="out")
def neg_out(op: ops.Neg, x: Array, *, out: Array) -> None:
    np.negative(x, out=out)


@kernel(ops.MatMul, device="cpu", variant="workspace", workspace=lambda op, a, b: a.nbytes)
def matmul_workspace(op: ops.MatMul, a: Array, b: Array, *, out: Array, workspace: Array) -> None:
    doubled = workspace.view(a.dtype).reshape(a.shape)
    np.multiply(a, 1, out=doubled)
    np.matmul(doubled, b, out=out)


@kernel(ops.NonZero, device="cpu")
def nonzero(op: ops.NonZero, x: Array) -> Array:
    return np.array(np.nonzero(x), np.int64)


KERNELS = [add_out, neg_out, matmul_workspace, nonzero]


def plan_of(graph: Graph, *extra: Kernel, **options: bool) -> Plan:
    replaced = {k.op for k in extra}
    selector = Selector(KernelTable([*extra, *(k for k in KERNELS if k.op not in replaced)]), "cpu")
    selections = {
        node: selector.select(node.op, *(None if v is None else v.type for v in node.inputs))
        for node in graph.nodes
        if not only_renames(node)
    }
    outputs = [value for _, value in graph.outputs]
    return make_plan(
        "cpu", graph.nodes, graph.inputs, outputs, selections, MemoryOptions(**options), Constants(CpuDevice())
    )


def chain(length: int, side: int) -> Graph:
    """Matrix products and negations, none of them in place."""
    b = Builder()
    x = value = b.input("x", "float32", (side, side))
    for _ in range(length):
        value = b.Neg(b.MatMul(value, x))
    return b.graph((x,), {"y": value})


def one(op: Callable[[Builder, Any], Any], shape: tuple[int, ...] = (2, 3)) -> Graph:
    b = Builder()
    x = b.input("x", "float32", shape)
    return b.graph((x,), {"y": op(b, x)})


def test_device_and_executable_keep_the_protocols() -> None:
    assert isinstance(CpuDevice(), Device)
    assert isinstance(CpuExecutable(plan_of(chain(1, 4))), Executable)


def test_dense_arrays_are_used_in_place() -> None:
    device = CpuDevice()
    array = np.ones((2, 3), np.float32)
    assert device.upload(array) is array
    assert device.download(array) is array
    assert device.upload(array.T).flags.c_contiguous
    assert device.upload(array.astype(">f4")).dtype.isnative
    assert device.empty(TensorType("int8", (2, 0))).shape == (2, 0)
    assert device.allocate(7).nbytes == 7
    assert device.copy(array) is not array


def test_weights_are_not_copied() -> None:
    weights = np.ones((4, 4), np.float32)
    b = Builder()
    x = b.input("x", "float32", (4, 4))
    graph = b.graph((x,), {"y": b.Add(x, b.constant(weights))})
    first, second = (Arena(plan) for plan in [plan_of(graph)] * 2)
    for arena in (first, second):
        assert any(view is not None and np.shares_memory(view, weights) for view in arena.views)


def test_the_arena_is_aligned() -> None:
    arena = Arena(plan_of(chain(3, 5)))
    assert arena.bytes.ctypes.data % ALIGNMENT == 0


@pytest.mark.parametrize(("size", "besides"), [(400, 1 << 17), (512, 2 * LARGE_PAGE)])
def test_the_peak_of_a_run_is_what_was_planned(size: int, besides: int) -> None:
    """besides: bytes of views and calls; and what is never touched, but lets the arena begin and end with a page."""
    executable = CpuExecutable(plan_of(chain(6, size)))
    memory = executable.plan.memory
    x = np.ones((size, size), np.float32)
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        result = executable.run([x])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        del result
    assert peaks[0] <= memory.arena + memory.outputs + besides
    assert max(peaks[1:]) <= 1.05 * memory.outputs, "the arena of the first run is there already"


def test_release_frees_idle_arenas() -> None:
    executable = CpuExecutable(plan_of(chain(6, 512)))
    x = np.ones((512, 512), np.float32)
    tracemalloc.start()
    executable.run([x])
    held = tracemalloc.get_traced_memory()[0]
    executable.release()
    assert tracemalloc.get_traced_memory()[0] <= held - executable.plan.memory.arena
    executable.run([x])
    tracemalloc.stop()


def test_earlier_results_never_change() -> None:
    executable = CpuExecutable(plan_of(chain(2, 8)))
    x = np.eye(8, dtype=np.float32)
    first = executable.run([x])[0]
    kept = first.copy()
    executable.run([2 * x])
    np.testing.assert_array_equal(first, kept)


def test_results_go_where_the_caller_says() -> None:
    b = Builder()
    x = b.input("x", "float32", (2, 3))
    y = b.Neg(x)
    executable = CpuExecutable(plan_of(b.graph((x,), {"y": y, "again": y, "x": x})))
    outputs = [np.zeros((2, 3), np.float32) for _ in range(3)]
    data = np.ones((2, 3), np.float32)
    results = executable.run([data], outputs)
    assert all(a is b for a, b in zip(results, outputs, strict=True))
    assert [float(out[0, 0]) for out in outputs] == [-1, -1, 1]


def test_steps_are_counted() -> None:
    executable = CpuExecutable(plan_of(chain(3, 4)))
    assert executable.steps_run == 0
    for _ in range(2):
        executable.run([np.ones((4, 4), np.float32)])
    assert executable.steps_run == 12


def test_profile_times_every_step() -> None:
    executable = CpuExecutable(plan_of(chain(3, 4)))
    results, seconds = executable.profile([np.ones((4, 4), np.float32)])
    assert len(seconds) == 6
    assert all(s > 0 for s in seconds)
    np.testing.assert_array_equal(results[0], executable.run([np.ones((4, 4), np.float32)])[0])


def test_eight_threads_give_the_bits_of_one() -> None:
    executable = CpuExecutable(plan_of(chain(4, 32), poison=True))
    inputs = [np.random.default_rng(i).normal(size=(32, 32)).astype(np.float32) / 8 for i in range(8)]
    serial = [executable.run([x])[0] for x in inputs]
    results: list[list[Array]] = [[] for _ in inputs]

    def work(i: int) -> None:
        results[i] = [executable.run([inputs[i]])[0] for _ in range(20)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, wanted in enumerate(serial):
        assert len(results[i]) == 20
        assert all(result.tobytes() == wanted.tobytes() for result in results[i])
    assert executable.steps_run == 8 * 21 * 8


def test_no_lock_is_held_while_kernels_run() -> None:
    barrier = threading.Barrier(2, timeout=10)

    @kernel(ops.Neg, device="cpu", variant="meeting")
    def neg_meeting(op: ops.Neg, x: Array, *, out: Array) -> None:
        barrier.wait()  # passes only if two runs are inside a kernel at once
        np.negative(x, out=out)

    executable = CpuExecutable(plan_of(one(lambda b, x: b.Neg(x)), neg_meeting))
    x = np.ones((2, 3), np.float32)
    thread = threading.Thread(target=executable.run, args=([x],))
    thread.start()
    assert executable.run([x])[0][0, 0] == -1
    thread.join()


def test_kernels_follow_ieee_without_warnings() -> None:
    @kernel(ops.Neg, device="cpu", variant="reciprocal")
    def reciprocal(op: ops.Neg, x: Array, *, out: Array) -> None:
        np.divide(1, x, out=out)

    executable = CpuExecutable(plan_of(one(lambda b, x: b.Neg(x)), reciprocal))
    assert np.isinf(executable.run([np.zeros((2, 3), np.float32)])[0]).all()


def test_what_a_kernel_raises_names_kernel_node_and_shapes() -> None:
    @kernel(ops.Neg, device="cpu", variant="broken")
    def broken(op: ops.Neg, x: Array, *, out: Array) -> None:
        raise ValueError("no such luck")

    executable = CpuExecutable(plan_of(one(lambda b, x: b.Neg(b.Add(x, x))), broken))
    message = r"Neg 'neg': kernel neg_broken failed on \(float32\[2,3\]\): ValueError: no such luck"
    for call in (executable.run, executable.profile):
        with pytest.raises(ExecutionError, match=message):
            call([np.ones((2, 3), np.float32)])
    assert executable.steps_run == 0


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.ones((3, 2), np.float32), r"it returned float32\[3, 2\], expected float32\[2, 3\]"),
        (np.ones((2, 3)), r"it returned float64\[2, 3\], expected float32\[2, 3\]"),
        ((np.ones((2, 3), np.float32),) * 2, "it returned 2 results, expected 1"),
    ],
)
def test_a_wrong_result_is_not_taken(result: Any, message: str) -> None:
    @kernel(ops.Neg, device="cpu", variant="wrong")
    def wrong(op: ops.Neg, x: Array) -> Any:
        return result

    executable = CpuExecutable(plan_of(one(lambda b, x: b.Neg(x)), wrong))
    with pytest.raises(ExecutionError, match=message):
        executable.run([np.ones((2, 3), np.float32)])


def test_a_wrong_dtype_of_a_size_found_at_run_time_is_not_taken() -> None:
    @kernel(ops.NonZero, device="cpu")
    def wrong(op: ops.NonZero, x: Array) -> Array:
        return np.array(np.nonzero(x), np.int32)

    executable = CpuExecutable(plan_of(one(lambda b, x: b.NonZero(x)), wrong))
    with pytest.raises(ExecutionError, match="it returned int32"):
        executable.run([np.ones((2, 3), np.float32)])


def test_a_view_returned_for_an_unknown_size_is_copied() -> None:
    @kernel(ops.NonZero, device="cpu")
    def view(op: ops.NonZero, x: Array) -> Array:
        return x.view(np.int64)[:1]

    executable = CpuExecutable(plan_of(one(lambda b, x: b.NonZero(x), (2, 4)), view))
    x = np.ones((2, 4), np.float32)
    assert not np.shares_memory(executable.run([x])[0], x)


def test_bind_is_called_once_for_each_plan() -> None:
    calls: list[Any] = []

    def bind(op: ops.Add, types: Any, constants: Any) -> Callable[..., None]:
        calls.append((types, constants))
        packed = constants[1] * 2
        return lambda a, b, *, out: np.add(a, packed, out=out)

    def unbound(op: ops.Add, a: Array, b: Array, *, out: Array) -> None:
        raise NotImplementedError

    doubled = kernel(ops.Add, device="cpu", variant="packed", bind=bind)(unbound)
    weights = np.ones((2, 3), np.float32)
    executable = CpuExecutable(plan_of(one(lambda b, x: b.Add(x, b.constant(weights))), doubled))
    for _ in range(2):
        assert executable.run([np.zeros((2, 3), np.float32)])[0][0, 0] == 2
    ((types, constants),) = calls
    assert types == [TensorType("float32", (2, 3))] * 2
    assert constants[0] is None
    np.testing.assert_array_equal(constants[1], weights)


def test_late_sizes_are_bound_once_each() -> None:
    calls: list[Any] = []

    def bind(op: ops.Add, types: Any, constants: Any) -> Callable[..., None]:
        calls.append(types)
        return lambda a, b, *, out: np.add(a, b, out=out)

    def unbound(op: ops.Add, a: Array, b: Array, *, out: Array) -> None:
        raise NotImplementedError

    late = kernel(ops.Add, device="cpu", variant="late", bind=bind)(unbound)
    b = Builder()
    x = b.input("x", "float32", (4,))
    found = b.NonZero(x)
    executable = CpuExecutable(plan_of(b.graph((x,), {"y": b.Add(found, found)}), late))
    for mask, wanted in (
        ((1, 0, 0, 1), [[0, 6]]),
        ((0, 1, 0, 0), [[2]]),
        ((0, 0, 0, 0), [[]]),
        ((1, 1, 0, 0), [[0, 2]]),
    ):
        assert executable.run([np.array(mask, np.float32)])[0].tolist() == wanted
    assert [types[0].shape for types in calls] == [(1, 2), (1, 1), (1, 0)]


class _Scaling:
    """A bound negation that notes how often it was placed, and multiplies by its setting."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.placed = 0

    def __call__(self, x: Array, *, out: Array) -> None:
        np.multiply(x, self.factor, out=out)

    def place(self, x: Array, *, out: Array) -> Callable[[], None]:
        self.placed += 1
        return lambda: self(x, out=out)


def test_arrays_of_the_arena_are_placed_once_and_settings_reach_bind() -> None:
    made: list[_Scaling] = []

    def bind(op: ops.Neg, types: Any, constants: Any, factor: float) -> _Scaling:
        made.append(_Scaling(factor))
        return made[-1]

    scaling = kernel(ops.Neg, device="cpu", variant="scaling", bind=bind, tune={"factor": (-1.0, 1.0)})(
        neg_out.function
    )
    b = Builder()
    x = b.input("x", "float32", (2, 2))
    graph = b.graph((x,), {"y": b.MatMul(b.Neg(b.Add(x, x)), x)})
    executable = CpuExecutable(plan_of(graph, scaling))
    for _ in range(3):
        (y,) = executable.run([np.eye(2, dtype=np.float32) * 5])
        np.testing.assert_array_equal(y, np.eye(2) * -50)
    assert [one.placed for one in made] == [1]
    (y,) = CpuExecutable(plan_of(one(lambda b, v: b.Neg(v)), scaling)).run([np.ones((2, 3), np.float32)])
    np.testing.assert_array_equal(y, -1)  # input and output differ from run to run
    assert [one.placed for one in made] == [1, 0]


@pytest.mark.parametrize("limit", [24, 23])
def test_what_is_new_in_each_run_is_copied_if_it_is_small(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("aicore_cpu_numpy.calls._COPIED_BYTES", limit)
    made: list[_Scaling] = []

    def bind(op: ops.Neg, types: Any, constants: Any, factor: float) -> _Scaling:
        made.append(_Scaling(factor))
        return made[-1]

    scaling = kernel(ops.Neg, device="cpu", variant="scaling", bind=bind, tune={"factor": (-1.0, 1.0)})(
        neg_out.function
    )
    executable = CpuExecutable(plan_of(one(lambda b, v: b.Neg(v)), scaling))
    target, held = np.zeros((2, 3), np.float32), []
    for step in range(6):
        source = np.full((2, 3), step, np.float32)  # 24 bytes
        held.append(weakref.ref(source))
        executable.run([source], [target])
        np.testing.assert_array_equal(target, -step)
    del source
    assert [ref() for ref in held] == [None] * 6
    assert [one.placed for one in made] == [limit == 24]
    fresh = np.zeros((2, 3), np.float32)  # an output that is new cannot be copied
    executable.run([np.full((2, 3), 7, np.float32)], [fresh])
    np.testing.assert_array_equal(fresh, -7)
    np.testing.assert_array_equal(target, -5)
    assert [one.placed for one in made] == [limit == 24]


def test_arrays_of_the_caller_are_placed_when_they_come_again_and_not_kept_before() -> None:
    """Two sets that change places, as those of a trained state, are placed once each."""
    made: list[_Scaling] = []

    def bind(op: ops.Neg, types: Any, constants: Any, factor: float) -> _Scaling:
        made.append(_Scaling(factor))
        return made[-1]

    scaling = kernel(ops.Neg, device="cpu", variant="scaling", bind=bind, tune={"factor": (-1.0, 1.0)})(
        neg_out.function
    )
    executable = CpuExecutable(plan_of(one(lambda b, v: b.Neg(v)), scaling))
    first, second = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    for step in range(6):
        source, target = (first, second) if step % 2 == 0 else (second, first)
        executable.run([source], [target])
        np.testing.assert_array_equal(target, (-1.0) ** (step + 1))
    assert [one.placed for one in made] == [2]
    single = np.ones((2, 3), np.float32)
    watched = weakref.ref(single)
    executable.run([single])
    del single
    assert watched() is None


class _Prepared:
    """A bound negation by way of its workspace, which notes the workspaces that it was prepared for."""

    def __init__(self) -> None:
        self.prepared: list[Array] = []

    def __call__(self, x: Array, *, out: Array, workspace: Array) -> None:
        raise AssertionError("the launcher prepares it first")

    def prepare(self, workspace: Array) -> Callable[..., None]:
        self.prepared.append(workspace)

        def run(x: Array, *, out: Array) -> None:
            room = workspace.view(x.dtype).reshape(x.shape)
            np.negative(x, out=room)
            np.copyto(out, room)

        return run


def test_a_kernel_is_prepared_once_for_the_workspace_of_each_arena() -> None:
    bound = _Prepared()

    @kernel(ops.Neg, device="cpu", variant="prepared", workspace=lambda op, x: 24, bind=lambda *_: bound)
    def negate(op: ops.Neg, x: Array, *, out: Array, workspace: Array) -> None:
        raise AssertionError("bind takes its place")

    executable = CpuExecutable(plan_of(one(lambda b, x: b.Neg(x)), negate))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for factor in (1, 2, 3):
        np.testing.assert_array_equal(executable.run([factor * x])[0], -factor * x)
    assert [len(workspace) for workspace in bound.prepared] == [24]
    executable.release()
    np.testing.assert_array_equal(executable.run([x])[0], -x)
    assert [len(workspace) for workspace in bound.prepared] == [24, 24]


def test_what_bind_returns_must_be_a_function() -> None:
    odd = kernel(ops.Neg, device="cpu", variant="odd", bind=lambda *args: 5)(neg_out.function)
    with pytest.raises(ExecutionError, match="kernel neg_odd: its bind returned int; the CPU runs functions"):
        CpuExecutable(plan_of(one(lambda b, v: b.Neg(v)), odd))


def test_a_kernel_that_ends_the_process_is_an_error_of_its_node() -> None:
    @kernel(ops.Neg, device="cpu", variant="leaving")
    def leave(op: ops.Neg, x: Array, *, out: Array) -> None:
        raise SystemExit(3)

    executable = CpuExecutable(plan_of(one(lambda b, v: b.Neg(v)), leave))
    with pytest.raises(ExecutionError, match=r"kernel neg_leaving failed on .* SystemExit: 3"):
        executable.run([np.zeros((2, 3), np.float32)])
