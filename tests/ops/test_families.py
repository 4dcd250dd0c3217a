"""The table of families: every op once, in the module that defines it, and imported only when it is asked for."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import aicore.ops as ops
from aicore.ir import Builder, Op


def defined() -> dict[str, list[str]]:
    """Names of the public ops that each module of the package defines, in their order."""
    found = {}
    for one in pkgutil.iter_modules(ops.__path__):
        module = importlib.import_module(f"{ops.__name__}.{one.name}")
        found[one.name] = [name for name, item in vars(module).items() if is_op(name, item, module.__name__)]
    return {name: names for name, names in found.items() if names}


def is_op(name: str, item: object, module: str) -> bool:
    is_class = isinstance(item, type) and issubclass(item, Op) and "__dataclass_fields__" in vars(item)
    return is_class and not name.startswith("_") and item.__module__ == module


def test_the_table_has_every_op() -> None:
    assert {family: names.split() for family, names in ops.FAMILIES.items()} == defined()


def test_no_name_is_there_twice() -> None:
    names = [name for several in ops.FAMILIES.values() for name in several.split()]
    assert len(names) == len(set(names)) == len(ops.CORE)


def test_an_op_by_name() -> None:
    from aicore.ops.activation import Relu

    assert ops.CORE["Relu"] is Relu is ops.Relu
    assert "Relu" in ops.CORE
    assert next(iter(ops.CORE)) in ops.CORE


def test_every_op_is_listed() -> None:
    assert set(ops.CORE) < set(dir(ops))


def test_a_name_that_no_op_has() -> None:
    assert "Nonsense" not in ops.CORE
    assert ops.CORE.get("Nonsense") is None
    with pytest.raises(KeyError):
        _ = ops.CORE["Nonsense"]
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = ops.Nonsense
    with pytest.raises(AttributeError, match="no core op is called 'Nonsense'"):
        _ = Builder().Nonsense


def test_a_family_is_imported_when_it_is_needed() -> None:
    code = """
import sys
from aicore.ir import Builder
b = Builder()
b.Relu(b.input("x", "float32", (3,)))
print(*sorted(name for name in sys.modules if name.startswith("aicore.ops.")))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "aicore.ops.activation" in done.stdout
    assert "aicore.ops.recurrent" not in done.stdout
    assert "aicore.ops.optimizers" not in done.stdout
