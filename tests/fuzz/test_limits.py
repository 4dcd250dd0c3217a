"""Limits that a program keeps whatever the model: memory, constants, iterations, the length of an expression."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import aicore
from aicore.config import from_environment
from aicore.errors import AicoreError, ConfigError, ExecutionError, InferenceError, PluginError
from aicore.ir import Builder, Dim, DimExpr, TensorType, is_unknown, parse_dim, symbol
from aicore.ir.inference import check_possible
from aicore.kernels import KernelTable, Selector, kernel
from aicore.ops import CORE
from aicore.ops._content import is_nonnegative, less_equal
from aicore.passes import run_passes
from aicore.passes.fold_constants import FoldConstants
from aicore.plugins import PluginRegistry
from aicore.rewrite import Context
from aicore.runtime import MemoryOptions, ReferenceEvaluator, control_flow, make_plan, memory

GIB = 1 << 30


def model(text: str) -> Any:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')


# Memory


def test_room_within_the_limit_and_beyond() -> None:
    memory.check_room(10, "it", limit=10)
    with pytest.raises(ExecutionError, match=r"^it needs 11 B, over the limit of 10 B"):
        memory.check_room(11, "it", limit=10)


def test_room_that_the_system_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: float(GIB))
    memory.check_room(GIB, "it")
    with pytest.raises(ExecutionError, match=r"^it needs 2\.0 GiB, but only 1\.0 GiB of memory can be had"):
        memory.check_room(2 * GIB, "it")


def test_available_memory_is_the_least_of_what_the_system_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    4096 kB\n")
    monkeypatch.setattr(memory, "_MEMORY", meminfo)
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_of_process", lambda: math.inf)
    assert memory.available_memory() == 4 << 20
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 700\ninactive_file 150\n")
    assert memory.available_memory() == 250  # files that nobody uses count as left
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_memory() == 4 << 20
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "absent")
    assert memory.available_memory() > 4 << 20  # all that the machine has


def test_a_limit_from_the_environment(registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_MEMORY_LIMIT", "4KiB")
    program = aicore.compile(
        model("(float[N] x) => (float[N] y) { h = Exp(x) y = ReduceSum(h) }"), "cpu", registry=registry
    )
    program.run({"x": np.zeros(100, np.float32)})
    with pytest.raises(
        ExecutionError, match=r"Exp 'h'.*%h: float32\[2000\] needs 7\.8 KiB, over the limit of 4\.0 KiB"
    ):
        program.run({"x": np.zeros(2000, np.float32)})
    program.run({"x": np.zeros(100, np.float32)})


def test_a_limit_holds_for_a_whole_plan(registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_MEMORY_LIMIT", "10000")
    text = "(float[1000] x) => (float[] y, float[] z, float[] w) { y = Exp(x) z = Neg(x) w = Abs(x) }"
    program = aicore.compile(model(text), "cpu", registry=registry)
    with pytest.raises(ExecutionError, match=r"a run on cpu, whose largest tensor is .* needs 11.7 KiB"):
        program.run({"x": np.zeros(1000, np.float32)})


def test_a_limit_holds_for_sizes_found_while_running(registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_MEMORY_LIMIT", "10000")
    program = aicore.compile(
        model("(int64[1] s) => (float[] y) { h = ConstantOfShape(s) y = Exp(h) }"), "cpu", registry=registry
    )
    assert program.run({"s": np.array([1000])})["y"].shape == (1000,)
    with pytest.raises(ExecutionError, match=r"ConstantOfShape 'h'.*its result needs 15.6 KiB, over the limit"):
        program.run({"s": np.array([4000])})


def test_a_limit_holds_for_what_a_loop_collects(registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_MEMORY_LIMIT", "10000")
    text = """(int64 n, float[100] x) => (float[] y) { y = Loop(n, , ) <
        body = b (int64 i, bool c) => (bool go, float[100] s) { go = Identity(c) s = Neg(x) }> }"""
    program = aicore.compile(model(text), "cpu", registry=registry)
    x = np.zeros(100, np.float32)
    assert program.run({"n": np.array(10), "x": x})["y"].shape == (10, 100)
    with pytest.raises(ExecutionError, match="Loop 'y': what its iterations gave so far needs"):
        program.run({"n": np.array(1000), "x": x})


@pytest.mark.parametrize("text", ["12 apples", "-1", "1.5GiB", "GiB", "1gib", "0x10", "1e9", "9" * 30])
def test_a_limit_that_is_no_size(text: str) -> None:
    with pytest.raises(ConfigError, match=r"AICORE_MEMORY_LIMIT=.* is no size; write bytes, or a number with KiB, MiB"):
        from_environment({"AICORE_MEMORY_LIMIT": text})


def test_sizes_of_a_limit() -> None:
    found = [
        from_environment({"AICORE_MEMORY_LIMIT": t}).memory_limit for t in ("", " 7 ", "2KiB", "3MiB", "4GiB", "1TiB")
    ]
    assert found == [None, 7, 2048, 3 << 20, 4 << 30, 1 << 40]


def test_a_kernel_that_runs_out_of_memory_is_an_error_of_the_run(
    registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = aicore.compile(model("(float[2] x) => (float[] y) { y = Exp(x) }"), "cpu", registry=registry)

    def exhausted(*_: Any) -> None:
        raise MemoryError("Unable to allocate")

    monkeypatch.setattr(program, "_specialise", exhausted)
    with pytest.raises(ExecutionError, match="no memory is left for the run: Unable to allocate"):
        program.run({"x": np.zeros(2, np.float32)})


# Types


@pytest.mark.parametrize(
    ("shape", "wrong"),
    [
        ((2, -1), "negative dim"),
        ((2**40, 2**40), "larger than any array can be"),
        ((2**40, 2**40, 0), "larger than any array can be"),
        ((1,) * 65, "rank 65"),
    ],
)
def test_types_that_no_array_has(shape: tuple[int, ...], wrong: str) -> None:
    with pytest.raises(InferenceError, match=wrong):
        check_possible(TensorType("float32", shape))


def test_types_that_an_array_may_have() -> None:
    for shape in (None, (), (0,), (symbol("N"), 2**40), (2**60,)):
        check_possible(TensorType("float32", shape))


# Constant folding


def folded(graph: Any, registry: PluginRegistry, **limits: int) -> int:

    context = Context(evaluate=ReferenceEvaluator(KernelTable(registry.kernels)))
    _, report = run_passes(graph, [FoldConstants(**limits)], context)
    assert not report.errors
    return report.rows[0].matches


def test_folding_stops_at_its_total(registry: PluginRegistry) -> None:
    op = Builder()
    made = [op.ConstantOfShape(op.constant(np.array([100 + i]))) for i in range(10)]
    graph = op.graph([], {str(i): value for i, value in enumerate(made)})
    assert folded(graph, registry) == 10
    assert folded(graph, registry, max_total=1000) == 2  # 400 bytes each, less the constants that they replace


def test_folding_leaves_long_work_to_the_run(registry: PluginRegistry) -> None:
    op = Builder()
    square = op.constant(np.ones((10, 10), np.float32))
    graph = op.graph([], {"y": op.MatMul(square, square)})
    assert folded(graph, registry, max_work=2000) == 1
    assert folded(graph, registry, max_work=1999) == 0


# Loops


@pytest.mark.parametrize("first", ["go = Identity(c)", "t = Neg(v) go = And(c, p)"])
def test_loops_stop_at_the_limit(first: str, registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once where nothing in the body can end it, else when it gets there."""
    monkeypatch.setattr(control_flow, "TRIP_LIMIT", 100)
    text = f"""(float[2] x, int64 n, bool p) => (float[] y) {{ y = Loop(n, , x) <
        body = b (int64 i, bool c, float[2] v) => (bool go, float[2] w) {{ {first} w = Neg(v) }}> }}"""
    program = aicore.compile(model(text), "cpu", registry=registry)
    x, on = np.ones(2, np.float32), np.array(True)
    np.testing.assert_array_equal(program.run({"x": x, "n": np.array(100), "p": on})["y"], x)
    with pytest.raises(ExecutionError, match="Loop 'y': would run 101 times; no loop may run more than 100 times"):
        program.run({"x": x, "n": np.array(101), "p": on})


# Expressions of dims


def powers(count: int) -> list[Dim]:
    found: list[Dim] = [symbol("N") + symbol("M") + 1]
    for _ in range(count):
        found.append(found[-1] * found[-1])
    return found


def test_an_expression_that_grows_becomes_unknown() -> None:
    found = powers(30)
    assert not is_unknown(found[2])
    assert is_unknown(found[-1])
    assert max(len(str(dim)) for dim in found) <= 4096


def test_coefficients_that_grow_become_unknown() -> None:
    dim: Dim = symbol("N")
    for _ in range(30):
        dim = dim * 10**9
    assert is_unknown(dim)
    assert is_unknown(symbol("N") + 10**60)


def test_divisions_that_share_their_parts_become_unknown() -> None:
    dim: Dim = symbol("N")
    for _ in range(60):
        assert isinstance(dim, DimExpr)
        dim = dim // 3 + dim
    assert is_unknown(dim)


def test_an_unknown_result_need_not_be_a_size() -> None:
    """A difference that became too long proves nothing about its sign; an unknown size is never negative."""
    huge = powers(30)[-1]
    assert not is_nonnegative(huge)
    assert less_equal(0, huge) is None
    assert less_equal(huge, huge) is True  # the same unknown
    assert is_nonnegative(parse_dim("?0"))


# Code that trips over operands


def test_a_converter_that_trips_names_the_node() -> None:
    text = "(float x, float s) => (float[] y) { y = GroupNormalization<num_groups = 2>(x, s, s) }"
    old = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> g {text}')
    with pytest.raises(AicoreError, match="GroupNormalization 'y'"):
        aicore.load(old)


def test_a_kernel_that_cannot_say_its_workspace(registry: PluginRegistry) -> None:
    def confused(op: Any, *types: Any) -> int:
        raise KeyError("what")

    broken = kernel(CORE["Exp"], device="cpu", variant="broken", workspace=confused)(lambda op, x, out, workspace: None)

    op = Builder()
    x = op.input("x", "float32", (2,))
    graph = op.graph([x], {"y": op.Exp(x)})
    selection = Selector(KernelTable([broken]), "cpu").select(graph.nodes[0].op, x.type)
    outputs = [value for _, value in graph.outputs]
    with pytest.raises(PluginError, match="Exp 'exp': kernel exp_broken cannot say which workspace it needs: KeyError"):
        make_plan("cpu", graph.nodes, [x], outputs, {graph.nodes[0]: selection}, MemoryOptions(), {})
