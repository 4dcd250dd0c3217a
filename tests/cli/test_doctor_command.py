"""`aicore plugins doctor`: exit status, table and JSON, with every plugin broken."""

from __future__ import annotations

import json
from typing import Any

ABSENT = """
from aicore.plugins import Probe, hookimpl

@hookimpl
def probe():
    return Probe(reason="no NPU on the bus", fix="plug one in")

@hookimpl
def launch(plan):
    return plan
"""
DEVICE = """
from types import SimpleNamespace
from aicore.plugins import Probe, hookimpl

class Device(SimpleNamespace):
    name = kind = "npu"
    fingerprint, static_shapes_only = "", False
    allocate = empty = upload = download = copy = synchronize = print

@hookimpl
def probe():
    return None

@hookimpl
def launch(plan):
    return plan
"""
INFO = "kind='device', devices=('npu',)"
HEAVY = {"numpy", "onnx", "aicore.ir", "aicore.ops", "aicore.kernels", "aicore.runtime", "aicore.api"}


def test_every_plugin_broken(command_line: Any, install: Any) -> None:
    install("deadly", "import ctypes; ctypes.string_at(0)", INFO)
    install("hanging", "import time; time.sleep(3600)", INFO)
    install("quitting", "raise SystemExit(0)", INFO)
    result = command_line("plugins", "doctor", "--timeout", "3")
    assert (result.status, result.err) == (1, "")
    lines = {line.split()[0]: line for line in result.out.splitlines() if line.strip()}
    assert "failed  crash" in lines["deadly"]
    assert "its import crashed with SIGSEGV" in lines["deadly"]
    assert "failed  hang" in lines["hanging"]
    assert "its import did not end within 3 s" in lines["hanging"]
    assert "failed  exit" in lines["quitting"]
    assert result.out.count("fix: ") == 3
    assert result.modules & HEAVY == set()


def test_json_and_details_of_one(command_line: Any, install: Any) -> None:
    install("deadly", "import os; os._exit(1)", INFO)
    install("broken", "import no_such_module", INFO)
    result = command_line("plugins", "doctor", "broken", "--json")
    assert result.status == 1
    answer = json.loads(result.out)
    assert (answer["status"], answer["environment"]) == ("failed", [])
    (plugin,) = answer["plugins"]
    assert {key: plugin[key] for key in ("name", "distribution", "version", "status", "class", "devices")} == {
        "name": "broken",
        "distribution": "dist-broken",
        "version": "1.5",
        "status": "failed",
        "class": "import error",
        "devices": [],
    }
    assert plugin["reason"] == "its import raised ModuleNotFoundError: No module named 'no_such_module'"
    assert plugin["fix"].startswith("pip install --force-reinstall dist-broken")
    assert "Traceback" in plugin["details"]
    assert plugin["seconds"] > 0
    assert "Traceback" in command_line("plugins", "doctor", "broken").out


def test_an_absent_device_is_status_2(command_line: Any, install: Any) -> None:
    install("npu", ABSENT, INFO)
    result = command_line("plugins", "doctor")
    assert (result.status, result.err) == (2, "")
    for text in ("unavailable  no device", "no NPU on the bus", "fix: plug one in"):
        assert text in result.out


def test_nothing_installed_is_status_1(command_line: Any) -> None:
    result = command_line("plugins", "doctor")
    assert result.status == 1
    assert "No plugin is installed, so no device can be used: install core and plugin in one command" in result.out


def test_health_is_status_0_and_an_unknown_name_an_error(command_line: Any, install: Any) -> None:
    source = "from aicore.plugins import hookimpl\n@hookimpl\ndef register_ops(): return []\n"
    install("tidy", source, "kind='transform'")
    result = command_line("plugins", "doctor", "tidy", "--json")
    assert (result.status, json.loads(result.out)["status"]) == (0, "ok")
    result = command_line("plugins", "doctor", "npu")
    assert (result.status, result.out) == (2, "")
    assert result.err == "aicore: error: no plugin 'npu' is installed; installed plugins: tidy\n"


def test_notes_on_a_device_that_can_be_used(command_line: Any, install: Any) -> None:
    source = DEVICE.replace("return None", "return Probe((Device(),), notes=('faster with libnpu', 'one fan is slow'))")
    install("npu", source, INFO)
    result = command_line("plugins", "doctor")
    assert result.status == 0
    for text in ("found npu", "faster with libnpu", "one fan is slow"):
        assert text in result.out
    (plugin,) = json.loads(command_line("plugins", "doctor", "--json").out)["plugins"]
    assert (plugin["status"], plugin["devices"]) == ("ok", ["npu"])
    assert plugin["notes"] == ["faster with libnpu", "one fan is slow"]
