"""Which plugins are installed, and which of them fit this aicore, found without importing any of them."""

from __future__ import annotations

import functools
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, NamedTuple

import aicore
from aicore.config import Config
from aicore.errors import ConfigError, error_text
from aicore.plugins.distributions import Entry, OddError, normalized, plain_distributions, search_path
from aicore.plugins.info import API_VERSION
from aicore.plugins.states import PluginRecord, State

if TYPE_CHECKING:
    from importlib_metadata import EntryPoint

    from aicore.plugins.distributions import Distribution, PlainDistribution
    from aicore.plugins.info_rehearsal import Introduction


PLUGINS = "aicore.plugins"
INFOS = "aicore.plugin_info"
COMMANDS = "aicore.commands"
_GROUPS = (PLUGINS, INFOS, COMMANDS)

_scan_lock = threading.Lock()


class Installed(NamedTuple):  # as in Candidate: a dataclass would cost discovery a millisecond
    """An entry point, and what its distribution's metadata says."""

    entry: Entry
    distribution: str
    version: str
    requires: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.distribution} {self.version}"


class Candidate(NamedTuple):
    """A plugin and the call that imports it.

    item: its entry point; None when it was not installed but given as a module.
    """

    record: PluginRecord
    load: Callable[[], object]
    item: Installed | None = None


def core_version() -> str:
    """Version of the aicore that runs: asked of the code, since another distribution of that name may be installed."""
    return aicore.__version__


def installed(group: str) -> list[Installed]:
    """Entry points of one group, by name. The environment is scanned once per process, at the first call.

    A distribution whose metadata cannot be read is left out, logged, and among `ruins`; it hides no other.
    """
    with _scan_lock:
        found = _scan().found
    return [item for item in found if item.entry.group == group]


def discover(config: Config, afresh: Collection[str] = ()) -> tuple[Candidate, ...]:
    """Every installed plugin by name, up to the state compatible, disabled, incompatible or failed.

    afresh: plugins that are asked again what they say about themselves, whatever is remembered.
    Raises ConfigError when `config` selects or disables a plugin that is not installed.
    """
    by_name: dict[str, list[Installed]] = defaultdict(list)
    for item in installed(PLUGINS):
        by_name[item.entry.name].append(item)
    check_selection(config, by_name)
    records = [(item, _examine(item, rivals, config)) for rivals in by_name.values() for item in rivals]
    modules = {(item.entry.name, item.label): item for item in installed(INFOS)}
    infos = {
        record.name: modules[record.name, item.label]
        for item, record in records
        if record.state is State.COMPATIBLE and (record.name, item.label) in modules
    }
    introductions = _introductions(infos, config, afresh)
    return tuple(
        Candidate(
            _introduced(record, introductions[record.name]) if record.name in infos else record, item.entry.load, item
        )
        for item, record in records
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


def ruins() -> tuple[Ruin, ...]:
    """Distributions that the scan left out; it is made at the first call of this or of `installed`."""
    with _scan_lock:
        return _scan().ruins


def find_distribution(name: str) -> Distribution | None:
    """The installed distribution of this name, or None."""
    with _scan_lock:
        known = _scan().distributions
    if known is not None:
        return known.get(normalized(name))
    import importlib_metadata

    try:
        return importlib_metadata.distribution(name)
    except importlib_metadata.PackageNotFoundError:
        return None


class Ruin:
    """A distribution whose metadata cannot be read: where it is, and why not."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem

    @property
    def fix(self) -> str:
        name = os.path.basename(self.place).partition("-")[0]
        return f"pip install --force-reinstall {name}, or remove {self.place}"


class _Scan:  # not a NamedTuple: discovery counts in tenths of a millisecond
    """distributions: all of them by normalised name, where none needed a closer look."""

    def __init__(
        self,
        found: Iterable[Installed],
        ruins: tuple[Ruin, ...],
        distributions: Mapping[str, PlainDistribution] | None = None,
    ) -> None:
        self.found = tuple(sorted(found, key=lambda item: (item.entry.name, item.label)))
        self.ruins = ruins
        self.distributions = distributions


@functools.cache
def _scan() -> _Scan:
    try:
        return _plain_scan()
    except (OddError, UnicodeDecodeError, OSError):
        return _thorough_scan()


def _plain_scan() -> _Scan:
    """Raises OddError, UnicodeDecodeError or OSError for anything that needs a closer look."""
    distributions = plain_distributions(search_path())
    found = []
    for dist in distributions.values():
        entries = [entry for entry in dist.entry_points if entry.group in _GROUPS]
        if entries:
            origin = _read_metadata(dist)
            found += [Installed(entry, *origin) for entry in entries if entry.module]
    return _Scan(found, (), distributions)


def _thorough_scan() -> _Scan:
    import importlib_metadata  # costs 50 ms

    broken: dict[str, Ruin] = {}
    try:
        entries = list(importlib_metadata.entry_points())
    except Exception:  # noqa: BLE001  # a single line of any distribution, however unrelated, is enough
        entries = _readable_entries(importlib_metadata.distributions(), broken)
    origins: dict[int, tuple[str, str, tuple[str, ...]]] = {}
    found = []
    for entry in entries:
        if entry.group not in _GROUPS:
            continue
        try:
            origin = origins.get(id(entry.dist)) or _read_metadata(entry.dist)
            entry.module, entry.attr  # noqa: B018  # raise for a text that is no reference to an object
        except Exception as error:  # noqa: BLE001  # see above
            _add_ruin(entry.dist, error, broken)
            continue
        origins[id(entry.dist)] = origin
        found.append(Installed(Entry(entry.name, entry.value, entry.group, entry.dist), *origin))
    if broken:
        _say(broken.values())
    return _Scan(found, tuple(broken.values()))


def _readable_entries(distributions: Iterable[Any], broken: dict[str, Ruin]) -> list[EntryPoint]:
    """Entry points of every distribution that can be read; of two of one name the first, as Python imports it."""
    names: set[str] = set()
    entries: list[EntryPoint] = []
    for dist in distributions:
        try:
            name = read_headers(dist).get("name", [place_of(dist)])[0].lower().replace("-", "_").replace(".", "_")
            if name not in names:
                entries += dist.entry_points
        except Exception as error:  # noqa: BLE001  # see _scan
            _add_ruin(dist, error, broken)
            continue
        names.add(name)
    return entries


def _add_ruin(dist: object, error: Exception, broken: dict[str, Ruin]) -> None:
    place = place_of(dist)
    broken[place] = Ruin(place, error_text(error))


def _say(broken: Iterable[Ruin]) -> None:
    from aicore.plugins.verdicts import log  # not needed where all is well

    for ruin in broken:
        text = "the distribution in %s is left out, since its metadata cannot be read: %s; fix: %s"
        log().warning(text, ruin.place, ruin.problem, ruin.fix)


def place_of(dist: Any) -> str:
    """The folder of a distribution's metadata, where it has one; else that which it is in."""
    return str(getattr(dist, "_path", None) or dist.locate_file(""))


def _read_metadata(dist: Distribution | None) -> tuple[str, str, tuple[str, ...]]:
    """Name, version and requirements of a distribution, as far as they are there."""
    fields = read_headers(dist) if dist else {}
    # Name and version are absent from a half-removed installation, which hides no other.
    return (
        fields.get("name", ["unknown distribution"])[0],
        fields.get("version", ["0"])[0],
        tuple(fields.get("requires-dist", ())),
    )


def read_headers(dist: Distribution) -> dict[str, list[str]]:
    """The fields of a distribution's metadata by name in lower case, without the description.

    The general parser costs more than all the rest of discovery, since it imports the email package and takes in the
    long description. Raises UnicodeDecodeError or OSError for what is no text.
    """
    text = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""
    fields: dict[str, list[str]] = defaultdict(list)
    for line in text.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.lower()].append(value.strip())
    return dict(fields)


def _examine(item: Installed, rivals: list[Installed], config: Config) -> PluginRecord:
    """What the metadata alone tells."""
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
    return replace(record, state=State.COMPATIBLE)


def _introductions(infos: dict[str, Installed], config: Config, afresh: Collection[str]) -> dict[str, Introduction]:
    if not infos:
        return {}
    from aicore.plugins.info_rehearsal import introduce  # imports this module

    return introduce(infos, config, afresh)


def _introduced(record: PluginRecord, introduction: Introduction) -> PluginRecord:
    """What the plugin's INFO adds, or the lack of one."""
    info = introduction.info
    if info is None:
        from aicore.plugins.symptoms import advice, symptom_of_info  # not needed for healthy plugins

        symptom = symptom_of_info(introduction.ending, introduction.reason)
        return replace(
            record, state=State.FAILED, finding=symptom.finding, reason=introduction.reason,
            fix=advice(symptom, record), seconds=introduction.seconds,
        )  # fmt: skip
    record = replace(record, info=info)
    if info.api_version != API_VERSION:
        reason = f"made for plugin API {info.api_version}, but aicore {core_version()} has {API_VERSION}"
        return _skewed(record, reason)
    return record


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
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        return ()
    while len(numbers) > 1 and not int(numbers[-1]):
        numbers.pop()
    return tuple(map(int, numbers))


def upgrade_advice(distribution: str) -> str:
    """How to bring plugin and core together. Never from the index alone, which has an unrelated project `aicore`."""
    return f"pip install --upgrade {distribution}; or for aicore itself, in a checkout of it: git pull && pip install ."
