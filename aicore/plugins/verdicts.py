"""Verdicts on plugins, kept from process to process in JSON files, one for each plugin of an environment."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aicore.config import Config
from aicore.plugins.endings import Ending

_FORMAT = 1
_LARGEST = 1 << 16
"""Bytes of the largest file that is read; a verdict needs a hundredth of it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the rehearsal of a plugin ended.

    reason: empty when it returned.
    limit: seconds that it was given. taken: seconds that it took. time: when, in UTC.
    """

    ending: Ending
    reason: str
    limit: float
    taken: float
    time: str

    @property
    def passed(self) -> bool:
        """Whether this process may import the plugin."""
        return self.ending is Ending.RETURNED


class VerdictCache:
    """Verdicts by fingerprint. Whatever is wrong with a file is a miss with a reason, never an error.

    hits: how many verdicts were found. misses: by plugin, why its verdict was not.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hits = 0
        self.misses: dict[str, str] = {}

    @classmethod
    def of(cls, config: Config) -> VerdictCache:
        """The cache of this configuration."""
        if config.cache_dir is not None:
            return cls(config.cache_dir / "plugins")
        from platformdirs import user_cache_path

        return cls(user_cache_path("aicore", appauthor=False) / "plugins")

    def find(self, key: Mapping[str, str], limit: float) -> Verdict | None:
        """The verdict for exactly this fingerprint. Hanging within less than `limit` seconds proves nothing now."""
        try:
            verdict = _read(self._path(key), key)
            if verdict.ending is Ending.HUNG and verdict.limit < limit:
                raise _MissError(f"it did not end within {verdict.limit:g} s, but may take {limit:g} s now")
        except _MissError as miss:
            self.misses[key["plugin"]] = str(miss)
            return None
        self.hits += 1
        return verdict

    def keep(self, key: Mapping[str, str], verdict: Verdict) -> str:
        """Write a verdict; returns why it cannot be written, or an empty text."""
        text = json.dumps({"format": _FORMAT, "key": dict(key), "verdict": asdict(verdict)}, indent=1)
        try:
            _replace(self._path(key), text)
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _path(self, key: Mapping[str, str]) -> Path:
        """One file for a plugin of one environment, so that new verdicts replace old ones and files do not pile up."""
        place = hashlib.sha256(key["python"].encode()).hexdigest()[:16]
        name = re.sub(r"[^A-Za-z0-9_-]", "_", key["plugin"])[:80]
        return self.folder / f"{name}-{place}.json"


class _MissError(Exception):
    """Why a file gives no verdict."""


def _read(path: Path, key: Mapping[str, str]) -> Verdict:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise _MissError("it was not tried yet") from None
    except OSError as error:
        raise _MissError(f"{path} cannot be read: {error.strerror}") from error
    try:
        if len(data) > _LARGEST:
            raise ValueError("it is too large")
        content = json.loads(data)
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {_FORMAT}")
        old, verdict = content["key"], _parse(content["verdict"])
        changed = sorted(name for name in {*old, *key} if old.get(name) != key.get(name))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _MissError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    if changed:
        raise _MissError(f"changed since it was tried: {', '.join(changed)}")
    return verdict


def _parse(data: Mapping[str, Any]) -> Verdict:
    """Raises ValueError, KeyError or TypeError for anything but what `keep` writes."""
    texts, numbers = [data[name] for name in ("reason", "time")], [data[name] for name in ("limit", "taken")]
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(n, (int, float)) for n in numbers):
        raise TypeError("a field has another type")
    return Verdict(Ending(data["ending"]), texts[0], float(numbers[0]), float(numbers[1]), texts[1])


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old content or the new, whoever else writes it."""
    import tempfile  # a verdict is read far more often than written

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
