"""Executables on a GPU: arrays of other libraries, streams, threads, memory, and errors of CUDA."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import aicore
import aicore_cpu_numpy.plugin
from aicore.config import Config
from aicore.errors import ExecutionError, InputError, OutOfMemoryError
from aicore.ir import Builder, Graph
from aicore.kernels import kernel
from aicore.ops.elementwise import Abs
from aicore.plugins import PluginRegistry, hookimpl
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Eager

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine's user has measured must not choose the kernels of tests."""
    monkeypatch.setenv("AICORE_TUNE", "off")


def layers(rows: int = 32, seed: int = 0) -> Graph:
    """Two dense layers and a softmax: products, generated kernels and a reduction."""
    rng = np.random.default_rng(seed)
    b = Builder()
    x = b.input("x", "float32", (rows, 64))
    w1, w2 = (b.constant((rng.normal(size=size) / 8).astype(np.float32)) for size in ((64, 128), (128, 10)))
    h = b.Relu(b.MatMul(x, w1))
    return b.graph([x], {"y": b.Softmax(b.MatMul(h, w2), axis=-1), "h": h})


def data(seed: int, rows: int = 32) -> Array:
    return np.random.default_rng(seed).normal(size=(rows, 64)).astype(np.float32)


def compiled(graph: Graph | None = None, **options: Any) -> aicore.Program:
    return aicore.compile(layers() if graph is None else graph, "cuda:0", fallback="error", **options)


def executables(program: aicore.Program) -> list[Any]:
    specialised = program.explain().specialised
    assert specialised is not None
    return list(specialised.executables)


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


def outputs_for(cupy: Any) -> dict[str, Any]:
    return {"y": cupy.zeros((32, 10), np.float32), "h": cupy.zeros((32, 128), np.float32)}


def test_arrays_of_cupy_are_used_where_they_are(cupy: Any) -> None:
    program = compiled()
    x, outputs = cupy.asarray(data(0)), outputs_for(cupy)
    bound = program.bind({"x": x}, outputs)
    for seed in range(3):
        x[...] = cupy.asarray(data(seed))
        results = bound()
        wanted = program.run({"x": data(seed)})
        for name, array in results.items():
            assert array is outputs[name]
            np.testing.assert_array_equal(cupy.asnumpy(array), wanted[name])
    bound.wait()


def test_runs_are_ordered_by_the_stream_of_the_caller(cupy: Any) -> None:
    """Each run reads what was queued before it, and what is queued after it reads its results; nothing waits."""
    program = compiled()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x, outputs = cupy.zeros((32, 64), np.float32), outputs_for(cupy)
        bound = program.bind({"x": x}, outputs, stream=stream)
        inputs = [cupy.asarray(data(seed)) for seed in range(20)]
        kept = []
        for given in inputs:
            x[...] = given
            bound()
            kept.append(outputs["y"].copy())
        stream.synchronize()
    for seed, array in enumerate(kept):
        np.testing.assert_array_equal(cupy.asnumpy(array), program.run({"x": data(seed)})["y"])


def test_arrays_of_pytorch(cupy: Any) -> None:
    torch = pytest.importorskip("torch")
    program = compiled()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.from_numpy(data(3)).cuda() * 2
        y = torch.empty(32, 10, device="cuda")
        bound = program.bind({"x": x}, {"y": y, "h": torch.empty(32, 128, device="cuda")}, stream=side)
        total = bound()["y"].double().sum()
    side.synchronize()
    np.testing.assert_array_equal(y.cpu().numpy(), program.run({"x": 2 * data(3)})["y"])
    assert total.item() == pytest.approx(32, abs=1e-4)
    with pytest.raises(InputError, match="'x' cannot be bound"):
        program.bind({"x": x.clone().requires_grad_(True)})
    with pytest.raises(InputError, match="it has strides"):
        program.bind({"x": torch.empty(64, 32, device="cuda").t()})


def test_results_of_aicore_are_read_by_other_libraries(cupy: Any) -> None:
    program = compiled()
    wanted = program.run({"x": data(1)})["y"]
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.asarray(data(1))
    y = program.bind({"x": x}, stream=stream)()["y"]
    assert isinstance(y, DeviceArray)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.from_dlpack(y)), wanted)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(y)), wanted)
    np.testing.assert_array_equal(program.device.download(y), wanted)
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(torch.from_dlpack(y).cpu().numpy(), wanted)


def test_what_one_program_makes_is_the_input_of_another(cupy: Any) -> None:
    b = Builder()
    x = b.input("x", "float32", (32, 10))
    second = compiled(b.graph([x], {"z": b.ReduceSum(x, axes=(1,), keepdims=0)}))
    first = compiled()
    one, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    begin = first.bind({"x": cupy.asarray(data(2))}, stream=one)
    begin()
    end = second.bind({"x": begin.outputs["y"]}, stream=other)
    end()
    end.wait()
    np.testing.assert_allclose(second.device.download(end.outputs["z"]), np.ones(32), rtol=1e-5)


def test_arrays_at_odd_addresses_are_copied(cupy: Any) -> None:
    program = compiled()
    room = cupy.zeros(32 * 64 + 1, np.float32)
    x = room[1:].reshape(32, 64)
    assert x.data.ptr % 64
    x[...] = cupy.asarray(data(5))
    results = program.bind({"x": x}, outputs_for(cupy))()
    np.testing.assert_array_equal(cupy.asnumpy(results["h"]), program.run({"x": data(5)})["h"])


def test_bfloat16_is_bound_by_dlpack() -> None:
    torch = pytest.importorskip("torch")
    b = Builder()
    x = b.input("x", "bfloat16", (100,))
    y = torch.zeros(100, dtype=torch.bfloat16, device="cuda")
    given = torch.arange(100, device="cuda").to(torch.bfloat16)
    bound = compiled(b.graph([x], {"y": b.Neg(x)})).bind({"x": given}, {"y": y})
    bound()
    assert torch.equal(y, -given)


def test_a_thousand_runs_of_eight_threads_are_those_of_one() -> None:
    program = compiled()
    inputs = [data(seed) for seed in range(25)]
    wanted = [program.run({"x": x})["y"].tobytes() for x in inputs]
    wrong: list[int] = []

    def work(thread: int) -> None:
        for i in range(125):
            number = (i + 3 * thread) % len(inputs)
            if program.run({"x": inputs[number]})["y"].tobytes() != wanted[number]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert program.steps_run == 1025 * len(executables(program)[0].plan.steps)


def test_memory_stays_as_it_is_over_ten_thousand_runs(cupy: Any) -> None:
    program = compiled()
    x, outputs = cupy.asarray(data(0)), outputs_for(cupy)
    bound = program.bind({"x": x}, outputs)
    bound()  # what is allocated for the first run stays
    bound.wait()
    program.run({"x": data(0)})
    others = "PYTEST_XDIST_WORKER" in os.environ  # which change what is free on the device

    def used() -> tuple[int, ...]:
        free = 0 if others else cupy.cuda.runtime.memGetInfo()[0]
        return free, program.device.pool.used, program.device.pool.held, cupy.get_default_memory_pool().total_bytes()

    before = used()
    for _ in range(10_000):
        bound()
    bound.wait()
    for _ in range(1_000):
        program.run({"x": data(0)})
    assert used() == before


def test_two_executables_on_two_streams_at_once(cupy: Any) -> None:
    programs = [compiled(layers(seed=seed)) for seed in range(2)]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in programs]
    inputs = [cupy.asarray(data(seed)) for seed in range(2)]
    outputs = [outputs_for(cupy) for _ in programs]
    cupy.cuda.Device().synchronize()
    bound = [
        program.bind({"x": x}, out, stream=stream)
        for program, x, out, stream in zip(programs, inputs, outputs, streams, strict=True)
    ]
    for _ in range(200):
        for run in bound:
            run()
    for i, run in enumerate(bound):
        run.wait()
        wanted = programs[i].run({"x": data(i)})["y"]
        np.testing.assert_array_equal(cupy.asnumpy(outputs[i]["y"]), wanted)


def test_graphs_that_were_given_back_are_captured_again(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled()
    monkeypatch.setattr(program.device.graphs, "capacity", 1)
    pairs = [(cupy.asarray(data(seed)), outputs_for(cupy)) for seed in range(3)]
    bound = [program.bind({"x": x}, outputs) for x, outputs in pairs]
    for _ in range(2):
        for run in bound:
            run()
    found = executables(program)[0].statistics()
    assert found.replays == 6
    # Three are bound, and with room for one each of the six runs finds its own given back.
    assert (found.captures, found.evictions, found.kept) == (9, 8, 1)
    for seed, (_, outputs) in enumerate(pairs):
        np.testing.assert_array_equal(cupy.asnumpy(outputs["y"]), compiled().run({"x": data(seed)})["y"])


class EagerPlugin:
    """CuPy's own absolute values, which read a number on the host and so cannot be captured."""

    @hookimpl
    def register_kernels(self) -> list[Any]:
        def bind(op: Any, types: Sequence[Any], constants: Sequence[Any]) -> Eager:
            def run(stream: int, x: DeviceArray, y: DeviceArray) -> None:
                import cupy

                given, result = cupy.asarray(x), cupy.asarray(y)
                if float(cupy.max(given)) > 1e30:  # a read on the host
                    raise ValueError("too large")
                cupy.abs(given, out=result)

            return Eager(run)

        def never(op: Any, x: Any, *, out: Any) -> None:
            raise NotImplementedError

        return [kernel(Abs, device="cuda", variant="cupy", bind=bind)(never)]


def test_what_cannot_be_captured_runs_between_two_graphs(cupy: Any) -> None:
    import aicore_cuda_ge.plugin

    plugins = {
        "cpu_numpy": aicore_cpu_numpy.plugin,
        "cuda_ge": aicore_cuda_ge.plugin,
        "eager": EagerPlugin(),
    }
    registry = PluginRegistry.from_modules(plugins, config=Config())
    b = Builder()
    x = b.input("x", "float32", (1000,))
    graph = b.graph([x], {"y": b.Neg(b.Abs(b.Mul(x, x)))})
    options: dict[str, Any] = {"registry": registry, "kernels": {"Abs": "cupy"}, "optimize": False}
    program = aicore.compile(graph, "cuda:0", fallback="error", **options)
    given = np.linspace(-3, 3, 1000, dtype=np.float32)
    for factor in (1, 2):
        np.testing.assert_array_equal(program.run({"x": factor * given})["y"], -((factor * given) ** 2))
    y = cupy.zeros(1000, np.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    bound = program.bind({"x": cupy.asarray(given)}, {"y": y}, stream=stream)
    cupy.cuda.Device().synchronize()
    bound()
    bound.wait()
    np.testing.assert_array_equal(cupy.asnumpy(y), -(given**2))
    assert all(row.seconds > 0 for row in program.profile({"x": given}).rows if row.device.startswith("cuda"))
    with pytest.raises(
        ExecutionError, match=r"Abs.*kernel abs_cupy on \(float32\[1000\]\) failed: ValueError: too large"
    ):
        program.run({"x": np.full(1000, 1e18, np.float32)})


@pytest.mark.parametrize("index", [5, -6, 2**40])
@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
def test_indices_out_of_range_are_errors_of_the_run(op: str, index: int, cupy: Any) -> None:
    b = Builder()
    x, indices = b.input("x", "float32", (5, 3)), b.input("i", "int64", (2, 1))
    program = compiled(b.graph([x, indices], {"y": getattr(b, op)(x, indices)}))
    feeds = {"x": np.arange(15, dtype=np.float32).reshape(5, 3), "i": np.array([[0], [index]])}
    with pytest.raises(ExecutionError, match=rf"{op}.*index {index} is out of range"):
        program.run(feeds)
    assert program.run({**feeds, "i": np.array([[0], [-5]])})["y"].ravel()[0] == 0
    bound = program.bind({name: cupy.asarray(array) for name, array in feeds.items()})
    bound()
    with pytest.raises(ExecutionError, match=rf"index {index} is out of range"):
        bound.wait()


def test_out_of_memory_is_an_error_after_which_less_runs() -> None:
    program = compiled()
    small = program.run({"x": data(0)})["y"]
    b = Builder()
    x = b.input("x", "float32", (1 << 24,))
    large = compiled(b.graph([x], {"y": b.Neg(x)}))
    pool = program.device.pool
    program.device.graphs.clear()
    pool.release()
    pool.limit(1 << 26)
    try:
        with pytest.raises(OutOfMemoryError, match=r"cuda:0 has no room for [\d,]+ bytes"):
            large.run({"x": np.ones(1 << 24, np.float32)})
        np.testing.assert_array_equal(program.run({"x": data(0)})["y"], small)
    finally:
        pool.limit(0)
    assert large.run({"x": np.ones(1 << 24, np.float32)})["y"][-1] == -1


def test_runs_can_be_marked_for_profilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_NVTX", "1")
    program = compiled()
    np.testing.assert_array_equal(program.run({"x": data(0)})["y"], compiled().run({"x": data(0)})["y"])
    assert program.profile({"x": data(0)}).seconds > 0


LOST = """
import cupy, numpy as np, aicore
from aicore.errors import ExecutionError
from aicore.ir import Builder
from aicore_cuda_ge import _graph_executor as native

b = Builder()
x = b.input("x", "float32", (8,))
program = aicore.compile(b.graph([x], {"y": b.Neg(x)}), "cuda:0", fallback="error")
program.run({"x": np.ones(8, np.float32)})
touch = cupy.RawKernel('extern "C" __global__ void touch(float *x) { *x = 1; }', "touch")
touch((1,), (1,), (np.uint64(64),))
try:
    program.run({"x": np.ones(8, np.float32)})
except ExecutionError as error:
    print(error)
"""


def test_a_lost_device_is_told() -> None:
    """In a process of its own, which is lost with the device."""
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, check=False, timeout=120)
    assert "cudaErrorIllegalAddress" in done.stdout, done.stderr
    assert "restart it" in done.stdout


def test_the_current_device_stays_the_callers(cupy: Any) -> None:
    count, _ = native.device_count()
    if count < 2:
        pytest.skip("one GPU only")
    with cupy.cuda.Device(1):
        program = compiled()
        np.testing.assert_array_equal(program.run({"x": data(0)})["y"].shape, (32, 10))
        assert cupy.cuda.runtime.getDevice() == 1
        other = aicore.compile(layers(), "cuda:1", fallback="error")
        bound = other.bind({"x": cupy.asarray(data(0))})
    bound()
    bound.wait()
    assert cupy.cuda.runtime.getDevice() == 0
    np.testing.assert_array_equal(other.device.download(bound.outputs["y"]), program.run({"x": data(0)})["y"])
    with pytest.raises(InputError, match="is on cuda:0, not on cuda:1"):
        other.bind({"x": cupy.asarray(data(0))})


def test_generated_kernels_overlap() -> None:
    """Early launches give the same numbers: a long chain, in which each kernel reads what the one before wrote."""
    b = Builder()
    x = b.input("x", "float32", (1 << 16,))
    y = x
    for _ in range(50):
        y = b.Transpose(b.Reshape(b.Add(y, x), b.constant(np.array([256, 256]))), perm=(1, 0))
        y = b.Reshape(y, b.constant(np.array([-1])))
    graph = b.graph([x], {"y": y})
    given = np.random.default_rng(0).integers(-9, 9, 1 << 16).astype(np.float32)
    program = compiled(graph, optimize=False)
    wanted = aicore.compile(graph, "cpu").run({"x": given})["y"]
    for _ in range(20):
        np.testing.assert_array_equal(program.run({"x": given})["y"], wanted)
