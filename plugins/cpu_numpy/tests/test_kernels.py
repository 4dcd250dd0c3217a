"""The list of kernels: complete, without doubles, and found in every module."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest

from aicore.errors import PluginError
from aicore.ir import Op
from aicore.kernels import REFERENCE
from aicore.ops import CORE
from aicore.ops.base import Pointwise
from aicore_cpu_numpy import kernels
from aicore_cpu_numpy.kernels import all_kernels


def test_names_are_unique() -> None:
    counts = Counter((kernel.op, kernel.wraps, kernel.device, kernel.variant) for kernel in all_kernels())
    assert [key for key, count in counts.items() if count > 1] == []


def test_every_kernel_is_for_the_cpu() -> None:
    assert {kernel.device for kernel in all_kernels()} == {"cpu"}


@pytest.mark.parametrize("cls", [cls for cls in CORE.values() if issubclass(cls, Pointwise)])
def test_pointwise_ops_have_a_reference_and_a_fast_kernel(cls: type[Op]) -> None:
    variants = {kernel.variant for kernel in all_kernels() if kernel.op is cls}
    assert REFERENCE in variants
    assert len(variants) >= 2


@pytest.mark.parametrize("listed", [None, [], ("relu",)])
def test_a_module_without_a_list(listed: object, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("aicore_cpu_numpy.reference.broken")
    if listed is not None:
        vars(module)["KERNELS"] = listed
    monkeypatch.setattr(kernels, "_modules", lambda package: [module])
    with pytest.raises(PluginError, match=r"reference\.broken must list its kernels"):
        all_kernels()
