"""Relu joins BatchNormalization in training, its gradient that of the pool behind it; numbers stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.autodiff import gradients
from aicore.ir import Builder, Graph, Value, parse_graph, print_graph
from aicore.ops import CORE
from aicore.ops.activation import Relu
from aicore.ops.fused_gradients import MaxPoolReluGrad
from aicore.ops.fused_normalization import BatchNormalizationAct
from aicore.ops.layout import ChannelsLast
from aicore.passes import default_passes, run_passes
from aicore.passes.fuse_training import FuseTraining
from aicore.passes.remove_dead import RemoveDead
from aicore.rewrite import Context
from tests.passes.graphs import assert_same, context, floats, kinds, lacking, run

PASSES = (FuseTraining(), RemoveDead())
SHAPE = (2, 3, 6, 8)
Pool = Callable[[Builder, Value], Value]
Also = Callable[[Builder, Value, Value], dict[str, Value]]
"""More results, from what was normalised and what Relu made of it."""


def halved(op: Builder, y: Value) -> Value:
    found: Value = op.MaxPool(y, kernel_shape=(2, 2), strides=(2, 2))
    return found


def averaged(op: Builder, y: Value) -> Value:
    found: Value = op.AveragePool(y, kernel_shape=(2, 2), strides=(2, 2))
    return found


def activated(op: Builder, normal: Value) -> Value:
    found: Value = op.Relu(normal)
    return found


def step(
    pool: Pool = halved,
    activation: Callable[[Builder, Value], Value] = activated,
    also: Also = lambda op, normal, y: {},
    batch: Any = SHAPE[0],
    dtype: str = "float32",
) -> Graph:
    """Normalise, cut, pool; gradients of all that was given, and the running mean."""
    op = Builder()
    x = op.input("x", dtype, (batch, *SHAPE[1:]))
    scale, bias, mean, variance = (op.input(name, dtype, (3,)) for name in ("scale", "bias", "mean", "variance"))
    results = op.BatchNormalization(x, scale, bias, mean, variance, training_mode=1, statistics=True, momentum=0.8)
    y = activation(op, results[0])
    pooled = pool(op, y)
    loss = op.ReduceMean(op.Mul(pooled, pooled), keepdims=0)
    names = ("dx", "dscale", "dbias")
    found = dict(zip(names, gradients(op, loss, [x, scale, bias]), strict=True))
    outputs = {"loss": loss, "mean": results[1], **found, **also(op, results[0], y)}
    return op.graph([x, scale, bias, mean, variance], outputs)


FEEDS = (floats(*SHAPE), floats(3), floats(3), floats(3), np.abs(floats(3)))


def fused(graph: Graph, **options: Any) -> tuple[Graph, Context]:
    ctx = context(**options)
    found, report = run_passes(graph, PASSES, ctx)
    assert not report.errors
    assert_same(graph, found, *FEEDS)
    return found, ctx


@pytest.mark.parametrize("batch", [2, "N"])
def test_both_join_in_a_training_step(batch: Any) -> None:
    found, _ = fused(step(batch=batch))
    assert [kind for kind in kinds(found) if kind in ("BatchNormalizationAct", "MaxPoolReluGrad")] == [
        "BatchNormalizationAct",
        "MaxPoolReluGrad",
    ]
    assert not {"Relu", "Where", "LessOrEqual", "MaxPoolGrad", "BatchNormalization"} & set(kinds(found))
    (normal,) = (node.op for node in found.nodes if isinstance(node.op, BatchNormalizationAct))
    assert (normal.momentum, normal.activation) == (0.8, Relu())


def test_as_text() -> None:
    before = parse_graph(
        """
graph (%x: float32[2,3,4,4], %c: float32[3], %dy: float32[2,3,2,2]) {
  %n, %mean, %variance, %batch, %inverse = BatchNormalization(%x, %c, %c, %c, %c){training_mode=1, statistics=True}
  %y = Relu(%n)
  const %zero: float32[] = [0.0]
  %cut = LessOrEqual(%y, %zero)
  %d = MaxPoolGrad(%y, %dy){kernel_shape=[2, 2], strides=[2, 2]}
  %dn = Where(%cut, %zero, %d)
  return "dn"=%dn, "mean"=%mean, "batch"=%batch
}""",
        CORE,
    )
    after = """
graph (%x: float32[2,3,4,4], %c: float32[3], %dy: float32[2,3,2,2]) {
  %y: float32[2,3,4,4], %mean: float32[3], %variance: float32[3], %batch: float32[3], %inverse: float32[3] =\
 BatchNormalizationAct(%x, %c, %c, %c, %c){epsilon=1e-05, momentum=0.9, activation=Relu}\
 by ["fuse-BatchNormalizationAct#0"]
  %dn: float32[2,3,4,4] = MaxPoolReluGrad(%y, %dy){pool=MaxPoolGrad{kernel_shape=[2, 2], strides=[2, 2]}}\
 by ["fuse-MaxPoolReluGrad#1"]
  return "dn"=%dn, "mean"=%mean, "batch"=%batch
}"""
    found, report = run_passes(before, PASSES, context())
    assert not report.errors
    assert print_graph(found).strip() == after.strip()


def test_gradients_are_those_of_finite_differences() -> None:
    graph = step(dtype="float64")
    found, report = run_passes(graph, PASSES, context())
    assert not report.errors
    feeds = [array.astype(np.float64) for array in FEEDS]
    dx = run(found, *feeds)[2]
    rng, small = np.random.default_rng(3), 1e-6
    for _ in range(20):
        at = tuple(int(rng.integers(n)) for n in SHAPE)
        moved = [feeds[0].copy(), feeds[0].copy()]
        moved[0][at] += small
        moved[1][at] -= small
        high, low = (float(run(graph, x, *feeds[1:])[0]) for x in moved)
        assert abs((high - low) / (2 * small) - dx[at]) < 1e-7


@pytest.mark.parametrize(
    ("graph", "kept", "rule", "reason"),
    [
        (step(also=lambda op, normal, y: {"n": op.Neg(normal)}), "Relu", "BatchNormalizationAct", "other users"),
        (step(also=lambda op, normal, y: {"n": normal}), "Relu", "BatchNormalizationAct", "a graph output"),
        (step(activation=lambda op, n: op.LeakyRelu(n)), "LeakyRelu", "BatchNormalizationAct", "no Relu"),
        (step(pool=averaged), "Where", "MaxPoolReluGrad", "no MaxPoolGrad"),
        (step(activation=lambda op, n: op.Neg(op.Relu(n))), "Where", "MaxPoolReluGrad", "is computed by MaxPoolGrad"),
    ],
    ids=["read twice", "an output", "another activation", "another pool", "a pool of something else"],
)
def test_what_stays(graph: Graph, kept: str, rule: str, reason: str) -> None:
    found, ctx = fused(graph)
    assert kept in kinds(found)
    assert rule not in kinds(found)
    assert reason in str(ctx.why_not(f"fuse-{rule}"))


def test_without_training_or_statistics_nothing_joins() -> None:
    op = Builder()
    x, c = op.input("x", "float32", SHAPE), op.input("c", "float32", (3,))
    plain = op.Relu(op.BatchNormalization(x, c, c, c, c))
    trained = op.BatchNormalization(x, c, c, c, c, training_mode=1)
    graph = op.graph([x, c], {"plain": plain, "trained": op.Relu(trained[0]), "mean": trained[1]})
    found, report = run_passes(graph, PASSES, context())
    assert not report.errors
    assert kinds(found) == kinds(graph)


@pytest.mark.parametrize("missing", [BatchNormalizationAct, MaxPoolReluGrad])
def test_a_target_without_the_kernel_keeps_the_parts(missing: Any) -> None:
    found, ctx = fused(step(), supports=lacking(missing))
    assert missing.__name__ not in kinds(found)
    assert f"no kernel for {missing.__name__}" in str(ctx.why_not(f"fuse-{missing.__name__}"))


def test_fused_ops_take_channels_last() -> None:
    op = Builder()
    graph = step()
    x, w = op.input("image", "float32", (2, 4, 6, 8)), op.input("w", "float32", (3, 4, 1, 1))
    others = [op.input(value.name, "float32", (3,)) for value in graph.inputs[1:]]
    y, *_ = op.BatchNormalization(op.Conv(x, w), *others, training_mode=1, statistics=True)
    pooled = halved(op, op.Relu(y))
    loss = op.ReduceMean(op.Mul(pooled, pooled), keepdims=0)
    (dw,) = gradients(op, loss, [w])
    whole = op.graph([x, w, *others], {"loss": loss, "dw": dw})
    found, report = run_passes(whole, default_passes(), context())
    assert not report.errors
    held = [type(node.op.inner).__name__ for node in found.nodes if isinstance(node.op, ChannelsLast)]
    assert {"BatchNormalizationAct", "MaxPoolReluGrad"} <= set(held)
    assert_same(whole, found, floats(2, 4, 6, 8), floats(3, 4, 1, 1), *FEEDS[1:])
