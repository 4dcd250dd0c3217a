"""Runs in a child process: loads plugins that may crash, hang or end the process, and reports how far it came.

`child_process.py` starts it as a script; `child_report.py` is what they share.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from aicore.plugins.child_report import Report
    from aicore.plugins.discovery import Candidate
    from aicore.plugins.states import PluginRecord

_LONGEST = 20_000
"""Characters of a traceback that are reported."""
_PR_SET_PDEATHSIG = 1
"""From <sys/prctl.h>."""


def main() -> None:
    _end_with_parent()
    request = json.loads(sys.argv[1])
    sys.argv = ["aicore"]
    sys.path[:] = request["path"]
    _leave_no_core_file()
    faulthandler.enable()
    if "info" in request:
        _read_info(request)
    _preload()
    report = _report(request)
    candidates = [_candidate(plugin) for plugin in request["plugins"]]
    if len(candidates) > 1:
        _load_together(candidates, report)
    _load_alone(candidates[0], report)


def _report(request: dict[str, Any]) -> Report:
    from aicore.plugins.child_report import Report  # this script has no path to it before `main`

    return Report(request["report"], request["stack_after"])


def _preload() -> None:
    """Import what every plugin needs, so that the time of the first step is the plugin's own."""
    import aicore.kernels
    import aicore.ops
    import aicore.passes
    import aicore.plugins.registry
    import aicore.runtime  # noqa: F401


def _end_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however that comes: a plugin may loop for ever.

    Precisely: when the thread that started it ends, and that one waits for it. Linux alone knows this. Elsewhere a
    child whose parent was killed goes on until the plugin comes to an end.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):  # a Python without it, or a C library
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _leave_no_core_file() -> None:
    try:
        import resource
    except ImportError:  # Windows has neither the module nor the files
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read_info(request: dict[str, Any]) -> NoReturn:
    from aicore.plugins.discovery import INFOS
    from aicore.plugins.distributions import Entry
    from aicore.plugins.info_rehearsal import failure, read_info

    value, report = request["info"], _report(request)
    report.step(f"its info module {value}")
    try:
        info = read_info(Entry("", value, INFOS)).to_json()
    except BaseException as error:  # noqa: BLE001  # whatever it is, it belongs into the report
        report.end("failed", reason=failure(value, error), error=type(error).__name__)
    report.end("read", info=info)


def _candidate(plugin: dict[str, Any]) -> Candidate:
    from aicore.plugins.discovery import PLUGINS, Candidate
    from aicore.plugins.distributions import Entry
    from aicore.plugins.info import PluginInfo
    from aicore.plugins.states import PluginRecord, State

    info = PluginInfo.from_json(plugin["info"]) if plugin["info"] else None
    record = PluginRecord(plugin["name"], plugin["distribution"], plugin["version"], state=State.COMPATIBLE, info=info)
    return Candidate(record, Entry(plugin["name"], plugin["value"], PLUGINS).load)


def _load_alone(candidate: Candidate, report: Report) -> None:
    """Load the plugin as a program would, and return, so that the process ends as that program's would."""
    from aicore.plugins.host_state import changes, damages, observe
    from aicore.plugins.registry import stand_in

    before = observe()
    with stand_in().loading():  # a plugin that asks for the registry at its import finds it busy, as in a program
        outcome, facts = _outcome(candidate, report)
    running = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    after = observe()
    found = {"changes": changes(before, after), "damages": damages(before, after), "threads": running}
    report.close(outcome, **facts, **found)


def _outcome(candidate: Candidate, report: Report) -> tuple[str, dict[str, Any]]:
    from aicore.errors import PluginError
    from aicore.plugins.loading import UnavailableError, load_plugin

    try:
        found = load_plugin(candidate.record.name, candidate.load, candidate.record.info, report.step)
        return "loaded", {"devices": [device.name for device in found.devices], "notes": list(found.notes)}
    except UnavailableError as error:
        return "unavailable", {"reason": str(error), "fix": error.fix}
    except PluginError as error:
        cause = error.__cause__ or error
        text = "".join(traceback.format_exception(cause))[-_LONGEST:]
        return "failed", {"reason": str(error), "error": type(cause).__name__, "traceback": text}


def _load_together(candidates: list[Candidate], report: Report) -> NoReturn:
    from aicore.config import Config
    from aicore.plugins.activation import activate
    from aicore.plugins.registry import stand_in

    report.step("loading them together")
    with stand_in().loading():
        activated = activate(candidates, Config(plugin_timeout=0))
    report.end(
        "loaded",
        records=[_plain(record) for record in activated.records],
        contested=[[device, contest.reason] for device, contest in activated.contested.items()],
    )


def _plain(record: PluginRecord) -> dict[str, str]:
    return {"name": record.name, "state": str(record.state), "reason": record.reason, "fix": record.fix}


if __name__ == "__main__":
    main()
