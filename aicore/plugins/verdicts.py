"""Verdicts on plugins, kept from process to process in JSON files, one for each plugin of an environment."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aicore.config import Config, cache_folder
from aicore.plugins.endings import Ending
from aicore.plugins.info import PluginInfo

if TYPE_CHECKING:
    from logging import Logger

_said: set[Path] = set()
_FORMAT = 3
_LARGEST = 1 << 16
"""Bytes of the largest file that is read; a verdict needs a hundredth of it."""


class Verdict(NamedTuple):  # a dataclass would cost discovery a millisecond
    """How the rehearsal of a plugin ended.

    reason: empty when it returned; of an info module also the exception that it raised.
    limit: seconds that it was given. taken: seconds that it took. time: when, in UTC.
    info: what a plugin says about itself, when this is the verdict on its info module.
    """

    ending: Ending
    reason: str
    limit: float
    taken: float
    time: str
    info: PluginInfo | None = None

    @property
    def passed(self) -> bool:
        """Whether this process may import the plugin."""
        return self.ending is Ending.RETURNED


class VerdictCache:
    """Verdicts by fingerprint. Whatever is wrong with a file is a miss with a reason, never an error.

    hits: how many verdicts were found. misses: by plugin, why its verdict was not.
    """

    def __init__(self, folder: Path, suffix: str = "") -> None:
        self.folder = folder
        self._suffix = suffix
        self.hits = 0
        self.misses: dict[str, str] = {}

    @classmethod
    def of(cls, config: Config, suffix: str = "") -> VerdictCache:
        """The cache of this configuration. suffix: of file names, for verdicts on another part of plugins."""
        return cls(cache_folder(config) / "plugins", suffix)

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
        text = json.dumps({"format": _FORMAT, "key": dict(key), "verdict": _plain(verdict)}, indent=1)
        try:
            _replace(self._path(key), text)
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _path(self, key: Mapping[str, str]) -> Path:
        """One file for a plugin of one environment, so that new verdicts replace old ones and files do not pile up."""
        # Not a digest of hashlib, whose import costs milliseconds: what is inside the file decides.
        place = f"{zlib.crc32(key['python'].encode()):08x}"
        name = re.sub(r"[^A-Za-z0-9_-]", "_", key["plugin"])[:80]
        return self.folder / f"{name}-{place}{self._suffix}.json"


def keep_or_say(cache: VerdictCache, key: Mapping[str, str], verdict: Verdict) -> None:
    """Keep a verdict; log why it cannot be kept, once in each process."""
    problem = cache.keep(key, verdict)
    if problem and cache.folder not in _said:
        _said.add(cache.folder)
        log().warning(
            "verdicts on plugins cannot be kept in %s, so that each process tries them anew: %s; fix: set "
            "AICORE_CACHE_DIR to a folder that can be written",
            cache.folder, problem,
        )  # fmt: skip


def log() -> Logger:
    """The logger of this package, which discovery of healthy plugins does not need."""
    import logging

    return logging.getLogger("aicore.plugins")


def now() -> str:
    """The time of a verdict."""
    from datetime import UTC, datetime  # not needed while verdicts are remembered

    return datetime.now(UTC).isoformat(timespec="seconds")


class _MissError(Exception):
    """Why a file gives no verdict."""


def _read(path: Path, key: Mapping[str, str]) -> Verdict:
    try:
        # Not blocking, as a pipe in its place would wait for a writer.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
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
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise _MissError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    if changed:
        raise _MissError(f"changed since it was tried: {', '.join(changed)}")
    return verdict


def _plain(verdict: Verdict) -> dict[str, Any]:
    return {**verdict._asdict(), "info": verdict.info and verdict.info.to_json()}


def _parse(data: Mapping[str, Any]) -> Verdict:
    """Raises ValueError, KeyError or TypeError for anything but what `keep` writes."""
    texts, numbers = [data[name] for name in ("reason", "time")], [data[name] for name in ("limit", "taken")]
    if not all(isinstance(text, str) for text in texts) or not all(type(n) in (int, float) for n in numbers):
        raise TypeError("a field has another type")
    if not all(0 <= float(number) < math.inf for number in numbers):  # false for NaN too
        raise ValueError("a time is none")
    ending = Ending(data["ending"])
    if ending is Ending.NOT_STARTED:
        raise ValueError("it judges a plugin that was not tried")
    info = None if data["info"] is None else PluginInfo.from_json(data["info"])
    return Verdict(ending, texts[0], float(numbers[0]), float(numbers[1]), texts[1], info)


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
