"""What installed plugins say about themselves, asked in child processes once and then remembered.

An info module is code, so it can crash, hang or end the process that executes it. Its first execution happens in a
child process, which hands INFO over as JSON; this process executes it only when rehearsal is off or impossible.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from contextlib import redirect_stdout
from importlib.util import module_from_spec
from operator import attrgetter
from typing import TYPE_CHECKING

from aicore.config import Config
from aicore.errors import PluginError, error_text
from aicore.plugins.discovery import core_version, find_module
from aicore.plugins.endings import Ending
from aicore.plugins.fingerprint import python_identity, stamp
from aicore.plugins.info import PluginInfo
from aicore.plugins.verdicts import Verdict, VerdictCache, keep_or_say, log, now

if TYPE_CHECKING:
    from aicore.plugins.child_process import ChildReport
    from aicore.plugins.discovery import Installed
    from aicore.plugins.distributions import Entry


class Introduction:  # not a NamedTuple: discovery counts in tenths of a millisecond
    """INFO, or why there is none and how the process that executed its module ended."""

    def __init__(
        self, info: PluginInfo | None, reason: str = "", ending: Ending = Ending.RETURNED, seconds: float = 0.0
    ) -> None:
        self.info = info
        self.reason = reason
        self.ending = ending
        self.seconds = seconds


def introduce(
    modules: Mapping[str, Installed], config: Config, afresh: Collection[str] = ()
) -> dict[str, Introduction]:
    """INFO of each plugin by name; `modules` are their entry points in the group of infos.

    afresh: plugins whose modules are executed again, whatever is remembered.
    """
    if not config.plugin_timeout:
        return {name: _read_here(item.entry) for name, item in modules.items()}
    cache = VerdictCache.of(config, "-info")
    keys = {name: _fingerprint(name, item) for name, item in modules.items()}
    verdicts = {name: cache.find(key, config.plugin_timeout) for name, key in keys.items() if name not in afresh}
    known = {name: _introduction(verdict) for name, verdict in verdicts.items() if verdict is not None}
    untried = {name: item.entry for name, item in modules.items() if name not in known}
    if not untried:
        return known
    from aicore.plugins.child_process import read_in_children  # not needed while verdicts are remembered

    reports = read_in_children(untried, config.plugin_timeout)
    for name, report in reports.items():
        if report.ending is Ending.NOT_STARTED:
            log().warning("the info module of plugin %s is executed without a rehearsal: %s", name, report.reason)
            known[name] = _read_here(untried[name])
            continue
        verdict = _verdict(report, config.plugin_timeout)
        keep_or_say(cache, keys[name], verdict)
        known[name] = _introduction(verdict)
    return known


def read_info(entry: Entry) -> PluginInfo:
    """Execute the info module alone: importing its package could import a GPU library."""
    module = sys.modules.get(entry.module)
    if module is None:
        spec = find_module(entry.module)
        if spec is None or spec.loader is None:
            raise PluginError(f"there is no module {entry.module}")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    info = attrgetter(entry.attr or "INFO")(module)
    if type(info) is not PluginInfo:  # methods of a subclass would run where the plugin must not
        raise PluginError(f"expected a PluginInfo, got {type(info).__name__}")
    return info


def _read_here(entry: Entry) -> Introduction:
    try:
        with redirect_stdout(sys.stderr):  # what it prints is no part of what this program says
            return Introduction(read_info(entry))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001
        # Whatever a plugin does wrong, SystemExit included, the host goes on.
        ending = Ending.EXITED if isinstance(error, SystemExit) else Ending.RETURNED
        return Introduction(None, failure(entry.value, error), ending)


def failure(module: str, error: BaseException) -> str:
    """Why there is no INFO, in words."""
    return f"its info module {module} raised {error_text(error)}"


def _fingerprint(name: str, item: Installed) -> dict[str, str]:
    """As that of a plugin, but quick, since each process needs it: of files only the module's, which stands alone."""
    return {
        "plugin": name,
        "module": item.entry.value,
        "distribution": item.label,
        "aicore": core_version(),
        "python": python_identity(),
        "file": _file(item.entry.value.partition(":")[0].strip()),
    }


def _file(module: str) -> str:
    place = _usual_place(module)
    if place:
        return f"{place} {stamp(place)}"
    try:
        spec = find_module(module)
    except (ImportError, ValueError):  # ValueError: an imported module without a spec
        spec = None
    return f"{spec.origin} {stamp(spec.origin)}" if spec is not None and spec.origin else "absent"


def _usual_place(module: str) -> str:
    """The file of a module in a regular package on sys.path, without asking every finder; empty for anything else."""
    top, *rest = module.split(".")
    for folder in sys.path:
        package = os.path.join(folder, top)
        if os.path.isfile(f"{package}.py"):
            return ""
        if os.path.isdir(package):
            regular = rest and os.path.isfile(os.path.join(package, "__init__.py"))
            place = os.path.join(package, *rest) + ".py"
            return place if regular and os.path.isfile(place) else ""
    return ""


def _verdict(report: ChildReport, limit: float) -> Verdict:
    reason = report.reason or report.facts.get("reason", "")
    info = None
    if report.outcome == "read":
        try:
            info = PluginInfo.from_json(report.facts["info"])
        except (
            KeyError,
            TypeError,
            ValueError,
        ) as error:  # what it defines there is no data, such as a text's subclass
            reason = f"its INFO does not survive the way here: {error_text(error)}"
    return Verdict(report.ending, reason, limit, round(report.seconds, 3), now(), info)


def _introduction(verdict: Verdict) -> Introduction:
    return Introduction(verdict.info, verdict.reason, verdict.ending, verdict.taken)
