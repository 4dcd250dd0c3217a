"""Steps timed by a graph that holds them many times, on the host's stand-in for the launch list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.errors import OutOfMemoryError
from aicore.ir import Builder, Graph
from aicore.kernels import Kernel, kernel
from aicore.ops.arithmetic import Add
from aicore.ops.elementwise import Neg
from aicore.ops.matmul import MatMul
from aicore.ops.movement import Expand
from aicore.runtime import TimesSteps
from aicore.tuning import Measure, Outcome
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.calls import Compiled
from aicore_cuda_ge.device import CudaDevice
from aicore_cuda_ge.step_timer import copies_of_weights, launches_for

Host = Any
"""The fixture `host`: conftest.HostMachine."""
X = np.array([1, 2, 3, 4], np.float32)
CACHE = 4096
"""Bytes of the L2 cache that the stand-in has."""


def product(host: Host, device: CudaDevice, packs: bool) -> Kernel:
    """A product that reads its weights where they are, or a packed copy of them."""

    def bind(op: MatMul, types: Sequence[Any], constants: Sequence[Any]) -> Compiled:
        inner, columns = types[1].static_shape
        extra = (device.copy(constants[1]),) if packs else ()

        def run(pointers: Sequence[int], params: bytes) -> None:
            w = host.view(pointers[3 if packs else 1], inner * columns).reshape(inner, columns)
            host.view(pointers[2], columns)[...] = host.view(pointers[0], inner) @ w

        return Compiled(run, extra=extra)

    @kernel(MatMul, device="cuda", variant="host", bind=bind)
    def never(op: MatMul, *operands: Any, out: Any) -> None:
        raise NotImplementedError

    return never


def by_weights(columns: int) -> Graph:
    b = Builder()
    x = b.input("x", "float32", (1, 4))
    w = b.constant(np.arange(4 * columns, dtype=np.float32).reshape(4, columns))
    return b.graph([x], {"y": b.MatMul(x, w)})


def run(host: Host, graph: Graph, *kernels: Kernel, plugin: Any = None) -> tuple[Any, Any]:
    """(the executable of a program that ran once, its device)"""
    plugin = plugin or host.plugin()
    plugin.kernels += kernels
    program = host.compiled(plugin, graph)
    program.run({"x": X.reshape(program.inputs["x"].static_shape)})
    (executable,) = plugin.launched
    return executable, plugin.device


def test_a_step_is_launched_many_times_and_its_share_of_them_is_told(host: Host) -> None:
    b = Builder()
    x = b.input("x", "float32", (4,))
    executable, _ = run(host, b.graph([x], {"y": b.Add(b.Add(x, x), x)}))
    assert isinstance(executable, TimesSteps)
    assert executable.time_step(1) == pytest.approx(3e-6 / 64)
    whole, timer = host.lists
    assert timer.captured
    assert len(timer.launches) == 64
    assert {tuple(launch[1]) for launch in timer.launches} == {tuple(whole.launches[1][1])}, "not in the same memory"
    assert {launch[3] for launch in timer.launches} == {whole.launches[1][3]}
    assert executable.time_step(1) == pytest.approx(3e-6 / 64)
    assert len(host.lists) == 2, "what was prepared was not kept"
    executable.time_step(0)
    assert len(host.lists) == 3


@pytest.mark.parametrize("packs", [False, True])
def test_each_launch_has_weights_of_its_own_until_the_cache_is_full(host: Host, packs: bool) -> None:
    plugin = host.plugin()
    executable, device = run(host, by_weights(64), product(host, plugin.device, packs), plugin=plugin)
    used = device.pool.used
    executable.time_step(0)
    copies = 5  # 1.25 times 4096 bytes, in pieces of 4 * 64 * 4
    assert device.pool.used == used + (copies - 1) * 1024
    place = 3 if packs else 1
    addresses = [launch[1][place] for launch in host.lists[-1].launches]
    assert len(addresses) == 65, "as many launches of each"
    assert addresses == addresses[:copies] * 13
    assert len(set(addresses)) == copies
    others = {tuple(p for i, p in enumerate(launch[1]) if i != place) for launch in host.lists[-1].launches}
    assert len(others) == 1
    for address in set(addresses):
        np.testing.assert_array_equal(host.view(address, 256), np.arange(256))


def test_small_weights_are_left_where_they_are(host: Host) -> None:
    plugin = host.plugin()
    executable, device = run(host, by_weights(3), product(host, plugin.device, False), plugin=plugin)
    used = device.pool.used
    executable.time_step(0)
    assert device.pool.used == used


def test_memory_is_kept_until_release_and_then_given_back(host: Host) -> None:
    plugin = host.plugin()
    before = plugin.device.pool.used
    executable, device = run(host, by_weights(64), product(host, plugin.device, True), plugin=plugin)
    kept = device.pool.used
    executable.time_step(0)
    device.graphs.clear()
    assert executable.time_step(0) == pytest.approx(3e-6 / 65), "the timer needs the graph of the run"
    host.lists.clear()
    executable.release()
    assert before < device.pool.used < kept
    executable.time_step(0)  # captures anew


def test_no_room_for_weights_is_an_error_of_its_own(host: Host) -> None:
    plugin = host.plugin()
    executable, device = run(host, by_weights(64), product(host, plugin.device, False), plugin=plugin)
    device.pool.bound = device.pool.used + 2000
    with pytest.raises(OutOfMemoryError):
        executable.time_step(0)
    device.pool.bound = 1 << 40
    assert executable.time_step(0) > 0


def test_what_no_graph_can_hold_is_timed_by_the_host(host: Host) -> None:
    b = Builder()
    x = b.input("x", "float32", (4,))
    executable, _ = run(host, b.graph([x], {"y": b.Mul(b.Add(x, x), x)}))
    lists = len(host.lists)
    assert 0 < executable.time_step(1) < 1
    assert len(host.lists) == lists


def test_launches_that_report_have_a_place_to_report_to(host: Host) -> None:
    b = Builder()
    x = b.input("x", "float32", (4,))
    executable, _ = run(host, b.graph([x], {"y": b.apply(Neg(), x)}))
    assert executable.time_step(0) == pytest.approx(3e-6 / 64)
    places = [launch[1][-1] for launch in host.lists[-1].launches]
    assert len(set(places)) == 64
    assert host.lists[-1].take_faults() == []


def test_how_many_launches_are_worth_it() -> None:
    assert [launches_for(seconds) for seconds in (0.0, 1e-6, 10e-6, 25e-6, 1e-3)] == [64, 64, 40, 16, 2]


def test_how_many_copies_the_cache_cannot_hold() -> None:
    megabyte = 1 << 20
    sizes = {0: 1, 1000: 1, megabyte: 64, 4 * megabyte: 19, 60 * megabyte: 2, 500 * megabyte: 1}
    assert {size: copies_of_weights(size, 60 * megabyte) for size in sizes} == sizes


def test_the_tuner_times_candidates_so(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of three ways to add, one is wrong, and the last is the fastest in a graph that holds it many times."""
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))
    plugin = host.plugin()
    for variant, wrong in (("wrong", 1), ("quick", 0)):
        plugin.kernels.append(elementwise(host, Add, variant, lambda a, b, off=wrong: a + b + off))
    plugin.kernels.append(elementwise(host, Expand, "copied", lambda x: x, operands=1))

    def microseconds(timer: Any, repeats: int) -> float:
        assert len(timer.launches) == 64
        assert repeats == 3
        return 32.0 if "add_quick" in timer.launches[0][3] else 64.0

    monkeypatch.setattr(native.LaunchList, "time_replay", microseconds)
    b = Builder()
    x = b.input("x", "float32", (4,))
    graph = b.graph([x], {"y": b.Add(b.Add(x, x), x)})
    outcomes: list[Outcome] = []
    program = host.compiled(plugin, graph, tune=Measure(finished=outcomes.append))
    assert program.run({"x": X})["y"].tolist() == (3 * X).tolist()
    (outcome,) = outcomes
    assert outcome.problem.count == 2
    assert outcome.record is not None
    assert outcome.record.chosen == "add_quick"
    assert outcome.record.seconds == {"add_host": pytest.approx(1e-6), "add_quick": pytest.approx(0.5e-6)}
    assert set(outcome.record.refused) == {"add_wrong"}
    assert {step.kernel.name for plan in program.plan for step in plan.steps} == {"add_quick"}


def elementwise(host: Host, op: Any, variant: str, function: Any, operands: int = 2) -> Kernel:
    def bind(op: Any, types: Sequence[Any], constants: Sequence[Any]) -> Compiled:
        count = int(np.prod(types[0].static_shape))

        def run(pointers: Sequence[int], params: bytes) -> None:
            host.view(pointers[operands], count)[...] = function(*(host.view(p, count) for p in pointers[:operands]))

        return Compiled(run)

    @kernel(op, device="cuda", variant=variant, bind=bind)
    def never(op: Any, *operands: Any, out: Any) -> None:
        raise NotImplementedError

    return never
