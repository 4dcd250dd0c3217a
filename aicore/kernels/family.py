"""Kernels that are imported when one of their ops is first asked for: a process runs few of the ops that there are."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from aicore.collector import keep_for_good
from aicore.errors import PluginError, error_text
from aicore.kernels.kernel import Kernel
from aicore.records import dataclass


def _accept(_: object) -> None:
    """The check of a family that nobody registered."""


@dataclass(frozen=True, eq=False)
class KernelFamily:
    """The kernels of one module. A plugin's `register_kernels` may return it in their place.

    module: its full name; it lists them as `KERNELS`, a tuple.
    device: kind of device of all of them.
    ops: names of the classes of ops that they compute; of a kernel that wraps an op, the name of that.
    plugin, check: the plugin that registered it, and what raises PluginError for a bad kernel; set by the registry.
    """

    module: str
    device: str
    ops: frozenset[str]
    plugin: str = ""
    check: Callable[[Any], None] = _accept

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels, imported at the first call.

        Raises PluginError when that fails, or when the module has others than this says.
        """
        found: tuple[Kernel, ...] | None = self.__dict__.get("_loaded")
        if found is None:
            found = self.__dict__.setdefault("_loaded", self._load())  # of two threads at once, one's are everybody's
        return found

    def _load(self) -> tuple[Kernel, ...]:
        try:
            found = getattr(importlib.import_module(self.module), "KERNELS", None)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit too, which would end the program
            raise PluginError(f"{self}: its import raised {error_text(error)}") from error
        keep_for_good()
        if not isinstance(found, tuple):
            raise PluginError(f"{self}: the module must list its kernels: KERNELS: tuple[Kernel, ...]")
        for kernel in found:
            if not isinstance(kernel, Kernel):
                raise PluginError(f"{self}: KERNELS has {kernel!r}, which is no Kernel; make one with @kernel")
            self.check(kernel)
            if kernel.device != self.device or kernel.computes not in self.ops:
                what = f"{kernel.computes} on {kernel.device}"
                raise PluginError(f"{self}: {kernel.variant!r} is for {what}, which the family does not name")
        return tuple(kernel.of_plugin(self.plugin) for kernel in found) if self.plugin else found

    def of_plugin(self, name: str, check: Callable[[Any], None]) -> KernelFamily:
        """The same family, registered by the plugin of this name."""
        return replace(self, plugin=name, check=check)

    def __str__(self) -> str:
        owner = f" of plugin {self.plugin}" if self.plugin else ""
        return f"kernels {self.module}{owner}"


def load_kernels(items: Iterable[Kernel | KernelFamily]) -> tuple[Kernel, ...]:
    """All kernels, those of families imported."""
    return tuple(kernel for item in items for kernel in kernels_of(item))


def kernels_of(item: Kernel | KernelFamily) -> tuple[Kernel, ...]:
    """A kernel alone, or those of a family, imported."""
    return item.kernels if isinstance(item, KernelFamily) else (item,)


def op_names(item: Kernel | KernelFamily) -> frozenset[str]:
    """Names of the classes of ops that it computes, as `KernelFamily.ops` has them."""
    return item.ops if isinstance(item, KernelFamily) else frozenset((item.computes,))
