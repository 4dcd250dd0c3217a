"""Which plugins are installed, and which of them fit this aicore, found without importing any of them."""

from __future__ import annotations

import functools
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from operator import attrgetter
from typing import TYPE_CHECKING

import aicore
from aicore.config import Config
from aicore.errors import ConfigError, PluginError
from aicore.plugins.info import API_VERSION, PluginInfo
from aicore.plugins.states import PluginRecord, State

if TYPE_CHECKING:
    from importlib_metadata import EntryPoint

PLUGINS = "aicore.plugins"
INFOS = "aicore.plugin_info"
COMMANDS = "aicore.commands"

_scan_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Installed:
    """An entry point, and what its distribution's metadata says."""

    entry: EntryPoint
    distribution: str
    version: str
    requires: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An installed plugin and the call that imports it."""

    record: PluginRecord
    load: Callable[[], object]


def core_version() -> str:
    """Version of the aicore that runs: asked of the code, since another distribution of that name may be installed."""
    return aicore.__version__


def installed(group: str) -> list[Installed]:
    """Entry points of one group, by name. The environment is scanned once per process, at the first call."""
    with _scan_lock:
        found = _scan()
    return [item for item in found if item.entry.group == group]


def discover(config: Config) -> tuple[Candidate, ...]:
    """Every installed plugin by name, up to the state compatible, disabled, incompatible or failed.

    Raises ConfigError when `config` selects or disables a plugin that is not installed.
    """
    by_name: dict[str, list[Installed]] = defaultdict(list)
    for item in installed(PLUGINS):
        by_name[item.entry.name].append(item)
    check_selection(config, by_name)
    infos = {(item.entry.name, item.label): item.entry for item in installed(INFOS)}
    return tuple(
        Candidate(_examine(item, infos.get((name, item.label)), rivals, config), item.entry.load)
        for name, rivals in by_name.items()
        for item in rivals
    )


def check_selection(config: Config, installed: Iterable[str]) -> None:
    """Raise ConfigError when AICORE_PLUGINS or AICORE_DISABLE_PLUGINS has a name that is not installed."""
    names = sorted(installed)
    for variable, wanted in (
        ("AICORE_PLUGINS", config.plugins or ()),
        ("AICORE_DISABLE_PLUGINS", config.disabled_plugins),
    ):
        if unknown := sorted(set(wanted) - set(names)):
            raise ConfigError(f"{variable} names {unknown[0]!r}; installed plugins: {', '.join(names) or 'none'}")


def disabled_reason(name: str, config: Config) -> str:
    """The variable that excludes this plugin, or an empty text."""
    if name in config.disabled_plugins:
        return "AICORE_DISABLE_PLUGINS lists it"
    if config.plugins is not None and name not in config.plugins:
        return "AICORE_PLUGINS does not list it"
    return ""


@functools.cache
def _scan() -> tuple[Installed, ...]:
    import importlib_metadata  # costs 50 ms that `import aicore` must not pay

    origins: dict[int, tuple[str, str, tuple[str, ...]]] = {}
    found = []
    for entry in importlib_metadata.entry_points():
        if entry.group in (PLUGINS, INFOS, COMMANDS):
            origin = origins.get(id(entry.dist)) or _read_metadata(entry)
            origins[id(entry.dist)] = origin
            found.append(Installed(entry, *origin))
    return tuple(sorted(found, key=lambda item: (item.entry.name, item.label)))


def _read_metadata(entry: EntryPoint) -> tuple[str, str, tuple[str, ...]]:
    """Name, version and requirements of the entry point's distribution, as far as they can be read.

    Reads the headers themselves: the general parser costs more than all the rest of discovery, since it imports the
    email package and takes in the long description.
    """
    dist = entry.dist
    text = dist and (dist.read_text("METADATA") or dist.read_text("PKG-INFO"))
    fields: dict[str, list[str]] = defaultdict(list)
    for line in (text or "").partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.lower()].append(value.strip())
    names, versions = fields["name"], fields["version"]  # absent from a half-removed installation, which hides no other
    return (
        names[0] if names else "unknown distribution",
        versions[0] if versions else "0",
        tuple(fields["requires-dist"]),
    )


def _examine(item: Installed, info: EntryPoint | None, rivals: list[Installed], config: Config) -> PluginRecord:
    name = item.entry.name
    record = PluginRecord(name, item.distribution, item.version)
    if reason := disabled_reason(name, config):
        return replace(record, state=State.DISABLED, reason=reason)
    if len(rivals) > 1:
        return replace(
            record,
            state=State.FAILED,
            reason=f"{len(rivals)} plugins have this name, of {' and '.join(rival.label for rival in rivals)}",
            fix=f"uninstall all but one of them, or set AICORE_DISABLE_PLUGINS={name}",
        )
    if reason := _unmet_requirement(item):
        return replace(record, state=State.INCOMPATIBLE, reason=reason, fix=_upgrade(item.distribution))
    if info is None:
        return replace(record, state=State.COMPATIBLE)
    return _with_info(record, info)


def _with_info(record: PluginRecord, entry: EntryPoint) -> PluginRecord:
    try:
        info = _read_info(entry)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001
        # Whatever a plugin does wrong, SystemExit included, the host goes on.
        reason = f"{entry.value} cannot be read: {type(error).__name__}: {error}"
        return replace(record, state=State.FAILED, reason=reason, fix=_upgrade(record.distribution))
    record = replace(record, info=info)
    if info.api_version != API_VERSION:
        reason = f"made for plugin API {info.api_version}, but aicore {core_version()} has {API_VERSION}"
        return replace(record, state=State.INCOMPATIBLE, reason=reason, fix=_upgrade(record.distribution))
    return replace(record, state=State.COMPATIBLE)


def _read_info(entry: EntryPoint) -> PluginInfo:
    """Execute the info module alone: importing its package could import a GPU library, or crash."""
    module = sys.modules.get(entry.module)
    if module is None:
        spec = _find_module(entry.module)
        if spec is None or spec.loader is None:
            raise PluginError(f"there is no module {entry.module}")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    info = attrgetter(entry.attr or "INFO")(module)
    if not isinstance(info, PluginInfo):
        raise PluginError(f"expected a PluginInfo, got {type(info).__name__}")
    return info


def _find_module(name: str) -> ModuleSpec | None:
    top, *rest = name.split(".")
    spec = find_spec(top)  # imports nothing, unlike find_spec of a dotted name
    for depth in range(len(rest)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join([top, *rest[: depth + 1]]), list(spec.submodule_search_locations))
    return spec


def _unmet_requirement(item: Installed) -> str:
    """The requirement on aicore that this aicore does not meet, as a reason, or an empty text."""
    from packaging.requirements import InvalidRequirement, Requirement  # only the scan needs it

    version = core_version()
    for text in item.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # about another package, or pip would not have installed it
        if requirement.name.lower() != "aicore":
            continue
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and not requirement.specifier.contains(version, prereleases=True):
            return f"requires aicore{requirement.specifier}, but this is aicore {version}"
    return ""


def _upgrade(distribution: str) -> str:
    return f"pip install --upgrade aicore {distribution}"
