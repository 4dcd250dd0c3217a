"""Which plugins are installed, and which of them fit this aicore, found without importing any of them."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import aicore
from aicore.config import Config
from aicore.errors import ConfigError, PluginError
from aicore.plugins.info import API_VERSION, PluginInfo
from aicore.plugins.states import PluginRecord, State

if TYPE_CHECKING:
    from typing import Protocol

    from importlib_metadata import EntryPoint

    class Distribution(Protocol):
        """The part of an installed distribution that aicore reads; importlib-metadata's own name for it varies."""

        @property
        def entry_points(self) -> Iterable[EntryPoint]: ...

        def read_text(self, filename: str, /) -> str | None: ...

        def locate_file(self, path: str, /) -> object: ...


PLUGINS = "aicore.plugins"
INFOS = "aicore.plugin_info"
COMMANDS = "aicore.commands"

_scan_lock = threading.Lock()


class Installed(NamedTuple):  # as in Candidate: a dataclass would cost discovery a millisecond
    """An entry point, and what its distribution's metadata says."""

    entry: EntryPoint
    distribution: str
    version: str
    requires: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.distribution} {self.version}"


class Candidate(NamedTuple):
    """A plugin and the call that imports it.

    item, info: its entry points in the groups of plugins and of infos; None when it was not installed but given as a
    module, or says nothing about itself.
    """

    record: PluginRecord
    load: Callable[[], object]
    item: Installed | None = None
    info: EntryPoint | None = None


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
        _candidate(item, infos.get((name, item.label)), rivals, config)
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


def read_info(entry: EntryPoint) -> PluginInfo:
    """Execute the info module alone: importing its package could import a GPU library, or crash."""
    module = sys.modules.get(entry.module)
    if module is None:
        spec = find_module(entry.module)
        if spec is None or spec.loader is None:
            raise PluginError(f"there is no module {entry.module}")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    info = attrgetter(entry.attr or "INFO")(module)
    if not isinstance(info, PluginInfo):
        raise PluginError(f"expected a PluginInfo, got {type(info).__name__}")
    return info


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
    """Name, version and requirements of the entry point's distribution, as far as they can be read."""
    fields = read_headers(entry.dist) if entry.dist else {}
    # Name and version are absent from a half-removed installation, which hides no other.
    return (
        fields.get("name", ["unknown distribution"])[0],
        fields.get("version", ["0"])[0],
        tuple(fields.get("requires-dist", ())),
    )


def read_headers(dist: Distribution) -> dict[str, list[str]]:
    """The fields of a distribution's metadata by name in lower case, without the description.

    The general parser costs more than all the rest of discovery, since it imports the email package and takes in the
    long description.
    """
    text = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""
    fields: dict[str, list[str]] = defaultdict(list)
    for line in text.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.lower()].append(value.strip())
    return dict(fields)


def _candidate(item: Installed, info: EntryPoint | None, rivals: list[Installed], config: Config) -> Candidate:
    return Candidate(_examine(item, info, rivals, config), item.entry.load, item, info)


def _examine(item: Installed, info: EntryPoint | None, rivals: list[Installed], config: Config) -> PluginRecord:
    name = item.entry.name
    record = PluginRecord(name, item.distribution, item.version)
    if reason := disabled_reason(name, config):
        return replace(record, state=State.DISABLED, finding="disabled", reason=reason)
    if len(rivals) > 1:
        return replace(
            record,
            state=State.FAILED,
            finding="conflict",
            reason=f"{len(rivals)} plugins have this name, of {' and '.join(rival.label for rival in rivals)}",
            fix=f"uninstall all but one of them, or set AICORE_DISABLE_PLUGINS={name}",
        )
    if reason := _unmet_requirement(item):
        return _skewed(record, reason)
    if info is None:
        return replace(record, state=State.COMPATIBLE)
    return _with_info(record, info)


def _with_info(record: PluginRecord, entry: EntryPoint) -> PluginRecord:
    try:
        info = read_info(entry)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001
        # Whatever a plugin does wrong, SystemExit included, the host goes on.
        reason = f"{entry.value} cannot be read: {type(error).__name__}: {error}"
        fix = upgrade_advice(record.distribution)
        return replace(record, state=State.FAILED, finding="import error", reason=reason, fix=fix)
    record = replace(record, info=info)
    if info.api_version != API_VERSION:
        reason = f"made for plugin API {info.api_version}, but aicore {core_version()} has {API_VERSION}"
        return _skewed(record, reason)
    return replace(record, state=State.COMPATIBLE)


def _skewed(record: PluginRecord, reason: str) -> PluginRecord:
    fix = upgrade_advice(record.distribution)
    return replace(record, state=State.INCOMPATIBLE, finding="API skew", reason=reason, fix=fix)


def find_module(name: str) -> ModuleSpec | None:
    """Where a module is, or None. Imports nothing, unlike `find_spec` of a dotted name."""
    top, *rest = name.split(".")
    spec = find_spec(top)
    for depth in range(1, len(rest) + 1):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = _find_below(".".join([top, *rest[:depth]]), list(spec.submodule_search_locations))
    return spec


def _find_below(name: str, folders: list[str]) -> ModuleSpec | None:
    """A submodule, looked for where it mostly is first, since a finder lists the whole folder."""
    stems = [os.path.join(folder, name.rpartition(".")[2]) for folder in folders]
    parts = [stem for stem in stems if os.path.isdir(stem)]
    if len(stems) == 1 and not parts and os.path.isfile(f"{stems[0]}.py"):
        return spec_from_file_location(name, f"{stems[0]}.py")
    if parts and not any(os.path.isfile(os.path.join(part, "__init__.py")) for part in parts):
        namespace = ModuleSpec(name, None, is_package=True)  # a finder would ask for its parent, which is not imported
        namespace.submodule_search_locations = parts
        return namespace
    return PathFinder.find_spec(name, folders)


def _unmet_requirement(item: Installed) -> str:
    """The requirement on aicore that this aicore does not meet, as a reason, or an empty text."""
    for text in item.requires:
        follower = text[len("aicore") : len("aicore") + 1]
        if not text.lower().startswith("aicore") or follower.isalnum() or follower in {"-", "_", "."}:
            continue
        if specifier := _unmet(text):
            return f"requires aicore{specifier}, but this is aicore {core_version()}"
    return ""


def _unmet(text: str) -> str:
    """The specifier of a requirement on aicore that this aicore does not meet, or an empty text."""
    version = core_version()
    if _plainly_met(text[len("aicore") :], version):
        return ""
    from packaging.requirements import InvalidRequirement, Requirement  # costs more than all the rest of discovery

    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return ""  # pip would not have installed it
    applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    met = not applies or requirement.specifier.contains(version, prereleases=True)
    return "" if met else str(requirement.specifier)


def _plainly_met(specifier: str, version: str) -> bool:
    """Whether a range such as `>=0.1,<2` of plain numbers holds. False when it does not, or is anything else."""
    clauses = [clause.strip() for clause in specifier.split(",")]
    return all(
        (clause.startswith(">=") and _release(clause[2:]) and _release(version) >= _release(clause[2:]))
        or (clause.startswith("<") and _release(clause[1:]) and () < _release(version) < _release(clause[1:]))
        for clause in clauses
    )


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a plain version, comparable as PEP 440 says: 0.1 is 0.1.0. Nothing for any other version."""
    numbers = version.strip().split(".")
    if not all(number.isdecimal() for number in numbers):
        return ()
    while len(numbers) > 1 and not int(numbers[-1]):
        numbers.pop()
    return tuple(map(int, numbers))


def upgrade_advice(distribution: str) -> str:
    """How to bring plugin and core together. Never from the index alone, which has an unrelated project `aicore`."""
    return f"pip install --upgrade {distribution}; or for aicore itself, in a checkout of it: git pull && pip install ."
