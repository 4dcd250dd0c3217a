"""Fused ops have no pattern, inference or reference of their own; what is derived is proven against their parts."""

from __future__ import annotations

import numpy as np
import pytest

from aicore.errors import RuleError
from aicore.ir import Builder, Graph, Op, Sample, Value, as_tuple, is_fused, verify
from aicore.ops import CORE, losses, optimizers
from aicore.passes import run_passes
from aicore.passes.decompose_unsupported import DecomposeUnsupported
from aicore.passes.fuse_attention import FuseAttention
from aicore.passes.fuse_pointwise import FusePointwise
from aicore.passes.place_channels_last import PlaceChannelsLast
from aicore.passes.read_views import ReadViews
from aicore.passes.remove_dead import RemoveDead
from aicore.rewrite import fuse, rewrite
from tests.passes.graphs import assert_same, context, kinds, lacking, run

TAKEN_APART = [cls for cls in CORE.values() if cls.decompose is not Op.decompose]
WRITTEN = [cls for cls in TAKEN_APART if cls.__module__ in (losses.__name__, optimizers.__name__)]
"""Written as one op from the beginning, with inference and cost of their own; no pass forms them."""
FUSED = [cls for cls in TAKEN_APART if cls not in WRITTEN]


def samples(cls: type[Op]) -> list[Sample]:
    found = list(cls.samples(np.random.default_rng(5)))
    assert found
    return found


def graph_of(sample: Sample, apart: bool) -> tuple[Graph, list[np.ndarray]]:
    """The op as one node, or as its parts; and arrays for the inputs."""
    op = Builder()
    operands: list[Value | None] = []
    inputs, feeds = [], []
    for i, array in enumerate(sample.inputs):
        if array is None:
            operands.append(None)
        elif i in sample.constant:
            operands.append(op.constant(array, f"c{i}"))
        else:
            operands.append(op.input(f"x{i}", op.constant(array).dtype, np.shape(array)))
            inputs.append(operands[-1])
            feeds.append(np.asarray(array))
    results = sample.op.resolve(*operands).decompose(op, *operands) if apart else op.apply(sample.op, *operands)
    outputs = {f"y{i}": value for i, value in enumerate(as_tuple(results))}
    return op.graph([v for v in inputs if v is not None], outputs), feeds


@pytest.mark.parametrize("cls", TAKEN_APART, ids=lambda cls: cls.__name__)
def test_what_is_derived_agrees_with_the_parts(cls: type[Op]) -> None:
    for sample in samples(cls):
        assert is_fused(sample.op)
        whole, feeds = graph_of(sample, apart=False)
        parts, _ = graph_of(sample, apart=True)
        verify(whole)
        for one, two in zip(whole.outputs, parts.outputs, strict=True):
            assert one[1].type.agrees(two[1].type)
        for a, b in zip(run(whole, *feeds), run(parts, *feeds), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=sample.note)
        flops, _ = whole.nodes[0].op.cost(*whole.nodes[0].inputs)
        if cls in FUSED:
            assert flops == sum(n.op.cost(*n.inputs)[0] for n in parts.nodes)  # type: ignore[misc]


@pytest.mark.parametrize("cls", FUSED, ids=lambda cls: cls.__name__)
def test_parts_are_fused_and_taken_apart_again(cls: type[Op]) -> None:
    for sample in samples(cls):
        parts, feeds = graph_of(sample, apart=True)
        try:
            fused = rewrite(parts, (fuse(cls),), context())
        except RuleError:
            passes = (FuseAttention(), ReadViews(), FusePointwise(), PlaceChannelsLast(), RemoveDead())
            fused, _ = run_passes(parts, passes, context())
        live = [node for node in fused.nodes if not node.outputs[0].fixed]  # constants inside a Region stay outside
        assert [type(node.op) for node in live] == [cls], sample.note
        apart, report = run_passes(fused, (DecomposeUnsupported(),), context(supports=lacking(cls)))
        assert not report.errors
        assert sorted(kinds(apart)) == sorted(kinds(parts))
        assert_same(parts, apart, *feeds, tolerance=0)
