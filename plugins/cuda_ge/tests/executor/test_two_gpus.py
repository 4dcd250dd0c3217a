"""One model on two GPUs at once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import ExecutionError
from aicore.ir import Builder, Graph
from aicore_cuda_ge import _graph_executor as native

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.gpu
SHAPE = (2, 64, 28, 28)
RUNS = 50


@pytest.fixture(autouse=True)
def _two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_TUNE", "off")
    count, _ = native.device_count()
    if count < 2:
        pytest.skip("one GPU only")


def network() -> Graph:
    """Kernels of each kind: much shared memory, a cluster, generated ones, a reduction, a product."""
    rng = np.random.default_rng(0)
    b = Builder()
    x = y = b.input("x", "float32", SHAPE)
    for size in (3, 1, 3):
        w = b.constant((rng.normal(size=(64, 64, size, size)) / (8 * size)).astype(np.float32))
        y = b.Relu(b.Conv(y, w, pads=(size // 2,) * 4))
    y = b.Mul(b.Sigmoid(b.Add(y, x)), y)
    flat = b.Reshape(b.ReduceMean(y, axes=(2, 3), keepdims=1), b.constant(np.array([2, 64])))
    weights = b.constant(rng.normal(size=(64, 256)).astype(np.float32))
    return b.graph([x], {"y": b.Softmax(b.MatMul(flat, weights), axis=-1)})


def data(seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def test_threads_on_two_devices_get_the_same_numbers() -> None:
    programs = [aicore.compile(network(), f"cuda:{index}", fallback="error") for index in range(2)]
    inputs = [data(seed) for seed in range(5)]
    wanted = aicore.compile(network(), "cpu").run({"x": inputs[0]})["y"]
    found: list[list[Array]] = [[], []]
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for i in range(RUNS):
                found[index].append(programs[index].run({"x": inputs[i % len(inputs)]})["y"])
        except BaseException as error:  # noqa: BLE001  # told below, in the thread of the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    np.testing.assert_allclose(found[0][0], wanted, rtol=1e-4, atol=1e-6)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    for program in programs:
        assert program.steps_run == RUNS * sum(len(plan.steps) for plan in program.plan)


def test_memory_is_of_the_programs_own_device_and_goes_back_to_it() -> None:
    cupy: Any = pytest.importorskip("cupy")

    def used() -> list[int]:
        return [device.pool.used for device in devices]

    programs = [aicore.compile(network(), f"cuda:{index}", fallback="error") for index in range(2)]
    devices: list[Any] = [program.device for program in programs]
    for device in devices:
        device.graphs.clear()
    before = used()
    programs[1].run({"x": data(0)})
    assert used()[0] == before[0], "cuda:0 gave memory for a program of cuda:1"
    assert used()[1] > before[1]
    array = devices[1].upload(data(0))
    assert cupy.cuda.runtime.pointerGetAttributes(array.address).device == 1
    with pytest.raises(ExecutionError, match="is no array of cuda:0"):
        devices[0].check(array)
    specialised = programs[1].explain().specialised
    assert specialised is not None
    held = used()[1]
    for executable in specialised.executables:
        executable.release()
    del array
    assert used()[1] < held
    assert used()[0] == before[0]
    assert cupy.cuda.runtime.getDevice() == 0
    np.testing.assert_array_equal(programs[1].run({"x": data(1)})["y"], programs[0].run({"x": data(1)})["y"])
