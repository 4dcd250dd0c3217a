"""One compilation for each set of shapes, whoever asks, and results that never depend on what ran before."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest

from aicore.errors import ExecutionError, InferenceError, UnsupportedError
from aicore.ir import Builder, Graph, TensorType, Value
from aicore.kernels import KernelTable, Selector
from aicore.plugins import PluginRegistry
from aicore.runtime import Backend, Constants, MemoryOptions, Options, Specialiser
from aicore.runtime.specialise import _check_results


def backend(registry: PluginRegistry, name: str, *without: str) -> Backend:
    device = registry.device(name)
    table = KernelTable(k for k in registry.kernels if k.op.__name__ not in without)
    return Backend(device, registry.launcher(name), Selector(table, device.kind), Constants(device))


def specialiser(registry: PluginRegistry, graph: Graph, optimise: Any = None, **options: Any) -> Specialiser:
    optimise = optimise or (lambda graph: (graph, None))
    return Specialiser(graph, backend(registry, "cpu"), [], Options(**options), optimise, "cpu")


def linear(weights: np.ndarray[Any, Any] | None = None) -> Graph:
    b = Builder()
    x = b.input("x", "float32", ("N", 3))
    w = b.constant(np.arange(6, dtype=np.float32).reshape(3, 2) if weights is None else weights)
    return b.graph((x,), {"y": b.MatMul(b.Neg(x), w)})


def rows(count: int) -> np.ndarray[Any, Any]:
    return np.arange(3 * count, dtype=np.float32).reshape(count, 3)


def test_alternating_shapes_match_a_fresh_program(registry: PluginRegistry) -> None:
    one = specialiser(registry, linear())
    for count in (2, 5, 2, 5, 2):
        fresh = specialiser(registry, linear())
        assert one.run([rows(count)])[0].tobytes() == fresh.run([rows(count)])[0].tobytes()
    assert (one.statistics.misses, one.statistics.hits) == (2, 3)


def test_the_least_recently_used_goes_first(registry: PluginRegistry) -> None:
    one = specialiser(registry, linear(), capacity=2)
    for count in (1, 2, 1, 3, 1, 2):
        one.run([rows(count)])
    statistics = one.statistics
    assert (statistics.hits, statistics.misses, statistics.evictions) == (2, 4, 2)
    assert (statistics.size, statistics.capacity) == (2, 2)


def test_threads_compile_one_signature_once(registry: PluginRegistry) -> None:
    started, go_on = threading.Event(), threading.Event()
    calls = []

    def slow(graph: Graph) -> tuple[Graph, None]:
        calls.append(graph)
        started.set()
        assert go_on.wait(10)
        return graph, None

    one = specialiser(registry, linear(), slow)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(one.run([rows(2)])[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert started.wait(10)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len({result.tobytes() for result in results}) == 1
    assert len(results) == 8


def test_other_signatures_do_not_wait_for_a_compilation(registry: PluginRegistry) -> None:
    go_on = threading.Event()

    def slow_for_two(graph: Graph) -> tuple[Graph, None]:
        if graph.inputs[0].type.shape == (2, 3):
            assert go_on.wait(10)
        return graph, None

    one = specialiser(registry, linear(), slow_for_two)
    thread = threading.Thread(target=one.run, args=([rows(2)],))
    thread.start()
    assert one.run([rows(4)])[0].shape == (4, 2)
    go_on.set()
    thread.join()


def test_a_failed_compilation_is_told_to_all_and_not_kept(registry: PluginRegistry) -> None:
    one = specialiser(registry, linear(np.ones((3, 2), np.float32)))
    wrong = (TensorType("float32", (2, 4)),)
    for _ in range(2):
        with pytest.raises(InferenceError, match="MatMul 'matmul'"):
            one.get(wrong)
    assert one.statistics.size == 0
    assert one.kept() == []


def test_weights_are_shared_by_all_specialisations(registry: PluginRegistry) -> None:
    weights = np.arange(6, dtype=np.float32).reshape(2, 3).T  # strided, so that it must be copied once
    one = specialiser(registry, linear(weights))
    for count in (1, 2, 3):
        one.run([rows(count)])
    residents = [executable.plan.resident for s in one.kept() for executable in s.executables]
    assert all(resident is residents[0] for resident in residents)
    ((buffer, array),) = residents[0].items()
    assert array.flags.c_contiguous
    np.testing.assert_array_equal(array, weights)
    assert residents[0].nbytes == buffer.array.nbytes == 24


def test_a_fallback_is_said_aloud_once(registry: PluginRegistry, caplog: pytest.LogCaptureFixture) -> None:
    def make(policy: Any) -> Specialiser:
        target = backend(registry, "fake", "Neg")
        return Specialiser(linear(), target, [backend(registry, "cpu")], Options(fallback=policy), lambda g: (g, None))

    with caplog.at_level(logging.WARNING, "aicore.runtime"):
        quiet = make("quiet")
        quiet.run([rows(2)])
        assert caplog.messages == []
        loud = make("warn")
        for count in (1, 2, 1):
            loud.run([rows(count)])
        assert caplog.messages == ["placement: fake 1/2 nodes; 1 -> cpu [Neg: no kernel]"]
    with pytest.raises(UnsupportedError, match="Neg 'neg': no kernel for Neg on fake"):
        make("error").run([rows(2)])


def test_mixed_programs_give_the_bits_of_one_device(registry: PluginRegistry) -> None:
    wanted = specialiser(registry, linear()).run([rows(3)])[0]
    target = backend(registry, "fake", "Neg")
    mixed = Specialiser(
        linear(), target, [backend(registry, "cpu")], Options(fallback="quiet"), lambda graph: (graph, None)
    )
    specialised = mixed.get((TensorType("float32", (3, 3)),))
    assert specialised.run([rows(3)])[0].tobytes() == wanted.tobytes()
    assert [plan.device for plan in (e.plan for e in specialised.executables)] == ["cpu", "fake"]
    assert specialised.steps_run == 2
    moves = [str(stage) for stage in specialised.stages if str(stage).startswith("copy")]
    assert moves == [
        "copy %x from host to cpu",
        "copy %neg from cpu to fake",
        "copy %matmul from fake to host",
    ]


def test_profile_names_every_stage(registry: PluginRegistry) -> None:
    target = backend(registry, "fake", "Neg")
    mixed = Specialiser(
        linear(), target, [backend(registry, "cpu")], Options(fallback="quiet"), lambda graph: (graph, None)
    )
    found = mixed.get((TensorType("float32", (3, 3)),)).profile([rows(3)])
    assert next(row.kernel for row in found if row.device != "core").startswith("neg_")
    assert [row.name for row in found] == [
        "copy %x from host to cpu",
        "Neg 'neg'",
        "copy %neg from cpu to fake",
        "MatMul 'matmul'",
        "copy %matmul from fake to host",
    ]
    assert [row.op for row in found] == ["", "Neg", "", "MatMul", ""]
    assert all(row.seconds > 0 for row in found)
    assert [row.start for row in found] == sorted(row.start for row in found)


@pytest.mark.parametrize("target", ["cpu", "fake"])
def test_results_that_nothing_computes(registry: PluginRegistry, target: str) -> None:
    b = Builder()
    x = b.input("x", "float32", (2,))
    fixed = b.constant(np.array([5, 6], np.float32))
    graph = b.graph((x,), {"x": x, "again": x, "fixed": fixed, "fixed2": fixed})
    one = Specialiser(graph, backend(registry, target), [], Options(), lambda graph: (graph, None))
    data = np.ones(2, np.float32)
    for _ in range(2):
        results = one.run([data])
        assert [r.tolist() for r in results] == [[1, 1], [1, 1], [5, 6], [5, 6]]
        assert not any(np.shares_memory(a, b) for i, a in enumerate(results) for b in (data, *results[:i]))
        for result in results:
            result[...] = -1  # the caller's to write; the next round shows that nothing else saw it


@pytest.mark.parametrize("options", [{}, {"poison": True}, {"reuse": False}, {"reuse": False, "poison": True}])
def test_memory_options_reach_the_plan(registry: PluginRegistry, options: dict[str, bool]) -> None:
    one = specialiser(registry, linear(), memory=MemoryOptions(**options))
    wanted = specialiser(registry, linear()).run([rows(3)])[0]
    assert one.run([rows(3)])[0].tobytes() == wanted.tobytes()
    (plan,) = [executable.plan for executable in one.kept()[0].executables]
    assert plan.poison == options.get("poison", False)


def test_a_size_that_later_nodes_do_not_expect_is_caught() -> None:
    b = Builder()
    x = b.input("x", "float32", (2,))
    (node,) = b.graph((x,), {"y": b.Neg(x)}).nodes
    _check_results(node, [np.ones(2, np.float32)])
    with pytest.raises(ExecutionError, match=r"Neg 'neg': %neg should be float32\[2\], but it became float32\[3\]"):
        _check_results(node, [np.ones(3, np.float32)])


def test_an_absent_operand_stays_absent(registry: PluginRegistry) -> None:
    b = Builder()
    x: Value = b.input("x", "float32", ("N",))
    graph = b.graph((x,), {"y": b.Clip(x, None, b.constant(np.float32(1)))})
    assert specialiser(registry, graph).run([np.array([-3, 3], np.float32)])[0].tolist() == [-3, 1]
