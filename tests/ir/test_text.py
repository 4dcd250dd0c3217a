"""Text form: golden texts, round trips, and errors that name the line."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicore import ops
from aicore.errors import GraphError
from aicore.ir import (
    Buffer,
    Builder,
    DimExpr,
    Graph,
    Node,
    Op,
    Origin,
    TensorType,
    Value,
    parse_graph,
    print_graph,
    symbol,
    text_constants,
    unknown,
)
from aicore.ops.activation import Activation

GOLDEN = """\
graph (%x: float32[N,4], %"two words": int64[1]) {
  const %w: float32[4,5] = @ff5bfdcf4b79cd07
  const %b: float32[5] = [0.0, 0.5, -1.0, inf, nan]
  %y: float32[N,5] = Gemm(%x, %w, %b){alpha=0.5} from ["/fc/MatMul"] by ["fuse-bias#3"]
  const %zeros: float32[5,5] = splat 0.0
  %y~1: float32[N,5] = MatMul(%y, %zeros)
  return "y"=%y, "z"=%y~1
}"""


@dataclass(frozen=True)
class Everything(Op):
    """An op with every kind of attribute."""

    value: Any = None
    other: Any = 1
    op: Any = None

    def infer(self, x: Value) -> TensorType:
        return x.type


KNOWN = {**ops.CORE, "Everything": Everything}


def golden_graph() -> Graph:
    op = Builder()
    x, unused = op.input("x", "float32", ("N", 4)), op.input("two words", "int64", (1,))
    w = op.constant(np.arange(20, dtype=np.float32).reshape(4, 5), "w")
    b = op.constant(np.array([0, 0.5, -1, np.inf, np.nan], np.float32), "b")
    origin = Origin(parts=(Origin("/fc/MatMul"),), rule="fuse-bias", match=3)
    y = op.apply(ops.CORE["Gemm"](alpha=0.5), x, w, b, names=("y",), origin=origin)
    zeros = op.constant(np.broadcast_to(np.float32(0), (5, 5)), "zeros")
    z = op.apply(ops.CORE["MatMul"](), y, zeros, names=("y",))
    return op.graph([x, unused], {"y": y, "z": z})


def round_trip(graph: Graph) -> Graph:
    text = print_graph(graph)
    parsed = parse_graph(text, KNOWN, text_constants(graph))
    assert print_graph(parsed) == text
    return parsed


def one_node(op: Op) -> Graph:
    build = Builder()
    x = build.input("x", "float32", (2,))
    return build.graph([x], {"y": build.apply(op, x)})


def attribute(value: Any) -> Any:
    return round_trip(one_node(Everything(value))).nodes[0].op.value


def test_golden() -> None:
    graph = golden_graph()
    assert print_graph(graph) == str(graph)
    assert print_graph(graph).splitlines()[:1] == GOLDEN.splitlines()[:1]
    digest = next(iter(text_constants(graph)))
    assert print_graph(graph) == GOLDEN.replace("ff5bfdcf4b79cd07", digest)


def test_parsed_golden_is_the_same_graph() -> None:
    graph = golden_graph()
    parsed = round_trip(graph)
    assert [type(n.op).__name__ for n in parsed.nodes] == ["Gemm", "MatMul"]
    assert parsed.nodes[0].op == graph.nodes[0].op
    assert parsed.nodes[0].origin.names() == ["/fc/MatMul"]
    assert parsed.nodes[0].origin.rules() == ["fuse-bias#3"]
    weight = parsed.nodes[0].inputs[1]
    assert weight is not None
    assert weight.constant is not None
    np.testing.assert_array_equal(weight.constant.array, np.arange(20, dtype=np.float32).reshape(4, 5))
    zeros = parsed.nodes[1].inputs[1]
    assert zeros is not None
    assert zeros.constant is not None
    assert zeros.constant.is_splat


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -7, 2**70, 0.1, -0.0, 1e-300, math.inf, -math.inf, "", 'a "quoted"\nname \\ ü',
        (), (1, 2), (1.0, (2, ())),
        ops.CORE["LeakyRelu"](alpha=0.3), (ops.CORE["Relu"](), None), ops.CORE["Conv"](strides=(2, 2)),
    ],
)  # fmt: skip
def test_attribute_comes_back(value: Any) -> None:
    found = attribute(value)
    assert found == value
    assert repr(found) == repr(value)


def test_nan_attribute_comes_back() -> None:
    assert math.isnan(attribute(math.nan))


def test_numpy_scalars_are_written_as_numbers() -> None:
    assert attribute(np.float32(0.5)) == 0.5
    assert attribute(np.int64(3)) == 3


def test_symbolic_attribute_comes_back() -> None:
    dims = (symbol("N") * 2 + 1, 3)
    found = attribute(dims)
    assert found == dims
    assert isinstance(found[0], DimExpr)


@pytest.mark.parametrize("size", [3, 40])
def test_buffer_attribute_comes_back(size: int) -> None:
    array = np.linspace(0, 1, size, dtype=np.float32)
    found = attribute(Buffer(array))
    np.testing.assert_array_equal(found.array, array)
    assert found.array.dtype == array.dtype


def test_default_is_left_out_only_where_it_is_exactly_that() -> None:
    assert "other" not in print_graph(one_node(Everything()))
    for value in (True, 1.0, -1):
        text = print_graph(one_node(Everything(other=value)))
        assert f"other={value}" in text


def test_attribute_that_text_cannot_hold() -> None:
    with pytest.raises(GraphError, match="type complex cannot be written as text"):
        print_graph(one_node(Everything(1j)))


@pytest.mark.parametrize(
    "array",
    [
        np.array([True, False]),
        np.array([1, -1, 127], np.int8),
        np.array([2**64 - 1], np.uint64),
        np.array([[1.1, -0.0], [np.inf, 1e-45]], np.float32),
        np.array([0.1, 65504], np.float16),
        np.array([0.1, 3.3e38], ml_dtypes.bfloat16),
        np.array([0.1, 1.75], ml_dtypes.float8_e4m3fn),
        np.array([1, -3], ml_dtypes.int4),
        np.array([1 + 2j, complex(0, math.inf)], np.complex64),
        np.array(["a", 'b"\n', ""], object),
        np.float64(0.1),
        np.zeros((0, 3), np.float32),
        np.arange(17),
    ],
    ids=lambda a: f"{a.dtype}{list(a.shape)}",
)
def test_constant_comes_back_bit_for_bit(array: np.ndarray) -> None:
    op = Builder()
    x = op.input("x", "float32", (1,))
    parsed = round_trip(op.graph([x], {"y": op.constant(array)}))
    constant = parsed.outputs[0][1].constant
    assert constant is not None
    assert constant.array.dtype == np.asarray(array).dtype
    assert constant.array.shape == np.shape(array)
    assert constant.array.tobytes() == np.asarray(array).tobytes() or array.dtype == object
    assert constant.array.tolist() == np.asarray(array).tolist()


def test_constants_of_16_elements_are_inline_and_of_17_are_not() -> None:
    for count, inline in ((16, True), (17, False)):
        op = Builder()
        graph = op.graph([], {"y": op.constant(np.arange(count))})
        assert ("@" not in print_graph(graph)) is inline
        assert len(text_constants(graph)) == (0 if inline else 1)


def test_unknown_dims_are_renamed_per_graph() -> None:
    for _ in range(3):
        a, b = unknown(), unknown()
        op = Builder()
        x = op.input("x", "float32", (b, a))
        y = op.input("y", "float32", (a * 2 + b, "N"))
        text = print_graph(op.graph([x, y], {"x": x}))
        assert text.startswith("graph (%x: float32[?0,?1], %y: float32[?0+2*?1,N])")


def test_unknown_dims_that_were_equal_stay_equal_and_are_new() -> None:
    a = unknown()
    op = Builder()
    x, y = op.input("x", "float32", (a,)), op.input("y", "float32", (a,))
    parsed = round_trip(op.graph([x, y], {"z": op.Add(x, y)}))
    first, second = (value.shape for value in parsed.inputs)
    assert first == second
    assert first != (a,)


def test_subgraphs_nest_and_share_unknown_dims() -> None:
    n = unknown()

    def branch(name: str) -> Graph:
        op = Builder()
        x = op.input("x", "float32", (n,))
        return op.graph([x], {"r": getattr(op, name)(op.Mul(x, op.constant(np.arange(40, dtype=np.float32)[:1])))})

    op = Builder()
    cond, x = op.input("c", "bool", ()), op.input("x", "float32", (n,))
    y = op.If(cond, x, then_branch=branch("Relu"), else_branch=branch("Tanh"))
    graph = op.graph([cond, x], {"y": y})
    text = print_graph(graph)
    assert text.count("graph (") == 3
    assert "?1" not in text
    round_trip(graph)


def test_state_comes_back() -> None:
    op = Builder()
    x, w = op.input("x", "float32", (2,)), op.input("w", "float32", (2,))
    graph = op.graph([x, w], {"y": op.Mul(x, w), "w'": op.Sub(w, x)}, [("w'", "w")])
    assert round_trip(graph).state == (("w'", "w"),)


def test_absent_operands_come_back() -> None:
    op = Builder()
    x, high = op.input("x", "float32", (2,)), op.input("high", "float32", ())
    graph = op.graph([x, high], {"y": op.Clip(x, None, high)})
    assert "Clip(%x, _, %high)" in print_graph(graph)
    assert round_trip(graph).nodes[0].inputs[1] is None


def test_names_are_made_unique() -> None:
    values = [Value("v", TensorType("float32", (1,))) for _ in range(3)] + [Value("v~1", TensorType("float32", (1,)))]
    op = Builder()
    graph = Graph(tuple(values[:1]), (("y", values[0]),), ())
    nodes = tuple(Node(ops.CORE["Relu"](), (values[0],), (value,)) for value in values[1:])
    graph = replace(graph, nodes=nodes)
    assert [line.split(":")[0].strip() for line in print_graph(graph).splitlines()[1:4]] == ["%v~1", "%v~2", "%v~1~1"]
    round_trip(graph)
    assert op.nodes == []


def test_derived_facts_are_derived_again() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 4))
    graph = op.graph(
        [x], {"y": op.Reshape(x, op.Concat(op.Gather(op.Shape(x), op.constant([0])), op.constant([2, 2]), axis=0))}
    )
    parsed = round_trip(graph)
    assert [v.dims for n in parsed.nodes for v in n.outputs] == [v.dims for n in graph.nodes for v in n.outputs]


def test_types_of_results_may_be_left_out() -> None:
    graph = parse_graph('graph (%x: float32[N,3]) { %y = Transpose(%x){perm=[1, 0]} return "y"=%y }', ops.CORE)
    assert str(graph.outputs[0][1].type) == "float32[3,N]"


HEAD = "graph (%x: float32[2]) {\n"
TAIL = '\n  return "y"=%y\n}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: wanted 'graph', the text ends"),
        (HEAD + "  %y = Nothing(%x)" + TAIL, "line 2: unknown op 'Nothing'"),
        (HEAD + "  %y = Relu(%z)" + TAIL, "line 2: %z is used before it is defined"),
        (HEAD + "  %x = Relu(%x)" + TAIL, "line 2: %x is defined twice"),
        (HEAD + "  %y = Relu(%x){alpha=1}" + TAIL, "unexpected keyword argument 'alpha'"),
        (HEAD + "  %y = LeakyRelu(%x){alpha=1, alpha=2}" + TAIL, "LeakyRelu has an attribute twice"),
        (HEAD + "  %y = LeakyRelu(%x){alpha=%x}" + TAIL, "line 2: wanted an attribute's value, found '%x'"),
        (HEAD + "  %y = LeakyRelu(%x){alpha=Nothing}" + TAIL, "unknown op 'Nothing'"),
        (HEAD + "  %y: float64[2] = Relu(%x)" + TAIL, "Relu 'y': %y is recorded as float64"),
        (HEAD + "  %y, %z = Relu(%x)" + TAIL, "has 1 outputs, the text names 2"),
        (HEAD + "  %y = Concat(%x){axis=4}" + TAIL, "Concat 'y': axis 4 is out of range"),
        (HEAD + "  %y = Relu()" + TAIL, "does not fit its operands"),
        (HEAD + "  %y, %y = Split(%x){num_outputs=2}" + TAIL, "line 2: Split 'y': two of its outputs have"),
        (HEAD + "  const %y: complex64[1] = [True]" + TAIL, "True is not of dtype complex64"),
        (HEAD + "  %y = Relu(%x %x)" + TAIL, "line 2: wanted ',', found '%x'"),
        (HEAD + "  const %y: float32[2] = [1.0]" + TAIL, "1 elements do not fill float32.2."),
        (HEAD + "  const %y: float32[N] = [1.0]" + TAIL, "a constant needs a shape in numbers"),
        (HEAD + "  const %y: int8[1] = [300]" + TAIL, "'300' is not of dtype int8"),
        (HEAD + "  const %y: int8[1] = [1.5]" + TAIL, "'1.5' is not of dtype int8"),
        (HEAD + "  const %y: bool[1] = [1]" + TAIL, "'1' is not of dtype bool"),
        (HEAD + "  const %y: float32[1] = [True]" + TAIL, "True is not of dtype float32"),
        (HEAD + '  const %y: float32[1] = ["a"]' + TAIL, "'a' is not of dtype float32"),
        (HEAD + "  const %y: string[1] = [1]" + TAIL, "'1' is not of dtype object"),
        (HEAD + "  const %y: float32[1] = [x]" + TAIL, "wanted an element, found 'x'"),
        (HEAD + "  const %y: float32[99] = @0123abcd" + TAIL, "constant @0123abcd is not among those given"),
        (HEAD + "  const %y: float99[1] = [1]" + TAIL, "no element type is called 'float99'"),
        (HEAD + "  const %y: float32[N-] = [1]" + TAIL, "line 2: not a dimension: 'N-'"),
        (HEAD + '  %y = Relu(%x) by ["fuse"]' + TAIL, "'fuse' is not a rule and a match number"),
        (HEAD + '  %y = Relu(%x) from [fuse]' + TAIL, "wanted text in double quotes, found 'fuse'"),
        (HEAD + '  %"bad \\x" = Relu(%x)' + TAIL, "is not a JSON string"),
        (HEAD + "  %y = Relu(%x)" + TAIL + " more", "line 4: wanted the end of the text, found 'more'"),
        (HEAD + "  %y = Relu(%x)\n  return y=%y\n}", "line 3: wanted '}', found 'y'"),
        (HEAD + '  %y = Relu(%x)\n  return "y"=%y state "y"->"z"\n}', "names no output and input"),
        ("graph (%x: float32[2], %x: float32[2]) {\n  return\n}", "line 1: %x is defined twice"),
        (HEAD, "the text ends"),
    ],
)  # fmt: skip
def test_bad_text_names_the_line(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse_graph(text, ops.CORE)


def test_stored_constant_of_another_shape() -> None:
    graph = golden_graph()
    digest = next(iter(text_constants(graph)))
    with pytest.raises(GraphError, match=r"is float32\[3\], the text says float32\[4,5\]"):
        parse_graph(print_graph(graph), ops.CORE, {digest: np.zeros(3, np.float32)})


def test_deep_nesting_is_refused() -> None:
    text = "graph () { return }"
    for _ in range(70):
        text = "graph (%x: float32[1]) { %y = Everything(%x){value=" + text + "} return }"
    with pytest.raises(GraphError, match="nested more than 64 deep"):
        parse_graph(text, KNOWN)


def test_a_plugins_op_needs_to_be_named() -> None:
    @dataclass(frozen=True)
    class Quadratic(Activation):
        k: float = 2.0

    text = print_graph(one_node(Quadratic(3.0)))
    with pytest.raises(GraphError, match="unknown op 'Quadratic'"):
        parse_graph(text, ops.CORE)
    assert print_graph(parse_graph(text, {"Quadratic": Quadratic})) == text


ELEMENTWISE = ("Relu", "Neg", "Exp", "Add", "Mul")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Small graphs with awkward names, shared values, constants and unknown dims."""
    op = Builder()
    dims = draw(st.lists(st.sampled_from([1, 3, "N", "odd name", "H"]), max_size=3))
    names = st.text(min_size=0, max_size=6)
    inputs = [op.input(f"x{i}", "float32", dims) for i in range(draw(st.integers(1, 3)))]
    values = list(inputs)
    if draw(st.booleans()):
        values.append(op.constant(np.float32(draw(st.floats(width=32))), draw(names)))
    for _ in range(draw(st.integers(0, 6))):
        name = draw(st.sampled_from(ELEMENTWISE))
        count = 2 if name in ("Add", "Mul") else 1
        operands = [draw(st.sampled_from(values)) for _ in range(count)]
        values.append(op.apply(ops.CORE[name](), *operands, names=(draw(names),), origin=Origin(draw(names))))
    outputs = {f"{i} {draw(names)}": draw(st.sampled_from(values)) for i in range(draw(st.integers(0, 2)))}
    return op.graph(inputs, outputs)


@settings(deadline=None, max_examples=60)
@given(graphs())
def test_any_graph_comes_back(graph: Graph) -> None:
    round_trip(graph)
