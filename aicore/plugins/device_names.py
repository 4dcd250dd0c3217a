"""Names of devices: `cpu`, `cuda:0`, and `cuda` for the first device of its kind."""

from __future__ import annotations

import re
from collections.abc import Iterable

from aicore.errors import PluginError
from aicore.records import dataclass

_PATTERN = re.compile(r"([a-z][a-z0-9_]*)(?::(0|[1-9][0-9]*))?")


@dataclass(frozen=True)
class DeviceName:
    """A kind of device and which of its kind; no index means the first one."""

    kind: str
    index: int | None = None

    def __str__(self) -> str:
        return self.kind if self.index is None else f"{self.kind}:{self.index}"

    @property
    def position(self) -> tuple[str, int]:
        """The same for two names of one device: `cpu` and `cpu:0`."""
        return self.kind, self.index or 0


def parse_device(text: str) -> DeviceName:
    """Read a device's name in any case, with or without an index. Raises PluginError when it is no such name."""
    found = _PATTERN.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if found is None:
        raise PluginError(f"{text!r} is not a device's name; names look like 'cpu', 'cuda' or 'cuda:1'")
    kind, index = found.groups()
    return DeviceName(kind, None if index is None else int(index))


def find_device(text: str, names: Iterable[str]) -> str | None:
    """Which of `names` the text means, or None. Raises PluginError when the text is no device's name."""
    wanted = parse_device(text)
    of_kind = sorted((parse_device(name).position, name) for name in names if parse_device(name).kind == wanted.kind)
    if wanted.index is None:
        return of_kind[0][1] if of_kind else None
    return next((name for position, name in of_kind if position == wanted.position), None)
