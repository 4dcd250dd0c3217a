"""Plans of random graphs: no two live buffers share a byte, and every way of planning gives the same bits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import aicore.ops as ops
from aicore.ir import Builder, Graph, Value
from aicore.kernels import KernelTable, Selector
from aicore.plugins import PluginRegistry
from aicore.runtime import Constants, Memory, MemoryOptions, Plan, Storage, make_plan
from aicore.runtime.planner import only_renames
from tests.runtime.conftest import KERNELS, SIDE, graphs

X = np.linspace(-1, 1, SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
Y = X.T.copy() + np.float32(0.5)


def plan_of(graph: Graph, registry: PluginRegistry, **options: bool) -> Plan:
    selector = Selector(KernelTable(KERNELS), "cpu")
    selections = {
        node: selector.select(node.op, *(None if v is None else v.type for v in node.inputs))
        for node in graph.nodes
        if not only_renames(node)
    }
    outputs = [value for _, value in graph.outputs]
    device = registry.device("cpu")
    memory = MemoryOptions(**options)
    return make_plan("cpu", graph.nodes, graph.inputs, outputs, selections, memory, Constants(device))


def expected(graph: Graph) -> list[np.ndarray[Any, Any]]:
    """The outputs by plain NumPy, each value in memory of its own."""
    known: dict[Value, np.ndarray[Any, Any]] = dict(zip(graph.inputs, (X, Y), strict=True))
    rules: dict[type, Any] = {
        ops.Add: lambda op, a, b: a + b,
        ops.Mul: lambda op, a, b: a * b,
        ops.Neg: lambda op, a: -a,
        ops.MatMul: lambda op, a, b: np.matmul(a.copy(), b.copy()),
        ops.Transpose: lambda op, a: a.T.copy(),
        ops.Reshape: lambda op, a: a.reshape(op.shape),
    }

    def number(value: Value) -> np.ndarray[Any, Any]:
        return known[value] if value.constant is None else value.constant.array

    with np.errstate(all="ignore"):
        for node in graph.nodes:
            operands = [number(v) for v in node.inputs if v is not None]
            known[node.outputs[0]] = rules[type(node.op)](node.op, *operands)
    return [number(value) for _, value in graph.outputs]


def claims(plan: Plan) -> list[set[tuple[int, int, int]]]:
    """By step, (offset, end, root) of the arena's bytes that hold something needed then, derived from uses alone."""
    written: dict[int, int] = {}
    read: dict[int, int] = {}
    for i, step in enumerate(plan.steps):
        for buffer in step.outputs:
            written.setdefault(plan.buffers[buffer].root, i)
            read[plan.buffers[buffer].root] = i
        for operand in step.inputs:
            if operand is not None:
                read[plan.buffers[operand].root] = i
    held: list[set[tuple[int, int, int]]] = [set() for _ in plan.steps]
    for root, start in written.items():
        buffer = plan.buffers[root]
        if buffer.storage is Storage.ARENA:
            for i in range(start, read[root] + 1):
                held[i].add((buffer.offset, buffer.offset + buffer.nbytes, root))
    for i, step in enumerate(plan.steps):
        offset, nbytes = step.workspace
        held[i].add((offset, offset + nbytes, -1))
    return held


@settings(max_examples=60, deadline=None)
@given(graph=graphs())
def test_live_buffers_share_no_byte(tiny: PluginRegistry, graph: Graph) -> None:
    plan = plan_of(graph, tiny)
    for held in claims(plan):
        ordered = sorted(claim for claim in held if claim[0] < claim[1])
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ordered))
        assert all(end <= plan.memory.arena for _, end, _ in held)
    assert plan.nodes == len(graph.nodes)
    assert plan.memory.lower_bound <= plan.memory.arena


@settings(max_examples=60, deadline=None)
@given(graph=graphs())
def test_every_mode_gives_the_same_bits(tiny: PluginRegistry, graph: Graph) -> None:
    want = expected(graph)
    for options in ({}, {"poison": True}, {"reuse": False}, {"reuse": False, "poison": True}):
        plan = plan_of(graph, tiny, **options)
        executable = tiny.launcher("cpu")(plan)
        for _ in range(2):  # the second run finds the first one's bytes in the arena
            got = executable.run([X, Y])
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b)
                assert a.tobytes() == np.ascontiguousarray(b).tobytes()
                assert a.flags.writeable
        assert not any(np.shares_memory(a, b) for i, a in enumerate(got) for b in got[:i])
        assert not any(np.shares_memory(a, fixed) for a in got for fixed in (X, Y))


def chain(length: int) -> Graph:
    b = Builder()
    x = value = b.input("x", "float32", (SIDE, SIDE))
    for _ in range(length):
        value = b.Neg(value)
    return b.graph((x,), {"y": value})


def test_a_chain_of_pointwise_ops_runs_in_place_in_its_output(tiny: PluginRegistry) -> None:
    plan = plan_of(chain(5), tiny)
    assert plan.memory.arena == 0
    assert {plan.buffers[i].storage for step in plan.steps for i in step.outputs} == {Storage.OUTPUT}


def test_inputs_are_never_overwritten(tiny: PluginRegistry) -> None:
    before = X.copy()
    plan = plan_of(chain(3), tiny)
    tiny.launcher("cpu")(plan).run([X])
    np.testing.assert_array_equal(X, before)


def test_an_operand_that_is_read_twice_is_not_overwritten(tiny: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", (SIDE, SIDE))
    h = b.Mul(x, x)
    plan = plan_of(b.graph((x,), {"y": b.Add(h, b.Reshape(h, b.constant(np.array([SIDE, SIDE]))))}), tiny)
    product, total = (step.outputs[0] for step in plan.steps)
    assert plan.buffers[product].root != plan.buffers[total].root


def test_without_reuse_nothing_runs_in_place(tiny: PluginRegistry) -> None:
    plan = plan_of(chain(5), tiny, reuse=False)
    assert plan.memory.arena == 4 * SIDE * SIDE * 4 == plan.memory.without_reuse


def test_a_workspace_lives_for_its_step(tiny: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", (SIDE, SIDE))
    plan = plan_of(b.graph((x,), {"y": b.MatMul(b.MatMul(x, x), x)}), tiny)
    assert [step.workspace[1] for step in plan.steps] == [128, 128]
    assert plan.memory.arena == 64 + 128 == plan.memory.lower_bound


def test_results_that_share_bytes_are_copied(tiny: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", (SIDE, SIDE))
    y = b.Neg(x)
    flat = b.Reshape(y, b.constant(np.array([-1])))
    graph = b.graph((x,), {"y": y, "flat": flat, "x": x, "constant": b.constant(X)})
    plan = plan_of(graph, tiny)
    assert [output.copied for output in plan.outputs] == [False, True, True, True]


def test_a_size_that_depends_on_data_is_dynamic(tiny: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", (SIDE, SIDE))
    found = b.NonZero(x)
    plan = plan_of(b.graph((x,), {"y": b.Mul(found, found)}), tiny)
    assert [plan.buffers[step.outputs[0]].storage for step in plan.steps] == [Storage.DYNAMIC] * 2
    assert plan.memory.arena == 0
    assert [len(step.dies) for step in plan.steps] == [0, 1]
    result = tiny.launcher("cpu")(plan).run([np.eye(SIDE, dtype=np.float32)])[0]
    np.testing.assert_array_equal(result, np.square([range(SIDE)] * 2))


def test_constants_are_counted_once(tiny: PluginRegistry) -> None:
    b = Builder()
    x, w = b.input("x", "float32", (SIDE, SIDE)), b.constant(X)
    plan = plan_of(b.graph((x,), {"y": b.Add(b.Add(x, w), w)}), tiny)
    assert plan.memory.constants == 64
    assert plan.memory.outputs == 64
    assert "constants 64 B" in str(plan.memory)


@pytest.mark.parametrize(
    ("nbytes", "text"), [(5, "5 B"), (3 << 9, "1.5 KiB"), (3 << 20, "3.0 MiB"), (1 << 30, "1.0 GiB")]
)
def test_sizes_are_readable(nbytes: int, text: str) -> None:
    assert str(Memory(nbytes, 0, 0, 0, 0)).startswith(f"arena {text} ")
