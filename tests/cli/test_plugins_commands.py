"""`aicore plugins list` shows each plugin's state, and imports nothing that it need not."""

from __future__ import annotations

import json
from typing import Any

HEALTHY = """
from aicore.plugins import Probe, hookimpl

class Device:
    fingerprint = "fake"
    static_shapes_only = False

    def __init__(self, name):
        self.name, self.kind = name, name.partition(":")[0]

    def nothing(self, *arguments):
        raise NotImplementedError

    allocate = empty = upload = download = copy = synchronize = nothing

@hookimpl
def probe():
    return Probe((Device("npu"),))

@hookimpl
def launch(plan):
    return plan
"""
INFO = "kind='device', devices=('npu',), summary='Drives the NPU.', fixes={'libnpu': 'apt install libnpu'}"
HEAVY = {"numpy", "onnx", "ml_dtypes", "aicore.ir", "aicore.ops", "aicore.kernels", "aicore.runtime", "aicore.api"}


def test_the_list_imports_nothing_heavy_and_no_plugin(command_line: Any, install: Any) -> None:
    install("npu", "raise SystemExit('imported')", INFO, __init__="raise SystemExit('imported')")
    command_line("plugins", "list")  # from now on it is known what the plugin says about itself
    result = command_line("plugins", "list")
    assert (result.status, result.err) == (0, "")
    for word in ("npu", "1.5", "device", "compatible", "Drives the NPU."):
        assert word in result.out
    assert "aicore.plugins.discovery" in result.modules
    assert result.modules & (HEAVY | {"aicore.plugins.rehearsal", "aicore.plugins.child_process"}) == set()
    assert not any(name.startswith("npu_package") for name in result.modules)


def test_json_is_for_scripts(command_line: Any, install: Any) -> None:
    install("npu", "", INFO)
    install("skewed", "", "kind='transform', api_version=9")
    result = command_line("plugins", "list", "--json")
    answer = json.loads(result.out)
    assert answer["api_version"] == 1
    npu, skewed = answer["plugins"]
    assert npu == {
        "name": "npu",
        "distribution": "dist-npu",
        "version": "1.5",
        "kind": "device",
        "devices": ["npu"],
        "priority": 0,
        "state": "compatible",
        "class": "",
        "reason": "",
        "fix": "",
        "seconds": 0.0,
        "rehearsal": "",
        "summary": "Drives the NPU.",
        "requirements": [],
    }
    assert skewed["state"] == "incompatible"
    assert result.modules & (HEAVY | {"rich"}) == set()


def test_load_shows_final_states(command_line: Any, install: Any) -> None:
    install("good", HEALTHY, INFO)
    install("bad", "raise OSError('libnpu.so.2')", INFO)
    install("absent", HEALTHY.replace("return Probe(", "return Probe(reason='no NPU'); ("), INFO)
    result = command_line("plugins", "list", "--load", "--json")
    assert (result.status, result.err) == (0, "")
    found = {plugin["name"]: plugin for plugin in json.loads(result.out)["plugins"]}
    assert {name: plugin["state"] for name, plugin in found.items()} == {
        "absent": "unavailable",
        "bad": "failed",
        "good": "active",
    }
    assert found["bad"]["reason"] == "its import raised OSError: libnpu.so.2"
    assert found["bad"]["fix"] == "apt install libnpu"
    table = command_line("plugins", "list", "--load")
    for text in ("no NPU", "its import raised OSError: libnpu.so.2", "fix: apt install libnpu"):
        assert text in table.out


def test_without_plugins_it_says_what_to_install(command_line: Any) -> None:
    result = command_line("plugins", "list")
    assert result.status == 0
    assert "pip install . ./plugins/cpu_numpy" in result.out


def test_a_bad_variable_is_an_error_without_traceback(command_line: Any, install: Any) -> None:
    install("npu", "", INFO)
    result = command_line("plugins", "list", AICORE_PLUGINS="gpu")
    assert (result.status, result.out) == (2, "")
    assert result.err == "aicore: error: AICORE_PLUGINS names 'gpu'; installed plugins: npu\n"
    traced = command_line("plugins", "list", AICORE_PLUGINS="gpu", AICORE_DEBUG="1")
    assert traced.status == 2
    assert "Traceback" in traced.err


def test_disabled_plugins_are_listed_with_the_variable(command_line: Any, install: Any) -> None:
    install("npu", "", INFO)
    result = command_line("plugins", "list", AICORE_DISABLE_PLUGINS="npu")
    assert "disabled" in result.out
    assert "AICORE_DISABLE_PLUGINS lists it" in result.out
