"""A queue of commands that a thread of its own works off, in order, while the host goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

from aicore.errors import ExecutionError
from aicore.testing.outcomes import said_by


class Submission(threading.Event):
    """Set when the command is done; `error` is what it raised."""

    error: BaseException | None = None

    def finish(self) -> None:
        """Wait for the command. Raises ExecutionError when it failed."""
        self.wait()
        if self.error is not None:
            raise ExecutionError(said_by(self.error)) from self.error


class Stream:
    """Commands run one after the other; commands of different streams run at the same time."""

    def __init__(self, name: str) -> None:
        self._commands: queue.SimpleQueue[tuple[Callable[[], None], Sequence[Submission], Submission]] = (
            queue.SimpleQueue()
        )
        self._last: Submission | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, command: Callable[[], None], after: Sequence[Submission] = ()) -> Submission:
        """Queue a command that starts when all of `after` are done; returns at once.

        It is not run, and fails likewise, if one of `after` has failed.
        """
        submission = Submission()
        self._last = submission
        self._commands.put((command, tuple(after), submission))
        return submission

    def synchronize(self) -> None:
        """Wait until the queue is empty. Raises ExecutionError when the last command failed."""
        if self._last is not None:
            self._last.finish()

    def _work(self) -> None:
        while True:
            command, after, submission = self._commands.get()
            try:
                for earlier in after:
                    earlier.finish()
                command()
            except BaseException as error:  # noqa: BLE001
                # Kept, and raised again by whoever waits for the command; for ever, if SystemExit ended this thread.
                submission.error = error
            del command, after  # they hold memory, and the next command may be long in coming
            submission.set()
