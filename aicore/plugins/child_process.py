"""Plugins loaded in child processes, each with a time limit: whatever they do there, this process goes on."""

from __future__ import annotations

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aicore.config import child_environment
from aicore.plugins.discovery import Candidate
from aicore.plugins.endings import Ending

_SCRIPT = Path(__file__).with_name("_child.py")
_START_SECONDS = 120.0
"""Time in which the child has to start Python and import aicore. A busy machine must not look like a bad plugin."""
_POLL_SECONDS = 0.01
_OUTPUT_BYTES = 8192
_STACK_HEADINGS = ("Fatal Python error:", "Windows fatal exception:", "Timeout (")  # of faulthandler
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


@dataclass(frozen=True, slots=True)
class ChildReport:
    """What is known of a child process.

    reason: which step ended it and where, in words; empty when it returned.
    facts: what it reported at its end, among them `outcome`.
    output: the end of what it wrote to stdout and stderr.
    """

    ending: Ending
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)
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
    waiting = deque(jobs.items())
    running: dict[str, _Child] = {}
    reports: dict[str, ChildReport] = {}
    most = max(2, min(8, os.cpu_count() or 1))
    try:
        while waiting or running:
            while waiting and len(running) < most:
                name, candidates = waiting.popleft()
                try:
                    running[name] = _Child(candidates, limit)
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

    def __init__(self, candidates: Sequence[Candidate], limit: float) -> None:
        plugins = [_describe(candidate) for candidate in candidates]
        self._limit = limit
        self._packages = {candidate.item.entry.module.partition(".")[0] for candidate in candidates if candidate.item}
        self._folder = tempfile.TemporaryDirectory(prefix="aicore-", ignore_cleanup_errors=True)
        self._report = Path(self._folder.name, "report")
        # A file, as a pipe stays open for as long as a grandchild lives.
        self._output = Path(self._folder.name, "output").open("w+b")  # noqa: SIM115  # `close` closes it
        self._started = time.monotonic()
        self._began: float | None = None
        request = {
            "path": [os.path.abspath(folder) for folder in sys.path],  # also '', the current folder
            "report": str(self._report),
            "stack_after": limit * 0.9,
            "plugins": plugins,
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
        steps, facts = _read(self._report)
        output = self._read_output()
        ending, reason = self._judge(status, steps[-1] if steps else "", facts, output)
        return ChildReport(ending, reason, facts, output, now - (self._began or self._started))

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

    def _judge(self, status: int | None, step: str, facts: Mapping[str, Any], output: str) -> tuple[Ending, str]:
        if facts:
            return (Ending.EXITED, facts["reason"]) if facts.get("error") == "SystemExit" else (Ending.RETURNED, "")
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
        self._kill()
        return process.returncode

    def _kill(self) -> None:
        process = self._process
        if process.returncode is not None:
            return
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


def _describe(candidate: Candidate) -> dict[str, str]:
    record, item = candidate.record, candidate.item
    if item is None:
        raise ValueError(f"{record.label} is given as a module, which no other process can import")
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "value": item.entry.value,
        "info": candidate.info.value if candidate.info else "",
    }


def _read(report: Path) -> tuple[list[str], dict[str, Any]]:
    """Steps that began, and the facts of the end if it was reached."""
    steps: list[str] = []
    facts: dict[str, Any] = {}
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    for line in lines:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue  # the process ended while it wrote
        if "step" in entry:
            steps.append(entry["step"])
        else:
            facts = entry
    return steps, facts


def _signal_name(status: int) -> str:
    """SIGSEGV for a process that this signal ended; on Windows the code of the exception; else an empty text."""
    if status < 0:
        try:
            return signal.Signals(-status).name
        except ValueError:
            return f"signal {-status}"
    return f"exception 0x{status:08X}" if status >= 0xC0000000 else ""
