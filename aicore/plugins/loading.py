"""Import one plugin, check its hooks, and collect everything that it registers, without publishing any of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pluggy

from aicore.errors import AicoreError, PluginError, error_text
from aicore.plugins import hookspecs
from aicore.plugins.checks import check_devices, check_kernel, check_kernel_item, check_op, check_order, check_pass
from aicore.plugins.device_names import parse_device
from aicore.plugins.hookspecs import HOOKS, PROJECT, Probe
from aicore.plugins.info import PluginInfo
from aicore.records import dataclass

if TYPE_CHECKING:
    from aicore.ir import Op
    from aicore.kernels import Kernel, KernelFamily
    from aicore.passes import Pass
    from aicore.runtime import Device, Executable, Plan

IMPORT = "its import"
"""The first step of loading a plugin, as messages name it."""


class UnavailableError(PluginError):
    """The plugin is healthy, but finds no device."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.fix = fix


@dataclass(frozen=True)
class Contribution:
    """What one plugin registers; checked in itself, not yet against other plugins. notes: as in Probe."""

    devices: tuple[Device, ...] = ()
    ops: tuple[type[Op], ...] = ()
    kernels: tuple[Kernel | KernelFamily, ...] = ()
    passes: tuple[Pass, ...] = ()
    launch: Callable[[Plan], Executable] | None = None
    notes: tuple[str, ...] = ()

    def drives(self, kind: str) -> bool:
        """Whether it has a device of this kind."""
        return any(parse_device(device.name).kind == kind for device in self.devices)


def load_plugin(
    name: str, load: Callable[[], object], info: PluginInfo | None, begin: Callable[[str], None] | None = None
) -> Contribution:
    """Import, check and ask one plugin. Nothing outside of it changes.

    begin: told `its import`, then the name of each hook, before it runs.
    Raises UnavailableError when it finds no device, and PluginError, with the original as its cause, for anything else
    that its code raises, SystemExit included.
    """
    if begin:
        begin(IMPORT)
    with step(IMPORT):
        plugin = load()
    # Names, iteration and representation of what the plugin gives are code of the plugin, too.
    with step("checking what it implements"):
        # A manager for each plugin: its hooks are called alone, and a bad one never touches the others.
        manager = _checked(name, plugin)
    if begin:
        manager.add_hookcall_monitoring(lambda hook, implementations, arguments: begin(hook), lambda *_: None)
    _check_kind(manager, info)
    with step("checking what it returned"):
        devices, notes = _probe(manager, info)
        ops = _listed(manager, "register_ops", check_op)
        kernels = _registered(name, _listed(manager, "register_kernels", check_kernel_item), begin is not None)
        passes = _listed(manager, "register_passes", check_pass)
        if passes:
            check_order(passes)
    launch = _launcher(manager, name) if devices else None
    return Contribution(devices, tuple(ops), tuple(kernels), tuple(passes), launch, notes)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Turn whatever a plugin's code raises into a PluginError that says which step failed."""
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit, PluginError):
        raise
    except BaseException as error:
        raise PluginError(f"{what} raised {error_text(error)}") from error


def _checked(name: str, plugin: object) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginError(" ".join(str(error).split())) from error
    unmarked = [hook for hook in HOOKS if callable(getattr(plugin, hook, None)) and not _implements(manager, hook)]
    if unmarked:
        raise PluginError(f"{unmarked[0]} is not marked with @hookimpl, so it would never be called")
    if not any(_implements(manager, hook) for hook in HOOKS):
        raise PluginError(f"it implements none of the hooks {', '.join(HOOKS)}")
    return manager


def _implements(manager: pluggy.PluginManager, hook: str) -> bool:
    return bool(getattr(manager.hook, hook).get_hookimpls())


def _check_kind(manager: pluggy.PluginManager, info: PluginInfo | None) -> None:
    probes, launches = _implements(manager, "probe"), _implements(manager, "launch")
    if probes != launches:
        present, absent = ("probe", "launch") if probes else ("launch", "probe")
        raise PluginError(f"it implements {present} without {absent}; a device plugin needs both")
    if info is None or (info.kind == "device") == probes:
        return
    has = "implements" if probes else "does not implement"
    raise PluginError(f"INFO says kind={info.kind!r}, but it {has} probe and launch")


def _probe(manager: pluggy.PluginManager, info: PluginInfo | None) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Devices and notes."""
    if not _implements(manager, "probe"):
        return (), ()
    found = _call(manager, "probe")
    if not isinstance(found, Probe):
        raise PluginError(f"probe returned {type(found).__name__}; return a Probe")
    if not found.devices:
        raise UnavailableError(found.reason, found.fix)
    check_devices(found.devices, info)
    return tuple(found.devices), tuple(found.notes)


def _listed(manager: pluggy.PluginManager, hook: str, check: Callable[[Any], None]) -> list[Any]:
    """What a register hook returned, each item checked; nothing when the plugin does not implement it."""
    if not _implements(manager, hook):
        return []
    items = _call(manager, hook)
    if not isinstance(items, (list, tuple)):
        raise PluginError(f"{hook} returned {type(items).__name__}; return a list")
    items = list(items)
    for item in items:
        check(item)
    return items


def _registered(plugin: str, items: Iterable[Any], rehearsal: bool) -> list[Kernel | KernelFamily]:
    """The kernels as the plugin's own. A rehearsal imports all of them, since any process may."""
    from aicore.kernels import Kernel, load_kernels  # see _launcher

    found = [i.of_plugin(plugin) if isinstance(i, Kernel) else i.of_plugin(plugin, check_kernel) for i in items]
    if rehearsal:
        load_kernels(found)
    return found


def _call(manager: pluggy.PluginManager, hook: str) -> object:
    with step(hook):
        return getattr(manager.hook, hook)()


def _launcher(manager: pluggy.PluginManager, name: str) -> Callable[[Plan], Executable]:
    from aicore.runtime import Executable  # needs NumPy, which listing plugins does not

    def launch(plan: Plan) -> Executable:
        try:
            executable = manager.hook.launch(plan=plan)
        except (AicoreError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raise PluginError(f"plugin {name} could not launch: {error_text(error)}") from error
        if not isinstance(executable, Executable):
            what = "None" if executable is None else f"{type(executable).__name__}, which is no Executable"
            raise PluginError(f"plugin {name} could not launch: launch returned {what}")
        return executable

    return launch
