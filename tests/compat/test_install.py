"""What `install` puts in place of onnxruntime, and that it gives everything back."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import onnxruntime as real
import pytest

from aicore.compat.onnxruntime import Installation, install
from tests import onnx_models as models


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
