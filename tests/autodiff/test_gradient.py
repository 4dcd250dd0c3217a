"""The backward pass as a graph: what adds up, what is left out, what is refused, and what is computed twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore import compile, grad  # noqa: A004  # aicore.compile
from aicore.autodiff import gradients
from aicore.errors import GraphError, UnsupportedError
from aicore.ir import Builder, Graph, Origin, Value, verify
from aicore.ops.activation import Relu
from aicore.ops.control import If
from aicore.ops.fused_linear import GemmAct
from aicore.ops.matmul import Det, Gemm

Array = np.ndarray[Any, Any]
F = "float64"


def total(op: Builder, value: Value) -> Value:
    found: Value = op.ReduceSum(value, keepdims=0)
    return found


def run(graph: Graph, **feeds: Any) -> dict[str, Array]:
    verify(graph)
    found = compile(graph, "cpu").run(feeds)
    plain = compile(graph, "cpu", optimize=False).run(feeds)
    for name, array in found.items():
        np.testing.assert_allclose(array, plain[name], rtol=1e-12)
    return found


def kinds(graph: Graph) -> list[str]:
    return [type(node.op).__name__ for node in graph.nodes]


def test_gradients_of_several_uses_add_up() -> None:
    op = Builder()
    x = op.input("x", F, (3,))
    graph = op.graph([x], {"loss": total(op, op.Add(op.Add(op.Mul(x, x), x), op.Mul(x, x)))})
    numbers = np.array([1.0, -2.0, 0.5])
    found = run(grad(graph, "loss", ["x"]), x=numbers)
    np.testing.assert_allclose(found["grad.x"], 4 * numbers + 1)
    np.testing.assert_allclose(found["loss"], (2 * numbers**2 + numbers).sum())


def test_diamonds_of_diamonds_take_each_node_once() -> None:
    op = Builder()
    x = op.input("x", F, ())
    y = x
    for _ in range(40):  # 2 ** 40 paths, each of which a naive walk would take
        y = op.Mul(op.Add(y, y), op.scalar(0.5, y))
    graph = grad(op.graph([x], {"loss": y}), "loss", ["x"])
    assert len(graph.nodes) < 40 * 6
    assert run(graph, x=np.float64(3.0))["grad.x"] == 1.0


def test_an_operand_used_twice_by_one_node() -> None:
    op = Builder()
    x = op.input("x", F, (2, 2))
    graph = op.graph([x], {"loss": total(op, op.MatMul(x, x))})
    numbers = np.array([[1.0, 2.0], [3.0, 5.0]])
    ones = np.ones((2, 2))
    expected = ones @ numbers.T + numbers.T @ ones
    np.testing.assert_allclose(run(grad(graph, "loss", ["x"]), x=numbers)["grad.x"], expected)


def test_an_input_that_the_loss_does_not_depend_on_gets_zeros() -> None:
    op = Builder()
    x, y, z = op.input("x", F, ("n",)), op.input("y", F, ("n", 2)), op.input("z", F, ("n",))
    graph = op.graph([x, y, z], {"loss": total(op, x), "other": op.Exp(y), "cut": op.Floor(z)})
    found = run(grad(graph, "loss", ["y", "x", "z"]), x=np.ones(3), y=np.full((3, 2), np.inf), z=np.ones(3))
    np.testing.assert_array_equal(found["grad.y"], np.zeros((3, 2)))
    np.testing.assert_array_equal(found["grad.x"], np.ones(3))
    np.testing.assert_array_equal(found["grad.z"], np.zeros(3))


def test_a_piecewise_constant_function_gives_zeros() -> None:
    op = Builder()
    x = op.input("x", F, (3,))
    found = run(grad(op.graph([x], {"loss": total(op, op.Round(x))}), "loss", ["x"]), x=np.array([0.5, 1.2, -3.0]))
    np.testing.assert_array_equal(found["grad.x"], np.zeros(3))


def test_the_loss_may_be_an_input_and_have_ones_as_dims() -> None:
    op = Builder()
    x = op.input("x", F, (1, 1))
    found = run(grad(op.graph([x], {"loss": x}), "loss", ["x"]), x=np.array([[7.0]]))
    np.testing.assert_array_equal(found["grad.x"], [[1.0]])


def test_float16_stays_float16() -> None:
    op = Builder()
    x, w = op.input("x", "float16", ("n", 3)), op.input("w", "float16", (2, 3))
    loss = op.ReduceMean(op.Tanh(op.Gemm(x, w, transB=1)), keepdims=0)
    graph = grad(op.graph([x, w], {"loss": loss}), "loss", ["w"])
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 3)), rng.normal(size=(2, 3))
    slope = (1 - np.tanh(a @ b.T) ** 2) / 10
    got = compile(graph, "cpu").run({"x": a.astype("float16"), "w": b.astype("float16")})["grad.w"]
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, slope.T @ a, atol=2e-3)


def test_nodes_of_gradients_nobody_asked_for_are_left_out() -> None:
    op = Builder()
    x, w = op.input("x", F, (4, 3)), op.input("w", F, (3, 2))
    graph = grad(op.graph([x, w], {"loss": total(op, op.MatMul(x, w))}), "loss", ["w"])
    assert kinds(graph).count("Gemm") == 1  # that of x would be another
    verify(graph)


def test_nodes_name_the_node_whose_gradient_they_are() -> None:
    op = Builder()
    x = op.input("x", F, (2,))
    y = op.apply(Relu(), x, origin=Origin("/block/Relu"))
    graph = grad(op.graph([x], {"loss": total(op, y)}), "loss", ["x"])
    made = [node for node in graph.nodes if "grad#0" in node.origin.rules()]
    assert any("/block/Relu" in node.origin.names() for node in made)


def test_an_op_without_gradient_is_named_with_its_node() -> None:
    op = Builder()
    x = op.input("x", F, (2, 2))
    y = op.apply(Det(), x, names=("volume",), origin=Origin("/flow/Det"))
    graph = op.graph([x], {"loss": y, "same": x})
    with pytest.raises(UnsupportedError, match=r"Det 'volume' \(from /flow/Det\).*no gradient"):
        grad(graph, "loss", ["x"])


def test_an_op_without_gradient_off_the_path_does_no_harm() -> None:
    op = Builder()
    x, y = op.input("x", F, ()), op.input("y", F, (2, 2))
    graph = op.graph([x, y], {"loss": op.Mul(x, op.Det(y))})
    found = run(grad(graph, "loss", ["x"]), x=np.float64(2), y=np.array([[1.0, 2.0], [3.0, 5.0]]))
    np.testing.assert_allclose(found["grad.x"], -1.0)


@pytest.mark.parametrize(
    ("loss", "wrt", "message"),
    [
        ("vector", ["x"], "wants one element"),
        ("count", ["x"], "wants floating point"),
        ("nothing", ["x"], "no output 'nothing'.*'vector'"),
        ("loss", ["z"], "no input 'z'.*'x'"),
        ("loss", ["i"], "only floating point has a derivative"),
        ("loss", "x", "is one name"),
        ("loss", ["x", "x"], "names an input twice"),
        ("loss", ["taken"], "has an output 'grad.taken' already"),
    ],
)
def test_what_fits_no_graph_is_refused(loss: str, wrt: Any, message: str) -> None:
    op = Builder()
    x, i, taken = op.input("x", F, ("n",)), op.input("i", "int64", ()), op.input("taken", F, ())
    outputs = {"loss": total(op, x), "vector": op.Exp(x), "count": i, "grad.taken": taken}
    with pytest.raises(GraphError, match=message):
        grad(op.graph([x, i, taken], outputs), loss, wrt)


def test_a_loss_of_open_size_is_refused() -> None:
    op = Builder()
    x = op.input("x", F, ("n",))
    with pytest.raises(GraphError, match="wants one element"):
        gradients(op, op.Exp(x), [x])


def branch(kind: str) -> Graph:
    op = Builder()
    x, w = op.input("x", F, ("n",)), op.input("w", F, ("n",))
    return op.graph([x, w], {"y": op.Mul(op.Mul(x, x), w) if kind == "square" else op.Exp(x)})


@pytest.mark.parametrize("taken", [True, False])
def test_the_gradient_of_if_is_that_of_the_branch_that_ran(taken: bool) -> None:
    op = Builder()
    condition, x, w = op.input("c", "bool", ()), op.input("x", F, ("n",)), op.input("w", F, ("n",))
    y = op.apply(If(branch("square"), branch("exp")), condition, x, w)
    graph = grad(op.graph([condition, x, w], {"loss": total(op, op.Mul(y, y))}), "loss", ["x", "w"])
    a, b = np.array([1.0, -0.5, 2.0]), np.array([0.5, 3.0, -1.0])
    found = run(graph, c=np.array(taken), x=a, w=b)
    to_x = 4 * a**3 * b**2 if taken else 2 * np.exp(2 * a)
    to_w = 2 * a**4 * b if taken else np.zeros(3)
    np.testing.assert_allclose(found["grad.x"], to_x)
    np.testing.assert_allclose(found["grad.w"], to_w)


def test_fused_ops_are_taken_apart() -> None:
    op = Builder()
    x, w, b = op.input("x", F, (2, 3)), op.input("w", F, (4, 3)), op.input("b", F, (4,))
    y = op.apply(GemmAct(Gemm(transB=1), Relu()), x, w, b)
    graph = grad(op.graph([x, w, b], {"loss": total(op, y)}), "loss", ["x", "w", "b"])
    assert "GemmAct" not in kinds(graph)
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(2, 3)), "w": rng.normal(size=(4, 3)), "b": rng.normal(size=4)}
    open_ = (feeds["x"] @ feeds["w"].T + feeds["b"] > 0).astype(float)
    found = run(graph, **feeds)
    np.testing.assert_allclose(found["grad.x"], open_ @ feeds["w"])
    np.testing.assert_allclose(found["grad.w"], open_.T @ feeds["x"])
    np.testing.assert_allclose(found["grad.b"], open_.sum(0))


def test_fused_ops_off_the_path_stay() -> None:
    op = Builder()
    x, w, s = op.input("x", F, (2, 3)), op.input("w", F, (4, 3)), op.input("s", F, ())
    y = op.apply(GemmAct(Gemm(transB=1), Relu()), x, w)
    assert "GemmAct" in kinds(grad(op.graph([x, w, s], {"loss": op.Mul(total(op, y), s)}), "loss", ["s"]))


def test_an_output_that_nothing_reads_counts_as_zero() -> None:
    op = Builder()
    x = op.input("x", F, (6,))
    first, _, third = op.Split(x, num_outputs=3)
    graph = op.graph([x], {"loss": op.Add(total(op, first), total(op, op.Mul(third, third)))})
    found = run(grad(graph, "loss", ["x"]), x=np.arange(6.0))
    np.testing.assert_array_equal(found["grad.x"], [1, 1, 0, 0, 8, 10])


def test_integers_pass_no_gradient_on() -> None:
    op = Builder()
    x = op.input("x", F, (3,))
    place = op.ArgMax(x, keepdims=0)
    graph = op.graph([x], {"loss": op.Mul(op.Gather(x, place), op.Cast(place, to=F))})
    found = run(grad(graph, "loss", ["x"]), x=np.array([1.0, 2.0, 9.0]))
    np.testing.assert_array_equal(found["grad.x"], [0, 0, 2])


def test_sizes_with_two_names_are_one() -> None:
    op = Builder()
    x, w, b = op.input("x", F, ("n", "k")), op.input("w", F, ("j", "m")), op.input("b", F, ("one",))
    graph = op.graph([x, w, b], {"loss": total(op, op.Add(op.MatMul(x, w), b))})
    program = compile(grad(graph, "loss", ["x", "w", "b"]), "cpu")
    for size, summed in ((4, [3.0] * 4), (1, [12.0])):
        found = program.run({"x": np.ones((3, 2)), "w": np.full((2, 4), 2.0), "b": np.ones(size)})
        np.testing.assert_array_equal(found["grad.x"], np.full((3, 2), 8.0))
        np.testing.assert_array_equal(found["grad.w"], np.full((2, 4), 3.0))
        np.testing.assert_array_equal(found["grad.b"], summed)


def perceptron(layers: int) -> Graph:
    op = Builder()
    x = op.input("x", "float32", ("batch", 16))
    weights = [op.input(f"w{i}", "float32", (16, 16)) for i in range(layers)]
    y = x
    for i, w in enumerate(weights):
        y = op.Tanh(op.MatMul(y, w))
        y = op.apply(Relu(), op.Add(y, op.scalar(0.1, y)), names=(f"block{i}",))
    return op.graph([x, *weights], {"loss": op.ReduceMean(op.Mul(y, y), keepdims=0)})


@pytest.mark.parametrize("recompute", ["pointwise", "segments", [f"block{i}" for i in range(3, 24, 4)]])
def test_recomputing_gives_the_same_bits_in_less_memory(recompute: Any) -> None:
    layers = 24
    names = [f"w{i}" for i in range(layers)]
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {name: rng.normal(size=(16, 16)).astype("float32") / 4 for name in names}
    feeds["x"] = rng.normal(size=(64, 16)).astype("float32")
    plain = compile(grad(perceptron(layers), "loss", names), "cpu")
    lean = compile(grad(perceptron(layers), "loss", names, recompute=recompute), "cpu")
    expected, found = plain.run(feeds), lean.run(feeds)
    assert any(array.any() for array in expected.values())
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    assert arena(lean) < arena(plain) * (0.8 if recompute == "pointwise" else 0.6)


def arena(program: Any) -> int:
    """Bytes that a run needs beside inputs, constants and outputs."""
    (memory,) = program.explain().to_json()["memory"]
    found: int = memory["arena"]
    return found


def test_recompute_refuses_what_it_does_not_know() -> None:
    with pytest.raises(GraphError, match="none of nothing, pointwise, segments"):
        grad(perceptron(2), "loss", ["w0"], recompute="everything")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="no node of the forward pass gives a value 'block9'"):
        grad(perceptron(2), "loss", ["w0"], recompute=["block9"])
