"""Programs called in every wrong way that comes to mind: a typed error that says what is wrong, or the right result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import pytest

import aicore
from aicore.errors import AicoreError, ConfigError, GraphError, InputError, PluginError, UnsupportedError
from aicore.ir import Builder, Graph, Node, TensorType, Value
from aicore.plugins import PluginRegistry
from aicore.program import Program

Array = np.ndarray[Any, Any]


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')


@pytest.fixture(params=["cpu", "fake"])
def program(request: pytest.FixtureRequest, registry: PluginRegistry) -> Program:
    """y = relu(x + z), of N rows of three."""
    text = "(float[N,3] x, float[N,3] z) => (float[N,3] y) { h = Add(x, z) y = Relu(h) }"
    return aicore.compile(model(text), request.param, registry=registry)


X = np.arange(6, dtype=np.float32).reshape(2, 3)
Z = np.ones((2, 3), np.float32)


class Subclass(np.ndarray[Any, Any]):
    """An array of another class."""


class Lent:
    """Something with DLPack and nothing else."""

    def __dlpack__(self, **options: Any) -> Any:
        return X.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return X.__dlpack_device__()


class Broken:
    """Its array protocol raises what no list of expected errors has."""

    def __array__(self, *arguments: Any, **options: Any) -> Array:
        raise KeyError("boom")


class BrokenLent(Lent):
    def __dlpack__(self, **options: Any) -> Any:
        raise StopIteration("boom")


class NotAnArray:
    def __array__(self, *arguments: Any, **options: Any) -> Any:
        return "x"


def unaligned() -> Array:
    array = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    array[...] = X
    return array


def locked() -> Array:
    array = X.copy()
    array.flags.writeable = False
    return array


def nested(depth: int) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = [value]
    return value


GOOD: dict[str, Callable[[], Any]] = {
    "strides": lambda: np.repeat(np.repeat(X, 2, 0), 2, 1)[::2, ::2],
    "negative strides": lambda: X[::-1, ::-1][::-1, ::-1],
    "column order": lambda: np.asfortranarray(X),
    "swapped bytes": lambda: X.astype(">f4"),
    "read-only": locked,
    "no alignment": unaligned,
    "subclass": lambda: X.view(Subclass),
    "matrix": lambda: X.view(np.matrix),
    "masked, nothing hidden": lambda: np.ma.masked_array(X),
    "DLPack": Lent,
    "memory view": lambda: memoryview(X),
    "list": X.tolist,
    "tuples": lambda: tuple(map(tuple, X.tolist())),
    "list of arrays": lambda: list(X),
    "list of integers": lambda: X.astype(int).tolist(),
}
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "float64": (lambda: X.astype(np.float64), "got float64[2,3]: wrong dtype"),
    "float16": (lambda: X.astype(np.float16), "wrong dtype"),
    "integers": (lambda: X.astype(np.int64), "wrong dtype"),
    "complex": (lambda: X.astype(complex), "wrong dtype"),
    "bool": (lambda: X > 2, "wrong dtype"),
    "long double": (lambda: X.astype(np.longdouble), "is no array|wrong dtype"),
    "dates": (lambda: X.astype("M8[s]"), "no counterpart"),
    "records": (lambda: np.zeros((2, 3), [("a", "f4")]), "no counterpart"),
    "raw bytes": (lambda: np.zeros((2, 3), "V4"), "no counterpart"),
    "rank 1": (lambda: X[0], "rank 1 instead of 2"),
    "rank 3": (lambda: X[None], "rank 3 instead of 2"),
    "rank 0": (lambda: np.float32(3), "rank 0 instead of 2"),
    "number": (lambda: 3.0, "rank 0 instead of 2"),
    "another fixed dim": (lambda: np.zeros((2, 4), np.float32), "4 where 3 belongs"),
    "another named dim": (lambda: np.zeros((5, 3), np.float32), "dim 'N' is 2 here but 5 in input 'x'"),
    "no rows": (lambda: np.zeros((0, 3), np.float32), "dim 'N' is 2 here but 0 in input 'x'"),
    "None": (lambda: None, "objects of the kind NoneType"),
    "ragged": (lambda: [[1, 2], [3]], "list is no array"),
    "objects": (lambda: X.astype(object), "objects of the kind float"),
    "None in a list": (lambda: [[None, 1, 2], [1, 2, 3]], "objects of the kind NoneType"),
    "text": (lambda: "hello", "wrong dtype"),
    "texts": (lambda: np.full((2, 3), "a"), "wrong dtype"),
    "dict": (dict, "objects of the kind dict"),
    "generator": (lambda: (i for i in range(3)), "objects of the kind generator"),
    "huge integer": (lambda: [[10**400, 1, 1]] * 2, "objects of the kind int|is no array"),
    "deep list": (lambda: nested(100), "is no array"),
    "masked": (lambda: np.ma.masked_array(X, mask=X > 2), "masked out; fill them first"),
    "protocol that raises": (Broken, "Broken is no array: 'boom'"),
    "DLPack that raises": (BrokenLent, "BrokenLent is no array: boom"),
    "protocol without array": (NotAnArray, "NotAnArray is no array"),
}


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_arrays_of_every_kind(program: Program, kind: str) -> None:
    np.testing.assert_array_equal(program.run({"x": GOOD[kind](), "z": Z})["y"], X + 1, strict=True)


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_input(program: Program, kind: str) -> None:
    make, wrong = BAD[kind]
    with pytest.raises(InputError, match=f"^input '[xz]'.*({wrong.replace('[', '.')})"):
        program.run({"x": make(), "z": Z})
    np.testing.assert_array_equal(program.run({"x": X, "z": Z})["y"], X + 1)  # still in order


def test_nan_and_no_rows_are_data(program: Program) -> None:
    assert np.isnan(program.run({"x": np.full_like(X, np.nan), "z": Z})["y"]).all()
    none = np.zeros((0, 3), np.float32)
    assert program.run({"x": none, "z": none})["y"].shape == (0, 3)


def test_texts_must_be_texts(registry: PluginRegistry) -> None:
    program = aicore.compile(model("(string[2] x) => (string[2] y) { y = Identity(x) }"), "cpu", registry=registry)
    assert program.run({"x": ["a", "b"]})["y"].tolist() == ["a", "b"]
    with pytest.raises(InputError, match=r"input 'x': expected string.*, got objects of the kind int"):
        program.run({"x": np.array(["a", 1], object)})


@pytest.mark.parametrize(
    ("feeds", "wrong"),
    [
        ({"x": X}, "missing input 'z'"),
        ({}, "missing inputs 'x', 'z'"),
        ({"x": X, "z": Z, "q": Z}, "no such input 'q'"),
        ({"x": X, 1: Z}, "missing input 'z'"),
        ([X, Z], "feeds must map names to arrays, got list"),
        (None, "feeds must map names to arrays, got NoneType"),
    ],
)
def test_feeds_that_do_not_fit(program: Program, feeds: Any, wrong: str) -> None:
    for call in (program.run, program.profile):
        with pytest.raises(InputError, match=wrong):
            call(feeds)


def test_names_of_outputs(program: Program) -> None:
    feeds = {"x": X, "z": Z}
    assert program.run(feeds, []) == {}
    assert list(program.run(feeds, ["y", "y"])) == ["y"]
    for names in (["no"], [None], [[]]):
        with pytest.raises(InputError, match=r"no such output .*; the program has 'y'"):
            program.run(feeds, names)  # type: ignore[arg-type]
    for names in ("y", 3):
        with pytest.raises(InputError, match="outputs must be a list of names, got"):
            program.run(feeds, names)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shapes", "wrong"),
    [
        ({"x": (2, 3)}, "no shape for input 'z'"),
        ({"x": (2, 3), "z": (2, 3), "w": (1,)}, "no such input 'w'"),
        ({"x": (-1, 3), "z": (-1, 3)}, "a size is negative"),
        ({"x": ("a", 3), "z": ("a", 3)}, "input 'x': .* is no shape"),
        ({"x": (2.0, 3), "z": (2.0, 3)}, "input 'x': .* is no shape"),
        ({"x": None, "z": None}, "input 'x': None is no shape"),
        ({"x": (2, 3), "z": (4, 3)}, "dim 'N' is 4 here but 2 in input 'x'"),
        (3, "shapes must map names to shapes, got int"),
    ],
)
def test_shapes_that_do_not_fit(program: Program, shapes: Any, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        program.specialise(shapes)


def test_shapes_may_be_arrays(program: Program) -> None:
    program.specialise({"x": np.array([2, 3]), "z": [2, 3]})  # type: ignore[dict-item]


def zeros() -> Array:
    return np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("inputs", "outputs", "wrong"),
    [
        ({"x": X}, {"y": zeros()}, "missing input 'z'"),
        ({"x": X, "z": Z}, {}, "no array for output 'y'"),
        ({"x": X, "z": Z}, {"y": zeros(), "q": zeros()}, "no such output 'q'"),
        ({"x": X, "z": Z}, {"y": X}, "output 'y' cannot be bound to memory of 'x'"),
        ({"x": X, "z": Z}, {"y": locked()}, "the array bound to output 'y' is read-only"),
        ({"x": X, "z": Z}, {"y": np.zeros((3, 3), np.float32)}, "output 'y': expected float32.2,3."),
        ({"x": X, "z": Z}, {"y": np.zeros((2, 3))}, "output 'y': expected float32.2,3., got float64"),
        ({"x": X, "z": Z}, {"y": np.zeros((4, 6), np.float32)[::2, ::2]}, "only dense arrays"),
        ({"x": X.astype(">f4"), "z": Z}, {"y": zeros()}, "only dense arrays"),
        ({"x": X.tolist(), "z": Z}, {"y": zeros()}, "only NumPy arrays can be bound; 'x' is list"),
        (None, {"y": zeros()}, "inputs must map names to arrays, got NoneType"),
        ({"x": X, "z": Z}, 7, "outputs must be a list of names, got 7"),
        ({"x": X, "z": Z}, ["y"], "outputs must map names to arrays, got list"),
    ],
)
def test_arrays_that_cannot_be_bound(program: Program, inputs: Any, outputs: Any, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        program.bind(inputs, outputs)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_outputs_of_other_classes_can_be_bound(program: Program) -> None:
    for array in (zeros().view(Subclass), np.asmatrix(zeros())):
        program.bind({"x": X, "z": Z}, {"y": array}).run()
        np.testing.assert_array_equal(np.asarray(array), X + 1)


def test_running_after_release_and_from_threads(program: Program) -> None:
    program.release()
    wrong: list[str] = []

    def work(size: int) -> None:
        for n in (size, size + 1, size):
            y = program.run({"x": np.full((n, 3), n, np.float32), "z": np.full((n, 3), n, np.float32)})["y"]
            if not (y == 2 * n).all():
                wrong.append(f"{n}: {y}")
            program.release()

    threads = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_one_named_dim_in_one_input(registry: PluginRegistry) -> None:
    program = aicore.compile(model("(float[N,N] x) => (float[N,N] y) { y = Relu(x) }"), "cpu", registry=registry)
    with pytest.raises(InputError, match="dim 'N' is 3 here but 2 elsewhere in it"):
        program.run({"x": X})


@pytest.mark.parametrize(
    "name", ["a-b", "1x", "class", "self", "feeds", " ", "x/y:0", "é", "__class__", "\n", "%", '"']
)
def test_names_that_are_no_identifiers(name: str, registry: PluginRegistry) -> None:
    made = model("(float[2] x) => (float[2] y) { y = Relu(x) }")
    made.graph.input[0].name = made.graph.node[0].input[0] = name
    made.graph.output[0].name = made.graph.node[0].output[0] = f"out {name}"
    program = aicore.compile(made, "cpu", registry=registry)
    x = np.array([-1, 1], np.float32)
    np.testing.assert_array_equal(program.run({name: x})[f"out {name}"], [0, 1])
    np.testing.assert_array_equal(program(**{name: x})[f"out {name}"], [0, 1])
    assert str(program.explain())


SQUARE = "(float[N,N] x) => (float[N,N] y) { y = Relu(x) }"


@pytest.mark.parametrize("target", ["cuda:0", "cpu:1", "", " ", "nope", "cpu,fake", 3, b"cpu", ["cpu"]])
def test_targets_that_do_not_exist(target: Any, registry: PluginRegistry) -> None:
    with pytest.raises(PluginError, match=r"no plugin drives device|is not a device's name"):
        aicore.compile(model(SQUARE), target, registry=registry)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"kernels": {"Rleu": "reference"}}, "'Rleu' is neither an op with kernels nor a node of the model"),
        ({"kernels": {3: "reference"}}, "3 is neither an op with kernels nor a node of the model"),
        ({"kernels": {"Relu": ""}}, "'' is no name of a variant"),
        ({"kernels": {"y": 3}}, "3 is no name of a variant"),
        ({"kernels": ["Relu"]}, "is no mapping of ops or nodes to variants"),
        ({"fallback": "silent"}, "is not a policy; choose from error, warn, quiet"),
        ({"fallback": 3}, "is not a policy"),
        ({"threads": 0}, "threads=0 is no number of threads"),
        ({"threads": "two"}, "is no number of threads"),
        ({"capacity": 0}, "capacity=0 is no number of sets of shapes"),
        ({"capacity": "many"}, "is no number of sets of shapes"),
    ],
)
def test_options_that_are_not_among_the_choices(options: Any, wrong: str, registry: PluginRegistry) -> None:
    with pytest.raises(ConfigError, match=wrong):
        aicore.compile(model(SQUARE), "cpu", registry=registry, **options)


@pytest.mark.parametrize("name", ["Relu", "y"])
def test_a_variant_that_does_not_exist(name: str, registry: PluginRegistry) -> None:
    program = aicore.compile(model(SQUARE), "cpu", registry=registry, kernels={name: "refrence"})
    with pytest.raises(UnsupportedError, match="Relu 'y': no kernel 'refrence' for Relu on cpu; there are:"):
        program.run({"x": np.zeros((2, 2), np.float32)})


# Graphs made by hand


def parts() -> tuple[Builder, Value, Value]:
    op = Builder()
    x = op.input("x", "float32", (2,))
    return op, x, op.Relu(x)


def undefined_operand() -> Graph:
    op, _, y = parts()
    return op.graph([], {"y": y})


def undefined_output() -> Graph:
    op, x, _ = parts()
    return op.graph([x], {"y": Value("y", TensorType("float32", (2,)))})


def wrong_order() -> Graph:
    op, x, y = parts()
    z = op.Exp(y)
    return replace(op.graph([x], {"z": z}), nodes=tuple(reversed(op.nodes)))


def defined_twice() -> Graph:
    op, x, y = parts()
    return replace(op.graph([x], {"y": y}), nodes=(*op.nodes, Node(op.nodes[0].op, (x,), (y,))))


def input_twice() -> Graph:
    op, x, y = parts()
    return op.graph([x, x], {"y": y})


def inputs_of_one_name() -> Graph:
    op, x, y = parts()
    return op.graph([x, op.input("x", "float32", (2,))], {"y": y})


def wrong_type() -> Graph:
    op, x, _ = parts()
    claimed = Value("y", TensorType("float32", (3,)))
    return Graph((x,), (("y", claimed),), (Node(op.nodes[0].op, (x,), (claimed,)),))


def cycle() -> Graph:
    op, x, _ = parts()
    a, b = Value("a", x.type), Value("b", x.type)
    relu = op.nodes[0].op
    return Graph((x,), (("b", b),), (Node(relu, (b,), (a,)), Node(relu, (a,), (b,))))


def too_many_results() -> Graph:
    op, x, y = parts()
    more = Value("more", x.type)
    return Graph((x,), (("y", y),), (Node(op.nodes[0].op, (x,), (y, more)),))


def wrong_state() -> Graph:
    op, x, y = parts()
    return op.graph([x], {"y": y}, state=[("nothing", "x")])


INVALID = (
    undefined_operand,
    undefined_output,
    wrong_order,
    defined_twice,
    input_twice,
    inputs_of_one_name,
    wrong_type,
    cycle,
    too_many_results,
    wrong_state,
)


@pytest.mark.parametrize("make", INVALID, ids=lambda make: str(make.__name__))
@pytest.mark.parametrize("optimize", [True, False])
def test_graphs_that_are_invalid(make: Callable[[], Graph], optimize: bool, registry: PluginRegistry) -> None:
    with pytest.raises(GraphError):
        aicore.compile(make(), "cpu", optimize=optimize, registry=registry)


@pytest.mark.parametrize("source", [b"", b"x", b"\x08\x0a", "", "/nowhere.onnx", "a\0b"])
def test_sources_that_are_no_model(source: Any, registry: PluginRegistry) -> None:
    with pytest.raises(AicoreError):
        aicore.load(source, registry=registry)
