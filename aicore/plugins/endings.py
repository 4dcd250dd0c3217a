"""The ways in which a child process that loads a plugin can end."""

from __future__ import annotations

from enum import StrEnum


class Ending(StrEnum):
    """How the child process that loaded a plugin ended."""

    RETURNED = "returned"
    """The plugin gave control back, be it with an exception."""
    CRASHED = "crashed"
    HUNG = "hung"
    EXITED = "exited"
    """It ended the process, or tried to."""
    REFUSED = "refused"
    """It gave control back, but left a process in which no program can go on: copied, or damaged."""
    NOT_STARTED = "not started"
    """The child came to an end before it touched the plugin, which is no fault of the plugin."""
