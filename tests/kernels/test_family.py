"""Families of kernels: imported when one of their ops is asked for, and what they may not be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from aicore.errors import PluginError
from aicore.kernels import REFERENCE, Kernel, KernelFamily, KernelTable, kernel, load_kernels
from aicore.ops.activation import Relu, Tanh
from aicore.ops.matmul import MatMul

MODULE = "family_of_a_test"


def family() -> KernelFamily:
    return KernelFamily(MODULE, "cpu", frozenset({"Relu"}))


def nothing(op: Any, x: Any) -> Any:
    return x


def made(cls: Any, variant: str = REFERENCE, **options: Any) -> Kernel:
    found: Kernel = kernel(cls, **{"device": "cpu", "variant": variant, **options})(nothing)
    return found


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the family's module one with this list."""

    def make(listed: object) -> None:
        module = ModuleType(MODULE)
        module.KERNELS = listed  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, MODULE, module)

    return make


def test_an_op_finds_its_family(module: Callable[..., None]) -> None:
    ours = made(Relu)
    module((ours,))
    assert KernelTable([family()]).find(Relu, "cpu") == (ours,)


def test_a_family_of_other_ops_is_left_alone() -> None:
    table = KernelTable([family()])  # its module does not exist
    assert table.find(Tanh, "cpu") == ()
    assert table.find(Relu, "cuda") == ()
    assert table.has("cpu")
    assert not table.has("cuda")
    assert table.packages("cpu") == {MODULE}
    with pytest.raises(PluginError, match="kernels family_of_a_test: its import raised ModuleNotFoundError"):
        table.find(Relu, "cpu")


def test_kernels_keep_the_order_in_which_they_were_registered(module: Callable[..., None]) -> None:
    first, inside, last = made(Relu, "first"), made(Relu, "inside"), made(Relu, "last")
    module((inside,))
    table = KernelTable([first, family(), last])
    assert table.find(Relu, "cpu") == (first, inside, last)
    assert list(table) == [first, inside, last]
    assert len(table) == 3


def test_precision_counts_in_families_too(module: Callable[..., None]) -> None:
    plain, lower = made(Relu), made(Relu, "lower", precision="tf32")
    module((plain, lower))
    assert KernelTable.of_precision([family()], "float32").find(Relu, "cpu") == (plain,)
    assert KernelTable.of_precision([family()], "tf32").find(Relu, "cpu") == (plain, lower)
    assert len(KernelTable.of_precision([family()], "float32")) == 1


def test_registered_kernels_name_their_plugin(module: Callable[..., None]) -> None:
    module((made(Relu),))
    (found,) = load_kernels([family().of_plugin("mine", lambda item: None)])
    assert found.plugin == "mine"


def test_a_kernel_is_checked_when_it_is_imported(module: Callable[..., None]) -> None:
    module((made(Relu),))

    def check(item: Any) -> None:
        raise PluginError(f"{item.variant} is not liked")

    with pytest.raises(PluginError, match="reference is not liked"):
        load_kernels([family().of_plugin("mine", check)])


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        (None, r"of plugin mine: the module must list its kernels: KERNELS"),
        ([], r"of plugin mine: the module must list its kernels: KERNELS"),
        (("relu",), r"KERNELS has 'relu', which is no Kernel; make one with @kernel"),
        ((made(MatMul),), r"'reference' is for MatMul on cpu, which the family does not name"),
        ((made(Relu, device="cuda"),), r"'reference' is for Relu on cuda, which the family does not name"),
    ],
)
def test_what_is_no_family(module: Callable[..., None], listed: object, problem: str) -> None:
    module(listed)
    with pytest.raises(PluginError, match=problem):
        load_kernels([family().of_plugin("mine", lambda item: None)])


def test_an_interrupt_is_no_fault_of_the_family(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_kernels([family()])


def test_a_module_that_ends_the_process_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.import_module", lambda name: sys.exit(3))
    with pytest.raises(PluginError, match="its import raised SystemExit"):
        load_kernels([family()])
