"""The passes that join ops: BatchNormalization, known functions, epilogues, Regions; and what takes them apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Graph, TensorType, Value, parse_graph, print_graph, retype, symbol, text_constants
from aicore.ops import CORE
from aicore.ops.activation import Gelu, HardSigmoid, LeakyRelu
from aicore.ops.convolution import ConvTranspose
from aicore.ops.fused_linear import ConvAct, ConvAddAct, MatMulAdd, MatMulAddAct
from aicore.ops.fused_pointwise import Region
from aicore.ops.layout import ChannelsLast
from aicore.ops.matmul import Gemm
from aicore.ops.normalization import BatchNormalization, LayerNormalization
from aicore.passes import Pass, default_passes, run_passes
from aicore.passes.decompose_unsupported import DecomposeUnsupported
from aicore.passes.fold_batchnorm import FoldBatchnorm
from aicore.passes.fold_constants import FoldWeights
from aicore.passes.fuse_linear import FuseLinear
from aicore.passes.fuse_pointwise import FusePointwise
from aicore.passes.recognise_functions import RecogniseFunctions
from tests.passes.graphs import assert_same, context, floats, kinds, lacking

BATCHNORM = (FoldBatchnorm(), FoldWeights())


def after(graph: Graph, *passes: Pass, **options: Any) -> Graph:
    found, report = run_passes(graph, passes, context(**options))
    assert not report.errors
    return found


def parameters(op: Builder, channels: int, dtype: str = "float32") -> tuple[Value, ...]:
    """Scale, shift, mean and variance."""
    arrays = [floats(channels), floats(channels), floats(channels), np.abs(floats(channels)) + 0.5]
    return tuple(op.constant(array.astype(dtype)) for array in arrays)


# ---- BatchNormalization


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_batchnorm_into_convolution(dtype: str, bias: bool) -> None:
    op = Builder()
    x, w = op.input("x", dtype, ("N", 3, 6, 6)), op.constant(floats(4, 3, 3, 3, dtype=dtype))
    conv = op.Conv(x, w, op.constant(floats(4, dtype=dtype)) if bias else None)
    graph = op.graph([x], {"y": op.BatchNormalization(conv, *parameters(op, 4, dtype), epsilon=1e-3)})
    found = after(graph, *BATCHNORM)
    assert kinds(found) == ["Conv"]
    assert_same(graph, found, floats(2, 3, 6, 6, dtype=dtype), tolerance=5e-2 if dtype == "float16" else 1e-4)


@pytest.mark.parametrize("group", [1, 2])
def test_batchnorm_into_transposed_convolution(group: int) -> None:
    op = Builder()
    x, w = op.input("x", "float32", (1, 4, 5, 5)), op.constant(floats(4, 3, 2, 2))
    y = op.apply(ConvTranspose(group=group, strides=(2, 2)), x, w, op.constant(floats(3 * group)))
    graph = op.graph([x], {"y": op.BatchNormalization(y, *parameters(op, 3 * group))})
    found = after(graph, *BATCHNORM)
    assert kinds(found) == ["ConvTranspose"]
    assert_same(graph, found, floats(1, 4, 5, 5), tolerance=1e-4)


@pytest.mark.parametrize("bias_shape", [(), (1,), (5,), (1, 5), None])
@pytest.mark.parametrize("transposed", [0, 1])
def test_batchnorm_into_gemm(transposed: int, bias_shape: tuple[int, ...] | None) -> None:
    op = Builder()
    x, w = op.input("x", "float32", ("N", 4)), op.constant(floats(*((5, 4) if transposed else (4, 5))))
    bias = None if bias_shape is None else op.constant(floats(*bias_shape))
    y = op.Gemm(x, w, bias, alpha=0.5, beta=2.0, transB=transposed)
    graph = op.graph([x], {"y": op.BatchNormalization(y, *parameters(op, 5))})
    found = after(graph, *BATCHNORM)
    assert kinds(found) == ["Gemm"]
    assert_same(graph, found, floats(3, 4), tolerance=1e-4)


def test_batchnorm_without_a_layer_before_it() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 4, 5, 5))
    graph = op.graph([x], {"y": op.BatchNormalization(op.Relu(x), *parameters(op, 4))})
    found = after(graph, *BATCHNORM)
    assert kinds(found) == ["Relu", "Mul", "Add"]
    assert_same(graph, found, floats(2, 4, 5, 5), tolerance=1e-5)


def test_scale_and_shift_per_channel_follow() -> None:
    op = Builder()
    x, w = op.input("x", "float32", ("N", 3, 6, 6)), op.constant(floats(4, 3, 3, 3))
    y = op.BatchNormalization(op.Conv(x, w), *parameters(op, 4))
    y = op.Add(op.Mul(y, op.constant(floats(4, 1, 1))), op.constant(floats(1, 4, 1, 1)))
    y = op.Add(op.Mul(op.constant(floats(1)), op.Conv(y, op.constant(floats(2, 4, 1, 1)))), op.constant(floats()))
    graph = op.graph([x], {"y": y})
    found = after(graph, *BATCHNORM)
    assert kinds(found) == ["Conv", "Conv"]
    assert_same(graph, found, floats(2, 3, 6, 6), tolerance=1e-4)


def test_a_bias_that_was_added_apart_does_not_stop_batchnorm() -> None:
    op = Builder()
    x = op.input("x", "float32", (1, 4, 5, 5))
    y = op.Add(op.ConvTranspose(x, op.constant(floats(4, 3, 2, 2))), op.constant(floats(1, 3, 1, 1)))
    graph = op.graph([x], {"y": op.BatchNormalization(y, *parameters(op, 3))})
    found = after(graph, *BATCHNORM)
    assert kinds(found) == ["ConvTranspose"]
    assert_same(graph, found, floats(1, 4, 5, 5), tolerance=1e-4)


def batchnorm_case(change: str) -> tuple[Graph, tuple[Any, ...]]:
    """A BatchNormalization after a convolution with one thing wrong."""
    op = Builder()
    x, w = op.input("x", "float32", (2, 3, 6, 6)), op.constant(floats(4, 3, 3, 3))
    extra, feeds = [], [floats(2, 3, 6, 6)]
    scale, shift, mean, var = parameters(op, 4)
    bn: Any = BatchNormalization()
    if change == "weight":
        w = op.input("w", "float32", (4, 3, 3, 3))
        extra, feeds = [w], [*feeds, floats(4, 3, 3, 3)]
    if change == "scale":
        scale = op.input("scale", "float32", (4,))
        extra, feeds = [scale], [*feeds, floats(4)]
    if change == "dtype":
        mean, var = (op.constant(v.constant.array.astype("float64")) for v in (mean, var) if v.constant)
    if change == "training":
        bn = BatchNormalization(training_mode=1)
    y = op.apply(bn, op.Conv(x, w), scale, shift, mean, var)
    return op.graph([x, *extra], {"y": y[0] if isinstance(y, tuple) else y}), tuple(feeds)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("weight", "a parameter is not constant"),
        ("scale", "a parameter is not constant"),
        ("dtype", "a parameter has another dtype than the operand"),
        ("training", "the BatchNormalization is in training mode"),
    ],
)
def test_batchnorm_that_must_stay(change: str, reason: str) -> None:
    graph, feeds = batchnorm_case(change)
    ctx = context()
    found, _ = run_passes(graph, (FoldBatchnorm(),), ctx)
    assert kinds(found)[0] == "Conv"
    assert reason in ctx.why_not("fold-batchnorm")
    assert_same(graph, found, *feeds)


def test_batchnorm_of_a_vector_stays() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N",))
    graph = op.graph([x], {"y": op.BatchNormalization(x, *parameters(op, 1))})
    ctx = context()
    assert run_passes(graph, (FoldBatchnorm(),), ctx)[0] is graph
    assert "the operand has no channel axis" in ctx.why_not("batchnorm-to-scale")


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((6,), "the other operand is not one number per channel"),
        ((1, 4, 6, 1), "the other operand is not one number per channel"),
        ((2, 4, 1, 1), "the other operand is not one number per channel"),
        ((1, 2, 4, 1, 1), "it has too many axes"),
    ],
)
@pytest.mark.parametrize("name", ["Add", "Mul"])
def test_constants_that_are_not_per_channel(name: str, shape: tuple[int, ...], reason: str) -> None:
    op = Builder()
    x, w = op.input("x", "float32", (2, 3, 8, 8)), op.constant(floats(4, 3, 3, 3))
    graph = op.graph([x], {"y": getattr(op, name)(op.Conv(x, w), op.constant(floats(*shape)))})
    ctx = context()
    assert run_passes(graph, (FoldBatchnorm(),), ctx)[0] is graph
    assert reason in ctx.why_not(f"{name.lower()}-into-linear")


def test_other_operand_that_is_not_constant() -> None:
    op = Builder()
    x, w, c = (
        op.input("x", "float32", (2, 3, 8, 8)),
        op.constant(floats(4, 3, 3, 3)),
        op.input("c", "float32", (4, 1, 1)),
    )
    graph = op.graph([x, c], {"y": op.Mul(op.Conv(x, w), c)})
    ctx = context()
    assert run_passes(graph, (FoldBatchnorm(),), ctx)[0] is graph
    assert "the other operand is not constant" in ctx.why_not("mul-into-linear")


def test_scaling_into_a_weight_that_is_not_constant() -> None:
    op = Builder()
    x, w = op.input("x", "float32", (2, 3, 8, 8)), op.input("w", "float32", (4, 3, 3, 3))
    graph = op.graph([x, w], {"y": op.Mul(op.Conv(x, w), op.constant(floats(4, 1, 1)))})
    ctx = context()
    assert run_passes(graph, (FoldBatchnorm(),), ctx)[0] is graph
    assert "the weight is not constant" in ctx.why_not("mul-into-linear")


def test_bias_that_is_not_constant_or_a_matrix() -> None:
    for shape, constant, reason in (((4,), False, "the bias is not constant"), ((3, 5), True, "not one number per ch")):
        op = Builder()
        matrix = len(shape) == 2
        x = op.input("x", "float32", (3, 4)) if matrix else op.input("x", "float32", (2, 3, 8, 8))
        b = op.constant(floats(*shape)) if constant else op.input("b", "float32", shape)
        y = op.Gemm(x, op.constant(floats(4, 5)), b) if matrix else op.Conv(x, op.constant(floats(4, 3, 3, 3)), b)
        graph = op.graph([x] if constant else [x, b], {"y": op.Add(y, op.constant(floats(1)))})
        ctx = context()
        assert run_passes(graph, (FoldBatchnorm(),), ctx)[0] is graph
        assert reason in ctx.why_not("add-into-linear")


def test_unknown_number_of_channels() -> None:
    op = Builder()
    x, w = op.input("x", "float32", (2, 3, 8, 8)), op.input("w", "float32", ("M", 3, 3, 3))
    graph = op.graph([x, w], {"y": op.Add(op.Conv(x, w), op.constant(floats(1)))})
    ctx = context()
    assert run_passes(graph, (FoldBatchnorm(),), ctx)[0] is graph
    assert "the number of channels is unknown" in ctx.why_not("add-into-linear")


# ---- known functions


def gelu(op: Any, x: Any, form: int, cube: str = "", scaled: bool = False) -> Any:
    if cube:
        c = op.constant(np.float32(0.044715))
        cubic = {
            "pow": lambda: op.Mul(c, op.Pow(x, op.constant(np.float32(3)))),
            "mul": lambda: op.Mul(op.Mul(op.Mul(x, x), x), c),
            "inside": lambda: op.Mul(x, op.Mul(x, op.Mul(c, x))),
        }
        inner = op.Add(x, cubic[cube]())
        function = op.Tanh(op.Mul(op.constant(np.float32(math.sqrt(2 / math.pi))), inner))
    elif scaled:
        function = op.Erf(op.Mul(x, op.constant(np.float32(math.sqrt(0.5)))))
    else:
        function = op.Erf(op.Div(x, op.constant(np.float32(math.sqrt(2)))))
    factor, half = op.Add(op.constant(np.float32(1)), function), op.constant(np.float32(0.5))
    orders = ((op.Mul, (x, factor), half), (op.Mul, (factor, half), x), (op.Mul, (half, x), factor))
    multiply, pair, last = orders[form]
    return multiply(multiply(*pair), last)


@pytest.mark.parametrize("form", [0, 1, 2])
@pytest.mark.parametrize(
    ("cube", "scaled"), [("", False), ("", True), ("pow", False), ("mul", False), ("inside", False)]
)
def test_gelu(form: int, cube: str, scaled: bool) -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 4))
    graph = op.graph([x], {"y": gelu(op, op.Neg(x), form, cube, scaled)})
    found = after(graph, RecogniseFunctions())
    assert kinds(found) == ["Neg", "Gelu"]
    assert found.nodes[1].op == Gelu("tanh" if cube else "none")
    assert_same(graph, found, floats(3, 4))


def relu6(op: Any, x: Any) -> Any:
    return op.Clip(op.Add(x, op.scalar(3, x)), min=0.0, max=6.0)


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda op, x: op.Mul(op.Sigmoid(x), x), "Swish"),
        (lambda op, x: op.Mul(x, op.Tanh(op.Softplus(x))), "Mish"),
        (lambda op, x: op.Mul(x, op.HardSigmoid(x, alpha=float(np.float32(1 / 6)))), "HardSwish"),
        (lambda op, x: op.Div(op.Mul(x, relu6(op, x)), op.scalar(6, x)), "HardSwish"),
        (lambda op, x: op.Mul(x, op.Div(relu6(op, x), op.scalar(6, x))), "HardSwish"),
        (lambda op, x: op.Div(relu6(op, x), op.scalar(6, x)), "HardSigmoid"),
    ],
)
def test_other_functions(build: Any, name: str) -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 4))
    graph = op.graph([x], {"y": build(op, x)})
    found = after(graph, RecogniseFunctions())
    assert kinds(found) == [name]
    assert_same(graph, found, floats(3, 4) * 4)
    kept = after(graph, RecogniseFunctions(), supports=lacking(CORE[name], HardSigmoid))
    assert name not in kinds(kept)


def layer_norm(
    op: Any, x: Any, scale: Any, bias: Any = None, axes: tuple[int, ...] = (-1,), square: str = "pow"
) -> Any:
    centred = op.Sub(x, op.ReduceMean(x, axes=axes))
    power = op.Pow(centred, op.constant(np.float32(2))) if square == "pow" else op.Mul(centred, centred)
    root = op.Sqrt(op.Add(op.ReduceMean(power, axes=axes), op.constant(np.float32(1e-6))))
    y = op.Mul(op.Div(centred, root), scale)
    return y if bias is None else op.Add(y, bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("square", ["pow", "mul"])
@pytest.mark.parametrize("axes", [(-1,), (1, 2)])
def test_layer_normalization(axes: tuple[int, ...], square: str, bias: bool) -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 3, 4))
    shape = (4,) if axes == (-1,) else (3, 4)
    y = layer_norm(op, x, op.constant(floats(*shape)), op.constant(floats(*shape)) if bias else None, axes, square)
    graph = op.graph([x], {"y": y})
    found = after(graph, RecogniseFunctions())
    assert kinds(found) == ["LayerNormalization"]
    assert found.nodes[0].op == LayerNormalization(
        axis=3 - len(axes) if axes != (-1,) else 2, epsilon=float(np.float32(1e-6))
    )
    assert_same(graph, found, floats(2, 3, 4))


@pytest.mark.parametrize(
    ("scale", "axes", "reason"),
    [
        ((3, 1), (-1,), "a parameter has not the shape of the normalised axes"),
        ((3, 1), (1,), "axes (1,) are not the last ones"),
    ],
)
def test_layer_normalization_that_is_none(scale: tuple[int, ...], axes: tuple[int, ...], reason: str) -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 3, 4))
    graph = op.graph([x], {"y": layer_norm(op, x, op.constant(floats(*scale)), axes=axes)})
    ctx = context()
    found, _ = run_passes(graph, (RecogniseFunctions(),), ctx)
    assert found is graph
    assert reason in ctx.why_not("layer-normalization")


def test_layer_normalization_needs_a_kernel_and_a_constant_epsilon() -> None:
    op = Builder()
    x, epsilon = op.input("x", "float32", ("N", 4)), op.input("e", "float32", ())
    centred = op.Sub(x, op.ReduceMean(x, axes=(1,)))
    root = op.Sqrt(op.Add(op.ReduceMean(op.Mul(centred, centred), axes=(1,)), epsilon))
    graph = op.graph([x, epsilon], {"y": op.Mul(op.Div(centred, root), op.constant(floats(4)))})
    ctx = context()
    assert run_passes(graph, (RecogniseFunctions(),), ctx)[0] is graph
    assert "epsilon is not a constant number" in ctx.why_not("layer-normalization")
    op = Builder()
    x = op.input("x", "float32", ("N", 4))
    graph = op.graph([x], {"y": layer_norm(op, x, op.constant(floats(4)))})
    ctx = context(supports=lacking(LayerNormalization))
    assert run_passes(graph, (RecogniseFunctions(),), ctx)[0] is graph
    assert "no kernel for LayerNormalization" in ctx.why_not("layer-normalization")


# ---- epilogues


def product_graph(
    x_shape: Any, w_shape: Any, b_shape: Any, act: bool = False, constant: bool = True
) -> tuple[Graph, Any]:
    op = Builder()
    x, w = op.input("x", "float32", x_shape), op.constant(floats(*w_shape))
    b = op.constant(floats(*b_shape)) if constant else op.input("b", "float32", b_shape)
    y = op.Add(op.MatMul(x, w), b)
    graph = op.graph([x] if constant else [x, b], {"y": op.Relu(y) if act else y})
    return graph, floats(*(3 if isinstance(d, str) else d for d in x_shape))


@pytest.mark.parametrize("b_shape", [(5,), (1, 5), (1,), ()])
def test_matmul_and_bias_become_gemm(b_shape: tuple[int, ...]) -> None:
    graph, x = product_graph(("N", 4), (4, 5), b_shape)
    found = after(graph, FuseLinear())
    assert kinds(found) == ["Gemm"]
    assert found.nodes[0].op == Gemm()
    assert_same(graph, found, x)


def test_gemm_takes_the_activation() -> None:
    graph, x = product_graph(("N", 4), (4, 5), (5,), act=True)
    found = after(graph, FuseLinear())
    assert kinds(found) == ["GemmAct"]
    assert_same(graph, found, x)


@pytest.mark.parametrize(
    ("shapes", "left"),
    [
        (((2, 3, 4), (4, 5), (5,)), MatMulAdd()),
        (((2, 3, 4), (4, 5), (2, 3, 5)), MatMulAdd()),
        (((4,), (4, 5), (5,)), MatMulAdd()),
        (((3, 4), (4, 5), (2, 3, 5)), MatMulAdd()),  # the bias has more axes than the product
    ],
)
def test_products_that_gemm_cannot_compute(shapes: Any, left: Any) -> None:
    graph, x = product_graph(*shapes)
    ctx = context()
    found, _ = run_passes(graph, (FuseLinear(),), ctx)
    assert [n.op for n in found.nodes] == [left]
    reason = ctx.why_not("matmul-bias-to-gemm")
    assert "the factors are not matrices" in reason or "the bias has more than two axes" in reason
    assert_same(graph, found, x)
    assert_same(graph, after(graph, FuseLinear(), supports=lacking(MatMulAdd)), x)


def test_a_bias_that_may_be_larger_than_the_product() -> None:
    graph, _ = product_graph((1, 4), (4, 1), ("K",), constant=False)
    ctx = context(supports=lacking(MatMulAdd))
    found, _ = run_passes(graph, (FuseLinear(),), ctx)
    assert found is graph
    assert "the bias may be larger than the product" in ctx.why_not("matmul-bias-to-gemm")
    assert_same(graph, found, floats(1, 4), floats(7))


def test_gemm_without_a_kernel() -> None:
    graph, _ = product_graph(("N", 4), (4, 5), (5,))
    ctx = context(supports=lacking(Gemm, MatMulAdd))
    assert run_passes(graph, (FuseLinear(),), ctx)[0] is graph
    assert "no kernel for Gemm" in ctx.why_not("matmul-bias-to-gemm")


def test_three_axes_take_bias_and_activation() -> None:
    graph, x = product_graph(("N", 3, 4), (4, 5), (5,), act=True)
    found = after(graph, FuseLinear())
    assert [n.op for n in found.nodes] == [MatMulAddAct(CORE["Relu"]())]  # type: ignore[arg-type]
    assert_same(graph, found, x)


# ---- Regions


def test_a_chain_becomes_one_region() -> None:
    op = Builder()
    x, y = op.input("x", "float32", ("N", 4)), op.input("y", "float32", (4,))
    chain = op.Relu(op.Add(op.Mul(x, op.scalar(2.0, x)), y))
    graph = op.graph([x, y], {"z": op.MatMul(chain, op.constant(floats(4, 3)))})
    found = after(graph, FusePointwise())
    assert kinds(found) == ["Region", "MatMul"]
    assert found.nodes[0].inputs == (x, y)
    assert found.nodes[0].outputs[0] is chain
    assert_same(graph, found, floats(3, 4), floats(4))
    flops, moved = found.nodes[0].op.cost(*found.nodes[0].inputs)
    assert moved == symbol("N") * 32 + 16  # x and the result, and y: nothing in between
    assert flops == symbol("N") * 12


def test_a_region_may_use_its_values_twice() -> None:
    op = Builder()
    x = op.input("x", "float32", (3, 4))
    inner = op.Exp(x)
    graph = op.graph([x], {"y": op.Mul(inner, op.Sigmoid(inner))})
    found = after(graph, FusePointwise())
    assert kinds(found) == ["Region"]
    assert_same(graph, found, floats(3, 4))


def test_regions_end_where_values_are_used_elsewhere_or_shapes_change() -> None:
    op = Builder()
    x, row = op.input("x", "float32", (3, 4)), op.input("row", "float32", (4,))
    shown = op.Exp(x)
    wide = op.Add(op.Tanh(op.Neg(row)), op.Neg(shown))
    graph = op.graph([x, row], {"shown": shown, "wide": op.Relu(wide)})
    found = after(graph, FusePointwise())
    assert sorted(kinds(found)) == ["Exp", "Region", "Region"]
    assert [len(n.op.body.nodes) for n in found.nodes if isinstance(n.op, Region)] in ([2, 3], [3, 2])
    assert_same(graph, found, floats(3, 4), floats(4))


def test_two_exits_are_never_one_region() -> None:
    op = Builder()
    x = op.input("x", "float32", (4, 4))
    first = op.Exp(x)
    middle = op.MatMul(first, op.constant(floats(4, 4)))
    graph = op.graph([x], {"y": op.Add(op.Neg(middle), op.Tanh(first))})
    found = after(graph, FusePointwise())
    assert sorted(kinds(found)) == ["Exp", "MatMul", "Region"]
    assert_same(graph, found, floats(4, 4))


def test_regions_are_no_larger_than_asked() -> None:
    op = Builder()
    x = value = op.input("x", "float32", (4,))
    for _ in range(10):
        value = op.Relu(value)
    graph = op.graph([x], {"y": value})
    assert len(after(graph, FusePointwise(largest=4)).nodes) == 3
    assert len(after(graph, FusePointwise()).nodes) == 1
    assert after(graph, FusePointwise(), supports=lacking(Region)) is graph
    assert after(graph, FusePointwise(), budget=0) is graph


def test_what_no_region_takes() -> None:
    op = Builder()
    c, text, loose = op.constant(floats(4)), op.input("t", "string", (2,)), op.input("u", "float32", None)
    constants = op.Relu(op.Neg(c))
    equal = op.Not(op.Equal(text, text))
    graph = op.graph([text, loose], {"a": constants, "b": equal, "c": op.Relu(op.Neg(loose))})
    found = after(graph, FusePointwise())
    assert kinds(found) == ["Neg", "Relu", "Region", "Neg", "Relu"]


def test_regions_print_retype_and_verify() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 4))
    graph = after(op.graph([x], {"y": op.Relu(op.Mul(x, op.constant(floats(4))))}), FusePointwise())
    text = print_graph(graph)
    assert print_graph(parse_graph(text, CORE, text_constants(graph))) == text
    special = retype(graph, [TensorType("float32", (3, 4))])
    region = special.nodes[0].op
    assert isinstance(region, Region)
    assert region.body.outputs[0][1].shape == (3, 4)
    assert_same(graph, special, floats(3, 4))


def test_random_trees_keep_their_numbers() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        op = Builder()
        values = [op.input("x", "float32", (3, 4)), op.input("y", "float32", (4,)), op.input("z", "float32", (3, 1))]
        inputs = list(values)
        for _ in range(int(rng.integers(3, 15))):
            name = rng.choice(["Add", "Mul", "Sub", "Relu", "Tanh", "Neg"])
            picked = [values[i] for i in rng.integers(0, len(values), 2 if name in ("Add", "Mul", "Sub") else 1)]
            values.append(op.apply(CORE[str(name)](), *picked))
        outputs = {str(i): values[i] for i in {len(values) - 1, int(rng.integers(3, len(values)))}}
        graph = op.graph(inputs, outputs)
        found = after(graph, FusePointwise(largest=5))
        assert_same(graph, found, floats(3, 4), floats(4), floats(3, 1), tolerance=0)


# ---- taking apart


def test_what_the_target_lacks_is_taken_apart() -> None:
    op = Builder()
    x, w = op.input("x", "float32", (1, 3, 6, 6)), op.constant(floats(3, 3, 1, 1))
    graph = op.graph([x], {"y": op.apply(LeakyRelu(0.2), op.Add(op.Conv(x, w), x))})
    fused = after(graph, FuseLinear())
    assert kinds(fused) == ["ConvAddAct"]
    apart = after(fused, DecomposeUnsupported(), supports=lacking(ConvAddAct))
    assert kinds(apart) == kinds(graph)
    assert apart.outputs[0][1] is graph.outputs[0][1]
    assert apart.nodes[-1].origin.rule == "decompose-unsupported"
    assert_same(graph, apart, floats(1, 3, 6, 6), tolerance=0)
    assert after(fused, DecomposeUnsupported()) is fused
    limited = after(fused, DecomposeUnsupported(), supports=lacking(ConvAddAct), budget=0)
    assert kinds(limited) == kinds(apart)  # programs may not run without it, so no budget holds it back


def test_parts_are_taken_apart_too() -> None:
    op = Builder()
    x, w = op.input("x", "float32", (1, 3, 6, 6)), op.constant(floats(3, 3, 1, 1))
    nested = Builder()
    inner = nested.input("x0", "float32", (1, 3, 6, 6))
    y = nested.apply(ConvAct(CORE["Conv"](), CORE["Relu"]()), inner, w)  # type: ignore[arg-type]
    region = Region(nested.graph([inner], {"y": nested.Neg(y)}))
    graph = op.graph([x], {"y": op.apply(region, x)})
    apart = after(graph, DecomposeUnsupported(), supports=lacking(Region, ConvAct))
    assert kinds(apart) == ["Conv", "Relu", "Neg"]
    assert_same(graph, apart, floats(1, 3, 6, 6), tolerance=0)


# ---- all of it


def residual_block() -> Graph:
    op = Builder()
    x = op.input("x", "float32", ("N", 4, 8, 8))
    y = op.Relu(op.BatchNormalization(op.Conv(x, op.constant(floats(4, 4, 3, 3)), pads=(1,) * 4), *parameters(op, 4)))
    y = op.BatchNormalization(op.Conv(y, op.constant(floats(4, 4, 3, 3)), pads=(1,) * 4), *parameters(op, 4))
    y = op.Relu(op.Sum(op.Dropout(y), op.Identity(x)))
    shape = op.Concat(op.Gather(op.Shape(y), op.constant([0])), op.constant([-1]), axis=0)
    flat = op.Reshape(op.GlobalAveragePool(y), shape)
    y = op.Relu(op.Add(op.MatMul(flat, op.constant(floats(4, 5))), op.constant(floats(5))))
    return op.graph([x], {"y": op.Softmax(y)})


def test_default_pipeline() -> None:
    graph = residual_block()
    found, report = run_passes(graph, default_passes(), context(supports=lacking(ChannelsLast)))
    assert not report.errors
    wanted = [
        "ConvAct",
        "ConvAddAct",
        "Shape",
        "Gather",
        "Concat",
        "GlobalAveragePool",
        "Reshape",
        "GemmAct",
        "Softmax",
    ]
    assert sorted(kinds(found)) == sorted(wanted)
    assert_same(graph, found, floats(2, 4, 8, 8), tolerance=1e-4)
    assert "fuse-linear" in str(report)


def test_default_pipeline_for_a_target_without_fused_kernels() -> None:
    graph = residual_block()
    fused = tuple(op for op in CORE.values() if op.__module__.startswith("aicore.ops.fused"))
    found, report = run_passes(graph, default_passes(), context(supports=lacking(*fused)))
    assert not report.errors
    assert not any(isinstance(node.op, fused) for node in found.nodes)
    assert_same(graph, found, floats(2, 4, 8, 8), tolerance=1e-4)


def test_training_batchnorm_and_its_state_survive_the_pipeline() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 3, 4, 4))
    s, b, m, v = (op.input(name, "float32", (3,)) for name in "sbmv")
    y, mean, var = op.BatchNormalization(x, s, b, m, v, training_mode=1)
    graph = op.graph([x, s, b, m, v], {"y": op.Relu(y), "m'": mean, "v'": var}, [("m'", "m"), ("v'", "v")])
    found, report = run_passes(graph, default_passes(), context())
    assert not report.errors
    assert kinds(found) == ["BatchNormalization", "Relu"]
    assert found.state == graph.state
    assert_same(graph, found, floats(2, 3, 4, 4), floats(3), floats(3), floats(3), np.abs(floats(3)), tolerance=0)
