"""The stand-in beside the real onnxruntime: the same client code on both, and the same answers."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as real
import pytest
from onnx import TensorProto, helper

from aicore.errors import AicoreError, InputError
from tests import onnx_models as models
from tests.compat.client import Client, K, X, feed, outcome, same, session


def arguments(node: Any) -> tuple[Any, ...]:
    return node.name, node.type, node.shape


DTYPES = ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32",
          "UINT64", "BOOL", "STRING"]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_have_the_same_names(ours: Any, dtype: str) -> None:
    model = models.identity(getattr(TensorProto, dtype))
    for ask in ("get_inputs", "get_outputs"):
        theirs = [arguments(node) for node in getattr(session(real, model), ask)()]
        assert [arguments(node) for node in getattr(session(ours, model), ask)()] == theirs


def test_inputs_and_outputs(ours: Any) -> None:
    for ask in ("get_inputs", "get_outputs", "get_overridable_initializers"):
        theirs = [arguments(node) for node in getattr(session(real), ask)()]
        assert [arguments(node) for node in getattr(session(ours), ask)()] == theirs


@pytest.mark.parametrize("model", [models.mixed(), models.bare()], ids=["says everything", "says nothing"])
def test_metadata(ours: Any, model: bytes) -> None:
    theirs, mine = session(real, model).get_modelmeta(), session(ours, model).get_modelmeta()
    names = [name for name in dir(theirs) if not name.startswith("_")]
    assert {name: getattr(mine, name) for name in names} == {name: getattr(theirs, name) for name in names}


GOOD_FEEDS: dict[str, Client] = {
    "arrays": lambda ort: session(ort).run(None, feed()),
    "nested lists": lambda ort: session(ort).run(None, feed(x=X.tolist(), k=K.tolist())),
    "whole numbers for floats": lambda ort: session(ort).run(["y"], feed(x=[[1, 2, 3]])),
    "no elements": lambda ort: session(ort).run(None, feed(x=X[:0])),
    "another stride": lambda ort: session(ort).run(None, feed(x=np.asfortranarray(X))),
    "a view": lambda ort: session(ort).run(None, feed(x=np.repeat(X, 2, axis=1)[:, ::2])),
    "an OrtValue": lambda ort: session(ort).run(None, feed(x=ort.OrtValue.ortvalue_from_numpy(X))),
    "one output": lambda ort: session(ort).run(["z"], feed()),
    "in another order": lambda ort: session(ort).run(["z", "y"], feed()),
    "one output twice": lambda ort: session(ort).run(["y", "y"], feed()),
    "a tuple of outputs": lambda ort: session(ort).run(("z",), feed()),
    "no outputs named": lambda ort: session(ort).run([], feed()),
    "run options": lambda ort: session(ort).run(None, feed(), ort.RunOptions()),
    "ort values": lambda ort: [
        value.numpy()
        for value in session(ort).run_with_ort_values(
            ["y"], {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feed().items()}
        )
    ],
}


@pytest.mark.parametrize("client", GOOD_FEEDS.values(), ids=GOOD_FEEDS.keys())
def test_results(ours: Any, client: Client) -> None:
    theirs, mine = client(real), client(ours)
    assert isinstance(mine, list)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        same(a, b)


ERRORS: dict[str, Client] = {
    "wrong dtype": lambda ort: session(ort).run(None, feed(x=X.astype(np.float64))),
    "wrong integers": lambda ort: session(ort).run(None, feed(k=K.astype(np.int32))),
    "wrong rank": lambda ort: session(ort).run(None, feed(x=X[0])),
    "wrong dim": lambda ort: session(ort).run(None, feed(x=X[:, :2])),
    "missing input": lambda ort: session(ort).run(None, {"x": X}),
    "extra input": lambda ort: session(ort).run(None, feed(w=X)),
    "unknown output": lambda ort: session(ort).run(["nope"], feed()),
    "outputs as one text": lambda ort: session(ort).run("y", feed()),
    "a feed that is no mapping": lambda ort: session(ort).run(None, [X]),
    "terminated": lambda ort: session(ort).run(None, feed(), _terminating(ort)),
    "missing file": lambda ort: ort.InferenceSession("/nowhere/model.onnx"),
    "garbage": lambda ort: session(ort, b"garbage"),
    "truncated": lambda ort: session(ort, models.mixed()[:-40]),
    "no model": lambda ort: ort.InferenceSession(None),
    "a number": lambda ort: ort.InferenceSession(5),
    "a bytearray": lambda ort: ort.InferenceSession(bytearray(models.mixed())),
    "shapes that contradict": lambda ort: session(ort, _contradiction()),
    "no such entry": lambda ort: ort.SessionOptions().get_session_config_entry("nope"),
    "no such run entry": lambda ort: ort.RunOptions().get_run_config_entry("nope"),
    "a misspelt option": lambda ort: setattr(ort.SessionOptions(), "intra_op_threads", 1),
    "another session's binding": lambda ort: session(ort).run_with_iobinding(session(ort).io_binding()),
}


def _terminating(ort: Any) -> Any:
    options = ort.RunOptions()
    options.terminate = True
    return options


def _contradiction() -> bytes:
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    inputs = [models.value("a", shape=[2, 3]), models.value("b", shape=[4, 5])]
    return models.model([node], inputs, [models.value("y", shape=[2, 5])]).SerializeToString()


@pytest.mark.parametrize("client", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_caught_by_the_same_names(ours: Any, client: Client) -> None:
    theirs, mine = outcome(client, real), outcome(client, ours)
    assert isinstance(theirs, list), "the real one raises"
    assert theirs[0] in mine


def test_errors_name_what_does_not_fit(ours: Any) -> None:
    with pytest.raises(AicoreError, match=r"'x'.*float32\[batch,3\].*float64\[2,3\]") as caught:
        session(ours).run(None, feed(x=X.astype(np.float64)))
    assert isinstance(caught.value.__cause__, InputError)


DIFFERENT: dict[str, tuple[Client, str]] = {
    "the real one rounds 1.5 to 1": (lambda ort: session(ort).run(["z"], feed(k=[[1.5, 2.0]])), "InvalidArgument"),
    "the real one knows it only at run time": (lambda ort: session(ort).run(None, feed(x=None)), "InvalidArgument"),
    "the real one raises a bare RuntimeError": (lambda ort: session(ort).run(None, feed(x="text")), "InvalidArgument"),
    "an unknown operator is no error of the graph": (lambda ort: session(ort, _unknown_op()), "NotImplemented"),
}


def _unknown_op() -> bytes:
    node = helper.make_node("NoSuchOp", ["x"], ["y"])
    return models.model([node], [models.value("x", shape=[1])], [models.value("y", shape=[1])]).SerializeToString()


@pytest.mark.parametrize(("client", "name"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_errors_that_differ_on_purpose(ours: Any, client: Client, name: str) -> None:
    assert outcome(client, ours)[0] == name
    assert outcome(client, real) != outcome(client, ours)


def test_more_goes_in_than_the_real_one_takes(ours: Any) -> None:
    (expected,) = session(real).run(["y"], feed())
    for given in (feed(s=2.0), feed(s=np.float32(2.0)), feed(x=tuple(map(tuple, X.tolist()))), feed(x=X.astype(">f4"))):
        same(session(ours).run(["y"], given)[0], expected)


# What the real classes have beyond: machinery of its own (captured graphs, packages, tuning, devices of its plugins).
BEYOND = {
    "InferenceSession": {
        "create_ortvalue_from_shape_and_type", "get_input_epdevices", "get_input_memory_infos",
        "get_output_memory_infos", "get_provider_graph_assignment_info", "get_tuning_results", "release_captured_graph",
        "run_with_ortvaluevector", "set_ep_dynamic_options", "set_tuning_results",
    },
    "SessionOptions": {
        "add_external_initializers_from_files_in_memory", "add_provider_for_devices", "clear_ep_context_data_read_func",
        "set_ep_context_data_read_func", "set_load_cancellation_flag", "set_provider_selection_policy",
        "set_provider_selection_policy_delegate",
    },
    "RunOptions": {"add_active_adapter"},
    "OrtValue": {
        "as_sparse_tensor", "from_dlpack", "ort_value_from_sparse_tensor", "ortvalue_from_numpy_with_onnx_type",
    },
    "IOBinding": {"get_outputs_as_ortvaluevector"},
    "NodeArg": set(),
    "ModelMetadata": set(),
}  # fmt: skip


@pytest.mark.parametrize("name", BEYOND)
def test_what_the_classes_offer(ours: Any, name: str) -> None:
    theirs = {key for key in dir(getattr(real, name)) if not key.startswith("_")}
    mine = set(dir(getattr(ours, name))) | set(getattr(getattr(ours, name), "__dataclass_fields__", ()))
    assert theirs - mine == BEYOND[name] & theirs


@pytest.mark.parametrize("method", ["run", "run_with_ort_values", "run_async", "run_with_iobinding", "set_providers"])
def test_methods_take_the_same_arguments(ours: Any, method: str) -> None:
    theirs = inspect.signature(getattr(real.InferenceSession, method)).parameters
    assert list(inspect.signature(getattr(ours.InferenceSession, method)).parameters) == list(theirs)


def test_the_constructor_takes_the_same_arguments(ours: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.mixed())
    options = ours.SessionOptions()
    for made in (
        ours.InferenceSession(str(path)),
        ours.InferenceSession(path, options, ["CPUExecutionProvider"]),
        ours.InferenceSession(
            path_or_bytes=models.mixed(), sess_options=options, providers=None, provider_options=None
        ),
        ours.InferenceSession(
            models.mixed(), providers=[("CPUExecutionProvider", {"arena": 1})], disabled_optimizers=[]
        ),
    ):
        same(made.run(["z"], feed())[0], -K)
    assert made.get_session_options() is not options


def test_exceptions_have_the_same_names(ours: Any) -> None:
    mine = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    theirs = real.capi.onnxruntime_pybind11_state
    assert mine is not theirs
    names = {name for name in dir(theirs) if _is_exception(getattr(theirs, name))}
    assert names >= {"Fail", "InvalidArgument"}
    for name in names:
        assert issubclass(getattr(mine, name), AicoreError)
        assert getattr(mine, name).__name__ == name


def _is_exception(item: Any) -> bool:
    return isinstance(item, type) and issubclass(item, Exception)


def test_run_async(ours: Any) -> None:
    def client(ort: Any, names: list[str]) -> tuple[Any, ...]:
        done = threading.Event()
        heard: list[Any] = []

        def callback(results: Any, data: Any, problem: str) -> None:
            heard.extend([results, data, problem])
            done.set()

        session(ort).run_async(names, feed(), callback, "mine")
        assert done.wait(60)
        return tuple(heard)

    (theirs, data, problem), mine = client(real, ["y"]), client(ours, ["y"])
    same(mine[0][0], theirs[0])
    assert (mine[1], mine[2]) == (data, problem)
    assert "Invalid output name" in client(ours, ["nope"])[2]


def test_threads_share_a_session(ours: Any) -> None:
    made = session(ours)
    inputs = [X * i for i in range(1, 9)]
    expected = [made.run(["y"], feed(x=x))[0] for x in inputs]
    wrong: list[int] = []

    def work(i: int) -> None:
        results = [made.run(["y"], feed(x=inputs[i]))[0] for _ in range(20)]
        wrong.extend(i for result in results if not np.array_equal(result, expected[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_results_are_the_caller_s(ours: Any) -> None:
    made = session(ours)
    (first,) = made.run(["y"], feed())
    kept = first.copy()
    made.run(["y"], feed(x=X * 3))
    same(first, kept)
