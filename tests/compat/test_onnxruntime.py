"""The stand-in beside the real onnxruntime: the same client code on both, and the same answers."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as real
import pytest
from onnx import TensorProto, helper

from aicore.compat.onnxruntime import Installation, install
from aicore.errors import AicoreError, InputError, PluginError
from tests import onnx_models as models

Client = Callable[[Any], Any]
X = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]], np.float32)
K = np.array([[1, -2]], np.int64)
S = np.array(2.0, np.float32)


@pytest.fixture
def ours() -> Iterator[Any]:
    """The stand-in, in place of the real module."""
    with install(target="cpu") as installation:
        yield installation.module


def feed(**changes: Any) -> dict[str, Any]:
    return {"x": X, "k": K, "s": S, **changes}


def session(ort: Any, model: bytes | None = None, **options: Any) -> Any:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    return ort.InferenceSession(model or models.mixed(), settings, providers=["CPUExecutionProvider"], **options)


def outcome(client: Client, ort: Any) -> Any:
    """What the client gets, or the classes of the error that it has to catch."""
    try:
        return client(ort)
    except Exception as error:  # noqa: BLE001  # its class is what is compared
        return [cls.__name__ for cls in type(error).__mro__]


def same(a: Any, b: Any) -> None:
    np.testing.assert_equal(a, b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype


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


@pytest.mark.parametrize("name", ["GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder"])
def test_choices(ours: Any, name: str) -> None:
    theirs, mine = getattr(real, name), getattr(ours, name)
    assert {choice.name: int(choice.value) for choice in mine} == {k: int(v) for k, v in theirs.__members__.items()}
    for choice in theirs.__members__.values():
        assert mine(int(choice)).name == choice.name


@pytest.mark.parametrize("name", ["SessionOptions", "RunOptions"])
def test_options_and_their_defaults(ours: Any, name: str) -> None:
    def settings(ort: Any) -> dict[str, Any]:
        options = getattr(ort, name)()
        names = [key for key in dir(options) if not key.startswith("_") and not callable(getattr(options, key))]
        return {key: _plain(getattr(options, key)) for key in names}

    assert settings(ours) == settings(real)


def _plain(option: Any) -> Any:
    return option if isinstance(option, bool | str) else int(option)


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


BINDINGS: dict[str, Callable[[Any, Any], Any]] = {
    "fresh outputs": lambda ort, binding: [binding.bind_output("y"), binding.bind_output("z", "cpu")],
    "an OrtValue for an output": lambda ort, binding: binding.bind_ortvalue_output(
        "y", ort.OrtValue.ortvalue_from_shape_and_type((2, 3), np.float32, "cpu", 0)
    ),
}


@pytest.mark.parametrize("bind", BINDINGS.values(), ids=BINDINGS.keys())
def test_io_binding(ours: Any, bind: Callable[[Any, Any], Any]) -> None:
    def client(ort: Any) -> list[Any]:
        made = session(ort)
        binding = made.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_ortvalue_input("k", ort.OrtValue.ortvalue_from_numpy(K))
        binding.bind_input("s", "cpu", 0, np.float32, (), S.ctypes.data)
        bind(ort, binding)
        made.run_with_iobinding(binding)
        return [*binding.copy_outputs_to_cpu(), *(value.numpy() for value in binding.get_outputs())]

    for a, b in zip(client(ours), client(real), strict=True):
        same(a, b)


@pytest.mark.parametrize("element_type", [np.float32, TensorProto.FLOAT], ids=["numpy", "onnx"])
def test_an_output_goes_to_the_memory_that_is_bound(ours: Any, element_type: Any) -> None:
    for ort in (real, ours):
        made, into = session(ort), np.zeros((2, 3), np.float32)
        binding = made.io_binding()
        for name, array in feed().items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("y", "cpu", 0, element_type, (2, 3), into.ctypes.data)
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(into, np.maximum(X, 0) * 2)


def test_bindings_that_do_not_fit(ours: Any) -> None:
    binding = session(ours).io_binding()
    with pytest.raises(AicoreError, match="no input is called 'nope'"):
        binding.bind_cpu_input("nope", X)
    with pytest.raises(AicoreError, match="no output is called 'nope'"):
        binding.bind_output("nope")
    with pytest.raises(AicoreError, match="memory of 'fake' by its address"):
        binding.bind_input("x", "fake", 0, np.float32, (2, 3), X.ctypes.data)
    with pytest.raises(AicoreError, match="no plugin drives device 'npu'"):
        binding.bind_output("y", "npu")
    with pytest.raises(AicoreError, match="77 is no element type"):
        binding.bind_input("x", "cpu", 0, 77, (2, 3), X.ctypes.data)
    for name, array in feed().items():
        binding.bind_cpu_input(name, array)
    binding.bind_ortvalue_output("y", ours.OrtValue.ortvalue_from_shape_and_type((9, 9)))
    with pytest.raises(AicoreError, match=r"output 'y' is float32\[2, 3\], bound is float32\[9, 9\]"):
        session_of(binding).run_with_iobinding(binding)


def session_of(binding: Any) -> Any:
    return binding._session


def test_ort_values(ours: Any) -> None:
    def client(ort: Any) -> list[Any]:
        array = X.copy()  # the real one does not keep it alive
        value = ort.OrtValue.ortvalue_from_numpy(array)
        value.update_inplace(X * 2)
        questions = ("shape", "data_type", "element_type", "device_name", "has_value", "is_tensor", "is_sparse_tensor",
                     "is_tensor_sequence", "tensor_size_in_bytes")  # fmt: skip
        said = [getattr(value, question)() for question in questions]
        return [array, value.numpy(), *said]

    for a, b in zip(client(ours), client(real), strict=True):
        same(a, b)
    array = X.copy()
    value = ours.OrtValue.ortvalue_from_numpy(array)
    assert value.data_ptr() == array.ctypes.data
    before = value.numpy()
    value.update_inplace(X * 2)
    same(before, X)  # the real one changes arrays that it gave away
    assert np.shares_memory(np.from_dlpack(value), array)
    assert ours.OrtValue.ortvalue_from_shape_and_type((2,), TensorProto.INT64).data_type() == "tensor(int64)"
    with pytest.raises(AicoreError, match=r"float32\[2, 3\], it cannot become float64\[2, 3\]"):
        value.update_inplace(X.astype(np.float64))


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


def test_options_are_honoured(ours: Any) -> None:
    options = ours.SessionOptions()
    options.graph_optimization_level = ours.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_free_dimension_override_by_name("batch", 2)
    options.add_provider("CPUExecutionProvider", {})
    made = ours.InferenceSession(models.mixed(), options)
    assert options.has_providers()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert made.get_inputs()[0].shape == [2, 3]
    assert "fuse-pointwise" not in str(made.program.explain())
    same(made.run(["z"], feed())[0], -K)
    with pytest.raises(AicoreError, match="'x'"):
        made.run(None, feed(x=X[:1]))


def test_options_are_the_session_s_own(ours: Any) -> None:
    options = ours.SessionOptions()
    made = ours.InferenceSession(models.mixed(), options)
    options.add_free_dimension_override_by_name("batch", 5)
    options.graph_optimization_level = ours.GraphOptimizationLevel.ORT_DISABLE_ALL
    made.set_providers(["CPUExecutionProvider"])
    assert made.get_session_options().graph_optimization_level == ours.GraphOptimizationLevel.ORT_ENABLE_ALL


def test_options_that_are_refused(ours: Any) -> None:
    options = ours.SessionOptions()
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    for ask in (
        lambda: options.register_custom_ops_library("ops.so"),
        lambda: options.add_initializer("w", X),
        lambda: options.add_external_initializers(["w"], [X]),
        lambda: options.add_free_dimension_override_by_denotation("DATA_BATCH", 1),
    ):
        with pytest.raises(state.NotImplemented):
            ask()


def test_files_that_are_not_written_are_said_to_be(ours: Any) -> None:
    options = ours.SessionOptions()
    options.optimized_model_filepath = "optimised.onnx"
    with pytest.warns(UserWarning, match=r"writes no 'optimised\.onnx'") as caught:
        ours.InferenceSession(models.mixed(), options)
    assert caught[0].filename == __file__
    options = ours.SessionOptions()
    options.enable_profiling = True
    with pytest.warns(UserWarning, match="writes no profile"):
        assert ours.InferenceSession(models.mixed(), options).end_profiling() == ""


@pytest.fixture
def free() -> Iterator[Any]:
    """The stand-in whose sessions follow the providers that the client names."""
    with install() as installation:
        yield installation.module


def test_providers(free: Any) -> None:
    assert set(free.get_available_providers()) >= {"CPUExecutionProvider", "FakeExecutionProvider"}
    assert free.get_device() == real.get_device() == "CPU"
    made = free.InferenceSession(models.mixed())
    assert made.get_providers() == session(real).get_providers() == ["CPUExecutionProvider"]
    assert made.get_provider_options() == session(real).get_provider_options()
    made.set_providers([("FakeExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"])
    assert made.get_providers() == ["FakeExecutionProvider", "CPUExecutionProvider"]
    assert made.get_provider_options()["FakeExecutionProvider"] == {"device_id": "0"}
    same(made.run(["z"], feed())[0], -K)
    assert str(made.program.placement).startswith("fake 2/2 nodes")
    made = free.InferenceSession(models.mixed(), providers=["FakeExecutionProvider"], provider_options=[{}])
    assert made.program.device.name.startswith("fake")


def test_a_provider_that_is_not_here_is_a_warning_and_then_the_next(free: Any) -> None:
    with warnings.catch_warnings(record=True) as theirs:
        warnings.simplefilter("always")
        assert real.InferenceSession(models.mixed(), providers=["CUDAExecutionProvider"]).get_providers() == [
            "CPUExecutionProvider"
        ]
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not available") as mine:
        made = free.InferenceSession(models.mixed(), providers=["CUDAExecutionProvider"])
    assert made.get_providers() == ["CPUExecutionProvider"]
    assert [w.category for w in mine] == [w.category for w in theirs]
    assert mine[0].filename == __file__


def test_fallback_policy_holds_for_providers(free: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICORE_FALLBACK", "quiet")
    assert free.InferenceSession(models.mixed(), providers=["Cuda"]).get_providers() == ["CPUExecutionProvider"]
    monkeypatch.setenv("AICORE_FALLBACK", "error")
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    with pytest.raises(state.EPFail, match="AICORE_FALLBACK=error"):
        free.InferenceSession(models.mixed(), providers=["CUDAExecutionProvider"])


def test_aicore_target_is_the_default_provider(free: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from aicore.plugins import registry as process

    monkeypatch.setenv("AICORE_TARGET", "fake")
    process._discovered.cache_clear()
    try:
        assert free.InferenceSession(models.mixed()).get_providers()[0] == "FakeExecutionProvider"
    finally:
        process._discovered.cache_clear()


@pytest.mark.parametrize(
    ("providers", "options"),
    [
        ("CPUExecutionProvider", None),
        (3, None),
        ([3], None),
        ([("CPUExecutionProvider",)], None),
        (["CPUExecutionProvider"], [{}, {}]),
        ([("CPUExecutionProvider", {})], [{}]),
    ],
)
def test_arguments_that_are_no_providers(free: Any, providers: Any, options: Any) -> None:
    with pytest.raises(ValueError, match="provider"):
        free.InferenceSession(models.mixed(), None, providers, options)


def test_without_any_device_it_says_what_to_install(free: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from aicore.compat.onnxruntime import providers
    from aicore.plugins import PluginRegistry

    empty = PluginRegistry.from_modules({})
    monkeypatch.setattr(providers, "plugin_registry", lambda: empty)
    with pytest.raises(AicoreError, match="pip install") as caught:
        free.InferenceSession(models.mixed())
    assert isinstance(caught.value.__cause__, PluginError)
    with pytest.warns(UserWarning, match="available: none"), pytest.raises(AicoreError, match="pip install"):
        free.InferenceSession(models.mixed(), providers=["CPUExecutionProvider"])


def test_install_and_uninstall() -> None:
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "onnxruntime"}
    with install() as installation:
        import onnxruntime

        assert onnxruntime is installation.module
        assert onnxruntime.get_build_info().startswith("aicore")
        assert importlib.util.find_spec("onnxruntime") is not None
        from onnxruntime import InferenceSession, SessionOptions  # noqa: F401
        from onnxruntime.capi import _pybind_state, onnxruntime_pybind11_state

        assert _pybind_state.InvalidArgument is onnxruntime_pybind11_state.InvalidArgument
        with pytest.raises(ImportError, match="LoraAdapter"):
            from onnxruntime import LoraAdapter  # noqa: F401
        with pytest.raises(AttributeError, match="aicore stands in for onnxruntime and has no 'nope'"):
            _ = onnxruntime.nope
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("onnxruntime.quantization")
        for name in ("disable_telemetry_events", "set_seed", "set_default_logger_severity", "preload_dlls"):
            assert getattr(onnxruntime, name)(3) is None
    after = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "onnxruntime"}
    assert after == before
    installation.uninstall()
    assert sys.modules["onnxruntime"] is real


def test_it_is_undone_after_an_error() -> None:
    with pytest.raises(KeyError), install():
        raise KeyError
    assert sys.modules["onnxruntime"] is real


@pytest.mark.parametrize("order", [(2, 1, 0), (0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_installations_nest_and_are_undone_in_any_order(order: tuple[int, ...]) -> None:
    installed: list[Installation] = [install() for _ in range(3)]
    active = list(installed)
    for i in order:
        installed[i].uninstall()
        active.remove(installed[i])
        expected = active[-1].module if active else real
        assert sys.modules["onnxruntime"] is expected
    assert sys.modules["onnxruntime.capi"] is real.capi


def test_a_target_holds_for_subclasses_too() -> None:
    with install(target="fake") as installation:

        class Mine(installation.module.InferenceSession):  # type: ignore[name-defined, misc]
            pass

        made = Mine(models.mixed(), providers=["CPUExecutionProvider"])
        assert isinstance(made, installation.module.InferenceSession)
        assert type(made).__mro__[1].__name__ == "InferenceSession"
        assert made.get_providers() == ["FakeExecutionProvider", "CPUExecutionProvider"]
        assert made.program.device.kind == "fake"


def test_a_target_that_cannot_be_used_is_an_error() -> None:
    with install(target="npu") as installation:
        state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
        with pytest.raises(state.EPFail, match="npu"):
            installation.module.InferenceSession(models.mixed())


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
