"""Plugins loaded in child processes, each with a time limit: whatever they do there, this process goes on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aicore.config import child_environment
from aicore.plugins.child_report import Lines, read_report
from aicore.plugins.discovery import Candidate
from aicore.plugins.endings import Ending
from aicore.records import dataclass

if TYPE_CHECKING:
    from aicore.plugins.distributions import Entry

_SCRIPT = Path(__file__).with_name("_child.py")
_START_SECONDS = 120.0
"""Time in which the child has to start Python and import aicore. A busy machine must not look like a bad plugin."""
_POLL_SECONDS = 0.01
_OUTPUT_BYTES = 8192
_STACK_HEADINGS = ("Fatal Python error:", "Windows fatal exception:", "Timeout (")  # of faulthandler
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


@dataclass(frozen=True)
class ChildReport:
    """What is known of a child process.

    reason: which step ended it and where, in words; empty when it returned.
    facts: what it reported at its end, among them `outcome`; empty unless it returned or raised SystemExit.
    side_effects: what a process that loads the plugin is left with, in words.
    output: the end of what it wrote to stdout and stderr.
    """

    ending: Ending
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    side_effects: tuple[str, ...] = ()
    output: str = ""
    seconds: float = 0.0

    @property
    def outcome(self) -> str:
        """`loaded`, `unavailable`, `failed`, or empty when it never came to say so."""
        return str(self.facts.get("outcome", ""))


def run_children(
    jobs: Mapping[str, Sequence[Candidate]], limit: float, done: Callable[[str], None] = lambda name: None
) -> dict[str, ChildReport]:
    """Load each group of installed plugins in a child process of its own, several at a time.

    limit: seconds that the plugins' own code may take before it counts as hanging.
    done: called with the name of each job that has ended.
    """
    return _run({name: _loading(candidates) for name, candidates in jobs.items()}, limit, done)


def read_in_children(infos: Mapping[str, Entry], limit: float) -> dict[str, ChildReport]:
    """Execute each info module in a child process of its own, as `run_children` does with plugins.

    The fact `info` of a report is what `PluginInfo.to_json` gave there.
    """
    jobs = {name: _Job({"info": entry.value}, frozenset([_package(entry)])) for name, entry in infos.items()}
    return _run(jobs, limit, lambda name: None)


class _Job(NamedTuple):
    """What `_child.py` shall do, and the top-level packages that it is about."""

    request: dict[str, Any]
    packages: frozenset[str]


def _loading(candidates: Sequence[Candidate]) -> _Job:
    packages = frozenset(_package(candidate.item.entry) for candidate in candidates if candidate.item)
    return _Job({"plugins": [_describe(candidate) for candidate in candidates]}, packages)


def _package(entry: Entry) -> str:
    return entry.value.partition(":")[0].partition(".")[0].strip()


def _run(jobs: Mapping[str, _Job], limit: float, done: Callable[[str], None]) -> dict[str, ChildReport]:
    waiting = deque(jobs.items())
    running: dict[str, _Child] = {}
    reports: dict[str, ChildReport] = {}
    most = max(2, min(8, os.cpu_count() or 1))
    try:
        while waiting or running:
            while waiting and len(running) < most:
                name, job = waiting.popleft()
                try:
                    running[name] = _Child(job, limit)
                except OSError as error:
                    reports[name] = ChildReport(Ending.NOT_STARTED, f"the child process cannot start: {error}")
            time.sleep(_POLL_SECONDS)
            for name, child in list(running.items()):
                report = child.poll()
                if report is not None:
                    reports[name] = report
                    running.pop(name).close()
                    done(name)
    finally:
        for child in running.values():  # after an interrupt
            child.close()
    return {name: reports[name] for name in jobs}


class _Child:
    """A child process and its files. Raises OSError when they cannot be made."""

    def __init__(self, job: _Job, limit: float) -> None:
        self._limit = limit
        self._packages = job.packages
        self._folder = tempfile.TemporaryDirectory(prefix="aicore-", ignore_cleanup_errors=True)
        self._report = Path(self._folder.name, "report")
        # A file, as a pipe stays open for as long as a grandchild lives.
        self._output = Path(self._folder.name, "output").open("w+b")  # noqa: SIM115  # `close` closes it
        self._started = time.monotonic()
        self._began: float | None = None
        self._outlived = False
        request = {
            "path": [os.path.abspath(folder) for folder in sys.path],  # also '', the current folder
            "report": str(self._report),
            "stack_after": limit * 0.9,
            **job.request,
        }
        try:
            self._process = self._start(json.dumps(request))
        except OSError:
            self._remove_files()
            raise

    def poll(self) -> ChildReport | None:
        """The report, if the child has ended or its time is over."""
        status = self._status()
        now = time.monotonic()
        if self._began is None and self._report.exists():
            self._began = now
        over = now > (self._started + _START_SECONDS if self._began is None else self._began + self._limit)
        if status is None and not over:
            return None
        if status is None:
            self._kill()
        # One that began and ended since the last look has at most the time since its start.
        began = self._began if self._began not in (None, now) else self._started
        output, seconds = self._read_output(), now - began
        try:
            lines = read_report(self._report)
        except (OSError, ValueError, RecursionError) as error:
            reason = f"what the child process reports cannot be read, as if the plugin wrote into it: {error}"
            return ChildReport(Ending.EXITED, reason, output=output, seconds=seconds)
        ending, reason = self._judge(status, lines, output)
        effects = _side_effects(status, lines.facts) if ending is Ending.RETURNED else ()
        facts = lines.facts if ending in (Ending.RETURNED, Ending.EXITED) else {}
        return ChildReport(ending, reason, facts, effects, output, seconds)

    def close(self) -> None:
        """End the child if it runs, and remove its files."""
        self._kill()
        self._remove_files()

    def _start(self, request: str) -> subprocess.Popen[bytes]:
        if not sys.executable:
            raise OSError("this Python is embedded in another program")
        return subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT), request],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            start_new_session=True,  # so that its own children end with it
        )

    def _remove_files(self) -> None:
        self._output.close()
        self._folder.cleanup()

    def _judge(self, status: int | None, lines: Lines, output: str) -> tuple[Ending, str]:
        step, facts = lines.steps[-1] if lines.steps else "", lines.facts
        if lines.back:
            during = next(iter(lines.back.values()))
            return Ending.REFUSED, f"{during} makes a copy of the process (os.fork), which goes on beside it"
        if damages := facts.get("damages"):
            return Ending.REFUSED, f"loading it changes {', '.join(damages)}, which the program and other plugins need"
        if facts.get("error") == "SystemExit":
            return Ending.EXITED, facts["reason"]
        if facts and status is None:
            threads = f": the thread {facts['threads'][0]!r} runs on" if facts.get("threads") else ""
            reason = f"a process that has loaded it does not end within {self._limit:g} s{threads}"
            return Ending.HUNG, reason + self._where(output)
        if facts and self._outlived:
            return Ending.REFUSED, "it leaves a copy of the process (os.fork) that outlives it and keeps its files open"
        if facts:
            return Ending.RETURNED, ""
        if not step:
            last = output.strip().rpartition("\n")[2] or f"no answer, status {status}"
            return Ending.NOT_STARTED, f"the child process ended before it touched the plugin: {last}"
        where = self._where(output)
        if status is None:
            return Ending.HUNG, f"{step} did not end within {self._limit:g} s{where}"
        if name := _signal_name(status):
            return Ending.CRASHED, f"{step} crashed with {name}{where}"
        return Ending.EXITED, f"{step} ended the process with status {status}"

    def _where(self, output: str) -> str:
        """The innermost line of the plugin's own code that the stack shows, else the innermost line of any code."""
        stack = max(output.rfind(heading) for heading in _STACK_HEADINGS)
        frames = [(frame["file"], frame["line"]) for frame in _FRAME.finditer(output, stack)] if stack >= 0 else []
        own = [(file, line) for file, line in frames if self._packages.intersection(Path(file).with_suffix("").parts)]
        file, line = next(iter(own or frames), ("", ""))
        return f" at {file}, line {line}" if file else ""

    def _read_output(self) -> str:
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _OUTPUT_BYTES))
        return self._output.read().decode(errors="replace")

    def _status(self) -> int | None:
        """The exit status, or None while it runs. What it leaves running is ended with it."""
        process = self._process
        if process.returncode is not None or not hasattr(os, "waitid"):
            return process.poll()
        try:
            # It stays unreaped, so that no other group can have its number when the group is killed.
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return process.poll()  # this process ignores SIGCHLD, so the child is reaped already
        if not ended:
            return None
        self._outlived = bool(self._running_copies())
        self._kill()
        return process.returncode

    def _kill(self) -> None:
        process = self._process
        if process.returncode is not None:
            return
        for copy in self._running_copies():  # they may have left the group
            with contextlib.suppress(OSError):
                os.kill(copy, signal.SIGKILL)
        try:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)  # its children too, which may outlive it
            else:
                process.kill()
        except (ProcessLookupError, PermissionError):
            pass  # it ended in the meantime
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            pass  # in a driver's call that no signal ends; the system removes it later

    def _running_copies(self) -> list[int]:
        """Copies that the plugin made of the child, and that still run."""
        try:
            return read_report(self._report).running()
        except (OSError, ValueError):  # a report that nobody can read, which the verdict says
            return []


def _describe(candidate: Candidate) -> dict[str, Any]:
    record, item = candidate.record, candidate.item
    if item is None:
        raise ValueError(f"{record.label} is given as a module, which no other process can import")
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "value": item.entry.value,
        "info": record.info.to_json() if record.info else None,
    }


def _side_effects(status: int | None, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """What a process is left with that has loaded the plugin: changes, processes, another status at its end."""
    effects = [f"changes {name}" for name in facts.get("changes", ())]
    if status:
        name = _signal_name(status)
        effects.append(f"makes the process crash with {name} at its end" if name else f"ends it with status {status}")
    return tuple(effects)


def _signal_name(status: int) -> str:
    """SIGSEGV for a process that this signal ended; on Windows the code of the exception; else an empty text."""
    if status < 0:
        try:
            return signal.Signals(-status).name
        except ValueError:
            return f"signal {-status}"
    return f"exception 0x{status:08X}" if status >= 0xC0000000 else ""
