"""The plugins in use. They are activated once, and every failure is kept and raised again when it is asked for."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from aicore.config import Config, from_environment
from aicore.errors import PluginError
from aicore.plugins.activation import Activated, OwnedDevice, activate
from aicore.plugins.device_names import find_device, parse_device
from aicore.plugins.discovery import Candidate, check_selection, disabled_reason, discover
from aicore.plugins.info import PluginInfo
from aicore.plugins.states import PluginRecord, State

if TYPE_CHECKING:
    from aicore.ir import Op
    from aicore.kernels import Kernel, KernelFamily
    from aicore.passes import Pass
    from aicore.runtime import Device, Executable, Plan

INSTALL_HINT = (
    "install core and plugin in one command, from a checkout of aicore: `pip install . ./plugins/cpu_numpy` "
    "(the distributions aicore and aicore-cpu-numpy)"
)


class TargetChoice(NamedTuple):
    """A device's name, and the one line that says why it was chosen."""

    device: str
    text: str


class PluginRegistry:
    """Plugins, their states, and what they registered. Safe to use from several threads.

    `records` leaves the plugins alone; everything else activates them first.
    """

    def __init__(self, candidates: Iterable[Candidate], config: Config) -> None:
        self._candidates = tuple(candidates)
        self._config = config
        self._lock = threading.RLock()
        self._activating = False
        self._activated: Activated | None = None

    @classmethod
    def discover(cls, config: Config | None = None) -> PluginRegistry:
        """A registry of the installed plugins.

        Raises ConfigError when the configuration names a plugin that is not installed.
        """
        config = from_environment() if config is None else config
        return cls(discover(config), config)

    @classmethod
    def from_modules(
        cls,
        modules: Mapping[str, object],
        *,
        infos: Mapping[str, PluginInfo] | None = None,
        config: Config | None = None,
    ) -> PluginRegistry:
        """A registry of plugins given as modules by name; no entry point is read, and no other plugin is used.

        infos: what the plugins say about themselves; where absent, a module's own INFO if it has one.
        Raises ConfigError when the configuration names a plugin that is not given, PluginError for an INFO of another
        type.
        """
        config = Config() if config is None else config
        check_selection(config, modules)
        return cls([_given(name, module, (infos or {}).get(name), config) for name, module in modules.items()], config)

    @property
    def records(self) -> tuple[PluginRecord, ...]:
        """Every plugin and its state so far. Imports none of them."""
        activated = self._activated
        if activated is not None:
            return activated.records
        return tuple(candidate.record for candidate in self._candidates)

    def activate(self) -> Activated:
        """Load every usable plugin, once, and return what came of it.

        A plugin that fails raises nothing here: it is logged, and raised where it or its device is asked for.
        """
        activated = self._activated
        if activated is not None:
            return activated
        with self._lock:
            if self._activating:
                raise PluginError("a plugin asks for the registry while it is being loaded; its hooks must only return")
            if self._activated is None:
                with self.loading():
                    self._activated = activate(self._candidates, self._config)
            return self._activated

    @contextmanager
    def loading(self) -> Iterator[None]:
        """While plugins are loaded, other threads wait for the registry, and a plugin that asks for it is refused."""
        with self._lock:
            self._activating = True
            try:
                yield
            finally:
                self._activating = False

    @property
    def ops(self) -> Mapping[str, type[Op]]:
        """Ops of active plugins by name; the core's own are not among them."""
        return self.activate().ops

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels of active plugins; each names its plugin."""
        from aicore.kernels import load_kernels  # needs NumPy, which listing plugins does not

        return load_kernels(self.kernel_items)

    @property
    def kernel_items(self) -> tuple[Kernel | KernelFamily, ...]:
        """The same, with families that nothing has asked for left unimported."""
        return self.activate().kernels

    @property
    def passes(self) -> tuple[Pass, ...]:
        """Passes of active plugins."""
        return self.activate().passes

    def devices(self) -> Mapping[str, tuple[PluginRecord, Device]]:
        """Usable devices by name, each with the plugin that launches it."""
        return {name: (owned.record, owned.device) for name, owned in self.activate().devices.items()}

    def plugin(self, name: str) -> PluginRecord:
        """The record of an active plugin. Raises PluginError with reason and fix for any other."""
        activated = self.activate()
        record = next((record for record in activated.records if record.name == name), None)
        if record is None:
            known = ", ".join(record.name for record in activated.records) or "none"
            raise PluginError(f"no plugin {name!r} is installed; installed plugins: {known}")
        if record.state is not State.ACTIVE:
            raise PluginError(record.explain()) from activated.causes.get(name)
        return record

    def device_name(self, name: str) -> str:
        """The full name of the usable device that `name` means, such as `cuda:0` for `cuda`.

        Raises PluginError with reason and fix when it cannot be used, and never answers with another device.
        """
        activated = self.activate()
        found = find_device(name, [*activated.devices, *activated.contested])
        if found is None:
            raise _unusable(name, activated)
        if found in activated.contested:
            raise PluginError(activated.contested[found].reason)
        return found

    def device(self, name: str) -> Device:
        """The device of this name. Raises PluginError as `device_name` does."""
        return self._owned(name).device

    def launcher(self, name: str) -> Callable[[Plan], Executable]:
        """The launch hook of the plugin that owns the device. Raises PluginError as `device_name` does."""
        return self._owned(name).launch

    def default_target(self) -> TargetChoice:
        """AICORE_TARGET if it is set, else the device of the highest priority; equal ones go by name, and it says so.

        Raises PluginError when AICORE_TARGET cannot be used, when there is no device, or when the best is contested.
        """
        if self._config.target is not None:
            name = self.device_name(self._config.target)
            return TargetChoice(name, f"target {name}: AICORE_TARGET asks for it")
        activated = self.activate()
        ranked = sorted(activated.devices, key=lambda n: (-_priority(activated, n), parse_device(n).position))
        contest = max(activated.contested.values(), key=lambda contest: contest.priority, default=None)
        if contest is not None and (not ranked or contest.priority >= _priority(activated, ranked[0])):
            raise PluginError(contest.reason)
        if not ranked:
            raise _nothing_usable(activated)
        return TargetChoice(ranked[0], _why(activated, ranked))

    def _owned(self, name: str) -> OwnedDevice:
        return self.activate().devices[self.device_name(name)]


def _priority(activated: Activated, device: str) -> int:
    return activated.devices[device].record.priority


def _why(activated: Activated, ranked: list[str]) -> str:
    name, record = ranked[0], activated.devices[ranked[0]].record
    others = [n for n in ranked if parse_device(n).kind != parse_device(name).kind]
    tied = [n for n in others if _priority(activated, n) == record.priority]
    tie = f", as {', '.join(tied)} has; the first by name is taken" if tied else ""
    failed = [r.name for r in activated.records if r.state is State.FAILED]
    warning = f"; failed plugins: {', '.join(failed)}" if failed else ""
    return f"target {name}: {record.label} has the highest priority, {record.priority}{tie}{warning}"


def _unusable(name: str, activated: Activated) -> PluginError:
    kind = parse_device(name).kind
    claimants = [r for r in activated.records if kind in r.devices and r.state is not State.ACTIVE]
    if claimants:
        error = PluginError(f"device {name!r} cannot be used: " + "; ".join(r.explain() for r in claimants))
        error.__cause__ = next((activated.causes[r.name] for r in claimants if r.name in activated.causes), None)
        return error
    if not activated.devices:
        return _nothing_usable(activated)
    usable = ", ".join(activated.devices)
    owned = [n for n, owned in activated.devices.items() if owned.record.name == name]
    hint = f"; {name!r} is a plugin, of device {owned[0]!r}" if owned else ""
    return PluginError(f"no plugin drives device {name!r}; usable devices: {usable}{hint}{_out_of_use(activated)}")


def _nothing_usable(activated: Activated) -> PluginError:
    if not activated.records:
        return PluginError(f"no plugin that drives a device is installed; {INSTALL_HINT}")
    disabled = all(
        record.state is State.DISABLED for record in activated.records
    )  # then they say what to do themselves
    return PluginError(
        f"no installed plugin has a usable device{_out_of_use(activated)}{'' if disabled else f'; {INSTALL_HINT}'}"
    )


def _out_of_use(activated: Activated) -> str:
    """Plugins out of use, each with its reason, to end a message with."""
    return "".join(f"; {record.explain()}" for record in activated.records if record.state is not State.ACTIVE)


def _given(name: str, module: object, info: PluginInfo | None, config: Config) -> Candidate:
    reason = disabled_reason(name, config)
    record = PluginRecord(
        name,
        distribution=getattr(module, "__name__", name),
        version="given as a module",
        state=State.DISABLED if reason else State.COMPATIBLE,
        finding="disabled" if reason else "",
        reason=reason,
        info=info or _own_info(name, module),
    )
    return Candidate(record, lambda: module)


def _own_info(name: str, module: object) -> PluginInfo | None:
    info = getattr(module, "INFO", None)
    if info is not None and type(info) is not PluginInfo:
        raise PluginError(f"INFO of the module given as {name} is a {type(info).__name__}; it must be a PluginInfo")
    return info


_process_lock = threading.RLock()
_stand_in: PluginRegistry | None = None
_discovering = False


def plugin_registry() -> PluginRegistry:
    """The registry of this process, made at the first call from the environment as it is then.

    Raises PluginError when a plugin's info module asks for it, which is executed to make it.
    """
    global _discovering  # noqa: PLW0603  # as the cache of `_discovered`, of this process
    with _process_lock:  # the cache alone would let two threads make one each
        if _stand_in is not None:
            return _stand_in
        if _discovering:
            raise PluginError("an info module asks for the registry; it must only define INFO")
        _discovering = True
        try:
            return _discovered()
        finally:
            _discovering = False


def stand_in() -> PluginRegistry:
    """A registry without plugins that is this process's from now on: for a child process that loads given ones."""
    global _stand_in  # noqa: PLW0603  # see plugin_registry
    _stand_in = PluginRegistry((), Config())
    return _stand_in


@functools.cache
def _discovered() -> PluginRegistry:
    return PluginRegistry.discover()
