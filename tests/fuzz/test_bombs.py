"""Small files that ask for much: each is refused by name, at once, before the memory or the hours are taken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

from tests.fuzz.runner import Result, run_cases

pytest.importorskip("resource", reason="limits on memory need POSIX")

Case = tuple[str, Any, dict[str, Any]]
MUCH = 2**40
FAR_TOO_MUCH = 2**62
ROOM = "of memory can be had"
IMPOSSIBLE = "larger than any array can be"
MOST_GROWN = 1 << 29


def i64(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int64)


# name: (what the error says, graph, feeds). A size that is a constant is known when the model is compiled, one that is
# an input only when it runs.
TEXTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a tensor of 4 TiB": (
        ROOM,
        f"(float[2] x) => (float[] y) <int64[1] s = {{{MUCH}}}> {{ y = ConstantOfShape(s) }}",
        {},
    ),
    "an intermediate of 4 TiB": (
        ROOM,
        f"(float[1] x) => (float[] y) <int64[1] s = {{{MUCH}}}> {{ h = Expand(x, s) y = ReduceSum<keepdims = 0>(h) }}",
        {},
    ),
    "more elements than there are addresses": (
        IMPOSSIBLE,
        f"(float[2] x) => (float[] y) <int64[2] s = {{{MUCH}, {MUCH}}}> {{ y = ConstantOfShape(s) }}",
        {},
    ),
    "no elements, but dims that multiply beyond all addresses": (
        IMPOSSIBLE,
        f"(float[2] x) => (float[] y) <int64[3] s = {{{MUCH}, {MUCH}, 0}}> {{ y = ConstantOfShape(s) }}",
        {},
    ),
    "a tile": (ROOM, f"(float[1] x) => (float[] y) <int64[1] s = {{{MUCH}}}> {{ y = Tile(x, s) }}", {}),
    "a range": (
        ROOM,
        f"(float[2,3] x) => (int64[] y) <int64 a = {{0}}, int64 b = {{{MUCH}}}, int64 d = {{1}}> "
        "{ y = Range(a, b, d) }",
        {},
    ),
    "padding": (ROOM, f"(float[1] x) => (float[] y) <int64[2] p = {{0, {MUCH}}}> {{ y = Pad(x, p) }}", {}),
    "a resize": (
        ROOM,
        "(float[1,1,2,2] x) => (float[] y) <float[4] s = {1, 1, 1e9, 1}> { y = Resize(x, , s) }",
        {},
    ),
    "padding of a window": (
        f"{IMPOSSIBLE}|{ROOM}",
        f"(float[1,1,4,4] x, float[1,1,1,1] w) => (float[] y) {{ y = Conv<pads = [{2**30}, 0, {2**30}, 0]>(x, w) }}",
        {},
    ),
    "strides of a transposed convolution": (
        IMPOSSIBLE,
        f"""(float[1,1,4,4] x, float[1,1,1,1] w) => (float[] y)
            {{ y = ConvTranspose<strides = [{2**31}, {2**31}]>(x, w) }}""",
        {},
    ),
    "an outer product": (
        ROOM,
        "(float[1,4000000] x) => (float[] y) { t = Transpose(x) h = Mul(x, t) y = ReduceMax<keepdims = 0>(h) }",
        {"x": np.zeros((1, 4_000_000), np.float32)},
    ),
    "a concatenation that doubles": (
        f"{IMPOSSIBLE}|{ROOM}",
        "(float[1024] x) => (float[] y) { c0 = Identity(x) "
        + " ".join(f"c{i + 1} = Concat<axis = 0>(c{i}, c{i})" for i in range(40))
        + " y = Identity(c40) }",
        {},
    ),
    "a size that is an input": (ROOM, "(int64[1] s) => (float[] y) { y = ConstantOfShape(s) }", {"s": i64(MUCH)}),
    "an expansion to an input": (
        ROOM,
        "(float[1] x, int64[1] s) => (float[] y) { h = Expand(x, s) y = Exp(h) }",
        {"s": i64(MUCH)},
    ),
    "a range to an input": (
        ROOM,
        "(int64 b) => (int64[] y) <int64 a = {0}, int64 d = {1}> { y = Range(a, b, d) }",
        {"b": np.array(MUCH)},
    ),
    "a range of all integers": (
        IMPOSSIBLE,
        "(int64 a, int64 b) => (int64[] y) <int64 d = {1}> { y = Range(a, b, d) }",
        {"a": np.array(-(2**63)), "b": np.array(2**63 - 1)},
    ),
    "padding by an input": (
        ROOM,
        '(float[3] x, int64[2] p) => (float[] y) { y = Pad<mode = "wrap">(x, p) }',
        {"p": i64(0, MUCH)},
    ),
    "a resize by an input": (
        f"{IMPOSSIBLE}|{ROOM}",
        "(float[1,1,2,2] x, float[4] s) => (float[] y) { y = Resize(x, , s) }",
        {"s": np.array([1, 1, 1e9, 1e9], np.float32)},
    ),
    "a depth that is an input": (
        ROOM,
        "(int64[2] i, int64 d) => (float[] y) <float[2] v = {0, 1}> { y = OneHot(i, d, v) }",
        {"d": np.array(MUCH)},
    ),
    "samples of a huge region": (
        ROOM,
        "(float[1,1,4,4] x, float[1,4] r) => (float[] y) <int64[1] b = {0}> { y = RoiAlign(x, r, b) }",
        {"r": np.array([[0, 0, 1e12, 1e12]], np.float32)},
    ),
    "a loop over the years": (
        "would run 4611686018427387904 times",
        f"""(float[2] x) => (float[] y) <int64 n = {{{FAR_TOO_MUCH}}}> {{ y = Loop(n, , x) <
            body = b (int64 i, bool c, float[2] v) => (bool go, float[2] w) {{ go = Identity(c) w = Neg(v) }}> }}""",
        {},
    ),
    "a loop without an end": (
        "would run without end",
        """(float[2] x) => (float[] y) { y = Loop(, , x) <
            body = b (int64 i, bool c, float[2] v) => (bool go, float[2] w) { go = Identity(c) w = Neg(v) }> }""",
        {},
    ),
    "a loop that collects": (
        f"{IMPOSSIBLE}|would run",
        f"""(float[9] x) => (float[] y, float[] z) <int64 n = {{{FAR_TOO_MUCH}}}> {{ y, z = Loop(n, , x) <
            body = b (int64 i, bool c, float[9] v) => (bool go, float[9] w, float[9] s) {{
                go = Identity(c) w = Neg(v) s = Neg(v) }}> }}""",
        {},
    ),
    "starts without axes": (
        "1099511627776 starts are given for rank 2",
        f"(float[2,2] x, int64[{MUCH}] a, int64[{MUCH}] b) => (float[] y) {{ y = Slice(x, a, b) }}",
        {},
    ),
    "more axes than dims": (
        "100 axes are given",
        "(float[2,2] x, int64[100] a) => (float[] y) { y = Squeeze(x, a) }",
        {},
    ),
    "a wrong axis that is an input": (
        "Squeeze 'y'.*(is 2, not 1|cannot reshape)",
        "(float[2,2] x, int64[2] a) => (float[] y) { y = Squeeze(x, a) }",
        {"a": i64(0, 1)},
    ),
    "a window over nothing": (
        ROOM,
        f"""(float[1,1,4] x) => (float[] y) {{ y = LpPool<kernel_shape = [{2**36}], auto_pad = "SAME_UPPER">(x) }}""",
        {},
    ),
    "scan inputs without end": (
        "Scan",
        f"""(float[4] x) => (float[] y) {{ y = Scan<num_scan_inputs = {FAR_TOO_MUCH},
            body = b (float[4] a) => (float[4] o) {{ o = Identity(a) }}>(x) }}""",
        {},
    ),
    "an attribute that a message must not multiply by": (
        "inner dimensions differ",
        f"""(float[2,3] a, float[2,3] b) => (float[] y)
            {{ y = Gemm<transB = {FAR_TOO_MUCH}, transA = {FAR_TOO_MUCH}>(b, a) }}""",
        {},
    ),
    "rank beyond that of arrays": (
        "rank 101",
        "(float[2] x) => (float[] y) <int64[100] a = {"
        + ", ".join(map(str, range(100)))
        + "}> { y = Unsqueeze(x, a) }",
        {},
    ),
}


def squared_shape() -> Case:
    """Shape arithmetic whose polynomial would double its terms forty times."""
    nodes = [helper.make_node("Shape", ["x"], ["s0"]), helper.make_node("Size", ["x"], ["one"])]
    operands = (("Mul", f"s{i}") if i % 2 else ("Add", "one") for i in range(40))
    nodes += [helper.make_node(op, [f"s{i}", other], [f"s{i + 1}"]) for i, (op, other) in enumerate(operands)]
    return "a polynomial", _model([*nodes, helper.make_node("Expand", ["x", "s40"], ["y"])], ["N", "M"]), {}


def nested_division() -> Case:
    """Divisions inside divisions, which share their parts: a tree of them would have 2^60 leaves."""
    nodes = [helper.make_node("Shape", ["x"], ["s0"]), helper.make_node("Constant", [], ["three"], value_ints=[3, 2])]
    for i in range(60):
        nodes.append(helper.make_node("Div", [f"s{i}", "three"], [f"d{i}"]))
        nodes.append(helper.make_node("Add", [f"d{i}", f"s{i}"], [f"s{i + 1}"]))
    return "divisions", _model([*nodes, helper.make_node("Expand", ["x", "s60"], ["y"])], ["N", "M"]), {}


def multiplying_functions() -> Case:
    """Ten calls in each of thirty functions: 10^30 nodes."""
    functions = []
    for i in range(30):
        op, domain = (f"F{i + 1}", "my") if i < 29 else ("Relu", "")
        names = ["a", *(f"t{j}" for j in range(9)), "b"]
        nodes = [helper.make_node(op, [names[j]], [names[j + 1]], domain=domain) for j in range(10)]
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
        functions.append(helper.make_function("my", f"F{i}", ["a"], ["b"], nodes, imports))
    model = _model([helper.make_node("F0", ["x"], ["y"], domain="my")], [2])
    model.opset_import.append(helper.make_opsetid("my", 1))
    model.functions.extend(functions)
    return "functions", model.SerializeToString(), {}


def wide_sum() -> Case:
    """A Sum of thousands of operands costs no square of them."""
    return "a wide sum", _model([helper.make_node("Sum", ["x"] * 5000, ["y"])], [2]), {}


def _model(nodes: list[onnx.NodeProto], shape: list[Any]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "bomb", [x], [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def vast_window(op: str) -> Callable[[], Case]:
    """Almost all of the kernel lies in the padding, where it costs nothing."""
    kernel = helper.make_node(op, ["x"], ["y"], kernel_shape=[2**62], auto_pad="SAME_UPPER")
    return lambda: (
        f"{op} over nothing",
        _model([kernel], [1, 1, 4]),
        {"x": np.arange(4, dtype=np.float32)[None, None]},
    )


BUILT: dict[str, tuple[str, Callable[[], Case]]] = {
    "polynomial": ("Expand 'y'", squared_shape),
    "divisions": ("Expand 'y'", nested_division),
    "functions": (
        "functions call each other more than 32 deep|functions become more than 100000 nodes",
        multiplying_functions,
    ),
    "wide sum": ("^$", wide_sum),
    "vast maximum": ("^$", vast_window("MaxPool")),
    "vast mean": ("^$", vast_window("AveragePool")),
}


def cases(first: str, last: str) -> Iterator[Case]:
    """By number: those of TEXTS, then those of BUILT."""
    made: list[Callable[[], Case]] = [lambda n=name: _parsed(n) for name in TEXTS]  # type: ignore[misc]
    made += [build for _, build in BUILT.values()]
    for build in made[int(first) : int(last)]:
        yield build()


def _parsed(name: str) -> Case:
    _, text, feeds = TEXTS[name]
    return name, onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}'), feeds


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return run_cases("tests.fuzz.test_bombs:cases", 0, len(TEXTS) + len(BUILT))


@pytest.mark.parametrize("name", [*TEXTS, *BUILT])
def test_a_bomb_is_refused(name: str, results: list[Result]) -> None:
    result = results[[*TEXTS, *BUILT].index(name)]
    wanted = TEXTS[name][0] if name in TEXTS else BUILT[name][0]
    assert not result.is_fault, result
    assert re.search(wanted, result.detail), result
    assert result.grown < MOST_GROWN, result
