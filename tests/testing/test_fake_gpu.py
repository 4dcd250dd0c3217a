"""The fake GPU is as strict as a real one: that is what it is for."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import aicore.ops as ops
from aicore.errors import ExecutionError, UnsupportedError
from aicore.ir import Builder, Graph, TensorType
from aicore.kernels import Kernel, KernelTable, Selector, kernel
from aicore.runtime import Constants, Device, Executable, MemoryOptions, Plan, make_plan
from aicore.runtime.planner import only_renames
from aicore.testing.fake_gpu import FakeArray, FakeDevice, FakeExecutable
from aicore.testing.fake_gpu.memory import FakeMemory
from aicore.testing.fake_gpu.stream import Stream

Array = np.ndarray[Any, Any]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@kernel(ops.Neg, device="fake")
def neg(op: ops.Neg, x: Array, *, out: Array) -> None:
    np.negative(x, out=out)


@kernel(ops.Add, device="fake", inplace=True)
def add(op: ops.Add, a: Array, b: Array, *, out: Array) -> None:
    np.add(a, b, out=out)


@kernel(ops.Abs, device="fake")
def absolute(op: ops.Abs, x: Array) -> Array:
    return np.abs(x)


@kernel(ops.NonZero, device="fake")
def nonzero(op: ops.NonZero, x: Array) -> Array:
    return np.array(np.nonzero(x), np.int64)


def plan_of(device: FakeDevice, graph: Graph, *extra: Kernel, **options: bool) -> Plan:
    replaced = {k.op for k in extra}
    kernels = [*extra, *(k for k in (neg, add, absolute, nonzero) if k.op not in replaced)]
    selector = Selector(KernelTable(kernels), "fake")
    selections = {
        node: selector.select(node.op, *(None if v is None else v.type for v in node.inputs))
        for node in graph.nodes
        if not only_renames(node)
    }
    outputs = [value for _, value in graph.outputs]
    return make_plan(
        "fake", graph.nodes, graph.inputs, outputs, selections, MemoryOptions(**options), Constants(device)
    )


def graph_of_all() -> Graph:
    """|x + 1| + x renamed, a result that shares its bytes, and the input itself."""
    b = Builder()
    x = b.input("x", "float32", (2, 3))
    h = b.Add(b.Abs(b.Add(x, b.constant(np.ones(3, np.float32)))), x)
    return b.graph((x,), {"y": h, "flat": b.Reshape(h, b.constant(np.array([-1]))), "x": x})


def negation() -> Graph:
    b = Builder()
    x = b.input("x", "float32", (2, 3))
    return b.graph((x,), {"y": b.Neg(x)})


def test_it_keeps_the_protocols() -> None:
    device = FakeDevice()
    assert isinstance(device, Device)
    assert isinstance(FakeExecutable(plan_of(device, negation()), device), Executable)
    assert "fake GPU" in device.fingerprint


@pytest.mark.parametrize("array", [X, np.array(3, np.int8), np.empty((0, 2), np.float64), np.array([True, False])])
def test_there_and_back(array: Array) -> None:
    device = FakeDevice()
    handle = device.upload(array)
    for back in (device.download(handle), device.download(device.copy(handle))):
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
        assert not np.shares_memory(back, array)
    assert (handle.shape, handle.dtype, handle.nbytes) == (array.shape, array.dtype, array.nbytes)


def test_a_handle_has_no_way_to_the_numbers() -> None:
    handle = FakeDevice().upload(X)
    for name in ("__array__", "__array_interface__", "__dlpack__", "__buffer__", "__getitem__", "__len__"):
        assert not hasattr(handle, name)
    assert repr(handle).startswith("<float32[2, 3] at 0x7fa")


def test_host_pointers_are_refused() -> None:
    device = FakeDevice()
    executable = FakeExecutable(plan_of(device, negation()), device)
    for call in (device.download, device.copy, lambda array: executable.run([array])):
        with pytest.raises(ExecutionError, match=r"got a pointer that is not its own \(host ndarray\); upload"):
            call(X)
    with pytest.raises(ExecutionError, match=r"not its own \(list\)"):
        device.download([1])
    with pytest.raises(ExecutionError, match="uploads host arrays"):
        device.upload(device.upload(X))  # type: ignore[arg-type]


def test_arrays_of_another_device_are_refused() -> None:
    with pytest.raises(ExecutionError, match="fake:1 got an array of fake"):
        FakeDevice("fake:1").download(FakeDevice().upload(X))


def test_strings_stay_on_the_host() -> None:
    with pytest.raises(UnsupportedError, match="strings stay on the host"):
        FakeDevice().upload(np.array(["a"], object))
    with pytest.raises(UnsupportedError, match="strings stay on the host"):
        FakeDevice().empty(TensorType("string", (2,)))


def test_memory_is_freed_with_its_last_handle() -> None:
    device = FakeDevice()
    handle = device.upload(X)
    assert device.memory.in_use == X.nbytes
    address = handle.address
    del handle
    assert device.memory.in_use == 0
    with pytest.raises(ExecutionError, match="not memory of this device"):
        device.memory.read(address, 1)


def test_addresses_beyond_an_allocation_belong_to_nobody() -> None:
    memory = FakeMemory()
    first, second = memory.allocate(100), memory.allocate(100)
    memory.read(first.address + 90, 10)[:] = 7
    for address, nbytes in ((first.address + 90, 11), (first.address - 1, 1), (first.address + 110, 1), (0, 0)):
        with pytest.raises(ExecutionError, match="not memory of this device"):
            memory.read(address, nbytes)
    assert second.address > first.address + 100


@pytest.mark.parametrize("options", [{}, {"poison": True}, {"reuse": False}])
def test_a_plan_runs(options: dict[str, bool]) -> None:
    device = FakeDevice()
    executable = FakeExecutable(plan_of(device, graph_of_all(), **options), device)
    wanted = np.abs(X + 1) + X
    for _ in range(3):
        results = [device.download(array) for array in executable.run([device.upload(X)])]
        np.testing.assert_array_equal(results[0], wanted)
        np.testing.assert_array_equal(results[1], wanted.ravel())
        np.testing.assert_array_equal(results[2], X)
    assert (executable.captures, executable.replays) == (1, 3)
    assert executable.steps_run == 3 * len(executable.plan.steps)


def test_results_never_change_later() -> None:
    device = FakeDevice()
    executable = FakeExecutable(plan_of(device, negation()), device)
    (first,) = executable.run([device.upload(X)])
    executable.run([device.upload(2 * X)])
    executable.release()
    np.testing.assert_array_equal(device.download(first), -X)


def test_results_go_where_the_caller_says() -> None:
    device = FakeDevice()
    executable = FakeExecutable(plan_of(device, negation()), device)
    out = device.upload(np.zeros_like(X))
    assert executable.run([device.upload(X)], [out]) == [out]
    np.testing.assert_array_equal(device.download(out), -X)


def test_work_is_queued_while_the_host_goes_on() -> None:
    go_on = threading.Event()

    @kernel(ops.Neg, device="fake")
    def waiting(op: ops.Neg, x: Array, *, out: Array) -> None:
        assert go_on.wait(10)
        np.negative(x, out=out)

    device = FakeDevice()
    first = FakeExecutable(plan_of(device, negation(), waiting), device)
    second = FakeExecutable(plan_of(device, negation()), device)
    (middle,) = first.run([device.upload(X)])
    (result,) = second.run([middle])  # on another stream, yet not before the first is done
    assert first.steps_run == 0
    go_on.set()
    np.testing.assert_array_equal(device.download(result), X)
    device.synchronize()
    assert (first.steps_run, second.steps_run) == (1, 1)


def test_a_failure_reaches_whoever_waits_for_the_result() -> None:
    @kernel(ops.Neg, device="fake")
    def broken(op: ops.Neg, x: Array, *, out: Array) -> None:
        raise ValueError("no such luck")

    device = FakeDevice()
    executable = FakeExecutable(plan_of(device, negation(), broken), device)
    message = r"Neg 'neg': kernel neg_reference failed on \(float32\[2,3\]\): ValueError: no such luck"
    (result,) = executable.run([device.upload(X)])
    for call in (lambda: device.download(result), lambda: device.copy(result), device.synchronize):
        with pytest.raises(ExecutionError, match=message):
            call()
    (later,) = FakeExecutable(plan_of(device, negation()), device).run([result])
    with pytest.raises(ExecutionError, match=message):
        device.download(later)
    with pytest.raises(ExecutionError, match=message):
        executable.profile([device.upload(X)])
    assert executable.steps_run == 0


def test_a_wrong_result_is_not_taken() -> None:
    @kernel(ops.Neg, device="fake")
    def wide(op: ops.Neg, x: Array) -> Array:
        return x.astype(np.float64)

    device = FakeDevice()
    (result,) = FakeExecutable(plan_of(device, negation(), wide), device).run([device.upload(X)])
    with pytest.raises(ExecutionError, match=r"it returned float64\[2,3\], expected float32\[2,3\]"):
        device.download(result)


def test_only_what_was_captured_is_replayed() -> None:
    device = FakeDevice()
    executable = FakeExecutable(plan_of(device, negation()), device)
    with pytest.raises(ExecutionError, match=r"%x: captured for float32\[2,3\], got float32\[3,2\]"):
        executable.run([device.upload(X.T.copy())])
    with pytest.raises(ExecutionError, match="the plan takes 1 inputs, got 2"):
        executable.run([device.upload(X)] * 2)


def test_a_replay_over_freed_memory_is_refused() -> None:
    device = FakeDevice()
    b = Builder()
    x = b.input("x", "float32", (2, 3))
    plan = plan_of(device, b.graph((x,), {"y": b.Add(x, b.constant(X))}))
    executable = FakeExecutable(plan, device)
    np.testing.assert_array_equal(device.download(executable.run([device.upload(X)])[0]), 2 * X)
    plan.resident.clear()  # type: ignore[attr-defined]
    gc.collect()
    (result,) = executable.run([device.upload(X)])
    with pytest.raises(ExecutionError, match="not memory of this device"):
        device.download(result)


def test_sizes_that_depend_on_data_are_refused() -> None:
    device = FakeDevice()
    b = Builder()
    x = b.input("x", "float32", (2, 3))
    plan = plan_of(device, b.graph((x,), {"y": b.NonZero(x)}))
    with pytest.raises(UnsupportedError, match="the size of %nonzero depends on data"):
        FakeExecutable(plan, device)


def test_profile_times_every_launch() -> None:
    device = FakeDevice()
    executable = FakeExecutable(plan_of(device, graph_of_all()), device)
    results, seconds = executable.profile([device.upload(X)])
    assert len(seconds) == len(executable.plan.steps)
    assert all(s > 0 for s in seconds)
    assert isinstance(results[0], FakeArray)


def test_bind_gets_the_constants_of_the_device() -> None:
    seen: list[Any] = []

    def bind(op: ops.Add, types: Any, constants: Any) -> Any:
        seen.append(constants)
        return lambda a, b, *, out: np.add(a, b, out=out)

    def unbound(op: ops.Add, a: Array, b: Array, *, out: Array) -> None:
        raise NotImplementedError

    device = FakeDevice()
    b = Builder()
    x = b.input("x", "float32", (2, 3))
    bound = kernel(ops.Add, device="fake", bind=bind)(unbound)
    FakeExecutable(plan_of(device, b.graph((x,), {"y": b.Add(x, b.constant(X))}), bound), device)
    ((first, second),) = seen
    assert first is None
    np.testing.assert_array_equal(second, X)


def test_a_stream_works_in_order() -> None:
    stream = Stream("test")
    done: list[int] = []
    for i in range(20):
        stream.submit(lambda i=i: done.append(i))  # type: ignore[misc]
    stream.synchronize()
    assert done == list(range(20))


def test_concurrent_runs_have_a_capture_each() -> None:
    barrier = threading.Barrier(2, timeout=10)

    @kernel(ops.Neg, device="fake")
    def meeting(op: ops.Neg, x: Array, *, out: Array) -> None:
        barrier.wait()  # passes only if both streams are at work
        np.negative(x, out=out)

    device = FakeDevice()
    executable = FakeExecutable(plan_of(device, negation(), meeting), device)
    results = [executable.run([device.upload(X * i)])[0] for i in (1, 2)]
    for i, result in enumerate(results, start=1):
        np.testing.assert_array_equal(device.download(result), -i * X)
    assert executable.captures == 2
