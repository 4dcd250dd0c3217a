"""Forms that records may have, and what is refused, each naming the record."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import AicoreError, InferenceError, ModelError, UnsupportedError
from aicore.frontends.records import Record, graph_of, parameters_of
from aicore.frontends.records.record import MOST_NESTED
from aicore.ir import TensorType, symbol
from tests.frontends.records_run import one, run

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
IMAGE = RNG.standard_normal((2, 3, 6, 7))
SERIES = RNG.standard_normal((2, 5, 3))


@dataclass
class Structure:
    """A structure with fields for all operations, 0 where a size is not given."""

    kernel_h: int = 0
    kernel_w: int = 0
    stride_h: int = 0
    stride_w: int = 0
    padding_h: int = 0
    padding_w: int = 0
    time: int = 7
    unrelated: str = ""


class Kind(enum.Enum):
    RELU = 1


class TestForms:
    @pytest.mark.parametrize(
        "record",
        [
            Record("Relu", ["x"], [], "y"),
            Record("relu", "x", "", "y"),  # type: ignore[arg-type]
            {"op_type": "RELU", "inputs": ("x",), "output_id": "y"},
            {"op_type": "RELU", "inputs": ["x"], "params": None, "output_id": "y", "extra_params": {}},
            {"op_type": "RELU", "inputs": ["x"], "output_id": "y", "extra": {}},
            SimpleNamespace(op_type=Kind.RELU, inputs=["x"], params=[], output_id="y", extra_params=SimpleNamespace()),
            SimpleNamespace(op_type="RELU", inputs=["x"], params=[], output_id="y", extra_params=Structure()),
        ],
    )
    def test_records(self, record: Any) -> None:
        np.testing.assert_array_equal(run([record], {"x": X})["y"], np.maximum(X, 0))

    def test_a_structure_says_0_for_what_it_does_not_say(self) -> None:
        w = RNG.standard_normal((5, 3, 3, 2))
        plain = one("CONV2D", IMAGE, w, extra=Structure())
        np.testing.assert_array_equal(plain, one("CONV2D", IMAGE, w))
        strided = one("CONV2D", IMAGE, w, extra=Structure(3, 2, 2, 1, 1, 0))
        expected = one("CONV2D", IMAGE, w, extra={"stride": (2, 1), "padding": (1, 0)})
        np.testing.assert_array_equal(strided, expected)

    def test_names_are_read_again_after_a_record_writes_them(self) -> None:
        records = [Record("RELU", ["x"], [], "x"), Record("ADD", ["x", "x"], [], "x")]
        np.testing.assert_array_equal(run(records, {"x": X})["x"], 2 * np.maximum(X, 0))

    def test_outputs(self) -> None:
        records = [Record("RELU", ["x"], [], "a"), Record("TANH", ["a"], [], "b"), Record("ELU", ["x"], [], "c")]
        assert list(run(records, {"x": X})) == ["b", "c"]
        assert list(run(records, {"x": X}, "a")) == ["a"]
        assert list(run(records, {"x": X}, ["c", "a"])) == ["c", "a"]

    def test_shapes_and_symbols(self) -> None:
        graph = graph_of([Record("MATMUL", ["x"], ["w"], "y")], {"x": ("batch", 4), "w": [4, 2], "unread": (9,)})
        assert [(v.name, v.type) for v in graph.inputs] == [
            ("x", TensorType("float32", (symbol("batch"), 4))),
            ("w", TensorType("float32", (4, 2))),
        ]
        assert graph.outputs[0][1].type == TensorType("float32", (symbol("batch"), 2))
        assert graph.outputs[0][1].name == "y"

    def test_constants(self) -> None:
        w = RNG.standard_normal((4, 2))
        graph = graph_of(
            [Record("MATMUL", ["x"], ["w"], "y")], {"x": (3, 4), "w": np.float32(w)}, parameters="constants"
        )
        assert [value.name for value in graph.inputs] == ["x"]
        found = aicore.compile(graph, "cpu").run({"x": np.float32(X)})["y"]
        np.testing.assert_allclose(found, X @ w, rtol=1e-5)

    def test_origins_name_records(self) -> None:
        graph = graph_of([Record("RELU", ["x"], [], "y")], {"x": X})
        assert graph.nodes[0].origin.name == "record 0 (RELU)"

    def test_the_shape_of_a_result_may_be_given(self) -> None:
        records = [Record("MATMUL", ["x"], ["w"], "y")]
        tensors = {"x": (3, 4), "w": (4, 2)}
        assert graph_of(records, {**tensors, "y": (3, 2)}).outputs[0][0] == "y"
        assert graph_of(records, {**tensors, "y": ("n", 2)}).outputs[0][0] == "y"
        with pytest.raises(
            InferenceError, match=r"record 0 \(MATMUL\).*'y' is float32\[3,2\], and float32\[3,5\] is given"
        ):
            graph_of(records, {**tensors, "y": (3, 5)})


def refused(kind: str, extra: Any = None, inputs: Any = ("x",), params: Any = (), tensors: Any = None) -> Any:
    given = {"x": X, "s": SERIES, "i": IMAGE, "t": Y, "w": np.zeros((4, 2)), "u": np.zeros((5, 2))}
    return lambda: graph_of([Record(kind, inputs, params, "y", extra)], {**given, **(tensors or {})})


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (refused("RELUU"), UnsupportedError, r"record 0 \(RELUU\): there is no op_type 'RELUU'; known are MATMUL"),
        (refused("MATMUL"), ModelError, r"record 0 \(MATMUL\): 1 operands \['x'\], wants 2"),
        (refused("ADD"), ModelError, r"record 0 \(ADD\): 1 operands \['x'\], wants 2 or more"),
        (refused("CONV2D"), ModelError, r"record 0 \(CONV2D\): 1 operands \['x'\], wants 2 to 3"),
        (refused("RELU", inputs=["z"]), ModelError, r"record 0 \(RELU\): 'z' is neither a tensor that is given"),
        (refused("MATMUL", params=["u"]), InferenceError, r"record 0 \(MATMUL\).*inner dimensions differ"),
        (refused("RELU", {"alpha": 1}), ModelError, r"record 0 \(RELU\): there is no extra parameter 'alpha'"),
        (refused("ELU", {"alpah": 1}), ModelError, "no extra parameter 'alpah'; known are alpha"),
        (refused("ELU", {"alpha": "big"}), ModelError, "alpha is 'big', wants a number"),
        (refused("GELU", {"approximate": "sigmoid"}), ModelError, "approximate is 'sigmoid', wants 'tanh' or 'erf'"),
        (refused("SOFTMAX", {"temperature": 0}), ModelError, "temperature is 0.0, wants a number above 0"),
        (refused("SOFTMAX", {"axis": 1.5}), ModelError, "axis is 1.5, wants an integer"),
        (refused("SOFTMAX", {"axis": 2}), InferenceError, r"record 0 \(SOFTMAX\).*axis 2 is out of range"),
        (refused("POOL_MAX", inputs="i"), ModelError, "the extra parameter kernel is missing"),
        (refused("POOL_MAX", {"kernel": (2, 2, 2)}, "i"), ModelError, r"kernel is \(2, 2, 2\), wants one or two"),
        (refused("POOL_MAX", {"kernel": "2"}, "i"), ModelError, "kernel is '2', wants integers"),
        (refused("POOL_MAX", {"kernel": (2, 2.5)}, "i"), ModelError, r"kernel is \(2, 2.5\), wants integers"),
        (refused("POOL_MAX", {"kernel_h": 2}, "i"), ModelError, r"kernel is \(2,\), wants one or two"),
        (refused("POOL_MAX", {"kernel": 2, "stride": 0}, "i"), ModelError, r"stride is \(0, 0\), wants .* 1 or more"),
        (refused("POOL_MAX", {"kernel": 2, "padding": "full"}, "i"), ModelError, "padding is 'full', wants 'same'"),
        (refused("POOL_AVG", {"kernel": 2, "count_include_pad": 2}, "i"), ModelError, "count_include_pad is 2, wants"),
        (refused("SLICE_TIME", inputs="s"), ModelError, "extra parameter time or time_step .* is missing"),
        (refused("SLICE_TIME", {"time": 5}, "s"), ModelError, "time 5 is out of range for 5 steps"),
        (refused("SLICE_TIME", {"time": -6}, "s"), ModelError, "time -6 is out of range"),
        (refused("FILL_ZERO", inputs=[]), ModelError, "shape is None, wants integers"),
        (refused("FILL_ZERO", inputs=[], tensors={"y": ("n", 2)}), ModelError, r"shape is \('n', 2\), wants integers"),
        (refused("RNN", inputs="s", params=["w"]), ModelError, r"wants inputs \(x, initial state\?\) and params"),
        (refused("RNN", {"activation": "elu"}, "s", ["w", "u"]), ModelError, "activation is 'elu', wants one of tanh"),
        (refused("EMBEDDING", inputs=["x", "w"]), ModelError, r"wants one input \(indices\) and one param"),
        (refused("VIEW"), ModelError, "extra parameter shape is missing"),
        (refused("VIEW", {"shape": (5, 5)}), InferenceError, r"record 0 \(VIEW\).*cannot become"),
        (refused("PAD"), ModelError, "extra parameter pads or padding is missing"),
        (refused("SLICE", {"starts": 0}), ModelError, "extra parameter ends or end is missing"),
        (refused("LOSS", {"loss_type": "mse"}), ModelError, r"wants inputs \(prediction, target\), got \['x'\]"),
        (refused("LOSS", {}, ["x", "t"]), ModelError, "extra parameter loss_type or loss or kind is missing"),
        (refused("LOSS", {"loss_type": "l1"}, ["x", "t"]), ModelError, "loss_type is 'l1', wants one of mse, bce, cce"),
        (refused("LOSS", {"loss_type": "mse"}, ["x", "w"]), ModelError, "wants one shape"),
        (refused("LOSS", {"loss_type": "mse"}, ["x", "s"]), ModelError, "wants one shape"),
        (
            refused("LOSS", {"loss_type": "mse"}, ["x", "l"], tensors={"l": np.zeros((3, 4), np.int64)}),
            ModelError,
            "wants one type",
        ),
        (refused("IF", {"then": [], "otherwise": []}), ModelError, "the branch 'then' has no records"),
        (
            refused("IF", {"then": [Record("RELU", ["x"], [], "a")]}),
            ModelError,
            "parameter otherwise or else .* missing",
        ),
        (
            refused("IF", {"then": [Record("RELUU", ["x"], [], "a")], "else": [Record("RELU", ["x"], [], "a")]}),
            UnsupportedError,
            r"record 0 \(IF\), then: record 0 \(RELUU\): there is no op_type",
        ),
        (lambda: graph_of([], {}), ModelError, "there are no records"),
        (lambda: graph_of("RELU", {}), ModelError, "records are str, wants a list of records"),
        (lambda: graph_of([{"inputs": ["x"], "output_id": "y"}], {}), ModelError, "record 0: op_type is None"),
        (lambda: graph_of([{"op_type": 3, "output_id": "y"}], {}), ModelError, "record 0: op_type is 3, wants a name"),
        (
            lambda: graph_of([{"op_type": "RELU"}], {}),
            ModelError,
            r"record 0 \(RELU\): output_id is None, wants a name",
        ),
        (
            lambda: graph_of([{"op_type": "RELU", "inputs": [3], "output_id": "y"}], {}),
            ModelError,
            r"record 0 \(RELU\): inputs is \[3\], wants a list of names",
        ),
        (
            lambda: graph_of([{"op_type": "RELU", "inputs": 3, "output_id": "y"}], {}),
            ModelError,
            "inputs is 3, wants a list of names",
        ),
        (
            lambda: graph_of([Record("RELU", ["x"], [], "y")], {"x": 3.0}),
            ModelError,
            "tensor 'x' is 3.0, wants an array",
        ),
        (lambda: graph_of([Record("RELU", ["x"], [], "y")], {"x": X}, "z"), ModelError, "no record has the output 'z'"),
        (
            lambda: graph_of([Record("RELU", ["x"], [], "y")], {"x": X}, parameters="both"),  # type: ignore[arg-type]
            ModelError,
            "parameters='both' is neither",
        ),
        (
            lambda: graph_of([Record("ELU", [], ["x"], "y")], {"x": (3,)}, parameters="constants"),
            ModelError,
            "'x' is to be a constant, and no array is given for it",
        ),
        (
            lambda: graph_of([Record("RELU", ["b"], [], "a"), Record("RELU", ["x"], [], "b")], {"x": X}),
            ModelError,
            r"record 0 \(RELU\): 'b' is neither .* \(it is the output of record 1 \(RELU\), which comes later\)",
        ),
    ],
)
def test_refused(make: Callable[[], Any], error: type[AicoreError], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


def nested(depth: int) -> Record:
    """Relu inside of so many conditionals."""
    found = Record("RELU", ["x"], [], "y")
    for _ in range(depth):
        found = Record("IF", ["x"], [], "y", {"then": [found], "otherwise": [Record("TANH", ["x"], [], "y")]})
    return found


@pytest.mark.parametrize("read", [lambda records: graph_of(records, {"x": np.ones(1, np.float32)}), parameters_of])
def test_conditionals_end(read: Callable[[list[Record]], Any]) -> None:
    read([nested(MOST_NESTED - 1)])
    with pytest.raises(ModelError, match=f"record 0: conditionals are nested more than {MOST_NESTED} deep"):
        read([nested(MOST_NESTED)])
    endless = nested(1)
    endless.extra_params["then"].append(endless)
    with pytest.raises(ModelError, match=r"record 0 \(IF\), then: record 1: the record contains itself"):
        read([endless])
