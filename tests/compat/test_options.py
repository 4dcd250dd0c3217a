"""Options and providers: the same names and defaults, honoured, kept, or refused aloud."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from typing import Any

import onnxruntime as real
import pytest

from aicore.errors import AicoreError, PluginError
from tests import onnx_models as models
from tests.compat.client import K, X, feed, same, session


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
    assert str(made.program.placement).startswith("fake_gpu 2/2 nodes")
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
