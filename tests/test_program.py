"""Programs as their users see them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest

import aicore
import aicore.ops as ops
from aicore.errors import GraphError, InputError, PluginError, UnsupportedError
from aicore.ir import Builder, Graph, TensorType
from aicore.plugins import PluginRegistry

TARGETS = ["cpu", "fake"]
Array = np.ndarray[Any, Any]


def network(batch: int | str = "N") -> Graph:
    """Two dense layers and a reshaped second output."""
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", "float32", (batch, 8))
    h = b.Relu(b.Add(b.MatMul(x, b.constant(_normal(rng, 8, 16))), b.constant(_normal(rng, 16))))
    y = b.Softmax(b.Add(b.MatMul(h, b.constant(_normal(rng, 16, 4))), b.constant(_normal(rng, 4))), axis=-1)
    return b.graph((x,), {"y": y, "odd name": b.Reshape(h, b.constant(np.array([-1])))})


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def data(count: int) -> Array:
    return _normal(np.random.default_rng(count), count, 8)


def by_hand(graph: Graph, x: Array) -> Array:
    w1, b1, w2, b2 = (
        v.constant.array.astype(np.float64)
        for n in graph.nodes
        for v in n.inputs
        if v and v.constant and v.dtype == "float32"
    )
    z = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    e = np.exp(z - z.max(-1, keepdims=True))
    result: Array = e / e.sum(-1, keepdims=True)
    return result


def compiled(
    registry: PluginRegistry, target: str = "cpu", graph: Graph | None = None, **options: Any
) -> aicore.Program:
    return aicore.compile(graph or network(), target=target, registry=registry, fallback="quiet", **options)


def bits(outputs: dict[str, Array]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outputs.items()}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("optimize", [True, False])
def test_the_numbers_are_right(registry: PluginRegistry, target: str, optimize: bool) -> None:
    graph = network()
    program = compiled(registry, target, graph, optimize=optimize)
    for count in (3, 1, 3, 0):
        outputs = program(x=data(count))
        assert list(outputs) == ["y", "odd name"]
        np.testing.assert_allclose(outputs["y"], by_hand(graph, data(count)), rtol=1e-5)
        assert outputs["odd name"].shape == (16 * count,)
        assert type(outputs["y"]) is np.ndarray


def test_the_devices_agree_bit_for_bit(registry: PluginRegistry) -> None:
    one, other = (compiled(registry, target)(x=data(5)) for target in TARGETS)
    assert bits(one) == bits(other)


@pytest.mark.parametrize("target", TARGETS)
def test_every_way_of_planning_memory_gives_the_same_bits(registry: PluginRegistry, target: str) -> None:
    wanted = bits(compiled(registry, target)(x=data(5)))
    for reuse in (True, False):
        for poison in (True, False):
            program = compiled(registry, target, reuse_memory=reuse, poison=poison)
            assert bits(program(x=data(5))) == wanted == bits(program(x=data(5)))


@pytest.mark.parametrize("target", TARGETS)
def test_alternating_shapes_match_fresh_programs(registry: PluginRegistry, target: str) -> None:
    program = compiled(registry, target)
    for count in (2, 7, 2, 7, 2):
        assert bits(program(x=data(count))) == bits(compiled(registry, target)(x=data(count)))


@pytest.mark.parametrize("target", TARGETS)
def test_earlier_results_never_change(registry: PluginRegistry, target: str) -> None:
    program = compiled(registry, target)
    first = program(x=data(4))
    kept = bits(first)
    for count in (4, 4, 2):
        program(x=-data(count))
    program.release()
    assert bits(first) == kept


@pytest.mark.parametrize("target", TARGETS)
def test_eight_threads_give_the_bits_of_one(registry: PluginRegistry, target: str) -> None:
    program = compiled(registry, target)
    serial = {count: bits(compiled(registry, target)(x=data(count))) for count in range(1, 5)}
    wrong: list[int] = []

    def work(seed: int) -> None:
        for i in range(12):
            count = 1 + (seed + i) % 4
            if bits(program(x=data(count))) != serial[count]:
                wrong.append(count)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    statistics = program.explain().cache
    assert (statistics.misses, statistics.hits) == (4, 92)


def test_inputs_are_read_only_to_the_program(registry: PluginRegistry) -> None:
    x = data(3)
    before = x.copy()
    compiled(registry)(x=x)
    np.testing.assert_array_equal(x, before)
    x.flags.writeable = False
    compiled(registry)(x=x)


def test_results_belong_to_the_caller(registry: PluginRegistry) -> None:
    program = compiled(registry)
    wanted = bits(program(x=data(3)))
    for array in program(x=data(3)).values():
        array[...] = np.nan
    assert bits(program(x=data(3))) == wanted


@pytest.mark.parametrize("target", TARGETS)
def test_some_outputs(registry: PluginRegistry, target: str) -> None:
    program = compiled(registry, target)
    everything = program(x=data(3))
    assert bits(program.run({"x": data(3)}, ["odd name"])) == {"odd name": everything["odd name"].tobytes()}
    assert program.run({"x": data(3)}, []) == {}
    with pytest.raises(InputError, match="no such output 'z'; the program has 'y', 'odd name'"):
        program.run({"x": data(3)}, ["z"])


@pytest.mark.parametrize("target", TARGETS)
def test_what_does_not_fit_never_runs(registry: PluginRegistry, target: str) -> None:
    program = compiled(registry, target)
    with pytest.raises(InputError, match=r"input 'x': expected float32\[N,8\], got float32\[2,7\]"):
        program(x=np.ones((2, 7), np.float32))
    with pytest.raises(InputError, match="missing input 'x'"):
        program()
    assert program.steps_run == 0


@pytest.mark.parametrize("target", TARGETS)
def test_bound_arrays(registry: PluginRegistry, target: str) -> None:
    program = compiled(registry, target)
    x = data(3)
    outputs = {"y": np.empty((3, 4), np.float32), "odd name": np.empty(48, np.float32)}
    bound = program.bind({"x": x}, outputs)
    for count in (3, 4):
        x[...] = data(count)[:3]
        results = bound.run()
        assert results["y"] is outputs["y"]
        assert bits(outputs) == bits(program(x=x))


@pytest.mark.parametrize("target", TARGETS)
def test_binding_makes_the_outputs_when_none_are_given(registry: PluginRegistry, target: str) -> None:
    b = Builder()
    x = b.input("x", "float32", (2,))
    program = compiled(registry, target, b.graph((x,), {"y": b.Relu(x)}))
    array = np.array([-1, 2], np.float32)
    bound = program.bind({"x": array})
    made = bound.outputs["y"]
    assert bound.run()["y"] is made
    assert made.tolist() == [0, 2]
    array[:] = 3, -4
    bound.run()
    assert made.tolist() == [3, 0]  # the same array, computed from what the input holds now


def test_bound_outputs_are_written_to_directly(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", (256, 256))
    program = compiled(registry, graph=b.graph((x,), {"y": b.Neg(x)}))
    array, out = np.ones((256, 256), np.float32), np.empty((256, 256), np.float32)
    bound = program.bind({"x": array}, {"y": out})
    bound.run()
    seen = [plan.memory.arena for plan in program.plan]
    assert seen == [0]
    assert out[0, 0] == -1


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ({"x": data(3)}, {}, r"no array for output 'y': float32\[N,4\]"),
        ({"x": data(3)}, {"z": data(1)}, "no such output 'z'"),
        ({"x": data(3).tolist()}, {"y": np.empty((3, 4), np.float32)}, "only NumPy arrays can be bound; 'x' is list"),
        ({"x": data(8).T}, {"y": np.empty((8, 4), np.float32)}, "only dense arrays in C order can be bound"),
        ({"x": data(3)}, {"y": np.empty((3, 5), np.float32)}, r"'y': expected float32\[3,4\], got float32\[3,5\]"),
        ({"x": data(3)}, {"y": np.empty((3, 4))}, r"'y': expected float32\[3,4\], got float64\[3,4\]"),
    ],
)
def test_what_cannot_be_bound(registry: PluginRegistry, inputs: Any, outputs: Any, message: str) -> None:
    filled = {**outputs, "odd name": np.empty(16 * len(inputs["x"]), np.float32)}
    with pytest.raises(InputError, match=message):
        compiled(registry).bind(inputs, filled)


def test_bound_arrays_are_apart(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", (4,))
    program = compiled(registry, graph=b.graph((x,), {"y": b.Neg(x), "z": b.Abs(x)}))
    array = np.ones(8, np.float32)
    with pytest.raises(InputError, match="output 'y' cannot be bound to memory of 'x'"):
        program.bind({"x": array[:4]}, {"y": array[:4], "z": array[4:]})
    with pytest.raises(InputError, match="output 'z' cannot be bound to memory of 'y'"):
        program.bind({"x": np.ones(4, np.float32)}, {"y": array[:4], "z": array[:4]})
    program.bind({"x": np.ones(4, np.float32)}, {"y": array[:4], "z": array[4:]}).run()
    assert array.tolist() == [-1] * 4 + [1] * 4


@pytest.mark.parametrize("target", TARGETS)
def test_a_bound_result_of_another_size_is_refused(registry: PluginRegistry, target: str) -> None:
    b = Builder()
    x = b.input("x", "float32", (4,))
    program = compiled(registry, target, b.graph((x,), {"y": b.NonZero(x)}))
    array, out = np.array([1, 0, 1, 0], np.float32), np.empty((1, 2), np.int64)
    bound = program.bind({"x": array}, {"y": out})
    assert bound.run()["y"].tolist() == [[0, 2]]
    array[:] = [0, 1, 0, 0]
    with pytest.raises(InputError, match=r"shape \(1, 2\), but the result has \(1, 1\)"):
        bound.run()


def test_compiling_ahead(registry: PluginRegistry) -> None:
    program = compiled(registry)
    assert program.plan == ()
    assert program.placement is None
    program.specialise({"x": (3, 8)})
    assert str(program.placement).startswith("cpu_numpy ")
    program(x=data(3))
    assert program.explain().cache.hits == 1
    with pytest.raises(InputError, match="no shape for input 'x'"):
        program.specialise({})
    with pytest.raises(InputError, match=r"expected float32\[N,8\], got float32\[3\]"):
        program.specialise({"x": (3,)})
    with pytest.raises(InputError, match=r"expected float32\[N,8\], got float32\[3,9\]"):
        program.specialise({"x": (3, 9)})


def test_a_program_says_what_it_takes_and_gives(registry: PluginRegistry) -> None:
    program = compiled(registry, graph=network(4))
    assert program.inputs == {"x": TensorType("float32", (4, 8))}
    assert program.outputs == {"y": TensorType("float32", (4, 4)), "odd name": TensorType("float32", (64,))}
    assert program.state == ()


def test_state_is_exposed(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("count", "float32", ())
    graph = b.graph((x,), {"next": b.Add(x, b.constant(np.float32(1)))}, state=[("next", "count")])
    program = compiled(registry, graph=graph)
    assert program.state == (("next", "count"),)
    count = np.float32(0)
    for _ in range(3):
        count = program(count=count)["next"]
    assert count == 3


def test_explain_before_and_after_the_first_call(registry: PluginRegistry) -> None:
    program = compiled(registry, "fake")
    assert "nothing is specialised yet" in str(program.explain())
    assert program.explain()._repr_html_().startswith("<pre")  # in a notebook
    assert program.explain().kernels == []
    program(x=data(3))
    explanation = program.explain()
    text = str(explanation)
    assert "target fake: asked for" in text
    assert "fuse-linear" in text
    assert f"placement: {program.placement}" in text
    assert "memory on fake: arena" in text
    for choice in explanation.kernels:
        assert choice.node in text
        assert choice.kernel == "alias" or choice.kernel == choice.candidates[0].kernel.name
        assert all(candidate.note for candidate in choice.candidates)
    found = json.loads(json.dumps(explanation.to_json()))
    assert next(row["name"] for row in found["passes"][0]["rows"]) == "fold-constants"
    assert found["kernels"][0]["device"] == "fake"
    assert found["memory"][0]["arena"] == program.plan[0].memory.arena
    assert found["specialisations"]["misses"] == 1


def test_explain_compiles_what_leaves_no_choice(registry: PluginRegistry) -> None:
    assert compiled(registry, graph=network(4)).explain().kernels


@pytest.mark.parametrize("target", TARGETS)
def test_profile(registry: PluginRegistry, target: str) -> None:
    program = compiled(registry, target)
    profile = program.profile({"x": data(3)}, ceilings=False)
    steps = [row for row in profile.rows if row.device == target]
    assert len(steps) == sum(len(plan.steps) for plan in program.plan)
    assert all(row.seconds > 0 for row in steps)


@pytest.mark.parametrize("target", TARGETS)
def test_steps_are_proof_of_work(registry: PluginRegistry, target: str) -> None:
    program = compiled(registry, target)
    for _ in range(3):
        program(x=data(3))
    (plan,) = program.plan
    assert program.steps_run == 3 * len(plan.steps) > 0
    assert program.placement is not None
    assert plan.nodes == len(program.placement.devices)


def test_kernels_can_be_asked_for(registry: PluginRegistry) -> None:
    program = compiled(registry, graph=network(4), kernels={"Gemm": "reference", "MatMul": "reference"}, optimize=False)
    assert {c.kernel for c in program.explain().kernels if c.kernel.startswith("matmul")} == {"matmul_reference"}
    with pytest.raises(UnsupportedError, match="no kernel 'best' for Softmax on cpu"):
        compiled(registry, graph=network(4), kernels={"Softmax": "best"}).explain()


def test_the_peak_of_a_run_is_what_was_planned(registry: PluginRegistry) -> None:
    b = Builder()
    x = value = b.input("x", "float32", (480, 480))  # an arena that fills no large page
    for _ in range(4):
        value = b.MatMul(value, x)
    program = compiled(registry, graph=b.graph((x,), {"y": value}), kernels={"MatMul": "blas"})
    (plan,) = program.plan
    array = np.eye(480, dtype=np.float32)
    tracemalloc.start()
    program(x=array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert plan.memory.arena == plan.memory.lower_bound
    assert peak <= 1.05 * plan.memory.arena + plan.memory.outputs


def test_a_damaged_graph_is_refused(registry: PluginRegistry) -> None:
    good = network()
    with pytest.raises(GraphError, match="is used before it is defined"):
        compiled(registry, graph=Graph(good.inputs, good.outputs, good.nodes[::-1]))


def test_what_no_device_can_run_is_told_before_it_runs(registry: PluginRegistry) -> None:
    class Odd(ops.Neg):
        pass

    b = Builder()
    x = b.input("x", "float32", (2,))
    graph = b.graph((x,), {"y": b.apply(Odd(), x)})
    with pytest.raises(UnsupportedError, match="Odd 'odd': no kernel for Odd on fake; no kernel for Odd on cpu"):
        compiled(registry, "fake", graph).explain()


def test_an_unknown_target_lists_the_usable_ones(registry: PluginRegistry) -> None:
    with pytest.raises(PluginError, match="usable devices: cpu, fake"):
        compiled(registry, "tpu")


def test_the_target_defaults_to_the_best_device(registry: PluginRegistry) -> None:
    program = aicore.compile(network(), registry=registry)
    assert program.device.name == "cpu"
    assert "has the highest priority" in program.target


def test_an_unknown_fallback_policy_lists_the_choices(registry: PluginRegistry) -> None:
    with pytest.raises(aicore.AicoreError, match="choose from error, warn, quiet"):
        aicore.compile(network(), registry=registry, fallback="loud")  # type: ignore[arg-type]


def test_data_dependent_sizes_on_a_device_that_has_none(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", ("N",))
    found = b.NonZero(b.Relu(x))
    graph = b.graph((x,), {"where": found, "doubled": b.Add(found, found)})
    program = compiled(registry, "fake", graph)
    for values, wanted in (([1, -1, 2], [[0, 2]]), ([-1], [[]]), ([0, 0, 3], [[2]])):
        outputs = program(x=np.array(values, np.float32))
        assert outputs["where"].tolist() == wanted
        np.testing.assert_array_equal(outputs["doubled"], 2 * outputs["where"])
    assert str(program.placement) == (
        "fake_gpu 1/3 nodes; 2 -> cpu_numpy "
        "[Add: the size of %nonzero depends on data; NonZero: the size of %nonzero depends on data]"
    )


def test_importing_aicore_imports_nothing_heavy() -> None:
    code = "import sys, aicore; print([m for m in ('numpy', 'onnx', 'pluggy', 'aicore.plugins') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


def test_the_public_names_are_there() -> None:
    assert aicore.compile is aicore.compile
    assert set(aicore.__all__) <= set(dir(aicore))
    with pytest.raises(AttributeError, match="module 'aicore' has no attribute 'sessions'"):
        aicore.sessions  # type: ignore[attr-defined]  # noqa: B018
