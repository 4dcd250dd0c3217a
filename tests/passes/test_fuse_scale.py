"""Scale, shift and bounds join a 1x1 convolution with channels last, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import Builder, Graph, Op, Value
from aicore.ops.activation import Clip, LeakyRelu, Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ScaleActConv
from aicore.ops.fused_pointwise import Region
from aicore.ops.layout import ChannelsLast
from aicore.passes import run_passes
from aicore.passes.fuse_linear import FuseLinear
from aicore.passes.fuse_pointwise import FusePointwise
from aicore.passes.fuse_scale import FuseScale
from aicore.passes.place_channels_last import PlaceChannelsLast
from aicore.passes.remove_dead import RemoveDead
from aicore.rewrite import Context
from tests.passes.graphs import assert_same, context, floats, run

Last = Callable[[Any, Value, Value], Value]
"""What reads the activation, from it and from the image before it was scaled."""

PASSES = (FuseLinear(), PlaceChannelsLast(), FuseScale(), FusePointwise(), RemoveDead())
RULE = "scale-into-convolution"
CHANNELS = 4


def product(op: Any, y: Value, bias: bool = True) -> Value:
    w = op.constant(floats(CHANNELS, CHANNELS, 1, 1), "w")
    found: Value = op.Conv(y, w, op.constant(floats(CHANNELS), "b") if bias else None)
    return found


def normalised(
    last: Last = lambda op, y, image: product(op, y), activation: Op | None = None, scale: Any = (CHANNELS, 1, 1)
) -> Graph:
    """last(activation(conv(x) * scale + shift)).

    scale: a shape of a constant, or a function of the image.
    """
    op = Builder()
    x = op.input("x", "float32", ("N", 3, 6, 7))
    image = op.Conv(x, op.constant(floats(CHANNELS, 3, 3, 3) / 5, "v"))
    factor = scale(op, image) if callable(scale) else op.constant(floats(*scale), "scale")
    y = op.Add(op.Mul(image, factor), op.constant(floats(CHANNELS, 1, 1), "shift"))
    y = op.apply(Relu() if activation is None else activation, y)
    return op.graph([x], {"y": last(op, y, image)})


def fused(graph: Graph, **options: Any) -> tuple[list[Op], Context]:
    """What has channels last, after numbers were compared."""
    ctx = context(**options)
    found, report = run_passes(graph, PASSES, ctx)
    assert not report.errors
    assert_same(graph, found, floats(2, 3, 6, 7))
    return [node.op.inner if isinstance(node.op, ChannelsLast) else node.op for node in found.nodes], ctx


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [Relu(), Clip(-0.5, 0.5)], ids=str)
def test_it_joins_a_convolution(activation: Relu | Clip, bias: bool) -> None:
    found, _ = fused(normalised(lambda op, y, image: product(op, y, bias), activation))
    (joined,) = (op for op in found if isinstance(op, ScaleActConv))
    assert joined.activation == activation
    assert isinstance(joined.conv, Conv)
    assert not any(isinstance(op, Region) for op in found)


def test_the_convolution_may_have_an_activation() -> None:
    found, _ = fused(normalised(lambda op, y, image: op.Relu(product(op, y))))
    (joined,) = (op for op in found if isinstance(op, ScaleActConv))
    assert isinstance(joined.conv, ConvAct)


def read_twice(op: Any, y: Value, image: Value) -> Value:
    found: Value = op.Concat(product(op, y), y, axis=1)
    return found


def with_residual(op: Any, y: Value, image: Value) -> Value:
    found: Value = op.Add(product(op, y, bias=False), op.Tanh(image))
    return found


def transposed(op: Any, y: Value, image: Value) -> Value:
    found: Value = op.ConvTranspose(y, op.constant(floats(CHANNELS, 5, 1, 1), "w"))
    return found


def mean(op: Any, image: Value) -> Value:
    found: Value = op.ReduceMean(image, axes=(0, 2, 3))
    return found


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (normalised(read_twice), "has other users"),
        (normalised(with_residual), "ConvAdd does not take it"),
        (normalised(transposed), "ConvTranspose does not take it"),
        (normalised(activation=LeakyRelu(0.2)), "there is no Relu or Clip"),
        (normalised(scale=(1,)), "not one number per channel"),
        (normalised(scale=(CHANNELS, 4, 5)), "not one number per channel"),
        (normalised(scale=mean), "not constant"),
    ],
    ids=["read twice", "residual", "transposed", "another activation", "one number", "whole image", "computed"],
)
def test_what_stays(graph: Graph, reason: str) -> None:
    found, ctx = fused(graph)
    assert not any(isinstance(op, ScaleActConv) for op in found)
    assert any(isinstance(op, Region) for op in found)
    assert reason in str(ctx.why_not(RULE))


def test_a_target_without_the_kernel_keeps_one_region() -> None:
    def supports(op: Op, *types: object) -> str | None:
        held = op.inner if isinstance(op, ChannelsLast) else op
        return "too new" if isinstance(held, ScaleActConv) else None

    found, ctx = fused(normalised(), supports=supports)
    assert [type(op) for op in found if not isinstance(op, Conv)].count(Region) == 1
    assert "no kernel for ScaleActConv: too new" in str(ctx.why_not(RULE))


def test_images_in_the_order_of_onnx_stay() -> None:
    found, _ = fused(normalised(), supports=lambda op, *types: "none" if isinstance(op, ChannelsLast) else None)
    assert not any(isinstance(op, ScaleActConv) for op in found)


@pytest.mark.parametrize("threads", [1, 2])
def test_programs_of_any_size_agree_with_the_parts(threads: int) -> None:
    """A normalised block as DenseNet has it, on sizes that are open while passes run."""
    op = Builder()
    x = op.input("x", "float32", ("N", 32, "H", "W"))
    parts = [op.Conv(x, op.constant(floats(32, 32, 3, 3) / 20), pads=(1,) * 4)]
    for maps in (24, 8):
        joined = op.Concat(*parts, axis=1)
        channels = joined.shape[1]
        parameters = [op.constant(floats(channels)) for _ in range(3)]
        y = op.BatchNormalization(joined, *parameters, op.constant(np.abs(floats(channels)) + 0.5))
        y = op.Relu(op.Conv(op.Relu(y), op.constant(floats(40, channels, 1, 1) / 8)))
        parts.append(op.Conv(y, op.constant(floats(maps, 40, 3, 3) / 20), pads=(1,) * 4))
    graph = op.graph([x], {"y": op.Concat(*parts, axis=1)})
    program = aicore.compile(graph, target="cpu", threads=threads)
    for shape in ((1, 32, 9, 11), (3, 32, 40, 33), (2, 32, 1, 1)):
        feed = floats(*shape)
        got = program.run({"x": feed})["y"]
        wide = run(graph, feed)[0]
        np.testing.assert_allclose(got, wide, rtol=1e-4, atol=1e-4)
        names = [step.kernel.name for plan in program.plan for step in plan.steps]
        assert names.count("scaleactconv_gemm") == 2
