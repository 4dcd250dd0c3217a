"""Images go channels-last where the target can, transposes stand at the borders, and numbers stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Graph, Op, TensorType, Value, parse_graph, print_graph, retype, symbol
from aicore.ops import CORE
from aicore.ops.control import If
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAdd
from aicore.ops.layout import ChannelsLast
from aicore.passes import default_passes, run_passes, specialise_passes
from aicore.passes.cancel_transposes import RelabelTransposes
from aicore.passes.place_channels_last import PlaceChannelsLast
from aicore.passes.remove_dead import RemoveDead
from tests.passes.graphs import assert_same, context, floats, kinds, lacking

Body = Callable[[Any, Any], Any]

PASSES = (PlaceChannelsLast(), RemoveDead())


def placed(graph: Graph, **options: Any) -> Graph:
    found, report = run_passes(graph, PASSES, context(**options))
    assert not report.errors
    return found


def conv(op: Builder, x: Value, maps: int = 4, size: int = 3, **attributes: Any) -> Value:
    """A convolution that keeps the spatial dims."""
    channels, spatial = x.shape[1], len(x.shape) - 2
    weights = op.constant(floats(maps, channels, *(size,) * spatial) / np.float32(size * np.sqrt(channels)), "w")
    found: Value = op.Conv(x, weights, pads=(size // 2,) * 2 * spatial, **attributes)
    return found


def between(body: Body, shape: tuple[Any, ...] = (2, 3, 6, 8)) -> tuple[Graph, np.ndarray[Any, Any]]:
    """conv(body(conv(conv(x)))), or without the last one where the body ends the image; and numbers for x."""
    op = Builder()
    x = op.input("x", "float32", shape)
    y = body(op, conv(op, conv(op, x)))
    rank = len(shape)
    is_image = y.rank == rank and y.dtype == "float32" and isinstance(y.shape[1], int) and y.shape[1] > 1
    outputs = {"y": conv(op, y) if is_image else y}
    return op.graph([x], outputs), floats(*(d if isinstance(d, int) else 5 for d in shape))


def coded(op: Builder, x: Value, scale: Any, **attributes: int) -> Value:
    """Codes of x, and back."""
    parameters = op.constant(scale), op.constant(np.full(np.shape(scale), 3, np.int8))
    codes = op.QuantizeLinear(x, *parameters, **attributes)
    found: Value = op.DequantizeLinear(codes, *parameters, **attributes)
    return found


def test_a_chain_as_text() -> None:
    before = parse_graph(
        """
graph (%x: float32[N,2,8,8]) {
  const %w: float32[2,2,1,1] = [1.0, 2.0, 3.0, 4.0]
  const %c: float32[2,1,1] = [5.0, 6.0]
  %a = Conv(%x, %w)
  %b = Mul(%a, %c)
  %d = Conv(%b, %w)
  %y = ReduceMean(%d){axes=[2, 3], keepdims=0}
  return "y"=%y
}""",
        CORE,
    )
    after = """
graph (%x: float32[N,2,8,8]) {
  %x~1: float32[N,8,8,2] = Transpose(%x){perm=[0, 2, 3, 1]} by ["place-channels-last#0"]
  const %w: float32[2,2,1,1] = [1.0, 2.0, 3.0, 4.0]
  %a: float32[N,8,8,2] = ChannelsLast(%x~1, %w){inner=Conv{CONV}} by ["place-channels-last#0"]
  const %c: float32[1,1,1,2] = [5.0, 6.0]
  %b: float32[N,8,8,2] = Mul(%a, %c) by ["place-channels-last#1"]
  %d: float32[N,8,8,2] = ChannelsLast(%b, %w){inner=Conv{CONV}} by ["place-channels-last#2"]
  %y: float32[N,2] = ReduceMean(%d){axes=[1, 2], keepdims=0} by ["place-channels-last#3"]
  return "y"=%y
}"""
    settled = "dilations=[1, 1], kernel_shape=[1, 1], pads=[0, 0, 0, 0], strides=[1, 1]"
    assert print_graph(placed(before)).strip() == after.replace("CONV", settled).strip()


FOLLOWING: dict[str, Body] = {
    "unary": lambda op, x: op.Sigmoid(x),
    "both operands": lambda op, x: op.Add(x, op.Relu(x)),
    "constant a channel": lambda op, x: op.Mul(x, op.constant(floats(4, 1, 1))),
    "constant a row": lambda op, x: op.Mul(op.constant(floats(6, 1)), x),
    "constant of full rank": lambda op, x: op.Add(x, op.constant(floats(1, 4, 6, 8))),
    "scalar": lambda op, x: op.Clip(x, op.constant(np.float32(-1)), op.constant(np.float32(1))),
    "channel gate": lambda op, x: op.Mul(x, op.Sigmoid(op.GlobalAveragePool(x))),
    "gate of lower rank": lambda op, x: op.Mul(x, op.ReduceMax(x, axes=(0,), keepdims=0)),
    "concat": lambda op, x: op.Concat(x, op.Neg(x), x, axis=1),
    "concat along a row": lambda op, x: op.Concat(x, op.constant(floats(2, 4, 1, 8)), axis=-2),
    "split": lambda op, x: op.Sub(*op.Split(x, axis=1, num_outputs=2)),
    "slice": lambda op, x: op.Slice(x, starts=(1, -7), ends=(4, 99), axes=(1, 3), steps=(1, 2)),
    "pad": lambda op, x: op.Pad(x, pads=(0, 1, 2, 0, 0, 0, 0, 3), mode="reflect"),
    "pad of some axes": lambda op, x: op.Pad(x, pads=(1, 2, 0, 1), axes=(1, 3), constant_value=1.5),
    "softmax": lambda op, x: op.Softmax(x, axis=1),
    "softmax of rows": lambda op, x: op.LogSoftmax(x, axis=-1),
    "argmax": lambda op, x: op.ArgMax(x, axis=1, keepdims=0),
    "argmin": lambda op, x: op.ArgMin(x, axis=2),
    "reduce space": lambda op, x: op.ReduceMean(x, axes=(2, 3)),
    "reduce channels": lambda op, x: op.ReduceL2(x, axes=(1,), keepdims=0),
    "reduce rows": lambda op, x: op.ReduceMax(x, axes=(-1,), keepdims=0),
    "resize": lambda op, x: op.Resize(x, scales=(1.0, 1.0, 2.0, 1.5), mode="linear"),
    "resize of some axes": lambda op, x: op.Resize(x, sizes=(3, 5), axes=(3, 2), mode="nearest"),
    "max pool": lambda op, x: op.MaxPool(x, kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)),
    "average pool": lambda op, x: op.AveragePool(x, kernel_shape=(2, 2), count_include_pad=1, pads=(1, 0, 0, 1)),
    "global pool, flatten": lambda op, x: op.Flatten(op.GlobalMaxPool(x)),
    "flatten space": lambda op, x: op.Transpose(op.Reshape(x, shape=(0, 0, -1)), perm=(0, 2, 1)),
    "squeeze": lambda op, x: op.Squeeze(op.ReduceSum(x, axes=(2,)), axes=(2,)),
    "unsqueeze": lambda op, x: op.Squeeze(op.Unsqueeze(x, axes=(2,)), axes=(2,)),
    "split channels": lambda op, x: op.ReduceSum(op.Reshape(x, shape=(0, 2, 2, 6, 8)), axes=(2,), keepdims=0),
    "depth to space": lambda op, x: op.DepthToSpace(x, blocksize=2, mode="CRD"),
    "instance norm": lambda op, x: op.InstanceNormalization(x, op.constant(floats(4)), op.constant(floats(4))),
    "codes": lambda op, x: coded(op, x, np.float32(0.05)),
    "codes with scales of rows": lambda op, x: coded(op, x, np.linspace(0.01, 0.1, 6, dtype=np.float32), axis=2),
    "where": lambda op, x: op.Where(op.Greater(x, op.constant(np.float32(0))), x, op.Tanh(x)),
}


@pytest.mark.parametrize("body", FOLLOWING.values(), ids=FOLLOWING)
def test_ops_follow_and_no_transpose_stands_between(body: Body) -> None:
    graph, x = between(body)
    after = placed(graph)
    assert_same(graph, after, x, tolerance=1e-4)
    assert kinds(after)[:3] == ["Transpose", "ChannelsLast", "ChannelsLast"]
    left = [node for node in after.nodes[3:] if kinds(after)[-1] != "Transpose" or node is not after.nodes[-1]]
    moving = [node for node in left if type(node.op).__name__ == "Transpose" and _moves(node)]
    assert not moving, print_graph(after)


def _moves(node: Any) -> bool:
    shape = node.inputs[0].shape
    kept = [axis for axis in node.op.perm if shape[axis] != 1]
    return kept != sorted(kept)


@pytest.mark.parametrize("shape", [(2, 3, 9), (2, 3, 4, 5, 6)], ids=["signal", "volume"])
def test_other_ranks(shape: tuple[int, ...]) -> None:
    graph, x = between(lambda op, x: op.Concat(op.Relu(x), x, axis=1), shape)
    after = placed(graph)
    assert kinds(after) == ["Transpose", "ChannelsLast", "ChannelsLast", "Relu", "Concat", "ChannelsLast", "Transpose"]
    assert_same(graph, after, x, tolerance=1e-4)


@pytest.mark.parametrize("batch", ["N", 2, 1])  # a dim of 1 could be stored anywhere
def test_a_channel_shuffle_is_one_transpose_of_channels(batch: Any) -> None:
    def shuffle(op: Builder, x: Value) -> Value:
        apart = op.Transpose(op.Reshape(x, shape=(0, 2, 2, 6, 8)), perm=(0, 2, 1, 3, 4))
        found: Value = op.Reshape(apart, shape=(0, 4, 6, 8))
        return found

    graph, x = between(shuffle, (batch, 3, 6, 8))
    after = placed(graph)
    perms = [node.op.perm for node in after.nodes if type(node.op).__name__ == "Transpose"]
    assert perms == [(0, 2, 3, 1), (0, 1, 2, 4, 3), (0, 3, 1, 2)]
    assert_same(graph, after, x, tolerance=1e-4)


def test_a_training_step_has_transposes_at_its_borders_only() -> None:
    """Ops with several results, of which some are images; a gradient of weights has none."""
    op = Builder()
    x, w = op.input("x", "float32", (2, 4, 6, 8)), op.input("w", "float32", (8, 4, 3, 3))
    scale, bias = op.input("scale", "float32", (8,)), op.input("bias", "float32", (8,))
    padded: dict[str, Any] = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    y = op.Conv(x, w, **padded)
    n, mean, _, of_batch, inverse = op.BatchNormalization(y, scale, bias, scale, bias, training_mode=1, statistics=True)
    p = op.MaxPool(n, kernel_shape=(2, 2), strides=(2, 2))
    dn = op.MaxPoolGrad(n, op.Mul(p, p), kernel_shape=(2, 2), strides=(2, 2))
    dy, dscale, _ = op.BatchNormalizationGrad(y, scale, of_batch, inverse, dn)
    dw, dx = op.ConvWeightGrad(x, dy, **padded), op.ConvTranspose(dy, w, **padded)
    graph = op.graph([x, w, scale, bias], {"dw": dw, "dx": dx, "dscale": dscale, "mean": mean})
    found = placed(graph)
    held = [type(node.op.inner).__name__ for node in found.nodes if isinstance(node.op, ChannelsLast)]
    wanted = ["Conv", "BatchNormalization", "MaxPool", "MaxPoolGrad", "BatchNormalizationGrad", "ConvWeightGrad"]
    assert held == [*wanted, "ConvTranspose"]
    assert kinds(found).count("Transpose") == 2  # of x, and of dx
    assert_same(graph, found, floats(2, 4, 6, 8), floats(8, 4, 3, 3), floats(8), floats(8))


def test_axes_that_are_not_stored_side_by_side_are_put_in_order_first() -> None:
    graph, x = between(lambda op, x: op.Reshape(x, shape=(0, -1)))
    after = placed(graph)
    assert kinds(after) == ["Transpose", "ChannelsLast", "ChannelsLast", "Transpose", "Reshape"]
    assert_same(graph, after, x, tolerance=1e-4)


UNMOVED: dict[str, Body] = {
    "axes at run time": lambda op, x: op.ReduceSum(x, op.Cast(op.Reshape(op.ReduceMin(x), shape=(1,)), to="int64")),
    "an op that cares": lambda op, x: op.CumSum(x, op.constant(np.array(1))),
    "more axes than an image": lambda op, x: op.Add(x, op.constant(floats(3, 1, 1, 1, 1))),
    "a larger operand in the order of ONNX": lambda op, x: op.Add(
        op.GlobalAveragePool(x), op.CumSum(x, op.constant(np.array(1)))
    ),
}


@pytest.mark.parametrize("body", UNMOVED.values(), ids=UNMOVED)
def test_what_cannot_follow_gets_the_order_of_onnx(body: Body) -> None:
    graph, x = between(body)
    after = placed(graph)
    assert kinds(after).count("Transpose") >= 2
    if "ReduceSum" not in kinds(after):  # its axes are a stand-in, and may be out of range
        assert_same(graph, after, x, tolerance=1e-4)


def test_shape_is_read_from_what_is_stored() -> None:
    graph, x = between(lambda op, x: op.Shape(x, start=1), ("N", 3, 6, 8))
    after = placed(graph)
    assert kinds(after) == ["Transpose", "ChannelsLast", "ChannelsLast", "Shape", "Gather"]
    assert_same(graph, after, x)


@pytest.mark.parametrize("shape", [(2, 4, 6, 8), (4, 1, 8), (1, 4, 1, 1), (2, 1, 6, 8)])
def test_a_residual_of_any_shape(shape: tuple[int, ...]) -> None:
    op = Builder()
    x, residual = op.input("x", "float32", (2, 4, 6, 8)), op.input("r", "float32", shape)
    weights = op.constant(floats(4, 4, 1, 1))
    y = op.apply(ConvAdd(Conv()), conv(op, x), weights, residual)
    graph = op.graph([x, residual], {"y": y})
    after = placed(graph)
    assert kinds(after).count("ChannelsLast") == 2
    assert_same(graph, after, floats(2, 4, 6, 8), floats(*shape), tolerance=1e-4)


def test_a_convolution_between_transposes_of_its_own_is_left_alone() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 4, "H", "W"))
    graph = op.graph([x], {"y": op.Relu(conv(op, x))})
    assert placed(graph) is graph


def test_a_lone_pool_of_everything_is_left_alone() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 4, 6, 6))
    graph = op.graph([x], {"y": op.GlobalAveragePool(x)})
    assert placed(graph) is graph


def test_a_losing_island_takes_no_other_with_it() -> None:
    op = Builder()
    x, z = op.input("x", "float32", (1, 4, 6, 6)), op.input("z", "float32", (1, 4, 6, 6))
    alone = op.CumSum(conv(op, op.CumSum(x, op.constant(np.array(1)))), op.constant(np.array(1)))
    graph = op.graph([x, z], {"a": alone, "b": conv(op, conv(op, z))})
    after = placed(graph)
    assert sorted(kinds(after)) == [
        "ChannelsLast",
        "ChannelsLast",
        "Conv",
        "CumSum",
        "CumSum",
        "Transpose",
        "Transpose",
    ]
    assert_same(graph, after, floats(1, 4, 6, 6), floats(1, 4, 6, 6), tolerance=1e-4)


def test_a_model_with_channels_last_loses_its_transposes() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 6, 8, 3))
    y = op.Transpose(op.Relu(conv(op, op.Transpose(x, perm=(0, 3, 1, 2)))), perm=(0, 2, 3, 1))
    graph = op.graph([x], {"y": y})
    after = placed(graph)
    assert kinds(after) == ["ChannelsLast", "Relu"]
    assert_same(graph, after, floats(2, 6, 8, 3), tolerance=1e-4)


def test_a_target_without_such_kernels_keeps_its_graph() -> None:
    graph, _ = between(lambda op, x: op.Relu(x))
    assert placed(graph, supports=lacking(ChannelsLast)) is graph


def test_the_target_is_asked_with_channels_last() -> None:
    graph, _ = between(lambda op, x: op.Relu(x), ("N", 3, 6, 8))
    asked: list[tuple[TensorType | None, ...]] = []

    def supports(op: Op, *types: TensorType | None) -> str | None:
        asked.append(types)
        return "none"

    placed(graph, supports=supports)
    n = symbol("N")
    assert asked[0] == (TensorType("float32", (n, 6, 8, 3)), TensorType("float32", (4, 3, 3, 3)))


def test_two_sizes_of_a_graph_with_open_ones() -> None:
    graph, _ = between(lambda op, x: op.Concat(x, op.MaxPool(x, kernel_shape=(1, 1)), axis=1), ("N", 3, "H", "W"))
    after = placed(graph)
    for shape in ((1, 3, 5, 6), (2, 3, 8, 3)):
        types = [TensorType("float32", shape)]
        assert_same(retype(graph, types), retype(after, types), floats(*shape), tolerance=1e-4)


def test_defaults_inside_are_filled_in_when_sizes_become_known() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 3, "H", "W"))
    same = op.Conv(conv(op, x), op.constant(floats(2, 4, 2, 2)), auto_pad="SAME_UPPER", strides=(2, 2))
    after = placed(op.graph([x], {"y": op.MaxPool(same, kernel_shape=(2, 2), auto_pad="SAME_LOWER")}))
    known = retype(after, [TensorType("float32", (1, 3, 7, 6))])
    inner = [node.op.inner for node in known.nodes if isinstance(node.op, ChannelsLast)]
    assert [one.auto_pad for one in inner] == ["NOTSET"] * 3
    assert inner[1].pads == (0, 0, 1, 0)  # 4 windows of 2 with stride 2 over 7 rows, 3 over 6 columns
    assert inner[2].pads == (1, 1, 0, 0)


def test_inside_branches() -> None:
    def branch(maps: int) -> Graph:
        op = Builder()
        x = op.input("x", "float32", (1, 3, 6, 8))
        return op.graph([x], {"y": conv(op, conv(op, x), maps)})

    op = Builder()
    condition, x = op.input("c", "bool", ()), op.input("x", "float32", (1, 3, 6, 8))
    graph = op.graph([condition, x], {"y": op.apply(If(branch(2), branch(2)), condition, x)})
    after = placed(graph)
    held = after.nodes[0].op
    assert isinstance(held, If)
    assert kinds(held.then_branch) == ["Transpose", "ChannelsLast", "ChannelsLast", "Transpose"]
    for choice in (True, False):
        assert_same(graph, after, np.array(choice), floats(1, 3, 6, 8), tolerance=1e-4)


def test_each_change_can_be_stopped_at() -> None:
    graph, x = between(lambda op, x: op.Concat(op.Relu(x), op.AveragePool(x, kernel_shape=(1, 1)), axis=1))
    everything = context()
    run_passes(graph, PASSES[:1], everything)
    assert everything.matches == 6
    for budget in range(everything.matches + 1):
        ctx = context(budget=budget)
        after, report = run_passes(graph, PASSES[:1], ctx)
        assert not report.errors
        assert ctx.matches == budget
        assert_same(graph, after, x, tolerance=1e-4)


def test_nodes_say_where_they_come_from() -> None:
    graph = parse_graph(
        """
graph (%x: float32[1,3,6,8], %w: float32[3,3,1,1]) {
  %a = Conv(%x, %w) from ["first"]
  %b = Relu(%a) from ["second"]
  %y = Conv(%b, %w) from ["third"]
  return "y"=%y
}""",
        CORE,
    )
    after = placed(graph)
    assert [node.origin.names() for node in after.nodes] == [[], ["first"], ["second"], ["third"], ["third"]]
    assert [node.origin.rules() for node in after.nodes] == [[f"place-channels-last#{i}"] for i in (0, 0, 1, 2, 2)]


def test_no_elements() -> None:
    graph, _ = between(lambda op, x: op.Relu(x), (0, 3, 6, 8))
    assert_same(graph, placed(graph), floats(0, 3, 6, 8))


RELABELLED = [
    ((1, 4, 5), (1, 0, 2), True),
    ((2, 1, 1, 5), (0, 3, 1, 2), True),
    (("N", 1, 1, 5), (0, 3, 1, 2), True),
    (("N", 1, "C"), (1, 2, 0), False),
    (("N", 1, "C"), (0, 2, 1), True),
    ((1, "N", 1), (1, 0, 2), True),
    ((0, 1, 3), (1, 0, 2), True),
    ((2, 3, 1), (1, 0, 2), False),
    (("N", 3, 1), (1, 0, 2), False),
]


@pytest.mark.parametrize(("shape", "perm", "free"), RELABELLED, ids=str)
def test_a_transpose_of_unit_dims_is_a_reshape(shape: tuple[Any, ...], perm: tuple[int, ...], free: bool) -> None:
    op = Builder()
    x = op.input("x", "float32", shape)
    graph = op.graph([x], {"y": op.Transpose(x, perm=perm)})
    after, report = run_passes(graph, (RelabelTransposes(),), context())
    assert not report.errors
    assert kinds(after) == ["Reshape" if free else "Transpose"]
    sizes = [d if isinstance(d, int) else 4 for d in shape]
    assert_same(graph, after, floats(*sizes), tolerance=0)


REFUSED = {
    ("N", 1, "M", 1): ((1, 0, 3, 2), "two sizes that are open change places"),
    (0, "N", 1): ((0, 2, 1), "a dim of 0 stands beside an open one"),
    (2, 3): ((1, 0), "it moves elements"),
    None: ((1, 0), "the rank is unknown"),
}


@pytest.mark.parametrize(("shape", "expected"), REFUSED.items(), ids=str)
def test_why_a_transpose_stays(shape: Any, expected: tuple[tuple[int, ...], str]) -> None:
    op = Builder()
    x = op.input("x", "float32", shape)
    ctx = context()
    after, _ = run_passes(op.graph([x], {"y": op.Transpose(x, perm=expected[0])}), (RelabelTransposes(),), ctx)
    assert kinds(after) == ["Transpose"]
    assert expected[1] in ctx.why_not("relabel-transpose")


def test_a_transpose_becomes_free_when_sizes_are_known() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", "H", 1, 5))
    graph = op.graph([x], {"y": op.Relu(op.Transpose(op.Neg(x), perm=(0, 3, 1, 2)))})
    optimised, _ = run_passes(graph, default_passes(), context())
    assert "Transpose" in kinds(optimised)
    known, _ = run_passes(retype(optimised, [TensorType("float32", (2, 1, 1, 5))]), specialise_passes(), context())
    assert "Transpose" not in kinds(known)
    assert_same(graph, known, floats(2, 1, 1, 5), tolerance=0)


def test_fused_ops_go_through_the_whole_pipeline() -> None:
    def body(op: Builder, x: Value) -> Value:
        found: Value = op.Mul(
            x, op.HardSigmoid(op.Add(conv(op, op.GlobalAveragePool(x), 4, 1), op.constant(floats(4, 1, 1))))
        )
        return found

    graph, x = between(body, ("N", 3, "H", "W"))
    after, report = run_passes(graph, default_passes(), context())
    assert not report.errors
    assert any(isinstance(node.op, ChannelsLast) and isinstance(node.op.inner, ConvAct) for node in after.nodes)
    assert kinds(after).count("Transpose") == 2
    x = floats(2, 3, 6, 5)
    assert_same(
        retype(graph, [TensorType("float32", x.shape)]),
        retype(after, [TensorType("float32", x.shape)]),
        x,
        tolerance=1e-4,
    )
