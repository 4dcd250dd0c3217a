"""A device takes int8 only where it is no slower than floating point, as estimated or as measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import aicore
import aicore_cpu_numpy.plugin
import aicore_int8_quant.plugin
from aicore.config import Config
from aicore.ir import Graph, Op, TensorType
from aicore.kernels import Candidate, Kernel, KernelTable, Selector
from aicore.ops.convolution import Conv
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.quantization import DequantizeLinear
from aicore.plugins import PluginRegistry, Probe, hookimpl
from aicore.rewrite import Context
from aicore.testing.fake_gpu import FakeDevice, FakeExecutable
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cpu_numpy.workers import single_threaded_blas
from aicore_int8_quant.kernels import KERNELS
from aicore_int8_quant.ops import Int8Conv, Int8MatMul
from aicore_int8_quant.passes.fuse import FuseInt8
from plugins.int8_quant.tests.test_fuse import Qdq, kinds, normal

FLOATS = (Conv, MatMul, Gemm)
INTEGERS = (Int8Conv, Int8MatMul)


class Plugin:
    """A device whose kernels are those of the CPU, and whose estimates are ours."""

    def __init__(self, floats: float, integers: float, conversion: float) -> None:
        self.device = FakeDevice()
        self._times = dict.fromkeys(FLOATS, floats) | dict.fromkeys(INTEGERS, integers)
        self._times[DequantizeLinear] = conversion

    @hookimpl
    def probe(self) -> Probe:
        return Probe(devices=(self.device,))

    @hookimpl
    def register_kernels(self) -> list[Kernel]:
        return [self._timed(kernel) for kernel in (*all_kernels(), *KERNELS)]

    @hookimpl
    def launch(self, plan: Any) -> FakeExecutable:
        return FakeExecutable(plan, self.device, single_threaded_blas)

    def _timed(self, kernel: Kernel) -> Kernel:
        taken = self._times.get(kernel.op)
        made = replace(kernel, device=FakeDevice.kind)
        return made if taken is None else replace(made, estimate=lambda op, *types, **settings: taken)


def compiled(graph: Graph, floats: float, integers: float, conversion: float = 0.0) -> aicore.Program:
    modules = {
        "cpu_numpy": aicore_cpu_numpy.plugin,
        "int8": aicore_int8_quant.plugin,
        "fake": Plugin(floats, integers, conversion),
    }
    registry = PluginRegistry.from_modules(modules, config=Config())
    return aicore.compile(graph, "fake", registry=registry, tune="off", fallback="error")


def two_layers() -> Graph:
    q = Qdq()
    x = q.op.input("x", "float32", (2, 4, 6, 6))
    hidden = q.coded(q.op.Relu(q.op.Conv(q.coded(x), q.weight(8, 4, 3, 3))), 0.1)
    return q.op.graph([x], {"y": q.op.MatMul(q.op.Flatten(hidden), q.weight(128, 5, axis=1))})


def test_the_faster_one_is_taken() -> None:
    graph, x = two_layers(), normal(2, 4, 6, 6)
    integers, floats = compiled(graph, 2e-6, 1e-6), compiled(graph, 1e-6, 2e-6)
    assert {"Int8Conv", "Int8MatMul"} <= set(kinds(integers.graph))
    assert not {"Int8Conv", "Int8MatMul"} & set(kinds(floats.graph))
    results = [program(x=x)["y"] for program in (integers, floats)]
    np.testing.assert_allclose(*results, rtol=0, atol=0.2 * np.abs(results[0]).max())


def test_codes_must_become_numbers_first() -> None:
    """Floating point alone would win, with the conversion it does not; a tie is for int8."""
    for floats, conversion, wins in ((1e-6, 2e-6, True), (1e-6, 0.5e-6, False), (1.5e-6, 0.5e-6, True)):
        program = compiled(two_layers(), floats, 2e-6, conversion)
        assert ("Int8Conv" in kinds(program.graph)) is wins, (floats, conversion)


def test_what_was_left_in_floating_point_is_told() -> None:
    text = str(compiled(two_layers(), 1e-6, 2e-6, 0.25e-6).explain())
    assert "stays in floating point: 1.2 us on fake, and 2.0 us in int8" in text


def test_the_cpu_takes_int8_in_any_case() -> None:
    """There it is for knowing results beforehand."""
    program = aicore.compile(two_layers(), "cpu", fallback="error", tune="off")
    assert "Int8Conv" in kinds(program.graph)


class Measured:
    """What a store of measured times answers."""

    def __init__(self, seconds: Mapping[type[Op], float]) -> None:
        self.hits, self.misses = 0, Counter[str]()
        self._seconds = seconds

    def __call__(
        self, op: Op, types: Sequence[TensorType | None], constant: Collection[int], candidates: Sequence[Candidate]
    ) -> tuple[str, Mapping[str, float]] | None:
        taken = self._seconds.get(type(op))
        return None if taken is None else (candidates[0].name, {candidates[0].name: taken})


@pytest.mark.parametrize("measured", [1e-6, 9e-6])
def test_measured_times_count_more_than_estimates(measured: float) -> None:
    """By estimates int8 takes 5 us, and floating point 3."""
    plugin = Plugin(3e-6, 5e-6, 0.0)
    selector = Selector(KernelTable(plugin.register_kernels()), "fake", tuned=Measured({Int8Conv: measured}))
    context = Context(
        supports=selector.reason_against,
        seconds=lambda op, *types, constant=(): selector.select(op, *types, constant=constant).candidates[0].seconds,
        device="fake",
    )
    fused = FuseInt8().apply(two_layers(), context)
    assert ("Int8Conv" in kinds(fused)) is (measured < 3e-6)
    assert "Int8MatMul" not in kinds(fused)
