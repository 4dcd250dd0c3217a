"""Names of packages that load on first use."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from aicore import passes, plugins, tuning

PACKAGES = (passes, plugins, tuning)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_name_is_found(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert names
    assert all(getattr(package, name).__class__ is not type(sys) for name in names)  # the name, not a module called so


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_any_other_name_is_an_attribute_error(package: object) -> None:
    name = package.__name__  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'colour'"):
        importlib.import_module(name).colour  # noqa: B018  # reading it is the test


def test_compiling_needs_nothing_that_measures_or_compares() -> None:
    code = "import sys, aicore; aicore.compile; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "aicore.passes.pipeline" in loaded
    unwanted = {"aicore.tuning.tuner", "aicore.numerics", "aicore.passes.compare", "onnx", "typer", "rich"}
    assert unwanted.isdisjoint(loaded)
