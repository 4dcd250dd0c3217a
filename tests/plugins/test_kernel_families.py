"""Plugins that return families of kernels: imported when they are needed, compared where others have the same op."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aicore
import aicore_cpu_numpy.plugin
from aicore.errors import PluginError
from aicore.ir import Builder, Graph
from aicore.kernels import KernelFamily
from aicore.plugins import PluginRegistry, State, hookimpl
from tests.plugins.conftest import TRANSFORM_PLUGIN

FAMILY = """
import numpy as np
from aicore.kernels import kernel
from aicore.ops.activation import {op}

@kernel({op}, device="cpu", variant="{variant}", estimate=lambda op, x: 0.0)
def quick(op, x, *, out):
    np.{function}(x, out=out)

KERNELS = (quick,)
"""
PLUGIN = """
from aicore.kernels import KernelFamily
from aicore.plugins import hookimpl

@hookimpl
def register_kernels():
    return [KernelFamily("{module}", "cpu", frozenset({{"{op}"}}))]
"""


def install(environment: Any, name: str, op: str, variant: str, code: str = FAMILY) -> str:
    """Install a transform plugin with a family; returns the family's module."""
    module = f"dist_{name}_package.family"
    environment.install(name, PLUGIN.format(module=module, op=op))
    place = environment.folder / f"dist_{name}_package" / "family.py"
    place.write_text(code.format(op=op, variant=variant, function="tanh"))
    return module


def registry(environment: Any) -> PluginRegistry:
    """The installed plugins, and the CPU's."""
    environment.install(
        "cpu", "from aicore_cpu_numpy.plugin import *", info="kind='device', devices=('cpu',)", distribution="dist-cpu"
    )
    found: PluginRegistry = environment.registry()
    return found


def graph(op: str) -> Graph:
    b = Builder()
    x = b.input("x", "float32", (3,))
    return b.graph((x,), {"y": getattr(b, op)(x)})


X = np.array([-1, 2, -3], np.float32)


def test_a_family_is_imported_for_its_op(environment: Any) -> None:
    module = install(environment, "quick", "Softsign", "quick")
    found = registry(environment)
    aicore.compile(graph("Relu"), "cpu", registry=found).run({"x": X})
    program = aicore.compile(graph("Softsign"), "cpu", registry=found, optimize=False)
    assert np.array_equal(program.run({"x": X})["y"], np.tanh(X))
    assert module in sys.modules
    (kernel,) = [one for one in found.kernels if one.variant == "quick"]
    assert kernel.plugin == "quick"


def test_what_nothing_asks_for_is_not_imported(environment: Any) -> None:
    code = FAMILY.replace("Softsign", "{op}") + "raise RuntimeError('imported')\n"
    module = install(environment, "quick", "MyOwn", "quick", code)
    found = registry(environment)
    assert found.plugin("quick").state is State.ACTIVE
    aicore.compile(graph("Relu"), "cpu", registry=found).run({"x": X})
    assert module not in sys.modules
    with pytest.raises(PluginError, match=f"kernels {module} of plugin quick: its import raised ImportError"):
        _ = found.kernels


def test_two_plugins_with_one_kernel_of_families(environment: Any) -> None:
    for name in ("one", "other"):
        install(environment, name, "Softsign", "quick")
    found = registry(environment)
    for name in ("one", "other"):
        with pytest.raises(PluginError, match=r"kernel 'quick' of Softsign on cpu is registered by one .* and other"):
            found.plugin(name)


def test_a_family_that_cannot_be_imported_to_be_compared_fails_its_plugin_alone(environment: Any) -> None:
    module = install(environment, "broken", "Softsign", "other", "raise RuntimeError('no such kernel')")
    install(environment, "quick", "Softsign", "quick")
    found = registry(environment)
    reason = f"kernels {module} of plugin broken: its import raised RuntimeError: no such kernel"
    with pytest.raises(PluginError, match=reason):
        found.plugin("broken")
    (record,) = [one for one in found.activate().records if one.name == "broken"]
    assert (record.state, record.finding, record.reason) == (State.FAILED, "broken hook", reason)
    program = aicore.compile(graph("Softsign"), "cpu", registry=found, optimize=False)
    assert np.array_equal(program.run({"x": X})["y"], np.tanh(X))


def test_a_rehearsal_imports_every_family(environment: Any) -> None:
    """What kills the process does so in the child."""
    install(environment, "deadly", "MyOwn", "quick", "import ctypes; ctypes.string_at(0)")
    (record,) = environment.registry(environment.rehearsing()).activate().records
    assert record.state is State.FAILED
    assert record.finding == "crash"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"module": ""}, "module is ''; it must be the full name of a module"),
        ({"module": 3}, "module is 3"),
        ({"device": "cuda:0"}, "device is 'cuda:0'; it must be a kind of device"),
        ({"ops": frozenset()}, r"ops is frozenset\(\); it must be a frozenset of names of ops"),
        ({"ops": ["Relu"]}, r"ops is \['Relu'\]"),
        ({"ops": frozenset({3})}, "ops is"),
    ],
)
def test_what_is_no_family(fields: dict[str, Any], problem: str) -> None:
    family = KernelFamily(**{"module": "m", "device": "cpu", "ops": frozenset({"Relu"}), **fields})

    @hookimpl
    def register_kernels() -> list[KernelFamily]:
        return [family]

    plugins = {"cpu_numpy": aicore_cpu_numpy.plugin, "odd": SimpleNamespace(register_kernels=register_kernels)}
    found = PluginRegistry.from_modules(plugins)
    with pytest.raises(PluginError, match=f"register_kernels returned a family whose {problem}"):
        found.plugin("odd")
    program = aicore.compile(graph("Relu"), "cpu", registry=found)
    assert program.run({"x": X})["y"].tolist() == [0, 2, 0]


def test_other_plugins_are_what_they_were(environment: Any) -> None:
    environment.install("plain", TRANSFORM_PLUGIN)
    assert registry(environment).plugin("plain").state is State.ACTIVE
