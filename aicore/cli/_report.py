"""What commands print: tables on stdout, progress on stderr, JSON that any parser reads."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

_UNWRAPPED = 4096
"""Columns of a file or pipe: programs that read lines want them whole."""


@contextmanager
def working(text: str, quiet: bool = False) -> Iterator[None]:
    """Show a spinner on stderr while the block runs; on no terminal, and when quiet, nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(text):
        yield


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()) -> Table:
    """A table without a frame.

    right: headings of columns of numbers. Texts are shown as they are, without markup.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False)
    numbers = set(right)
    for heading in headings:
        made.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def show(*parts: Any) -> None:
    """Print texts, without markup, and tables to stdout. Where no terminal ends a line, nothing is wrapped."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=_UNWRAPPED)
    for part in parts:
        console.print(part, markup=False, highlight=False, soft_wrap=isinstance(part, str))


def print_json(data: Any) -> None:
    """Print JSON; numbers that JSON lacks become the texts nan, inf and -inf."""
    json.dump(_plain(data), sys.stdout, indent=2, allow_nan=False)
    print()


def size_text(count: float) -> str:
    """Bytes in the largest unit that leaves at least one."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def time_text(seconds: float) -> str:
    """Seconds with three digits or so, in a unit that suits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _plain(data: Any) -> Any:
    match data:
        case dict():
            return {str(key): _plain(value) for key, value in data.items()}
        case list() | tuple():
            return [_plain(value) for value in data]
        case float() if not math.isfinite(data):
            return str(data)
    return data
