"""How far each installed plugin came, and why it stopped there."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias

from aicore.plugins.info import PluginInfo
from aicore.records import dataclass


class State(StrEnum):
    """Stages of a plugin's life in their order, then the ways in which it ends."""

    DISCOVERED = "discovered"
    """Installed; nothing is known about it yet."""
    COMPATIBLE = "compatible"
    """Its requirement on aicore and its API version fit. Nothing of it was imported."""
    REHEARSED = "rehearsed"
    """A child process loaded it without a crash, a hang or an exit, now or earlier; it may be imported here."""
    PROBED = "probed"
    """Imported, and its devices were found; its registrations are still being checked."""
    ACTIVE = "active"
    """In use."""
    DISABLED = "disabled"
    """AICORE_PLUGINS or AICORE_DISABLE_PLUGINS excludes it. Nothing of it was imported."""
    INCOMPATIBLE = "incompatible"
    """Made for another version of aicore. Nothing of it was imported."""
    UNAVAILABLE = "unavailable"
    """Healthy, but what it drives is not here: an expected state, so nothing is logged."""
    FAILED = "failed"
    """Broken or in conflict with another plugin; logged."""


Finding: TypeAlias = Literal[
    "",
    "disabled",
    "no device",
    "no driver",
    "driver too old",
    "missing library",
    "missing compiler",
    "import error",
    "crash",
    "hang",
    "exit",
    "broken hook",
    "side effects",
    "conflict",
    "API skew",
    "two CuPy wheels",
    "foreign aicore",
    "broken metadata",
    "not tried",
]
"""Classes of reasons why a plugin is not used. `not tried`: its child process could not start, no fault of its own."""


@dataclass(frozen=True)
class PluginRecord:
    """One plugin: where it comes from, its state, and the class, reason and fix of a state other than active.

    seconds: time that importing, probing and registering took; where a rehearsal ended it, the time of that.
    rehearsal: whether the verdict of its rehearsal is remembered, or why it was tried now; empty without a rehearsal.
    info: what it says about itself, or None when it says nothing or was not asked.
    """

    name: str
    distribution: str
    version: str
    state: State = State.DISCOVERED
    finding: Finding = ""
    reason: str = ""
    fix: str = ""
    seconds: float = 0.0
    rehearsal: str = ""
    info: PluginInfo | None = None

    @property
    def label(self) -> str:
        """Plugin and distribution, as error messages name them."""
        return f"{self.name} ({self.distribution} {self.version})"

    @property
    def kind(self) -> str:
        return self.info.kind if self.info else ""

    @property
    def devices(self) -> tuple[str, ...]:
        """Kinds of device that it says it launches."""
        return self.info.devices if self.info else ()

    @property
    def priority(self) -> int:
        return self.info.priority if self.info else 0

    def explain(self) -> str:
        """One line: the plugin, its state, and the reason and fix if there are any."""
        reason = f": {self.reason}" if self.reason else ""
        fix = f"; fix: {self.fix}" if self.fix else ""
        verb = "has" if self.state is State.FAILED else "is"
        return f"plugin {self.label} {verb} {self.state}{reason}{fix}"

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "kind": self.kind,
            "devices": list(self.devices),
            "priority": self.priority,
            "state": str(self.state),
            "class": self.finding,
            "reason": self.reason,
            "fix": self.fix,
            "seconds": round(self.seconds, 6),
            "rehearsal": self.rehearsal,
            "summary": self.info.summary if self.info else "",
            "requirements": list(self.info.requirements) if self.info else [],
        }
