"""A whole graph that is wrong: who is to blame, and a repro that replays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

import aicore.ops as ops
from aicore.errors import ConfigError, ModelError, PluginError
from aicore.ir import Builder, Graph, Op
from aicore.kernels import kernel
from aicore.passes import RulePass
from aicore.plugins import PluginRegistry
from aicore.rewrite import Rule, rule
from aicore.runtime import Plan
from aicore.testing import Outcome, Reference, Target, check_model, replay
from aicore.testing.fake_gpu import FakeDevice, FakeExecutable
from aicore.testing.repro import Repro, read_repro, shows, write_repro
from aicore.testing.wholes import Whole, pass_named
from aicore_cpu_numpy.kernels import all_kernels
from tests.testing import backends
from tests.testing.backends import DEVICE, Array, backend
from tests.testing.installed import install, run_python

RNG = np.random.default_rng(3)
FEEDS = {"x": RNG.standard_normal((3, 8)).astype(np.float32)}
X = (RNG.standard_normal((4, 5)) - 3).astype(np.float32)
RIGHT = [replace(k, device=DEVICE) for k in all_kernels()]
NO_RELU = [k for k in RIGHT if k.op is not ops.Relu and k.op.decompose is Op.decompose]


def network() -> Graph:
    """Layers of matrix products, with a difference among them."""
    b = Builder()
    x = b.input("x", "float32", ("n", 8))
    h = x
    for i in range(4):
        weights = b.constant(RNG.standard_normal((8, 8)).astype(np.float32) / 3)
        h = b.Relu(b.Add(b.MatMul(h, weights), b.constant(RNG.standard_normal(8).astype(np.float32))))
        if i == 2:
            h = b.Sub(h, b.Tanh(x))
    return b.graph((x,), {"y": b.Sigmoid(b.Softmax(h))})


@rule(lambda op, x, y: op.Sub(x, y))
def swap(op: Any, x: Any, y: Any) -> Any:
    """x - y -> y - x, which is wrong."""
    return op.Add(op.Neg(x), y)


@dataclass(frozen=True)
class SwapDifference(RulePass):
    name: ClassVar[str] = "swap-difference"
    rules: ClassVar[tuple[Rule, ...]] = (swap,)


@kernel(ops.Softmax, device=DEVICE, variant="wrong", estimate=lambda op, x: 0.0)
def softmax_wrong(op: ops.Softmax, x: Array) -> Array:
    e = np.exp(x - x.max(axis=op.axis, keepdims=True))
    result = np.asarray(e / e.sum(axis=op.axis, keepdims=True), x.dtype)
    if result.size == 24:
        result.flat[7] *= np.float32(1.01)
    return result


@kernel(ops.Relu, device=DEVICE, variant="plus_one")
def relu_plus_one(op: ops.Relu, x: Array) -> Array:
    result = np.maximum(x, 0)
    result.flat[7] += 1
    return result


def test_a_right_model() -> None:
    verdict, fault = check_model(network(), DEVICE, FEEDS, registry=backend(RIGHT))
    assert (verdict.outcome, fault) == (Outcome.PASSED, None)
    assert verdict.steps > 0


def test_a_model_that_falls_back() -> None:
    verdict, fault = check_model(network(), DEVICE, FEEDS, registry=backend([backends.relu]))
    assert (verdict.outcome, fault) == (Outcome.FALLBACK, None)
    assert "MatMul: no kernel" in verdict.reason


def test_a_wrong_kernel_is_found_among_right_ones(tmp_path: Path) -> None:
    registry = backend([*RIGHT, softmax_wrong])
    verdict, fault = check_model(network(), DEVICE, FEEDS, registry=registry, repros=tmp_path)
    assert verdict.outcome is Outcome.FAILED
    assert fault is not None
    assert (fault.kind, type(fault.node.op if fault.node else None)) == ("kernel", ops.Softmax)
    assert fault.text.startswith("Softmax 'softmax': softmax_wrong on npu: 1 of 24 elements are wrong; [0, 7] is")
    again = replay(tmp_path, registry)
    assert again.reproduced
    assert str(again).startswith("reproduced: 1 of 24 elements are wrong; [0, 7] is")
    cured = replay(tmp_path, backend(RIGHT))
    assert not cured.reproduced
    assert str(cured).startswith("not reproduced: all results are right; it was: Softmax")


def test_a_kernel_that_raises_is_found_too() -> None:
    registry = backend([*NO_RELU, backends.relu_raising])
    _, fault = check_model(network(), DEVICE, FEEDS, registry=registry)
    assert fault is not None
    assert fault.kind == "kernel"
    assert "ZeroDivisionError: no" in fault.text


def test_a_wrong_pass_is_found_with_match_and_node_and_replays_alone(tmp_path: Path) -> None:
    registry = backend(RIGHT, [SwapDifference()])
    verdict, fault = check_model(network(), DEVICE, FEEDS, registry=registry, repros=tmp_path)
    assert verdict.outcome is Outcome.FAILED
    assert fault is not None
    assert fault.culprit is not None
    assert (fault.kind, fault.culprit.pass_name, fault.culprit.rule) == ("pass", "swap-difference", "swap")
    assert fault.text == f"swap-difference: swap#{fault.culprit.match} at Add 'sub' changes what the graph means"
    assert [type(node.op) for node in fault.repro.graph.nodes] == [ops.Sub]
    assert replay(tmp_path, registry).reproduced
    with pytest.raises(ConfigError, match="no pass is called 'swap-difference'; there are: fold-constants"):
        pass_named("swap-difference", Target.find(DEVICE, backend(RIGHT)))


class Forgetful(FakeExecutable):
    """Spoils the first result of plans of many steps, as overlapping buffers would."""

    def run(self, inputs: Any, outputs: Any = None) -> Any:
        results = super().run(inputs, outputs)
        if len(self.plan.steps) > 4:
            self._device.synchronize()
            self._device.view(results[0])[...] = 0
        return results


def test_a_program_that_is_wrong_only_as_a_whole(tmp_path: Path) -> None:
    def launch(plan: Plan, device: FakeDevice) -> FakeExecutable:
        return Forgetful(plan, device)

    registry = backend(RIGHT, launch=launch)
    _, fault = check_model(network(), DEVICE, FEEDS, registry=registry, repros=tmp_path)
    assert fault is not None
    assert (fault.kind, fault.node, fault.culprit) == ("program", None, None)
    assert "each node and each pass is right" in fault.text
    assert replay(tmp_path, registry).reproduced


def test_overlapping_buffers_are_told_from_the_rest() -> None:
    def launch(plan: Plan, device: FakeDevice) -> FakeExecutable:
        reused = plan.memory.arena < plan.memory.without_reuse
        return Forgetful(plan, device) if reused else FakeExecutable(plan, device)

    _, fault = check_model(network(), DEVICE, FEEDS, registry=backend(RIGHT, launch=launch))
    assert fault is not None
    assert "it is right with reuse_memory=False, so buffers overlap" in fault.text


def test_a_repro_replays_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The device is installed there; here the same kernel is given as a module."""
    b = Builder()
    x = b.input("x", "float32", (4, 5))
    graph = b.graph((x,), {"y": b.Neg(b.Relu(b.Neg(x)))})
    _, fault = check_model(graph, DEVICE, {"x": X}, registry=backend([*NO_RELU, relu_plus_one]))
    assert fault is not None
    folder = write_repro(tmp_path / "repro", fault.repro)
    install(tmp_path, "relu_wrong")
    done = run_python(tmp_path, str(folder / "replay.py"))
    assert (done.returncode, done.stdout.partition(":")[0]) == (1, "reproduced"), done.stderr
    install(tmp_path, "relu")
    done = run_python(tmp_path, str(folder / "replay.py"))
    assert (done.returncode, done.stdout.partition(":")[0]) == (0, "not reproduced"), done.stderr


@pytest.mark.parametrize("damage", ["missing", "text", "format", "array"])
def test_a_damaged_folder(damage: str, tmp_path: Path, registry: PluginRegistry) -> None:
    _, fault = check_model(network(), DEVICE, FEEDS, registry=backend([*RIGHT, softmax_wrong]), repros=tmp_path)
    assert fault is not None
    about = tmp_path / "repro.json"
    match damage:
        case "missing":
            about.unlink()
        case "text":
            about.write_text("{")
        case "format":
            about.write_text(about.read_text().replace('"format": 1', '"format": 99'))
        case "array":
            (tmp_path / "want-0.npy").write_bytes(b"no array")
    with pytest.raises(ModelError, match=str(tmp_path)):
        read_repro(tmp_path, registry)


def test_a_target_that_is_not_here(tmp_path: Path, registry: PluginRegistry) -> None:
    check_model(network(), DEVICE, FEEDS, registry=backend([*RIGHT, softmax_wrong]), repros=tmp_path)
    with pytest.raises(PluginError, match="no plugin drives device 'npu'"):
        replay(tmp_path, registry)


def test_every_element_type_survives_the_folder(tmp_path: Path, registry: PluginRegistry) -> None:
    b = Builder()
    half, text = b.input("half", "bfloat16", (2,)), b.input("text", "string", (2,))
    graph = b.graph((half, text), {"half": b.Neg(half), "text": b.Identity(text)})
    arrays = {"half": np.array([1, 2], ml_dtypes.bfloat16), "text": np.array(["a", "ü"], object)}
    whole = Whole.of(graph, arrays, Reference(registry))
    repro = Repro("program", graph, "cpu", "none", arrays, whole.want, whole.allowed)
    read = read_repro(write_repro(tmp_path, repro), registry)
    for name, array in arrays.items():
        assert read.feeds[name].dtype == array.dtype
        assert read.feeds[name].tolist() == array.tolist()
    assert shows(read, Target.find("cpu", registry)) == ""


def test_loops_are_walked_in_a_model_too(registry: PluginRegistry) -> None:
    sample = next(iter(ops.Scan.samples(np.random.default_rng(0))))
    b = Builder()
    first, rows = b.input("first", "float32", (2,)), b.input("rows", "float32", (3, 2))
    total, each = b.apply(sample.op, first, b.Mul(rows, rows))
    graph = b.graph((first, rows), {"total": b.Neg(total), "each": each})
    feeds = {"first": np.zeros(2, np.float32), "rows": RNG.standard_normal((3, 2)).astype(np.float32)}
    for target in ("cpu", "fake", "cpu:reference"):
        verdict, fault = check_model(graph, target, feeds, registry=registry)
        assert (verdict.outcome, fault) == (Outcome.PASSED, None), verdict.reason
