"""The only module that reads AICORE_* variables. Reading is lazy, so that a bad value never breaks the import."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast, get_args

from aicore.errors import ConfigError
from aicore.records import dataclass

FallbackPolicy = Literal["error", "warn", "quiet"]
TunePolicy = Literal["off", "cached", "measure"]
Precision = Literal["float32", "tf32"]
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_NAMES = frozenset(
    {
        "AICORE_PLUGINS",
        "AICORE_DISABLE_PLUGINS",
        "AICORE_PLUGIN_TIMEOUT",
        "AICORE_TARGET",
        "AICORE_FALLBACK",
        "AICORE_CACHE_DIR",
        "AICORE_MEMORY_LIMIT",
        "AICORE_THREADS",
        "AICORE_TUNE",
        "AICORE_GRAPHS",
        "AICORE_NVTX",
        "AICORE_DEBUG",
    }
)


@dataclass(frozen=True)
class Config:
    """What the environment asks for.

    plugins: names of the only plugins to use; None means every plugin that is installed.
    disabled_plugins: names never to use.
    plugin_timeout: seconds that a plugin may take to load in a child process, before it counts as hanging; 0 means that
        none is tried in a child process first.
    target: device to compile for when the caller names none; None means the best active one.
    fallback: what happens to a node that the target cannot run: raise, run elsewhere and say so, or run elsewhere.
    cache_dir: folder of caches; None means the platform's user cache folder.
    memory_limit: bytes that one run may take; None means what the system has left.
    threads: how many a run may keep busy on the host; None means as many as there are cores to use.
    tune: `off` ignores what was measured, `cached` uses it, `measure` also measures what is missing.
    graphs: how many captured graphs, each with the memory of a run, a device keeps for runs to come.
    nvtx: mark runs for NVIDIA's profilers.
    debug: verify the whole graph after each pass, poison dead buffers, keep full tracebacks in the CLI.
    """

    plugins: frozenset[str] | None = None
    disabled_plugins: frozenset[str] = frozenset()
    plugin_timeout: float = 30.0
    target: str | None = None
    fallback: FallbackPolicy = "warn"
    cache_dir: Path | None = None
    memory_limit: int | None = None
    threads: int | None = None
    tune: TunePolicy = "cached"
    graphs: int = 64
    nvtx: bool = False
    debug: bool = False


def from_environment(environ: Mapping[str, str] | None = None) -> Config:
    """Parse the AICORE_* variables strictly.

    Raises ConfigError for an unknown variable, or for a value that is not among the choices (which it lists).
    """
    env = os.environ if environ is None else environ
    unknown = sorted(k for k in env if k.startswith("AICORE_") and k not in _NAMES and not k.startswith("AICORE_CUDA_"))
    if unknown:
        raise ConfigError(f"unknown environment variable {unknown[0]}; known are {', '.join(sorted(_NAMES))}")
    cache_dir = env.get("AICORE_CACHE_DIR", "").strip()
    return Config(
        plugins=_names(env["AICORE_PLUGINS"]) if env.get("AICORE_PLUGINS", "").strip() else None,
        disabled_plugins=_names(env.get("AICORE_DISABLE_PLUGINS", "")),
        plugin_timeout=_seconds(env.get("AICORE_PLUGIN_TIMEOUT", "").strip() or "30", "AICORE_PLUGIN_TIMEOUT"),
        target=env.get("AICORE_TARGET", "").strip() or None,
        fallback=parse_fallback(env.get("AICORE_FALLBACK", "").strip() or "warn", "AICORE_FALLBACK"),
        cache_dir=Path(cache_dir) if cache_dir else None,
        memory_limit=_bytes(env.get("AICORE_MEMORY_LIMIT", "").strip(), "AICORE_MEMORY_LIMIT"),
        threads=_count(env.get("AICORE_THREADS", "").strip(), "AICORE_THREADS"),
        tune=parse_tune(env.get("AICORE_TUNE", "").strip() or "cached", "AICORE_TUNE"),
        graphs=_count(env.get("AICORE_GRAPHS", "").strip(), "AICORE_GRAPHS", "graphs") or 64,
        nvtx=parse_bool(env.get("AICORE_NVTX", ""), "AICORE_NVTX"),
        debug=parse_bool(env.get("AICORE_DEBUG", ""), "AICORE_DEBUG"),
    )


def cache_folder(config: Config) -> Path:
    """The folder of caches: the one that is asked for, else the platform's user cache folder."""
    if config.cache_dir is not None:
        return config.cache_dir
    on_linux = sys.platform == "linux"
    if on_linux:  # as platformdirs says, whose import takes longer than to read what is kept there
        folder = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
        return Path(folder) / "aicore"
    from platformdirs import user_cache_path

    return user_cache_path("aicore", appauthor=False)


def parse_bool(text: str, name: str) -> bool:
    """True or False for a text such as `1`, `yes`, `off`; raises ConfigError naming `name` for anything else."""
    folded = text.strip().lower()
    if folded in _TRUE:
        return True
    if folded in _FALSE:
        return False
    raise ConfigError(f"{name}={text!r} is no boolean; choose from {', '.join(sorted((_TRUE | _FALSE) - {''}))}")


def parse_fallback(text: str, name: str = "fallback") -> FallbackPolicy:
    """The policy that `text` names; raises ConfigError listing the choices for anything else."""
    if text not in get_args(FallbackPolicy):
        raise ConfigError(f"{name}={text!r} is not a policy; choose from {', '.join(get_args(FallbackPolicy))}")
    return cast(FallbackPolicy, text)


def parse_tune(text: str, name: str = "tune") -> TunePolicy:
    """The policy that `text` names; raises ConfigError listing the choices for anything else."""
    if text not in get_args(TunePolicy):
        raise ConfigError(f"{name}={text!r} is not a policy; choose from {', '.join(get_args(TunePolicy))}")
    return cast(TunePolicy, text)


def parse_precision(text: str) -> Precision:
    """The precision that `text` names; raises ConfigError listing the choices for anything else."""
    if text not in get_args(Precision):
        raise ConfigError(f"precision={text!r} is not known; choose from {', '.join(get_args(Precision))}")
    return cast(Precision, text)


def child_environment() -> dict[str, str]:
    """The environment for a child process that loads plugins: it must not start children of its own for that."""
    return {**os.environ, "AICORE_PLUGIN_TIMEOUT": "0"}


def _seconds(text: str, name: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:  # false for NaN too
        raise ConfigError(f"{name}={text!r} is no number of seconds; choose 0 or a positive number")
    return seconds


def _count(text: str, name: str, what: str = "threads") -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0):
        raise ConfigError(f"{name}={text!r} is no number of {what}; choose 1 or more")
    return int(text)


def _bytes(text: str, name: str) -> int | None:
    """`500000`, `512MiB` or `2GiB` as a number of bytes."""
    if not text:
        return None
    digits = text.rstrip("KMGTiB")
    scale = _UNITS.get(text[len(digits) :])
    if scale is None or not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise ConfigError(
            f"{name}={text!r} is no size; write bytes, or a number with {', '.join(filter(None, _UNITS))}"
        )
    return int(digits) * scale


def _names(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())
