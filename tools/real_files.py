"""Real files of many types from the machine itself, the same ones each time on the same machine.

files = real_files(1000)
"""

from __future__ import annotations

import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BLOCK = 4096
"""Bytes of a file that the magika model looks at from either end, before white space is left out."""
PADDING = 256
"""What stands for a byte that is not there."""
_SIDE = 1024
_ROOTS = ("/usr/share", "/usr/lib", "/usr/include", "/etc")
_SKIPPED = frozenset({"__pycache__", "node_modules", ".git"})
_LARGEST = 4 << 20


def real_files(count: int, least: int = 20) -> list[Path]:
    """So many files from the standard library, installed packages and /usr, whatever their types.

    Each suffix gives about as many files as any other, spread evenly over all that there are; at least `least`, or
    none. Fewer than `count` where the machine has no more.
    """
    by_suffix: dict[str, list[Path]] = defaultdict(list)
    for path in _walk(map(Path, (*_own_roots(), *_ROOTS))):
        by_suffix[path.suffix].append(path)
    common = sorted((files for files in by_suffix.values() if len(files) >= least), key=len, reverse=True)
    chosen: list[Path] = []
    for left, files in zip(range(len(common), 0, -1), reversed(common), strict=True):  # the rarest first
        share = min(-(-(count - len(chosen)) // left), len(files))
        chosen += [files[i * len(files) // share] for i in range(share)]
    return chosen


def _own_roots() -> Iterator[str]:
    paths = sysconfig.get_paths()
    yield paths["stdlib"]
    yield from (path for path in sys.path if path.endswith("site-packages"))
    yield str(Path(__file__).resolve().parent.parent)


def _walk(roots: Iterable[Path]) -> Iterator[Path]:
    """Plain files with a suffix, in a fixed order; links are not followed."""
    todo, seen = [root for root in roots if root.is_dir()][::-1], set[Path]()
    while todo:
        folder = todo.pop()
        if folder in seen:
            continue
        seen.add(folder)
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            continue
        todo += [e for e in reversed(entries) if e.name not in _SKIPPED and not e.is_symlink() and e.is_dir()]
        yield from (e for e in entries if e.suffix and not e.is_symlink() and e.is_file() and _fits(e))


def _fits(path: Path) -> bool:
    try:
        return 16 <= path.stat().st_size <= _LARGEST
    except OSError:
        return False


def magika_feed(path: Path) -> Array:
    """The model's input for a file, (2048,) int32: its first and last 1024 bytes without white space around them."""
    content = path.read_bytes()
    first = np.frombuffer(content[:BLOCK].lstrip()[:_SIDE], np.uint8)
    last = np.frombuffer(content[-BLOCK:].rstrip()[-_SIDE:], np.uint8)
    feed = np.full(2 * _SIDE, PADDING, np.int32)
    feed[: first.size] = first
    feed[2 * _SIDE - last.size :] = last
    return feed
