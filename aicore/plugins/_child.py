"""Runs in a child process: loads plugins that may crash, hang or end the process, and reports how far it came.

`child_process.py` starts it as a script. A report is a file of JSON lines: `{"step": ...}` before each step, so that
the last one tells what a silent end interrupted, and at the end one `{"outcome": ...}`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from aicore.plugins.discovery import Candidate
    from aicore.plugins.states import PluginRecord


class Report:
    """Writes each line at once: the next one may never come. `limit` seconds later the stack goes to stderr."""

    def __init__(self, path: str, limit: float) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  # open until the process ends
        self._limit = limit

    def step(self, what: str) -> None:
        if not self._file.tell():
            faulthandler.dump_traceback_later(self._limit)
        self._write({"step": what})

    def end(self, outcome: str, **facts: Any) -> NoReturn:
        """Report, and leave without the exit handlers of what was loaded: they judge nothing."""
        self._write({"outcome": outcome, **facts})
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def main() -> None:
    request = json.loads(sys.argv[1])
    sys.argv = ["aicore"]
    sys.path[:] = request["path"]
    _leave_no_core_file()
    faulthandler.enable()
    _preload()
    report = Report(request["report"], request["stack_after"])
    candidates = [_candidate(plugin) for plugin in request["plugins"]]
    if len(candidates) == 1:
        _load_alone(candidates[0], report)
    _load_together(candidates, report)


def _preload() -> None:
    """Import what every plugin needs, so that the time of the first step is the plugin's own."""
    import aicore.kernels
    import aicore.ops
    import aicore.plugins.registry
    import aicore.runtime  # noqa: F401


def _leave_no_core_file() -> None:
    try:
        import resource
    except ImportError:  # Windows has neither the module nor the files
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _candidate(plugin: dict[str, str]) -> Candidate:
    from importlib_metadata import EntryPoint

    from aicore.plugins.discovery import INFOS, PLUGINS, Candidate, read_info
    from aicore.plugins.states import PluginRecord, State

    info = read_info(EntryPoint(plugin["name"], plugin["info"], INFOS)) if plugin["info"] else None
    record = PluginRecord(plugin["name"], plugin["distribution"], plugin["version"], state=State.COMPATIBLE, info=info)
    return Candidate(record, EntryPoint(plugin["name"], plugin["value"], PLUGINS).load)


def _load_alone(candidate: Candidate, report: Report) -> NoReturn:
    from aicore.errors import PluginError
    from aicore.plugins.loading import UnavailableError, load_plugin

    record = candidate.record
    try:
        found = load_plugin(record.name, candidate.load, record.info, report.step)
    except UnavailableError as error:
        report.end("unavailable", reason=str(error), fix=error.fix)
    except PluginError as error:
        cause = error.__cause__ or error
        report.end(
            "failed",
            reason=str(error),
            error=type(cause).__name__,
            classes=[cls.__name__ for cls in type(cause).__mro__],
            module=getattr(cause, "name", None) if isinstance(cause, ImportError) else None,
            traceback="".join(traceback.format_exception(cause)),
        )
    report.end("loaded", devices=[device.name for device in found.devices])


def _load_together(candidates: list[Candidate], report: Report) -> NoReturn:
    from aicore.config import Config
    from aicore.plugins.activation import activate

    report.step("loading them together")
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
